//! Operations of the operator only, with the role that owns the database; `rules.rs` has the routing rules.

use std::str::FromStr as _;

use protocol::{Scope, look_alike};
use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::projects::taken;
use crate::tenant::in_tenant;
use crate::{
    ACQUIRE_TIMEOUT, CatalogServer, MIGRATOR, RegistryError, SeedReport, Tenant, connect, seed,
};

/// Migrates, seeds, makes scopes and edits routing rules.
///
/// Row-level security binds the owner as well; each method acts for the scope it names.
#[derive(Debug, Clone)]
pub struct Operator {
    pub(crate) pool: PgPool,
}

impl Operator {
    /// Connects as the owner.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn connect(owner_url: &str) -> Result<Self, RegistryError> {
        let options = PgConnectOptions::from_str(owner_url)
            .map_err(|error| RegistryError::Invalid(format!("the database URL: {error}")))?;
        // Without the time limits of a request: a migration may take long, and so
        // may the wait for another process's.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.clone())
            .await;
        match pool {
            Ok(pool) => Ok(Self { pool }),
            Err(error) => Err(connect::explain(&options, error).await),
        }
    }

    /// Runs the migrations that have not run yet; several may try at once.
    ///
    /// # Errors
    /// Returns [`RegistryError::Migrate`] when one fails or was edited after it ran.
    pub async fn migrate(&self) -> Result<(), RegistryError> {
        let pool = self.pool.clone();
        MIGRATOR.run(&pool).await?;
        // One at a time, or the second of two grants fails on the row that the first changed.
        sqlx::raw_sql(
            "begin; select pg_advisory_xact_lock(hashtext('pml: grant after migrations')); \
             grant select on _sqlx_migrations to pml_app; commit",
        )
        .execute(&pool)
        .await?;
        Ok(())
    }

    /// Brings the catalog and the shipped routing rules to the given state; unchanged rows are not touched.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] or [`RegistryError::Name`] for a catalog
    /// that cannot be, and then changes nothing.
    pub async fn seed(&self, catalog: &[CatalogServer]) -> Result<SeedReport, RegistryError> {
        let rows = seed::rows(catalog)?;
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move { seed::write(connection, rows).await })
        })
        .await
    }

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
                let new = make(connection, &scope).await?;
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

    /// Closes the connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Creates an organisation and a project where they are missing; returns whether the project is new.
pub(crate) async fn make(
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
    let is_open = sqlx::query_scalar!(
        r#"select (o.deleted_at is null and p.deleted_at is null) as "is_open!"
        from projects p join orgs o on o.name = p.org where p.org = $1 and p.name = $2"#,
        scope.org(),
        scope.project(),
    )
    .fetch_one(connection)
    .await?;
    if !is_open {
        return Err(taken(scope));
    }
    Ok(made.rows_affected() == 1)
}
