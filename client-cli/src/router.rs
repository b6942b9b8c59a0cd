//! Where each call of a local run goes, and whether it may go at all.
//!
//! Every call passes here: declared, permitted, perhaps asked about, then run by
//! a native tool, a local MCP server or the gateway.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::future::{BoxFuture, FutureExt as _};
use protocol::{
    CallLog, CallNote, ErrorBody, ErrorCode, ResultMode, Routing, ToolId, unwrap_tool_result,
};
use sandbox::{CallError, ToolCall, ToolCaller};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::cloud::CallName;
use crate::consent::approvals::{Answer, Question};
use crate::consent::permissions::Verdict;
use crate::run::RunEvent;

/// Where a tool of a program runs.
#[derive(Debug, Clone)]
pub enum Target {
    /// A tool built into the CLI.
    Native,
    /// An MCP server on this machine that the user's configuration names.
    Configured,
    /// An MCP server on this machine that the registry describes.
    Registered(Arc<protocol::RegistryEntry>),
    /// The gateway.
    Gateway,
}

impl Target {
    fn routing(&self) -> Routing {
        match self {
            Self::Gateway => Routing::Server,
            Self::Native | Self::Configured | Self::Registered(_) => Routing::Client,
        }
    }
}

/// Answers the calls of one local run.
pub struct Router {
    run: Arc<LocalRun>,
}

/// Whether the human is asked about a call.
enum Asked {
    /// It may run.
    No,
    /// For this reason, and to start this first.
    Yes { reason: String, start: Option<String> },
}

struct LocalRun {
    app: Arc<App>,
    run_id: String,
    /// The tools that the CLI's own analysis found, and where each runs.
    declared: HashMap<ToolId, Target>,
    dynamic: bool,
    events: mpsc::UnboundedSender<RunEvent>,
    cancel: CancellationToken,
    /// Held while the human is asked: one question at a time.
    asking: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: CallLog,
    /// The tools allowed with "always" since the run began.
    always: HashSet<ToolId>,
    refused: Option<ErrorBody>,
    warnings: Vec<String>,
}

/// What a run leaves behind.
pub struct Ended {
    /// Its calls.
    pub log: CallLog,
    /// Why a human ended it, if one did.
    pub refused: Option<ErrorBody>,
    /// What the user should know although the run went on.
    pub warnings: Vec<String>,
}

impl Router {
    /// Makes the router of one run.
    pub fn new(
        app: Arc<App>,
        run_id: String,
        declared: HashMap<ToolId, Target>,
        dynamic: bool,
        events: mpsc::UnboundedSender<RunEvent>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            run: Arc::new(LocalRun {
                app,
                run_id,
                declared,
                dynamic,
                events,
                cancel,
                asking: tokio::sync::Mutex::default(),
                state: Mutex::default(),
            }),
        }
    }

    /// Returns what the run leaves behind.
    pub fn ended(&self) -> Ended {
        let state = self.run.state();
        Ended {
            log: state.log.clone(),
            refused: state.refused.clone(),
            warnings: state.warnings.clone(),
        }
    }
}

impl ToolCaller for Router {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let run = Arc::clone(&self.run);
        async move {
            let name = format!("{}:{}", call.namespace, call.action);
            let mut routing = Routing::Client;
            let mut started = Instant::now();
            let answer = run
                .answer(
                    call_parts(&call),
                    call.args,
                    &call.clock,
                    cancel,
                    &mut routing,
                    &mut started,
                )
                .await;
            let note = CallNote {
                tool: protocol::escape_text(&name),
                routing,
                ok: answer.is_ok(),
                duration_ms: started.elapsed().as_secs_f64() * 1e3,
            };
            let failed = answer.as_ref().err().map(|error| error.error_code);
            tracing::debug!(
                run = %run.run_id,
                call = call.id,
                tool = %note.tool,
                routing = routing.as_str(),
                duration_ms = note.duration_ms,
                error = failed.map(|code| code.name()),
                "A call ended"
            );
            run.state().log.record(call.id, note, failed);
            answer.map_err(|error| CallError::new(error.message).with_code(error.error_code.name()))
        }
        .boxed()
    }
}

fn call_parts(call: &ToolCall) -> (u64, Result<ToolId, ErrorBody>) {
    let id = ToolId::new(&call.namespace, &call.action)
        .map_err(|error| ErrorBody::new(ErrorCode::ToolNotFound, error.to_string()));
    (call.id, id)
}

impl LocalRun {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        &self,
        (index, id): (u64, Result<ToolId, ErrorBody>),
        arguments: Value,
        clock: &sandbox::WallClock,
        cancel: CancellationToken,
        routing: &mut Routing,
        started: &mut Instant,
    ) -> Result<Value, ErrorBody> {
        let id = id?;
        // Between a no and the end of the run nothing more happens.
        if let Some(refused) = self.state().refused.clone() {
            return Err(refused);
        }
        let target = self.target(&id).await?;
        *routing = target.routing();
        self.ask(&id, &target, &arguments, clock, &cancel).await?;
        // Waiting for a human is not the tool's time.
        *started = Instant::now();
        let result = match &target {
            Target::Native => self.app.call_native(&id, arguments, &cancel).await?,
            Target::Configured => self.app.call_local(&id, arguments, &cancel).await?,
            Target::Registered(entry) => {
                self.app.add_registered(entry)?;
                self.app.call_local(&id, arguments, &cancel).await?
            }
            Target::Gateway => {
                let name = CallName { run_id: &self.run_id, call_index: index };
                let cloud = self.app.cloud()?;
                cloud.call_tool(&id, arguments, &name, &cancel).await.map_err(offline)?
            }
        };
        // Only the gateway's stamp counts; a local server cannot choose how it is read.
        let mode = match target {
            Target::Gateway => ResultMode::stamped(&result),
            Target::Native | Target::Configured | Target::Registered(_) => ResultMode::Text,
        };
        unwrap_tool_result(&result, mode).map_err(|error| {
            ErrorBody::new(ErrorCode::ToolFailed, format!("`{id}`: {}", error.message))
        })
    }

    /// Returns where a tool runs: as declared, or for a dynamic program as found now.
    async fn target(&self, id: &ToolId) -> Result<Target, ErrorBody> {
        if let Some(target) = self.declared.get(id) {
            return Ok(target.clone());
        }
        if !self.dynamic {
            return Err(ErrorBody::new(
                ErrorCode::ToolNotDeclared,
                format!(
                    "tool `{id}` is not among those that the analysis of this program declared"
                ),
            ));
        }
        self.app.find_target(id, None).await
    }

    /// Lets the call through, refuses it, or waits for the human's answer.
    async fn ask(
        &self,
        id: &ToolId,
        target: &Target,
        arguments: &Value,
        clock: &sandbox::WallClock,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        if let Asked::No = self.rules(id, target)? {
            return Ok(());
        }
        let _human_decides = clock.pause();
        let cancelled = || ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
        let _asking = tokio::select! {
            asking = self.asking.lock() => asking,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        // The question before this one may have been answered with "always".
        let Asked::Yes { reason, start } = self.rules(id, target)? else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        let question = Question {
            tool: id.clone(),
            arguments: arguments.clone(),
            reason,
            start: start.clone(),
            answer,
        };
        let abort = |code, message: String| {
            let refused = ErrorBody::new(code, message);
            // The first refusal ended the run; what came of that is not told instead.
            self.state().refused.get_or_insert_with(|| refused.clone());
            self.cancel.cancel();
            refused
        };
        if self.events.send(RunEvent::Asks(question)).is_err() {
            return Err(abort(
                ErrorCode::ApprovalExpired,
                format!("nobody is left to ask about `{id}`"),
            ));
        }
        let answer = tokio::select! {
            answer = answered => answer,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        match answer {
            Ok(Answer::Once) => {}
            Ok(Answer::Always) => {
                self.state().always.insert(id.clone());
                if let Err(error) = self.app.allow_always(id) {
                    // The call itself is allowed; only the rule could not be kept.
                    let warning = format!("`{id}` is allowed for this run only: {}", error.message);
                    self.state().warnings.push(warning);
                }
            }
            Ok(Answer::Abort) => {
                return Err(abort(
                    ErrorCode::ApprovalDenied,
                    format!("the user did not allow `{id}`; the run was ended"),
                ));
            }
            Err(_) => {
                return Err(abort(
                    ErrorCode::ApprovalExpired,
                    format!("the question about `{id}` ended without an answer"),
                ));
            }
        }
        // A rule that the user wrote before they answered holds.
        self.rules(id, target)?;
        if let (Some(_), Target::Registered(entry)) = (start, target) {
            self.app.lockfile.approve(entry)?;
        }
        Ok(())
    }

    /// Decides by the rules alone whether the human is asked.
    fn rules(&self, id: &ToolId, target: &Target) -> Result<Asked, ErrorBody> {
        let decision = self.app.permissions().decide(id);
        if decision.verdict == Verdict::Deny {
            return Err(ErrorBody::new(
                ErrorCode::PermissionDenied,
                format!("tool `{id}` is denied: {}", decision.reason),
            ));
        }
        let start = match target {
            Target::Registered(entry) => self.app.lockfile.question(entry)?,
            Target::Native | Target::Configured | Target::Gateway => None,
        };
        let may_run = decision.verdict == Verdict::Allow || self.state().always.contains(id);
        if may_run && start.is_none() {
            return Ok(Asked::No);
        }
        Ok(Asked::Yes { reason: decision.reason, start })
    }
}

/// Says plainly that a server tool needs the gateway.
fn offline(error: ErrorBody) -> ErrorBody {
    if error.error_code == ErrorCode::GatewayUnreachable {
        return ErrorBody::new(ErrorCode::ServerToolsOffline, error.message);
    }
    error
}
