//! A run on this machine, from the point of view of the request that follows it: running, paused on a question, or
//! ended.

use std::time::Duration;

use execution::trace_context;
use protocol::{Envelope, ErrorBody, ErrorCode, Integrity};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::progress;
use crate::consent::question::Question;

/// The events that a run sends to its follower.
pub(crate) enum RunEvent {
    /// It waits for the answer to a question.
    Asks(Box<Question>),
    /// One of its tool calls has ended.
    CallEnded,
    /// It ended.
    Ended(Box<Envelope>),
}

/// Why a run needs its follower.
pub(crate) enum Next {
    /// It waits for the answer to a question.
    Asks(Box<Question>),
    /// It ended.
    Ended(Box<Envelope>),
}

/// A run in a background task, which can be followed until it asks or ends.
pub(crate) struct PausedRun {
    events: mpsc::UnboundedReceiver<RunEvent>,
    cancel: CancellationToken,
    code_hash: Integrity,
    task: Option<JoinHandle<()>>,
}

impl PausedRun {
    /// Starts a run. `body` receives the sender for its events and returns its result.
    pub(crate) fn start<F>(
        code_hash: Integrity,
        body: impl FnOnce(mpsc::UnboundedSender<RunEvent>, CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = Envelope> + Send + 'static,
    {
        // Unbounded, so that no call waits for a follower, which a paused run does not have. The
        // limit of calls bounds the number of events.
        let (sender, events) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let body = body(sender.clone(), cancel.clone());
        // The run has a task of its own, and works for the request that started it.
        let body = trace_context::within(trace_context::current(), body);
        let task = tokio::spawn(async move {
            let envelope = body.await;
            // There may be no receiver: the run was dropped.
            let _ = sender.send(RunEvent::Ended(Box::new(envelope)));
        });
        Self { events, cancel, code_hash, task: Some(task) }
    }

    /// Returns the hash of its program.
    pub(crate) fn code_hash(&self) -> Integrity {
        self.code_hash
    }

    /// Waits until the run ends or asks. When `caller` is cancelled, so is the run.
    pub(crate) async fn next(&mut self, caller: &CancellationToken) -> Next {
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                // Only once: a cancelled token is always ready, so the loop would spin until the
                // run ends.
                () = caller.cancelled(), if !self.cancel.is_cancelled() => {
                    // A cancelled run still sends an envelope, which is the answer to the caller.
                    self.cancel.cancel();
                    continue;
                }
            };
            match event {
                // A cancelled run asks no questions. Dropping the question fails its call.
                Some(RunEvent::Asks(question)) if self.cancel.is_cancelled() => drop(question),
                Some(RunEvent::Asks(question)) => return Next::Asks(question),
                // Counted here, because the counter is local to the request's task and the run has
                // a task of its own.
                Some(RunEvent::CallEnded) => progress::call_ended(),
                Some(RunEvent::Ended(envelope)) => return Next::Ended(envelope),
                // The task always sends an envelope before it ends, unless it panics.
                None => {
                    let error =
                        ErrorBody::new(ErrorCode::Internal, "the run ended without an answer");
                    return Next::Ended(Box::new(Envelope::error(error)));
                }
            }
        }
    }
}

impl Drop for PausedRun {
    fn drop(&mut self) {
        self.cancel.cancel();
        let Some(task) = self.task.take() else { return };
        // The task ends by itself after the cancellation; this limits the time that it may take.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let abort = task.abort_handle();
                if tokio::time::timeout(Duration::from_secs(5), task).await.is_err() {
                    abort.abort();
                }
            });
        }
    }
}
