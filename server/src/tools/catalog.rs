//! The contents of the catalog: the shipped MCP servers and the gateway's own tools.

use std::collections::BTreeMap;

use protocol::{EntryType, ResultMode, Routing, ToolDescriptor};
use registry::{CatalogServer, CatalogTool};

use crate::tools::{self, NativeTool};

/// Returns everything that `seed` writes.
pub(crate) fn all() -> Vec<CatalogServer> {
    let mut servers = registry::shipped_catalog();
    servers.extend(native());
    servers.push(own());
    servers
}

/// Describes the native tools, one server per namespace.
fn native() -> Vec<CatalogServer> {
    let mut namespaces: BTreeMap<&str, Vec<CatalogTool>> = BTreeMap::new();
    for tool in tools::all() {
        namespaces.entry(tool.namespace).or_default().push(describe(tool));
    }
    namespaces
        .into_iter()
        .map(|(namespace, tools)| CatalogServer {
            namespace: namespace.to_owned(),
            kind: EntryType::Native,
            description: summary(namespace, &tools),
            install: None,
            proxy_to: None,
            env_required: Vec::new(),
            // Overrides the operator's rules, because only the gateway has these tools.
            routing: Some(Routing::Server),
            warnings: Vec::new(),
            server_json: None,
            result: ResultMode::Value,
            tools,
        })
        .collect()
}

/// Describes the tools with which programs use PML itself.
fn own() -> CatalogServer {
    let descriptor = protocol::discovery::search_tools();
    let tool = CatalogTool { descriptor, read_only: true, deterministic: false };
    CatalogServer {
        namespace: "pml".to_owned(),
        kind: EntryType::Native,
        description: "PML itself, for programs.".to_owned(),
        install: None,
        proxy_to: None,
        env_required: Vec::new(),
        routing: Some(Routing::Server),
        warnings: Vec::new(),
        // Unlike native tools, `search_tools` does not wrap its answer as `{value: …}`.
        result: ResultMode::Text,
        server_json: None,
        tools: vec![tool],
    }
}

fn describe(tool: &NativeTool) -> CatalogTool {
    CatalogTool {
        descriptor: ToolDescriptor {
            name: tool.action.to_owned(),
            description: tool.description.to_owned(),
            input_schema: tool.input_schema.clone(),
            output_schema: Some(tool.output_schema.clone()),
            annotations: None,
        },
        read_only: tool.read_only,
        deterministic: tool.deterministic,
    }
}

fn summary(namespace: &str, tools: &[CatalogTool]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| tool.descriptor.name.as_str()).collect();
    format!("The gateway's own `{namespace}` tools: {}.", names.join(", "))
}
