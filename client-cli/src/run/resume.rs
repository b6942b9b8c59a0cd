//! Answers to paused runs. Local runs continue here; answers to the gateway's runs are forwarded.

use protocol::{ContinueRequest, Envelope, ErrorBody, ErrorCode};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::app::App;
use crate::consent::question::Answer;

/// Continues or ends the run that `decision` names.
pub(crate) async fn resume(
    runs: &Runs,
    decision: &ContinueRequest,
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
    // Only after the rules are read: an invalid file leaves the question open.
    let resumed = match runs.approvals.resume(&decision.workflow_id) {
        Ok(resumed) => resumed,
        Err(error) => return Envelope::error(error),
    };
    let answer = match (decision.approved, decision.always) {
        (false, _) => Answer::Abort,
        (true, false) => Answer::Once,
        (true, true) => Answer::Always,
    };
    // The program may have ended without awaiting this call; then its result is returned.
    let _ = resumed.answer.send(answer);
    runs.approvals.follow(resumed.run, &cancel).await
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
