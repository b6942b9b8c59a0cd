//! Permanent deletion of a capability or a server.
//!
//! Its rows remain but become invisible, so that the name is never reused; a tombstone remains for callers who could
//! see it.

use protocol::{Fqdn, ToolId};
use serde_json::json;
use sqlx::PgConnection;

use crate::entries::official::current_versions;
use crate::identity::caller::Caller;
use crate::identity::right::Right;
use crate::identity::tenant::Tenant;
use crate::publishing::publication::{Holding, Name, Publication};
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};

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
        self.delete_entry(caller, Publication::capability(caller.scope.clone(), id.clone())).await
    }

    /// Deletes a published server of the caller's scope permanently, with all its versions and tools.
    ///
    /// # Errors
    /// As [`Registry::delete_capability`]; a server of the operator is not found.
    pub async fn delete_server(
        &self,
        caller: &Caller,
        namespace: &str,
    ) -> Result<(), RegistryError> {
        // No server has an invalid name.
        let scope = caller.scope.clone();
        Fqdn::server(scope.clone(), namespace)
            .map_err(|_| RegistryError::NotFound(namespace.to_owned()))?;
        self.delete_entry(caller, Publication::server(scope, namespace.to_owned())).await
    }

    async fn delete_entry(&self, caller: &Caller, entry: Publication) -> Result<(), RegistryError> {
        let actor = caller.tenant();
        let is_admin = caller.rights.contains(Right::Admin);
        let event =
            AuditEvent::new(entry.action_of("delete"), entry.label(), AuditOutcome::Refused);
        let deleted = self
            .in_tenant(&actor.clone(), move |connection| {
                Box::pin(async move { delete(connection, &actor, &entry, is_admin).await })
            })
            .await;
        self.entries.clear();
        // The refusal has rolled its transaction back, so the event needs one of its own.
        if let Err(RegistryError::NotAllowed(_)) = &deleted {
            self.audit(&caller.tenant(), event).await?;
        }
        deleted
    }
}

async fn delete(
    connection: &mut PgConnection,
    actor: &Tenant,
    entry: &Publication,
    is_admin: bool,
) -> Result<(), RegistryError> {
    entry.lock(connection).await?;
    let Some(Holding { owner, .. }) = entry.holding(connection, actor).await? else {
        let is_gone = is_gone(connection, actor, entry).await?;
        let shown = entry.label().to_owned();
        return Err(match is_gone {
            true => RegistryError::Gone(shown),
            false => RegistryError::NotFound(shown),
        });
    };
    if owner != actor.principal_name() && !is_admin {
        let message = format!(
            "`{}` belongs to another principal: only that principal, or one with the right `admin`, can delete it",
            entry.label()
        );
        return Err(RegistryError::NotAllowed(message));
    }
    let event = entry.event("delete").with_detail(json!({ "owner": owner }));
    audit::record(connection, actor, event).await?;
    // Deleted rows are invisible to all roles, and a policy refuses a write that hides its own row, except with this
    // setting.
    sqlx::query!("select set_config('app.deleting', 'on', true)")
        .fetch_one(&mut *connection)
        .await?;
    let (org, project) = (entry.scope.org(), entry.scope.project());
    match &entry.name {
        Name::Capability(id) => {
            // The tombstone first: it copies the visibility, which the update then overwrites.
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
        Name::Server(namespace) => {
            // Read first: the deletion below removes the row of the current version.
            let versions = current_versions(connection, &entry.scope, Some(namespace)).await?;
            let version = versions.into_iter().next().map(|(_, version)| version);
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
    // The setting must not reach statements that follow in the transaction: with it, the policies
    // show private rows of other principals.
    sqlx::query!("select set_config('app.deleting', '', true)").fetch_one(connection).await?;
    Ok(())
}

/// Returns whether it was deleted and the actor could see it.
async fn is_gone(
    connection: &mut PgConnection,
    actor: &Tenant,
    entry: &Publication,
) -> Result<bool, RegistryError> {
    let is_gone = sqlx::query_scalar!(
        r#"select exists (
            select from tombstones
            where org = $1 and project = $2 and namespace = $3 and name = $4
                and visible_to($1, $2, $5, org, project, visibility, owner)
        ) as "is_gone!""#,
        entry.scope.org(),
        entry.scope.project(),
        entry.namespace(),
        entry.action(),
        actor.principal_name(),
    )
    .fetch_one(connection)
    .await?;
    Ok(is_gone)
}
