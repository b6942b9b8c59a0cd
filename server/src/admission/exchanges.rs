//! Limits the number of concurrent proxied messages of a scope.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::{ErrorCode, Scope};

use crate::error::ApiError;
use crate::metrics::{Limit, Metrics};

/// The maximum number of messages of one scope in progress, including open streams.
const EXCHANGES_OF_A_SCOPE: usize = 512;

/// The number of messages in progress, by scope.
pub(crate) struct Exchanges {
    counts: Arc<Mutex<HashMap<Scope, usize>>>,
    metrics: Arc<Metrics>,
}

/// A message in progress; dropping this ends it.
pub(crate) struct ExchangeSlot {
    all: Arc<Mutex<HashMap<Scope, usize>>>,
    /// The caller's scope.
    pub scope: Scope,
}

impl Exchanges {
    /// Creates the count, without any message yet.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { counts: Arc::default(), metrics }
    }

    /// Counts a message of a scope.
    ///
    /// # Errors
    /// Returns `BUSY` at the limit.
    pub(crate) fn enter(&self, scope: &Scope) -> Result<ExchangeSlot, ApiError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // A refusal leaves no new entry behind: a scope at its limit already has one.
        let count = counts.entry(scope.clone()).or_default();
        if *count >= EXCHANGES_OF_A_SCOPE {
            let what = format!(
                "limit reached: {EXCHANGES_OF_A_SCOPE} proxied messages of this scope in progress"
            );
            self.metrics.refusals.add(Limit::Exchanges);
            return Err(ApiError::new(ErrorCode::Busy, what));
        }
        *count += 1;
        Ok(ExchangeSlot { all: Arc::clone(&self.counts), scope: scope.clone() })
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        let mut counts = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.scope) {
            *count -= 1;
            // Otherwise the map would grow with every scope that ever used the proxy.
            if *count == 0 {
                counts.remove(&self.scope);
            }
        }
    }
}
