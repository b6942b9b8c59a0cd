//! How many servers may run, in total and for each tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Scope;

/// The places of running servers.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_of_tenant: usize,
    taken: Mutex<HashMap<Scope, usize>>,
}

/// Which places are all taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Those of the tenant.
    Tenant,
    /// Those of all tenants together.
    All,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    scope: Scope,
}

impl Places {
    pub(super) fn new(most: usize, most_of_tenant: usize) -> Self {
        Self { most, most_of_tenant, taken: Mutex::default() }
    }

    /// Takes a place for a server of a tenant.
    ///
    /// # Errors
    /// Returns which limit is reached.
    pub(super) fn take(self: &Arc<Self>, scope: &Scope) -> Result<Place, Full> {
        let mut taken = self.taken();
        // First: the tenant's own servers make way before those of others.
        if taken.get(scope).is_some_and(|own| *own >= self.most_of_tenant) {
            return Err(Full::Tenant);
        }
        if taken.values().sum::<usize>() >= self.most {
            return Err(Full::All);
        }
        *taken.entry(scope.clone()).or_default() += 1;
        Ok(Place { places: Arc::clone(self), scope: scope.clone() })
    }

    /// Returns the number of places that are taken.
    pub(super) fn count(&self) -> usize {
        self.taken().values().sum()
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Scope, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(own) = taken.get_mut(&self.scope) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_each_tenant_and_in_total() {
        let places = Arc::new(Places::new(3, 2));
        let (one, two): (Scope, Scope) = ("a.b".parse().unwrap(), "a.c".parse().unwrap());
        let held = [places.take(&one).unwrap(), places.take(&one).unwrap()];
        assert_eq!(places.take(&one).unwrap_err(), Full::Tenant);
        let other = places.take(&two).unwrap();
        assert_eq!(places.take(&two).unwrap_err(), Full::All);
        drop(other);
        places.take(&two).unwrap();
        assert_eq!(places.count(), 2);
        drop(held);
        assert_eq!(places.count(), 0);
    }
}
