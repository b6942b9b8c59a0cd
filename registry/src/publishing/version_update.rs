//! Deprecation and yanking of published versions.

use protocol::{Fqdn, ToolId};
use sqlx::PgConnection;

use crate::entries::version::Version;
use crate::identity::tenant::Tenant;
use crate::publishing::publication::{Name, Publication};
use crate::publishing::{capability, server};
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use crate::{Registry, RegistryError};

/// A change of a published version: deprecation or yanking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionUpdate {
    /// Deprecate, with the reason.
    Deprecate(String),
    /// Withdraw the deprecation.
    Undeprecate,
    /// Yank: only requests for exactly this version still resolve.
    Yank,
}

impl VersionUpdate {
    /// Returns the verb for the audit log, the message to set, and whether the version is yanked.
    fn parts(&self) -> (&'static str, Option<&str>, bool) {
        match self {
            Self::Deprecate(why) => ("deprecate", Some(why.as_str()), false),
            Self::Undeprecate => ("undeprecate", None, false),
            Self::Yank => ("yank", None, true),
        }
    }
}

impl Registry {
    /// Changes one version of a capability of the tenant's scope, or all of them.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant's scope has no such version that the tenant may see.
    pub async fn update_version(
        &self,
        tenant: &Tenant,
        id: &ToolId,
        version: Option<Version>,
        update: VersionUpdate,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.update_versions_of(tenant, Publication::capability(scope, id.clone()), version, update)
            .await
    }

    /// Changes one version of a published server of the tenant's scope, or all of them.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant's scope has no such version that the tenant may see.
    pub async fn update_server_version(
        &self,
        tenant: &Tenant,
        namespace: &str,
        version: Option<Version>,
        update: VersionUpdate,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        // No server has an invalid name.
        Fqdn::server(scope.clone(), namespace)
            .map_err(|_| RegistryError::NotFound(namespace.to_owned()))?;
        self.update_versions_of(
            tenant,
            Publication::server(scope, namespace.to_owned()),
            version,
            update,
        )
        .await
    }

    async fn update_versions_of(
        &self,
        tenant: &Tenant,
        publication: Publication,
        version: Option<Version>,
        update: VersionUpdate,
    ) -> Result<(), RegistryError> {
        let actor = tenant.clone();
        let updated = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    // Locked, because `update_latest` reads all versions: a concurrent publication
                    // could be lost from the result.
                    publication.lock(connection).await?;
                    let fqdn = publication.fqdn()?;
                    let name = match version {
                        Some(version) => format!("{fqdn}@{version}"),
                        None => fqdn.to_string(),
                    };
                    let (verb, deprecated, yank) = update.parts();
                    let version = version.map(|version| version.to_string());
                    let changed =
                        change(connection, &publication, version, yank, deprecated).await?;
                    if changed == 0 {
                        return Err(RegistryError::NotFound(name));
                    }
                    // Also after a deprecation: a server's row for look-ups has a copy of its
                    // message.
                    match &publication.name {
                        Name::Capability(_) => {
                            capability::update_latest(connection, &publication).await?;
                        }
                        Name::Server(_) => server::update_latest(connection, &publication).await?,
                    }
                    let action = publication.action_of(verb);
                    let event = AuditEvent::new(action, name, AuditOutcome::Allowed);
                    audit::record(connection, &actor, event).await
                })
            })
            .await;
        // Do not wait for this process's own notification.
        self.entries.clear();
        updated
    }
}

/// Updates the rows of one version, or of all; returns their number.
async fn change(
    connection: &mut PgConnection,
    publication: &Publication,
    version: Option<String>,
    yank: bool,
    deprecated: Option<&str>,
) -> Result<u64, RegistryError> {
    let (org, project) = (publication.scope.org(), publication.scope.project());
    let changed = match &publication.name {
        Name::Capability(id) => sqlx::query!(
            "update capability_versions
            set deprecated = case when $6 then deprecated else $7 end,
                yanked_at = case when $6 then coalesce(yanked_at, now()) else yanked_at end
            where org = $1 and project = $2 and namespace = $3 and name = $4
                and ($5::text is null or version = $5)",
            org,
            project,
            id.namespace(),
            id.action(),
            version,
            yank,
            deprecated,
        ),
        Name::Server(namespace) => sqlx::query!(
            "update server_versions
            set deprecated = case when $5 then deprecated else $6 end,
                yanked_at = case when $5 then coalesce(yanked_at, now()) else yanked_at end,
                changed_at = now()
            where org = $1 and project = $2 and namespace = $3
                and ($4::text is null or version = $4)",
            org,
            project,
            namespace,
            version,
            yank,
            deprecated,
        ),
    };
    Ok(changed.execute(connection).await?.rows_affected())
}
