//! Executes a call, wherever it runs.

use std::sync::{Arc, Mutex};

use execution::failure;
use futures::future::{BoxFuture, FutureExt as _};
use protocol::discovery::{DiscoverRequest, SEARCH_TOOLS};
use protocol::{ErrorBody, ErrorCode, ResultMode, ToolId, unanswered_calls, unwrap_tool_result};
use sandbox::{Program, ProgramClock, Repeatable, ToolCall, WallClock};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{AdmittedCall, Caller, EXECUTING_LIMIT, Router, cancelled};
use crate::app::OpenServer;
use crate::capabilities::{Capability, Target};
use crate::discover;
use crate::gateway::cloud::CallName;
use crate::run::journal::now_ms;
use crate::run::permission::PendingCall;
use crate::workspace::changes::Change;

impl Caller {
    /// Executes a call, and returns its answer as the program gets it. `refused` is set to the connections that a sealed
    /// server was refused.
    pub(super) async fn execute(
        &self,
        admitted: AdmittedCall<'_>,
        epoch_ms: Option<i64>,
        call: ToolCall,
        refused: &mut Option<String>,
        cancel: &CancellationToken,
    ) -> Result<Value, ErrorBody> {
        let AdmittedCall { id, target, clocks, permit, begun, _slot } = admitted;
        let (index, arguments) = (call.id, call.args);
        let app = &self.run.app;
        let result = match &target {
            Target::Native if id.as_str() == SEARCH_TOOLS => {
                // Not through `call_native`: the search also queries the gateway.
                let request = DiscoverRequest::of_program(arguments)?;
                return discover::discover(app, request, cancel).await;
            }
            Target::Native => {
                let (run, call) = (Arc::clone(&self.run), self.name(index));
                let watch = Arc::new(move |change: Change<'_>| run.recorder.change(&call, change));
                let answer = app.call_native(&id, arguments, permit.granted, watch, cancel).await;
                answer.map_err(|error| match error.error_code {
                    // What cannot be recorded ends the run.
                    ErrorCode::RunStoreUnavailable => self.run.end_with(error),
                    _ => error,
                })?
            }
            Target::Configured => {
                let checked = self.run.schemas.check(app, &id, cancel).await;
                checked.map_err(|error| match error.error_code {
                    // Not for the program to catch.
                    ErrorCode::IntegrityMismatch => self.run.end_with(error),
                    _ => error,
                })?;
                let server = self.open_server(&id, &target, &arguments, &clocks, cancel).await?;
                let result = server.call(&id, arguments, refused, cancel).await?;
                if !server.is_pinned() {
                    // The server runs at this moment, so its tools can be listed without starting it. Those of a pinned
                    // one were, before the call.
                    app.learn_tools(id.namespace());
                }
                result
            }
            Target::Registered(_) => {
                let server = self.open_server(&id, &target, &arguments, &clocks, cancel).await?;
                server.call(&id, arguments, refused, cancel).await?
            }
            Target::Capability(capability) => {
                // The value of a program is not an MCP result, so it is not unwrapped below.
                let clock = ProgramClock::start(epoch_ms.unwrap_or_else(now_ms));
                return self.run_within(capability, index, arguments, clock, clocks, cancel).await;
            }
            Target::Gateway { name: full, .. } => {
                // The same name as in the record: if the call was begun before the run was resumed, and has
                // arrived, the gateway has its outcome.
                let call = self.name(index);
                let name = CallName { run_id: &self.run.id, call: &call, again_ms: None };
                let cloud = app.cloud()?;
                let sent = begun.map(|_| arguments.clone());
                let answer = cloud.call_tool(full, arguments, &name, cancel).await;
                let answer = match (answer, sent) {
                    // The user said that it is to be made again.
                    (Err(error), Some(arguments)) if is_unknown(error.error_code) => {
                        let name = CallName { again_ms: Some(now_ms()), ..name };
                        cloud.call_tool(full, arguments, &name, cancel).await
                    }
                    (answer, _) => answer,
                };
                answer.map_err(offline)?
            }
        };
        // Only the gateway may set the mode; a local server cannot choose how its result is interpreted.
        let mode = match target {
            Target::Gateway { .. } => ResultMode::stamped(&result),
            _ => ResultMode::Text,
        };
        unwrap_tool_result(&result, mode).map_err(|error| {
            ErrorBody::new(ErrorCode::ToolFailed, format!("`{id}`: {}", error.message))
        })
    }

    /// Opens the server of a tool that is as the user allowed it.
    async fn open_server(
        &self,
        id: &ToolId,
        target: &Target,
        arguments: &Value,
        clocks: &[WallClock],
        cancel: &CancellationToken,
    ) -> Result<OpenServer, ErrorBody> {
        let rule = self.rules.get(id).unwrap_or(id);
        let through = &self.through;
        let pending = PendingCall { tool: id, id: rule, target, arguments, through, clocks };
        self.run.open_server(&pending, cancel).await
    }

    /// Runs the program of a capability as the call `index` of this program.
    ///
    /// Boxed, because it is recursive: a capability may call others.
    fn run_within<'a>(
        &'a self,
        capability: &'a Arc<Capability>,
        index: u64,
        args: Value,
        clock: ProgramClock,
        clocks: Vec<WallClock>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Value, ErrorBody>> {
        async move {
            let _slot = tokio::select! {
                slot = self.capability_slot.acquire() => slot.map_err(|_| cancelled())?,
                () = cancel.cancelled() => return Err(cancelled()),
            };
            let outer = [&self.outer[..], &[index]].concat();
            let journal = self.run.journal.as_ref();
            let seed = self.run.start.seed_within(&self.name(index));
            let caller = Arc::new(Self {
                run: Arc::clone(&self.run),
                clock: clock.clone(),
                journal: journal.map(|journal| journal.of_program(&outer, &clock)),
                answered: Mutex::default(),
                // Its own tools and not its caller's: a compromised child reaches what the
                // capability declares, and nothing else.
                declared: capability.targets.clone(),
                rules: capability.rules.clone(),
                // The resolver refuses a dynamic capability.
                dynamic: false,
                through: [&self.through[..], std::slice::from_ref(&capability.module.id)].concat(),
                outer,
                clocks,
                // New semaphores: the call in the caller holds its permits until this program ends,
                // so a shared slot would never become free.
                executing: Semaphore::new(EXECUTING_LIMIT),
                capability_slot: Semaphore::new(1),
            });
            let program = Program {
                source: capability.analysis.program.clone(),
                implicit_returns: capability.analysis.implicit_returns.clone(),
                args,
                repeatable: Some(Repeatable { clock, seed }),
            };
            let (run, outer) = (&self.run, caller.outer.clone());
            let router = Arc::new(Router { caller });
            let sandboxes = run.app.nested_sandboxes()?;
            let outcome = sandboxes.run(program, &run.limits, router, cancel.clone()).await;
            for warning in unanswered_calls(&outcome.unanswered) {
                run.warn(format!("capability `{}`: {warning}", capability.module.id));
            }
            outcome.result.map_err(|why| {
                let log = run.log_within(&outer);
                let error = failure::error_body(&why, &capability.module.code, &log);
                capability.error(error.error_code, &error.message)
            })
        }
        .boxed()
    }
}

/// Returns whether the gateway does not know the outcome of a call that it received before.
fn is_unknown(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::CallIndeterminate | ErrorCode::RequestInProgress)
}

/// Converts the error for an unreachable gateway: a server tool cannot be called offline.
fn offline(error: ErrorBody) -> ErrorBody {
    if error.error_code == ErrorCode::GatewayUnreachable {
        return ErrorBody::new(ErrorCode::ServerToolsOffline, error.message);
    }
    error
}
