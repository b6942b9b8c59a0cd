//! Conversion of MCP results.

use execution::mcp_server::envelope_result;
use protocol::{Envelope, ErrorBody, ErrorCode};
use rmcp::model::CallToolResult;
use serde_json::Value;

/// Converts a raw MCP result from an upstream or a native tool to rmcp's type.
pub(crate) fn raw_result(raw: Value) -> CallToolResult {
    serde_json::from_value(raw).unwrap_or_else(|error| {
        envelope_result(&Envelope::error(ErrorBody::new(
            ErrorCode::ToolFailed,
            format!("the upstream's answer is not an MCP result: {error}"),
        )))
    })
}
