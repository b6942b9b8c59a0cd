//! One server: its start and its calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use execution::mcp_client::TOO_LARGE;
use protocol::ToolDescriptor;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, PaginatedRequestParams, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::remote::{self, Prepared, Redactor};
use super::running::{InUse, Running, Slot, Start, end, start};
use super::spawn::{Launch, Source};
use super::{Grant, ListedServer, LocalMcpError, Remote, Seal, ServerSpec, Shared};
use crate::packages::Request;
use crate::processes::programs::{Program, ProgramError};

/// The maximum number of tools of a server.
const TOOLS_LIMIT: usize = 2_000;

/// The maximum number of pages of tools that are read.
const PAGES_LIMIT: usize = 100;

/// One server of the workspace.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    spec: ServerSpec,
    shared: Arc<Shared>,
    slot: Arc<Mutex<Slot>>,
}

impl Server {
    pub(super) fn new(name: &str, spec: ServerSpec, shared: Arc<Shared>) -> Self {
        Self { name: name.to_owned(), spec, shared, slot: Arc::default() }
    }

    pub(super) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Calls a tool; the values of headers are redacted in the answer. `refused` gets the connections that the server was
    /// refused meanwhile.
    pub(super) async fn call(
        &self,
        action: &str,
        arguments: Value,
        refused: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        self.check_listed(action)?;
        let redactor = self.redactor()?;
        let mut answer = self.call_unredacted(action, arguments, refused, cancel).await;
        if let Ok(value) = &mut answer {
            redactor.value(value);
        }
        answer.map_err(|error| redactor.error(error))
    }

    async fn call_unredacted(
        &self,
        action: &str,
        arguments: Value,
        noted: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, LocalMcpError> {
        let mut params = CallToolRequestParams::new(action.to_owned());
        params.arguments = match arguments {
            Value::Null => Some(serde_json::Map::new()),
            Value::Object(fields) => Some(fields),
            _ => {
                let (server, action) = (self.name.clone(), action.to_owned());
                return Err(LocalMcpError::Arguments { server, action });
            }
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let running = self.running(cancel).await?;
        let refusals = &running.0.session.refusals;
        let mark = refusals.mark();
        let answer = self.ask(&running, request, cancel).await;
        // Calls at the same time may have caused it as well: the proxy does not know for which call the server connects.
        let refused = refusals.since(mark);
        *noted = Some(refused.clone()).filter(|refused| !refused.is_empty());
        let answer = answer.map_err(|error| match refused.is_empty() {
            true => error,
            false => error.with_note(&refused_note(&refused)),
        })?;
        let invalid_answer = |reason: &str| LocalMcpError::Answer {
            server: self.name.clone(),
            reason: reason.to_owned(),
        };
        let value = match answer {
            ServerResult::CallToolResult(result) => serde_json::to_value(result),
            ServerResult::InputRequiredResult(_) => {
                return Err(invalid_answer(
                    "it asks the user for input, which is not supported yet",
                ));
            }
            ServerResult::CreateTaskResult(_) => {
                return Err(invalid_answer("it created a task, which was not requested"));
            }
            // The library recognises results by their fields, so it may read an unusual one as
            // another type. What counts is checked below.
            other => serde_json::to_value(other),
        };
        let mut value = value.map_err(|error| invalid_answer(&error.to_string()))?;
        if !refused.is_empty() && value["isError"] == true {
            let note = serde_json::json!({ "type": "text", "text": refused_note(&refused) });
            if let Some(content) = value["content"].as_array_mut() {
                content.push(note);
            }
        }
        let is_result = value.get("content").is_some_and(Value::is_array)
            || value.get("structuredContent").is_some();
        if is_result { Ok(value) } else { Err(invalid_answer("it is not a tool result")) }
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

    /// Lists the tools that can be called.
    pub(super) async fn tools(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        let redactor = self.redactor()?;
        let mut tools =
            self.tools_unredacted(cancel).await.map_err(|error| redactor.error(error))?;
        tools.retain(|tool| self.spec.offers(&tool.name));
        if self.spec.remote.is_none() {
            return Ok(tools);
        }
        let invalid_answer = |error: serde_json::Error| LocalMcpError::Answer {
            server: self.name.clone(),
            reason: error.to_string(),
        };
        let mut value = serde_json::to_value(tools).map_err(invalid_answer)?;
        redactor.value(&mut value);
        serde_json::from_value(value).map_err(invalid_answer)
    }

    async fn tools_unredacted(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<ToolDescriptor>, LocalMcpError> {
        let running = self.running(cancel).await?;
        let invalid_answer =
            |reason: String| LocalMcpError::Answer { server: self.name.clone(), reason };
        let mut tools: Vec<ToolDescriptor> = Vec::new();
        let mut page = PaginatedRequestParams::default();
        // A server can return a cursor with every page, even with empty ones.
        for _ in 0..PAGES_LIMIT {
            let listing = running.0.session.service.peer().list_tools(Some(page.clone()));
            let listed = tokio::select! {
                () = cancel.cancelled() => return Err(self.cancelled()),
                listed = tokio::time::timeout(self.shared.timing.start, listing) => listed,
            };
            let listed = match listed {
                Ok(Ok(listed)) => listed,
                Ok(Err(error)) => return Err(self.failure(&running.0, error).await),
                Err(_) => {
                    return Err(invalid_answer("it did not list its tools in time".to_owned()));
                }
            };
            for tool in listed.tools {
                let tool = serde_json::to_value(tool).and_then(serde_json::from_value);
                let tool: ToolDescriptor =
                    tool.map_err(|error| invalid_answer(error.to_string()))?;
                if tools.iter().any(|known| known.name == tool.name) {
                    return Err(invalid_answer(format!("it has two tools named `{}`", tool.name)));
                }
                tools.push(tool);
            }
            match listed.next_cursor {
                Some(cursor) if tools.len() <= TOOLS_LIMIT => page.cursor = Some(cursor),
                Some(_) => break,
                None if tools.len() <= TOOLS_LIMIT => return Ok(tools),
                None => break,
            }
        }
        Err(invalid_answer(format!("it lists more than {TOOLS_LIMIT} tools")))
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

    fn cancelled(&self) -> LocalMcpError {
        LocalMcpError::Cancelled { server: self.name.clone() }
    }

    /// Sends a request and waits for its answer.
    async fn ask(
        &self,
        running: &InUse,
        request: ClientRequest,
        cancel: &CancellationToken,
    ) -> Result<ServerResult, LocalMcpError> {
        let peer = running.0.session.service.peer();
        // No time limit here: the clock of the run cancels the call, and stops while the user is
        // asked.
        let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle: RequestHandle<RoleClient> = tokio::select! {
            () = cancel.cancelled() => return Err(self.cancelled()),
            sent = sent => match sent {
                Ok(handle) => handle,
                Err(error) => return Err(self.failure(&running.0, error).await),
            },
        };
        // Declared after `handle`, so that it is dropped first and can still notify the server.
        let mut notice = CancelNotice {
            running,
            id: Some(handle.id.clone()),
            grace: self.shared.timing.cancel_grace,
        };
        tokio::select! {
            () = cancel.cancelled() => Err(self.cancelled()),
            answer = &mut handle.rx => {
                notice.id = None;
                match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                    Ok(answer) => Ok(answer),
                    Err(error) => Err(self.failure(&running.0, error).await),
                }
            }
        }
    }

    async fn failure(&self, running: &Running, error: ServiceError) -> LocalMcpError {
        let server = self.name.clone();
        match error {
            ServiceError::McpError(error) if error.code.0 == TOO_LARGE => {
                LocalMcpError::TooLarge { server }
            }
            ServiceError::McpError(error) => LocalMcpError::Refused {
                server,
                code: error.code.0,
                message: error.message.into_owned(),
            },
            ServiceError::TransportSend(error) if self.spec.remote.is_some() => {
                let reason = remote::reason(&error);
                LocalMcpError::Died { server, reason, stderr: String::new() }
            }
            ServiceError::TransportClosed
            | ServiceError::TransportSend(_)
            | ServiceError::Cancelled { .. } => {
                let reason = running.exit_reason().await;
                LocalMcpError::Died { server, reason, stderr: running.session.diagnosis.stderr() }
            }
            other => LocalMcpError::Answer { server, reason: other.to_string() },
        }
    }

    /// Returns the running server, starting it if needed. Concurrent calls wait for the same start.
    async fn running(&self, cancel: &CancellationToken) -> Result<InUse, LocalMcpError> {
        let slot = tokio::select! {
            () = cancel.cancelled() => return Err(self.cancelled()),
            slot = Arc::clone(&self.slot).lock_owned() => slot,
        };
        if let Some(running) = slot.running.as_ref().filter(|running| running.is_alive()) {
            return Ok(InUse::new(running));
        }
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
        let (program, package) = match self.package(self.arguments())? {
            None => (self.program(&self.folder())?, None),
            Some(package) => (package.installer, Some(package.request.shown_with_place())),
        };
        Ok(Grant { program, package, variables, hosts })
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
        let installer = installer
            .map_err(|source| LocalMcpError::Program { server: self.name.clone(), source })?;
        Ok(Some(Package { request, installer, seal: seal.clone() }))
    }

    fn redactor(&self) -> Result<Redactor, LocalMcpError> {
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
            Some(Package { request, seal, .. }) => Source::Package { request, seal },
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
    seal: Seal,
}

/// Returns what to say about a call during which the server was refused connections.
fn refused_note(refused: &str) -> String {
    format!("`pml` refused it a connection: {refused}")
}

/// Notifies the server on drop that a call is cancelled, unless it was answered.
struct CancelNotice<'a> {
    running: &'a InUse,
    id: Option<rmcp::model::RequestId>,
    grace: Duration,
}

impl Drop for CancelNotice<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The server counts as in use until `cancel_call` has checked that it still answers.
        runtime.spawn(cancel_call(InUse::new(&self.running.0), id, self.grace));
    }
}

/// Cancels a call, and stops the server if it no longer answers.
async fn cancel_call(running: InUse, id: rmcp::model::RequestId, grace: Duration) {
    let peer: &Peer<RoleClient> = running.0.session.service.peer();
    let reason = Some("the run was cancelled".to_owned());
    let params = CancelledNotificationParam::new(Some(id), reason);
    let notice = CancelledNotification::new(params);
    let sent = tokio::time::timeout(grace, peer.send_notification(notice.into())).await;
    let answers = tokio::time::timeout(grace, peer.list_tools(None)).await;
    // Any answer shows that the server is alive. A hung server is not stopped while other calls use it.
    let is_hung = sent.is_err() || answers.is_err();
    // `running` itself counts as one call.
    if is_hung && running.0.calls.load(Ordering::SeqCst) <= 1 {
        end(&running.0).await;
    }
}
