//! What every command of a project shares: its files, rules, tools and gateway.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use protocol::{
    CAPABILITY_DEPTH, ErrorBody, ErrorCode, Fqdn, Install, RegistryEntry, ToolDescriptor, ToolId,
};
use sandbox::{Pool, PoolConfig};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::analyser::Analyser;
use crate::args::Settings;
use crate::cloud::Cloud;
use crate::config::{self, Config};
use crate::consent::approvals::Approvals;
use crate::consent::permissions::Permissions;
use crate::consent::trust::TrustStore;
use crate::create::Finished;
use crate::keys::{self, Gateway};
use crate::local_mcp::environment::Environment;
use crate::local_mcp::supervise::Supervisor;
use crate::local_mcp::{LocalServers, ServerSpec, Timing};
use crate::lockfile::Lockfile;
use crate::tools::{self, NativeTools};
use crate::workspace::Workspace;

/// One project, opened.
pub struct App {
    /// The paused runs of this process.
    pub approvals: Arc<Approvals>,
    /// The programs of its last runs.
    pub finished: Finished,
    /// The registry's servers that may start here.
    pub lockfile: Lockfile,
    workspace: Arc<Workspace>,
    store: TrustStore,
    permissions: RwLock<Permissions>,
    native: NativeTools,
    local: LocalServers,
    /// The namespaces of the servers that `.pml.json` names.
    configured: BTreeSet<String>,
    cloud: Result<Cloud, ErrorBody>,
    analyser: OnceLock<Result<Analyser, ErrorBody>>,
    sandboxes: OnceLock<Result<Pool, ErrorBody>>,
    nested: OnceLock<Result<Pool, ErrorBody>>,
}

impl App {
    /// Opens the project that the settings name.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for a file that does not parse: it is never "no rules".
    pub fn open(settings: &Settings) -> Result<Arc<Self>, ErrorBody> {
        let workspace = Workspace::find(settings.workspace.as_deref()).map_err(config_error)?;
        if let Some(warning) = workspace.warning() {
            tracing::warn!("{warning}");
        }
        let workspace = Arc::new(workspace);
        let store = TrustStore::of_user().map_err(config_error)?;
        let config = Config::load(&workspace, &store).map_err(config_error)?;
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
        );
        add_configured(&local, &config)?;
        let configured = config.mcp_servers.keys().chain(config.private_mcps.keys());
        let configured = configured.cloned().collect();
        let cloud = open_cloud(settings, &config);
        Ok(Arc::new(Self {
            approvals: Arc::default(),
            finished: Finished::default(),
            lockfile: Lockfile::load(Arc::clone(&workspace), store.clone())?,
            native: NativeTools::new(Arc::clone(&workspace), environment, supervisor),
            permissions: RwLock::new(config.permissions),
            store,
            workspace,
            local,
            configured,
            cloud,
            analyser: OnceLock::new(),
            sandboxes: OnceLock::new(),
            nested: OnceLock::new(),
        }))
    }

    /// Returns the gateway.
    ///
    /// # Errors
    /// Returns what is wrong with its URL or key file.
    pub fn cloud(&self) -> Result<&Cloud, ErrorBody> {
        self.cloud.as_ref().map_err(Clone::clone)
    }

    /// Returns the analyser, which starts with its first use.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub fn analyser(&self) -> Result<&Analyser, ErrorBody> {
        let started = self.analyser.get_or_init(|| Analyser::start().map_err(sandbox_error));
        started.as_ref().map_err(Clone::clone)
    }

    /// Returns the sandboxes, which start with their first use.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub fn sandboxes(&self) -> Result<&Pool, ErrorBody> {
        start_pool(&self.sandboxes, PoolConfig::default())
    }

    /// Returns the sandboxes of capabilities, which start with their first use.
    ///
    /// They are apart, and enough for as many as all programs that run can have at work: a program never waits for
    /// a place that one which waits for it holds.
    ///
    /// # Errors
    /// Returns why no sealed child can be started.
    pub fn nested_sandboxes(&self) -> Result<&Pool, ErrorBody> {
        let places = PoolConfig::default();
        let max_running = places.max_running * CAPABILITY_DEPTH;
        start_pool(&self.nested, PoolConfig { max_running, ..places })
    }

    /// Returns the permissions in force.
    pub fn permissions(&self) -> Permissions {
        self.permissions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Allows a tool from now on: writes exactly that tool to `.pml.json`.
    ///
    /// # Errors
    /// Returns why it could not be written.
    pub fn allow_always(&self, id: &ToolId) -> Result<(), ErrorBody> {
        config::add_allow(&self.workspace, &self.store, id).map_err(config_error)?;
        self.read_permissions()
    }

    /// Reads the rules of `.pml.json` as they stand now, as far as they are trusted.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for a file that does not parse: the rules before it
    /// are not those that the user wants now.
    pub fn read_permissions(&self) -> Result<(), ErrorBody> {
        let config = Config::load(&self.workspace, &self.store).map_err(config_error)?;
        *self.permissions.write().unwrap_or_else(PoisonError::into_inner) = config.permissions;
        Ok(())
    }

    /// Tells whether this machine answers a tool without asking the registry.
    pub fn is_local(&self, id: &ToolId) -> bool {
        self.is_configured(id) || is_native(id)
    }

    /// Tells whether a server of `.pml.json` answers a tool.
    pub fn is_configured(&self, id: &ToolId) -> bool {
        self.configured.contains(id.namespace())
    }

    /// Returns the folder of the user's own records, which no workspace can ship.
    pub fn records(&self) -> &Path {
        self.store.folder()
    }

    /// Calls a tool built into the CLI and returns its raw MCP result.
    ///
    /// # Errors
    /// Returns the tool's own error with its code.
    pub async fn call_native(
        &self,
        id: &ToolId,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let answer = self.native.call(id, arguments, cancel).await;
        answer.map_err(|error| ErrorBody::new(error.code, error.message))
    }

    /// Calls a tool of a local MCP server and returns its raw MCP result.
    ///
    /// # Errors
    /// Returns why the server did not answer.
    pub async fn call_local(
        &self,
        id: &ToolId,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let answer = self.local.call(id.namespace(), id.action(), arguments, cancel).await;
        answer.map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Makes a server of the registry known, so that it starts with its first call.
    ///
    /// # Errors
    /// Returns why it cannot be started.
    pub fn add_registered(&self, entry: &RegistryEntry) -> Result<(), ErrorBody> {
        let (Ok(fqdn), Some(install)) = (entry.fqdn.parse::<Fqdn>(), &entry.install) else {
            return Err(ErrorBody::new(
                ErrorCode::ToolUnavailable,
                format!("the registry's entry `{}` does not say how to start it", entry.fqdn),
            ));
        };
        self.local
            .add(fqdn.namespace(), ServerSpec::from(install))
            .map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Starts a server apart from the project's own, lists its tools and ends it.
    ///
    /// # Errors
    /// Returns why it did not start or answer.
    pub async fn tools_of(
        &self,
        namespace: &str,
        install: &Install,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, ErrorBody> {
        let servers = LocalServers::new(
            Arc::clone(&self.workspace),
            Arc::new(Environment::load(&self.workspace)),
            Supervisor::new(own_program()),
            Timing::default(),
        );
        let listed = match servers.add(namespace, ServerSpec::from(install)) {
            Ok(()) => servers.tools(namespace, cancel).await,
            Err(error) => Err(error),
        };
        servers.shutdown().await;
        listed.map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Returns a variable of the user's environment, or of the workspace's `.env`; an empty one is none.
    pub fn variable(&self, name: &str) -> Option<String> {
        let environment = Environment::load(&self.workspace);
        environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Ends every child of this process in order.
    pub async fn shut_down(&self) {
        self.approvals.end_all();
        self.local.shutdown().await;
    }
}

fn start_pool(
    pool: &OnceLock<Result<Pool, ErrorBody>>,
    config: PoolConfig,
) -> Result<&Pool, ErrorBody> {
    let start = || Pool::new(PoolConfig { warm: 1, ..config }).map_err(sandbox_error);
    pool.get_or_init(start).as_ref().map_err(Clone::clone)
}

/// Finds the gateway and the key that is for it.
fn open_cloud(settings: &Settings, config: &Config) -> Result<Cloud, ErrorBody> {
    let variable = |name| std::env::var(name).ok();
    let (url, key) = (variable(keys::URL_VARIABLE), variable(keys::KEY_VARIABLE));
    let gateway =
        Gateway::choose(settings.url.as_deref(), url.as_deref(), config.cloud_url.as_deref())
            .map_err(config_error)?;
    let key =
        keys::find(&gateway, key.as_deref(), keys::user_file().as_deref()).map_err(config_error)?;
    Cloud::new(gateway, key)
}

/// Makes the servers of `.pml.json` known; `private_mcps` hide `mcpServers`, and
/// one of them replaces a native namespace only where it says so.
fn add_configured(local: &LocalServers, config: &Config) -> Result<(), ErrorBody> {
    for (namespace, server) in config.private_mcps.iter().chain(&config.mcp_servers) {
        if local.knows(namespace) {
            tracing::warn!("`{namespace}` in `private_mcps` hides the one in `mcpServers`");
            continue;
        }
        if tools::is_native(namespace) && !server.replaces_native {
            return Err(ErrorBody::new(
                ErrorCode::ConfigInvalid,
                format!(
                    "`.pml.json` names an MCP server `{namespace}`, which would replace a native \
                     tool; rename it, or add `\"override\": true`"
                ),
            ));
        }
        let spec = ServerSpec {
            command: server.command.clone(),
            args: server.args.clone(),
            env: server.env.0.clone(),
            env_required: Vec::new(),
            cwd: server.cwd.clone(),
        };
        local
            .add(namespace, spec)
            .map_err(|error| ErrorBody::new(error.code(), error.to_string()))?;
    }
    Ok(())
}

fn is_native(id: &ToolId) -> bool {
    tools::descriptors(id.namespace()).iter().any(|tool| tool.name == id.action())
}

/// Returns this program's own file, which also runs sealed children and supervisors.
fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

fn config_error(error: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::ConfigInvalid, error.to_string())
}

fn sandbox_error(error: sandbox::SandboxError) -> ErrorBody {
    let code = match &error {
        sandbox::SandboxError::PlatformUnsupported => ErrorCode::PlatformUnsupported,
        _ => ErrorCode::SandboxUnavailable,
    };
    ErrorBody::new(code, error.to_string()).with_details(json!({ "layer": "sandbox" }))
}
