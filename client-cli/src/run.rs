//! One run on this machine: alive, asking, or ended.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Envelope, Integrity};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::consent::approvals::{Approvals, Question};
use crate::progress;

/// The events that a run sends to its follower.
pub enum RunEvent {
    /// It waits for a human.
    Asks(Box<Question>),
    /// A tool call of it has ended.
    CallEnded,
    /// It ended.
    Ended(Box<Envelope>),
}

/// A run that proceeds by itself and can be followed until it asks or ends.
pub struct PausedRun {
    events: mpsc::UnboundedReceiver<RunEvent>,
    cancel: CancellationToken,
    code_hash: Integrity,
    task: Option<JoinHandle<()>>,
}

impl PausedRun {
    /// Starts a run. `story` receives the sender for its questions and returns the end.
    pub fn start<F>(
        code_hash: Integrity,
        story: impl FnOnce(mpsc::UnboundedSender<RunEvent>, CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = Envelope> + Send + 'static,
    {
        let (sender, events) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let story = story(sender.clone(), cancel.clone());
        let task = tokio::spawn(async move {
            let envelope = story.await;
            // There may be no receiver: the run was dropped.
            let _ = sender.send(RunEvent::Ended(Box::new(envelope)));
        });
        Self { events, cancel, code_hash, task: Some(task) }
    }

    /// Follows the run until it ends or asks; if it asks, `approvals` keeps it.
    ///
    /// `caller` is the request on whose behalf it is followed: when that is
    /// cancelled, so is the run.
    pub async fn follow(
        mut self,
        approvals: &Arc<Approvals>,
        caller: &CancellationToken,
    ) -> Envelope {
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = caller.cancelled(), if !self.cancel.is_cancelled() => {
                    self.cancel.cancel();
                    continue;
                }
            };
            match event {
                Some(RunEvent::Asks(question)) if self.cancel.is_cancelled() => drop(question),
                Some(RunEvent::Asks(question)) => {
                    let code_hash = self.code_hash;
                    let approval = approvals.pause(self, *question, code_hash);
                    return Envelope::ApprovalRequired(Box::new(approval));
                }
                Some(RunEvent::CallEnded) => progress::call_ended(),
                Some(RunEvent::Ended(envelope)) => return *envelope,
                // The story always ends with an envelope; only a panic does not.
                None => {
                    return Envelope::error(protocol::ErrorBody::new(
                        protocol::ErrorCode::Internal,
                        "the run ended without an answer",
                    ));
                }
            }
        }
    }
}

impl Drop for PausedRun {
    fn drop(&mut self) {
        self.cancel.cancel();
        let Some(task) = self.task.take() else { return };
        // The story ends by itself once it is cancelled; this only limits the wait.
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
