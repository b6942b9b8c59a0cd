//! MCP servers that run as sealed processes of this gateway: one for each tenant, server and set of secrets.
//!
//! Only servers of the catalog run, and only those that the operator has installed. A process belongs to one tenant: it has
//! a folder, a network and variables of its own, and no call of another tenant reaches it. It is confined as `pml` confines
//! servers on the user's machine, by the same code, with less of the system and with limits.

mod answer;
pub(crate) mod launch;
mod places;
pub(crate) mod store;

use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use execution::mcp_client::{Slot as MemorySlot, traced};
use execution::mcp_process::{InUse, NotStarted, Slot, Starter, start_in};
use execution::processes::programs::Programs;
use execution::processes::supervise::Supervisor;
use execution::spans::{Side, Span, Transport};
use moka::sync::Cache;
use protocol::redaction::Redactor;
use protocol::{ErrorBody, ErrorCode, Integrity, Scope};
use registry::ResolvedTool;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use sandbox::Bounds;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::answer::{ending, no_place, not_started, settle, unavailable};
use self::launch::{Launch, secrets_hash};
use self::places::{Full, Place, Places};
use self::store::{Known, Store};
use super::breaker::{Breaker, FAILURES};
use super::{BREAKERS, CallCount};
use crate::admission::memory::{Memory, Reserved};
use crate::config::{Secret, StdioSettings};
use crate::metrics::{Metrics, StdioStart, UpstreamEnd};

/// The time limit of a server's first answer.
pub(crate) const START: Duration = Duration::from_secs(20);

/// How long a server may take to answer anything after a cancelled call.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// How long a server without calls is remembered beyond its end, with its failures.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// The maximum number of servers that are remembered.
const SERVERS: u64 = 10_000;

/// Identifies a process: its tenant, the server, what exactly is installed, and the hash of the secrets that it gets. So a
/// process that was started with a secret never serves a call that has another one, or none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    scope: Scope,
    server: String,
    installed: [u8; 32],
    secrets: Option<[u8; 32]>,
}

/// The processes of this gateway's `stdio` servers.
pub(crate) struct StdioServers {
    known: Known,
    store: Store,
    programs: Programs,
    starter: Starter,
    idle: Duration,
    bounds: Bounds,
    places: Arc<Places>,
    servers: Cache<Key, Arc<Mutex<Slot>>>,
    /// For each process: nobody notices or causes failures of others, not even with a wrong secret.
    breakers: Cache<Key, Arc<Breaker>>,
    memory: Memory,
    metrics: Arc<Metrics>,
    closing: CancellationToken,
    /// Tells other gateways that the temporary folders are in use.
    running: OnceLock<Option<File>>,
}

impl StdioServers {
    /// Prepares to run what is installed; starts nothing.
    pub(crate) fn new(
        store: Store,
        settings: &StdioSettings,
        memory: Memory,
        metrics: Arc<Metrics>,
    ) -> Self {
        let path = std::env::var("PATH").ok();
        let idle = Duration::from_secs(settings.idle_seconds.into());
        let mut starter = Starter::new(Supervisor::default(), START, "");
        starter.temporary = Some(store.running());
        let places = Places::new(settings.processes.into(), settings.tenant_processes.into());
        let servers = Self {
            known: Known::new(store.clone()),
            store,
            programs: Programs::new(path.as_deref(), &[]),
            starter,
            idle,
            bounds: settings.bounds(),
            places: Arc::new(places),
            servers: Cache::builder()
                .max_capacity(SERVERS)
                // One that is forgotten ends.
                .time_to_idle(REMEMBERED + idle)
                .build(),
            breakers: Cache::builder().max_capacity(BREAKERS).time_to_idle(REMEMBERED).build(),
            memory,
            metrics,
            closing: CancellationToken::new(),
            running: OnceLock::new(),
        };
        // A gateway without such servers has no folder for them.
        if servers.store.exists() {
            servers.prepare();
        }
        servers
    }

    /// Creates the folder of temporary folders, and removes what is left in it, once.
    fn prepare(&self) {
        self.running.get_or_init(|| {
            self.store.clear_running().unwrap_or_else(|error| {
                // Each start fails then, and says why.
                tracing::warn!(%error, "Could not prepare the folder of stdio servers");
                None
            })
        });
    }

    /// Returns the number of processes that run or start.
    pub(crate) fn running(&self) -> usize {
        self.places.count()
    }

    /// Stops all servers; none starts after this.
    pub(crate) async fn stop(&self) {
        // First, so that pending starts are aborted and no call starts a server again.
        self.closing.cancel();
        let mut ends = tokio::task::JoinSet::new();
        for (_, slot) in &self.servers {
            ends.spawn(async move { slot.lock().await.stop().await });
        }
        ends.join_all().await;
    }

    /// Calls a tool of a `stdio` server and returns its raw MCP result, from which the secrets are redacted if the server
    /// echoes them. The tenant's memory for the result is reserved in `memory`.
    ///
    /// # Errors
    /// Returns `TOOL_UNAVAILABLE` when the server is not installed or does not run, `PLATFORM_UNSUPPORTED` when this machine
    /// cannot confine it, `BUSY` when too many run, and `TOOL_FAILED` when it refuses the call.
    pub(crate) async fn call(
        self: &Arc<Self>,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        secrets: Vec<(String, Secret)>,
        memory: &MemorySlot<Reserved>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let redactors: Vec<Redactor> =
            secrets.iter().map(|(_, secret)| Redactor::new(secret.expose())).collect();
        let mut counted =
            CallCount::begin(&self.metrics.stdio.calls, &self.metrics.operations.stdio);
        let called =
            self.call_unredacted(scope, tool, arguments, secrets, memory, cancel, &mut counted.end);
        // Boxed, because the future is large and most calls do not need it.
        match Box::pin(called).await {
            Ok(mut result) => {
                redactors.iter().for_each(|redactor| redactor.value(&mut result));
                Ok(result)
            }
            Err(error) => {
                Err(redactors.iter().fold(error, |error, redactor| redactor.error(error)))
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "those of `call`, and how it ended")]
    async fn call_unredacted(
        self: &Arc<Self>,
        scope: &Scope,
        tool: &ResolvedTool,
        arguments: Value,
        secrets: Vec<(String, Secret)>,
        memory: &MemorySlot<Reserved>,
        cancel: &CancellationToken,
        end: &mut UpstreamEnd,
    ) -> Result<Value, ErrorBody> {
        let (launch, installed) = self.launch(scope, tool, secrets)?;
        let key = Key {
            scope: scope.clone(),
            server: launch.server.to_string(),
            installed: installed.into_bytes(),
            secrets: secrets_hash(&launch.secrets),
        };
        let breaker = self.breakers.get_with(key.clone(), Arc::default);
        let attempt = breaker.admit(Instant::now()).map_err(|left| {
            *end = UpstreamEnd::Paused;
            let seconds = left.as_millis().div_ceil(1_000);
            unavailable(tool, format!("its server failed {FAILURES} times in a row, so it is not called for {seconds} s"))
        })?;
        // Until it has ended in another way: this future may be dropped.
        *end = UpstreamEnd::Cancelled;
        let running = match self.running_server(key, tool, launch).await {
            Ok(running) => running,
            Err(error) => {
                *end = UpstreamEnd::Unavailable;
                match error.error_code {
                    ErrorCode::ToolUnavailable => attempt.failed(),
                    // The server has not failed.
                    _ => drop(attempt),
                }
                return Err(error);
            }
        };
        let mut params = CallToolRequestParams::new(tool.id.action().to_owned());
        if let Value::Object(arguments) = arguments {
            params = params.with_arguments(arguments);
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let action = || Some(tool.id.action().to_owned());
        let span = Span::of_call(Side::Client, Transport::Pipe, action);
        let asked = async { running.ask(request, traced(), CANCEL_GRACE, cancel).await };
        let answer = span.within(asked).await;
        let (failure, ended) = ending(&answer);
        span.end(failure);
        *end = ended;
        settle(attempt, ended);
        answer::result(&self.memory, scope, tool, answer, &running, memory).await
    }

    /// Finds out what is started for a tool.
    fn launch(
        &self,
        scope: &Scope,
        tool: &ResolvedTool,
        secrets: Vec<(String, Secret)>,
    ) -> Result<(Launch, Integrity), ErrorBody> {
        let server = tool.fqdn.to_server();
        let (Some(install), true) = (&tool.install, *server.scope() == Scope::public()) else {
            return Err(unavailable(
                tool,
                "this gateway runs only `stdio` servers of its catalog".to_owned(),
            ));
        };
        let command = format!("pml-server stdio install {server}");
        let known = self.known.find(&server).map_err(|error| {
            tracing::error!(%error, %server, "Could not read what is installed");
            unavailable(tool, "what this gateway has installed cannot be read".to_owned())
        })?;
        let Some(known) = known else {
            let what = format!(
                "its server is not installed on this gateway; the operator installs it with `{command}`"
            );
            return Err(unavailable(tool, what));
        };
        let (found, hash) = &*known;
        if found.install != *install {
            let what = format!(
                "its server has changed in the catalog since it was installed on this gateway; the operator installs it again with `{command}`"
            );
            return Err(unavailable(tool, what));
        }
        let hash = *hash;
        let home = self.store.home(scope, &server);
        Ok((Launch { server, known, home, secrets, bounds: self.bounds }, hash))
    }

    /// Returns the running server, starting it if needed. Concurrent calls wait for the same start.
    async fn running_server(
        self: &Arc<Self>,
        key: Key,
        tool: &ResolvedTool,
        launch: Launch,
    ) -> Result<InUse, ErrorBody> {
        let slot = self.servers.get_with(key.clone(), Arc::default);
        let slot = slot.lock_owned().await;
        if let Some(running) = slot.running.as_ref().filter(|running| running.is_alive()) {
            return Ok(InUse::new(running));
        }
        // In a task, so that the start continues for other calls if this one is cancelled.
        let servers = Arc::clone(self);
        let (server, shown) = (key.server.clone(), tool.id.to_string());
        // As long as a secret is held, it is redacted from the log.
        let secrets: Vec<Secret> =
            launch.secrets.iter().map(|(_, secret)| secret.clone()).collect();
        let start = tokio::spawn(async move {
            let starting = async {
                servers.prepare();
                // Here, where what has run before has ended and left its own place.
                let place = servers.place(&key.scope).await.map_err(no_place)?;
                let started =
                    launch::start(&servers.starter, &servers.store, &servers.programs, launch);
                let mut session = started.await?;
                session.held = Some(Box::new((session.held.take(), place, secrets.clone())));
                Ok(session)
            };
            let (idle, closing) = (servers.idle, &servers.closing);
            let started = start_in(server.clone(), slot, idle, closing, Box::pin(starting)).await;
            servers.note_start(&server, &started);
            started
        });
        let started = start.await.unwrap_or_else(|error| {
            tracing::error!(%error, tool.name = shown, "The start of a stdio server crashed");
            Err(NotStarted::Closing)
        });
        started.map_err(|why| not_started(&why, tool))
    }

    fn note_start(&self, server: &str, started: &Result<InUse, NotStarted>) {
        let end = match started {
            Ok(_) => StdioStart::Success,
            Err(NotStarted::Failed(failure)) if failure.refused.is_none() => {
                // Nothing was asked of it yet, so its stderr has no argument of a call.
                let (reason, stderr) = (&failure.reason, &failure.stderr);
                tracing::warn!(server, reason, stderr, "Could not start a stdio server");
                StdioStart::Failure
            }
            Err(_) => StdioStart::Refused,
        };
        self.metrics.stdio.starts.add(end);
    }

    /// Takes a place for a server of a tenant. The server that was idle longest makes way.
    async fn place(&self, scope: &Scope) -> Result<Place, Full> {
        loop {
            let full = match self.places.take(scope) {
                Ok(place) => return Ok(place),
                Err(full) => full,
            };
            let of_tenant = |key: &Key| full == Full::All || key.scope == *scope;
            // A server that is started or stopped right now is not idle, and its lock is held.
            let idle =
                self.servers.iter().filter(|(key, _)| of_tenant(key)).filter_map(|(_, slot)| {
                    let slot = slot.try_lock_owned().ok()?;
                    Some((slot.idle_since()?, slot))
                });
            let Some((_, mut slot)) = idle.min_by_key(|(since, _)| *since) else {
                return Err(full);
            };
            slot.stop().await;
        }
    }
}
