//! The grammar of `.pml.json`.

use std::path::PathBuf;

use protocol::ToolId;
use protocol::look_alike::RESERVED_NAMESPACES;
use serde::Deserialize;

use super::{ConfigError, FILE, unusable};
use crate::consent::permissions::PermissionRules;
use crate::files::strict_json::{Strict, UniqueMap};
use crate::local_mcp::{HostList, ListOf, Reachable, Remote, Seal, ServerSpec};
use crate::policy::{HostPattern, PolicyFile};
use crate::tools;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    /// For editors; not used.
    #[serde(default, rename = "$schema")]
    _schema: Option<String>,
    #[serde(default)]
    pub(super) workspace: Option<String>,
    #[serde(default)]
    pub(super) roots: Vec<String>,
    #[serde(default)]
    pub(super) cloud: Option<Strict<Cloud>>,
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
    pub(super) expose_tools: Vec<String>,
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

/// An MCP server as an entry of `mcpServers` or `private_mcps` describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpServer {
    /// `stdio`, `http` or `streamable-http`, as other clients write it.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// The URL of an HTTP server.
    #[serde(default)]
    url: Option<String>,
    /// Headers for such a server; `${NAME}` expands to the user's variables.
    #[serde(default)]
    headers: Option<UniqueMap<String>>,
    /// The program.
    #[serde(default)]
    pub(crate) command: String,
    /// Its arguments; `${workspace}` expands to the workspace's path.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Its variables; `${NAME}` expands to the user's own.
    #[serde(default)]
    pub(crate) env: UniqueMap<String>,
    /// The folder that it runs in, relative to the workspace.
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// The hosts that it may reach; none if it is missing.
    #[serde(default)]
    pub(crate) network: Option<Network>,
    /// Whether it is confined to its files and hosts, which is so if it is missing.
    #[serde(default)]
    sealed: Option<bool>,
    /// Whether it may replace a built-in namespace.
    #[serde(default, rename = "override")]
    pub(crate) replaces_native: bool,
}

/// The hosts that a server may reach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Network {
    /// All of them: the text `all`.
    All(AllHosts),
    /// These.
    Hosts(Vec<String>),
}

/// The text `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AllHosts {
    /// Every host.
    All,
}

impl McpServer {
    /// Returns how the server is started. If it is sealed, `home` is its own folder, and `packages` that of installed
    /// packages.
    pub(crate) fn spec(&self, home: PathBuf, packages: PathBuf) -> ServerSpec {
        // `parse` has refused an entry with an invalid address or host.
        let network = self.network().unwrap_or(Some(Reachable::Nothing));
        ServerSpec {
            command: self.command.clone(),
            args: self.args.clone(),
            env: self.env.0.clone(),
            env_required: Vec::new(),
            cwd: self.cwd.clone(),
            remote: self.remote().ok().flatten(),
            seal: network.map(|network| Seal { network, home, packages, reads_named: true }),
            ..ServerSpec::default()
        }
    }

    /// Returns whether it is a program that is not sealed.
    pub(crate) fn is_unsealed(&self) -> bool {
        self.url.is_none() && self.sealed == Some(false)
    }

    /// Returns what a sealed server may connect to; `None` for one that is not sealed.
    fn network(&self) -> Result<Option<Reachable>, String> {
        let hosts = |hosts: Vec<HostPattern>, of| Reachable::Hosts(HostList { hosts, of });
        Ok(match &self.network {
            _ if self.url.is_some() || self.is_unsealed() => None,
            None => Some(hosts(Vec::new(), ListOf::Nowhere)),
            Some(Network::All(AllHosts::All)) => Some(Reachable::All),
            Some(Network::Hosts(listed)) if listed.is_empty() => Some(Reachable::Nothing),
            Some(Network::Hosts(listed)) => {
                let listed: Result<Vec<_>, _> =
                    listed.iter().map(|host| HostPattern::new(host)).collect();
                Some(hosts(listed?, ListOf::Entry))
            }
        })
    }
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

impl McpServer {
    /// Returns the address and headers of an HTTP server.
    fn remote(&self) -> Result<Option<Remote>, String> {
        let Some(url) = &self.url else { return Ok(None) };
        let headers = self.headers.clone().unwrap_or_default().0;
        Remote::new(url, headers).map(Some)
    }
}

/// Checks that an entry is either a program or an HTTP server, with the fields of that kind only.
fn check_transport(name: &str, entry: &McpServer) -> Result<(), ConfigError> {
    // The name has not been checked yet, so it may contain control characters.
    let name = name.escape_debug();
    let refused = |what: String| Err(unusable(&format!("`{name}` {what}")));
    // Any field of a program counts, so that none is silently ignored next to a `url`.
    let is_program = !entry.command.is_empty()
        || !entry.args.is_empty()
        || !entry.env.0.is_empty()
        || entry.cwd.is_some();
    match (entry.kind.as_deref(), &entry.url) {
        (Some("sse"), _) => refused(
            "has the `type` `sse`, a transport that MCP has replaced; if the server also speaks Streamable HTTP, write \
             `http` and that URL, else start a bridge: `\"command\": \"npx\", \"args\": [\"-y\", \"mcp-remote\", URL]`"
                .to_owned(),
        ),
        (None | Some("http" | "streamable-http" | "streamableHttp"), Some(_)) => {
            if is_program {
                return refused(
                    "is both a program and an HTTP server; write either `command` or `url`"
                        .to_owned(),
                );
            }
            if entry.network.is_some() || entry.sealed.is_some() {
                let field = if entry.network.is_some() { "network" } else { "sealed" };
                return refused(format!(
                    "has a `{field}`, which is for programs; `pml` itself connects to a `url`"
                ));
            }
            match entry.remote() {
                Ok(_) => Ok(()),
                Err(reason) => refused(format!("cannot be used: {reason}")),
            }
        }
        (Some("http" | "streamable-http" | "streamableHttp"), None) => {
            refused("has no `url`, the address of the MCP server".to_owned())
        }
        (Some("stdio"), Some(_)) => refused("has a `url`, which the `type` `stdio` does not allow".to_owned()),
        (None | Some("stdio"), None) if entry.headers.is_some() => {
            refused("has `headers` but no `url`".to_owned())
        }
        (None | Some("stdio"), None) if entry.command.is_empty() => {
            refused("has no `command`, the program that starts the MCP server".to_owned())
        }
        (None | Some("stdio"), None) if entry.is_unsealed() && entry.network.is_some() => {
            refused("has a `network`, which an entry with `\"sealed\": false` has not: it can connect to everything".to_owned())
        }
        (None | Some("stdio"), None) => Ok(()),
        (Some(other), _) => refused(format!(
            "has the `type` `{}`; leave it out, or write `stdio` or `http`",
            other.escape_debug()
        )),
    }
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
