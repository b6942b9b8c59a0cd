//! `pml_create`: publishes a program after the user has approved.
//!
//! A published program leaves the machine permanently, and others run it. So publishing needs approval like a call of
//! a tool `pml:create`, with the program itself in the question. An `allow` rule is sufficient for the visibilities
//! `private` and `project`; `org` and `public` need approval each time.

use std::sync::Arc;

use protocol::{CreateRequest, Envelope, ErrorBody, ErrorCode, Integrity, ToolId, Visibility};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Runs;
use super::paused::{PausedRun, RunEvent};
use crate::app::App;
use crate::consent::decision::{Call, Decision, decide, denied, refuse_denied};
use crate::consent::question::{About, Answer, AskedCall, Channel, NeedsPerson, Question};
use crate::workspace::touched::Touched;

/// Publishes a program.
pub(crate) async fn create(
    runs: &Runs,
    request: CreateRequest,
    cancel: CancellationToken,
) -> Envelope {
    match prepare(runs, request).await {
        Ok(new) => {
            let code_hash = Integrity::of(new.code().as_bytes());
            let inner = Arc::clone(&runs.app);
            let run = PausedRun::start(code_hash, move |events, stop| async move {
                publish(&inner, &new, &events, &stop).await.unwrap_or_else(Envelope::error)
            });
            runs.approvals.follow(run, &cancel).await
        }
        Err(error) => Envelope::error(error),
    }
}

/// The publication request for the gateway.
struct New {
    request: CreateRequest,
    arguments: Value,
    tool: ToolId,
}

impl New {
    fn code(&self) -> &str {
        self.request.code.as_deref().unwrap_or_default()
    }
}

/// Finds the program and checks that it can be published. The user is not asked here.
async fn prepare(runs: &Runs, mut request: CreateRequest) -> Result<New, ErrorBody> {
    let app = &runs.app;
    if let Some(known) = request.execution_id.as_deref().and_then(|id| runs.finished.code(id)) {
        if request.code.as_ref().is_some_and(|code| *code != known) {
            let message = "`code` is not the program of the run that `execution_id` names";
            return Err(ErrorBody::new(ErrorCode::CodeHashMismatch, message));
        }
        request.code = Some(known);
        // The gateway does not know runs on this machine.
        request.execution_id = None;
    }
    let code = request.code.as_deref().ok_or_else(|| {
        let message = match request.execution_id {
            Some(_) => {
                "`execution_id` is not a successful run of this `pml`; pass its program as `code`"
            }
            None => "`code` is missing: the program to publish",
        };
        ErrorBody::new(ErrorCode::InvalidRequest, message)
    })?;
    // The gateway analyses it again, but the user should not be asked about a program that it would
    // refuse.
    let analysis = app.analyser()?.analyse(code).await?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    // The user may have edited the rules since the last program.
    app.read_permissions()?;
    let tool = ToolId::new("pml", "create")
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
    refuse_denied(&app.permissions(), &tool, "")?;
    // Before the question, whose answer would have no effect without a key.
    if !app.cloud()?.has_key().await {
        let message = "publishing needs an API key for the gateway, and none is set";
        return Err(ErrorBody::new(ErrorCode::Unauthorized, message));
    }
    // Serialized once: exactly what the question shows is sent.
    let arguments = serde_json::to_value(&request)
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
    Ok(New { request, arguments, tool })
}

async fn publish(
    app: &App,
    new: &New,
    events: &mpsc::UnboundedSender<RunEvent>,
    stop: &CancellationToken,
) -> Result<Envelope, ErrorBody> {
    if let Some(reason) = question(app, new)? {
        ask(app, new, reason, events, stop).await?;
        // The user may have added a rule while the question was open.
        question(app, new)?;
    }
    app.cloud()?.create(new.arguments.clone(), stop).await
}

/// Returns why the user must be asked; `None` if a rule allows it.
fn question(app: &App, new: &New) -> Result<Option<String>, ErrorBody> {
    // Without a visibility, the entry keeps its present one. That is unknown here and may be `org`
    // or `public`, so the user is always asked.
    let near = is_near(new);
    let who = match new.request.visibility {
        Some(Visibility::Private) => "only you can see it there",
        Some(Visibility::Project) => "everybody in your project can read and run it",
        Some(Visibility::Org) => "everybody in your organisation can read and run it",
        Some(Visibility::Public) => "everybody can read and run it",
        None => {
            "its visibility is unchanged; on first publish, everybody in your project can read and run it"
        }
    };
    let call = Call { always_asked: !near, ..Call::default() };
    match decide(&app.permissions(), &new.tool, call) {
        Decision::Refused { reason, code } => Err(denied(&new.tool, "", &reason, code)),
        Decision::Run { .. } => Ok(None),
        Decision::Ask { reason, .. } => Ok(Some(format!(
            "the text of the program is sent to {} and stored there as `{}`; {who}; {reason}",
            app.cloud()?.gateway(),
            protocol::escape_text(&new.request.name),
        ))),
    }
}

/// Returns whether at most the caller's project sees the entry.
fn is_near(new: &New) -> bool {
    matches!(new.request.visibility, Some(Visibility::Private | Visibility::Project))
}

async fn ask(
    app: &App,
    new: &New,
    reason: String,
    events: &mpsc::UnboundedSender<RunEvent>,
    stop: &CancellationToken,
) -> Result<(), ErrorBody> {
    let (answer, answered) = oneshot::channel();
    let call = AskedCall {
        tool: new.tool.clone(),
        through: Vec::new(),
        arguments: new.arguments.clone(),
        reason,
        changed: None,
        count: 1,
        touched: Touched::default(),
        preview: None,
        start: None,
        sends_to: None,
        can_be_allowed: true,
    };
    let danger = (!is_near(new)).then_some(NeedsPerson::Publication);
    let question = Question {
        about: About::Call(Box::new(call)),
        needs_person: NeedsPerson::of(&app.permissions(), danger),
        answer,
    };
    let expired = || {
        ErrorBody::new(
            ErrorCode::ApprovalExpired,
            "the question was not answered; nothing was published",
        )
    };
    events.send(RunEvent::Asks(Box::new(question))).map_err(|_| expired())?;
    let answer = tokio::select! {
        answer = answered => answer.map_err(|_| expired())?,
        () = stop.cancelled() => {
            return Err(ErrorBody::new(ErrorCode::Cancelled, "nothing was published"));
        }
    };
    match answer.answer {
        // The agent cannot make a rule.
        Answer::Always if answer.by == Channel::Agent => Ok(()),
        Answer::Once => Ok(()),
        // The rule covers `private` and `project` only; the other visibilities need approval again.
        Answer::Always => app.allow_always(&new.tool),
        Answer::Abort => Err(ErrorBody::new(
            ErrorCode::ApprovalDenied,
            "the user did not allow it; nothing was published",
        )),
    }
}
