//! Which program may run now. Every tenant has its own slots, so that a tenant with thousands of programs does not
//! delay the others, and gets `BUSY` early.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use protocol::Scope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The program limits of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// That run at the same time, at least one.
    pub running: usize,
    /// That wait for their turn.
    pub waiting: usize,
}

/// The places of all tenants.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Places,
    tenants: Mutex<HashMap<Scope, Weak<Tenant>>>,
}

#[derive(Debug)]
struct Tenant {
    admitted: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

/// An admitted program; dropping it frees its slot.
#[derive(Debug)]
pub(crate) struct Admitted {
    tenant: Arc<Tenant>,
    _place: OwnedSemaphorePermit,
}

impl Turns {
    /// Returns the unused slots.
    pub(crate) fn new(places: Places) -> Self {
        let places = Places { running: places.running.max(1), ..places };
        Self { places, tenants: Mutex::default() }
    }

    /// Returns how many programs a tenant may have.
    pub(crate) fn places(&self) -> Places {
        self.places
    }

    /// Admits one more program of a tenant; `None` if the tenant is at its limit.
    pub(crate) fn admit(&self, scope: &Scope) -> Option<Admitted> {
        let tenant = self.tenant(scope);
        let place = Arc::clone(&tenant.admitted).try_acquire_owned().ok()?;
        Some(Admitted { tenant, _place: place })
    }

    fn tenant(&self, scope: &Scope) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(scope).and_then(Weak::upgrade) {
            return known;
        }
        // Tenants without programs are removed here, so that the map stays small.
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let Places { running, waiting } = self.places;
        let tenant = Arc::new(Tenant {
            admitted: Arc::new(Semaphore::new(running.saturating_add(waiting))),
            running: Arc::new(Semaphore::new(running)),
        });
        tenants.insert(scope.clone(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Admitted {
    /// Waits for the program's turn, which lasts until what is returned is dropped.
    pub(crate) async fn turn(&self) -> OwnedSemaphorePermit {
        let running = Arc::clone(&self.tenant.running);
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
    async fn each_tenant_has_its_own_places() {
        let turns = Turns::new(Places { running: 1, waiting: 1 });
        let first = turns.admit(&scope("a.one")).expect("a place");
        let running = first.turn().await;
        let second = turns.admit(&scope("a.one")).expect("a place to wait");
        assert!(turns.admit(&scope("a.one")).is_none());
        let other = turns.admit(&scope("b.two")).expect("another tenant's place");
        let _other = other.turn().await;
        let mut waits = Box::pin(second.turn());
        assert!(futures::poll!(&mut waits).is_pending());
        drop(running);
        assert!(futures::poll!(&mut waits).is_ready());
        drop(first);
        assert!(turns.admit(&scope("a.one")).is_some());
    }

    #[test]
    fn tenants_without_programs_are_forgotten() {
        let turns = Turns::new(Places { running: 1, waiting: 0 });
        for number in 0..100 {
            assert!(turns.admit(&scope(&format!("a.p{number}"))).is_some());
        }
        assert!(turns.tenants.lock().unwrap().len() <= 2);
    }
}
