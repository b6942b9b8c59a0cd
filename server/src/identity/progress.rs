//! The progress of a run, for a client that subscribed to it.

use tokio::sync::watch;

/// Counts the progress of a run; clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Option<watch::Sender<u64>>);

impl Progress {
    /// Starts counting, for a subscriber.
    pub(crate) fn told() -> (Self, watch::Receiver<u64>) {
        let (sender, receiver) = watch::channel(0);
        (Self(Some(sender)), receiver)
    }

    /// Reports that a tool call has ended.
    pub(crate) fn call_ended(&self) {
        if let Some(calls) = &self.0 {
            calls.send_modify(|ended| *ended += 1);
        }
    }
}
