//! The tools that a program names: known to the registry, to the caller's machine alone, or to nobody.

use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Routing, ToolId, ToolUse, ToolUseType};
use registry::{MissingTool, ResolvedTool};
use serde_json::json;

use crate::auth::ClientKind;
use crate::capabilities::{self, Reach};

/// Reads the ids that only the caller's machine knows; only the CLI may name such.
pub(super) fn local_tools(client: ClientKind, names: &[String]) -> Result<Vec<ToolId>, ErrorBody> {
    const LIMIT: usize = 2_000;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let refuse = |message: String| ErrorBody::new(ErrorCode::InvalidRequest, message);
    if client == ClientKind::Plain {
        return Err(refuse("`local_tools` is for callers that run programs themselves".into()));
    }
    if names.len() > LIMIT {
        return Err(refuse(format!("`local_tools` names more than {LIMIT} tools")));
    }
    names
        .iter()
        .map(|name| name.parse().map_err(|error| refuse(format!("`local_tools`: {error}"))))
        .collect()
}

pub(super) fn local_tool_use(id: &ToolId) -> ToolUse {
    ToolUse {
        id: id.to_string(),
        fqdn: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        integrity: None,
        tools: None,
    }
}

pub(super) fn tool_use(tool: &ResolvedTool, reach: &Reach) -> Result<ToolUse, ErrorBody> {
    let (kind, tools) = match &tool.capability {
        None => (ToolUseType::Tool, None),
        Some(_) => {
            let below = capabilities::below(&tool.id, reach)?;
            (ToolUseType::Capability, Some(below.iter().map(ToolId::to_string).collect()))
        }
    };
    Ok(ToolUse {
        id: tool.id.to_string(),
        fqdn: Some(tool.fqdn.to_string()),
        kind,
        routing: tool.routing,
        integrity: Some(tool.integrity),
        tools,
    })
}

/// Names every unknown tool with its nearest relatives, and what was found beside it.
pub(super) fn unknown_tools(unknown: &[&MissingTool], known: &[Arc<ResolvedTool>]) -> ErrorBody {
    let described: Vec<String> = unknown
        .iter()
        .map(|tool| match tool.suggestions.as_slice() {
            [] => format!("`{}`", tool.id),
            near => {
                let near: Vec<String> = near.iter().map(|id| format!("`{id}`")).collect();
                format!("`{}` (did you mean {}?)", tool.id, near.join(" or "))
            }
        })
        .collect();
    let message = match described.len() {
        1 => format!("tool {} is not registered", described[0]),
        _ => format!("tools {} are not registered", described.join(", ")),
    };
    let details = json!({
        "unknown_tools": unknown
            .iter()
            .map(|tool| json!({ "tool": tool.id, "suggestions": tool.suggestions }))
            .collect::<Vec<_>>(),
        "known_tools": known.iter().map(|tool| &tool.id).collect::<Vec<_>>(),
    });
    ErrorBody::new(ErrorCode::ToolNotFound, message).with_details(details)
}
