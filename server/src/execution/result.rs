//! MCP results.

use protocol::{Envelope, ErrorBody, ErrorCode, meta_tools};
use rmcp::model::{CallToolResult, MetaObject};
use serde::Serialize;
use serde_json::{Value, json};

/// Wraps an envelope in an MCP result: as structured content, and as JSON text.
pub(crate) fn envelope_result(envelope: &Envelope) -> CallToolResult {
    let mut result = structured_result(envelope, envelope.is_error());
    result.meta = meta_tools::run_meta(envelope).map(MetaObject);
    result
}

/// Wraps a value in an MCP result, likewise.
pub(crate) fn structured_result(body: &impl Serialize, is_error: bool) -> CallToolResult {
    let structured = serde_json::to_value(body)
        .unwrap_or_else(|error| json!({ "status": "error", "message": error.to_string() }));
    if is_error {
        CallToolResult::structured_error(structured)
    } else {
        CallToolResult::structured(structured)
    }
}

/// Turns a raw MCP result from an upstream or a native tool into rmcp's type.
pub(crate) fn raw_result(raw: Value) -> CallToolResult {
    serde_json::from_value(raw).unwrap_or_else(|error| {
        envelope_result(&Envelope::error(ErrorBody::new(
            ErrorCode::ToolFailed,
            format!("the upstream's answer is not an MCP result: {error}"),
        )))
    })
}
