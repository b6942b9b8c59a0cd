//! The story of one execution, seen from the user's machine.
//!
//! Analyse here, ask the gateway what it knows, check its answer, then run the
//! program in the sandbox with every call going through the [`Router`].

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use analysis::Analysis;
use protocol::{
    Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Integrity, RunError, RunNote,
    Success, ToolId, ToolUse,
};
use sandbox::{Limits, Outcome, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::consent::permissions::Verdict;
use crate::consult::{self, Word, consult};
use crate::failure;
use crate::router::{Ended, Router, Target};
use crate::run::PausedRun;

/// A program that is about to run here.
struct LocalProgram {
    code: String,
    args: Value,
    analysis: Arc<Analysis>,
    targets: HashMap<ToolId, Target>,
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
    let ran = request.code.clone().filter(|_| !dry);
    let program = match prepare(app, request, &cancel).await {
        Ok(Prepared::Local(program)) => program,
        Ok(Prepared::Answered(envelope)) => {
            if let Some(code) = ran {
                app.finished.remember(&envelope, &code);
            }
            return *envelope;
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
        let router = Arc::new(Router::new(
            Arc::clone(&app),
            run_id.clone(),
            targets.clone(),
            analysis.dynamic,
            events,
            stop.clone(),
        ));
        let mut limits = Limits::client();
        if let Some(timeout) = program.timeout_ms {
            limits.wall = limits.wall.min(Duration::from_millis(timeout.get()));
        }
        let job = Program {
            source: analysis.program.clone(),
            args: program.args.clone(),
            epoch_ms: None,
            seed: None,
        };
        let sandboxes = match app.sandboxes() {
            Ok(sandboxes) => sandboxes,
            Err(error) => return Envelope::error(error),
        };
        let outcome = sandboxes.run(job, &limits, router.clone(), stop).await;
        tracing::debug!(
            run = %run_id,
            duration_ms = outcome.duration.as_secs_f64() * 1e3,
            failure = outcome.result.as_ref().err().map(|failure| failure.kind.as_str()),
            "The program ended"
        );
        let envelope = envelope(run_id, &program, router.ended(), outcome);
        app.finished.remember(&envelope, &program.code);
        envelope
    });
    run.follow(&approvals, &cancel).await
}

enum Prepared {
    /// It runs here.
    Local(Box<LocalProgram>),
    /// The gateway has answered already.
    Answered(Box<Envelope>),
}

/// Finds out what the program needs and who runs it; nothing has run and nobody
/// was asked when this returns an error.
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
    refuse_denied(app, &analysis)?;
    let timeout_ms = request.options.as_ref().and_then(|options| options.timeout_ms);
    let told = match consult(app, request, &analysis, &args, cancel).await? {
        Word::RunHere(told) => told,
        Word::Answered(envelope) => return Ok(Prepared::Answered(envelope)),
    };
    let named: HashMap<&str, &ToolUse> = told.iter().map(|tool| (tool.id.as_str(), tool)).collect();
    // What may be called is what our own analysis found; the gateway only says where it is.
    let mut targets = HashMap::new();
    let mut tools_used = Vec::new();
    for id in &analysis.tools {
        let known = named.get(id.as_str()).copied();
        let target = app.find_target(id, known).await?;
        tools_used.push(known.cloned().unwrap_or_else(|| consult::local_tool_use(id)));
        targets.insert(id.clone(), target);
    }
    Ok(Prepared::Local(Box::new(LocalProgram {
        code,
        args,
        analysis,
        targets,
        tools_used,
        timeout_ms,
    })))
}

/// Refuses a program with a denied tool before anything runs or anybody is asked.
fn refuse_denied(app: &App, analysis: &Analysis) -> Result<(), ErrorBody> {
    let permissions = app.permissions();
    for id in &analysis.tools {
        let decision = permissions.decide(id);
        if decision.verdict == Verdict::Deny {
            return Err(ErrorBody::new(
                ErrorCode::PermissionDenied,
                format!("tool `{id}` is denied: {}", decision.reason),
            )
            .with_details(json!({ "tool": id })));
        }
    }
    Ok(())
}

fn envelope(
    execution_id: String,
    program: &LocalProgram,
    ended: Ended,
    outcome: Outcome,
) -> Envelope {
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
        warnings: [ended.warnings, protocol::unanswered_calls(&outcome.unanswered)].concat(),
        calls: ended.log.notes(),
    };
    match (outcome.result, ended.refused) {
        (_, Some(error)) => Envelope::Error(Box::new(RunError { error, run: Some(run) })),
        (Err(failure), None) => Envelope::Error(Box::new(RunError {
            error: failure::error_body(&failure, &program.code, &ended.log),
            run: Some(run),
        })),
        (Ok(result), None) => Envelope::Success(Box::new(Success {
            result,
            run,
            tools_used: program.tools_used.clone(),
            dag: serde_json::to_value(&program.analysis.dag).unwrap_or_default(),
        })),
    }
}
