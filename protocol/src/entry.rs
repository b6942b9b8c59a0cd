//! Registry entries as `/mcp/<fqdn>` serves them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Fqdn, Integrity, Routing};

/// The metadata of a registry entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegistryEntry {
    /// The canonical name; a tool's carries its short hash.
    pub fqdn: String,
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// What it does, in the publisher's words.
    pub description: String,
    /// For `stdio`: how to start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// For `http`: the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_to: Option<String>,
    /// Variables that its upstream needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_required: Vec<String>,
    /// The tools it offers; for a tool's own entry, just that one.
    #[serde(default)]
    pub tools: Vec<ToolDescriptor>,
    /// What a user should know before using it.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// For a capability: its version, its program's hash and what that calls.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = CapabilityProgram))]
    pub capability: Option<CapabilityProgram>,
    /// Why it should not be used any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// Where it runs.
    pub routing: Routing,
    /// The hash of the entry's content; also its `ETag`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub integrity: Integrity,
}

/// The program of a capability, as its entry tells it. The text itself is served apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapabilityProgram {
    /// Major, minor and patch.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub version: String,
    /// The hash of the program's text.
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub code_hash: Integrity,
    /// The ids of the tools and capabilities that it calls, sorted.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub calls: Vec<String>,
}

/// The kinds of registry entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// An MCP server started as a child process.
    Stdio,
    /// An MCP server behind Streamable HTTP.
    #[serde(alias = "cloud")]
    Http,
    /// A capability: a published program.
    Deno,
    /// A tool that the gateway itself implements.
    Native,
}

impl EntryType {
    /// Returns the word used on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Deno => "deno",
            Self::Native => "native",
        }
    }
}

/// How a `stdio` server is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// The program.
    pub command: String,
    /// Its arguments; `${workspace}` stands for the workspace's path.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that it needs from the user's environment.
    #[serde(default, alias = "envRequired")]
    pub env_required: Vec<String>,
}

/// A tool as MCP describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolDescriptor {
    /// The tool's own name, without a namespace.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its `structuredContent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The upstream's own hints; never trusted for decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// Fields of a served entry that are not its content: the hash itself, the
/// operator's decision where it runs, and what was said of it later.
const NOT_CONTENT: [&str; 3] = ["integrity", "routing", "deprecated"];

impl RegistryEntry {
    /// Returns the entry's content: the entry as it is served, without
    /// `integrity`, `routing` and `deprecated`, and with its name unpinned.
    pub fn content(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            unreachable!("an entry has text keys only and is an object")
        };
        for field in NOT_CONTENT {
            fields.shift_remove(field);
        }
        if let Some(Value::String(name)) = fields.get_mut("fqdn")
            && let Ok(fqdn) = name.parse::<Fqdn>()
        {
            *name = fqdn.unpinned().to_string();
        }
        fields
    }

    /// Hashes the entry's content, as the registry does.
    ///
    /// Who recomputes it from the body it received knows that nobody changed
    /// the entry on the way.
    pub fn content_integrity(&self) -> Integrity {
        Integrity::of_json(&Value::Object(self.content()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_what_a_user_relies_on() {
        let entry = |command: &str, fqdn: &str, routing: &str| -> Integrity {
            let body = serde_json::json!({
                "fqdn": fqdn, "type": "stdio", "description": "d", "routing": routing,
                "install": { "command": command }, "integrity": Integrity::of(b"any"),
            });
            serde_json::from_value::<RegistryEntry>(body).unwrap().content_integrity()
        };
        let base = entry("npx", "pml.mcp.git.log", "client");
        assert_eq!(base, entry("npx", "pml.mcp.git.log.0a1b", "server"));
        assert_ne!(base, entry("npm", "pml.mcp.git.log", "client"));
        assert_ne!(base, entry("npx", "pml.mcp.git.show", "client"));
    }
}
