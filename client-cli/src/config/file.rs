//! The grammar of `.pml.json`.

use protocol::ToolId;
use protocol::look_alike::RESERVED_NAMESPACES;
use serde::Deserialize;

use super::entry::{McpServer, check_transport};
use super::settings::{ExposeTools, Server, Version};
use super::{ConfigError, FILE, unusable};
use crate::consent::permissions::PermissionRules;
use crate::files::strict_json::{Strict, UniqueMap};
use crate::policy::PolicyFile;
use crate::tools;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    /// For editors; not used.
    #[serde(default, rename = "$schema")]
    _schema: Option<String>,
    /// Only checked: there is one version.
    #[serde(default, rename = "version")]
    _version: Option<Version>,
    #[serde(default)]
    pub(super) workspace: Option<String>,
    #[serde(default)]
    pub(super) roots: Vec<String>,
    #[serde(default)]
    pub(super) cloud: Option<Strict<Cloud>>,
    #[serde(default)]
    pub(super) server: Option<Strict<Server>>,
    #[serde(default)]
    pub(super) permissions: Strict<PermissionRules>,
    #[serde(default)]
    pub(super) approvals: Option<ApprovalsBy>,
    #[serde(default)]
    pub(super) policy: Option<PolicyFile>,
    #[serde(default)]
    pub(super) private_mcps: UniqueMap<Strict<McpServer>>,
    #[serde(default)]
    pub(super) registries: Vec<String>,
    #[serde(default, rename = "mcpServers")]
    pub(super) mcp_servers: UniqueMap<Strict<McpServer>>,
    #[serde(default)]
    pub(super) expose_tools: ExposeTools,
}

/// Who can approve calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ApprovalsBy {
    /// Only a person, in a form of the client or on a terminal.
    Human,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cloud {
    pub(super) url: String,
}

/// Parses and validates the file.
pub(super) fn parse(content: &[u8]) -> Result<ConfigFile, ConfigError> {
    if content.starts_with(b"\xef\xbb\xbf") {
        // The parser would only name line 1, column 1, where an editor shows nothing wrong.
        let reason = "it begins with a byte order mark; save it as UTF-8 without one".to_owned();
        return Err(ConfigError::Invalid { file: FILE.to_owned(), line: 1, column: 1, reason });
    }
    let Strict(file): Strict<ConfigFile> =
        serde_json::from_slice(content).map_err(|error| invalid(&error))?;
    for (name, entry) in file.mcp_servers.0.iter().chain(&file.private_mcps.0) {
        check_transport(name, &entry.0)?;
        if let Err(reason) = entry.0.network() {
            let name = name.escape_debug();
            return Err(unusable(&format!("in the `network` of `{name}`: {reason}")));
        }
        // Only the namespace is checked, but an id needs an action.
        ToolId::new(name, "x").map_err(|error| unusable(&error.to_string()))?;
        if RESERVED_NAMESPACES.contains(&name.as_str()) {
            return Err(unusable(&format!("`{name}` is a reserved name; rename that server")));
        }
        // Rules are applied by name: an `allow` for the built-in tools would also cover the server
        // that takes their place.
        if tools::is_native(name) && !entry.0.replaces_native {
            let reason = format!(
                "`{name}` is built into `pml`; rename that server, or set `\"override\": true` in it to replace the built-in tools"
            );
            return Err(unusable(&reason));
        }
    }
    if let Some(name) =
        file.mcp_servers.0.keys().find(|name| file.private_mcps.0.contains_key(*name))
    {
        return Err(unusable(&format!("`{name}` is in both `private_mcps` and `mcpServers`")));
    }
    Ok(file)
}

pub(super) fn invalid(error: &serde_json::Error) -> ConfigError {
    let text = error.to_string();
    // The library appends the position to its text, and the message above begins with it.
    let place = format!(" at line {} column {}", error.line(), error.column());
    ConfigError::Invalid {
        file: FILE.to_owned(),
        line: error.line(),
        column: error.column(),
        reason: text.strip_suffix(&place).unwrap_or(&text).to_owned(),
    }
}
