//! One registry entry, by full or short name.

use protocol::{Fqdn, RegistryEntry, Scope, ToolId, Visibility};
use sqlx::PgConnection;

use crate::entries::name::EntryName;
use crate::entries::version::Version;
use crate::entries::{content, resolve};
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// An entry, and what the gateway needs to serve it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The entry, whose content has been verified against its hash.
    pub entry: RegistryEntry,
    /// Its canonical name; a tool's is pinned.
    pub fqdn: Fqdn,
    /// The visibility; only a public entry may be cached by others.
    pub visibility: Visibility,
    /// Whether the entry itself contains a routing, which overrides the rules.
    pub is_fixed: bool,
    /// For a capability: its program.
    pub code: Option<String>,
}

struct Row {
    org: String,
    project: String,
    content: String,
    integrity: String,
    routing: String,
    is_fixed: bool,
    visibility: String,
    code: Option<String>,
    deprecated: Option<String>,
}

impl Registry {
    /// Returns an entry that the tenant may see.
    ///
    /// # Errors
    /// Returns the same [`RegistryError::NotFound`] for nonexistent and hidden entries, [`RegistryError::Gone`] for
    /// an entry that the tenant could see until it was deleted, [`RegistryError::HashMismatch`] when the name is
    /// pinned to a different content, and [`RegistryError::IntegrityMismatch`] when the stored content was tampered
    /// with.
    pub async fn entry(&self, tenant: &Tenant, name: &EntryName) -> Result<Entry, RegistryError> {
        self.entry_at(tenant, name, None).await
    }

    /// Returns one version of an entry that the tenant may see; capabilities and published servers have versions. A
    /// yanked version is returned as well, because requests for exactly that version still resolve.
    ///
    /// # Errors
    /// As [`Registry::entry`].
    pub async fn entry_at(
        &self,
        tenant: &Tenant,
        name: &EntryName,
        version: Option<Version>,
    ) -> Result<Entry, RegistryError> {
        let (nearest, farthest, namespace, action) = name.parts(tenant);
        let wanted = Wanted {
            nearest: nearest.clone(),
            farthest: farthest.clone(),
            namespace: namespace.to_owned(),
            action: action.map(str::to_owned),
            version: version.map(|version| version.to_string()),
            is_short: name.is_short(),
        };
        let (caller, requested) = (tenant.clone(), name.to_string());
        let rows = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let rows = read(connection, &caller, &wanted).await?;
                    // Tombstones count only if nothing is found: a deleted entry does not hide
                    // another one of the same short name.
                    if rows.is_empty() {
                        return Err(match is_gone(connection, &caller, &wanted).await? {
                            true => RegistryError::Gone(requested),
                            false => RegistryError::NotFound(requested),
                        });
                    }
                    Ok(rows)
                })
            })
            .await?;
        let (row, scope) = nearest_of(rows, &nearest, &farthest, name)?;
        let found = match action {
            Some(action) => Fqdn::of_tool(scope, &ToolId::new(namespace, action)?),
            None => Fqdn::server(scope, namespace)?,
        };
        let routing = content::routing(&row.routing);
        let (mut entry, fqdn) = content::from_stored(found, &row.content, &row.integrity, routing)?;
        // Set after the verification: it is not part of the content, so it can change without a new
        // hash.
        entry.deprecated = row.deprecated;
        let code =
            resolve::row::capability(&fqdn, &entry, row.code)?.map(|capability| capability.code);
        // Compared only now, because a pin must match the verified content.
        if name.pin().is_some_and(|pin| fqdn.hash() != Some(pin)) {
            return Err(RegistryError::HashMismatch { current: fqdn });
        }
        let visibility = content::visibility(&row.visibility);
        Ok(Entry { entry, fqdn, visibility, is_fixed: row.is_fixed, code })
    }
}

/// The parameters of a look-up.
struct Wanted {
    nearest: Scope,
    farthest: Scope,
    namespace: String,
    action: Option<String>,
    version: Option<String>,
    /// Whether other projects of the caller's organisation are searched as well.
    is_short: bool,
}

/// Reads the entries of one table to which a name may resolve, nearest first. The columns and the additional condition
/// differ by table; the arguments from `$10` on belong to the condition.
///
/// The row-level policies hide the same entries as `visible_to`; each holds without the other. Four rows are enough:
/// the nearest scope, the farthest one, and two in between, which already make the name ambiguous.
///
/// The list of organisations repeats what the alternatives say, in a form that an index can use: with the parameter in
/// the last alternative, Postgres would read all entries of an organisation, or all of a table.
macro_rules! read_from {
    ($connection:expr, $caller:expr, $wanted:expr, $columns:literal, $condition:literal $(, $argument:expr)*) => {
        sqlx::query_as!(
            Row,
            $columns
                + " where ((org = $1 and project = $2) or (org = $3 and project = $4) or ($9 and org = $6))
                    and org = any (array[$1, $3, $6]) and namespace = $5
                    and visible_to($6, $7, $8, org, project, visibility, owner)"
                + $condition
                + r#" order by (org = $1 and project = $2) desc, (org = $3 and project = $4),
                    org collate "C", project collate "C"
                limit 4"#,
            $wanted.nearest.org(),
            $wanted.nearest.project(),
            $wanted.farthest.org(),
            $wanted.farthest.project(),
            $wanted.namespace,
            $caller.org(),
            $caller.project(),
            $caller.principal_name(),
            $wanted.is_short,
            $($argument),*
        )
        .fetch_all($connection)
        .await?
    };
}

async fn read(
    connection: &mut PgConnection,
    caller: &Tenant,
    wanted: &Wanted,
) -> Result<Vec<Row>, RegistryError> {
    let rows = match (&wanted.action, &wanted.version) {
        (Some(action), Some(version)) => read_from!(
            connection,
            caller,
            wanted,
            r#"select org, project, content, integrity, routing, true as "is_fixed!", visibility,
                code as "code?", deprecated
            from capability_versions"#,
            " and tool_id = $10 and version = $11",
            tool_id(wanted, action),
            version
        ),
        (Some(action), None) => read_from!(
            connection,
            caller,
            wanted,
            r#"select org as "org!", project as "project!", content as "content!", integrity as "integrity!",
                routing as "routing!", true as "is_fixed!", visibility as "visibility!", code, deprecated
            from pml_registry"#,
            " and tool_id = $10",
            tool_id(wanted, action)
        ),
        (None, Some(version)) => read_from!(
            connection,
            caller,
            wanted,
            r#"select org, project, content, integrity, routing as "routing!", true as "is_fixed!", visibility,
                null as code, deprecated
            from server_versions"#,
            " and version = $10",
            version
        ),
        (None, None) => read_from!(
            connection,
            caller,
            wanted,
            r#"select org, project, content, integrity,
                (select o.routing from routing_of(routing, namespace, namespace || ':*') o) as "routing!",
                routing is not null as "is_fixed!", visibility, null as code, deprecated
            from mcp_servers"#,
            ""
        ),
    };
    Ok(rows)
}

/// Returns the id of a tool or capability, for which there is an index.
fn tool_id(wanted: &Wanted, action: &str) -> String {
    format!("{}:{action}", wanted.namespace)
}

/// Returns whether such an entry existed and the caller could see it.
async fn is_gone(
    connection: &mut PgConnection,
    caller: &Tenant,
    wanted: &Wanted,
) -> Result<bool, RegistryError> {
    let is_gone = sqlx::query_scalar!(
        r#"select exists (
            select from tombstones
            where ((org = $1 and project = $2) or (org = $3 and project = $4))
                and namespace = $5 and name in ('', $6)
                and visible_to($7, $8, $9, org, project, visibility, owner)
        ) as "is_gone!""#,
        wanted.nearest.org(),
        wanted.nearest.project(),
        wanted.farthest.org(),
        wanted.farthest.project(),
        wanted.namespace,
        wanted.action.as_deref().unwrap_or_default(),
        caller.org(),
        caller.project(),
        caller.principal_name(),
    )
    .fetch_one(connection)
    .await?;
    Ok(is_gone)
}

/// Returns the entry to which a name resolves, from the candidates sorted by distance.
fn nearest_of(
    rows: Vec<Row>,
    nearest: &Scope,
    farthest: &Scope,
    name: &EntryName,
) -> Result<(Row, Scope), RegistryError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let scope = Scope::new(&row.org, &row.project)?;
        found.push((row, scope));
    }
    // The rows are sorted by distance, so an entry of the nearest scope comes first and is never ambiguous.
    let is_between = |scope: &Scope| scope != nearest && scope != farthest;
    if let [(_, first), (_, second), ..] = &found[..]
        && is_between(first)
        && is_between(second)
    {
        let between = found.iter().map(|(_, scope)| scope).filter(|scope| is_between(scope));
        let candidates = between.map(|scope| match name {
            EntryName::Tool(id) => Fqdn::of_tool(scope.clone(), id).to_string(),
            other => format!("{scope}.{other}"),
        });
        return Err(RegistryError::Ambiguous {
            name: name.to_string(),
            candidates: candidates.collect(),
        });
    }
    found.into_iter().next().ok_or_else(|| RegistryError::NotFound(name.to_string()))
}
