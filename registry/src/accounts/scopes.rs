//! Creation of organisations and projects.

use protocol::{Scope, look_alike};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

impl Operator {
    /// Creates an organisation and a project where they are missing; returns
    /// whether the project is new.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for the organisation `pml`, which holds the catalog, and
    /// [`RegistryError::Conflict`] for one that was deleted.
    pub async fn create_scope(&self, scope: &Scope) -> Result<bool, RegistryError> {
        if scope.org() == Scope::public().org() {
            return Err(RegistryError::Invalid(
                "organisation `pml` is reserved for the catalog".to_owned(),
            ));
        }
        let tenant = Tenant::of(scope.clone());
        let actor = tenant.clone();
        let scope = scope.clone();
        in_tenant(self.pool.clone(), &tenant, move |connection| {
            Box::pin(async move {
                let new = ensure_scope(connection, &scope).await?;
                if new {
                    let event =
                        AuditEvent::new("scope.create", scope.to_string(), AuditOutcome::Allowed);
                    audit::record(connection, &actor, event).await?;
                }
                Ok(new)
            })
        })
        .await
    }
}

/// Creates an organisation and a project where they are missing; returns whether the project is new.
pub(crate) async fn ensure_scope(
    connection: &mut PgConnection,
    scope: &Scope,
) -> Result<bool, RegistryError> {
    let new =
        sqlx::query!("insert into orgs (name) values ($1) on conflict do nothing", scope.org())
            .execute(&mut *connection)
            .await?;
    // An existing organisation is exempt. The error rolls the transaction back.
    if new.rows_affected() == 1
        && let Some(near) = look_alike::among(scope.org(), [Scope::public().org()])
    {
        return Err(RegistryError::Invalid(format!(
            "organisation `{}` looks like `{near}`; choose a different name",
            scope.org()
        )));
    }
    let made = sqlx::query!(
        "insert into projects (org, name) values ($1, $2) on conflict do nothing",
        scope.org(),
        scope.project(),
    )
    .execute(&mut *connection)
    .await?;
    // An existing row may be that of a deleted project, which keeps its name reserved.
    let is_open = sqlx::query_scalar!(
        r#"select (o.deleted_at is null and p.deleted_at is null) as "is_open!"
        from projects p join orgs o on o.name = p.org where p.org = $1 and p.name = $2"#,
        scope.org(),
        scope.project(),
    )
    .fetch_one(connection)
    .await?;
    if !is_open {
        return Err(name_taken(scope));
    }
    Ok(made.rows_affected() == 1)
}

/// Returns the error for the name of an existing or a deleted project.
pub(crate) fn name_taken(scope: &Scope) -> RegistryError {
    RegistryError::Conflict(format!("`{scope}` is or was a project; names are never reused"))
}
