//! How a server is started or reached, and what it may reach itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use protocol::{Install, Integrity};
use serde_json::{Value, json};

use execution::host_pattern::HostPattern;
use execution::mcp_process::{HostList, ListOf, Reachable, Seal};
use execution::packages::Request;
use execution::processes::confinement::Machine;
use execution::processes::programs::Program;

use super::Remote;
use crate::processes::environment::{Source, is_passed, is_secret_name};

/// Programs that only ask another process, which runs as root or outside of the seal, to start a container.
const CONTAINERS: &[&str] = &["docker", "podman", "nerdctl"];

/// The start command of a server, or its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSpec {
    /// The program: a name on `PATH`, or a path relative to the workspace.
    pub command: String,
    /// Its arguments; `${workspace}` expands to the workspace's path, and `${home}` to that of a sealed server's folder.
    pub args: Vec<String>,
    /// Variables that it receives in addition to the base environment.
    pub env: BTreeMap<String, String>,
    /// Variables that it needs from the user's environment.
    pub env_required: Vec<String>,
    /// The folder that it runs in, relative to the workspace.
    pub cwd: Option<String>,
    /// The address of an HTTP server; then the other fields are empty, except `tools`.
    pub remote: Option<Remote>,
    /// The tools that can be called; `None` for all that it has.
    pub tools: Option<BTreeSet<String>>,
    /// Whether it comes from the registry, and not from the user.
    pub of_registry: bool,
    /// A working directory outside the workspace, instead of `cwd`.
    pub own_folder: Option<PathBuf>,
    /// What it can reach; `None` for a server that is not confined.
    pub seal: Option<Seal>,
    /// Its name in the lock, if that is not the one under which it is started.
    pub locked_as: Option<String>,
}

/// The folders of one server among the user's records. They may not exist yet.
pub(crate) struct Folders {
    /// The working directory of a server that is not sealed.
    pub(crate) own: PathBuf,
    /// The `HOME` of a sealed one.
    pub(crate) home: PathBuf,
    /// The installed packages of all servers.
    pub(crate) packages: PathBuf,
}

/// A server, as it is listed.
pub(crate) struct ListedServer {
    /// Its namespace.
    pub(crate) name: String,
    /// Its command and arguments; empty for an HTTP server.
    pub(crate) command: Vec<String>,
    /// The origin of an HTTP server.
    pub(crate) url: Option<String>,
    /// The hosts that it can connect to; `None` if it is not sealed.
    pub(crate) hosts: Option<Vec<String>>,
    /// The package that it starts from.
    pub(crate) package: Option<String>,
    /// The version of the package that is installed.
    pub(crate) installed: Option<String>,
}

/// What starting a server grants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The program that runs; with a package, the program that installs it.
    pub(crate) program: Program,
    /// The package that is installed, for display.
    pub(crate) package: Option<String>,
    /// How a lock names what was requested, if it starts from a package.
    pub(crate) request: Option<String>,
    /// The user's variables that it receives, with their sources.
    pub(crate) variables: BTreeMap<String, Source>,
    /// The hosts that it can connect to; `None` if it is not sealed.
    pub(crate) hosts: Option<Vec<String>>,
    /// The files that run, with the hashes of their content.
    pub(crate) files: Files,
}

/// Files by path, relative to the workspace if they are in it, with the hashes of their content.
pub(crate) type Files = BTreeMap<String, Integrity>;

impl ServerSpec {
    /// Creates a server from a registry entry. It is sealed, unless its program starts a container.
    ///
    /// # Errors
    /// Returns what `pml` cannot read in the entry, as the rest of a sentence about it.
    pub(crate) fn of_registry(install: &Install, folders: Folders) -> Result<Self, String> {
        let Install { command, args, env, env_required, network } = install;
        for (name, value) in env {
            let shown = protocol::escape_text(name);
            // The user's folder, certificates and proxy are part of the seal.
            if is_passed(name) {
                return Err(format!("sets `{shown}`, which only the user may set"));
            }
            // Expanded later, as in an entry of the user: the question would not show the variable.
            if value.replace("${workspace}", "").replace("${home}", "").contains("${") {
                return Err(format!("uses a variable of the user in `{shown}`"));
            }
        }
        let hosts: Result<Vec<_>, _> = network.iter().map(|host| HostPattern::new(host)).collect();
        let hosts = hosts.map_err(|reason| format!("has an invalid `network`: {reason}"))?;
        let network = Reachable::Hosts(HostList { hosts, of: ListOf::Registry });
        let Folders { own, home, packages } = folders;
        let seal = Seal {
            network,
            home,
            packages,
            reads_named: false,
            machine: Machine::OfUser,
            bounds: None,
        };
        let seal = (!starts_container(command)).then_some(seal);
        // Files in the working directory can change what a program runs; not that of an installed package.
        let own_folder = match &seal {
            None => Some(own),
            Some(_) if Request::names_package(command) => None,
            Some(seal) => Some(seal.home.clone()),
        };
        Ok(Self {
            command: command.clone(),
            args: args.clone(),
            env: env.clone(),
            env_required: env_required.clone(),
            of_registry: true,
            own_folder,
            seal,
            ..Self::default()
        })
    }

    /// Returns whether a tool can be called.
    pub(super) fn offers(&self, action: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(action))
    }

    /// Returns a hash of how it is started or reached, which is the same for everybody with the same entry.
    ///
    /// The values of headers, and of variables that may be secret, are not part of it: the hash is written to a file
    /// that others read, and who knows the rest could guess a short value.
    pub(crate) fn start_hash(&self) -> Integrity {
        let variable = |(name, value): (&String, &String)| {
            let has_password = value.contains("://") && value.contains('@');
            let shown = match is_secret_name(name) || has_password {
                true => json!(references(value)),
                false => json!(value),
            };
            (name.clone(), shown)
        };
        let env: BTreeMap<String, Value> = self.env.iter().map(variable).collect();
        let remote = self.remote.as_ref().map(|remote| {
            let headers = remote.headers.iter();
            let headers: BTreeMap<_, _> =
                headers.map(|(name, value)| (name.clone(), references(value))).collect();
            // A query may have a key.
            let query: Vec<_> = remote.url.query_pairs().map(|(name, _)| name).collect();
            json!({ "origin": remote.origin(), "path": remote.url.path(), "query": query, "headers": headers })
        });
        // Of the seal, only what the entry says: its folders are different on each machine.
        let seal = self.seal.as_ref().map(|seal| match seal.network {
            Reachable::Nothing => json!("nothing"),
            Reachable::Hosts(_) | Reachable::All => json!(seal.hosts()),
        });
        Integrity::of_json(&json!({
            "command": self.command, "args": self.args, "env": env, "env_required": self.env_required,
            "cwd": self.cwd, "remote": remote, "seal": seal,
        }))
    }

    /// Returns whether it is to be sealed and cannot be.
    pub(super) fn cannot_be_sealed(&self) -> bool {
        self.seal.is_some() && starts_container(&self.command)
    }
}

/// Returns whether a program starts containers.
pub(crate) fn starts_container(command: &str) -> bool {
    let name = Path::new(command).file_name();
    CONTAINERS.iter().any(|container| name.is_some_and(|name| name == *container))
}

/// Returns the names of the variables that a text refers to.
fn references(text: &str) -> Vec<&str> {
    let after = text.split("${").skip(1);
    after.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(install: serde_json::Value) -> Result<ServerSpec, String> {
        let folders = Folders { own: "/own".into(), home: "/home".into(), packages: "/p".into() };
        ServerSpec::of_registry(&serde_json::from_value(install).unwrap(), folders)
    }

    /// A change of how a server is started changes its hash; a secret, and the folders of this machine, do not.
    #[test]
    fn the_hash_of_a_start_leaves_out_secrets() {
        let env = |name: &str, value: &str| ServerSpec {
            command: "a".to_owned(),
            env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..ServerSpec::default()
        };
        let remote = |url: &str, value: &str| {
            let headers = BTreeMap::from([("Authorization".to_owned(), value.to_owned())]);
            ServerSpec { remote: Some(Remote::new(url, headers).unwrap()), ..ServerSpec::default() }
        };
        let sealed = |home: &str, network: Reachable| ServerSpec {
            seal: Some(Seal {
                network,
                home: home.into(),
                packages: home.into(),
                reads_named: true,
                machine: Machine::OfUser,
                bounds: None,
            }),
            ..ServerSpec::default()
        };
        let all = || Reachable::All;
        for (one, other, is_same) in [
            (env("API_TOKEN", "one"), env("API_TOKEN", "two"), true),
            (env("API_TOKEN", "${A}"), env("API_TOKEN", "${B}"), false),
            (env("API_TOKEN", "one"), env("API_KEY", "one"), false),
            (env("BASE", "https://u:one@a.test"), env("BASE", "https://u:two@a.test"), true),
            (env("BASE", "https://a.test"), env("BASE", "https://b.test"), false),
            (remote("https://a.test/m", "one"), remote("https://a.test/m", "two"), true),
            (remote("https://a.test/m?key=1", "x"), remote("https://a.test/m?key=2", "x"), true),
            (remote("https://a.test/m", "x"), remote("https://a.test/n", "x"), false),
            (remote("https://a.test/m", "${A}"), remote("https://a.test/m", "${B}"), false),
            (sealed("/a", all()), sealed("/b", all()), true),
            (sealed("/a", all()), sealed("/a", Reachable::Nothing), false),
            (sealed("/a", all()), ServerSpec::default(), false),
        ] {
            let same = one.start_hash() == other.start_hash();
            assert_eq!(same, is_same, "{one:?} and {other:?}");
        }
        let spec = |command: &str, args: &[&str], cwd: Option<&str>| ServerSpec {
            command: command.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            cwd: cwd.map(str::to_owned),
            ..ServerSpec::default()
        };
        let hashes = [
            spec("a", &["b"], None),
            spec("a", &["c"], None),
            spec("a", &["b"], Some("c")),
            spec("b", &["b"], None),
        ]
        .map(|spec| spec.start_hash().to_string());
        assert_eq!(std::collections::BTreeSet::from(hashes).len(), 4);
    }

    /// NX-01: an entry of the registry cannot widen its seal, nor take a variable that the question does not show.
    #[test]
    fn an_entry_of_the_registry_cannot_widen_its_seal() {
        for (fields, expected) in [
            (serde_json::json!({ "env": { "HOME": "/" } }), "only the user may set"),
            (serde_json::json!({ "env": { "SSL_CERT_FILE": "/x" } }), "only the user may set"),
            (serde_json::json!({ "env": { "https_Proxy": "/x" } }), "only the user may set"),
            (serde_json::json!({ "env": { "LC_ALL": "C" } }), "only the user may set"),
            (serde_json::json!({ "env": { "A": "${GITHUB_TOKEN}" } }), "a variable of the user"),
            (serde_json::json!({ "env": { "A": "${home}${X" } }), "a variable of the user"),
            (serde_json::json!({ "env": { "A": "$${workspace}{X}" } }), "a variable of the user"),
            (serde_json::json!({ "network": ["https://a.test"] }), "an invalid `network`"),
            (serde_json::json!({ "network": ["all hosts"] }), "an invalid `network`"),
        ] {
            let mut install = serde_json::json!({ "command": "npx", "args": ["a"] });
            install.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            match spec(install) {
                Ok(_) => panic!("{fields} is accepted"),
                Err(error) => assert!(error.contains(expected), "{fields}: {error}"),
            }
        }
        let good = serde_json::json!({ "command": "npx", "args": ["a"],
            "env": { "A": "${home}/a:${workspace}" }, "network": ["a.test"] });
        let spec_of_package = spec(good).unwrap();
        assert_eq!(spec_of_package.seal.unwrap().hosts(), ["a.test"]);
        // A package starts in the workspace, another program in its own folder.
        assert_eq!(spec_of_package.own_folder, None);
        let program = spec(serde_json::json!({ "command": "tool" })).unwrap();
        assert_eq!(program.own_folder, Some("/home".into()));
        for command in ["docker", "/usr/bin/podman"] {
            let container = spec(serde_json::json!({ "command": command })).unwrap();
            assert_eq!((container.seal, container.own_folder), (None, Some("/own".into())));
        }
    }
}
