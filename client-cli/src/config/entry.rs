//! An entry of `mcpServers` or `private_mcps` in `.pml.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use execution::host_pattern::HostPattern;
use execution::processes::confinement::Machine;
use protocol::ToolPattern;
use serde::Deserialize;

use super::offered::Offered;
use super::{ConfigError, unusable};
use crate::files::strict_json::{Strict, UniqueMap};
use crate::local_mcp::{HostList, ListOf, Reachable, Remote, Seal, ServerSpec};

/// An entry as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
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
    command: String,
    /// Its arguments; `${workspace}` expands to the workspace's path, and so does `${WORKSPACE}`.
    #[serde(default)]
    args: Vec<String>,
    /// Its variables; `${NAME}` expands to the user's own.
    #[serde(default)]
    env: UniqueMap<String>,
    /// The program as the registry describes one, instead of `command` and the fields next to it.
    #[serde(default)]
    install: Option<Strict<Install>>,
    /// The tools that can be called; all of them if it is missing.
    #[serde(default)]
    tools: Option<Vec<String>>,
    /// The folder that it runs in, relative to the workspace.
    #[serde(default)]
    cwd: Option<String>,
    /// The hosts that it may reach; none if it is missing.
    #[serde(default)]
    network: Option<Network>,
    /// Whether it is confined to its files and hosts, which is so if it is missing.
    #[serde(default)]
    sealed: Option<bool>,
    /// Whether it may replace a built-in namespace.
    #[serde(default, rename = "override")]
    replaces_native: bool,
    /// Whether the gateway is told its tools.
    #[serde(default)]
    sync_tools: bool,
}

/// A program in the form of the registry's entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Install {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: UniqueMap<String>,
    /// Variables that it needs from the user's environment.
    #[serde(default, alias = "envRequired")]
    env_required: Vec<String>,
    #[serde(default)]
    network: Option<Network>,
}

/// Fields that an entry of the registry has and one of this file has not, with what to write instead.
const OF_REGISTRY: &[(&str, &str)] = &[
    ("description", "remove it"),
    ("env_required", "write it in `install`"),
    ("fqdn", "remove it; the key of the entry is its name"),
    ("integrity", "remove it, and pin the version of the package in `args`"),
    ("proxy_to", "write `\"type\": \"http\"`, and the address as `url`"),
    ("routing", "remove it; calls of this server are always made from this machine"),
    ("version", "remove it, and pin the version of the package in `args`"),
    ("warnings", "remove it"),
];

/// Returns what to write instead of a field of the registry's entries, if that is why an entry was refused.
pub(super) fn instead(refusal: &str) -> Option<String> {
    let (field, expected) = refusal.strip_prefix("unknown field `")?.split_once('`')?;
    // Only an entry has this field.
    let is_of_entry = expected.contains("`install`");
    let (_, instead) = OF_REGISTRY.iter().find(|(name, _)| is_of_entry && *name == field)?;
    Some(format!("`{field}` is for entries of the registry: {instead}"))
}

/// The hosts that a server may reach.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Network {
    /// All of them: the text `all`.
    All(AllHosts),
    /// These.
    Hosts(Vec<String>),
}

/// The text `all`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AllHosts {
    /// Every host.
    All,
}

/// An MCP server of `.pml.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpServer {
    /// The name of its entry, which may spell its namespace with `-` instead of `_`.
    pub(crate) name: String,
    /// Whether it may replace a built-in namespace.
    pub(super) replaces_native: bool,
    /// Whether the gateway is told its tools.
    pub(super) syncs_tools: bool,
    /// Its namespace and tools.
    pub(super) offered: Offered,
    /// How it is started or reached, apart from its folders.
    start: ServerSpec,
    /// What it can connect to; `None` for one that is not sealed.
    network: Option<Reachable>,
}

impl McpServer {
    /// Returns how the server is started. If it is sealed, `home` is its own folder, and `packages` that of installed
    /// packages.
    pub(crate) fn spec(&self, home: PathBuf, packages: PathBuf) -> ServerSpec {
        let network = self.network.clone();
        ServerSpec {
            seal: network.map(|network| Seal {
                network,
                home,
                packages,
                reads_named: true,
                machine: Machine::OfUser,
                bounds: None,
            }),
            ..self.start.clone()
        }
    }

    /// Returns the rule that the author of another one meant, which names the entry and not the namespace.
    pub(super) fn meant_by(&self, rule: &ToolPattern) -> Option<(ToolPattern, String)> {
        let namespace = &self.offered.namespace;
        if *namespace == self.name {
            return None;
        }
        let meant = match rule {
            ToolPattern::Namespace(name) if *name == self.name => format!("{namespace}:*"),
            ToolPattern::Tool(id) if id.is_plain() && id.namespace() == self.name => {
                format!("{namespace}:{}", id.action())
            }
            _ => return None,
        };
        Some((rule.clone(), meant))
    }

    /// Returns whether it is a program that is not sealed.
    pub(crate) fn is_unsealed(&self) -> bool {
        self.start.remote.is_none() && self.network.is_none()
    }
}

impl Entry {
    /// Returns the server that an entry describes.
    ///
    /// # Errors
    /// Returns [`ConfigError`] with what to write instead.
    pub(super) fn server(mut self, name: &str) -> Result<McpServer, ConfigError> {
        // The name has not been checked yet, so it may contain control characters.
        let shown = name.escape_debug().to_string();
        let refused = |what: String| unusable(&format!("`{shown}` {what}"));
        let env_required = self.take_install().map_err(refused)?;
        let remote = self.transport().map_err(refused)?;
        let network = self
            .network()
            .map_err(|reason| unusable(&format!("in the `network` of `{shown}`: {reason}")))?;
        let offered = Offered::of(name, self.tools)?;
        Ok(McpServer {
            name: name.to_owned(),
            replaces_native: self.replaces_native,
            syncs_tools: self.sync_tools,
            start: ServerSpec {
                command: with_workspace(self.command),
                args: self.args.into_iter().map(with_workspace).collect(),
                env: self
                    .env
                    .0
                    .into_iter()
                    .map(|(name, value)| (name, with_workspace(value)))
                    .collect(),
                env_required,
                cwd: self.cwd.map(with_workspace),
                remote,
                tools: offered.tools.clone(),
                ..ServerSpec::default()
            },
            offered,
            network,
        })
    }

    /// Replaces `install` with the fields that say the same, so that there is one way from here on. Returns the variables
    /// that the server needs.
    fn take_install(&mut self) -> Result<Vec<String>, String> {
        let Some(Strict(install)) = self.install.take() else { return Ok(Vec::new()) };
        let written = [
            ("command", !self.command.is_empty()),
            ("args", !self.args.is_empty()),
            ("env", !self.env.0.is_empty()),
            ("network", self.network.is_some()),
        ];
        if let Some((field, _)) = written.iter().find(|(_, is_written)| *is_written) {
            return Err(format!(
                "has both `install` and `{field}`; write `{field}` in `install`, or write `command` and the fields next to it without `install`"
            ));
        }
        if self.url.is_some() || self.headers.is_some() {
            return Err("has `install`, for a program, and the `url` or `headers` of an HTTP server; write one of the two".to_owned());
        }
        let Install { command, args, env, env_required, network } = install;
        (self.command, self.args, self.env, self.network) = (command, args, env, network);
        Ok(env_required)
    }

    fn is_unsealed(&self) -> bool {
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

    /// Returns the address and headers of an HTTP server.
    fn remote(&self) -> Result<Option<Remote>, String> {
        let Some(url) = &self.url else { return Ok(None) };
        let headers = self.headers.as_ref().map_or_else(BTreeMap::new, |headers| headers.0.clone());
        Remote::new(url, headers).map(Some)
    }

    /// Checks that it is either a program or an HTTP server, with the fields of that kind only. Returns the address of an
    /// HTTP server.
    fn transport(&self) -> Result<Option<Remote>, String> {
        // Any field of a program counts, so that none is silently ignored next to a `url`.
        let is_program = !self.command.is_empty()
            || !self.args.is_empty()
            || !self.env.0.is_empty()
            || self.cwd.is_some();
        let refused = |what: &str| Err(what.to_owned());
        match (self.kind.as_deref(), &self.url) {
            (Some("sse"), _) => refused(
                "has the `type` `sse`, a transport that MCP has replaced; if the server also speaks Streamable HTTP, \
                 write `http` and that URL, else start a bridge: `\"command\": \"npx\", \"args\": [\"-y\", \
                 \"mcp-remote\", URL]`",
            ),
            (None | Some("http" | "streamable-http" | "streamableHttp"), Some(_)) => {
                if is_program {
                    return refused(
                        "is both a program and an HTTP server; write either `command` or `url`",
                    );
                }
                if self.network.is_some() || self.sealed.is_some() {
                    let field = if self.network.is_some() { "network" } else { "sealed" };
                    return Err(format!(
                        "has a `{field}`, which is for programs; `pml` itself connects to a `url`"
                    ));
                }
                self.remote().map_err(|reason| format!("cannot be used: {reason}"))
            }
            (Some("http" | "streamable-http" | "streamableHttp"), None) => {
                refused("has no `url`, the address of the MCP server")
            }
            (Some("stdio"), Some(_)) => {
                refused("has a `url`, which the `type` `stdio` does not allow")
            }
            (None | Some("stdio"), None) if self.headers.is_some() => {
                refused("has `headers` but no `url`")
            }
            (None | Some("stdio"), None) if self.command.is_empty() => {
                refused("has no `command`, the program that starts the MCP server")
            }
            (None | Some("stdio"), None) if self.is_unsealed() && self.network.is_some() => {
                refused(
                    "has a `network`, which an entry with `\"sealed\": false` has not: it can connect to everything",
                )
            }
            (None | Some("stdio"), None) => Ok(None),
            (Some("cloud"), _) => refused(
                "has the `type` `cloud`, which is for the registry; write `\"type\": \"http\"` and the server's `url`",
            ),
            (Some(other), _) => Err(format!(
                "has the `type` `{}`; leave it out, or write `stdio` or `http`",
                other.escape_debug()
            )),
        }
    }
}

/// Returns a text with the one spelling of `${workspace}` that is expanded at the start. In upper case it would be read as a
/// variable of the user, which some build services set to another folder.
fn with_workspace(text: String) -> String {
    text.replace("${WORKSPACE}", "${workspace}")
}
