//! The progress of a request, for a client that asked to be notified of it.

use execution::mcp_server::progress;
use tokio::sync::watch;

/// Counts the ended tool calls of a request; clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Option<watch::Sender<progress::Progress>>);

impl Progress {
    /// Creates a counter and the receiver for its subscriber.
    pub(crate) fn channel() -> (Self, watch::Receiver<progress::Progress>) {
        let (sender, receiver) = watch::channel(progress::Progress::default());
        (Self(Some(sender)), receiver)
    }

    /// Reports that a tool call has ended.
    pub(crate) fn call_ended(&self) {
        if let Some(progress) = &self.0 {
            progress.send_modify(|progress| progress.ended += 1);
        }
    }
}
