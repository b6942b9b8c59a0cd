//! The tools that a program names: registered ones, those of the caller's machine only, and unknown ones.

use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Fqdn, Routing, Scope, ToolId, ToolUse, ToolUseType};
use registry::{MissingTool, ResolvedTool};
use serde_json::json;

use crate::execution::capabilities::{self, Named, Reach};
use crate::execution::refusal::why_missing;
use crate::identity::requester::ClientKind;

/// Parses the ids of tools that only the caller's machine has; only the CLI may send them.
pub(super) fn local_tools(client: ClientKind, names: &[String]) -> Result<Vec<ToolId>, ErrorBody> {
    const LIMIT: usize = 2_000;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let refuse = |message: String| ErrorBody::new(ErrorCode::InvalidRequest, message);
    // A client that does not run programs has no such tools.
    if client == ClientKind::Plain {
        return Err(refuse(
            "`local_tools` is only for callers that run programs themselves".into(),
        ));
    }
    if names.len() > LIMIT {
        return Err(refuse(format!("`local_tools` names more than {LIMIT} tools")));
    }
    names
        .iter()
        .map(|name| {
            let id: ToolId =
                name.parse().map_err(|error| refuse(format!("`local_tools`: {error}")))?;
            // Only entries of the registry have a scope and a version.
            if id.is_plain() {
                Ok(id)
            } else {
                Err(refuse(format!("`local_tools`: `{id}` names an entry of the registry")))
            }
        })
        .collect()
}

pub(super) fn local_tool_use(id: &ToolId) -> ToolUse {
    ToolUse {
        id: id.to_string(),
        fqdn: None,
        version: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        integrity: None,
        tools: None,
        lacks_key: None,
    }
}

pub(super) fn tool_use(
    tool: &ResolvedTool,
    base: &Scope,
    reach: &Reach,
) -> Result<ToolUse, ErrorBody> {
    let (kind, tools) = match &tool.capability {
        None => (ToolUseType::Tool, None),
        Some(_) => {
            let named = Named { base: base.clone(), id: tool.id.clone() };
            let below = capabilities::listed(&named, reach)?;
            (ToolUseType::Capability, Some(below.iter().map(ToolId::to_string).collect()))
        }
    };
    Ok(ToolUse {
        id: tool.id.to_string(),
        fqdn: Some(tool.fqdn.to_string()),
        version: tool.version.clone(),
        kind,
        routing: tool.routing,
        integrity: Some(tool.integrity),
        tools,
        lacks_key: None,
    })
}

/// Returns a warning for every tool that hides others of the same short name, or that stands in for yanked ones.
pub(super) fn shadowing<'a>(tools: impl IntoIterator<Item = &'a Arc<ResolvedTool>>) -> Vec<String> {
    let named =
        |names: &[Fqdn]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut warnings = Vec::new();
    for tool in tools {
        let (id, name) = (&tool.id, tool.fqdn.unpinned());
        if !tool.hides.is_empty() {
            warnings.push(format!("`{id}` is {name}; it hides {}", named(&tool.hides)));
        }
        if !tool.yanked.is_empty() {
            let yanked = named(&tool.yanked);
            warnings.push(format!("`{id}` is {name}, because all versions of {yanked} are yanked"));
        }
    }
    warnings
}

/// Returns the error for unknown tools, with suggestions for each, and with the tools that were found.
pub(super) fn unknown_tools(unknown: &[&MissingTool], known: &[Arc<ResolvedTool>]) -> ErrorBody {
    let message = match unknown {
        [one] => format!("tool {}", why_missing(one)),
        _ => {
            let all: Vec<String> = unknown.iter().map(|missing| why_missing(missing)).collect();
            format!("tools that cannot be called: {}", all.join("; "))
        }
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
