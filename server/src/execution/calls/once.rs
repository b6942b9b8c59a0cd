//! A forwarded call that names its run takes effect once.
//!
//! A client that was stopped does not know whether its last call arrived. It sends the call again under the same name:
//! if the call was made, it gets the answer that was stored, and otherwise the call is made now. A call whose outcome
//! is not known is not made again.

use std::time::Duration;

use protocol::{EntryType, ErrorBody, ErrorCode, canonical_json, escape_text};
use registry::{Claim, IdempotencyKey, ResolvedTool, StoredAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TOOL_TIMEOUT;
use crate::error::registry_error;
use crate::identity::requester::Requester;
use crate::state::SharedGateway;

/// The longest name of a call, in bytes of JSON.
const NAME_LIMIT: usize = 512;
/// The largest answer that is stored, in bytes of JSON.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// The status under which answers are stored; the table is shared with requests of the HTTP API.
const STORED: u16 = 200;
/// After this time, the gateway that made a call is assumed to have died.
const LONGEST_CALL: Duration = TOOL_TIMEOUT.saturating_add(Duration::from_secs(10));

/// The name of a call: the value of `_meta["ai.casys.pml/run"]`.
#[derive(Debug, Clone)]
pub(crate) struct CallName {
    /// The run, for the log.
    pub(crate) run_id: String,
    /// All of it, as canonical JSON.
    text: String,
}

impl CallName {
    /// Reads the name of a call.
    ///
    /// # Errors
    /// Returns `INVALID_REQUEST` for anything else than an object with a `run_id` and a `call_index`.
    pub(crate) fn read(meta: Value) -> Result<Self, ErrorBody> {
        let run_id = meta.get("run_id").and_then(Value::as_str).map(str::to_owned);
        let has_index = meta.get("call_index").is_some_and(|index| {
            index.is_u64() || index.as_str().is_some_and(|text| !text.is_empty())
        });
        let text = canonical_json(meta);
        match run_id {
            Some(run_id) if has_index && !run_id.is_empty() && text.len() <= NAME_LIMIT => {
                Ok(Self { run_id: escape_text(&run_id), text })
            }
            _ => Err(ErrorBody::new(
                ErrorCode::InvalidRequest,
                format!(
                    "`_meta[\"{}\"]` must be an object of at most {NAME_LIMIT} bytes with `run_id`, a text, and `call_index`, a number or a text",
                    protocol::meta_tools::RUN_META
                ),
            )),
        }
    }
}

/// The stored outcome of a call.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<R, E> {
    Result(R),
    Error(E),
}

/// What becomes of the claim of a call that has ended.
enum Settled {
    /// The call was not made, so its name is free again.
    Released,
    /// The outcome is stored.
    Stored(StoredAnswer),
    /// The outcome is not known, or is too large: the name stays claimed.
    Claimed,
}

/// Returns whether it matters how often a tool is called. The gateway's own tools are pure functions or searches.
pub(super) fn has_effects(tool: &ResolvedTool) -> bool {
    tool.kind != EntryType::Native
}

/// Makes a call unless it was made before under the same name; returns its result or the stored one.
///
/// # Errors
/// Returns the error of the call, `IDEMPOTENCY_KEY_REUSED` if another call has the name, `REQUEST_IN_PROGRESS` if the
/// call has not ended, `CALL_INDETERMINATE` if its outcome is not known, or `DATABASE_UNAVAILABLE`.
pub(super) async fn once(
    gateway: &SharedGateway,
    requester: &Requester,
    name: &CallName,
    kind: EntryType,
    (tool, arguments): (&str, &Value),
    call: impl Future<Output = Result<Value, ErrorBody>>,
) -> Result<Value, ErrorBody> {
    let sent = canonical_json(arguments.clone());
    let key = IdempotencyKey::new(name.text.as_bytes(), "tools/call", tool, sent.as_bytes());
    match gateway
        .registry
        .claim_request(&requester.caller, key)
        .await
        .map_err(|error| registry_error(&error))?
    {
        Claim::New => {}
        Claim::Done(answer) => return outcome(&answer),
        Claim::Other => {
            let message = "this run made another call under this `call_index`";
            return Err(ErrorBody::new(ErrorCode::IdempotencyKeyReused, message));
        }
        Claim::Running { seconds } if seconds < LONGEST_CALL.as_secs() => {
            let message = format!("this call of `{tool}` has not ended yet");
            return Err(ErrorBody::new(ErrorCode::RequestInProgress, message));
        }
        Claim::Running { .. } => {
            let message =
                format!("this call of `{tool}` was made before, and its outcome is not known");
            return Err(ErrorBody::new(ErrorCode::CallIndeterminate, message));
        }
        Claim::Denied { lacks } => {
            let what = lacks.map_or("a role", |right| right.as_str());
            let message = format!("this call was made with `{what}`, which you no longer have");
            return Err(ErrorBody::new(ErrorCode::Forbidden, message));
        }
    }
    // If this future is dropped, or an outcome is not known, the call stays claimed: it is not made again.
    let answer = call.await;
    let kept = match settled(kind, &answer) {
        Settled::Released => None,
        Settled::Stored(outcome) => Some(outcome),
        Settled::Claimed => return answer,
    };
    // The call was made, whether or not that can be recorded.
    if let Err(error) = gateway.registry.settle_request(&requester.tenant(), key, kept).await {
        tracing::error!(error = %error, "Could not store the outcome of a call");
    }
    answer
}

/// Returns whether a call with this error ended before anything was sent.
fn was_not_made(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::RateLimited
            | ErrorCode::ApiKeyRequired
            | ErrorCode::KeyNotForHost
            | ErrorCode::SecretUnreadable
            | ErrorCode::Forbidden
            | ErrorCode::InvalidArguments
    )
}

/// Returns whether this error is the tool's own answer.
fn was_answered(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ToolFailed | ErrorCode::ProgramFailed)
}

fn settled(kind: EntryType, answer: &Result<Value, ErrorBody>) -> Settled {
    let outcome: Outcome<&Value, &ErrorBody> = match answer {
        Ok(result) => Outcome::Result(result),
        Err(error) if was_answered(error.error_code) => Outcome::Error(error),
        // The error of a capability may be that of a later call in it.
        Err(error) if kind == EntryType::Http && was_not_made(error.error_code) => {
            return Settled::Released;
        }
        Err(_) => return Settled::Claimed,
    };
    match serde_json::to_string(&outcome) {
        Ok(body) if body.len() <= ANSWER_LIMIT => {
            Settled::Stored(StoredAnswer { status: STORED, body })
        }
        _ => Settled::Claimed,
    }
}

fn outcome(answer: &StoredAnswer) -> Result<Value, ErrorBody> {
    match serde_json::from_str(&answer.body) {
        Ok(Outcome::Result(result)) => Ok(result),
        Ok(Outcome::Error(error)) => Err(error),
        Err(error) => {
            tracing::error!(error = %error, "The stored outcome of a call cannot be read");
            Err(ErrorBody::new(
                ErrorCode::Internal,
                "the stored outcome of the call cannot be read",
            ))
        }
    }
}
