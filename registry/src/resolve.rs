//! A program's tool ids → what is needed to call them, in one query; a second one where some are unknown.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{
    EntryType, Fqdn, Integrity, RegistryEntry, ResultMode, Routing, Scope, ToolDescriptor, ToolId,
};
use sqlx::PgConnection;

use crate::{Registry, RegistryError, Tenant, content};

/// How many near ids are named for one that is unknown.
const SUGGESTIONS: i64 = 3;
/// How many unknown ids are helped with: a program can name thousands.
const HELPED: usize = 8;
/// How many names of a scope an unknown one is compared with: each costs, and whoever asks pays nothing.
const COMPARED: i64 = 5_000;

/// What a program's tool ids stand for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    /// The known ones, sorted by id.
    pub tools: Vec<Arc<ResolvedTool>>,
    /// The unknown ones, sorted by id; one of them hides none of the others.
    pub missing: Vec<MissingTool>,
}

impl Resolved {
    /// Returns a known tool.
    pub fn get(&self, id: &ToolId) -> Option<&ResolvedTool> {
        self.tools.iter().find(|tool| tool.id == *id).map(Arc::as_ref)
    }
}

/// A tool as the caller's scope knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedTool {
    /// Its id.
    pub id: ToolId,
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// The kind of its server.
    pub kind: EntryType,
    /// Where it runs: by its server's row, else by the rules.
    pub routing: Routing,
    /// The hash of its content, verified.
    pub integrity: Integrity,
    /// How a text result is read.
    pub result: ResultMode,
    /// The upstream of an `http` server.
    pub proxy_to: Option<String>,
    /// Variables that the upstream or the child process needs.
    pub env_required: Vec<String>,
    /// It changes nothing, says the operator.
    pub read_only: bool,
    /// A call may be started before the program reaches it, says the operator.
    pub eager: bool,
    /// Equal arguments give equal results, says the operator.
    pub deterministic: bool,
    /// Its schemas and description.
    pub descriptor: ToolDescriptor,
    /// For a capability: its program.
    pub capability: Option<ResolvedCapability>,
}

/// The program of a capability, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedCapability {
    /// Its version.
    pub version: String,
    /// Its text.
    pub code: String,
    /// What it calls, sorted.
    pub calls: Vec<ToolId>,
}

/// An id that nothing visible has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTool {
    /// The id.
    pub id: ToolId,
    /// The nearest visible ids, the nearest first.
    pub suggestions: Vec<ToolId>,
}

impl Registry {
    /// Looks up every tool of a program: in the tenant's own scope first, then
    /// in the public catalog.
    ///
    /// # Errors
    /// Returns [`RegistryError::IntegrityMismatch`] when a stored tool was
    /// tampered with, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn resolve(
        &self,
        tenant: &Tenant,
        ids: &[ToolId],
    ) -> Result<Resolved, RegistryError> {
        if ids.is_empty() {
            return Ok(Resolved::default());
        }
        let wanted: Vec<String> = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let (org, project) = (tenant.org().to_owned(), tenant.project().to_owned());
        let principal = tenant.principal_name().to_owned();
        let public = Scope::public();
        let seeker = tenant.clone();
        let (rows, mut near) = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        r#"with wanted as (
                            select distinct id from unnest($3::text[]) as w (id)
                        ),
                        found as (
                            select distinct on (r.tool_id) r.*
                            from pml_registry r
                            where r.tool_id = any ($3)
                                and ((r.org = $1 and r.project = $2
                                        and (r.visibility <> 'private' or r.owner = $6))
                                    or (r.org = $4 and r.project = $5 and r.visibility = 'public'))
                            -- One's own before others', so that nobody takes its place by the same name.
                            order by r.tool_id, (r.org = $1 and r.project = $2) desc, (r.owner = $6) desc,
                                r.record_type desc
                        )
                        select w.id as "id!", f.org as "org?", f.project as "project?",
                            f.content as "content?", f.integrity as "integrity?",
                            f.routing as "routing?", f.result as "result?",
                            coalesce(c.class = 'read', f.read_only) as "read_only?",
                            c.eager as "eager?", f.deterministic as "deterministic?",
                            f.code as "code?"
                        from wanted w left join found f on f.tool_id = w.id
                            left join tool_classes c
                                on (c.org, c.project, c.namespace, c.name, c.integrity)
                                    = (f.org, f.project, f.namespace, f.name, f.integrity)
                        order by w.id collate "C""#,
                        org,
                        project,
                        &wanted,
                        public.org(),
                        public.project(),
                        principal,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let missing = rows.iter().filter(|row| row.content.is_none());
                    let missing: Vec<String> =
                        missing.take(HELPED).map(|row| row.id.clone()).collect();
                    let near = near(connection, &seeker, missing).await?;
                    Ok((rows, near))
                })
            })
            .await?;
        let mut resolved = Resolved::default();
        for row in rows {
            let id: ToolId = row.id.parse()?;
            let (Some(org), Some(project), Some(content), Some(integrity)) =
                (row.org, row.project, row.content, row.integrity)
            else {
                let suggestions = near.remove(&row.id).unwrap_or_default();
                resolved.missing.push(MissingTool { id, suggestions });
                continue;
            };
            let name = Fqdn::of_tool(Scope::new(&org, &project)?, &id);
            let routing = content::routing(row.routing.as_deref().unwrap_or_default());
            let (entry, fqdn) = content::from_stored(name, &content, &integrity, routing)?;
            let result = match row.result.as_deref() {
                Some("json") => ResultMode::Json,
                Some("value") => ResultMode::Value,
                _ => ResultMode::Text,
            };
            let capability = capability(&fqdn, &entry, row.code)?;
            let tool = tool(id, fqdn, entry, result)?;
            resolved.tools.push(Arc::new(ResolvedTool {
                capability,
                read_only: row.read_only == Some(true),
                eager: row.eager == Some(true),
                deterministic: row.deterministic == Some(true),
                ..tool
            }));
        }
        Ok(resolved)
    }
}

/// Returns ids that the tenant may see and that are written nearly as those that it named.
async fn near(
    connection: &mut PgConnection,
    tenant: &Tenant,
    missing: Vec<String>,
) -> Result<HashMap<String, Vec<ToolId>>, RegistryError> {
    let mut near: HashMap<String, Vec<ToolId>> = HashMap::new();
    if missing.is_empty() {
        return Ok(near);
    }
    let public = Scope::public();
    let rows = sqlx::query!(
        r#"with known as materialized (
            (select tool_id from pml_registry
                where org = $1 and project = $2 and (visibility <> 'private' or owner = $3) limit $7)
            union
            (select tool_id from pml_registry
                where org = $4 and project = $5 and visibility = 'public' limit $7)
        )
        select w.id as "id!", n.tool_id as "tool_id!"
        from unnest($6::text[]) as w (id)
            cross join lateral (
                select tool_id from known
                where similarity(tool_id, w.id) > 0.25
                order by similarity(tool_id, w.id) desc, tool_id
                limit $8
            ) as n
        order by similarity(n.tool_id, w.id) desc, n.tool_id"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        public.org(),
        public.project(),
        &missing,
        COMPARED,
        SUGGESTIONS,
    )
    .fetch_all(connection)
    .await?;
    for row in rows {
        near.entry(row.id).or_default().push(row.tool_id.parse()?);
    }
    Ok(near)
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
    env_required.extend(entry.install.into_iter().flat_map(|install| install.env_required));
    Ok(ResolvedTool {
        id,
        fqdn,
        kind: entry.kind,
        routing: entry.routing,
        integrity: entry.integrity,
        result,
        proxy_to: entry.proxy_to,
        env_required,
        read_only: false,
        eager: false,
        deterministic: false,
        descriptor,
        capability: None,
    })
}

/// Returns the program of an entry, if it has one and the text is the one that was published.
pub(crate) fn capability(
    fqdn: &Fqdn,
    entry: &RegistryEntry,
    code: Option<String>,
) -> Result<Option<ResolvedCapability>, RegistryError> {
    match (&entry.capability, code) {
        (None, None) => Ok(None),
        (Some(program), Some(code)) if Integrity::of(code.as_bytes()) == program.code_hash => {
            let calls = program.calls.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
            Ok(Some(ResolvedCapability { version: program.version.clone(), code, calls }))
        }
        _ => Err(RegistryError::IntegrityMismatch(fqdn.clone())),
    }
}
