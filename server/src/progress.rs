//! How far a run is, for a client that asked to be told.

use tokio::sync::watch;

/// Counts what a run has done; a clone counts for the same run.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<watch::Sender<u64>>);

impl Progress {
    /// Starts to count, for whoever listens.
    pub fn told() -> (Self, watch::Receiver<u64>) {
        let (sender, receiver) = watch::channel(0);
        (Self(Some(sender)), receiver)
    }

    /// Says that a tool call has ended.
    pub fn call_ended(&self) {
        if let Some(calls) = &self.0 {
            calls.send_modify(|ended| *ended += 1);
        }
    }
}
