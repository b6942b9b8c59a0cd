//! Calls to tools on this machine, and the checks before them.

use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use execution::processes::supervise::Supervisor;
use protocol::{ErrorBody, ErrorCode, Fqdn, Install, Scope, ToolDescriptor, ToolId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::open_server::body;
use super::{App, config_error, own_program};
use crate::capabilities::{self, RegisteredServer, Target};
use crate::consent::decision::{Call, Decision, decide};
use crate::consent::lockfile::{ToolsOf, server_name};
use crate::consent::program_lock::ConfiguredServer;
use crate::local_mcp::{Folders, Grant, LocalServers, ServerSpec, Timing};
use crate::origin::Origin;
use crate::policy::PolicyOfRun;
use crate::processes::environment::Environment;
use crate::tools::filesystem::preview::Preview;
use crate::workspace::changes::Watch;
use crate::workspace::touched::{Granted, Touched};

impl App {
    /// Calls a tool built into the CLI and returns its raw MCP result; `granted` lists the protected places that the
    /// user approved, and `watch` is told about each change of a file before it is made.
    ///
    /// # Errors
    /// Returns the tool's own error with its code.
    pub(crate) async fn call_native(
        &self,
        id: &ToolId,
        arguments: Value,
        granted: Granted,
        watch: Arc<Watch<'static>>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let answer = self.native.call_recorded(id, arguments, granted, watch, cancel).await;
        answer.map_err(|error| ErrorBody::new(error.code, error.message))
    }

    /// Checks that a call can run under the policy of its run, so that the user is not asked to approve one that would
    /// fail. Has no side effect. Returns what it touches; protected places need approval whatever a rule allows.
    ///
    /// # Errors
    /// Returns the error that the call would fail with.
    pub(crate) fn check_call(
        &self,
        id: &ToolId,
        target: &Target,
        arguments: &Value,
        policy: &Arc<PolicyOfRun>,
    ) -> Result<Touched, ErrorBody> {
        let checked = match target {
            Target::Native => {
                let checked = self.native.check(id, arguments, policy);
                return checked.map_err(|error| ErrorBody::new(error.code, error.message));
            }
            Target::Configured => self.local.check(id.namespace()),
            Target::Registered(entry) => match &entry.install {
                Some(install) => {
                    let server = server_of(entry, id, &self.configured)?;
                    let spec = self.spec_of(entry, install, &server)?;
                    self.local.check_new(&server, spec)
                }
                None => Ok(()),
            },
            // The gateway would refuse this call, but only after the user has approved it.
            Target::Gateway { missing_secret: Some(secret), .. } => {
                let secret = protocol::escape_text(secret);
                let message = format!(
                    "`{id}` needs the secret `{secret}`, which the gateway does not have; store it with `pml secrets set {secret} --cloud`"
                );
                return Err(ErrorBody::new(ErrorCode::ApiKeyRequired, message)
                    .with_details(json!({ "variable": secret })));
            }
            // Nothing to check here: the calls of a capability are checked when it makes them, and
            // the gateway checks its own.
            Target::Capability(_) | Target::Gateway { .. } => Ok(()),
        };
        checked.map_err(|error| ErrorBody::new(error.code(), error.to_string()))?;
        Ok(Touched::default())
    }

    /// Returns what a call would do to a file, as far as that is known. The difference is part of it only if a rule lets
    /// a program read files.
    pub(crate) fn preview(
        &self,
        id: &ToolId,
        target: &Target,
        arguments: &Value,
        policy: &Arc<PolicyOfRun>,
    ) -> Option<Preview> {
        if !matches!(target, Target::Native) {
            return None;
        }
        let reads = ToolId::new("filesystem", "read_text_file").ok()?;
        let call = Call { policy: Some(policy.policy()), ..Call::default() };
        let is_read = matches!(decide(&self.permissions(), &reads, call), Decision::Run { .. });
        self.native.preview(id, arguments, policy, is_read)
    }

    /// Installs and starts a server of the registry that provides a tool; returns whether it has that tool.
    ///
    /// # Errors
    /// Returns why the server cannot be installed or started, or does not list its tools.
    pub(crate) async fn try_registered(
        &self,
        entry: &RegisteredServer,
        id: &ToolId,
        cancel: &CancellationToken,
    ) -> Result<bool, ErrorBody> {
        let server = self.add_registered(entry, id)?;
        let check = || self.check_registered(entry, id);
        let tools = self.local.tools(&server, &check, cancel).await.map_err(body)?;
        self.lockfile.pin_first(&ToolsOf::registered(entry), &tools)?;
        Ok(tools.iter().any(|tool| tool.name == id.action()))
    }

    /// Makes a server of the registry known under its key, which is returned. It starts with its first call.
    pub(super) fn add_registered(
        &self,
        entry: &RegisteredServer,
        id: &ToolId,
    ) -> Result<String, ErrorBody> {
        let install = entry.install.as_ref().ok_or_else(|| cannot_start(entry))?;
        let server = server_of(entry, id, &self.configured)?;
        let spec = self.spec_of(entry, install, &server)?;
        // A server that was started before has its folder. A sealed one creates it.
        if let Some(folder) = spec.own_folder.as_ref().filter(|_| !self.local.knows(&server)) {
            // Private: nobody else may put files there.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| {
                config_error(format!("cannot create `{}`: {error}", folder.display()))
            })?;
        }
        let added = self.local.add(&server, spec);
        added.map_err(|error| ErrorBody::new(error.code(), error.to_string()))?;
        Ok(server)
    }

    /// Returns what starting a server of the registry grants it; `None` for one that is not started here.
    ///
    /// # Errors
    /// Returns the error that the start would fail with.
    pub(crate) fn grant(
        &self,
        entry: &RegisteredServer,
        id: &ToolId,
    ) -> Result<Option<Grant>, ErrorBody> {
        let Some(install) = &entry.install else { return Ok(None) };
        let server = server_of(entry, id, &self.configured)?;
        let spec = self.spec_of(entry, install, &server)?;
        let grant = self.local.grant_of(&server, spec);
        grant.map(Some).map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Returns the entries of servers that can provide a tool and that the user allowed here, for a run without the
    /// gateway: for each scope the highest version whose entry is stored. In a program of the scope `base`, its own
    /// server takes precedence, as on the gateway. A server of a registry that `.pml.json` no longer lists is not started.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn stored_servers(
        &self,
        id: &ToolId,
        base: Option<&Scope>,
    ) -> Result<Vec<Arc<RegisteredServer>>, ErrorBody> {
        let mut found: Vec<(Scope, Arc<RegisteredServer>)> = Vec::new();
        // The highest version comes last.
        for pinned in self.lockfile.servers_of(id)?.into_iter().rev() {
            let registry = pinned.registry;
            let is_listed = registry.as_ref().is_none_or(|origin| self.lists_registry(origin));
            if !is_listed || found.iter().any(|(scope, _)| *scope == pinned.scope) {
                continue;
            }
            let entry = capabilities::load_entry(self.records(), pinned.integrity);
            let server = entry.map(|entry| Arc::new(RegisteredServer { entry, registry }));
            found.extend(server.map(|server| (pinned.scope, server)));
        }
        if base.is_some_and(|base| found.iter().any(|(scope, _)| scope == base)) {
            found.retain(|(scope, _)| Some(scope) == base);
        }
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Returns how a server of the registry is started.
    fn spec_of(
        &self,
        entry: &RegisteredServer,
        install: &Install,
        server: &str,
    ) -> Result<ServerSpec, ErrorBody> {
        let folder = |kind| super::folder_of(self.records(), &self.workspace, kind, server);
        let folders = Folders {
            own: folder("servers"),
            home: folder(super::HOMES),
            packages: self.records().join(super::PACKAGES),
        };
        let mut spec = ServerSpec::of_registry(install, folders).map_err(|reason| {
            let message = format!("the registry's entry `{}` {reason}", entry.fqdn);
            ErrorBody::new(ErrorCode::ToolUnavailable, message)
        })?;
        spec.locked_as = Some(server_name(entry));
        Ok(spec)
    }

    /// Returns what a program that calls a server in `.pml.json` is locked to.
    pub(crate) fn configured_server(&self, namespace: &str) -> Option<ConfiguredServer> {
        let spec = self.local.spec(namespace)?;
        Some(ConfiguredServer { start: spec.start_hash(), tools: self.known.of(namespace, &spec) })
    }

    /// Lists the tools of a server in `.pml.json` as they are now, starting it if it does not run.
    ///
    /// # Errors
    /// Returns why it did not start or answer.
    pub(crate) async fn current_tools(
        &self,
        namespace: &str,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, ErrorBody> {
        let check = || self.check_program(namespace);
        let tools = self.local.tools(namespace, &check, cancel).await.map_err(body)?;
        self.learn(namespace, &tools);
        Ok(tools)
    }

    /// Starts a server separately from the project's own, lists its tools and stops it.
    ///
    /// # Errors
    /// Returns why it did not start or answer.
    pub(crate) async fn tools_of(
        &self,
        namespace: &str,
        install: &Install,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, ErrorBody> {
        // A separate set of servers: the namespace may also be that of a configured server.
        let servers = LocalServers::new(
            Arc::clone(&self.workspace),
            Arc::new(Environment::load(&self.workspace)),
            Supervisor::new(own_program()),
            Timing::default(),
            self.records(),
        );
        let temporary = tempfile::Builder::new().prefix("pml-").tempdir();
        let temporary = temporary
            .map_err(|error| config_error(format!("cannot create a temporary folder: {error}")))?;
        let folders = Folders {
            own: temporary.path().to_owned(),
            home: temporary.path().join("home"),
            packages: self.records().join(super::PACKAGES),
        };
        // Sealed, so that what others will start it with is enough. Its program may be in the workspace.
        let spec = ServerSpec::of_registry(install, folders).map_err(config_error)?;
        let spec = ServerSpec { of_registry: false, own_folder: None, ..spec };
        let listed = match servers.add(namespace, spec) {
            // The user publishes it, and so has it started.
            Ok(()) => servers.tools(namespace, &|| Ok(()), cancel).await,
            Err(error) => Err(error),
        };
        // Also after an error: the server may have started and then failed to answer.
        servers.shutdown().await;
        listed.map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }
}

/// Returns the key of a registry server's process: the namespace alone for an entry of the catalog, unless a server of
/// `.pml.json` has it. Entries of other scopes and requested versions run as separate processes, and so do those of
/// another registry than the gateway.
fn server_of(
    entry: &RegisteredServer,
    id: &ToolId,
    configured: &BTreeSet<String>,
) -> Result<String, ErrorBody> {
    let fqdn = entry.fqdn.parse::<Fqdn>().map_err(|_| cannot_start(entry))?;
    let registry = entry.registry.as_ref();
    Ok(key_of(registry, fqdn.scope(), fqdn.namespace(), id.version(), configured))
}

fn key_of(
    registry: Option<&Origin>,
    scope: &Scope,
    namespace: &str,
    version: Option<&str>,
    configured: &BTreeSet<String>,
) -> String {
    let mut server = namespace.to_owned();
    // A namespace contains neither `.` nor `@`, so a key with a scope or a version is unambiguous.
    if registry.is_some() || *scope != Scope::public() || configured.contains(namespace) {
        server = format!("{scope}.{server}");
    }
    if let Some(version) = version {
        server = format!("{server}@{version}");
    }
    // No key without a registry has a slash.
    registry.map_or_else(|| server.clone(), |origin| format!("{origin}/{server}"))
}

/// Returns the keys that the processes of a server can have, by its full name, with its version or without, in the gateway
/// or one of these registries.
pub(super) fn keys_of<'a>(
    name: &str,
    registries: impl Iterator<Item = &'a Origin>,
    configured: &BTreeSet<String>,
) -> Vec<String> {
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (name, None),
    };
    let Some((scope, namespace)) = name.rsplit_once('.') else { return Vec::new() };
    let Ok(scope) = scope.parse::<Scope>() else { return Vec::new() };
    // A call may name the version or not.
    let versions = || [None, version].into_iter().take(if version.is_some() { 2 } else { 1 });
    let registries = std::iter::once(None).chain(registries.map(Some));
    let keys = registries.flat_map(|registry| versions().map(move |version| (registry, version)));
    keys.map(|(registry, version)| key_of(registry, &scope, namespace, version, configured))
        .collect()
}

fn cannot_start(entry: &RegisteredServer) -> ErrorBody {
    let message = format!("the registry's entry `{}` does not contain a start command", entry.fqdn);
    ErrorBody::new(ErrorCode::ToolUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_different_origins_have_different_keys() {
        let configured = BTreeSet::from(["git".to_owned()]);
        for (fqdn, id, expected) in [
            ("pml.mcp.memory", "memory:read", "memory"),
            ("pml.mcp.memory", "pml.mcp.memory:read", "memory"),
            ("pml.mcp.memory", "memory:read@1.2.0", "memory@1.2.0"),
            ("acme.docs.memory", "memory:read", "acme.docs.memory"),
            ("pml.mcp.git", "pml.mcp.git:log", "pml.mcp.git"),
            ("pml.mcp.git", "pml.mcp.git:log@1.2.0", "pml.mcp.git@1.2.0"),
        ] {
            let entry: protocol::RegistryEntry = serde_json::from_value(json!({
                "fqdn": fqdn, "type": "stdio", "description": "", "routing": "client",
                "integrity": protocol::Integrity::of(b""), "tools": [],
            }))
            .unwrap();
            let mut server = RegisteredServer::of_gateway(entry);
            let found = server_of(&server, &id.parse().unwrap(), &configured).unwrap();
            assert_eq!(found, expected, "{fqdn} {id}");
            // Nor is it the server of another registry.
            server.registry = Some("https://a.test".parse().unwrap());
            let found = server_of(&server, &id.parse().unwrap(), &configured).unwrap();
            assert!(found.starts_with(&format!("https://a.test/{fqdn}")), "{found}");
        }
        // The files of a server in one scope are not those of its namesake in another.
        for (name, expected) in [
            ("pml.mcp.memory", &["memory"][..]),
            ("pml.mcp.memory@1.2.0", &["memory", "memory@1.2.0"]),
            ("acme.docs.memory@1.2.0", &["acme.docs.memory", "acme.docs.memory@1.2.0"]),
            ("pml.mcp.git", &["pml.mcp.git"]),
            ("memory", &[]),
        ] {
            assert_eq!(keys_of(name, std::iter::empty(), &configured), expected, "{name}");
        }
        let origin = "https://a.test".parse().unwrap();
        let keys = keys_of("pml.mcp.memory@1.2.0", [&origin].into_iter(), &configured);
        let expected = [
            "memory",
            "memory@1.2.0",
            "https://a.test/pml.mcp.memory",
            "https://a.test/pml.mcp.memory@1.2.0",
        ];
        assert_eq!(keys, expected);
    }
}
