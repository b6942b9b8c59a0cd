//! Answers to paused runs. Local runs continue here; answers to the gateway's runs are forwarded.

use std::time::Duration;

use protocol::{ContinueRequest, Envelope, ErrorBody, ErrorCode};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::app::App;
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{Answer, Channel, Given};

/// How long the agent's answer to a question that only a person can approve waits for the person. Many clients end a
/// call after 60 seconds.
const PATIENCE: Duration = Duration::from_secs(45);

/// Continues or ends the run that `decision` names, with an answer that came through the channel `by`. If only a person
/// can give the answer and `waits` is set, waits for the person.
pub(crate) async fn resume(
    runs: &Runs,
    decision: &ContinueRequest,
    by: Channel,
    waits: bool,
    cancel: CancellationToken,
) -> Envelope {
    let app = &runs.app;
    // The gateway's ids begin with `ws_`, those of this process with `wl_`.
    if decision.workflow_id.starts_with("ws_") {
        return forward(app, decision, &cancel).await.unwrap_or_else(Envelope::error);
    }
    // The user may have edited the rules in the meantime; they apply to the next calls.
    if let Err(error) = app.read_permissions() {
        return Envelope::error(error);
    }
    if by == Channel::Agent
        && let Some(envelope) = of_person(runs, decision, waits, &cancel).await
    {
        return envelope;
    }
    let without = LeftOut::of(&decision.without);
    if let Err(reason) = runs.approvals.check_left_out(&decision.workflow_id, &without) {
        return Envelope::error(ErrorBody::new(ErrorCode::InvalidRequest, reason));
    }
    // Only after the rules are read: an invalid file leaves the question open.
    let resumed = match runs.approvals.resume(&decision.workflow_id) {
        Ok(resumed) => resumed,
        Err(error) => {
            // A person may have answered on a terminal in the meantime.
            let settled = runs.approvals.settled(&decision.workflow_id, &cancel).await;
            return settled.unwrap_or_else(|| Envelope::error(error));
        }
    };
    let answer = match (decision.approved, decision.always) {
        (false, _) => Answer::Abort,
        (true, false) => Answer::Once,
        (true, true) => Answer::Always,
    };
    // The program may have ended without awaiting this call; then its result is returned.
    let _ = resumed.answer.send(Given { answer, without, by });
    runs.approvals.follow(resumed.run, &cancel).await
}

/// Returns the outcome of a question that a person has answered, or that only a person can approve. `None` if the agent
/// can answer it.
async fn of_person(
    runs: &Runs,
    decision: &ContinueRequest,
    waits: bool,
    cancel: &CancellationToken,
) -> Option<Envelope> {
    let (approvals, id) = (&runs.approvals, &decision.workflow_id);
    if let Some(envelope) = approvals.settled(id, cancel).await {
        return Some(envelope);
    }
    // Anybody may deny.
    let needs = if decision.approved {
        approvals.needs_person(id, runs.app.permissions().by_person_only())
    } else {
        None
    };
    let approval = needs?;
    if waits {
        tokio::select! {
            _ = tokio::time::timeout(PATIENCE, approvals.closed(id)) => {}
            () = cancel.cancelled() => {}
        }
        if let Some(envelope) = approvals.settled(id, cancel).await {
            return Some(envelope);
        }
    }
    Some(Envelope::ApprovalRequired(Box::new(approval)))
}

async fn forward(
    app: &App,
    decision: &ContinueRequest,
    cancel: &CancellationToken,
) -> Result<Envelope, ErrorBody> {
    let arguments = serde_json::to_value(decision)
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
    app.cloud()?.resume(arguments, cancel).await
}
