//! The story of one execution, seen from the user's machine.
//!
//! Analyse here, query the gateway, check its answer, then run the program in the sandbox with every call going
//! through the `router`.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use analysis::{Analysis, Code};
use protocol::{
    Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Include, Integrity, RunError,
    RunNote, Success, ToolId, ToolUse,
};
use sandbox::{Limits, Outcome, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::capabilities::Target;
use crate::consult::{self, Word, consult};
use crate::failure;
use crate::local_run::{Ended, LocalRun};
use crate::router::Router;
use crate::run::PausedRun;
use crate::targets::{self, Resolver};

/// The time limit for resolving everything that a program reaches.
const LOOK_UP: Duration = Duration::from_secs(90);

/// A program that is about to run here.
struct LocalProgram {
    code: String,
    args: Value,
    analysis: Arc<Analysis>,
    targets: HashMap<ToolId, Target>,
    warnings: Vec<String>,
    tools_used: Vec<ToolUse>,
    timeout_ms: Option<NonZeroU64>,
}

/// Executes a program, here or on the gateway, wherever its tools are.
pub async fn execute(
    app: &Arc<App>,
    request: ExecuteRequest,
    cancel: CancellationToken,
) -> Envelope {
    if let Some(decision) = &request.continue_workflow {
        return crate::resume::resume(app, decision, cancel).await;
    }
    // A dry run has shown nothing.
    let dry = request.options.as_ref().is_some_and(|options| options.dry_run);
    let include = request.options.as_ref().map_or_else(Vec::new, |options| options.include.clone());
    let ran = request.code.clone().filter(|_| !dry);
    let program = match prepare(app, request, &cancel).await {
        Ok(Prepared::Local(program)) => program,
        Ok(Prepared::Answered(envelope)) => {
            if let Some(code) = ran {
                app.finished.remember(&envelope, &code);
            }
            return envelope.with_only(&include);
        }
        Err(error) => return Envelope::error(error),
    };
    let app = Arc::clone(app);
    let approvals = Arc::clone(&app.approvals);
    let code_hash = Integrity::of(program.code.as_bytes());
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
        // All calls that a program starts together can be one question; the router limits how many run.
        limits.in_flight = usize::try_from(limits.calls).unwrap_or(limits.in_flight);
        if let Some(timeout) = program.timeout_ms {
            limits.wall = limits.wall.min(Duration::from_millis(timeout.get()));
        }
        let run =
            LocalRun::new(Arc::clone(&app), run_id.clone(), limits.clone(), events, stop.clone());
        let run = Arc::new(run);
        let router = Router::new(Arc::clone(&run), targets.clone(), analysis.dynamic);
        let job = Program {
            source: analysis.program.clone(),
            args: program.args.clone(),
            implicit_returns: analysis.implicit_returns.clone(),
            ..Program::default()
        };
        let sandboxes = match app.sandboxes() {
            Ok(sandboxes) => sandboxes,
            Err(error) => return Envelope::error(error),
        };
        let outcome = sandboxes.run(job, &limits, Arc::new(router), stop).await;
        tracing::debug!(
            run = %run_id,
            duration_ms = outcome.duration.as_secs_f64() * 1e3,
            failure = outcome.result.as_ref().err().map(|failure| failure.kind.as_str()),
            "The program ended"
        );
        let envelope = envelope(run_id, &program, &include, run.ended(), outcome);
        app.finished.remember(&envelope, &program.code);
        envelope.with_only(&include)
    });
    run.follow(&approvals, &cancel).await
}

enum Prepared {
    /// It runs here.
    Local(Box<LocalProgram>),
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Determines what the program needs and who runs it; if this returns an error, nothing has run and nobody was asked.
async fn prepare(
    app: &Arc<App>,
    request: ExecuteRequest,
    cancel: &CancellationToken,
) -> Result<Prepared, ErrorBody> {
    let code = request.code.clone().ok_or_else(|| {
        ErrorBody::new(ErrorCode::InvalidRequest, "`code` is missing: the program to run")
    })?;
    let args = match request.args.clone() {
        None | Some(Value::Null) => json!({}),
        Some(args @ Value::Object(_)) => args,
        Some(_) => {
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, "`args` is not an object"));
        }
    };
    let analysis = app.analyser()?.analyse(&code).await?;
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    // The user may have edited the rules since the last program.
    app.read_permissions()?;
    for id in &analysis.tools {
        targets::refuse_denied(app, id, "")?;
    }
    let timeout_ms = request.options.as_ref().and_then(|options| options.timeout_ms);
    let (told, alone) = match consult(app, request, &analysis, &args, cancel).await? {
        Word::RunHere(told) => (told, false),
        Word::RunAlone(warnings) => (consult::Told { warnings, ..Default::default() }, true),
        Word::Answered(envelope) => return Ok(Prepared::Answered(envelope)),
    };
    // Our own analysis determines what may be called; the gateway only says where it is.
    let mut resolver = Resolver::new(app, alone, cancel);
    let found = tokio::time::timeout(LOOK_UP, resolver.resolve(&analysis.tools, &told.tools));
    let targets = tokio::select! {
        found = found => found.unwrap_or_else(|_| Err(too_slow()))?,
        () = cancel.cancelled() => {
            return Err(ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled"));
        }
    };
    let tools_used = analysis.tools.iter().map(|id| match targets.get(id) {
        Some(Target::Capability(capability)) => capability.tool_use(id),
        _ => {
            let known = told.tools.iter().find(|tool| tool.id == id.as_str());
            known.cloned().unwrap_or_else(|| consult::local_tool_use(id))
        }
    });
    let tools_used = tools_used.collect();
    Ok(Prepared::Local(Box::new(LocalProgram {
        code,
        args,
        analysis,
        targets,
        tools_used,
        warnings: told.warnings,
        timeout_ms,
    })))
}

fn too_slow() -> ErrorBody {
    let message = format!(
        "the gateway did not describe the program's capabilities within {} s",
        LOOK_UP.as_secs()
    );
    ErrorBody::new(ErrorCode::GatewayUnreachable, message)
}

/// Explains, for a call that the engine reports as "not a function", how a tool is called: the analysis knows the
/// position.
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
