//! The number of proxied messages of a scope in progress, and its limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::{ErrorCode, Scope};

use crate::error::ApiError;

/// The maximum number of messages of one scope in progress, including open streams.
const EXCHANGES_OF_A_SCOPE: usize = 512;

/// The number of messages in progress, by scope.
#[derive(Default)]
pub(crate) struct Exchanges(Arc<Mutex<HashMap<Scope, usize>>>);

/// A place among them; it is free again when this ends.
pub(crate) struct Place {
    all: Arc<Mutex<HashMap<Scope, usize>>>,
    /// Whose it is.
    pub scope: Scope,
}

impl Exchanges {
    /// Takes a place.
    ///
    /// # Errors
    /// Returns `BUSY` when all of the scope are taken.
    pub(crate) fn enter(&self, scope: &Scope) -> Result<Place, ApiError> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(scope.clone()).or_default();
        if *count >= EXCHANGES_OF_A_SCOPE {
            let what = format!(
                "limit reached: {EXCHANGES_OF_A_SCOPE} proxied messages of this scope in progress"
            );
            return Err(ApiError::new(ErrorCode::Busy, what));
        }
        *count += 1;
        Ok(Place { all: Arc::clone(&self.0), scope: scope.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.scope) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.scope);
            }
        }
    }
}
