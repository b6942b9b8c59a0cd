//! Tools of users' own MCP servers, which `pml` sends where the user said so. They run on the user's machine only.

use std::collections::{BTreeMap, HashSet};

use execution::sanitize_tool;
use protocol::discovery::FoundTool;
use protocol::look_alike::RESERVED_NAMESPACES;
use protocol::{
    Routing, SYNCED_SERVER_BYTES, SYNCED_TOOL_BYTES, SYNCED_TOOLS, SyncedTool, ToolId, ToolSync,
    ToolUseType, escape_text,
};
use registry::{Absence, NewSyncedServer, Registry, RegistryError, Resolved, SyncedServer, Tenant};
use serde::Serialize;
use uuid::Uuid;

/// The longest namespace, in bytes.
const NAMESPACE_BYTES: usize = 64;
/// The longest part of a client's text in a message, in characters.
const SHOWN: usize = 64;

/// Reads what a client has sent. Nothing in it is trusted.
///
/// # Errors
/// Returns why it cannot be stored, escaped for display.
pub(crate) fn check(sent: ToolSync) -> Result<NewSyncedServer, String> {
    let client = read_client(&sent.client)
        .ok_or_else(|| "`client` is not a UUID in its usual form".to_owned())?;
    let ToolSync { namespace, tools, .. } = sent;
    // The grammar of a namespace is that of an id.
    let of_namespace = ToolId::new(&namespace, "x").ok();
    if !of_namespace.is_some_and(|id| id.is_plain() && id.namespace() == namespace) {
        return Err(format!("`namespace` is not one: `{}`", shown(&namespace)));
    }
    if namespace.len() > NAMESPACE_BYTES {
        return Err(format!("`namespace` has more than {NAMESPACE_BYTES} characters"));
    }
    if RESERVED_NAMESPACES.contains(&namespace.as_str()) {
        return Err(format!("the namespace `{namespace}` is reserved"));
    }
    if tools.len() > SYNCED_TOOLS {
        return Err(format!("there are {} tools; the limit is {SYNCED_TOOLS}", tools.len()));
    }
    let mut names = HashSet::new();
    for tool in &tools {
        let name = shown(&tool.name);
        let is_plain = ToolId::new(&namespace, &tool.name).is_ok_and(|id| id.is_plain());
        if !is_plain {
            return Err(format!("`{name}` cannot be the name of a tool in a program"));
        }
        if !names.insert(&tool.name) {
            return Err(format!("the tool `{name}` is there twice"));
        }
        let bytes = size(tool);
        if bytes > SYNCED_TOOL_BYTES {
            return Err(format!(
                "the tool `{name}` has {bytes} bytes; the limit is {SYNCED_TOOL_BYTES}"
            ));
        }
        let is_schema = |schema: &serde_json::Value| schema.is_object();
        if !is_schema(&tool.input_schema) || !tool.output_schema.as_ref().is_none_or(is_schema) {
            return Err(format!("a schema of the tool `{name}` is not an object"));
        }
    }
    // Once more, because a client may be older than the newest formats of secrets, or not `pml` at all.
    let tools: Vec<SyncedTool> = tools.iter().map(sanitize_tool).collect();
    let bytes = size(&tools);
    if bytes > SYNCED_SERVER_BYTES {
        return Err(format!("the tools have {bytes} bytes; the limit is {SYNCED_SERVER_BYTES}"));
    }
    Ok(NewSyncedServer { client, namespace, tools })
}

/// Parses the id of a workspace, in its usual form only, so that there is one spelling of each.
pub(crate) fn read_client(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|id| id.to_string() == text)
}

/// Returns whether a name can mean a tool of the caller's own machine: it does not resolve, and no entry of the registry
/// is in question.
pub(crate) fn may_be_synced(resolved: &Resolved, id: &ToolId) -> bool {
    let missing = resolved.missing.iter().find(|missing| missing.id == *id);
    missing.is_some_and(|missing| matches!(missing.why, Absence::Unknown | Absence::Elsewhere))
}

/// Returns which of the names that do not resolve are tools of the caller's own machine.
///
/// # Errors
/// Returns [`RegistryError::Unavailable`] when the database does not answer.
pub(crate) async fn among_missing(
    registry: &Registry,
    tenant: &Tenant,
    resolved: &Resolved,
) -> Result<Vec<ToolId>, RegistryError> {
    let missing = resolved.missing.iter().map(|missing| missing.id.clone());
    let missing: Vec<ToolId> = missing.filter(|id| may_be_synced(resolved, id)).collect();
    Ok(registry.synced_ids(tenant, &missing).await?.into_iter().collect())
}

/// Returns the tools as search results, one for each id: if several workspaces have it, that which was sent last.
pub(crate) fn found(servers: Vec<SyncedServer>) -> Vec<FoundTool> {
    let mut found = BTreeMap::new();
    // The newest first.
    for server in servers {
        for tool in server.tools {
            let Ok(id) = ToolId::new(&server.namespace, &tool.name) else { continue };
            found.entry(id.clone()).or_insert_with(|| FoundTool {
                id,
                fqdn: None,
                kind: ToolUseType::Tool,
                routing: Routing::Client,
                read_only: false,
                wraps_value: false,
                score: 1.0,
                version: None,
                hides: Vec::new(),
                own_machine: true,
                descriptor: tool.into(),
            });
        }
    }
    found.into_values().collect()
}

fn shown(text: &str) -> String {
    escape_text(text).chars().take(SHOWN).collect()
}

fn size(of: &impl Serialize) -> usize {
    serde_json::to_vec(of).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sync(namespace: &str, tools: Value) -> ToolSync {
        let client = "0195d2a0-0000-7000-8000-000000000000";
        serde_json::from_value(json!({ "client": client, "namespace": namespace, "tools": tools }))
            .unwrap()
    }

    fn tool(name: &str) -> Value {
        json!({ "name": name, "inputSchema": { "type": "object" } })
    }

    #[test]
    fn what_cannot_be_a_tool_is_refused() {
        assert_eq!(
            check(sync("mine", json!([tool("add"), tool("my-tool")]))).unwrap().tools.len(),
            2
        );
        assert_eq!(check(sync("mine", json!([]))).unwrap().tools.len(), 0);
        let many: Vec<_> = (0..=SYNCED_TOOLS).map(|n| tool(&format!("t{n}"))).collect();
        let mut large = tool("large");
        large["description"] = "x".repeat(SYNCED_TOOL_BYTES).into();
        let whole: Vec<_> = (0..200)
            .map(|n| {
                let mut tool = tool(&format!("t{n}"));
                tool["description"] = "x ".repeat(2_000).into();
                tool
            })
            .collect();
        let mut not_schema = tool("a");
        not_schema["inputSchema"] = json!([]);
        for (namespace, tools, why) in [
            ("", json!([]), "`namespace`"),
            ("a.b.mine", json!([]), "`namespace`"),
            ("a__b", json!([]), "`namespace`"),
            ("a:b", json!([]), "`namespace`"),
            ("pml", json!([]), "reserved"),
            ("mine", json!([tool("a"), tool("a")]), "twice"),
            ("mine", json!([tool("a@1.0.0")]), "cannot be the name"),
            ("mine", json!([tool("")]), "cannot be the name"),
            ("mine", json!([tool("\u{202e}")]), "\\u{202e}"),
            ("mine", json!(many), "the limit is 256"),
            ("mine", json!([large]), "the limit is 65536"),
            ("mine", json!(whole), "the limit is 524288"),
            ("mine", json!([not_schema]), "not an object"),
        ] {
            let refused = check(sync(namespace, tools)).unwrap_err();
            assert!(refused.contains(why), "{namespace}: {refused}");
        }
        let mut odd = sync("mine", json!([]));
        for client in
            ["", "x", "0195D2A0-0000-7000-8000-000000000000", "0195d2a0000070008000000000000000"]
        {
            odd.client = client.to_owned();
            check(odd.clone()).unwrap_err();
        }
    }
}
