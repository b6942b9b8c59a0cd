//! The progress of a request, for a client that asked to be notified of it.

use tokio::sync::watch;

/// Counts the ended tool calls of a request; clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Option<watch::Sender<u64>>);

impl Progress {
    /// Creates a counter and the receiver for its subscriber.
    pub(crate) fn channel() -> (Self, watch::Receiver<u64>) {
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
