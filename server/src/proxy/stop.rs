//! The answer to a message that was not forwarded.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use execution::mcp_server::envelope_result;
use protocol::{Envelope, ErrorBody};
use serde_json::{Value, json};

use super::message::Message;
use crate::error::ApiError;

/// Why a message was not forwarded, or did not arrive.
pub(super) enum Stop {
    /// It is not a message, or its headers contradict it: a JSON-RPC error.
    Protocol(StatusCode, Value, i32, String),
    /// It is not permitted, or not possible: a refusal, or a result for the agent that called a tool.
    Refused(StatusCode, ErrorBody),
    /// It never became a message.
    Api(ApiError),
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl Stop {
    /// Reports why a message was not forwarded: to the agent, if it called a tool, otherwise by the status.
    pub(super) fn told(self, message: Option<&Message>, stateless: bool) -> Response {
        let (status, error) = match self {
            Self::Protocol(status, id, code, what) => {
                return json_rpc_error(status, id, code, &what);
            }
            Self::Api(error) => return error.into_response(),
            Self::Refused(status, error) => (status, error),
        };
        let call = message.filter(|message| message.method == "tools/call");
        let Some(id) = call.and_then(Message::id) else {
            let told = ApiError::new(error.error_code, error.message).with_status(status);
            return told.with_member("details", error.details).into_response();
        };
        let mut result = serde_json::to_value(envelope_result(&Envelope::error(error)))
            .unwrap_or_else(|_| json!({ "isError": true, "content": [] }));
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
