//! Permanent deletion of a capability or a server.
//!
//! Its rows remain but become invisible, so that the name is never reused; a tombstone remains for callers who could
//! see it.

use protocol::{Fqdn, Scope, ToolId};
use serde_json::json;
use sqlx::PgConnection;

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::{Caller, Registry, RegistryError, Right, Tenant, publish, servers};

/// The kind of the deleted entry.
enum Entry {
    Capability(ToolId),
    Server(String),
}

impl Entry {
    fn namespace(&self) -> &str {
        match self {
            Self::Capability(id) => id.namespace(),
            Self::Server(namespace) => namespace,
        }
    }

    /// Returns its name beneath the namespace, as tombstones have it.
    fn name(&self) -> &str {
        match self {
            Self::Capability(id) => id.action(),
            Self::Server(_) => "",
        }
    }

    fn action(&self) -> &'static str {
        match self {
            Self::Capability(_) => "capability.delete",
            Self::Server(_) => "server.delete",
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Capability(id) => id.to_string(),
            Self::Server(namespace) => namespace.clone(),
        }
    }
}

impl Registry {
    /// Deletes a capability of the caller's scope permanently, with all its versions.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotAllowed`] to callers who neither published it first nor administer the project,
    /// [`RegistryError::Gone`] for a deleted one, and [`RegistryError::NotFound`] when the scope has none that the
    /// caller may see.
    pub async fn delete_capability(
        &self,
        caller: &Caller,
        id: &ToolId,
    ) -> Result<(), RegistryError> {
        self.delete_entry(caller, Entry::Capability(id.clone())).await
    }

    /// Deletes a published server of the caller's scope permanently, with all its versions and tools.
    ///
    /// # Errors
    /// As [`Registry::delete_capability`]; a server that the operator wrote is not there to delete.
    pub async fn delete_server(
        &self,
        caller: &Caller,
        namespace: &str,
    ) -> Result<(), RegistryError> {
        // An invalid name belongs to nobody.
        let scope = caller.scope.clone();
        Fqdn::server(scope, namespace)
            .map_err(|_| RegistryError::NotFound(namespace.to_owned()))?;
        self.delete_entry(caller, Entry::Server(namespace.to_owned())).await
    }

    async fn delete_entry(&self, caller: &Caller, entry: Entry) -> Result<(), RegistryError> {
        let (actor, scope) = (caller.tenant(), caller.scope.clone());
        let is_admin = caller.rights.contains(Right::Admin);
        let shown = entry.shown();
        let event = AuditEvent::new(entry.action(), shown.as_str(), AuditOutcome::Refused);
        let deleted = self
            .in_tenant(&actor.clone(), move |connection| {
                Box::pin(async move { delete(connection, &actor, &scope, &entry, is_admin).await })
            })
            .await;
        self.entries.forget();
        if let Err(RegistryError::NotAllowed(_)) = &deleted {
            self.audit(&caller.tenant(), event).await?;
        }
        deleted
    }
}

async fn delete(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    entry: &Entry,
    is_admin: bool,
) -> Result<(), RegistryError> {
    match entry {
        Entry::Capability(id) => publish::lock(connection, scope, id).await?,
        Entry::Server(namespace) => servers::lock(connection, scope, namespace).await?,
    }
    let owner = owner_of(connection, actor, scope, entry).await?;
    let Some(owner) = owner else {
        let is_gone = is_gone(connection, scope, entry).await?;
        let shown = entry.shown();
        return Err(match is_gone {
            true => RegistryError::Gone(shown),
            false => RegistryError::NotFound(shown),
        });
    };
    if owner != actor.principal_name() && !is_admin {
        let message = format!(
            "`{}` belongs to another principal: only that principal, or one with the right `admin`, can delete it",
            entry.shown()
        );
        return Err(RegistryError::NotAllowed(message));
    }
    let event = AuditEvent::new(entry.action(), entry.shown(), AuditOutcome::Allowed)
        .with_detail(json!({ "owner": owner }));
    audit::record(connection, actor, event).await?;
    // Nobody may see deleted rows: only in this transaction may a row become invisible.
    sqlx::query!("select set_config('app.deleting', 'on', true)")
        .fetch_one(&mut *connection)
        .await?;
    let (org, project) = (scope.org(), scope.project());
    match entry {
        Entry::Capability(id) => {
            sqlx::query!(
                "insert into tombstones (org, project, namespace, name, visibility, owner, deleted_by)
                select org, project, namespace, name, visibility, owner, $5 from capabilities
                where org = $1 and project = $2 and namespace = $3 and name = $4",
                org,
                project,
                id.namespace(),
                id.action(),
                actor.principal_name(),
            )
            .execute(&mut *connection)
            .await?;
            sqlx::query!(
                "update capabilities set visibility = 'deleted'
                where org = $1 and project = $2 and namespace = $3 and name = $4",
                org,
                project,
                id.namespace(),
                id.action(),
            )
            .execute(&mut *connection)
            .await?;
        }
        Entry::Server(namespace) => {
            let version = servers::official_version(connection, scope, namespace).await?;
            sqlx::query!(
                "insert into tombstones (org, project, namespace, name, visibility, owner, deleted_by, version)
                select org, project, namespace, '', visibility, owner, $4, $5 from published_servers
                where org = $1 and project = $2 and namespace = $3",
                org,
                project,
                namespace,
                actor.principal_name(),
                version,
            )
            .execute(&mut *connection)
            .await?;
            sqlx::query!(
                "delete from mcp_servers where org = $1 and project = $2 and namespace = $3",
                org,
                project,
                namespace,
            )
            .execute(&mut *connection)
            .await?;
            sqlx::query!(
                "update published_servers set visibility = 'deleted'
                where org = $1 and project = $2 and namespace = $3",
                org,
                project,
                namespace,
            )
            .execute(&mut *connection)
            .await?;
        }
    }
    sqlx::query!("select set_config('app.deleting', '', true)").fetch_one(connection).await?;
    Ok(())
}

/// Returns who published an entry first, if the actor may see it.
async fn owner_of(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    entry: &Entry,
) -> Result<Option<String>, RegistryError> {
    let owner = sqlx::query_scalar!(
        r#"select owner as "owner!" from (
            select owner, visibility from capabilities
            where org = $1 and project = $2 and namespace = $3 and name = $4 and $4 <> ''
            union all
            select owner, visibility from published_servers
            where org = $1 and project = $2 and namespace = $3 and $4 = ''
        ) found where visibility <> 'deleted' and (visibility <> 'private' or owner = $5)"#,
        scope.org(),
        scope.project(),
        entry.namespace(),
        entry.name(),
        actor.principal_name(),
    )
    .fetch_optional(connection)
    .await?;
    Ok(owner)
}

async fn is_gone(
    connection: &mut PgConnection,
    scope: &Scope,
    entry: &Entry,
) -> Result<bool, RegistryError> {
    let is_gone = sqlx::query_scalar!(
        r#"select exists (
            select from tombstones
            where org = $1 and project = $2 and namespace = $3 and name = $4
        ) as "is_gone!""#,
        scope.org(),
        scope.project(),
        entry.namespace(),
        entry.name(),
    )
    .fetch_one(connection)
    .await?;
    Ok(is_gone)
}
