//! The common part of capabilities and servers: a name in a scope, an owner, a visibility, and versions.

use protocol::{Fqdn, Scope, ToolId, Visibility};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::database::transaction::lock;
use crate::entries::content;
use crate::identity::tenant::Tenant;
use crate::publishing::versions::Existing;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// A capability or a server that a tenant publishes, by its name.
#[derive(Debug, Clone)]
pub(crate) struct Publication {
    pub(crate) scope: Scope,
    pub(crate) name: Name,
}

/// The kind of a publication, and its name in its scope.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    Capability(ToolId),
    Server(String),
}

impl Publication {
    pub(crate) fn capability(scope: Scope, id: ToolId) -> Self {
        Self { scope, name: Name::Capability(id) }
    }

    pub(crate) fn server(scope: Scope, namespace: String) -> Self {
        Self { scope, name: Name::Server(namespace) }
    }

    pub(crate) fn namespace(&self) -> &str {
        match &self.name {
            Name::Capability(id) => id.namespace(),
            Name::Server(namespace) => namespace,
        }
    }

    /// Returns its name within the namespace, which is empty for a server, as in the table of tombstones.
    pub(crate) fn action(&self) -> &str {
        match &self.name {
            Name::Capability(id) => id.action(),
            Name::Server(_) => "",
        }
    }

    /// Returns its name as messages and the audit log show it.
    pub(crate) fn label(&self) -> &str {
        match &self.name {
            Name::Capability(id) => id.as_str(),
            Name::Server(namespace) => namespace,
        }
    }

    pub(crate) fn fqdn(&self) -> Result<Fqdn, RegistryError> {
        match &self.name {
            Name::Capability(id) => Ok(Fqdn::of_tool(self.scope.clone(), id)),
            Name::Server(namespace) => Ok(Fqdn::server(self.scope.clone(), namespace)?),
        }
    }

    /// Returns the name of an action on it in the audit log, as in `server.publish`.
    pub(crate) fn action_of(&self, verb: &str) -> String {
        match &self.name {
            Name::Capability(_) => format!("capability.{verb}"),
            Name::Server(_) => format!("server.{verb}"),
        }
    }

    pub(crate) fn event(&self, verb: &str) -> AuditEvent {
        AuditEvent::new(self.action_of(verb), self.label(), AuditOutcome::Allowed)
    }

    /// Serializes the writes of the publications of its namespace until the transaction ends: a capability and a tool
    /// of a server must not get the same id.
    pub(crate) async fn lock(&self, connection: &mut PgConnection) -> Result<(), RegistryError> {
        lock(connection, &format!("pml publish {}.{}", self.scope, self.namespace())).await
    }

    /// Returns its visibility and owner, if it exists and the actor may see it.
    pub(crate) async fn holding(
        &self,
        connection: &mut PgConnection,
        actor: &Tenant,
    ) -> Result<Option<Holding>, RegistryError> {
        let found = sqlx::query_as!(
            Holding,
            r#"select visibility as "visibility!", owner as "owner!" from (
                select org, project, visibility, owner from capabilities
                where org = $1 and project = $2 and namespace = $3 and name = $4 and $4 <> ''
                union all
                select org, project, visibility, owner from published_servers
                where org = $1 and project = $2 and namespace = $3 and $4 = ''
            ) found where visible_to($1, $2, $5, org, project, visibility, owner)"#,
            self.scope.org(),
            self.scope.project(),
            self.namespace(),
            self.action(),
            actor.principal_name(),
        )
        .fetch_optional(connection)
        .await?;
        Ok(found)
    }

    /// Creates it if it does not exist, and changes its visibility if requested; returns its visibility.
    pub(crate) async fn claim(
        &self,
        connection: &mut PgConnection,
        actor: &Tenant,
        wanted: Option<Visibility>,
    ) -> Result<Visibility, RegistryError> {
        let (name, owner) = (self.label(), actor.principal_name());
        // Created first, because `on conflict do nothing` also meets rows that the policies hide
        // from the actor. What the actor sees afterwards decides.
        self.create(connection, wanted.unwrap_or(Visibility::Project), owner).await?;
        // The name is taken by another principal's private or deleted entry. The error does not disclose which.
        let found = self
            .holding(connection, actor)
            .await?
            .ok_or_else(|| RegistryError::Conflict(format!("`{name}` is taken in this scope")))?;
        let before = content::visibility(&found.visibility);
        let Some(wanted) = wanted.filter(|wanted| *wanted != before) else { return Ok(before) };
        // Otherwise any publisher of the project could show a colleague's entry to everybody, by
        // publishing the same content again.
        if found.owner != owner {
            return Err(RegistryError::Conflict(format!(
                "`{name}` belongs to another principal, who alone can change its visibility"
            )));
        }
        let detail = serde_json::json!({ "from": before.as_str(), "to": wanted.as_str() });
        audit::record(connection, actor, self.event("show").with_detail(detail)).await?;
        self.set_visibility(connection, wanted).await?;
        Ok(wanted)
    }

    async fn create(
        &self,
        connection: &mut PgConnection,
        visibility: Visibility,
        owner: &str,
    ) -> Result<(), RegistryError> {
        let (org, project) = (self.scope.org(), self.scope.project());
        let created = match &self.name {
            Name::Capability(id) => sqlx::query!(
                "insert into capabilities (org, project, namespace, name, visibility, owner)
                values ($1, $2, $3, $4, $5, $6) on conflict do nothing",
                org,
                project,
                id.namespace(),
                id.action(),
                visibility.as_str(),
                owner,
            ),
            Name::Server(namespace) => sqlx::query!(
                "insert into published_servers (org, project, namespace, visibility, owner)
                values ($1, $2, $3, $4, $5) on conflict do nothing",
                org,
                project,
                namespace,
                visibility.as_str(),
                owner,
            ),
        };
        created.execute(connection).await?;
        Ok(())
    }

    /// Changes its visibility; the foreign key of its versions cascades the change to them.
    async fn set_visibility(
        &self,
        connection: &mut PgConnection,
        visibility: Visibility,
    ) -> Result<(), RegistryError> {
        let (org, project) = (self.scope.org(), self.scope.project());
        match &self.name {
            Name::Capability(id) => {
                sqlx::query!(
                    "update capabilities set visibility = $5
                    where org = $1 and project = $2 and namespace = $3 and name = $4",
                    org,
                    project,
                    id.namespace(),
                    id.action(),
                    visibility.as_str(),
                )
                .execute(connection)
                .await?;
            }
            Name::Server(namespace) => {
                sqlx::query!(
                    "update published_servers set visibility = $4
                    where org = $1 and project = $2 and namespace = $3",
                    org,
                    project,
                    namespace,
                    visibility.as_str(),
                )
                .execute(&mut *connection)
                .await?;
                // The row for look-ups has no foreign key to this one, so the change does not
                // cascade to it.
                sqlx::query!(
                    "update mcp_servers set visibility = $4, updated_at = now()
                    where org = $1 and project = $2 and namespace = $3",
                    org,
                    project,
                    namespace,
                    visibility.as_str(),
                )
                .execute(connection)
                .await?;
            }
        }
        Ok(())
    }

    /// Returns the existing versions, highest first.
    pub(crate) async fn versions(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<Existing>, RegistryError> {
        let rows = sqlx::query!(
            r#"select version as "version!", content as "content!", integrity as "integrity!" from (
                select version, content, integrity, rank from capability_versions
                where org = $1 and project = $2 and namespace = $3 and name = $4 and $4 <> ''
                union all
                select version, content, integrity, rank from server_versions
                where org = $1 and project = $2 and namespace = $3 and $4 = ''
            ) there order by rank desc"#,
            self.scope.org(),
            self.scope.project(),
            self.namespace(),
            self.action(),
        )
        .fetch_all(connection)
        .await?;
        let name = self.fqdn()?;
        rows.into_iter()
            .map(|row| {
                let integrity = row.integrity.parse();
                let integrity =
                    integrity.map_err(|_| RegistryError::IntegrityMismatch(name.clone()))?;
                Ok(Existing { version: row.version.parse()?, content: row.content, integrity })
            })
            .collect()
    }
}

/// The visibility of a publication, and its owner, who published it first.
pub(crate) struct Holding {
    pub(crate) visibility: String,
    pub(crate) owner: String,
}
