//! The queue of programs. Every tenant has its own slots, so that a tenant with thousands of programs does not delay
//! the others, and gets `BUSY` early.

use std::collections::HashMap;
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
    _permit: OwnedSemaphorePermit,
}

impl ProgramQueue {
    /// Creates empty queues with these limits.
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let limits = QueueLimits { running: limits.running.max(1), ..limits };
        Self { limits, tenants: Mutex::default() }
    }

    /// Returns the limits of each tenant.
    pub(crate) fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// Admits one more program of a tenant; `None` if the tenant is at its limit.
    pub(crate) fn admit(&self, scope: &Scope) -> Option<Admitted> {
        let tenant = self.tenant(scope);
        // Never waits: a caller at its limit is told at once.
        let permit = Arc::clone(&tenant.admitted).try_acquire_owned().ok()?;
        Some(Admitted { tenant, _permit: permit })
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
    /// Waits until the program may run, which it may until the returned permit is dropped.
    pub(crate) async fn wait(&self) -> OwnedSemaphorePermit {
        let running = Arc::clone(&self.tenant.running);
        // Tokio's semaphore is fair: programs run in the order in which they began to wait.
        running.acquire_owned().await.expect("the semaphore is never closed")
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
