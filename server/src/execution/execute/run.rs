//! A program that runs here: recorded, queued, run in a sandbox, and recorded again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use execution::failure;
use execution::spans::{self, Span};
use protocol::{
    CallLog, Envelope, ErrorBody, ErrorCode, ExecuteOptions, ExecutedOn, Include, Integrity,
    RunError, RunNote, Success, TraceValue,
};
use registry::{Decision, ExecutionEnd, FinishedExecution, OwnTrace};
use sandbox::{FailureKind, Limits, Outcome, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::plan::Plan;
use super::record;
use crate::admission::queue::QueueLimits;
use crate::error::registry_error;
use crate::execution::calls::{ProgramCalls, RunContext};
use crate::identity::requester::Requester;
use crate::metrics::{Decision as Decided, Limit, ProgramCount};
use crate::state::SharedGateway;
use crate::traces::run_log::{RunEnd, RunLog};

/// Runs a program, and records that it does before it takes effect.
pub(super) async fn run(
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
        return busy(gateway);
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

/// Refuses a program of a tenant that is at its limit.
pub(super) fn busy(gateway: &SharedGateway) -> Envelope {
    gateway.metrics.refusals.add(Limit::Programs);
    let QueueLimits { running, waiting } = gateway.queue.limits();
    let message =
        format!("limit reached: {running} programs running, {waiting} queued; retry in 1 s");
    let error = ErrorBody::new(ErrorCode::Busy, message);
    Envelope::error(error.with_details(json!({ "retry_after_s": 1 })))
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
            dag: include.contains(&Include::Dag).then(|| plan.dag()),
        })),
        Err(failure) => Envelope::Error(Box::new(RunError {
            error: failure::error_body(&failure, &plan.code, calls),
            run: Some(run),
        })),
    }
}
