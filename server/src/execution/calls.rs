//! One tool call on the gateway: from a running program, or directly by a client.

mod nested;
mod once;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use execution::mcp_client::Slot;
use execution::mcp_server::envelope_result;
use execution::spans::{self, Span};
use futures::future::{BoxFuture, FutureExt as _};
use protocol::discovery::{DiscoverRequest, SEARCH_TOOLS};
use protocol::{
    CallLog, CallNote, EntryType, Envelope, ErrorBody, ErrorCode, Routing, ToolId, TraceKind,
    unwrap_tool_result, wrap_value,
};
use registry::{AuditEvent, AuditOutcome, ResolvedTool, Right};
use rmcp::model::CallToolResult;
use sandbox::{CallError, ToolCall, ToolCaller};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::nested::Nesting;
use self::once::{CallName, has_effects, once};
use crate::admission::memory::Reserved;
use crate::error::registry_error;
use crate::execution::capabilities::{self, Reach};
use crate::execution::discover::discover;
use crate::execution::refusal;
use crate::execution::result::raw_result;
use crate::identity::requester::{ClientKind, Requester};
use crate::state::SharedGateway;
use crate::synced_tools;
use crate::tools::{self, ToolFailure};
use crate::traces::run_log::RunLog;
use crate::upstreams::secrets::{self, Need};

/// The time limit of one tool.
pub(crate) const TOOL_TIMEOUT: Duration = Duration::from_secs(30);

/// The context of a run's calls: who calls, and what the run can reach.
#[derive(Clone)]
pub(crate) struct RunContext {
    /// The gateway.
    pub gateway: SharedGateway,
    /// The caller.
    pub requester: Requester,
    /// All tools and capabilities that the run can reach.
    pub reach: Arc<Reach>,
    /// The log of the run for its trace; `None` for a call that belongs to no execution of this gateway.
    log: Option<Arc<RunLog>>,
    /// The numbers of the capability calls that enclose the program, outermost first.
    path: Vec<u64>,
    /// The nesting state of its capability calls.
    nesting: Nesting,
}

impl RunContext {
    /// Creates the context of a program that no other program called.
    pub(crate) fn new(gateway: SharedGateway, requester: Requester, reach: Reach) -> Self {
        let (reach, nesting) = (Arc::new(reach), Nesting::outermost());
        Self { gateway, requester, reach, log: None, path: Vec::new(), nesting }
    }

    /// Records the run's calls.
    #[must_use]
    pub(crate) fn with_log(self, log: Option<Arc<RunLog>>) -> Self {
        Self { log, ..self }
    }
}

/// The calls of one running program, limited to what its analysis declared.
pub(crate) struct ProgramCalls {
    run: Arc<RunningProgram>,
}

struct RunningProgram {
    context: RunContext,
    declared: HashMap<ToolId, Arc<ResolvedTool>>,
    log: Mutex<CallLog>,
}

impl ProgramCalls {
    /// Creates the calls of a program that declared `tools`.
    pub(crate) fn new(
        context: RunContext,
        tools: impl IntoIterator<Item = Arc<ResolvedTool>>,
    ) -> Self {
        let declared = tools.into_iter().map(|tool| (tool.id.clone(), tool)).collect();
        Self { run: Arc::new(RunningProgram { context, declared, log: Mutex::default() }) }
    }

    /// Returns the calls that have ended so far.
    pub(crate) fn log(&self) -> CallLog {
        self.run.log().clone()
    }
}

impl ToolCaller for ProgramCalls {
    fn call(
        &self,
        call: ToolCall,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let run = Arc::clone(&self.run);
        async move {
            let started = Instant::now();
            // Keeps the memory of a large result reserved until the call has ended.
            let memory = Slot::default();
            let ToolCall { id: number, namespace, action, args, .. } = call;
            let answer = run.recorded(number, (&namespace, &action), args, cancel, &memory).await;
            let id = ToolId::from_call(&namespace, &action);
            let note = CallNote {
                // One tool has one name in the log, whether the program wrote `@latest` or not.
                tool: id.map_or_else(|_| format!("{namespace}:{action}"), |id| id.to_string()),
                routing: Routing::Server,
                ok: answer.is_ok(),
                duration_ms: started.elapsed().as_secs_f64() * 1e3,
                through: Vec::new(),
            };
            run.context.requester.progress.call_ended();
            run.log().record(number, note, answer.as_ref().err().map(|error| error.error_code));
            // A program's error has only a message and a code, so the hint is dropped.
            answer.map_err(|error| CallError::new(error.message).with_code(error.error_code.name()))
        }
        .boxed()
    }
}

impl RunningProgram {
    fn log(&self) -> MutexGuard<'_, CallLog> {
        // A panic while the lock was held left a consistent log: a call is added in one step.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, and records it for the run's trace.
    async fn recorded(
        &self,
        number: u64,
        (namespace, action): (&str, &str),
        arguments: Value,
        cancel: CancellationToken,
        memory: &Slot<Reserved>,
    ) -> Result<Value, ErrorBody> {
        let named = (namespace, action);
        let Some(log) = &self.context.log else {
            return self.answer(&self.context, named, arguments, cancel, memory).await;
        };
        let id = ToolId::from_call(namespace, action).ok();
        let declared = id.as_ref().and_then(|id| self.declared.get(id));
        let kind = match declared.map(|tool| tool.kind) {
            Some(EntryType::Deno) => TraceKind::Capability,
            _ => TraceKind::Tool,
        };
        let path = [self.context.path.as_slice(), &[number]].concat();
        let (arguments, summary) = log.summarize(arguments).await;
        // What is not an id is refused below, and that is in the audit log.
        let begun = id.zip(summary).and_then(|(id, it)| log.begin(path.clone(), id, kind, it));
        let answer = match kind {
            TraceKind::Tool => self.answer(&self.context, named, arguments, cancel, memory).await,
            TraceKind::Capability => {
                // The calls of its program are within this one.
                let within = RunContext { path, ..self.context.clone() };
                self.answer(&within, named, arguments, cancel, memory).await
            }
        };
        let Some(begun) = begun else { return answer };
        match answer {
            Ok(result) => {
                let (result, summary) = log.summarize(result).await;
                log.end(begun, None, summary);
                Ok(result)
            }
            Err(error) => {
                log.end(begun, Some(error.error_code), None);
                Err(error)
            }
        }
    }

    async fn answer(
        &self,
        context: &RunContext,
        (namespace, action): (&str, &str),
        arguments: Value,
        cancel: CancellationToken,
        memory: &Slot<Reserved>,
    ) -> Result<Value, ErrorBody> {
        // The child is not trusted: what it calls is compared with the analysis of this process.
        let declared =
            ToolId::from_call(namespace, action).ok().and_then(|id| self.declared.get(&id));
        // A program that declares a client tool is delegated and never runs here, so no honest
        // child makes such a call.
        let Some(tool) = declared.filter(|tool| tool.routing == Routing::Server) else {
            let id = protocol::escape_text(&format!("{namespace}:{action}"));
            let event = AuditEvent::new("call_tool", id.as_str(), AuditOutcome::Refused)
                .with_detail(json!({ "reason": ErrorCode::ToolNotDeclared }));
            tracing::warn!(
                scope = %self.context.requester.scope(),
                tool.name = id.as_str(),
                "Refused a call that the program did not declare"
            );
            let tenant = self.context.requester.tenant();
            // The call is refused, whether or not that can be recorded.
            if let Err(error) = self.context.gateway.registry.audit(&tenant, event).await {
                tracing::error!(error = %error, "Could not record a refused call");
            }
            return Err(ErrorBody::new(
                ErrorCode::ToolNotDeclared,
                format!("tool `{id}` is not declared by the analysis of this program"),
            ));
        };
        let result = call(context, tool, arguments, cancel, memory).await?;
        unwrap_tool_result(&result, tool.result)
            .map_err(|error| ErrorBody::new(ErrorCode::ToolFailed, error.message))
    }
}

/// Answers a `tools/call` that names a registered tool by its id.
///
/// A call that the CLI forwards is checked like any other.
pub(crate) async fn call_directly(
    gateway: &SharedGateway,
    requester: &Requester,
    id: &ToolId,
    arguments: Value,
    run: Option<Value>,
    cancel: CancellationToken,
) -> CallToolResult {
    let started = Instant::now();
    let memory = Slot::default();
    let name = match run.map(CallName::read).transpose() {
        Ok(name) => name,
        Err(error) => return envelope_result(&Envelope::error(error)),
    };
    let answer =
        call_registered(gateway, requester, id, arguments, name.as_ref(), cancel, &memory).await;
    // The client's own claim. It connects log lines.
    let run_id = name.as_ref().map(|name| name.run_id.as_str());
    tracing::info!(
        scope = %requester.scope(),
        tool.name = %id,
        execution.id = run_id,
        ok = answer.is_ok(),
        duration_ms = started.elapsed().as_secs_f64() * 1e3,
        "Called tool `{id}`"
    );
    match answer {
        Ok(raw) => raw_result(raw),
        Err(error) => envelope_result(&Envelope::error(error)),
    }
}

async fn call_registered(
    gateway: &SharedGateway,
    requester: &Requester,
    id: &ToolId,
    arguments: Value,
    name: Option<&CallName>,
    cancel: CancellationToken,
    memory: &Slot<Reserved>,
) -> Result<Value, ErrorBody> {
    let tenant = requester.tenant();
    let base = capabilities::scope_of(&tenant);
    let (resolved, reached) =
        capabilities::reach(gateway, &tenant, &base, std::slice::from_ref(id)).await?;
    let Some(tool) = resolved.tools.first() else {
        if requester.client == ClientKind::Plain {
            let own = synced_tools::among_missing(&gateway.registry, &tenant, &resolved).await;
            if own.map_err(|error| registry_error(&error))?.contains(id) {
                let why = format!("tool `{id}` runs on the user's machine");
                return Err(refusal::needs_package(why, vec![id.to_string()]));
            }
        }
        let why = resolved
            .missing
            .first()
            .map_or_else(|| format!("`{id}` is not registered"), refusal::why_missing);
        return Err(ErrorBody::new(ErrorCode::ToolNotFound, format!("tool {why}")));
    };
    if tool.routing == Routing::Client {
        let why = format!("tool `{id}` runs on the user's machine");
        return Err(refusal::needs_package(why, vec![id.to_string()]));
    }
    let context = RunContext::new(gateway.clone(), requester.clone(), reached);
    let mut result = match name.filter(|_| has_effects(tool)) {
        Some(name) => {
            let sent = arguments.clone();
            let made = call(&context, tool, arguments, cancel, memory);
            once(gateway, requester, name, tool.kind, (id.as_str(), &sent), made).await?
        }
        None => call(&context, tool, arguments, cancel, memory).await?,
    };
    // The CLI learns from the result how to convert it to a program's value.
    tool.result.stamp(&mut result);
    Ok(result)
}

/// Calls a server tool and returns its raw MCP result, whose memory is charged to `memory`.
async fn call(
    context: &RunContext,
    tool: &ResolvedTool,
    arguments: Value,
    cancel: CancellationToken,
    memory: &Slot<Reserved>,
) -> Result<Value, ErrorBody> {
    let count = context.gateway.metrics.programs.begin_call(tool.kind.into());
    let span = Span::of_tool(&tool.id);
    let answer = span.within(call_uncounted(context, tool, arguments, cancel, memory)).await;
    let error = match &answer {
        // The tool itself reports that it failed.
        Ok(result) if result["isError"] == true => Some(ErrorCode::ToolFailed),
        answer => answer.as_ref().err().map(|error| error.error_code),
    };
    count.ended(error);
    spans::end_step(span, error);
    answer
}

async fn call_uncounted(
    context: &RunContext,
    tool: &ResolvedTool,
    arguments: Value,
    cancel: CancellationToken,
    memory: &Slot<Reserved>,
) -> Result<Value, ErrorBody> {
    let RunContext { gateway, requester, .. } = context;
    // Counted before anything is started, so that a call over the quota costs the upstream nothing.
    gateway.limits.count_call(&gateway.registry, requester.scope(), &tool.id).await?;
    // Cancels everything that the call has started when this function ends, also by a timeout or by being dropped.
    let inner = cancel.child_token();
    let _end = inner.clone().drop_guard();
    let answer = async {
        match (tool.kind, &tool.capability) {
            // Not one of `tools`, which are pure functions: a search depends on the caller.
            (EntryType::Native, _) if tool.id.as_str() == SEARCH_TOOLS => {
                search_tools(gateway, requester, arguments).await
            }
            (EntryType::Native, _) => call_native(tool, arguments).await,
            (EntryType::Http, _) => {
                let secret = match Need::all_of_tool(tool).next() {
                    Some(need) => {
                        Some(secrets::find(&gateway.registry, requester, need).await?.value)
                    }
                    None => None,
                };
                let scope = requester.scope();
                gateway.upstreams.call(scope, tool, arguments, secret.as_ref(), memory).await
            }
            (EntryType::Deno, Some(capability)) => {
                // The callers of this function expect an MCP result, not the bare value.
                nested::run(context, tool, capability, arguments, inner).await.map(wrap_value)
            }
            (EntryType::Stdio, _) => {
                let mut secrets = Vec::new();
                for need in Need::all_of_tool(tool) {
                    let found = secrets::find(&gateway.registry, requester, need).await?;
                    secrets.push((need.variable.to_owned(), found.value));
                }
                let scope = requester.scope();
                gateway.stdio.call(scope, tool, arguments, secrets, memory, &inner).await
            }
            (EntryType::Deno, _) => Err(ErrorBody::new(
                ErrorCode::ToolUnavailable,
                format!("this gateway does not run `{}` tools itself", tool.kind.as_str()),
            )),
        }
    };
    // On a timeout or cancellation, `answer` is dropped, and with it a request to an upstream.
    tokio::select! {
        answer = tokio::time::timeout(TOOL_TIMEOUT, answer) => answer.unwrap_or_else(|_| {
            Err(ErrorBody::new(
                ErrorCode::ToolTimeout,
                format!("tool `{}` did not answer within {} s", tool.id, TOOL_TIMEOUT.as_secs()),
            ))
        }),
        () = cancel.cancelled() => {
            Err(ErrorBody::new(ErrorCode::Cancelled, format!("the call of `{}` was cancelled", tool.id)))
        }
    }
}

/// Answers a program's search as `pml_discover` answers an agent; both need the right `read`.
async fn search_tools(
    gateway: &SharedGateway,
    requester: &Requester,
    arguments: Value,
) -> Result<Value, ErrorBody> {
    if !requester.caller.rights.contains(Right::Read) {
        let message = format!("`{SEARCH_TOOLS}` needs the right `{}`", Right::Read.as_str());
        return Err(ErrorBody::new(ErrorCode::Forbidden, message));
    }
    let request = DiscoverRequest::of_program(arguments)?;
    let found = discover(gateway, requester, request).await?;
    Ok(json!({ "content": [], "structuredContent": found }))
}

async fn call_native(tool: &ResolvedTool, arguments: Value) -> Result<Value, ErrorBody> {
    let Some(native) = tools::find(tool.id.namespace(), tool.id.action()) else {
        return Err(ErrorBody::new(
            ErrorCode::ToolUnavailable,
            format!("this version of the gateway has no native tool `{}`", tool.id),
        ));
    };
    // Native tools are CPU-bound, so they must not run on the async threads.
    // A timeout of the call does not stop this thread, so each tool limits its own work.
    let answer = tokio::task::spawn_blocking(move || native.call(arguments)).await;
    match answer {
        Ok(Ok(value)) => Ok(wrap_value(value)),
        Ok(Err(failure)) => {
            let code = match failure {
                ToolFailure::InvalidArguments(_) => ErrorCode::InvalidArguments,
                ToolFailure::ResultTooLarge { .. } => ErrorCode::ToolResultTooLarge,
                ToolFailure::Failed(_) => ErrorCode::ToolFailed,
            };
            Err(ErrorBody::new(code, format!("`{}`: {failure}", tool.id)))
        }
        Err(panic) => {
            tracing::error!(tool.name = %tool.id, error = %panic, "A native tool panicked");
            Err(ErrorBody::new(ErrorCode::Internal, format!("tool `{}` failed", tool.id)))
        }
    }
}
