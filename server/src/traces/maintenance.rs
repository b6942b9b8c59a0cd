//! Makes the partitions of the months to come, and removes what is older than the operator keeps it.

use std::time::Duration;

use registry::{Registry, RegistryError, Retention};
use tokio_util::task::AbortOnDropHandle;

/// The time between two rounds.
const EVERY: Duration = Duration::from_secs(3_600);
/// The time before the next try after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// The time between two removals, so that requests come in between.
const BREATH: Duration = Duration::from_millis(100);

/// Starts the work, which goes on until the handle is dropped. Gateways that share a database may all do it.
pub(crate) fn start(registry: Registry, retention: Retention) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let wait = match round(&registry, retention).await {
                Ok(()) => EVERY,
                Err(error) => {
                    tracing::warn!(error = %error, "Could not maintain the records; trying again");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }))
}

async fn round(registry: &Registry, retention: Retention) -> Result<(), RegistryError> {
    registry.make_trace_partitions().await?;
    let mut removed = 0;
    loop {
        match registry.expire_records(retention).await? {
            0 => break,
            some => removed += some,
        }
        tokio::time::sleep(BREATH).await;
    }
    if removed > 0 {
        tracing::info!(removed, "Removed old records");
    }
    Ok(())
}
