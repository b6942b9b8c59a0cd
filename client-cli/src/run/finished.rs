//! The programs of the last successful runs, which can be published by the id of the run.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use protocol::Envelope;

/// The maximum number of stored programs; the oldest is dropped first.
const STORED_LIMIT: usize = 64;

/// The programs of the last successful runs of this process.
#[derive(Default)]
pub(crate) struct Finished(Mutex<VecDeque<(String, String)>>);

impl Finished {
    /// Stores the program of a run if it was successful.
    pub(crate) fn remember(&self, envelope: &Envelope, code: &str) {
        let Envelope::Success(success) = envelope else { return };
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() == STORED_LIMIT {
            runs.pop_front();
        }
        runs.push_back((success.run.execution_id.clone(), code.to_owned()));
    }

    /// Returns the program of a run.
    pub(crate) fn code(&self, execution_id: &str) -> Option<String> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().find(|(id, _)| id == execution_id).map(|(_, code)| code.clone())
    }
}
