//! Registry entries, as served by `/mcp/<fqdn>`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Fqdn, Integrity, Routing};

/// The maximum nesting depth of capabilities.
pub const CAPABILITY_DEPTH: usize = 4;
/// The maximum number of tools and capabilities that a program may reach through capabilities.
pub const CAPABILITY_REACH: usize = 1_000;

/// The prefix of the entry in the first line of a capability's module.
const MODULE_HEAD: &str = "// __meta__:";

/// The metadata of a registry entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegistryEntry {
    /// The canonical name; a tool's includes its short hash.
    pub fqdn: String,
    /// The type of the entry.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// The publisher's description.
    pub description: String,
    /// For `stdio`: how to start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// For `http`: the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_to: Option<String>,
    /// The variables that its upstream needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_required: Vec<String>,
    /// Its tools; for a tool's own entry, only that tool.
    #[serde(default)]
    pub tools: Vec<ToolDescriptor>,
    /// Warnings for the user.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// For a server that a tenant published: its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// For a server that was published with a server.json of the official registry: that document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub server_json: Option<Value>,
    /// For a capability: its version, its program's hash and its calls.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = CapabilityProgram))]
    pub capability: Option<CapabilityProgram>,
    /// The deprecation message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// Where it runs.
    pub routing: Routing,
    /// The hash of the entry's content; also its `ETag`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub integrity: Integrity,
}

/// The program of a capability, as described by its entry. The text itself is served separately.
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
    /// The MCP servers whose tools it calls itself and that run as child processes, sorted by name, as of its
    /// publication. Servers of other capabilities are listed in those capabilities' entries. Empty for entries that
    /// were published before this field existed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub mcp_deps: Vec<McpDependency>,
}

/// A `stdio` server that a capability was published against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct McpDependency {
    /// The namespace of its tools.
    pub name: String,
    /// Its full name.
    pub fqdn: String,
    /// The type: `stdio`.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// The version of its package, if its entry pins one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The hash of its entry: the command that starts it, its tools and its descriptions.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub integrity: Integrity,
}

/// The kinds of registry entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// An MCP server started as a child process.
    Stdio,
    /// A Streamable HTTP MCP server.
    #[serde(alias = "cloud")]
    Http,
    /// A capability: a published program.
    Deno,
    /// Tools that the gateway itself implements.
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

/// The start command of a `stdio` server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// The program.
    pub command: String,
    /// Its arguments; `${workspace}` expands to the workspace's path.
    #[serde(default)]
    pub args: Vec<String>,
    /// The variables that it needs from the user's environment.
    #[serde(default, alias = "envRequired")]
    pub env_required: Vec<String>,
    /// Variables with fixed values; `${workspace}` expands to the workspace's path, `${home}` to that of the server's own
    /// folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The hosts that it connects to, such as `api.example.com` or `*.example.com`. It is started without access to any
    /// other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
}

impl Install {
    /// Returns the version of the package that the command starts, if its arguments pin one: `name@1.2.3` for
    /// npm, `name==1.2.3` for Python.
    pub fn version(&self) -> Option<&str> {
        // The arguments after the package are the server's own.
        let package = self.args.iter().find(|arg| !arg.starts_with('-'))?;
        let version = package
            .split_once("==")
            .map(|(_, version)| version)
            // The last `@`, because the name of a scoped npm package begins with one.
            .or_else(|| package.rsplit_once('@').map(|(_, version)| version))?;
        // A tag such as `@latest` pins nothing, and neither does the rest of a bare `@scope/name`.
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
    }
}

/// MCP's description of a tool.
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
    /// The upstream's own hints. They are untrusted: no decision depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// Fields of a served entry that are not part of its content: the hash itself, the operator's routing, and later
/// changes such as deprecation.
const NOT_CONTENT: [&str; 3] = ["integrity", "routing", "deprecated"];

impl RegistryEntry {
    /// Returns the entry's content: the entry as it is served, without
    /// `integrity`, `routing` and `deprecated`, and with its name unpinned.
    pub fn content(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            unreachable!("an entry has text keys only and is an object")
        };
        for field in NOT_CONTENT {
            // The registry stores this content as text, so its fields keep their order. `remove`
            // would move the last one into the gap.
            fields.shift_remove(field);
        }
        // A pin is the beginning of the hash of this content, so it cannot be part of it.
        if let Some(Value::String(name)) = fields.get_mut("fqdn")
            && let Ok(fqdn) = name.parse::<Fqdn>()
        {
            *name = fqdn.unpinned().to_string();
        }
        fields
    }

    /// Returns a capability's program in its served form: with its entry in the first line.
    pub fn module(&self, code: &str) -> String {
        let entry = serde_json::to_string(self)
            .unwrap_or_else(|_| unreachable!("an entry has text keys only"));
        // JSON does not escape these two line terminators, which would end the comment.
        let entry = entry.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
        format!("{MODULE_HEAD}{entry}\n{code}")
    }

    /// Parses the output of [`RegistryEntry::module`]: the entry and the program. Neither is verified.
    pub fn from_module(text: &str) -> Option<(Self, &str)> {
        // Compact JSON contains no line end, so the first one ends the entry.
        let (entry, code) = text.strip_prefix(MODULE_HEAD)?.split_once('\n')?;
        Some((serde_json::from_str(entry).ok()?, code))
    }

    /// Hashes the entry's content, as the registry does.
    ///
    /// A reader that recomputes it from the received body can detect changes in transit.
    pub fn content_integrity(&self) -> Integrity {
        Integrity::of_json(&Value::Object(self.content()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_version_that_a_command_pins() {
        let version = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            let install = Install { command: "npx".into(), args, ..Install::default() };
            install.version().map(str::to_owned)
        };
        let pinned = ["-y", "@modelcontextprotocol/server-memory@2026.8.31", "x@9.9.9"];
        assert_eq!(version(&pinned).unwrap(), "2026.8.31");
        assert_eq!(version(&["mcp-server-git==2026.10.19"]).unwrap(), "2026.10.19");
        assert_eq!(version(&["-y", "server@1.0.0-rc.1+b"]).unwrap(), "1.0.0-rc.1+b");
        for loose in [&["@scope/server"] as &[&str], &["server@latest"], &["server"], &["-y"], &[]]
        {
            assert_eq!(version(loose), None, "{loose:?}");
        }
    }

    /// Entries that were published before `mcp_deps` existed can be read, and keep their hash.
    #[test]
    fn an_entry_without_dependencies_keeps_its_hash() {
        let old = serde_json::json!({
            "fqdn": "acme.web.a.b", "type": "deno", "description": "d", "tools": [], "warnings": [],
            "version": "0.1.0", "code_hash": Integrity::of(b"x"), "calls": ["git:git_log"],
        });
        let hash = Integrity::of_json(&old);
        let mut served = old;
        served["routing"] = "client".into();
        served["integrity"] = hash.to_string().into();
        let entry: RegistryEntry = serde_json::from_value(served).unwrap();
        assert!(entry.capability.as_ref().unwrap().mcp_deps.is_empty());
        assert_eq!(entry.content_integrity(), hash);
    }

    #[test]
    fn the_hash_covers_name_and_command_but_not_routing() {
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

    #[test]
    fn a_module_round_trips() {
        let entry: RegistryEntry = serde_json::from_value(serde_json::json!({
            "fqdn": "a.b.c.d", "type": "deno", "description": "ends \u{2028} here",
            "routing": "client", "integrity": Integrity::of(b"any"),
        }))
        .unwrap();
        let text = entry.module("return 1\nreturn 2");
        assert!(!text.contains('\u{2028}'));
        assert_eq!(RegistryEntry::from_module(&text), Some((entry, "return 1\nreturn 2")));
        for text in ["", "return 1", "// __meta__:{}\n", "// __meta__:{\nreturn 1"] {
            assert_eq!(RegistryEntry::from_module(text), None, "{text}");
        }
    }
}
