//! Bodies that are not JSON-RPC messages, refused as JSON-RPC defines.

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// The code of a body that is not JSON.
const PARSE_ERROR: i32 = -32700;
/// The code of JSON that is not a message.
const INVALID_REQUEST: i32 = -32600;

/// Returns whether the body is compressed.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Returns the JSON-RPC error for a body that rmcp could not parse, if that is why rmcp refused the request.
///
/// rmcp answers 415 both for an unsupported media type and for a body that it cannot parse.
pub(super) fn of_body(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Option<Response> {
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        // The first 16 bytes: parameters such as `charset` may follow.
        kind.as_bytes().get(..16).is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/json"))
    });
    (status == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json && !is_encoded(headers))
        .then(|| refusal(body))
}

fn refusal(body: &Bytes) -> Response {
    let (id, code, message) = match serde_json::from_slice::<Value>(body) {
        // JSON-RPC 2.0, section 5: the id is null if that of the request cannot be determined.
        Err(error) => (Value::Null, PARSE_ERROR, format!("the body is not JSON: {error}")),
        Ok(Value::Array(_)) => {
            let message = "batches are not part of MCP; send one message at a time";
            (Value::Null, INVALID_REQUEST, message.to_owned())
        }
        Ok(mut message) => {
            // An invalid id is not echoed.
            let id = message.get_mut("id").map(Value::take).unwrap_or_default();
            let id = if id.is_string() || id.is_i64() { id } else { Value::Null };
            (id, INVALID_REQUEST, "the body is not a JSON-RPC message of MCP".to_owned())
        }
    };
    let body = json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": { "code": code, "message": message },
    });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
