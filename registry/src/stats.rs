//! The figures of the registry, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The figures of a [`Registry`](crate::Registry): totals since it was opened, and its state now.
#[derive(Debug, Clone, Default)]
pub struct RegistryStats {
    /// The database and its connections.
    pub database: DatabaseStats,
    /// The caches, by name.
    pub caches: Vec<(&'static str, CacheStats)>,
}

/// The figures of the database connections that serve requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseStats {
    /// Whether the database answers the liveness probe.
    pub is_up: bool,
    /// The connections in use.
    pub busy: u64,
    /// The open connections that nobody uses.
    pub idle: u64,
    /// The maximum number of connections.
    pub max: u32,
    /// The callers that wait for a connection.
    pub waiting: u64,
    /// The connections that callers got.
    pub acquired: u64,
    /// The attempts to get one that failed or timed out.
    pub failed: u64,
    /// The total time for which callers waited for a connection.
    pub wait: Duration,
}

/// How often a cache had the answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheStats {
    /// The look-ups that the cache answered.
    pub hits: u64,
    /// The others, which needed the database.
    pub misses: u64,
}

/// Counts the look-ups of one cache.
#[derive(Debug, Default)]
pub(crate) struct HitCount {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl HitCount {
    /// Counts a look-up.
    pub(crate) fn count(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }
}

/// Counts the waits for a connection.
#[derive(Debug, Default)]
pub(crate) struct Acquisitions {
    waiting: AtomicU64,
    acquired: AtomicU64,
    failed: AtomicU64,
    wait_nanos: AtomicU64,
}

impl Acquisitions {
    /// Counts the wait for a connection, which may be dropped at any time.
    pub(crate) async fn count<T, E>(
        &self,
        acquire: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut wait = Wait { all: self, began: std::time::Instant::now(), is_acquired: false };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let acquired = acquire.await;
        wait.is_acquired = acquired.is_ok();
        acquired
    }

    /// Adds the counts to the figures of the database.
    pub(crate) fn add_to(&self, stats: DatabaseStats) -> DatabaseStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DatabaseStats {
            waiting: read(&self.waiting),
            acquired: read(&self.acquired),
            failed: read(&self.failed),
            wait: Duration::from_nanos(read(&self.wait_nanos)),
            ..stats
        }
    }
}

/// A wait for a connection, which ends when it is dropped.
struct Wait<'a> {
    all: &'a Acquisitions,
    began: std::time::Instant,
    is_acquired: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let outcome = if self.is_acquired { &self.all.acquired } else { &self.all.failed };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.all.wait_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.all.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_wait_ends_even_if_it_is_dropped() {
        let all = Acquisitions::default();
        let stats = || all.add_to(DatabaseStats::default());
        all.count(ready(Ok::<_, ()>(1))).await.unwrap();
        all.count(ready(Err::<(), _>(2))).await.unwrap_err();
        let mut waits = Box::pin(all.count(pending::<Result<(), ()>>()));
        tokio::select! {
            biased;
            _ = &mut waits => unreachable!("it never ends"),
            () = ready(()) => {}
        }
        assert_eq!((stats().waiting, stats().acquired, stats().failed), (1, 1, 1));
        drop(waits);
        assert_eq!((stats().waiting, stats().acquired, stats().failed), (0, 1, 2));
    }
}
