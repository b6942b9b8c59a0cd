//! Reads and verifies the rows of the look-up.

use protocol::{Fqdn, Integrity, RegistryEntry, ResultMode, Routing, Scope, ToolId};

use super::{Absence, ResolvedCapability, ResolvedTool};
use crate::RegistryError;
use crate::entries::{content, server_entry};

/// A candidate for one id; without a candidate, one row with only the id.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) org: Option<String>,
    pub(super) project: Option<String>,
    pub(super) content: Option<String>,
    pub(super) integrity: Option<String>,
    pub(super) routing: Option<String>,
    pub(super) result: Option<String>,
    pub(super) read_only: Option<bool>,
    pub(super) eager: Option<bool>,
    pub(super) deterministic: Option<bool>,
    pub(super) code: Option<String>,
    pub(super) version: Option<String>,
    pub(super) is_server: Option<bool>,
    pub(super) is_nearest: Option<bool>,
    pub(super) yanked: Option<Vec<String>>,
}

/// The resolution of one id.
pub(super) enum Found {
    Tool(Box<ResolvedTool>),
    /// Entries have the name, but none of them is the one meant.
    Nothing(Absence, Vec<ToolId>),
    Unknown,
}

/// Reads the candidates for one id, which are sorted nearest first.
pub(super) fn read(id: &ToolId, rows: &[Row]) -> Result<Found, RegistryError> {
    let owner = |row: &Row| match (&row.org, &row.project) {
        (Some(org), Some(project)) => Scope::new(org, project).ok(),
        _ => None,
    };
    let Some((row, scope)) = rows.first().and_then(|row| Some((row, owner(row)?))) else {
        return Ok(Found::Unknown);
    };
    let mut others: Vec<(bool, Scope)> = Vec::new();
    for other in &rows[1..] {
        let is_near = other.is_nearest == Some(true);
        // A server's tool and a capability of one project can have the same id. That is not
        // ambiguous: the query sorts the tool first.
        let known = owner(other).filter(|other| *other != scope);
        others.extend(known.map(|other| (is_near, other)));
    }
    if others.iter().any(|(is_near, _)| *is_near) {
        let near = others.iter().filter(|(is_near, _)| *is_near).map(|(_, other)| other);
        let names = std::iter::once(&scope).chain(near).map(|scope| id.within(scope)).collect();
        return Ok(Found::Nothing(Absence::Ambiguous, names));
    }
    let (Some(content), Some(integrity)) = (&row.content, &row.integrity) else {
        return Ok(Found::Unknown);
    };
    let name = Fqdn::of_tool(scope.clone(), id);
    let routing = content::routing(row.routing.as_deref().unwrap_or_default());
    let (entry, fqdn) = if row.is_server == Some(true) {
        tool_of_server(&name, id, content, integrity, routing)?
    } else {
        content::from_stored(name, content, integrity, routing)?
    };
    // Compared with the hash of the verified content, not with a column.
    if id.hash().is_some_and(|hash| fqdn.hash() != Some(&hash)) {
        let now = fqdn.full_tool().into_iter().collect();
        return Ok(Found::Nothing(Absence::Changed, now));
    }
    let result = match row.result.as_deref() {
        Some("json") => ResultMode::Json,
        Some("value") => ResultMode::Value,
        _ => ResultMode::Text,
    };
    let capability = capability(&fqdn, &entry, row.code.clone())?;
    let version = capability.as_ref().map(|capability| capability.version.clone());
    let yanked = row.yanked.iter().flatten().map(|scope| Ok(Fqdn::of_tool(scope.parse()?, id)));
    let yanked = yanked.collect::<Result<_, RegistryError>>()?;
    let hides = others.into_iter().map(|(_, scope)| Fqdn::of_tool(scope, id)).collect();
    let tool = tool(id.clone(), fqdn, entry, result)?;
    Ok(Found::Tool(Box::new(ResolvedTool {
        capability,
        version: version.or_else(|| row.version.clone()),
        hides,
        yanked,
        read_only: row.read_only == Some(true),
        eager: row.eager == Some(true),
        deterministic: row.deterministic == Some(true),
        ..tool
    })))
}

/// Derives a tool's entry from a version of its server, identical to the entry that the tool had with that version.
fn tool_of_server(
    name: &Fqdn,
    id: &ToolId,
    content: &str,
    integrity: &str,
    routing: Routing,
) -> Result<(RegistryEntry, Fqdn), RegistryError> {
    let server = Fqdn::server(name.scope().clone(), name.namespace())?;
    let (entry, _) = content::from_stored(server, content, integrity, routing)?;
    let row =
        server_entry::row(name.scope(), &server_entry::server_of(name.namespace(), entry), None)?;
    let tool = row.tools.into_iter().find(|tool| tool.name == id.action());
    let tool = tool.ok_or_else(|| RegistryError::IntegrityMismatch(name.clone()))?;
    content::from_stored(name.clone(), &tool.content, &tool.integrity.to_string(), routing)
}

fn tool(
    id: ToolId,
    fqdn: Fqdn,
    entry: RegistryEntry,
    result: ResultMode,
) -> Result<ResolvedTool, RegistryError> {
    let Some(descriptor) = entry.tools.into_iter().next() else {
        return Err(RegistryError::IntegrityMismatch(fqdn));
    };
    let mut env_required = entry.env_required;
    // An `http` server has its variables in the entry, a `stdio` server in `install`.
    env_required.extend(entry.install.iter().flat_map(|install| install.env_required.clone()));
    Ok(ResolvedTool {
        id,
        fqdn,
        version: None,
        hides: Vec::new(),
        yanked: Vec::new(),
        kind: entry.kind,
        routing: entry.routing,
        integrity: entry.integrity,
        result,
        proxy_to: entry.proxy_to,
        install: entry.install,
        env_required,
        read_only: false,
        eager: false,
        deterministic: false,
        descriptor,
        capability: None,
    })
}

/// Returns the program of an entry, if it has one. Fails if the code does not have the published hash.
pub(crate) fn capability(
    fqdn: &Fqdn,
    entry: &RegistryEntry,
    code: Option<String>,
) -> Result<Option<ResolvedCapability>, RegistryError> {
    // The entry has the hash of the code, so the hash of the entry protects both.
    match (&entry.capability, code) {
        (None, None) => Ok(None),
        (Some(program), Some(code)) if Integrity::of(code.as_bytes()) == program.code_hash => {
            let calls = program.calls.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
            Ok(Some(ResolvedCapability { version: program.version.clone(), code, calls }))
        }
        _ => Err(RegistryError::IntegrityMismatch(fqdn.clone())),
    }
}
