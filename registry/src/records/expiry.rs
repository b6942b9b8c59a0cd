//! Records that are as old as the operator keeps them, and the partitions of those to come.

use std::num::NonZeroU16;

use crate::{Registry, RegistryError};

/// How long records are kept, in days. The database refuses less than a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Traces. They are removed in whole months, so some are kept up to a month longer.
    pub traces: NonZeroU16,
    /// Executions.
    pub executions: NonZeroU16,
    /// Tools of users' own servers, since they were sent last.
    pub synced_tools: NonZeroU16,
}

/// The most rows of a table that one statement removes.
const ROWS: i32 = 2_000;

impl Registry {
    /// Makes the partitions that the traces of this and the next two months need; repeatable.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn make_trace_partitions(&self) -> Result<(), RegistryError> {
        self.pool
            .outside(|connection| {
                Box::pin(async move {
                    sqlx::query!("select make_trace_partitions()").execute(connection).await?;
                    Ok(())
                })
            })
            .await
    }

    /// Removes some of the records that are older than they are kept; returns how many. With 0, there are no more, or
    /// another gateway is removing them.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn expire_records(&self, retention: Retention) -> Result<u64, RegistryError> {
        let gone = self
            .pool
            .outside(move |connection| {
                let gone = sqlx::query_scalar!(
                    r#"select expire_records($1, $2, $3) + expire_synced_tools($4, $3) as "gone!""#,
                    i32::from(retention.traces.get()),
                    i32::from(retention.executions.get()),
                    ROWS,
                    i32::from(retention.synced_tools.get()),
                );
                Box::pin(gone.fetch_one(connection))
            })
            .await?;
        Ok(gone.unsigned_abs())
    }
}
