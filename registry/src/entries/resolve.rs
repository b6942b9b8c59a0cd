//! Resolves a program's tool ids in one query, with a second one for suggestions if some are unknown.
//!
//! A short name, `namespace:action`, resolves to the nearest entry: of the program's scope, then of its organisation,
//! then of the catalog. Public entries of other organisations are reached by their full names only, so that
//! publishing under an unused name cannot intercept calls that meant something else.

mod near;
pub(crate) mod row;

use std::sync::Arc;

use protocol::{
    EntryType, Fqdn, Install, Integrity, ResultMode, Routing, Scope, ToolDescriptor, ToolId,
};

use self::row::{Found, Row, read};
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The maximum number of entries reported for one name: the resolved one, and those that it hides.
const CANDIDATES_PER_ID: i64 = 4;

/// The resolution of a program's tool ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    /// The resolved tools, sorted by id.
    pub tools: Vec<Arc<ResolvedTool>>,
    /// All ids that do not resolve, sorted by id.
    pub missing: Vec<MissingTool>,
}

impl Resolved {
    /// Returns the resolved tool of an id.
    pub fn get(&self, id: &ToolId) -> Option<&ResolvedTool> {
        self.tools.iter().find(|tool| tool.id == *id).map(Arc::as_ref)
    }
}

/// A tool as the caller's scope knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedTool {
    /// Its id, as the program names it.
    pub id: ToolId,
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// The version of the capability or published server; entries of the catalog have none.
    pub version: Option<String>,
    /// The more distant entries that the same short name would resolve to without this one, nearest first.
    pub hides: Vec<Fqdn>,
    /// The nearer entries of that short name that are skipped, because all of their versions are yanked.
    pub yanked: Vec<Fqdn>,
    /// The kind of its server.
    pub kind: EntryType,
    /// Where it runs: the routing of its server's row, or else of the rules.
    pub routing: Routing,
    /// The hash of its content, verified.
    pub integrity: Integrity,
    /// How a text result is interpreted.
    pub result: ResultMode,
    /// The upstream of an `http` server.
    pub proxy_to: Option<String>,
    /// How a `stdio` server is started.
    pub install: Option<Install>,
    /// Variables that the upstream or the child process needs.
    pub env_required: Vec<String>,
    /// The operator marked it as read-only.
    pub read_only: bool,
    /// Whether a call may start before the program reaches it, according to the operator.
    pub eager: bool,
    /// Whether equal arguments give equal results, according to the operator.
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
    /// Its source code.
    pub code: String,
    /// The ids of the tools that it calls, sorted.
    pub calls: Vec<ToolId>,
}

/// An id that resolves to nothing visible, or is ambiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTool {
    /// The id.
    pub id: ToolId,
    /// Why it does not resolve.
    pub why: Absence,
    /// The ids to write instead, best first.
    pub suggestions: Vec<ToolId>,
}

/// Why an id does not resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// No visible entry has the id; the suggestions are similar ids or other versions.
    Unknown,
    /// Only other organisations have public entries with the id; the suggestions are their full names.
    Elsewhere,
    /// Several projects of the organisation have it; the suggestions are the full names.
    Ambiguous,
    /// The content does not have the pinned hash; the suggestion has the current one.
    Changed,
}

impl Registry {
    /// Looks up every tool of a program that the tenant itself wrote.
    ///
    /// # Errors
    /// As [`Registry::resolve_within`].
    pub async fn resolve(
        &self,
        tenant: &Tenant,
        ids: &[ToolId],
    ) -> Result<Resolved, RegistryError> {
        let own = tenant.scope().cloned().unwrap_or_else(Scope::public);
        self.resolve_within(tenant, &own, ids).await
    }

    /// Looks up every tool of a program of the scope `base`, which the tenant runs. A capability's short names resolve
    /// in the scope in which it was published, never in the caller's. Only entries that both the caller and that scope
    /// may see are found.
    ///
    /// # Errors
    /// Returns [`RegistryError::IntegrityMismatch`] when a stored tool was
    /// tampered with, and [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn resolve_within(
        &self,
        tenant: &Tenant,
        base: &Scope,
        ids: &[ToolId],
    ) -> Result<Resolved, RegistryError> {
        if ids.is_empty() {
            return Ok(Resolved::default());
        }
        let wanted = Wanted::new(base, ids);
        let (base, principal) = (base.clone(), tenant.principal_name().to_owned());
        let caller = tenant.clone();
        let (rows, mut near) = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let public = Scope::public();
                    // Yanked versions resolve only by exact version. `offset 0` keeps the look-ups separate, one
                    // index look-up per name: a join would read every tool of the registry.
                    let rows = sqlx::query_as!(
                        Row,
                        r#"with wanted as (
                            select distinct * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
                                as w (id, tool_id, org, project, version)
                        ),
                        candidates as (
                            select w.id, w.org as of_org, w.project as of_project, r.org, r.project, r.namespace,
                                r.name, r.content, r.integrity, r.routing, r.result, r.read_only, r.deterministic,
                                r.code, r.visibility, r.owner, null as version, r.record_type = 'mcp-tool' as is_tool,
                                false as is_server
                            from wanted w cross join lateral (
                                select * from pml_registry r
                                where r.tool_id = w.tool_id and r.org = any ($6) offset 0) r
                            where w.version = ''
                            union all
                            select w.id, w.org, w.project, v.org, v.project, v.namespace, v.name, v.content,
                                v.integrity, v.routing, 'value', false, false, v.code, v.visibility, v.owner,
                                v.version, false, false
                            from wanted w join capability_versions v
                                on v.tool_id = w.tool_id and v.version = w.version
                            where w.version <> '' and v.org = any ($6)
                            union all
                            select w.id, w.org, w.project, s.org, s.project, s.namespace, split_part(w.tool_id, ':', 2),
                                s.content, s.integrity, s.routing, 'text', false, false, null, s.visibility, s.owner,
                                s.version, false, true
                            from wanted w join server_versions s
                                on s.namespace = split_part(w.tool_id, ':', 1) and s.version = w.version
                            where w.version <> '' and s.org = any ($6) and s.namespace = any ($13)
                                and exists (
                                    select from jsonb_array_elements(s.content::jsonb -> 'tools') t
                                    where t ->> 'name' = split_part(w.tool_id, ':', 2))
                        ),
                        visible as (
                            select c.*, case
                                when of_org <> '' then case when org = of_org and project = of_project then 0 end
                                when org = $7 and project = $8 then 0
                                when org = $7 then 1
                                when org = $10 and project = $11 then 2
                                end as distance
                            from candidates c
                            where visible_to($7, $8, $9, org, project, visibility, owner)
                        ),
                        -- Only the own organisation has what is nearer than something else.
                        yanked as materialized (
                            select w.id, v.org, v.project, v.visibility, v.owner
                            from wanted w cross join lateral (
                                    select * from capability_versions v
                                    where v.tool_id = w.tool_id and v.org = $7 offset 0) v
                                join capabilities c on (c.org, c.project, c.namespace, c.name)
                                    = (v.org, v.project, v.namespace, v.name)
                            where w.version = '' and w.org = '' and c.latest is null
                            union
                            select w.id, p.org, p.project, p.visibility, p.owner
                            from wanted w join published_servers p
                                on p.namespace = split_part(w.tool_id, ':', 1) and p.org = $7 and p.latest is null
                            where w.version = '' and w.org = '' and p.namespace = any ($13)
                                -- With a limit it is looked at for these servers alone.
                                and (
                                    select true from server_versions s
                                        cross join jsonb_array_elements(s.content::jsonb -> 'tools') t
                                    where (s.org, s.project, s.namespace) = (p.org, p.project, p.namespace)
                                        and t ->> 'name' = split_part(w.tool_id, ':', 2)
                                    limit 1)
                        ),
                        found as (
                            select v.*, min(distance) over (partition by id) as nearest,
                                row_number() over (partition by id
                                    order by distance, is_tool desc, org collate "C", project collate "C") as nth
                            from visible v
                            where distance is not null
                        )
                        select w.id as "id!", f.org as "org?", f.project as "project?",
                            case when f.distance = f.nearest then f.content end as content,
                            f.integrity as "integrity?", f.routing as "routing?", f.result as "result?",
                            coalesce(c.class = 'read', f.read_only) as read_only,
                            c.eager as "eager?", f.deterministic as "deterministic?",
                            case when f.distance = f.nearest then f.code end as code,
                            coalesce(f.version, p.latest) as version,
                            f.is_server as "is_server?", f.distance = f.nearest as is_nearest,
                            (select array_agg(y.org || '.' || y.project order by y.project <> $8, y.project collate "C")
                                from yanked y
                                where y.id = f.id and case when y.project = $8 then 0 else 1 end < f.nearest
                                    and visible_to($7, $8, $9, y.org, y.project, y.visibility, y.owner)) as yanked
                        from wanted w left join found f on f.id = w.id and f.nth <= $12
                            left join tool_classes c on f.is_tool
                                and (c.org, c.project, c.namespace, c.name, c.integrity)
                                    = (f.org, f.project, f.namespace, f.name, f.integrity)
                            left join published_servers p on f.is_tool
                                and (p.org, p.project, p.namespace) = (f.org, f.project, f.namespace)
                        order by w.id collate "C", f.nth"#,
                        &wanted.ids,
                        &wanted.tools,
                        &wanted.orgs,
                        &wanted.projects,
                        &wanted.versions,
                        &wanted.owners,
                        base.org(),
                        base.project(),
                        principal,
                        public.org(),
                        public.project(),
                        CANDIDATES_PER_ID,
                        &wanted.namespaces,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    // In the same transaction, for a limited number of ids; the others get no
                    // suggestions.
                    let missing = rows.iter().filter(|row| row.org.is_none());
                    let missing = missing.take(near::MAX_IDS).map(|row| row.id.parse());
                    let missing = missing.collect::<Result<Vec<ToolId>, _>>()?;
                    let near = near::near(connection, &caller, &base, missing).await?;
                    Ok((rows, near))
                })
            })
            .await?;
        let mut resolved = Resolved::default();
        // The query sorts by id, so the candidates for an id are adjacent.
        for rows in rows.chunk_by(|one, other| one.id == other.id) {
            let [first, ..] = rows else { continue };
            let id: ToolId = first.id.parse()?;
            match read(&id, rows)? {
                Found::Tool(tool) => resolved.tools.push(Arc::from(tool)),
                Found::Nothing(why, suggestions) => {
                    resolved.missing.push(MissingTool { id, why, suggestions });
                }
                Found::Unknown => {
                    let (why, suggestions) =
                        near.remove(&id).unwrap_or((Absence::Unknown, Vec::new()));
                    resolved.missing.push(MissingTool { id, why, suggestions });
                }
            }
        }
        Ok(resolved)
    }
}

/// The ids of a program as columns; absent parts of an id are empty.
#[derive(Default)]
struct Wanted {
    ids: Vec<String>,
    tools: Vec<String>,
    namespaces: Vec<String>,
    orgs: Vec<String>,
    projects: Vec<String>,
    versions: Vec<String>,
    /// The organisations whose entries are candidates.
    owners: Vec<String>,
}

impl Wanted {
    fn new(base: &Scope, ids: &[ToolId]) -> Self {
        let mut wanted = Self::default();
        // Bounds the look-ups: without it, each id would be searched for in every organisation.
        let mut owners = vec![base.org().to_owned(), Scope::public().org().to_owned()];
        for id in ids {
            let scope = id.scope();
            let part = |part: fn(&Scope) -> &str| scope.as_ref().map(part).unwrap_or_default();
            wanted.ids.push(id.as_str().to_owned());
            wanted.tools.push(id.plain().as_str().to_owned());
            wanted.namespaces.push(id.namespace().to_owned());
            wanted.orgs.push(part(Scope::org).to_owned());
            wanted.projects.push(part(Scope::project).to_owned());
            wanted.versions.push(id.version().unwrap_or_default().to_owned());
            owners.extend(scope.as_ref().map(|scope| scope.org().to_owned()));
        }
        owners.sort_unstable();
        owners.dedup();
        Self { owners, ..wanted }
    }
}
