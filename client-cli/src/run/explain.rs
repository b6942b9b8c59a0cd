//! Explains what would happen to a call, without making it.

use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Routing, ToolId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::permission::{danger, decide_call, sends_to};
use super::resolver::Resolver;
use crate::app::App;
use crate::consent::decision::{Call, Decision, why_refused};
use crate::consent::question::{About, AskedCall, NeedsPerson};
use crate::policy::PolicyOfRun;

/// What would happen to a call.
pub(crate) struct Explained {
    /// The decision.
    pub(crate) verdict: Verdict,
    /// The reason: the rule that applies, or why the call would fail.
    pub(crate) reason: String,
    /// Why only a person could approve it, if so.
    pub(crate) needs_person: Option<&'static str>,
    /// The question that would be asked; `None` if it would not be, or without arguments.
    pub(crate) question: Option<String>,
    /// The side that would make the call; `None` if that was not looked up.
    pub(crate) routing: Option<Routing>,
}

/// The decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It runs.
    Runs,
    /// The user is asked.
    Asks,
    /// A rule denies it.
    Denied,
    /// It fails, and nobody is asked.
    Fails,
}

impl Verdict {
    /// Returns its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Asks => "asks",
            Self::Denied => "denied",
            Self::Fails => "fails",
        }
    }
}

/// Explains a call of a program that runs on this machine. Without `arguments`, only the rules and the start of a server
/// are considered.
///
/// # Errors
/// Returns why the tool was not found.
pub(crate) async fn explain(
    app: &App,
    id: &ToolId,
    arguments: Option<Value>,
    cancel: &CancellationToken,
) -> Result<Explained, ErrorBody> {
    let refused = |error: ErrorBody, routing| {
        let verdict = match error.error_code {
            code if is_denial(code) => Verdict::Denied,
            _ => Verdict::Fails,
        };
        // The rule alone, if there is one.
        let reason = why_refused(&app.permissions(), id).unwrap_or(error.message);
        let (needs_person, question) = (None, None);
        Explained { verdict, reason, needs_person, question, routing }
    };
    let policy = Arc::new(PolicyOfRun::new(Arc::clone(app.permissions().policy())));
    let target = match Resolver::new(app, false, cancel).find_called(id).await {
        Ok(target) => target,
        Err(error) if is_denial(error.error_code) => {
            return Ok(refused(error, None));
        }
        Err(error) => return Err(error),
    };
    let routing = Some(target.routing());
    let touched =
        match arguments.as_ref().map(|arguments| app.check_call(id, &target, arguments, &policy)) {
            None => None,
            Some(Ok(touched)) => Some(touched),
            Some(Err(error)) => return Ok(refused(error, routing)),
        };
    let call = Call { touched: touched.as_ref(), ..Call::default() };
    let decision = match decide_call(app, id, &target, call) {
        Ok(decision) => decision,
        Err(error) => return Ok(refused(error, routing)),
    };
    let (reason, start) = match decision {
        Decision::Run { reason } => {
            let (verdict, needs_person) = (Verdict::Runs, None);
            return Ok(Explained { verdict, reason, needs_person, question: None, routing });
        }
        Decision::Refused { reason, .. } => {
            let (verdict, needs_person) = (Verdict::Denied, None);
            return Ok(Explained { verdict, reason, needs_person, question: None, routing });
        }
        Decision::Ask { reason, start, .. } => (reason, start),
    };
    let touched = touched.unwrap_or_default();
    let danger = danger(id, &target, start.is_some(), &touched, &policy);
    let needs_person = NeedsPerson::of(&app.permissions(), danger).map(NeedsPerson::reason);
    let call = arguments.map(|arguments| AskedCall {
        preview: app.preview(id, &target, &arguments, &policy),
        tool: id.clone(),
        through: Vec::new(),
        arguments,
        can_be_allowed: touched.can_be_allowed(&policy),
        reason: reason.clone(),
        changed: None,
        count: 1,
        start,
        sends_to: sends_to(app, id, &target, &touched),
        touched,
    });
    let question = call.map(|call| About::Call(Box::new(call)).text());
    Ok(Explained { verdict: Verdict::Asks, reason, needs_person, question, routing })
}

fn is_denial(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::PermissionDenied | ErrorCode::PolicyDenied)
}

impl Explained {
    /// Returns it as JSON.
    pub(crate) fn to_json(&self, id: &ToolId) -> Value {
        json!({
            "tool": id,
            "verdict": self.verdict.as_str(),
            "reason": self.reason,
            "needs_person": self.needs_person,
            "question": self.question,
            "routing": self.routing,
        })
    }
}
