//! Checks of names to publish under.

use protocol::Scope;
use protocol::look_alike::{self, RESERVED_NAMESPACES};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::identity::tenant::Tenant;

/// Refuses a reserved namespace.
pub(crate) fn check_reserved(namespace: &str) -> Result<(), RegistryError> {
    if RESERVED_NAMESPACES.contains(&namespace) {
        return Err(RegistryError::Invalid(format!("namespace `{namespace}` is reserved")));
    }
    Ok(())
}

/// Refuses a namespace that looks like one that ships with PML, even if this catalog lacks it. A namespace that the
/// scope already has remains valid.
pub(crate) fn check_shipped(namespace: &str, is_known: bool) -> Result<(), RegistryError> {
    match look_alike::of_shipped(namespace) {
        Some(near) if !is_known => Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` looks like `{near}`; choose a different name"
        ))),
        _ => Ok(()),
    }
}

/// Returns a namespace of the catalog or of the actor's organisation that looks like this one and that the actor may
/// see.
pub(crate) async fn look_alike(
    connection: &mut PgConnection,
    actor: &Tenant,
    namespace: &str,
) -> Result<Option<String>, RegistryError> {
    let public = Scope::public();
    // Limited to what the actor may see: an error must not disclose other entries.
    let near = sqlx::query_scalar!(
        "select min(near.namespace) from (
            select org, project, namespace, visibility, owner from mcp_servers
            where name_skeleton(namespace) = name_skeleton($6)
            union all
            select org, project, namespace, visibility, owner from capabilities
            where name_skeleton(namespace) = name_skeleton($6)
        ) near
        where near.namespace <> $6
            and (near.org = $1 or (near.org = $4 and near.project = $5))
            and visible_to($1, $2, $3, near.org, near.project, near.visibility, near.owner)",
        actor.org(),
        actor.project(),
        actor.principal_name(),
        public.org(),
        public.project(),
        namespace,
    )
    .fetch_one(connection)
    .await?;
    Ok(near)
}
