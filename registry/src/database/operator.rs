//! The connection of the operator, with the role that owns the database.

use sqlx::postgres::PgPool;

use crate::database::connect;
use crate::{MIGRATOR, RegistryError};

/// Migrates the database, seeds the catalog, creates scopes and edits routing rules.
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
        // Without the time limits of a request: a migration may take long, and so may waiting for one that another
        // process runs.
        Ok(Self { pool: connect::single(owner_url).await? })
    }

    /// Runs the pending migrations; concurrent calls are safe.
    ///
    /// # Errors
    /// Returns [`RegistryError::Migrate`] when one fails or was edited after it ran.
    pub async fn migrate(&self) -> Result<(), RegistryError> {
        let pool = self.pool.clone();
        // The migrator takes a lock of its own, so that concurrent runs wait for each other.
        MIGRATOR.run(&pool).await?;
        // Serialized: of two concurrent grants, the second fails with "tuple concurrently updated".
        sqlx::raw_sql(
            "begin; select pg_advisory_xact_lock(hashtext('pml: grant after migrations')); \
             grant select on _sqlx_migrations to pml_app; commit",
        )
        .execute(&pool)
        .await?;
        Ok(())
    }

    /// Closes the connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
