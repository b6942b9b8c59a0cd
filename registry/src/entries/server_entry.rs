//! The description of an MCP server, and the stored form of it and its tools.

use std::collections::HashSet;

use protocol::{
    EntryType, Fqdn, Install, Integrity, RegistryEntry, ResultMode, Routing, Scope, ToolDescriptor,
    ToolId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RegistryError;
use crate::entries::content;
use crate::entries::version::Version;

/// An MCP server of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogServer {
    /// The name before the colon in its tools' ids.
    pub namespace: String,
    /// Its transport.
    pub kind: EntryType,
    /// The description.
    pub description: String,
    /// For `stdio`: how to start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// For `http`: the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_to: Option<String>,
    /// Variables that the upstream needs; those of a `stdio` server are in `install`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_required: Vec<String>,
    /// Where its tools run; `None` means that the rules decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Warnings for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How a text result is interpreted.
    #[serde(default)]
    pub result: ResultMode,
    /// The server.json of the official registry that describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_json: Option<Value>,
    /// Its tools.
    pub tools: Vec<CatalogTool>,
}

/// A tool of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogTool {
    /// MCP's description of the tool.
    #[serde(flatten)]
    pub descriptor: ToolDescriptor,
    /// Whether it changes nothing, so that a call may start before the program reaches it.
    #[serde(default)]
    pub read_only: bool,
    /// Whether equal arguments give equal results.
    #[serde(default)]
    pub deterministic: bool,
}

/// A server as it is stored, with its tools.
pub(crate) struct ServerRow {
    pub(crate) namespace: String,
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
    pub(crate) routing: Option<Routing>,
    pub(crate) result: ResultMode,
    pub(crate) tools: Vec<ToolRow>,
}

/// A tool as it is stored.
pub(crate) struct ToolRow {
    pub(crate) name: String,
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
    pub(crate) read_only: bool,
    pub(crate) deterministic: bool,
}

/// Builds the stored form of a server of a scope. Its tools are identical in every version that does not change them,
/// so only the server itself contains the version.
pub(crate) fn row(
    scope: &Scope,
    server: &CatalogServer,
    version: Option<&Version>,
) -> Result<ServerRow, RegistryError> {
    let fqdn = Fqdn::server(scope.clone(), &server.namespace)?;
    let lacking = match server.kind {
        EntryType::Stdio if server.install.is_none() => Some("`install`"),
        EntryType::Http if server.proxy_to.is_none() => Some("`proxy_to`"),
        EntryType::Deno => Some("another kind: a capability is published, not seeded"),
        _ => None,
    };
    if let Some(lacking) = lacking {
        let message = format!("server `{}` needs {lacking}", server.namespace);
        return Err(RegistryError::Invalid(message));
    }
    let entry = |fqdn: Fqdn, description: &str, tools: Vec<ToolDescriptor>| RegistryEntry {
        fqdn: fqdn.to_string(),
        kind: server.kind,
        description: description.to_owned(),
        install: server.install.clone(),
        proxy_to: server.proxy_to.clone(),
        env_required: server.env_required.clone(),
        tools,
        warnings: server.warnings.clone(),
        server_version: None,
        server_json: None,
        capability: None,
        deprecated: None,
        // Neither field is part of the content: `to_stored` omits both.
        routing: Routing::Client,
        integrity: Integrity::of(b""),
    };
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(server.tools.len());
    for tool in &server.tools {
        let id = ToolId::new(&server.namespace, &tool.descriptor.name)?;
        if !names.insert(tool.descriptor.name.as_str()) {
            return Err(RegistryError::Conflict(format!(
                "server `{}` has tool `{id}` twice",
                server.namespace
            )));
        }
        let name = Fqdn::of_tool(scope.clone(), &id);
        // The entry of a tool includes how its server is started or reached, so that its hash pins
        // both.
        let entry = entry(name, &tool.descriptor.description, vec![tool.descriptor.clone()]);
        let (content, integrity) = content::to_stored(&entry)?;
        tools.push(ToolRow {
            name: tool.descriptor.name.clone(),
            content,
            integrity,
            read_only: tool.read_only,
            deterministic: tool.deterministic,
        });
    }
    let descriptors = server.tools.iter().map(|tool| tool.descriptor.clone()).collect();
    let mut whole = entry(fqdn, &server.description, descriptors);
    whole.server_version = version.map(ToString::to_string);
    whole.server_json = server.server_json.clone();
    let (content, integrity) = content::to_stored(&whole)?;
    Ok(ServerRow {
        namespace: server.namespace.clone(),
        content,
        integrity,
        routing: server.routing,
        result: server.result,
        tools,
    })
}

/// Converts a stored entry to the description of its server.
pub(crate) fn server_of(namespace: &str, entry: RegistryEntry) -> CatalogServer {
    let routing = match entry.kind {
        EntryType::Http => Routing::Server,
        _ => Routing::Client,
    };
    CatalogServer {
        namespace: namespace.to_owned(),
        kind: entry.kind,
        description: entry.description,
        install: entry.install,
        proxy_to: entry.proxy_to,
        env_required: entry.env_required,
        routing: Some(routing),
        warnings: entry.warnings,
        result: ResultMode::default(),
        server_json: entry.server_json,
        tools: entry
            .tools
            .into_iter()
            // The content has no marks of the operator, and a tenant's server must not have any.
            .map(|descriptor| CatalogTool { descriptor, read_only: false, deterministic: false })
            .collect(),
    }
}
