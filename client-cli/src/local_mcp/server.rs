//! One server: what its entry says, and its start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use execution::mcp_process::{InUse, Slot, end};
use execution::packages::Request;
use execution::processes::programs::{Program, ProgramError};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::executed;
use super::launch::{Launch, Source, Start, start};
use super::remote::{Prepared, Redactor};
use super::{
    Files, Grant, ListedServer, LocalMcpError, Remote, Seal, ServerSpec, Shared, StartCheck,
};

/// One server of the workspace.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    spec: ServerSpec,
    pub(super) shared: Arc<Shared>,
    slot: Arc<Mutex<Slot>>,
}

impl Server {
    pub(super) fn new(name: &str, spec: ServerSpec, shared: Arc<Shared>) -> Self {
        Self { name: name.to_owned(), spec, shared, slot: Arc::default() }
    }

    pub(super) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Checks that a call can be made: that the entry has the tool, and that the arguments are an object.
    pub(super) fn check_call(&self, action: &str, arguments: &Value) -> Result<(), LocalMcpError> {
        self.check_listed(action)?;
        match arguments {
            Value::Null | Value::Object(_) => Ok(()),
            _ => {
                let (server, action) = (self.name.clone(), action.to_owned());
                Err(LocalMcpError::Arguments { server, action })
            }
        }
    }

    /// Checks that a tool can be called, if the entry lists the tools.
    pub(super) fn check_listed(&self, action: &str) -> Result<(), LocalMcpError> {
        if self.spec.offers(action) {
            return Ok(());
        }
        let server = &self.name;
        let listed = self.spec.tools.iter().flatten().map(|tool| format!("`{server}:{tool}`"));
        Err(LocalMcpError::NotListed {
            server: server.clone(),
            action: action.to_owned(),
            listed: listed.collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns whether it is running. Waits for a start in progress.
    pub(super) async fn is_running(&self) -> bool {
        self.slot.lock().await.running.as_ref().is_some_and(|running| running.is_alive())
    }

    /// Stops the server if it runs, and waits for its exit.
    pub(super) async fn stop(&self) {
        // The lock waits for a start in progress, so that no process is missed.
        let running = self.slot.lock().await.running.take();
        if let Some(running) = running {
            end(&running).await;
        }
    }

    pub(super) fn cancelled(&self) -> LocalMcpError {
        LocalMcpError::Cancelled { server: self.name.clone() }
    }

    /// Returns the running server, starting it if needed and if `check` permits. Concurrent calls wait for the same start.
    pub(super) async fn running(
        &self,
        check: &StartCheck<'_>,
        cancel: &CancellationToken,
    ) -> Result<InUse, LocalMcpError> {
        let slot = tokio::select! {
            () = cancel.cancelled() => return Err(self.cancelled()),
            slot = Arc::clone(&self.slot).lock_owned() => slot,
        };
        if let Some(running) = slot.running.as_ref().filter(|running| running.is_alive()) {
            return Ok(InUse::new(running));
        }
        // Under the lock of the slot: a process that ended after an earlier check starts again only through this one.
        check().map_err(|error| LocalMcpError::NotAllowed(Box::new(error)))?;
        let launch = self.launch()?;
        // In a task, so that the start continues for other calls if this one is cancelled.
        let (name, shared) = (self.name.clone(), Arc::clone(&self.shared));
        let start = tokio::spawn(start(name, shared, launch, slot));
        tokio::select! {
            () = cancel.cancelled() => Err(self.cancelled()),
            started = start => started.unwrap_or_else(|_| {
                let (server, reason) = (self.name.clone(), "the task that starts it crashed".to_owned());
                Err(LocalMcpError::Start { server, reason, stderr: String::new() })
            }),
        }
    }

    /// Checks that it can be started, without starting it.
    pub(super) fn check(&self) -> Result<(), LocalMcpError> {
        self.launch().map(drop)
    }

    /// Returns it as it is listed. What is invalid or missing does not matter here.
    pub(super) fn listed(&self) -> ListedServer {
        let package = self.package(self.arguments()).ok().flatten();
        let installed = package.as_ref().and_then(|package| {
            self.shared.installer(&package.seal.packages).installed(&package.request)
        });
        let command = std::iter::once(&self.spec.command).chain(&self.spec.args).cloned();
        let url = self.spec.remote.as_ref().map(Remote::origin);
        ListedServer {
            name: self.name.clone(),
            command: if url.is_some() { Vec::new() } else { command.collect() },
            url,
            hosts: self.spec.seal.as_ref().map(Seal::hosts),
            package: package.map(|package| package.request.shown_with_place()),
            installed,
        }
    }

    /// Returns what starting it grants it.
    pub(super) fn grant(&self) -> Result<Grant, LocalMcpError> {
        let variables =
            self.shared.environment.sources(&self.spec.env_required).map_err(|source| {
                LocalMcpError::Environment { server: self.name.clone(), source }
            })?;
        let hosts = self.spec.seal.as_ref().map(Seal::hosts);
        let (program, package, request) = match self.package(self.arguments())? {
            None => (self.program(&self.folder())?, None, None),
            Some(Package { request, installer, .. }) => {
                (installer, Some(request.shown_with_place()), Some(request.locked_name()))
            }
        };
        let files = self.files()?.unwrap_or_default();
        Ok(Grant { program, package, request, variables, hosts, files })
    }

    /// Returns the package that it starts from; `None` for another program.
    pub(super) fn request(&self) -> Result<Option<Request>, LocalMcpError> {
        Ok(self.package(self.arguments())?.map(|package| package.request))
    }

    /// Returns the files that run when it starts; `None` if it is not started here.
    pub(super) fn files(&self) -> Result<Option<Files>, LocalMcpError> {
        if self.spec.remote.is_some() {
            return Ok(None);
        }
        let arguments = self.arguments();
        let (program, code) = match self.package(arguments.clone())? {
            // The files of the package are compared when it starts. Its installer does not run then.
            Some(package) => (package.runtime, Vec::new()),
            None => {
                let folder = self.folder();
                let program = self.program(&folder)?;
                // An entry of the registry must not make the lock have the hash of a file of the user.
                let code = match self.spec.of_registry {
                    true => Vec::new(),
                    false => executed::code(&program, &arguments, &folder),
                };
                (program, code)
            }
        };
        let paths = std::iter::once(program.file).chain(program.interpreters).chain(code);
        let files = paths.map(|path| {
            let hash = self.shared.hashes.of(&path).map_err(|error| LocalMcpError::Start {
                server: self.name.clone(),
                reason: format!("`{}` cannot be hashed: {error}", path.display()),
                stderr: String::new(),
            })?;
            Ok((self.shared.shown(&path), hash))
        });
        files.collect::<Result<_, _>>().map(Some)
    }

    fn folder(&self) -> PathBuf {
        match &self.spec.own_folder {
            Some(folder) => folder.clone(),
            None => self.shared.folder(self.spec.cwd.as_deref()),
        }
    }

    /// Resolves its program. A program that the registry names never resolves into the workspace.
    fn program(&self, folder: &Path) -> Result<Program, LocalMcpError> {
        let named = self.shared.expand_workspace(&self.spec.command);
        let refused = |source| LocalMcpError::Program { server: self.name.clone(), source };
        let program = self.shared.environment.programs().find(&named, folder).map_err(refused)?;
        if self.spec.of_registry && program.is_of_workspace {
            return Err(refused(ProgramError::OfRegistry { program: named }));
        }
        Ok(program)
    }

    /// Returns its arguments, filled in.
    fn arguments(&self) -> Vec<String> {
        self.spec.args.iter().map(|argument| self.filled(argument)).collect()
    }

    /// Replaces `${workspace}` and, for a sealed server, `${home}`.
    fn filled(&self, text: &str) -> String {
        let text = self.shared.expand_workspace(text);
        match &self.spec.seal {
            Some(seal) => text.replace("${home}", &seal.home.to_string_lossy()),
            None => text,
        }
    }

    /// Returns the package that it starts from, if `pml` installs that; `None` for another program.
    fn package(&self, arguments: Vec<String>) -> Result<Option<Package>, LocalMcpError> {
        let entry = |reason| LocalMcpError::Entry { server: self.name.clone(), reason };
        let Some(seal) = &self.spec.seal else { return Ok(None) };
        if self.spec.cannot_be_sealed() {
            return Err(entry("starts a container, which no seal confines: another program runs it; to start it without, add \"sealed\": false".to_owned()));
        }
        let Some(request) = Request::of(&self.spec.command, &arguments) else { return Ok(None) };
        let request = request.map_err(entry)?;
        let installer = self.shared.installer(&seal.packages).program(&request);
        let runtime = self.shared.installer(&seal.packages).runtime(&request);
        let missing = |source| LocalMcpError::Program { server: self.name.clone(), source };
        let (installer, runtime) =
            installer.and_then(|installer| Ok((installer, runtime?))).map_err(missing)?;
        Ok(Some(Package { request, installer, runtime, seal: seal.clone() }))
    }

    /// Returns what removes the values of headers from its answers.
    pub(super) fn redactor(&self) -> Result<Redactor, LocalMcpError> {
        Ok(self.prepared()?.map(|prepared| prepared.redactor).unwrap_or_default())
    }

    fn prepared(&self) -> Result<Option<Prepared>, LocalMcpError> {
        let prepared = self.spec.remote.as_ref();
        let prepared = prepared.map(|remote| remote.prepare(&self.shared.environment)).transpose();
        prepared.map_err(|source| LocalMcpError::Environment { server: self.name.clone(), source })
    }

    fn launch(&self) -> Result<Start, LocalMcpError> {
        if let Some(prepared) = self.prepared()? {
            return Ok(Start::Connection(Box::new(prepared)));
        }
        let (spec, shared, server) = (&self.spec, &self.shared, || self.name.clone());
        // First, because `for_server` would read `${workspace}` as a variable of the user.
        let filled =
            spec.env.iter().map(|(name, value)| (name.clone(), self.filled(value))).collect();
        let variables = shared
            .environment
            .for_server(&filled, &spec.env_required)
            .map_err(|source| LocalMcpError::Environment { server: server(), source })?;
        let folder = self.folder();
        let arguments = self.arguments();
        let source = match self.package(arguments.clone())? {
            Some(Package { request, seal, .. }) => {
                let locked_as = spec.locked_as.as_ref().unwrap_or(&self.name).clone();
                Source::Package { request, seal, locked_as }
            }
            None => {
                let (program, seal) = (self.program(&folder)?, spec.seal.clone());
                Source::Program { program, arguments, seal }
            }
        };
        Ok(Start::Program(Box::new(Launch { source, variables, folder })))
    }
}

/// A package from which a server starts.
struct Package {
    request: Request,
    /// The program that installs it.
    installer: Program,
    /// The program that runs what it contains.
    runtime: Program,
    seal: Seal,
}
