//! The shared state of a project's commands: its files, rules, tools and gateway.

mod calls;
mod configured;
mod elsewhere;
mod exposed;
mod open_server;
mod package_updates;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use protocol::{CAPABILITY_DEPTH, ErrorBody, ErrorCode, ToolDescriptor, ToolId};
use sandbox::{Pool, PoolConfig};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use configured::{hidden_by_configured, log_override};
pub(crate) use elsewhere::Elsewhere;
use execution::packages;
use execution::processes::supervise::Supervisor;
pub(crate) use open_server::OpenServer;
use telling::synced_tools;

pub(crate) use crate::local_mcp::{Activity as PackageActivity, ListedServer};

use crate::analyser::Analyser;
use crate::args::Settings;
use crate::config::{self, Config};
use crate::consent::lockfile::Lockfile;
use crate::consent::permissions::Permissions;
use crate::consent::trust::TrustStore;
use crate::files::records;
use crate::gateway::cloud::Cloud;
use crate::gateway::keys::{self, Gateway, KeySource};
use crate::local_mcp::known::KnownTools;
use crate::local_mcp::{LocalMcpError, LocalServers, Timing};
use crate::policy::GivenPolicy;
use crate::processes::environment::Environment;
use crate::registries::{Registries, Registry};
use crate::run_store::RunStore;
use crate::tool_sync::SyncedTools;
use crate::tools::{self, NativeTools};
use crate::traces::Traces;
use crate::workspace::Workspace;

/// One project, opened.
pub(crate) struct App {
    /// The registry's servers that may start here.
    pub(crate) lockfile: Arc<Lockfile>,
    workspace: Arc<Workspace>,
    store: TrustStore,
    permissions: RwLock<Arc<Permissions>>,
    /// The policy that the command was given.
    given_policy: OnceLock<GivenPolicy>,
    native: NativeTools,
    local: LocalServers,
    /// The namespaces of the servers that `.pml.json` names.
    configured: BTreeSet<String>,
    /// The names of their entries that are not namespaces, with the namespaces.
    entry_names: BTreeMap<String, String>,
    /// The port of `pml serve` in `.pml.json`.
    serve_port: Option<u16>,
    /// Whether agents are offered tools next to the meta-tools.
    exposes: bool,
    known: Arc<KnownTools>,
    cloud: Result<Cloud, ErrorBody>,
    traces: Option<Traces>,
    synced: Option<SyncedTools>,
    /// The namespaces of servers whose tools the gateway is told.
    told: BTreeSet<String>,
    registries: Result<Registries, ErrorBody>,
    analyser: OnceLock<Result<Analyser, ErrorBody>>,
    sandboxes: OnceLock<Result<Pool, ErrorBody>>,
    nested: OnceLock<Result<Pool, ErrorBody>>,
    run_store: tokio::sync::Mutex<Option<Arc<RunStore>>>,
}

impl App {
    /// Opens the project that the settings name.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for a file that does not parse: it never counts as a file without rules.
    pub(crate) fn open(settings: &Settings) -> Result<Arc<Self>, ErrorBody> {
        let mut workspace = Workspace::find(settings.workspace.as_deref()).map_err(config_error)?;
        if let Some(warning) = workspace.warning() {
            tracing::warn!("{warning}");
        }
        let store = TrustStore::of_user().map_err(config_error)?;
        let config = Config::open(&mut workspace, &store).map_err(config_error)?;
        let workspace = Arc::new(workspace);
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let environment = Arc::new(Environment::load(&workspace));
        let supervisor = Supervisor::new(own_program());
        let local = LocalServers::new(
            Arc::clone(&workspace),
            Arc::clone(&environment),
            supervisor.clone(),
            Timing::default(),
            store.folder(),
        );
        let home_of = |server: &str| folder_of(store.folder(), &workspace, HOMES, server);
        add_configured(&local, &config, home_of, &store.folder().join(PACKAGES))?;
        let servers = || config.mcp_servers.iter().chain(&config.private_mcps);
        let configured = servers().map(|(namespace, _)| namespace.clone()).collect();
        let entry_names = servers().filter(|(namespace, server)| **namespace != server.name);
        let entry_names = entry_names
            .map(|(namespace, server)| (server.name.clone(), namespace.clone()))
            .collect();
        // An invalid URL or key file is an error only for what needs the gateway.
        let cloud = open_cloud(settings, &config, &workspace.root_paths());
        let gateway = cloud.as_ref().ok().map(Cloud::gateway);
        let list = config.registries.iter().map(|one| (one.origin.clone(), one.optional));
        let registries = Registries::new(list, gateway, &workspace.root_paths());
        let origin = gateway.map(Gateway::origin);
        let is_gateway = |one: &config::Registry| Some(one.origin.as_str()) == origin.as_deref();
        let is_named = gateway.is_some_and(|gateway| !gateway.is_default());
        if is_named && config.registries.iter().any(|one| one.optional && is_gateway(one)) {
            tracing::warn!(
                "`optional` has no effect for the gateway, which `registries` of `.pml.json` lists"
            );
        }
        let known = Arc::new(KnownTools::new(store.folder(), workspace.root()));
        let traces = cloud.as_ref().ok();
        let traces =
            traces.map(|cloud| Traces::new(Arc::clone(&workspace), store.folder(), cloud.clone()));
        let synced =
            cloud.as_ref().ok().map(|cloud| synced_tools(&workspace, &store, &known, cloud));
        let lockfile = Arc::new(Lockfile::load(Arc::clone(&workspace), store.clone())?);
        local.pin_packages(Arc::clone(&lockfile) as _);
        Ok(Arc::new(Self {
            lockfile,
            native: NativeTools::new(Arc::clone(&workspace), environment, supervisor),
            permissions: RwLock::new(Arc::new(config.permissions)),
            given_policy: OnceLock::new(),
            store,
            workspace,
            local,
            configured,
            entry_names,
            serve_port: config.serve_port,
            exposes: config.expose_tools.can_add(),
            known,
            cloud,
            traces,
            synced,
            told: config.synced,
            registries,
            analyser: OnceLock::new(),
            sandboxes: OnceLock::new(),
            nested: OnceLock::new(),
            run_store: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns the gateway.
    ///
    /// # Errors
    /// Returns the error of its URL or key file.
    pub(crate) fn cloud(&self) -> Result<&Cloud, ErrorBody> {
        self.cloud.as_ref().map_err(Clone::clone)
    }

    /// Returns the analyser, which starts with its first use.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub(crate) fn analyser(&self) -> Result<&Analyser, ErrorBody> {
        // A failure is stored as well, so that every later program gets the same error at once.
        let started = self.analyser.get_or_init(|| Analyser::start().map_err(sandbox_error));
        started.as_ref().map_err(Clone::clone)
    }

    /// Returns the sandboxes, which start with their first use.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub(crate) fn sandboxes(&self) -> Result<&Pool, ErrorBody> {
        start_pool(&self.sandboxes, PoolConfig::default)
    }

    /// Returns the sandboxes of capabilities, which start with their first use.
    ///
    /// The pool is separate, and large enough for all concurrent programs at the maximum nesting depth. In a shared
    /// pool, a program could wait for a slot that is held by a program that waits for it.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub(crate) fn nested_sandboxes(&self) -> Result<&Pool, ErrorBody> {
        start_pool(&self.nested, || {
            let defaults = PoolConfig::default();
            PoolConfig { max_running: defaults.max_running * CAPABILITY_DEPTH, ..defaults }
        })
    }

    /// Returns the run store, which is opened or created with its first use, and again if it was deleted.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`. The next use tries again: a full disk may have space by then.
    pub(crate) async fn run_store(self: &Arc<Self>) -> Result<Arc<RunStore>, ErrorBody> {
        let mut opened = self.run_store.lock().await;
        if let Some(store) = opened.as_ref().filter(|store| store.is_there()) {
            return Ok(Arc::clone(store));
        }
        let app = Arc::clone(self);
        // It may wait for another `pml`.
        let open = move || RunStore::open(&app.workspace, app.store.folder());
        let store = match tokio::task::spawn_blocking(open).await {
            Ok(Ok(store)) => Arc::new(store),
            Ok(Err(error)) => return Err(error.body()),
            Err(error) => return Err(ErrorBody::new(ErrorCode::Internal, error.to_string())),
        };
        *opened = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Returns the permissions in force.
    pub(crate) fn permissions(&self) -> Arc<Permissions> {
        // Shared, so that nobody holds the lock during a call. A poisoned lock is harmless: the
        // rules are replaced as a whole, never changed in place.
        Arc::clone(&self.permissions.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Allows a tool permanently: adds exactly that tool to `.pml.json`.
    ///
    /// # Errors
    /// Returns why it could not be written.
    pub(crate) fn allow_always(&self, id: &ToolId) -> Result<(), ErrorBody> {
        config::add_allow(&self.workspace, &self.store, id).map_err(config_error)?;
        self.read_permissions()
    }

    /// Reads the rules of `.pml.json` again, as far as the file is trusted.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for a file that does not parse: the previous rules are no longer what the user wants.
    pub(crate) fn read_permissions(&self) -> Result<(), ErrorBody> {
        let config = Config::load(&self.workspace, &self.store).map_err(config_error)?;
        self.set_permissions(config).map(drop)
    }

    /// Adds a policy that only restricts, for as long as this process lives.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if an example of it does not hold. Nothing must run then.
    pub(crate) fn restrict(&self, policy: GivenPolicy) -> Result<(), ErrorBody> {
        if self.given_policy.set(policy).is_err() {
            return Err(config_error("a command has one policy file"));
        }
        self.read_permissions()
    }

    /// Puts the rules of a file in force, under the policy that the command was given.
    fn set_permissions(&self, config: Config) -> Result<Config, ErrorBody> {
        let config = match self.given_policy.get() {
            Some(given) => config.under(given, &self.workspace).map_err(config_error)?,
            None => config,
        };
        let mut current = self.permissions.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(config.permissions.clone());
        Ok(config)
    }

    /// Returns whether a tool is on this machine, without a lookup in the registry.
    pub(crate) fn is_local(&self, id: &ToolId) -> bool {
        self.is_configured(id) || tools::is_native_tool(id)
    }

    /// Returns what is done with the packages of servers, now and later.
    pub(crate) fn package_activity(&self) -> watch::Receiver<PackageActivity> {
        self.local.activity()
    }

    /// Deletes the files that a server of `.pml.json` stored in its own folder, or one of the registry, by its full name;
    /// returns the number of folders.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if a folder cannot be deleted.
    pub(crate) fn delete_files_of(&self, name: &str) -> Result<usize, ErrorBody> {
        let keys = match self.configured.contains(name) {
            true => vec![name.to_owned()],
            false => {
                let origins = self.registries()?.all().map(Registry::origin);
                calls::keys_of(name, origins, &self.configured)
            }
        };
        let mut deleted = 0;
        for key in keys {
            let folder = folder_of(self.records(), &self.workspace, HOMES, &key);
            match std::fs::remove_dir_all(&folder) {
                Ok(()) => deleted += 1,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(config_error(format!(
                        "cannot delete `{}`: {error}",
                        folder.display()
                    )));
                }
            }
        }
        Ok(deleted)
    }

    /// Forgets which packages were installed for a request, by its name in the lock.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the record cannot be deleted.
    pub(crate) fn forget_package(&self, request: &str) -> Result<(), ErrorBody> {
        let forgotten = packages::forget(&self.records().join(PACKAGES), request);
        forgotten.map_err(|error| config_error(format!("cannot forget `{request}`: {error}")))
    }

    /// Returns the last known tools of a server in `.pml.json`.
    pub(crate) fn known_tools(&self, namespace: &str) -> Option<Arc<Vec<ToolDescriptor>>> {
        self.known.of(namespace, &self.local.spec(namespace)?)
    }

    /// Lists the tools of a server in `.pml.json` if it is running; `None` if it is not. With `may_start`, starts a server
    /// whose tools are unknown.
    ///
    /// # Errors
    /// Returns why the server does not start, or does not list its tools.
    pub(crate) async fn list_tools(
        &self,
        namespace: &str,
        may_start: bool,
        cancel: &CancellationToken,
    ) -> Result<Option<Arc<Vec<ToolDescriptor>>>, LocalMcpError> {
        let Some(spec) = self.local.spec(namespace) else { return Ok(None) };
        // A server whose tools are stored is not started only to list them again.
        let starts = may_start && self.known.of(namespace, &spec).is_none();
        if !starts && !self.local.is_running(namespace).await {
            return Ok(None);
        }
        let check = || self.check_program(namespace);
        let tools = self.local.tools(namespace, &check, cancel).await?;
        self.learn(namespace, &tools);
        Ok(self.known.of(namespace, &spec))
    }

    /// Lists the tools of a running server in the background, if they are not known yet.
    pub(crate) fn learn_tools(self: &Arc<Self>, namespace: &str) {
        if self.known_tools(namespace).is_some() {
            return;
        }
        let (app, namespace) = (Arc::clone(self), namespace.to_owned());
        // Not bound to the run whose call started the server: later runs and searches need the list
        // even if that run is cancelled.
        tokio::spawn(async move {
            let _ = app.list_tools(&namespace, false, &CancellationToken::new()).await;
        });
    }

    /// Returns the port of `pml serve` in `.pml.json`.
    pub(crate) fn serve_port(&self) -> Option<u16> {
        self.serve_port
    }

    /// Returns the workspace.
    pub(crate) fn project(&self) -> &Workspace {
        &self.workspace
    }

    /// Returns the folder of the workspace.
    pub(crate) fn workspace(&self) -> &Path {
        self.workspace.root()
    }

    /// Returns the folder of the user's own records, which a repository cannot contain.
    pub(crate) fn records(&self) -> &Path {
        self.store.folder()
    }

    /// Returns a variable of the user's environment, or of the workspace's `.env`. An empty variable counts as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let environment = Environment::load(&self.workspace);
        environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Stops the local MCP servers, and waits until everything that was recorded is stored.
    pub(crate) async fn shut_down(&self) {
        self.local.shutdown().await;
        let opened = self.run_store.lock().await.clone();
        if let Some(store) = opened
            && let Err(error) = store.flush().await
        {
            tracing::debug!(%error, "The run store was not finished");
        }
    }
}

fn start_pool(
    pool: &OnceLock<Result<Pool, ErrorBody>>,
    config: impl FnOnce() -> PoolConfig,
) -> Result<&Pool, ErrorBody> {
    // One waiting child hides the start-up time from one user. The default, a multiple of the
    // processors, is for a gateway.
    let start = || Pool::new(PoolConfig { warm: 1, ..config() }).map_err(sandbox_error);
    pool.get_or_init(start).as_ref().map_err(Clone::clone)
}

/// Finds the gateway and the source of its API key.
fn open_cloud(settings: &Settings, config: &Config, roots: &[PathBuf]) -> Result<Cloud, ErrorBody> {
    let variable = |name| std::env::var(name).ok();
    let url = variable(keys::URL_VARIABLE);
    let remembered = keys::remembered_gateway().map_err(config_error)?;
    let gateway = Gateway::choose(
        settings.url.as_deref(),
        url.as_deref(),
        config.cloud_url.as_deref(),
        remembered.as_deref(),
    )
    .map_err(config_error)?;
    let keys = KeySource::of_user(&gateway, roots).map_err(config_error)?;
    Cloud::new(gateway, keys)
}

/// Registers the servers of `.pml.json`; `private_mcps` hide `mcpServers`.
fn add_configured(
    local: &LocalServers,
    config: &Config,
    home_of: impl Fn(&str) -> PathBuf,
    packages: &Path,
) -> Result<(), ErrorBody> {
    for (namespace, server) in config.private_mcps.iter().chain(&config.mcp_servers) {
        if local.knows(namespace) {
            tracing::warn!("`{namespace}` in `private_mcps` hides the one in `mcpServers`");
            continue;
        }
        local
            .add(namespace, server.spec(home_of(namespace), packages.to_owned()))
            .map_err(|error| ErrorBody::new(error.code(), error.to_string()))?;
    }
    Ok(())
}

/// The homes of sealed servers, among the user's records.
const HOMES: &str = "server-homes";

/// The installed packages, in the same place.
pub(crate) const PACKAGES: &str = "packages";

/// Returns the folder of a server among the user's records, which may not exist yet.
fn folder_of(records: &Path, workspace: &Workspace, kind: &str, server: &str) -> PathBuf {
    // A path cannot contain NUL, so two pairs of a workspace and a server never share a name.
    let name = records::name(&format!("{}\0{server}", workspace.root().display()));
    records.join(kind).join(name)
}

/// Returns the path of this program, which sealed children and supervisors also run.
fn own_program() -> PathBuf {
    // Not `current_exe()`: this link works even after an update has replaced or deleted the file.
    PathBuf::from("/proc/self/exe")
}

/// Returns the error for a file that cannot be used.
pub(crate) fn config_error(error: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::ConfigInvalid, error.to_string())
}

fn sandbox_error(error: sandbox::SandboxError) -> ErrorBody {
    let code = match &error {
        sandbox::SandboxError::PlatformUnsupported => ErrorCode::PlatformUnsupported,
        _ => ErrorCode::SandboxUnavailable,
    };
    ErrorBody::new(code, error.to_string()).with_details(json!({ "layer": "sandbox" }))
}
