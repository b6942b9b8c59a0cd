//! Traces: what the gateway is told of runs whose tools it has located, after their end.
//!
//! The record of runs is the queue. Behind the last run that the gateway has acknowledged, every run that has ended and
//! whose record names this gateway is sent, until the gateway has acknowledged it, also by a later `pml`. Sending a trace
//! twice has the effect of sending it once, so nothing has to be stored before a run.

mod pending;
mod projection;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::{ErrorBody, ErrorCode, TraceBatch, TraceOutcome, TraceReceipts};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::pending::{Pending, Sent};
use crate::gateway::cloud::Cloud;
use crate::workspace::Workspace;

/// How long to wait before the first and the last attempts after a failure.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Sends the traces of a project's runs to its gateway, in the background.
pub(crate) struct Traces {
    sender: Arc<Sender>,
    /// How many attempts were asked for.
    asked: watch::Sender<u64>,
    /// How many of them have been made.
    made: watch::Sender<u64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Sender {
    workspace: Arc<Workspace>,
    sent: Sent,
    cloud: Cloud,
}

/// What an attempt has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Nothing,
    /// Some traces, which the gateway may take later.
    Some,
    /// Some traces, which this gateway takes from nobody or not with this key: there is no other attempt until another
    /// run has ended.
    Refused,
}

impl Traces {
    /// Prepares the sending of traces; `records` is the folder of the user's own records.
    pub(crate) fn new(workspace: Arc<Workspace>, records: &Path, cloud: Cloud) -> Self {
        let sent = Sent::of(records, workspace.root(), &cloud.gateway().origin());
        Self {
            sender: Arc::new(Sender { workspace, sent, cloud }),
            asked: watch::Sender::new(0),
            made: watch::Sender::new(0),
            task: Mutex::default(),
        }
    }

    /// Sends what has not been sent yet, in the background: a run has ended, or an agent has connected.
    pub(crate) fn send(&self) {
        self.asked.send_modify(|asked| *asked += 1);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_none() {
            let (sender, asked) = (Arc::clone(&self.sender), self.asked.subscribe());
            *task = Some(tokio::spawn(send_all(sender, asked, self.made.clone())));
        }
    }

    /// Waits for the attempts that were asked for, for at most `patience`. Then the next `pml` makes them.
    pub(crate) async fn finish(&self, patience: Duration) {
        let asked = *self.asked.borrow();
        let mut made = self.made.subscribe();
        let _ = tokio::time::timeout(patience, made.wait_for(|made| *made >= asked)).await;
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Returns the number of a project's runs whose traces are still to be sent to a gateway; `records` is the folder of the
/// user's own records.
///
/// # Errors
/// Returns why the record of runs cannot be read.
pub(crate) fn waiting(
    workspace: &Workspace,
    records: &Path,
    origin: &str,
) -> Result<usize, ErrorBody> {
    Pending::count(workspace, &Sent::of(records, workspace.root(), origin))
}

/// Makes an attempt whenever one is asked for, and repeats it until nothing is left.
async fn send_all(sender: Arc<Sender>, mut asked: watch::Receiver<u64>, made: watch::Sender<u64>) {
    let mut wait = WAITS.0;
    loop {
        let round = *asked.borrow_and_update();
        let left = sender.send_pending().await;
        made.send_replace(round);
        match left {
            Left::Some => {
                tokio::select! {
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAITS.1),
                    changed = asked.changed() => if changed.is_err() { return },
                }
            }
            Left::Nothing | Left::Refused => {
                wait = WAITS.0;
                if asked.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Sender {
    /// Sends the traces of all runs that have ended, in the order of their ends.
    async fn send_pending(self: &Arc<Self>) -> Left {
        loop {
            let sender = Arc::clone(self);
            let pending = blocking(move || Pending::read(&sender.workspace, &sender.sent)).await;
            let pending = match pending {
                Ok(Some(pending)) => pending,
                Ok(None) => return Left::Nothing,
                Err(error) => {
                    tracing::debug!(error = %error.message, "The traces cannot be read");
                    return Left::Some;
                }
            };
            // Asked only now: finding the key may start a program.
            if !pending.batches.is_empty() && !self.cloud.has_key().await {
                return Left::Refused;
            }
            for batch in pending.batches {
                if let Err(left) = self.send(&batch).await {
                    return left;
                }
            }
            if let Err(error) = self.sent.write(&pending.end) {
                tracing::debug!(%error, "It is not stored which traces were sent");
                return Left::Some;
            }
        }
    }

    /// Sends one batch. What the gateway has acknowledged, also by the refusal of a run, is not sent again.
    async fn send(&self, batch: &TraceBatch) -> Result<(), Left> {
        match self.cloud.send_traces(batch).await {
            Ok(receipts) => {
                note_refusals(&receipts);
                // A gateway that forgets a run would be asked for ever.
                match receipts.runs.len() == batch.runs.len() {
                    true => Ok(()),
                    false => Err(Left::Refused),
                }
            }
            Err(error) => {
                let left = match error.error_code {
                    ErrorCode::GatewayUnreachable
                    | ErrorCode::DatabaseUnavailable
                    | ErrorCode::Busy
                    | ErrorCode::RateLimited
                    | ErrorCode::Internal => Left::Some,
                    // For example a gateway of an earlier version, or a key without the right to run programs.
                    _ => Left::Refused,
                };
                tracing::debug!(error = %error.message, ?left, "The traces were not sent");
                Err(left)
            }
        }
    }
}

fn note_refusals(receipts: &TraceReceipts) {
    for receipt in &receipts.runs {
        if receipt.outcome == TraceOutcome::Refused {
            let reason = receipt.reason.as_deref().unwrap_or("no reason");
            tracing::warn!(
                run = %protocol::escape_text(&receipt.run_id),
                reason = %protocol::escape_text(reason),
                "The gateway does not take the trace of a run"
            );
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorBody> + Send + 'static,
) -> Result<T, ErrorBody> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorBody::new(ErrorCode::Internal, error.to_string())))
}
