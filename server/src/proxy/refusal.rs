//! The answers to messages that are not forwarded.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use execution::mcp_server::envelope_result;
use protocol::{Envelope, ErrorBody};
use serde_json::{Value, json};

use super::message::Message;
use crate::error::ApiError;

/// Why a message was not forwarded, or its answer not returned.
pub(super) enum Refusal {
    /// The body is not a message, or the headers contradict it. Answered with a JSON-RPC error.
    Protocol(StatusCode, Value, i32, String),
    /// The message is not permitted, or the server failed. Answered with a problem document, or for a tool call with a
    /// result that the agent reads.
    Refused(StatusCode, ErrorBody),
    /// The request failed independently of its message. Answered with a problem document.
    Api(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl Refusal {
    /// Creates the answer: a tool result for the agent if the message is a tool call, otherwise an error with a status.
    pub(super) fn answer_to(self, message: Option<&Message>, stateless: bool) -> Response {
        let (status, error) = match self {
            Self::Protocol(status, id, code, what) => {
                return json_rpc_error(status, id, code, &what);
            }
            Self::Api(error) => return error.into_response(),
            Self::Refused(status, error) => (status, error),
        };
        // Agents see the results of their tool calls, but usually not HTTP errors.
        let call = message.filter(|message| message.method == "tools/call");
        let Some(id) = call.and_then(Message::id) else {
            let problem = ApiError::new(error.error_code, error.message).with_status(status);
            return problem.with_member("details", error.details).into_response();
        };
        let mut result = serde_json::to_value(envelope_result(&Envelope::error(error)))
            .unwrap_or_else(|_| json!({ "isError": true, "content": [] }));
        // Stateless versions require the member; clients of earlier versions do not know it.
        if stateless {
            result["resultType"] = json!("complete");
        }
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
        let headers =
            [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        (StatusCode::OK, headers, body).into_response()
    }
}

fn json_rpc_error(status: StatusCode, id: Value, code: i32, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
