//! Traces: what the gateway is told of runs whose tools it has located, after their end.
//!
//! The record of runs is the queue. Behind the last run that the gateway has acknowledged, every run that has ended and
//! whose record names this gateway is sent, until the gateway has acknowledged it, also by a later `pml`. Sending a trace
//! twice has the effect of sending it once, so nothing has to be stored before a run.

mod pending;
mod projection;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorBody, TraceBatch, TraceOutcome, TraceReceipts};

use self::pending::{Pending, Sent};
use crate::background::{Background, Left, Work, blocking};
use crate::gateway::cloud::Cloud;
use crate::workspace::Workspace;

/// Sends the traces of a project's runs to its gateway, in the background.
pub(crate) struct Traces(Background<Sender>);

struct Sender {
    workspace: Arc<Workspace>,
    sent: Sent,
    cloud: Cloud,
}

impl Traces {
    /// Prepares the sending of traces; `records` is the folder of the user's own records.
    pub(crate) fn new(workspace: Arc<Workspace>, records: &Path, cloud: Cloud) -> Self {
        let sent = Sent::of(records, workspace.root(), &cloud.gateway().origin());
        Self(Background::new(Sender { workspace, sent, cloud }))
    }

    /// Sends what has not been sent yet, in the background: a run has ended, or an agent has connected.
    pub(crate) fn send(&self) {
        self.0.ask();
    }

    /// Waits until it is sent, for at most `patience`. Then the next `pml` sends it.
    pub(crate) async fn finish(&self, patience: Duration) {
        self.0.finish(patience).await;
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

impl Work for Sender {
    /// Sends the traces of all runs that have ended, in the order of their ends.
    async fn attempt(self: &Arc<Self>) -> Left {
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
}

impl Sender {
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
                let left = Left::after(&error);
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
