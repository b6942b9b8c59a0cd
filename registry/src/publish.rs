//! Capabilities: published once, in versions that never change.

use protocol::look_alike::{self, RESERVED_NAMESPACES};
use protocol::{
    CapabilityProgram, EntryType, Fqdn, Integrity, McpDependency, RegistryEntry, Routing, Scope,
    ToolDescriptor, ToolId, Visibility,
};
use serde_json::Value;
use sqlx::PgConnection;

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::version::{Chosen, Existing, choose};
use crate::{Registry, RegistryError, Tenant, Version, content};

/// A program that was analysed and is about to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCapability {
    /// The id under which programs will call it.
    pub id: ToolId,
    /// Its version; without one, the next patch.
    pub version: Option<Version>,
    /// Visibility. Default: unchanged; `project` on first publish.
    pub visibility: Option<Visibility>,
    /// The description.
    pub description: String,
    /// JSON Schema of its `args`.
    pub input_schema: Value,
    /// The program.
    pub code: String,
    /// The calls that the analysis found, sorted.
    pub calls: Vec<ToolId>,
    /// The servers of those tools that run as child processes, sorted by name.
    pub mcp_deps: Vec<McpDependency>,
    /// Where it would run at present.
    pub routing: Routing,
}

/// The published capability.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Its full name, pinned to its content.
    pub fqdn: Fqdn,
    /// Its version.
    pub version: Version,
    /// The hash of its content.
    pub integrity: Integrity,
    /// Whether this call created it; false if the identical version already existed.
    pub new: bool,
    /// Whether it now hides a public entry of the same id.
    pub hides_public: bool,
}

/// A change of a published version: deprecation or yanking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// It should not be used any more, and why.
    Deprecated(String),
    /// It may be used again.
    NotDeprecated,
    /// Only those who name the version get it from now on.
    Yanked,
}

impl Registry {
    /// Publishes a version of a capability in the tenant's scope.
    ///
    /// Publishing the same bytes again changes nothing and is no error.
    ///
    /// # Errors
    /// Returns [`RegistryError::Conflict`] when the version has different bytes, the id is an MCP server's tool, or
    /// the visibility of another principal's capability would change, [`RegistryError::Invalid`] for a name that is
    /// reserved or looks like another one, and [`RegistryError::Denied`] for a tenant that may not write its scope.
    pub async fn publish(
        &self,
        tenant: &Tenant,
        new: NewCapability,
    ) -> Result<Published, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        check_reserved(new.id.namespace())?;
        let actor = tenant.clone();
        let published = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move { publish(connection, &actor, &scope, new).await })
            })
            .await;
        // This process need not wait for its own notification.
        self.entries.forget();
        published
    }

    /// Changes one version of a capability of the tenant's scope, or all of them.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant's scope has no such version that the tenant may see.
    pub async fn remark(
        &self,
        tenant: &Tenant,
        id: &ToolId,
        version: Option<Version>,
        remark: Remark,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let (actor, id) = (tenant.clone(), id.clone());
        let remarked = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    lock(connection, &scope, &id).await?;
                    let name = match version {
                        Some(version) => format!("{}@{version}", Fqdn::of_tool(scope.clone(), &id)),
                        None => Fqdn::of_tool(scope.clone(), &id).to_string(),
                    };
                    let (verb, deprecated, yank) = remark.parts();
                    let action = format!("capability.{verb}");
                    let event = AuditEvent::new(action, name.as_str(), AuditOutcome::Allowed);
                    let changed = sqlx::query!(
                        "update capability_versions
                    set deprecated = case when $6 then deprecated else $7 end,
                        yanked_at = case when $6 then coalesce(yanked_at, now()) else yanked_at end
                    where org = $1 and project = $2 and namespace = $3 and name = $4
                        and ($5::text is null or version = $5)",
                        scope.org(),
                        scope.project(),
                        id.namespace(),
                        id.action(),
                        version.map(|version| version.to_string()),
                        yank,
                        deprecated,
                    )
                    .execute(&mut *connection)
                    .await?;
                    if changed.rows_affected() == 0 {
                        return Err(RegistryError::NotFound(name));
                    }
                    choose_latest(connection, &scope, &id).await?;
                    audit::record(connection, &actor, event).await
                })
            })
            .await;
        // This process need not wait for its own notification.
        self.entries.forget();
        remarked
    }
}

/// Serializes publishing under an id until the transaction ends.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    scope: &Scope,
    id: &ToolId,
) -> Result<(), RegistryError> {
    let key = format!("pml publish {}", Fqdn::of_tool(scope.clone(), id));
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", key)
        .execute(connection)
        .await?;
    Ok(())
}

async fn choose_latest(
    connection: &mut PgConnection,
    scope: &Scope,
    id: &ToolId,
) -> Result<(), RegistryError> {
    sqlx::query!(
        "update capabilities c set latest = (
            select v.version from capability_versions v
            where v.org = $1 and v.project = $2 and v.namespace = $3 and v.name = $4
                and v.yanked_at is null
            order by v.rank desc limit 1)
        where c.org = $1 and c.project = $2 and c.namespace = $3 and c.name = $4",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn publish(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    new: NewCapability,
) -> Result<Published, RegistryError> {
    let id = new.id.clone();
    lock(connection, scope, &id).await?;
    let hides_public = check_name(connection, scope, &id).await?;
    let visibility = claim(connection, actor, scope, &id, new.visibility).await?;
    let existing = existing(connection, scope, &id).await?;
    let stored = |version| entry_of(scope, &new, version);
    let chosen =
        choose(&existing, new.version, &format!("`{id}`"), stored, |(content, _)| content)?;
    let told = |version, integrity: Integrity, new| Published {
        fqdn: Fqdn::of_tool(scope.clone(), &id).pinned(integrity.short()),
        version,
        integrity,
        new,
        hides_public,
    };
    let (version, (content, integrity)) = match chosen {
        Chosen::Known(known) => return Ok(told(known.version, known.integrity, false)),
        Chosen::New(version, stored) => (version, stored),
    };
    let detail = serde_json::json!({
        "version": version.to_string(),
        "integrity": integrity.to_string(),
        "visibility": visibility.as_str(),
    });
    let event = AuditEvent::new("capability.publish", id.as_str(), AuditOutcome::Allowed);
    audit::record(connection, actor, event.with_detail(detail)).await?;
    sqlx::query!(
        "insert into capability_versions
            (org, project, namespace, name, version, content, code, integrity, routing, published_by,
            visibility, owner)
        select org, project, namespace, name, $5, $6, $7, $8, $9, $10, visibility, owner
        from capabilities
        where org = $1 and project = $2 and namespace = $3 and name = $4",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
        version.to_string(),
        content,
        new.code,
        integrity.to_string(),
        new.routing.as_str(),
        actor.principal_name(),
    )
    .execute(&mut *connection)
    .await?;
    choose_latest(connection, scope, &id).await?;
    Ok(told(version, integrity, true))
}

/// Returns the stored content of a version and its hash.
fn entry_of(
    scope: &Scope,
    new: &NewCapability,
    version: Version,
) -> Result<(String, Integrity), RegistryError> {
    let descriptor = ToolDescriptor {
        name: new.id.action().to_owned(),
        description: new.description.clone(),
        input_schema: new.input_schema.clone(),
        output_schema: None,
        annotations: None,
    };
    content::to_stored(&RegistryEntry {
        fqdn: Fqdn::of_tool(scope.clone(), &new.id).to_string(),
        kind: EntryType::Deno,
        description: new.description.clone(),
        install: None,
        proxy_to: None,
        env_required: Vec::new(),
        tools: vec![descriptor],
        warnings: Vec::new(),
        server_version: None,
        server_json: None,
        capability: Some(CapabilityProgram {
            version: version.to_string(),
            code_hash: Integrity::of(new.code.as_bytes()),
            calls: new.calls.iter().map(ToString::to_string).collect(),
            mcp_deps: new.mcp_deps.clone(),
        }),
        deprecated: None,
        // Neither is content.
        routing: new.routing,
        integrity: Integrity::of(b""),
    })
}

/// Refuses a reserved namespace.
pub(crate) fn check_reserved(namespace: &str) -> Result<(), RegistryError> {
    if RESERVED_NAMESPACES.contains(&namespace) {
        return Err(RegistryError::Invalid(format!("namespace `{namespace}` is reserved")));
    }
    Ok(())
}

/// Refuses a namespace that looks like one that ships with PML, whether the catalog has it or not. A namespace that
/// the scope already has remains valid.
pub(crate) fn check_shipped(namespace: &str, is_known: bool) -> Result<(), RegistryError> {
    match look_alike::of_shipped(namespace) {
        Some(near) if !is_known => Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` looks like `{near}`; choose a different name"
        ))),
        _ => Ok(()),
    }
}

/// Refuses an id that belongs to an MCP server, and a namespace that looks like another one. Returns whether a public
/// entry has the id.
async fn check_name(
    connection: &mut PgConnection,
    scope: &Scope,
    id: &ToolId,
) -> Result<bool, RegistryError> {
    let public = Scope::public();
    let seen = sqlx::query!(
        r#"select
            exists (select from tools where org = $1 and project = $2 and tool_id = $3) as "is_tool!",
            exists (select from capabilities where org = $1 and project = $2 and namespace = $6) as "is_known!",
            exists (select from pml_registry where org = $4 and project = $5 and tool_id = $3) as "is_public!",
            exists (select from tombstones
                where org = $1 and project = $2 and namespace = $6 and name in ('', $7)) as "is_gone!",
            (select min(near.namespace) from (
                select namespace from mcp_servers
                where name_skeleton(namespace) = name_skeleton($6)
                    and ((org = $1 and (project = $2 or visibility in ('org', 'public')))
                        or (org = $4 and project = $5))
                union
                select namespace from capabilities
                where name_skeleton(namespace) = name_skeleton($6)
                    and ((org = $1 and (project = $2 or visibility in ('org', 'public')))
                        or (org = $4 and project = $5))
            ) near where near.namespace <> $6) as look_alike"#,
        scope.org(),
        scope.project(),
        id.as_str(),
        public.org(),
        public.project(),
        id.namespace(),
        id.action(),
    )
    .fetch_one(connection)
    .await?;
    if seen.is_gone {
        return Err(RegistryError::Conflict(format!(
            "`{id}` or its server was deleted; names are never reused"
        )));
    }
    if seen.is_tool {
        return Err(RegistryError::Conflict(format!("`{id}` is a tool of an MCP server here")));
    }
    check_shipped(id.namespace(), seen.is_known)?;
    match seen.look_alike {
        Some(near) => Err(RegistryError::Invalid(format!(
            "namespace `{}` looks like `{near}`; use that one or choose a different name",
            id.namespace()
        ))),
        None => Ok(seen.is_public),
    }
}

/// Creates the capability if it does not exist, and changes its visibility if requested.
async fn claim(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    id: &ToolId,
    wanted: Option<Visibility>,
) -> Result<Visibility, RegistryError> {
    let owner = actor.principal_name();
    sqlx::query!(
        "insert into capabilities (org, project, namespace, name, visibility, owner)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
        wanted.unwrap_or(Visibility::Project).as_str(),
        owner,
    )
    .execute(&mut *connection)
    .await?;
    let found = sqlx::query!(
        "select visibility, owner from capabilities
        where org = $1 and project = $2 and namespace = $3 and name = $4
            and visibility <> 'deleted' and (visibility <> 'private' or owner = $5)",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
        owner,
    )
    .fetch_optional(&mut *connection)
    .await?;
    // Another principal's private one, or one that was. That it is taken can be seen; what it is cannot.
    let found =
        found.ok_or_else(|| RegistryError::Conflict(format!("`{id}` is taken in this scope")))?;
    let before = content::visibility(&found.visibility);
    let Some(wanted) = wanted.filter(|wanted| *wanted != before) else { return Ok(before) };
    if found.owner != owner {
        let message =
            format!("`{id}` belongs to another principal, who alone can change its visibility");
        return Err(RegistryError::Conflict(message));
    }
    let detail = serde_json::json!({ "from": before.as_str(), "to": wanted.as_str() });
    let event = AuditEvent::new("capability.show", id.as_str(), AuditOutcome::Allowed);
    audit::record(connection, actor, event.with_detail(detail)).await?;
    sqlx::query!(
        "update capabilities set visibility = $5
        where org = $1 and project = $2 and namespace = $3 and name = $4",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
        wanted.as_str(),
    )
    .execute(connection)
    .await?;
    Ok(wanted)
}

/// Returns the versions that are there, the highest first.
async fn existing(
    connection: &mut PgConnection,
    scope: &Scope,
    id: &ToolId,
) -> Result<Vec<Existing>, RegistryError> {
    let rows = sqlx::query!(
        "select version, content, integrity from capability_versions
        where org = $1 and project = $2 and namespace = $3 and name = $4
        order by rank desc",
        scope.org(),
        scope.project(),
        id.namespace(),
        id.action(),
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let name = Fqdn::of_tool(scope.clone(), id);
            let integrity =
                row.integrity.parse().map_err(|_| RegistryError::IntegrityMismatch(name))?;
            Ok(Existing { version: row.version.parse()?, content: row.content, integrity })
        })
        .collect()
}
