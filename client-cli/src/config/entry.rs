//! An entry of `mcpServers` or `private_mcps` in `.pml.json`.

use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigError, unusable};
use crate::files::strict_json::UniqueMap;
use crate::local_mcp::{HostList, ListOf, Reachable, Remote, Seal, ServerSpec};
use crate::policy::HostPattern;

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
    pub(super) fn network(&self) -> Result<Option<Reachable>, String> {
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

impl McpServer {
    /// Returns the address and headers of an HTTP server.
    fn remote(&self) -> Result<Option<Remote>, String> {
        let Some(url) = &self.url else { return Ok(None) };
        let headers = self.headers.clone().unwrap_or_default().0;
        Remote::new(url, headers).map(Some)
    }
}

/// Checks that an entry is either a program or an HTTP server, with the fields of that kind only.
pub(super) fn check_transport(name: &str, entry: &McpServer) -> Result<(), ConfigError> {
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
