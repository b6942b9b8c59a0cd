//! One execution on the user's machine, step by step.
//!
//! The program is analysed here, the gateway is queried and its answer is checked. Then the program runs in the
//! sandbox, and every call goes through the `router`.

use std::sync::Arc;
use std::time::Duration;

use analysis::{Analysis, Code};
use execution::failure;
use protocol::{
    Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Include, Integrity, RunError,
    RunNote, Success,
};
use sandbox::{Limits, Outcome, Program};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::local_run::{Ended, LocalRun};
use super::paused::PausedRun;
use super::prepare::{LocalProgram, Prepared, prepare};
use super::recorder::Recorder;
use super::router::Router;
use super::{Runs, resume};
use crate::app::App;
use crate::consent::question::Channel;
use crate::policy::PolicyOfRun;

/// Executes a program here or on the gateway, depending on where its tools are.
pub(crate) async fn execute(
    runs: &Runs,
    request: ExecuteRequest,
    cancel: CancellationToken,
) -> Envelope {
    if let Some(decision) = &request.continue_workflow {
        return resume::resume(runs, decision, Channel::Agent, true, cancel).await;
    }
    // A dry run produced no result, so its program cannot be published by the id of the run.
    let dry = request.options.as_ref().is_some_and(|options| options.dry_run);
    // `consult` requests all fields from the gateway, so the agent's own list is kept here.
    let include = request.options.as_ref().map_or_else(Vec::new, |options| options.include.clone());
    let ran = request.code.clone().filter(|_| !dry);
    // Everything that can fail or be denied up front is checked before the sandbox starts.
    let program = match prepare(&runs.app, request, &cancel).await {
        Ok(Prepared::Local(program)) => program,
        Ok(Prepared::Answered(envelope)) => {
            if let Some(code) = ran {
                runs.finished.remember(&envelope, &code);
            }
            return envelope.with_only(&include);
        }
        Err(error) => return Envelope::error(error),
    };
    // What cannot be recorded does not run.
    let opened = tokio::select! {
        opened = App::run_store(&runs.app) => opened,
        () = cancel.cancelled() => {
            Err(ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled"))
        }
    };
    let store = match opened {
        Ok(store) => store,
        Err(error) => return Envelope::error(error),
    };
    let (app, finished) = (Arc::clone(&runs.app), Arc::clone(&runs.finished));
    let code_hash = Integrity::of(program.code.as_bytes());
    let can_ask = runs.can_ask;
    let run = PausedRun::start(code_hash, move |events, stop| async move {
        let run_id = uuid::Uuid::now_v7().to_string();
        let LocalProgram { analysis, targets, .. } = &*program;
        tracing::debug!(
            run = %run_id,
            tools = targets.len(),
            dynamic = analysis.dynamic,
            "Running a program here"
        );
        let mut limits = Limits::client();
        // Concurrent calls can be combined into one question, so all of them may be pending; the router limits how many
        // execute.
        limits.in_flight = usize::try_from(limits.calls).unwrap_or(limits.in_flight);
        if let Some(timeout) = program.timeout_ms {
            limits.wall = limits.wall.min(Duration::from_millis(timeout.get()));
        }
        // Before the record of the start: a program that no sandbox can run has not started.
        let sandboxes = match app.sandboxes() {
            Ok(sandboxes) => sandboxes,
            Err(error) => return Envelope::error(error),
        };
        let permissions = app.permissions();
        let policy = Arc::new(PolicyOfRun::new(Arc::clone(permissions.policy())));
        if let Some(total) = policy.policy().total_ms() {
            limits.wall = limits.wall.min(Duration::from_millis(total));
        }
        let recorder = match Recorder::begin(store, &run_id, &program, &permissions).await {
            Ok(recorder) => recorder,
            Err(error) => return Envelope::error(error),
        };
        let (id, limits_of_run) = (run_id.clone(), limits.clone());
        let app = Arc::clone(&app);
        let run = LocalRun::new(app, id, limits_of_run, policy, recorder, events, stop.clone());
        let run = Arc::new(run);
        // Asked once, before anything happens.
        if let Err(error) = run.ask_about_plan(&program, can_ask, &stop).await {
            let mut envelope = not_started(run_id, &program, run.ended(), error);
            record_end(&run, &mut envelope).await;
            return envelope.with_only(&include);
        }
        let router = Router::new(Arc::clone(&run), targets.clone(), analysis.dynamic);
        let job = Program {
            source: analysis.program.clone(),
            args: program.args.clone(),
            implicit_returns: analysis.implicit_returns.clone(),
            ..Program::default()
        };
        let outcome = sandboxes.run(job, &limits, Arc::new(router), stop).await;
        tracing::debug!(
            run = %run_id,
            duration_ms = outcome.duration.as_secs_f64() * 1e3,
            failure = outcome.result.as_ref().err().map(|failure| failure.kind.as_str()),
            "The program ended"
        );
        // Before its result is known to anybody.
        if let Err(error) = run.recorder.finish_calls().await {
            run.end_with(error);
        }
        let mut envelope = envelope(run_id, &program, &include, run.ended(), outcome);
        record_end(&run, &mut envelope).await;
        finished.remember(&envelope, &program.code);
        envelope.with_only(&include)
    });
    runs.approvals.follow(run, &cancel).await
}

/// Records the end of a run. Its calls are recorded already, so if this fails, the caller still gets the result.
async fn record_end(run: &LocalRun, envelope: &mut Envelope) {
    if let Err(error) = run.record_open_question().await {
        tracing::warn!(error = %error.message, "An unanswered question was not recorded");
    }
    let (recorded, warnings) = match envelope {
        Envelope::Success(success) => {
            (run.recorder.end(Ok(&success.result)).await, Some(&mut success.run.warnings))
        }
        Envelope::Error(failed) => {
            let recorded = run.recorder.end(Err(&failed.error)).await;
            (recorded, failed.run.as_mut().map(|run| &mut run.warnings))
        }
        Envelope::ExecuteLocally(_) | Envelope::ApprovalRequired(_) => return,
    };
    if let (Err(error), Some(warnings)) = (recorded, warnings) {
        warnings.push(format!("the end of the run was not recorded: {}", error.message));
    }
}

/// For a call that the engine reports as "not a function", sets the hint to the analysis' diagnostic at that line,
/// which explains how to call a tool.
fn explain_call(error: &mut ErrorBody, analysis: &Analysis) {
    if error.error_code != ErrorCode::ProgramFailed || !error.message.ends_with("not a function") {
        return;
    }
    let line = error.details.get("line").and_then(Value::as_u64);
    let seen = analysis.diagnostics.iter().find(|diagnostic| {
        diagnostic.code == Code::DynamicCall && Some(u64::from(diagnostic.line)) == line
    });
    if let Some(seen) = seen {
        error.hint.clone_from(&seen.message);
    }
}

/// Returns the envelope of a program that the user did not allow.
fn not_started(
    execution_id: String,
    program: &LocalProgram,
    ended: Ended,
    error: ErrorBody,
) -> Envelope {
    let mut warnings = program.warnings.clone();
    warnings.extend(ended.warnings);
    let run = RunNote {
        execution_id,
        executed: ExecutedOn::Client,
        duration_ms: 0.0,
        console: Vec::new(),
        console_truncated: false,
        warnings,
        calls: Some(Vec::new()),
        failed_calls: Vec::new(),
        meta: None,
    };
    Envelope::Error(Box::new(RunError { error, run: Some(run) }))
}

fn envelope(
    execution_id: String,
    program: &LocalProgram,
    include: &[Include],
    ended: Ended,
    outcome: Outcome,
) -> Envelope {
    let mut warnings = program.warnings.clone();
    warnings.extend(ended.warnings);
    warnings.extend(program.analysis.run_warnings());
    warnings.extend(protocol::unanswered_calls(&outcome.unanswered));
    if outcome.returned_nothing && outcome.console.is_empty() {
        warnings.push(protocol::NO_VALUE.to_owned());
    }
    let run = RunNote {
        execution_id,
        executed: ExecutedOn::Client,
        duration_ms: outcome.duration.as_secs_f64() * 1e3,
        console: outcome
            .console
            .into_iter()
            .map(|line| protocol::ConsoleLine { level: line.level, text: line.text })
            .collect(),
        console_truncated: outcome.console_truncated,
        warnings,
        calls: Some(ended.log.notes()),
        failed_calls: Vec::new(),
        meta: None,
    };
    match (outcome.result, ended.refused) {
        // The program may have caught the error and returned a value. The refusal still ends the
        // run.
        (_, Some(error)) => Envelope::Error(Box::new(RunError { error, run: Some(run) })),
        (Err(failure), None) => {
            let mut error = failure::error_body(&failure, &program.code, &ended.log);
            explain_call(&mut error, &program.analysis);
            Envelope::Error(Box::new(RunError { error, run: Some(run) }))
        }
        (Ok(result), None) => Envelope::Success(Box::new(Success {
            result,
            run,
            tools_used: Some(program.tools_used.clone()),
            dag: include
                .contains(&Include::Dag)
                .then(|| serde_json::to_value(&program.analysis.dag).unwrap_or_default()),
        })),
    }
}
