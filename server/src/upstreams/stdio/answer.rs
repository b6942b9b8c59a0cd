//! What a caller gets: the result of a call, or why there is none.

use execution::Budget as _;
use execution::mcp_client::{Slot as MemorySlot, TOO_LARGE};
use execution::mcp_process::{InUse, NoAnswer, NotStarted, StartFailure};
use execution::spans;
use protocol::{ErrorBody, ErrorCode, Scope};
use registry::ResolvedTool;
use rmcp::model::ServerResult;
use rmcp::service::ServiceError;
use serde_json::Value;

use super::super::ANSWER_LIMIT;
use super::super::breaker::Attempt;
use super::places::Full;
use crate::admission::memory::{Memory, Reserved};
use crate::metrics::UpstreamEnd;

/// The largest message of an error that a caller gets, in bytes.
const MESSAGE_LIMIT: usize = 64 * 1024;

/// Converts an answer to a result, and reserves the tenant's memory for it.
pub(super) async fn result(
    budget: &Memory,
    scope: &Scope,
    tool: &ResolvedTool,
    answer: Result<ServerResult, NoAnswer>,
    running: &InUse,
    memory: &MemorySlot<Reserved>,
) -> Result<Value, ErrorBody> {
    let failed =
        |what: &str| ErrorBody::new(ErrorCode::ToolFailed, format!("`{}`: {what}", tool.id));
    let too_large = || {
        let what = format!("`{}`: its result is too large", tool.id);
        ErrorBody::new(ErrorCode::ToolResultTooLarge, what)
    };
    let result = match answer {
        Ok(ServerResult::CallToolResult(result)) => result,
        Ok(ServerResult::InputRequiredResult(_)) => {
            return Err(failed("the tool asks the user for input, which a program cannot give"));
        }
        Ok(ServerResult::CreateTaskResult(_)) => {
            return Err(failed("the tool answered with a task, which was not requested"));
        }
        Ok(_) | Err(NoAnswer::Failed(ServiceError::UnexpectedResponse)) => {
            return Err(failed("its server's answer is not a tool result"));
        }
        Err(NoAnswer::Cancelled) => {
            let what = format!("the call of `{}` was cancelled", tool.id);
            return Err(ErrorBody::new(ErrorCode::Cancelled, what));
        }
        Err(NoAnswer::Failed(ServiceError::McpError(error))) if error.code.0 == TOO_LARGE => {
            return Err(too_large());
        }
        Err(NoAnswer::Failed(ServiceError::McpError(error))) => {
            if error.message.len() > MESSAGE_LIMIT {
                return Err(too_large());
            }
            return Err(failed(&error.message));
        }
        Err(NoAnswer::Failed(_)) => {
            let reason = running.0.exit_reason().await;
            tracing::warn!(tool.name = %tool.id, reason, "A stdio server ended during a call");
            let what = format!(
                "its server ended during the call, which may have had effects and is not repeated: it {reason}"
            );
            return Err(unavailable(tool, what));
        }
    };
    let text = serde_json::to_vec(&result).map_err(|error| failed(&error.to_string()))?;
    if text.len() > ANSWER_LIMIT {
        return Err(too_large());
    }
    let reserved = budget.of(scope).parsed(&text).await.map_err(|_| too_large())?;
    memory.keep(reserved);
    serde_json::from_slice(&text).map_err(|error| failed(&error.to_string()))
}

/// Returns that too many servers run, which is no failure of the server.
pub(super) fn no_place(full: Full) -> StartFailure {
    let whose = match full {
        Full::Tenant => "of this project",
        Full::All => "on this gateway",
    };
    let message = format!("too many `stdio` servers {whose} are in use; retry");
    let refused = Some(Box::new(ErrorBody::new(ErrorCode::Busy, message)));
    StartFailure { reason: String::new(), stderr: String::new(), refused }
}

/// Returns the error for the caller. The reasons of a start have paths of this machine, and are in the log only.
pub(super) fn not_started(why: &NotStarted, tool: &ResolvedTool) -> ErrorBody {
    let what = match why {
        NotStarted::Failed(StartFailure { refused: Some(error), .. }) => {
            let message = format!("tool `{}`: {}", tool.id, error.message);
            return ErrorBody::new(error.error_code, message);
        }
        NotStarted::Failed(_) => {
            "its server could not be started; the log of the gateway has the reason".to_owned()
        }
        NotStarted::BackingOff { failures, wait_s, .. } => format!(
            "its server failed {failures} times in a row; the next start is possible in {wait_s} s"
        ),
        NotStarted::Closing => "the gateway is stopping".to_owned(),
    };
    unavailable(tool, what)
}

pub(super) fn unavailable(tool: &ResolvedTool, what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::ToolUnavailable, format!("tool `{}`: {what}", tool.id))
}

/// Returns the kind of the error of a call, for its span, and how the call ended.
pub(super) fn ending(
    answer: &Result<ServerResult, NoAnswer>,
) -> (Option<&'static str>, UpstreamEnd) {
    match answer {
        Ok(ServerResult::CallToolResult(result)) if result.is_error == Some(true) => {
            (Some(spans::TOOL_ERROR), UpstreamEnd::Error)
        }
        Ok(ServerResult::CallToolResult(_)) => (None, UpstreamEnd::Success),
        Ok(_) | Err(NoAnswer::Failed(ServiceError::UnexpectedResponse)) => {
            (Some("failed"), UpstreamEnd::Error)
        }
        Err(NoAnswer::Failed(ServiceError::McpError(_))) => (Some("rpc_error"), UpstreamEnd::Error),
        Err(NoAnswer::Cancelled) => (Some("cancelled"), UpstreamEnd::Cancelled),
        Err(NoAnswer::Failed(_)) => (Some("connection_error"), UpstreamEnd::Unavailable),
    }
}

pub(super) fn settle(attempt: Attempt, end: UpstreamEnd) {
    match end {
        UpstreamEnd::Unavailable => attempt.failed(),
        // A caller who gives up soon says nothing about the server.
        UpstreamEnd::Cancelled => drop(attempt),
        _ => attempt.answered(),
    }
}
