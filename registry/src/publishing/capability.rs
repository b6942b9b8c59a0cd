//! Publishing of capabilities, in immutable versions.

use protocol::{
    CapabilityProgram, EntryType, Fqdn, Integrity, McpDependency, RegistryEntry, Routing, Scope,
    ToolDescriptor, ToolId, Visibility,
};
use serde_json::Value;
use sqlx::PgConnection;

use crate::entries::content;
use crate::entries::version::Version;
use crate::identity::tenant::Tenant;
use crate::publishing::names::{check_reserved, check_shipped, look_alike};
use crate::publishing::publication::Publication;
use crate::publishing::versions::{Chosen, choose};
use crate::records::audit;
use crate::{Registry, RegistryError};

/// A program that was analysed and is about to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCapability {
    /// The id by which programs will call it.
    pub id: ToolId,
    /// Its version. Default: the next patch version.
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
    /// Those servers of the called tools that run as child processes, sorted by name.
    pub mcp_deps: Vec<McpDependency>,
    /// Where it would run under the current rules.
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

impl Registry {
    /// Publishes a version of a capability in the tenant's scope.
    ///
    /// Publishing the same bytes again changes nothing and succeeds.
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
        // Do not wait for this process's own notification.
        // Also after an error: the commit may have taken effect.
        self.entries.clear();
        published
    }
}

/// Sets `latest` to the highest version that is not yanked.
pub(super) async fn update_latest(
    connection: &mut PgConnection,
    capability: &Publication,
) -> Result<(), RegistryError> {
    sqlx::query!(
        "update capabilities c set latest = (
            select v.version from capability_versions v
            where v.org = $1 and v.project = $2 and v.namespace = $3 and v.name = $4
                and v.yanked_at is null
            order by v.rank desc limit 1)
        where c.org = $1 and c.project = $2 and c.namespace = $3 and c.name = $4",
        capability.scope.org(),
        capability.scope.project(),
        capability.namespace(),
        capability.action(),
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
    let capability = Publication::capability(scope.clone(), id.clone());
    // Locked before anything is read: otherwise two publishers could choose the same next version.
    capability.lock(connection).await?;
    // Checked before `claim` creates the row: afterwards the namespace would count as known, and
    // known names are exempt from the comparison with shipped ones.
    let hides_public = check_name(connection, actor, scope, &id).await?;
    let visibility = capability.claim(connection, actor, new.visibility).await?;
    let existing = capability.versions(connection).await?;
    let stored = |version| entry_of(scope, &new, version);
    let chosen =
        choose(&existing, new.version, &format!("`{id}`"), stored, |(content, _)| content)?;
    let published = |version, integrity: Integrity, new| Published {
        fqdn: Fqdn::of_tool(scope.clone(), &id).pinned(integrity.short()),
        version,
        integrity,
        new,
        hides_public,
    };
    let (version, (content, integrity)) = match chosen {
        // A change of the visibility by `claim` takes effect even without a new version.
        Chosen::Known(known) => return Ok(published(known.version, known.integrity, false)),
        Chosen::New(version, stored) => (version, stored),
    };
    let detail = serde_json::json!({
        "version": version.to_string(),
        "integrity": integrity.to_string(),
        "visibility": visibility.as_str(),
    });
    audit::record(connection, actor, capability.event("publish").with_detail(detail)).await?;
    // Visibility and owner are copied from the row of the capability, to which the foreign key
    // binds them.
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
    // Not simply this version: a lower one can be published after a higher one.
    update_latest(connection, &capability).await?;
    Ok(published(version, integrity, true))
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
        // Neither field is part of the content.
        routing: new.routing,
        integrity: Integrity::of(b""),
    })
}

/// Refuses an id that was deleted or is an MCP server's tool, and a namespace that looks like another one. Returns
/// whether an entry of the catalog has the id.
async fn check_name(
    connection: &mut PgConnection,
    actor: &Tenant,
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
                where org = $1 and project = $2 and namespace = $6 and name in ('', $7)) as "is_gone!""#,
        scope.org(),
        scope.project(),
        id.as_str(),
        public.org(),
        public.project(),
        id.namespace(),
        id.action(),
    )
    .fetch_one(&mut *connection)
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
    match look_alike(connection, actor, id.namespace()).await? {
        Some(near) => Err(RegistryError::Invalid(format!(
            "namespace `{}` looks like `{near}`; use that one or choose a different name",
            id.namespace()
        ))),
        None => Ok(seen.is_public),
    }
}
