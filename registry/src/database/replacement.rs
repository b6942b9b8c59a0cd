//! Replaces the database of a cluster that is PML's own by a restored one.
//!
//! A restore is made into a database beside the served one. The two swap their names in one transaction, so that a
//! restore that fails or is killed has changed nothing.

use sqlx::postgres::PgPool;

use crate::RegistryError;
use crate::database::connect;

/// The superuser of a private cluster, connected to another database than the served one.
#[derive(Debug)]
pub struct ClusterOwner {
    pool: PgPool,
}

impl ClusterOwner {
    /// The name of the database into which a backup is restored.
    pub const RESTORED: &str = "pml_restored";

    /// Connects as the superuser.
    ///
    /// # Errors
    /// Returns [`RegistryError::NoConnection`] when the database does not answer.
    pub async fn connect(superuser_url: &str) -> Result<Self, RegistryError> {
        Ok(Self { pool: connect::single(superuser_url).await? })
    }

    /// Creates the empty database [`Self::RESTORED`] with the owner and the rights of the served one; replaces what an
    /// earlier restore left.
    ///
    /// # Errors
    /// Returns [`RegistryError::Database`] when the database refuses.
    pub async fn create_restored(&self) -> Result<(), RegistryError> {
        self.drop_restored().await?;
        // One by one: none of these may run in a transaction, and several statements in one query are one.
        for statement in [
            "create database pml_restored owner pml_owner template template0",
            "revoke all on database pml_restored from public",
            "grant connect on database pml_restored to pml_app",
        ] {
            sqlx::raw_sql(statement).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// Gives the restored database the name of the served one, and deletes that. Before the names change, nothing is
    /// lost, whatever fails.
    ///
    /// # Errors
    /// Returns [`RegistryError::Database`] when somebody is connected to one of the two.
    pub async fn swap(&self) -> Result<(), RegistryError> {
        sqlx::raw_sql(
            "begin; alter database pml rename to pml_replaced; \
             alter database pml_restored rename to pml; commit",
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Deletes the database that [`Self::swap`] has replaced, if there is one.
    ///
    /// # Errors
    /// Returns [`RegistryError::Database`] when the database refuses.
    pub async fn drop_replaced(&self) -> Result<(), RegistryError> {
        let dropped = sqlx::raw_sql("drop database if exists pml_replaced with (force)");
        dropped.execute(&self.pool).await?;
        Ok(())
    }

    /// Deletes a database that was not restored completely.
    ///
    /// # Errors
    /// Returns [`RegistryError::Database`] when the database refuses.
    pub async fn drop_restored(&self) -> Result<(), RegistryError> {
        let dropped = sqlx::raw_sql("drop database if exists pml_restored with (force)");
        dropped.execute(&self.pool).await?;
        Ok(())
    }

    /// Closes the connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
