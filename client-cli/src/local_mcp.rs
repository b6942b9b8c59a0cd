//! MCP servers that `pml` starts or calls from this machine: one process or connection each, shared by all calls.

mod error;
mod executed;
pub(crate) mod known;
mod launch;
mod opened;
mod remote;
mod server;
mod spec;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use protocol::{ErrorBody, ToolDescriptor};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use error::LocalMcpError;
pub use execution::mcp_process::{HostList, ListOf, Reachable, Seal};
use execution::mcp_process::{InUse, Starter};
use execution::packages::{Installer, LockedPackages, Pins, Request};
use execution::processes::supervise::Supervisor;
pub(crate) use opened::Opened;
pub(crate) use remote::Remote;
pub use spec::ServerSpec;
pub(crate) use spec::{Files, Folders, Grant, ListedServer, starts_container};

use crate::files::hashes::FileHashes;
use crate::processes::environment::{Environment, check_variable};
use crate::workspace::Workspace;
pub(crate) use execution::packages::Activity;
use server::Server;

/// What to say when this machine cannot seal a server.
const UNCONFINED: &str = "; `\"sealed\": false` in its entry in `.pml.json` starts it unconfined";

/// Time limits, which only tests change.
#[derive(Debug, Clone)]
pub struct Timing {
    /// The time limit of a server's first answer, including a download by `npx` or `uvx`.
    pub start: Duration,
    /// How long a server without calls is kept running.
    pub idle: Duration,
    /// How long a server may take to answer again after a cancelled call.
    pub cancel_grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            idle: Duration::from_secs(5 * 60),
            cancel_grace: Duration::from_secs(5),
        }
    }
}

/// Permits a start, immediately before it.
pub type StartCheck<'a> = dyn Fn() -> Result<(), ErrorBody> + Send + Sync + 'a;

/// The state that all servers share.
#[derive(Debug)]
struct Shared {
    workspace: Arc<Workspace>,
    environment: Arc<Environment>,
    starter: Starter,
    timing: Timing,
    /// What is done with packages.
    activity: watch::Sender<Activity>,
    /// Knows from which packages servers start.
    pins: OnceLock<Arc<dyn Pins>>,
    /// The hashes of programs.
    hashes: FileHashes,
    /// Cancelled at shutdown: pending starts are aborted, and no server starts afterwards.
    closing: CancellationToken,
}

/// The MCP servers of one workspace. Dropping it stops all of them.
#[derive(Debug)]
pub struct LocalServers {
    shared: Arc<Shared>,
    servers: RwLock<HashMap<String, Arc<Server>>>,
}

impl LocalServers {
    /// Creates an empty set; nothing is started before the first call. `records` is the folder of the user's own records.
    pub fn new(
        workspace: Arc<Workspace>,
        environment: Arc<Environment>,
        supervisor: Supervisor,
        timing: Timing,
        records: &Path,
    ) -> Self {
        let closing = CancellationToken::new();
        let shared = Shared {
            workspace,
            environment,
            starter: Starter::new(supervisor, timing.start, UNCONFINED),
            timing,
            activity: watch::Sender::default(),
            pins: OnceLock::new(),
            hashes: FileHashes::new(records),
            closing,
        };
        let shared = Arc::new(shared);
        Self { shared, servers: RwLock::new(HashMap::new()) }
    }

    /// Adds a server under a namespace. Adding the same again does nothing.
    ///
    /// # Errors
    /// Returns [`LocalMcpError::Duplicate`] if the namespace has a different server, and
    /// [`LocalMcpError::Environment`] if the entry sets a variable that it may not set.
    pub fn add(&self, namespace: &str, spec: ServerSpec) -> Result<(), LocalMcpError> {
        for (name, value) in &spec.env {
            check_variable(name, value).map_err(|source| LocalMcpError::Environment {
                server: namespace.to_owned(),
                source,
            })?;
        }
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        match servers.get(namespace) {
            Some(known) if *known.spec() == spec => Ok(()),
            Some(_) => Err(LocalMcpError::Duplicate { server: namespace.to_owned() }),
            None => {
                let server = Server::new(namespace, spec, Arc::clone(&self.shared));
                servers.insert(namespace.to_owned(), Arc::new(server));
                Ok(())
            }
        }
    }

    /// Has the packages from which servers start locked. Without it, each is installed as it is the first time.
    pub(crate) fn pin_packages(&self, pins: Arc<dyn Pins>) {
        // Set once, when the project is opened.
        let _ = self.shared.pins.set(pins);
    }

    /// Returns the package that a server starts from; `None` for another program.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn request(&self, namespace: &str) -> Result<Option<Request>, LocalMcpError> {
        self.server(namespace)?.request()
    }

    /// Finds out what would be installed for a request now, whatever is locked; `packages` is the folder of all packages.
    ///
    /// # Errors
    /// Returns why that cannot be found out.
    pub(crate) async fn newest_packages(
        &self,
        packages: &Path,
        request: &Request,
    ) -> Result<LockedPackages, String> {
        self.shared.installer(packages).newest(request).await
    }

    /// Returns how a lock names the package that a server starts from; `None` for another program.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn package_request(&self, namespace: &str) -> Result<Option<String>, LocalMcpError> {
        Ok(self.request(namespace)?.map(|request| request.locked_name()))
    }

    /// Returns what is done with packages, now and later.
    pub(crate) fn activity(&self) -> watch::Receiver<Activity> {
        self.shared.activity.subscribe()
    }

    /// Returns whether a namespace has a server.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).contains_key(namespace)
    }

    /// Calls a tool and returns its MCP `CallToolResult`, starting the server if it is not running, without a check.
    ///
    /// A call is sent once. If the server dies during the call, the call fails and is not repeated, because it may have
    /// had effects.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`]; a result with `isError` is not an error here.
    pub async fn call(
        &self,
        namespace: &str,
        action: &str,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        let opened = self.open(namespace, action, &arguments, &|| Ok(()), cancel).await?;
        opened.call(action, arguments, &mut None, cancel).await
    }

    /// Opens a server for a call of one of its tools, starting it if it is not running and `check` permits.
    ///
    /// # Errors
    /// Returns why it does not start, or why the call cannot be made; then it is not started.
    pub(crate) async fn open(
        &self,
        namespace: &str,
        action: &str,
        arguments: &Value,
        check: &StartCheck<'_>,
        cancel: &CancellationToken,
    ) -> Result<Opened, LocalMcpError> {
        let server = self.server(namespace)?;
        server.check_call(action, arguments)?;
        Opened::open(server, check, cancel).await
    }

    /// Checks that a tool of a server can be called: the entry of the server may list its tools.
    ///
    /// # Errors
    /// Returns [`LocalMcpError::NotListed`] with the tools that it lists.
    pub(crate) fn check_listed(&self, namespace: &str, action: &str) -> Result<(), LocalMcpError> {
        self.server(namespace)?.check_listed(action)
    }

    /// Checks that a server can be started, without starting it.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`] naming the program or the variable that is missing.
    pub(crate) fn check(&self, namespace: &str) -> Result<(), LocalMcpError> {
        self.server(namespace)?.check()
    }

    /// Checks that a server that may not be added yet can be added and started.
    ///
    /// # Errors
    /// As [`add`](Self::add) and [`check`](Self::check).
    pub(crate) fn check_new(&self, namespace: &str, spec: ServerSpec) -> Result<(), LocalMcpError> {
        if self.spec(namespace).is_some_and(|known| known != spec) {
            return Err(LocalMcpError::Duplicate { server: namespace.to_owned() });
        }
        Server::new(namespace, spec, Arc::clone(&self.shared)).check()
    }

    /// Returns what starting a server that is not added yet would grant it, without starting it.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn grant_of(
        &self,
        namespace: &str,
        spec: ServerSpec,
    ) -> Result<Grant, LocalMcpError> {
        Server::new(namespace, spec, Arc::clone(&self.shared)).grant()
    }

    /// Returns the files that run when a server starts; `None` for one that is not started here.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`LocalMcpError::Start`] for a file that cannot be read.
    pub(crate) fn files(&self, namespace: &str) -> Result<Option<Files>, LocalMcpError> {
        self.server(namespace)?.files()
    }

    /// Returns the tools of a server, starting it if it does not run and `check` permits.
    ///
    /// # Errors
    /// Returns [`LocalMcpError`] when it does not start or answer.
    pub async fn tools(
        &self,
        namespace: &str,
        check: &StartCheck<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        Opened::open(self.server(namespace)?, check, cancel).await?.current_tools(cancel).await
    }

    /// Returns how a server is started or reached.
    pub(crate) fn spec(&self, namespace: &str) -> Option<ServerSpec> {
        self.server(namespace).ok().map(|server| server.spec().clone())
    }

    /// Returns a server as it is listed.
    pub(crate) fn listed(&self, namespace: &str) -> Option<ListedServer> {
        self.server(namespace).ok().map(|server| server.listed())
    }

    /// Returns whether a server runs.
    pub(crate) async fn is_running(&self, namespace: &str) -> bool {
        match self.server(namespace) {
            Ok(server) => server.is_running().await,
            Err(_) => false,
        }
    }

    /// Stops every server and waits until they have exited; none starts after this.
    pub async fn shutdown(&self) {
        // First, so that pending starts are aborted and no call starts a server again.
        self.shared.closing.cancel();
        // Copied, because the lock must not be held while the servers stop.
        let servers: Vec<Arc<Server>> = {
            let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
            servers.values().cloned().collect()
        };
        stop_all(servers).await;
    }

    fn server(&self, namespace: &str) -> Result<Arc<Server>, LocalMcpError> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers
            .get(namespace)
            .cloned()
            .ok_or_else(|| LocalMcpError::Unknown { server: namespace.to_owned() })
    }
}

async fn stop_all(servers: Vec<Arc<Server>>) {
    // All at once: a server may take more than a second to stop.
    let mut ends = tokio::task::JoinSet::new();
    for server in servers {
        ends.spawn(async move { server.stop().await });
    }
    ends.join_all().await;
}

impl Shared {
    /// Replaces `${workspace}` with the workspace's path.
    fn expand_workspace(&self, text: &str) -> String {
        // Not lossy in fact: `Workspace::open` refuses a path that is not UTF-8.
        text.replace("${workspace}", &self.workspace.root().to_string_lossy())
    }

    /// Returns a path as it is shown and recorded: relative to the workspace if it is in it.
    fn shown(&self, path: &Path) -> String {
        let path = path.strip_prefix(self.workspace.root()).unwrap_or(path);
        path.to_string_lossy().into_owned()
    }

    fn installer<'a>(&'a self, packages: &'a Path) -> Installer<'a> {
        let Self { environment, starter, activity, .. } = self;
        Installer {
            folder: packages,
            programs: environment.programs(),
            variables: environment.base(),
            supervisor: &starter.supervisor,
            activity,
        }
    }

    fn folder(&self, cwd: Option<&str>) -> PathBuf {
        self.workspace.root().join(self.expand_workspace(cwd.unwrap_or("")))
    }
}
