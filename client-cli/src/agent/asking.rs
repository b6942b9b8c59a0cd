//! Asks the person through the agent's client, with MCP's elicitation.
//!
//! The client shows the question and returns what the person chose, so the model cannot answer it. Clients of 2025
//! versions are sent `elicitation/create` within the call. Those of 2026-07-28 get the question as the result
//! `input_required` and repeat the call with the answer; if they offer tasks, the call becomes a task that has the question.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::{Approval, ApprovalType, ContinueRequest, ErrorBody, ErrorCode, Integrity};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::consent::question::EXPIRY;
use crate::consent::question::left_out::LeftOut;

/// How long to wait for an answer within a call: many clients end a call after 60 seconds.
const PATIENCE: Duration = Duration::from_secs(45);

/// The name of the question in `input_required`.
const QUESTION: &str = "approval";
/// The field of the form for the decision.
const DECISION: &str = "decision";

/// The field of the form for the calls that are left out.
const WITHOUT: &str = "without";

/// How the client of a request can ask the person.
#[derive(Clone)]
pub(super) enum Channel {
    /// By a request within the call.
    Request(Peer<RoleServer>),
    /// By a result that requires input.
    Result,
    /// By a task that requires input.
    Task,
}

impl Channel {
    /// Returns the channel of a request; `None` if its client has not declared that it shows forms.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let elicitation = context.client_capabilities()?.elicitation?;
        // A client that names neither mode supports forms: version 2025-06-18 has no modes.
        if elicitation.form.is_none() && elicitation.url.is_some() {
            return None;
        }
        if context.protocol_version()? < ProtocolVersion::V_2026_07_28 {
            return Some(Self::Request(context.peer.clone()));
        }
        let has_tasks = context.client_capabilities()?.supports_tasks();
        Some(if has_tasks { Self::Task } else { Self::Result })
    }
}

/// Sends a question to the client within a call; `None` if the person did not answer it.
pub(super) async fn ask(peer: &Peer<RoleServer>, approval: &Approval) -> Option<ContinueRequest> {
    match peer.create_elicitation_with_timeout(form(approval), Some(PATIENCE)).await {
        Ok(answer) => decision(approval, &answer),
        Err(error) => {
            tracing::debug!(%error, "The client did not answer the question");
            None
        }
    }
}

/// Returns the request that asks a question.
pub(super) fn elicitation(approval: &Approval) -> ElicitRequest {
    ElicitRequest::new(form(approval))
}

/// The form that asks a question.
fn form(approval: &Approval) -> ElicitRequestParams {
    let names = approval.options.iter().map(|option| match option.as_str() {
        "continue" if approval.approval_type == ApprovalType::Plan => "Allow these calls",
        "continue" => "Allow this call",
        "always" => "Allow this tool from now on",
        _ => "Deny it and end the run",
    });
    let names: Vec<&str> = names.rev().collect();
    let options: Vec<&String> = approval.options.iter().rev().collect();
    let mut schema = json!({
        "type": "object",
        "properties": {
            // Denial comes first and is the default, so that a person who only confirms the form allows nothing.
            DECISION: { "type": "string", "title": "Allow it?", "enum": options, "enumNames": names, "default": "abort" },
        },
        "required": [DECISION],
    });
    if approval.approval_type == ApprovalType::Plan {
        schema["properties"][WITHOUT] = json!({
            "type": "string",
            "title": "Leave out",
            "description": "The numbers of calls that are not to be made, such as 2, 4-6. They fail when the program makes them.",
        });
    }
    let requested_schema: ElicitationSchema =
        serde_json::from_value(schema).expect("it follows the schema of forms");
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: approval.description.clone(),
        requested_schema,
    }
}

/// Reads the answer of a client; `None` if it is no decision. A cancelled form is not a denial: some clients cancel
/// every form by themselves. An accepted form without a valid choice is not an approval.
pub(super) fn decision(approval: &Approval, answer: &ElicitResult) -> Option<ContinueRequest> {
    let of = |approved, always| {
        let (workflow_id, without) = (approval.workflow_id.clone(), Vec::new());
        Some(ContinueRequest { workflow_id, approved, always, without })
    };
    match answer.action {
        ElicitationAction::Decline => of(false, false),
        ElicitationAction::Accept => {
            let choice = answer.content.as_ref()?.get(DECISION)?.as_str()?;
            match approval.options.iter().any(|option| option == choice).then_some(choice)? {
                "continue" => {
                    let without = match answer.content.as_ref()?.get(WITHOUT) {
                        Some(Value::String(text)) if !text.trim().is_empty() => {
                            let without = LeftOut::parse(text)?;
                            without.check(approval).ok()?;
                            without.numbers()
                        }
                        None | Some(Value::Null | Value::String(_)) => Vec::new(),
                        // Not a text, so what the person wants is not known.
                        Some(_) => return None,
                    };
                    Some(ContinueRequest { without, ..of(true, false)? })
                }
                "always" => of(true, true),
                "abort" => of(false, false),
                _ => None,
            }
        }
        // Also for an action of a later version.
        _ => None,
    }
}

/// The questions that were sent as results and wait for the repeated call.
#[derive(Default)]
pub(super) struct Rounds(Mutex<HashMap<String, Round>>);

/// A question that waits for the repeated call.
struct Round {
    approval: Approval,
    /// The call that asked: only its repetition can answer.
    call: Integrity,
    asked: Instant,
}

impl Rounds {
    /// Returns the result that asks a question of a call.
    pub(super) fn ask(&self, approval: Approval, call: Integrity) -> InputRequiredResult {
        let request = InputRequest::Elicitation(elicitation(&approval));
        // A handle and not the state itself: there is nothing in it that could be forged.
        let handle = uuid::Uuid::new_v4().simple().to_string();
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Their runs have ended, or another channel has answered.
        rounds.retain(|_, round| round.asked.elapsed() < EXPIRY);
        rounds.insert(handle.clone(), Round { approval, call, asked: Instant::now() });
        InputRequiredResult::new(Some([(QUESTION.to_owned(), request)].into()), Some(handle))
    }

    /// Reads the answer in a repeated call, which can be done once. Without a decision, returns the question again.
    ///
    /// # Errors
    /// Returns `WORKFLOW_NOT_FOUND` for a handle that is unknown, was used or belongs to another call. The call must
    /// not run then: it was made to answer a question.
    pub(super) fn answer(
        &self,
        handle: Option<&str>,
        responses: Option<&InputResponses>,
        call: Integrity,
    ) -> Result<Result<ContinueRequest, Approval>, ErrorBody> {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_call =
            |handle: &&str| rounds.get(*handle).is_some_and(|round| round.call == call);
        let round = handle.filter(is_of_call).and_then(|handle| rounds.remove(handle));
        let Some(Round { approval, .. }) = round else {
            return Err(ErrorBody::new(
                ErrorCode::WorkflowNotFound,
                "no question of this call waits for an answer with this `requestState`",
            ));
        };
        let answer = responses.and_then(|responses| responses.get(QUESTION)).cloned();
        let answer = answer.and_then(|answer: Value| serde_json::from_value(answer).ok());
        Ok(answer.and_then(|answer| decision(&approval, &answer)).ok_or(approval))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn approval(options: &[&str]) -> Approval {
        Approval {
            approval_required: true,
            approval_type: ApprovalType::ToolPermission,
            workflow_id: "wl_1".to_owned(),
            description: "Run it".to_owned(),
            context: json!({}),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            expires_at: String::new(),
        }
    }

    /// NX-11: only a clear choice that was offered approves.
    #[test]
    fn only_an_offered_choice_is_an_approval() {
        let all = approval(&["continue", "always", "abort"]);
        let once = approval(&["continue", "abort"]);
        let read = |approval: &Approval, answer: Value| {
            let answer = serde_json::from_value(answer).unwrap();
            decision(approval, &answer).map(|request| (request.approved, request.always))
        };
        let accept = |content: Value| json!({ "action": "accept", "content": content });
        for (choice, expected) in [
            ("continue", Some((true, false))),
            ("always", Some((true, true))),
            ("abort", Some((false, false))),
            ("yes", None),
            ("", None),
            ("Continue", None),
        ] {
            assert_eq!(read(&all, accept(json!({ DECISION: choice }))), expected, "{choice}");
        }
        assert_eq!(read(&once, accept(json!({ DECISION: "always" }))), None);
        assert_eq!(read(&all, json!({ "action": "decline" })), Some((false, false)));
        for none in [
            json!({ "action": "cancel" }),
            json!({ "action": "cancel", "content": { DECISION: "continue" } }),
            json!({ "action": "accept" }),
            accept(json!({})),
            accept(json!(null)),
            accept(json!("continue")),
            accept(json!([{ DECISION: "continue" }])),
            accept(json!({ DECISION: true })),
            accept(json!({ DECISION: ["continue"] })),
            accept(json!({ "approved": true })),
        ] {
            assert_eq!(read(&all, none.clone()), None, "{none}");
        }
    }

    #[test]
    fn denial_is_the_default_of_the_form() {
        let form = json!(form(&approval(&["continue", "always", "abort"])));
        let field = &form["requestedSchema"]["properties"][DECISION];
        assert_eq!(field["default"], "abort");
        assert_eq!(field["enum"], json!(["abort", "always", "continue"]));
        assert_eq!(field["enumNames"][0], "Deny it and end the run");
        assert_eq!(form["message"], "Run it");
    }

    /// A handle answers the question of one call, once.
    #[test]
    fn a_handle_is_used_once_and_by_its_call() {
        let rounds = Rounds::default();
        let (call, other) = (Integrity::of(b"a"), Integrity::of(b"b"));
        let asked = rounds.ask(approval(&["continue", "abort"]), call);
        let handle = asked.request_state.unwrap();
        let yes: InputResponses = [(
            QUESTION.to_owned(),
            json!({ "action": "accept", "content": { DECISION: "continue" } }),
        )]
        .into();
        let answer = |handle: Option<&str>, call| rounds.answer(handle, Some(&yes), call);
        assert!(answer(None, call).is_err());
        assert!(answer(Some("x"), call).is_err());
        assert!(answer(Some(&handle), other).is_err());
        assert!(answer(Some(&handle), call).unwrap().unwrap().approved);
        assert!(answer(Some(&handle), call).is_err());
        let asked = rounds.ask(approval(&["continue", "abort"]), call);
        let handle = asked.request_state.unwrap();
        let unanswered = rounds.answer(Some(&handle), None, call).unwrap();
        assert_eq!(unanswered.unwrap_err().workflow_id, "wl_1");
    }
}
