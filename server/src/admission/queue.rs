//! The queue of programs. Every tenant has its own slots, so that a tenant with thousands of programs does not delay
//! the others, and gets `BUSY` early.

#[cfg(test)]
mod every_order;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use protocol::Scope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The program limits of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// The maximum number of running programs, at least one.
    pub running: usize,
    /// The maximum number of queued programs.
    pub waiting: usize,
}

/// The queues of all tenants.
#[derive(Debug)]
pub(crate) struct ProgramQueue {
    limits: QueueLimits,
    tenants: Mutex<HashMap<Scope, Weak<Tenant>>>,
    counts: Arc<Counts>,
}

/// The programs of all tenants.
#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicUsize,
    running: AtomicUsize,
}

/// The number of programs of all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueStats {
    /// Those that run.
    pub running: usize,
    /// Those that are queued.
    pub waiting: usize,
}

#[derive(Debug)]
struct Tenant {
    /// One permit for each running or queued program.
    admitted: Arc<Semaphore>,
    /// One permit for each running program.
    running: Arc<Semaphore>,
}

/// A program that is queued or runs; dropping it frees its slot.
#[derive(Debug)]
pub(crate) struct Admitted {
    tenant: Arc<Tenant>,
    counts: Arc<Counts>,
    _permit: OwnedSemaphorePermit,
}

/// A program that may run, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunSlot {
    counts: Arc<Counts>,
    _permit: OwnedSemaphorePermit,
}

impl QueueStats {
    /// Returns how many programs have not ended.
    pub(crate) fn admitted(self) -> usize {
        self.running + self.waiting
    }
}

impl ProgramQueue {
    /// Creates empty queues with these limits.
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let limits = QueueLimits { running: limits.running.max(1), ..limits };
        Self { limits, tenants: Mutex::default(), counts: Arc::default() }
    }

    /// Returns the limits of each tenant.
    pub(crate) fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// Returns whether a tenant is at its limit, so that a program of it would not be admitted now.
    pub(crate) fn is_full(&self, scope: &Scope) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = tenants.get(scope).and_then(Weak::upgrade);
        drop(tenants);
        tenant.is_some_and(|tenant| tenant.admitted.available_permits() == 0)
    }

    /// Admits one more program of a tenant; `None` if the tenant is at its limit.
    pub(crate) fn admit(&self, scope: &Scope) -> Option<Admitted> {
        let tenant = self.tenant(scope);
        // Never waits: a caller at its limit is told at once.
        let permit = Arc::clone(&tenant.admitted).try_acquire_owned().ok()?;
        self.counts.admitted.fetch_add(1, Ordering::Relaxed);
        Some(Admitted { tenant, counts: Arc::clone(&self.counts), _permit: permit })
    }

    /// Returns the number of programs of all tenants.
    pub(crate) fn stats(&self) -> QueueStats {
        let running = self.counts.running.load(Ordering::Relaxed);
        // The two are not read at the same moment.
        let waiting = self.counts.admitted.load(Ordering::Relaxed).saturating_sub(running);
        QueueStats { running, waiting }
    }

    fn tenant(&self, scope: &Scope) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        // Remove tenants without programs, so that the map stays small.
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let QueueLimits { running, waiting } = self.limits;
        let tenant = Arc::new(Tenant {
            // A running program keeps this permit, so their sum limits both together.
            admitted: Arc::new(Semaphore::new(running.saturating_add(waiting))),
            running: Arc::new(Semaphore::new(running)),
        });
        tenants.insert(scope.clone(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Admitted {
    /// Waits until the program may run, which it may until the returned slot is dropped.
    pub(crate) async fn wait(&self) -> RunSlot {
        let running = Arc::clone(&self.tenant.running);
        // Tokio's semaphore is fair: programs run in the order in which they began to wait.
        let permit = running.acquire_owned().await.expect("the semaphore is never closed");
        self.counts.running.fetch_add(1, Ordering::Relaxed);
        RunSlot { counts: Arc::clone(&self.counts), _permit: permit }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.counts.admitted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.counts.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().expect("a scope")
    }

    #[tokio::test]
    async fn each_tenant_has_its_own_slots() {
        let queue = ProgramQueue::new(QueueLimits { running: 1, waiting: 1 });
        let first = queue.admit(&scope("a.one")).expect("a running slot");
        let running = first.wait().await;
        let second = queue.admit(&scope("a.one")).expect("a queue slot");
        assert!(queue.admit(&scope("a.one")).is_none());
        let other = queue.admit(&scope("b.two")).expect("another tenant's slot");
        let _other = other.wait().await;
        let mut waits = Box::pin(second.wait());
        assert!(futures::poll!(&mut waits).is_pending());
        assert_eq!(queue.stats(), QueueStats { running: 2, waiting: 1 });
        drop(running);
        assert!(futures::poll!(&mut waits).is_ready());
        drop(first);
        assert!(queue.admit(&scope("a.one")).is_some());
    }

    #[test]
    fn tenants_without_programs_are_removed() {
        let queue = ProgramQueue::new(QueueLimits { running: 1, waiting: 0 });
        for number in 0..100 {
            assert!(queue.admit(&scope(&format!("a.p{number}"))).is_some());
        }
        assert!(queue.tenants.lock().unwrap().len() <= 2);
    }
}
