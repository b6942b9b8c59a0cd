//! The story of one execution, seen from the user's machine.
//!
//! Analyse here, ask the gateway what it knows, check its answer, then run the
//! program in the sandbox with every call going through the [`Router`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::Analysis;
use protocol::{
    Delegation, Envelope, ErrorBody, ErrorCode, ExecuteRequest, ExecutedOn, Integrity, Routing,
    RunError, RunNote, Success, ToolId, ToolUse, ToolUseType,
};
use sandbox::{Limits, Outcome, Program};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::consent::permissions::Verdict;
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
    timeout_ms: Option<u64>,
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
    let program = match prepare(app, request, &cancel).await {
        Ok(Prepared::Local(program)) => program,
        Ok(Prepared::Answered(envelope)) => return *envelope,
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
            limits.wall = limits.wall.min(Duration::from_millis(timeout));
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
        envelope(run_id, &program, router.ended(), outcome)
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
    refuse_denied(app, &analysis)?;
    let local: Vec<&ToolId> = analysis.tools.iter().filter(|id| app.is_local(id)).collect();
    let all_server = !analysis.dynamic
        && local.is_empty()
        && analysis.tools.iter().all(|id| app.shipped_routing(id) == Routing::Server);
    let submission = ExecuteRequest {
        // Arguments leave the machine only with a program that has no local part.
        args: all_server.then(|| args.clone()),
        local_tools: local.iter().map(|id| id.to_string()).collect(),
        continue_workflow: None,
        ..request
    };
    let dry_run = submission.options.as_ref().is_some_and(|options| options.dry_run);
    let timeout_ms = submission.options.as_ref().and_then(|options| options.timeout_ms);
    let all_local = !analysis.dynamic && local.len() == analysis.tools.len();
    let delegation = match ask_gateway(app, &submission, all_local, cancel).await? {
        Some(Envelope::ExecuteLocally(_)) if dry_run => {
            return Err(ErrorBody::new(
                ErrorCode::GatewayBadAnswer,
                "the gateway answered a dry run with a program to run",
            ));
        }
        Some(Envelope::ExecuteLocally(delegation)) => Some(check(*delegation, &code)?),
        Some(other) => return Ok(Prepared::Answered(Box::new(other))),
        None if dry_run => return Ok(Prepared::Answered(Box::new(dry_run_answer(&analysis)))),
        None => None,
    };
    let named: HashMap<&str, &ToolUse> = delegation
        .iter()
        .flat_map(|delegation| &delegation.tools_used)
        .map(|tool| (tool.id.as_str(), tool))
        .collect();
    // What may be called is what our own analysis found; the gateway only says where it is.
    let mut targets = HashMap::new();
    let mut tools_used = Vec::new();
    for id in &analysis.tools {
        let known = named.get(id.as_str()).copied();
        let target = app.find_target(id, known).await?;
        tools_used.push(known.cloned().unwrap_or_else(|| local_tool_use(id)));
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

/// Asks the gateway what it knows of a program.
///
/// Returns nothing for a program whose tools are all here when there is no
/// gateway to ask: it cannot be reached, or there is no key for it.
async fn ask_gateway(
    app: &App,
    submission: &ExecuteRequest,
    all_local: bool,
    cancel: &CancellationToken,
) -> Result<Option<Envelope>, ErrorBody> {
    let cloud = app.cloud()?;
    if all_local && !cloud.has_key() {
        return Ok(None);
    }
    let started = Instant::now();
    let answer = cloud.execute(submission, cancel).await;
    tracing::debug!(
        gateway = %cloud.gateway(),
        duration_ms = started.elapsed().as_secs_f64() * 1e3,
        status = answer.as_ref().map_or_else(|error| error.error_code.name(), Envelope::status),
        "The gateway was asked"
    );
    match answer {
        Err(error) if all_local && error.error_code == ErrorCode::GatewayUnreachable => {
            tracing::warn!(error = %error.message, "Running without the gateway");
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// Tells of a program whose tools are all here where it would run.
fn dry_run_answer(analysis: &Analysis) -> Envelope {
    let result = json!({
        "dry_run": true,
        "routing": Routing::Client,
        "dynamic": analysis.dynamic,
        "client_tools": analysis.tools,
        "diagnostics": analysis.diagnostics,
    });
    Envelope::Success(Box::new(Success {
        result,
        run: RunNote {
            execution_id: uuid::Uuid::now_v7().to_string(),
            executed: ExecutedOn::Client,
            duration_ms: 0.0,
            console: Vec::new(),
            console_truncated: false,
            warnings: Vec::new(),
            calls: Vec::new(),
        },
        tools_used: analysis.tools.iter().map(local_tool_use).collect(),
        dag: serde_json::to_value(&analysis.dag).unwrap_or_default(),
    }))
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

/// Holds the gateway's answer against what was submitted.
fn check(delegation: Delegation, code: &str) -> Result<Delegation, ErrorBody> {
    let submitted = Integrity::of(code.as_bytes());
    if delegation.code_hash != submitted || delegation.code != code {
        return Err(ErrorBody::new(
            ErrorCode::CodeHashMismatch,
            format!(
                "the gateway answered with a program ({}) that is not the submitted one ({submitted})",
                delegation.code_hash
            ),
        ));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = delegation.tools_used.iter().find(|tool| !seen.insert(&tool.id)) {
        return Err(ErrorBody::new(
            ErrorCode::GatewayBadAnswer,
            format!("the gateway named tool `{}` twice", protocol::escape_text(&twice.id)),
        ));
    }
    Ok(delegation)
}

fn local_tool_use(id: &ToolId) -> ToolUse {
    ToolUse {
        id: id.to_string(),
        fqdn: None,
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        integrity: None,
        tools: None,
    }
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
        warnings: ended.warnings,
        calls: ended.log.notes(),
    };
    match (outcome.result, ended.refused) {
        (_, Some(error)) => Envelope::Error(Box::new(RunError { error, run: Some(run) })),
        (Err(failure), None) => Envelope::Error(Box::new(RunError {
            error: failure::error_body(&failure, &program.code, ended.log.issued()),
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
