//! The grammar of `.pml.json`.

use std::collections::BTreeMap;

use protocol::look_alike::{self, RESERVED_NAMESPACES};
use serde::Deserialize;

use super::entry::{self, Entry, McpServer};
use super::registries::Registries;
use super::settings::{ExposeTools, Server, Version};
use super::{ConfigError, FILE, unusable};
use crate::consent::permissions::{PermissionRules, TraceLevel};
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
    pub(super) analysis: Option<AnalysedBy>,
    #[serde(default)]
    pub(super) traces: Option<TraceLevel>,
    #[serde(default)]
    pub(super) policy: Option<PolicyFile>,
    #[serde(default)]
    private_mcps: UniqueMap<Strict<Entry>>,
    #[serde(default)]
    pub(super) registries: Registries,
    #[serde(default, rename = "mcpServers")]
    mcp_servers: UniqueMap<Strict<Entry>>,
    /// What the two lists of entries describe.
    #[serde(skip)]
    pub(super) servers: Servers,
    #[serde(default)]
    pub(super) expose_tools: ExposeTools,
}

/// The MCP servers, by namespace.
#[derive(Debug, Default)]
pub(super) struct Servers {
    pub(super) mcp_servers: BTreeMap<String, McpServer>,
    pub(super) private_mcps: BTreeMap<String, McpServer>,
}

/// Who can approve calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ApprovalsBy {
    /// Only a person, in a form of the client or on a terminal.
    Human,
}

/// Who analyses programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnalysedBy {
    /// The gateway, which gets their text and may run them. The default.
    Gateway,
    /// `pml`, which runs them here; their text stays on this machine.
    Local,
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
    let Strict(mut file): Strict<ConfigFile> =
        serde_json::from_slice(content).map_err(|error| invalid(&error))?;
    let named_twice =
        file.mcp_servers.0.keys().find(|name| file.private_mcps.0.contains_key(*name));
    if let Some(name) = named_twice {
        let name = name.escape_debug();
        return Err(unusable(&format!("`{name}` is in both `private_mcps` and `mcpServers`")));
    }
    let mut names = BTreeMap::new();
    file.servers = Servers {
        mcp_servers: servers(std::mem::take(&mut file.mcp_servers), &mut names)?,
        private_mcps: servers(std::mem::take(&mut file.private_mcps), &mut names)?,
    };
    Ok(file)
}

/// Returns the servers of one list by namespace. `names` has the names and namespaces of those before, with their entries.
fn servers(
    entries: UniqueMap<Strict<Entry>>,
    names: &mut BTreeMap<String, String>,
) -> Result<BTreeMap<String, McpServer>, ConfigError> {
    let mut servers = BTreeMap::new();
    for (name, Strict(entry)) in entries.0 {
        let server = entry.server(&name)?;
        let namespace = server.offered.namespace.clone();
        for text in [&name, &namespace] {
            check_name(text, server.replaces_native)?;
            if let Some(alike) = looks_like_another(text, &name, names) {
                return Err(unusable(&format!(
                    "`{text}` looks like `{alike}`; rename one of the two servers"
                )));
            }
            // Rules and calls are about namespaces, so each must have one meaning; the name of an entry leads to its
            // own.
            match names.get(text) {
                Some(other) if *other != name => {
                    return Err(unusable(&format!(
                        "`{other}` and `{name}` are both called `{text}`; rename one of them, or remove it"
                    )));
                }
                _ => names.insert(text.clone(), name.clone()),
            };
        }
        servers.insert(namespace, server);
    }
    Ok(servers)
}

/// Returns the name or namespace of an entry other than `owner` that a reader could mistake for `text`.
fn looks_like_another<'a>(
    text: &str,
    owner: &str,
    names: &'a BTreeMap<String, String>,
) -> Option<&'a String> {
    let read = look_alike::skeleton(text);
    let mut others = names.iter().filter(|(known, of)| **of != owner && *known != text);
    others.find(|(known, _)| look_alike::skeleton(known) == read).map(|(known, _)| known)
}

/// Checks that a server may have a name or namespace.
fn check_name(name: &str, replaces_native: bool) -> Result<(), ConfigError> {
    if RESERVED_NAMESPACES.contains(&name) {
        return Err(unusable(&format!("`{name}` is a reserved name; rename that server")));
    }
    // Rules are applied by name: an `allow` for the built-in tools would also cover the server
    // that takes their place.
    if tools::is_native(name) && !replaces_native {
        let reason = format!(
            "`{name}` is built into `pml`; rename that server, or set `\"override\": true` in it to replace the built-in tools"
        );
        return Err(unusable(&reason));
    }
    if let Some(native) = look_alike::among(name, tools::namespaces()) {
        return Err(unusable(&format!(
            "`{name}` looks like `{native}`, which is built into `pml`; rename that server"
        )));
    }
    Ok(())
}

pub(super) fn invalid(error: &serde_json::Error) -> ConfigError {
    let text = error.to_string();
    // The library appends the position to its text, and the message above begins with it.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text);
    ConfigError::Invalid {
        file: FILE.to_owned(),
        line: error.line(),
        column: error.column(),
        reason: entry::instead(reason).unwrap_or_else(|| reason.to_owned()),
    }
}
