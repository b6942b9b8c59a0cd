//! What a server may reach.

use std::path::PathBuf;

use sandbox::Bounds;

use crate::host_pattern::HostPattern;
use crate::processes::confinement::Machine;

/// The confinement of a server: it can change the workspace and its own folder, and read these and what is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// What it can connect to.
    pub network: Reachable,
    /// Its own folder, which is its `HOME`. It is created when the server starts, and kept.
    pub home: PathBuf,
    /// The folder of installed packages: the server may start from one.
    pub packages: PathBuf,
    /// Whether it can read the files that its arguments name, and their packages. Somebody else wrote those of the
    /// registry, and they could name anything.
    pub reads_named: bool,
    /// Whose machine it runs on.
    pub machine: Machine,
    /// What it may use of the machine.
    pub bounds: Option<Bounds>,
}

/// What a sealed server can connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reachable {
    /// Nothing: it cannot open a socket.
    Nothing,
    /// Hosts, through a proxy. If there are none, and this system allows it no network of its own, it is started without
    /// sockets instead.
    Hosts(HostList),
    /// Everything, over IP.
    All,
}

/// The hosts that a server may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList {
    /// The hosts.
    pub hosts: Vec<HostPattern>,
    /// Where they are listed.
    pub of: ListOf,
}

/// Where the hosts of a server are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOf {
    /// In `network` of an entry of `.pml.json`.
    Entry,
    /// Nowhere: such an entry has no `network`.
    Nowhere,
    /// In the registry.
    Registry,
    /// In the catalog of the gateway that runs it.
    Catalog,
}

impl HostList {
    /// Returns that `what` is not listed, and what to write to allow `host`.
    pub fn refusal(&self, what: &str, host: &str) -> String {
        match self.of {
            ListOf::Entry => {
                format!("its `network` does not list {what}; to allow it, add \"{host}\"")
            }
            ListOf::Nowhere => format!(
                "its entry in `.pml.json` has no `network` that lists {what}; to allow it, add \"network\": [\"{host}\"]"
            ),
            ListOf::Catalog => format!("its entry in the catalog does not list {what}"),
            ListOf::Registry => format!(
                "its entry in the registry does not list {what}; to allow it, define the server in `mcpServers` of `.pml.json`, with \"network\": [\"{host}\"]"
            ),
        }
    }
}

impl Seal {
    /// Returns the hosts that the server can connect to, for display; `all` alone stands for everything over IP.
    pub fn hosts(&self) -> Vec<String> {
        match &self.network {
            Reachable::Nothing => Vec::new(),
            Reachable::Hosts(list) => list.hosts.iter().map(ToString::to_string).collect(),
            Reachable::All => vec!["all".to_owned()],
        }
    }
}
