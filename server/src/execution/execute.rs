//! One execution: analyse, resolve, route, then run or delegate.
//!
//! There are no HTTP types here: every outcome is an [`Envelope`].

mod named;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::{Analysis, Place};
use execution::failure;
use execution::spans::{self, Span};
use protocol::{
    CallLog, ContinueRequest, Delegation, DryRun, DryTask, Envelope, ErrorBody, ErrorCode,
    ExecuteOptions, ExecuteRequest, ExecutedOn, Include, Integrity, Routing, RoutingRules,
    RunError, RunNote, Scope, Side, Success, ToolId, ToolUse, TraceValue,
};
use registry::{
    Decision, ExecutionEnd, FinishedExecution, MissingTool, NewExecution, OwnTrace, RegistryError,
    ResolvedTool,
};
use sandbox::{FailureKind, Limits, Outcome, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::named::{local_tool_use, local_tools, shadowing, tool_use, unknown_tools};
use crate::admission::queue::QueueLimits;
use crate::error::registry_error;
use crate::execution::calls::{ProgramCalls, RunContext};
use crate::execution::capabilities::{self, Named, Reach};
use crate::execution::refusal;
use crate::identity::requester::{ClientKind, Requester};
use crate::metrics::{Decision as Decided, Limit, ProgramCount};
use crate::state::SharedGateway;
use crate::synced_tools;
use crate::traces::run_log::{RunEnd, RunLog};
use crate::upstreams::secrets::{self, Need};

/// An analysed program with its resolved tools and its routing.
struct Plan {
    code: String,
    args: Value,
    analysis: Arc<Analysis>,
    tools: Vec<Arc<ResolvedTool>>,
    reach: Reach,
    tools_used: Vec<ToolUse>,
    routing: Routing,
    /// The caller's scope.
    scope: Scope,
    /// The scope in which the program's names are resolved; other than the caller's only in a dry run.
    base: Scope,
    warnings: Vec<String>,
}

/// Executes a program, or delegates it.
pub(crate) async fn execute(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
    cancel: CancellationToken,
) -> Envelope {
    if let Some(decision) = &request.continue_workflow {
        return continue_workflow(decision);
    }
    let mut count = gateway.metrics.programs.begin();
    let envelope = decide(gateway, requester, request, cancel, &mut count).await;
    count.answered(&envelope);
    envelope
}

async fn decide(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
    cancel: CancellationToken,
    count: &mut ProgramCount<'_>,
) -> Envelope {
    let options = request.options.clone().unwrap_or_default();
    if request.within.is_some() && !options.dry_run {
        let message = "`within` is only for dry runs: a program always runs in the caller's scope";
        return Envelope::error(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    let mut plan = match plan(gateway, requester, request).await {
        Ok(plan) => plan,
        Err(error) => {
            tracing::info!(
                scope = %requester.scope(),
                error.code = error.error_code.name(),
                "Refused a program"
            );
            return Envelope::error(error);
        }
    };
    // The marks are only for `pml`, and only if it may run the program: each can cost a query.
    let may_run_on_client = plan.routing == Routing::Client || options.dry_run;
    if requester.client == ClientKind::Package && may_run_on_client {
        mark_missing_secrets(gateway, requester, &mut plan).await;
    }
    let envelope = match (plan.routing, requester.client) {
        // A dry run shows the routing also to a caller that could not run the program.
        _ if options.dry_run => {
            count.decided(Decided::DryRun);
            dry_run(plan)
        }
        (Routing::Server, _) => run(gateway, requester, plan, &options, cancel, count).await,
        (Routing::Client, ClientKind::Package) => delegate(gateway, requester, plan, count).await,
        (Routing::Client, ClientKind::Plain) => Envelope::error(needs_package(&plan)),
    };
    envelope.with_only(&options.include)
}

/// Answers `pml_continue`. Runs on the gateway never wait for a human, so there is no workflow to continue.
pub(crate) fn continue_workflow(request: &ContinueRequest) -> Envelope {
    // The answer is read by a model, and the id may be any text.
    let shown: String = request.workflow_id.chars().take(64).flat_map(char::escape_debug).collect();
    Envelope::error(ErrorBody::new(
        ErrorCode::WorkflowNotFound,
        format!("this key has no paused run `{shown}`"),
    ))
}

async fn plan(
    gateway: &SharedGateway,
    requester: &Requester,
    request: ExecuteRequest,
) -> Result<Plan, ErrorBody> {
    let code = request.code.ok_or_else(|| {
        ErrorBody::new(ErrorCode::InvalidRequest, "`code` is missing: the program to run")
    })?;
    let args = match request.args {
        None | Some(Value::Null) => json!({}),
        Some(args @ Value::Object(_)) => args,
        Some(_) => {
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, "`args` is not an object"));
        }
    };
    // Checked before the analysis, which is the expensive part.
    let local_tools = local_tools(requester.client, &request.local_tools)?;
    let span = Span::of_step("pml.analyze");
    let analysis = span.within(gateway.analyser.analyse(&code)).await;
    spans::end_step(span, analysis.as_ref().err().map(|error| error.error_code));
    let analysis = analysis?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    let tenant = requester.tenant();
    let scope = capabilities::scope_of(&tenant);
    let base = request.within.unwrap_or_else(|| scope.clone());
    let (resolved, reach) = capabilities::reach(gateway, &tenant, &base, &analysis.tools).await?;
    let local_tools = match requester.client {
        ClientKind::Package => local_tools,
        // Such a caller names none, so these are only names that the registry does not have.
        ClientKind::Plain => {
            let known = synced_tools::among_missing(&gateway.registry, &tenant, &resolved).await;
            known.map_err(|error| registry_error(&error))?
        }
    };
    // Tools of the caller's machine need not be registered.
    let unknown: Vec<&MissingTool> =
        resolved.missing.iter().filter(|missing| !local_tools.contains(&missing.id)).collect();
    if !unknown.is_empty() {
        return Err(unknown_tools(&unknown, &resolved.tools));
    }
    // A name that the caller's machine has runs there, even if the registry has the same name.
    let tools_used = analysis
        .tools
        .iter()
        .map(|id| match resolved.get(id) {
            Some(tool) if tool.routing == Routing::Client || !local_tools.contains(id) => {
                tool_use(tool, &base, &reach)
            }
            _ => Ok(local_tool_use(id)),
        })
        .collect::<Result<Vec<_>, ErrorBody>>()?;
    let routing =
        RoutingRules::decide(analysis.dynamic, tools_used.iter().map(|tool| tool.routing));
    // Without the names that the caller's machine has: their entries in the registry are not
    // called, so it does not matter what these hide.
    let registered = resolved
        .tools
        .iter()
        .filter(|tool| tool.routing == Routing::Client || !local_tools.contains(&tool.id));
    let warnings = shadowing(registered);
    Ok(Plan {
        code,
        args,
        analysis,
        tools: resolved.tools,
        reach,
        tools_used,
        routing,
        scope,
        base,
        warnings,
    })
}

/// Marks the tools whose calls would fail because a secret is missing, so that the CLI does not ask the user to approve
/// them.
async fn mark_missing_secrets(gateway: &SharedGateway, requester: &Requester, plan: &mut Plan) {
    for used in plan.tools_used.iter_mut().filter(|used| used.routing == Routing::Server) {
        let tool = plan.tools.iter().find(|tool| tool.id.as_str() == used.id);
        let Some(need) = tool.and_then(|tool| Need::of_tool(tool)) else { continue };
        if !secrets::is_available(&gateway.registry, requester, need).await {
            used.lacks_key = Some(need.variable.to_owned());
        }
    }
}

fn client_tools(plan: &Plan) -> Vec<String> {
    plan.tools_used
        .iter()
        .filter(|tool| tool.routing == Routing::Client)
        .map(|tool| tool.id.clone())
        .collect()
}

fn needs_package(plan: &Plan) -> ErrorBody {
    let tools = client_tools(plan);
    let why = if tools.is_empty() {
        "the program chooses its tools as it runs (dynamic)".to_owned()
    } else {
        format!("the program uses tools of the user's machine: {}", tools.join(", "))
    };
    refusal::needs_package(why, tools)
}

fn dry_run(plan: Plan) -> Envelope {
    let place = |id: &ToolId| {
        let used = plan.tools_used.iter().find(|used| used.id == id.as_str());
        let side = used.map_or(Side::Unknown, |used| used.routing.into());
        let named = Named { base: plan.base.clone(), id: id.clone() };
        // The errors are recursion and nesting, for which `plan` has already refused the program.
        let below = capabilities::below(&named, &plan.reach).unwrap_or_default();
        let runs_on_server = |named: &Named| {
            // What is unknown counts as the server, so that the plan hides no egress.
            plan.reach.get(named).is_none_or(|tool| tool.routing == Routing::Server)
        };
        Place {
            side,
            sends_within: side == Side::Client && below.iter().any(runs_on_server),
            well_known: true,
        }
    };
    let summary = analysis::plan_with(&plan.analysis, plan.routing.into(), place);
    let tasks = summary.tasks.into_iter().map(|task| DryTask {
        id: task.id,
        tool: task.tool,
        side: task.side,
        sends_within: task.sends_within,
        sends_to: None,
        line: task.line,
    });
    let dry_run = DryRun {
        dry_run: true,
        routing: plan.routing,
        dynamic: plan.analysis.dynamic,
        scope: Some(plan.scope.clone()),
        client_tools: client_tools(&plan),
        tasks: tasks.collect(),
        order: summary.order,
        text_goes_to: None,
        egress: summary.egress,
        args_egress: summary.args_egress,
        diagnostics: json!(plan.analysis.diagnostics),
    };
    let result = json!(dry_run);
    Envelope::Success(Box::new(Success {
        result,
        run: RunNote {
            // The answer must have an id. Nothing is recorded under it: nothing ran.
            execution_id: Uuid::now_v7().to_string(),
            executed: ExecutedOn::Server,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: plan.warnings,
            calls: Some(Vec::new()),
            failed_calls: Vec::new(),
            meta: None,
        },
        dag: Some(dag(&plan.analysis)),
        tools_used: Some(plan.tools_used),
    }))
}

async fn delegate(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: Plan,
    count: &mut ProgramCount<'_>,
) -> Envelope {
    let execution_id = Uuid::now_v7();
    // After this time, the outcome of the delegated run counts as indeterminate.
    let limit = Limits::client().wall;
    let decided = record(gateway, requester, &plan, execution_id, Decision::Client, limit).await;
    if let Err(error) = decided {
        return Envelope::error(registry_error(&error));
    }
    count.decided(Decided::Client);
    tracing::info!(
        execution.id = %execution_id,
        scope = %requester.scope(),
        tools = plan.tools_used.len(),
        "Delegated a program to the caller's machine"
    );
    Envelope::ExecuteLocally(Box::new(Delegation {
        code_hash: Integrity::of(plan.code.as_bytes()),
        client_tools: client_tools(&plan),
        warnings: plan.warnings,
        dag: dag(&plan.analysis),
        static_structure: serde_json::to_value(&plan.analysis.structure).unwrap_or_default(),
        tools_used: plan.tools_used,
        code: plan.code,
        workflow_id: format!("ws_{}", execution_id.simple()),
    }))
}

fn dag(analysis: &Analysis) -> Value {
    serde_json::to_value(&analysis.dag).unwrap_or_default()
}

/// Returns the tools that the program names and those that it reaches through capabilities, sorted.
fn recorded_tools(plan: &Plan) -> Vec<ToolId> {
    let reached = plan.reach.keys().map(|named| &named.id);
    let named = plan.analysis.tools.iter().chain(reached);
    named.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

async fn record(
    gateway: &SharedGateway,
    requester: &Requester,
    plan: &Plan,
    id: Uuid,
    decision: Decision,
    limit: Duration,
) -> Result<(), RegistryError> {
    let new = NewExecution {
        id,
        decision,
        code_hash: Integrity::of(plan.code.as_bytes()),
        code_bytes: plan.code.len(),
        // Only sizes and a hash: records contain neither code nor arguments.
        args_bytes: plan.args.to_string().len(),
        dynamic: plan.analysis.dynamic,
        tools: recorded_tools(plan),
        limit,
        error_code: None,
    };
    gateway.registry.begin_execution(&requester.tenant(), new).await
}

async fn run(
    gateway: &SharedGateway,
    requester: &Requester,
    mut plan: Plan,
    options: &ExecuteOptions,
    cancel: CancellationToken,
    count: &mut ProgramCount<'_>,
) -> Envelope {
    let execution_id = Uuid::now_v7();
    // Refused before anything is recorded, so that a flood of programs costs no writes.
    // Held until the end of this function, so that the program counts until it has ended.
    let Some(admitted) = gateway.queue.admit(requester.scope()) else {
        gateway.metrics.refusals.add(Limit::Programs);
        return Envelope::error(busy(gateway.queue.limits()));
    };
    let mut limits = Limits::server();
    // A caller can only shorten the limit.
    if let Some(timeout) = options.timeout_ms {
        limits.wall = limits.wall.min(Duration::from_millis(timeout.get()));
    }
    // The decision is recorded before it takes effect.
    let decided = record(gateway, requester, &plan, execution_id, Decision::Server, limits.wall);
    if let Err(error) = decided.await {
        return Envelope::error(registry_error(&error));
    }
    count.decided(Decided::Server);
    // For the trace. Without it the program runs as well.
    let log = RunLog::start().map(Arc::new);
    let context = RunContext::new(gateway.clone(), requester.clone(), plan.reach.clone())
        .with_log(log.clone());
    let calls = Arc::new(ProgramCalls::new(context, plan.tools.iter().cloned()));
    let program = Program {
        source: plan.analysis.program.clone(),
        args: plan.args.clone(),
        implicit_returns: plan.analysis.implicit_returns.clone(),
        ..Program::default()
    };
    let queued = Instant::now();
    let _slot = tokio::select! {
        // The run below reports the cancellation.
        () = cancel.cancelled() => None,
        slot = admitted.wait() => Some(slot),
    };
    count.left_queue(queued.elapsed());
    let mut span = Span::of_step("pml.run");
    span.set("pml.execution.id", || execution_id.to_string());
    let outcome = gateway.sandboxes.run(program, &limits, calls.clone(), cancel);
    let mut outcome = span.within(outcome).await;
    let end = match &outcome.result {
        Ok(_) => ExecutionEnd::Success,
        Err(failure) if failure.kind == FailureKind::Cancelled => ExecutionEnd::Cancelled,
        Err(_) => ExecutionEnd::Error,
    };
    let calls_made = u32::try_from(outcome.calls).unwrap_or(u32::MAX);
    let arguments = summary(log.as_deref(), &mut plan.args).await;
    let result = match &mut outcome.result {
        Ok(result) => summary(log.as_deref(), result).await,
        Err(_) => None,
    };
    let result_bytes =
        result.as_ref().map_or(0, |it| usize::try_from(it.bytes).unwrap_or(usize::MAX));
    let duration = outcome.duration;
    count.ran(duration);
    let envelope = envelope(execution_id, &plan, &options.include, &calls.log(), outcome);
    let error_code = match &envelope {
        Envelope::Error(failed) => Some(failed.error.error_code),
        _ => None,
    };
    spans::end_step(span, error_code);
    tracing::info!(
        execution.id = %execution_id,
        scope = %requester.scope(),
        ok = error_code.is_none(),
        error.code = error_code.map(ErrorCode::name),
        duration_ms = duration.as_secs_f64() * 1e3,
        "Executed a program"
    );
    let finished = FinishedExecution { end, error_code, result_bytes, calls: calls_made, duration };
    // Nobody waits for it: it says what has happened, and the answer is no less true without it.
    let recorded = gateway.registry.finish_execution(&requester.tenant(), execution_id, finished);
    tokio::spawn(async move {
        if let Err(error) = recorded.await {
            // The record has the start of the run but not its end.
            tracing::error!(execution.id = %execution_id, error = %error, "Could not record the end of an execution");
        }
    });
    if let Some(log) = log {
        let end = RunEnd {
            execution_id,
            code_hash: Integrity::of(plan.code.as_bytes()),
            is_cancelled: end == ExecutionEnd::Cancelled,
            error_code,
            arguments,
            result,
        };
        let principal = requester.caller.principal.clone();
        gateway.traces.record(requester.scope(), OwnTrace { principal, trace: log.trace(end) });
    }
    envelope
}

/// Summarizes a value for the trace, and leaves it in its place.
async fn summary(log: Option<&RunLog>, value: &mut Value) -> Option<TraceValue> {
    let log = log?;
    let (back, summary) = log.summarize(std::mem::take(value)).await;
    *value = back;
    summary
}

fn busy(QueueLimits { running, waiting }: QueueLimits) -> ErrorBody {
    let message =
        format!("limit reached: {running} programs running, {waiting} queued; retry in 1 s");
    ErrorBody::new(ErrorCode::Busy, message).with_details(json!({ "retry_after_s": 1 }))
}

fn envelope(
    execution_id: Uuid,
    plan: &Plan,
    include: &[Include],
    calls: &CallLog,
    outcome: Outcome,
) -> Envelope {
    let mut warnings = plan.warnings.clone();
    warnings.extend(plan.analysis.run_warnings());
    warnings.extend(protocol::unanswered_calls(&outcome.unanswered));
    if outcome.returned_nothing && outcome.console.is_empty() {
        warnings.push(protocol::NO_VALUE.to_owned());
    }
    let run = RunNote {
        execution_id: execution_id.to_string(),
        executed: ExecutedOn::Server,
        duration_ms: outcome.duration.as_secs_f64() * 1e3,
        console: outcome
            .console
            .into_iter()
            .map(|line| protocol::ConsoleLine { level: line.level, text: line.text })
            .collect(),
        console_truncated: outcome.console_truncated,
        warnings,
        calls: Some(calls.notes()),
        failed_calls: Vec::new(),
        meta: None,
    };
    match outcome.result {
        Ok(result) => Envelope::Success(Box::new(Success {
            result,
            run,
            tools_used: Some(plan.tools_used.clone()),
            dag: include.contains(&Include::Dag).then(|| dag(&plan.analysis)),
        })),
        Err(failure) => Envelope::Error(Box::new(RunError {
            error: failure::error_body(&failure, &plan.code, calls),
            run: Some(run),
        })),
    }
}
