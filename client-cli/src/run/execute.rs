//! Executes a program: prepares it, and runs it here or has the gateway run it.

use std::sync::Arc;

use protocol::{
    Envelope, ErrorBody, ErrorCode, ExecuteOptions, ExecuteRequest, Include, Integrity,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::journal::Journal;
use super::local_execution::{LocalExecution, Resumed};
use super::mock::Mock;
use super::paused::PausedRun;
use super::prepare::{LocalProgram, Prepared, Terms, prepare};
use super::recorder::Recorder;
use super::{Runs, missing_key, resume};
use crate::app::App;
use crate::consent::question::Channel;
use crate::run_store::live::LiveRun;

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
    let args = request.args.clone().unwrap_or_default();
    // Everything that can fail or be denied up front is checked before the sandbox starts.
    let terms = match (&runs.lock, runs.without_gateway) {
        (Some(lock), _) => Terms::Locked(lock),
        (None, true) => Terms::WithoutGateway,
        (None, false) => Terms::Anywhere,
    };
    let program = match prepare(&runs.app, request, terms, &cancel).await {
        Ok(Prepared::Local(program)) => program,
        Ok(Prepared::Answered(envelope)) => {
            if let Some(code) = ran {
                runs.finished.remember(&envelope, &code);
            }
            return envelope.with_only(&include);
        }
        Err(error) => {
            if let Some(code) = ran {
                record_refusal(&runs.app, &code, &args, &error).await;
            }
            return Envelope::error(error);
        }
    };
    if let Err(error) = missing_key::check(&runs.app, &program.analysis, &program.targets) {
        return Envelope::error(error);
    }
    run_here(runs, program, include, None, None, &cancel).await
}

/// Records a program that a rule, the policy or a hash denied before it started. It is refused also if that fails.
async fn record_refusal(app: &Arc<App>, code: &str, args: &Value, error: &ErrorBody) {
    use ErrorCode::{IntegrityMismatch, PermissionDenied, PolicyDenied};
    if !matches!(error.error_code, PermissionDenied | PolicyDenied | IntegrityMismatch) {
        return;
    }
    let recorded = async {
        let store = App::run_store(app).await?;
        Recorder::refuse(store, code, args, &app.permissions(), error).await
    };
    if let Err(error) = recorded.await {
        tracing::warn!(error = %error.message, "A refused program was not recorded");
    }
}

/// Resumes a run whose `pml` was stopped; `live` is its lock.
pub(crate) async fn resume_recorded(
    runs: &Runs,
    journal: Journal,
    live: LiveRun,
    include: Vec<Include>,
    cancel: CancellationToken,
) -> Envelope {
    let (code, args) = (Some(journal.code.clone()), Some(journal.args.clone()));
    let options = ExecuteOptions { include: include.clone(), ..ExecuteOptions::default() };
    let request =
        ExecuteRequest { code, args, options: Some(options), ..ExecuteRequest::default() };
    let terms = runs.lock.as_ref().map_or(Terms::Here, Terms::Locked);
    match prepare(&runs.app, request, terms, &cancel).await {
        Ok(Prepared::Local(program)) => {
            let resumed = Resumed { journal: Arc::new(journal), live };
            run_here(runs, program, include, Some(resumed), None, &cancel).await
        }
        // Only a refusal: the program was not to be run elsewhere.
        Ok(Prepared::Answered(envelope)) => *envelope,
        Err(error) => Envelope::error(error),
    }
}

/// Executes a program on this machine with the answers of another run; the calls that it has no answers for are made as in
/// any other run.
pub(crate) async fn execute_mocked(
    runs: &Runs,
    request: ExecuteRequest,
    mock: Mock,
    cancel: CancellationToken,
) -> Envelope {
    let include = request.options.as_ref().map_or_else(Vec::new, |options| options.include.clone());
    let (code, args) = (request.code.clone(), request.args.clone().unwrap_or_default());
    let terms = runs.lock.as_ref().map_or(Terms::Here, Terms::Locked);
    match prepare(&runs.app, request, terms, &cancel).await {
        Ok(Prepared::Local(mut program)) => {
            // A trace says which tools ran.
            program.trace = None;
            run_here(runs, program, include, None, Some(Arc::new(mock)), &cancel).await
        }
        // Only a refusal: the program was not to be run elsewhere.
        Ok(Prepared::Answered(envelope)) => *envelope,
        Err(error) => {
            if let Some(code) = code {
                record_refusal(&runs.app, &code, &args, &error).await;
            }
            Envelope::error(error)
        }
    }
}

/// Runs a prepared program on this machine.
async fn run_here(
    runs: &Runs,
    program: Box<LocalProgram>,
    include: Vec<Include>,
    resumed: Option<Resumed>,
    mock: Option<Arc<Mock>>,
    cancel: &CancellationToken,
) -> Envelope {
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
    let execution = LocalExecution {
        app: Arc::clone(&runs.app),
        program,
        include,
        can_ask: runs.can_ask,
        mock,
    };
    let code_hash = Integrity::of(execution.program.code.as_bytes());
    let finished = Arc::clone(&runs.finished);
    let run = PausedRun::start(code_hash, move |events, stop| async move {
        let envelope = execution.run(store, resumed, events, stop).await;
        // The result of a mock shows that its program works with old answers.
        if execution.mock.is_none() {
            finished.remember(&envelope, &execution.program.code);
        }
        envelope.with_only(&execution.include)
    });
    runs.approvals.follow(run, cancel).await
}
