//! One run on this machine, from the record of its start to the record of its end.
//!
//! The program runs in the sandbox, and every call goes through the `router`.

use std::sync::Arc;
use std::time::Duration;

use analysis::{Analysis, Code};
use execution::failure;
use execution::spans::Span;
use protocol::{
    ConsoleLine, Envelope, ErrorBody, ErrorCode, ExecutedOn, Include, Integrity, RunError, RunNote,
    Success,
};
use sandbox::{Limits, Outcome, Pool, Program, ProgramClock, Repeatable};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::journal::{Journal, RunStart, now_ms};
use super::local_run::{Beginning, LocalRun};
use super::locked_schemas::LockedSchemas;
use super::mock::Mock;
use super::paused::RunEvent;
use super::prepare::LocalProgram;
use super::recorder::Recorder;
use super::router::Router;
use crate::app::App;
use crate::policy::PolicyOfRun;
use crate::run_store::RunStore;
use crate::run_store::live::LiveRun;

/// A prepared program that runs on this machine.
pub(super) struct LocalExecution {
    pub(super) app: Arc<App>,
    pub(super) program: Box<LocalProgram>,
    /// The fields that the answer is to have.
    pub(super) include: Vec<Include>,
    /// Whether somebody can answer questions.
    pub(super) can_ask: bool,
    /// The run whose record answers its calls, if one does.
    pub(super) mock: Option<Arc<Mock>>,
}

/// A run that goes on.
pub(super) struct Resumed {
    /// Its record so far.
    pub(super) journal: Arc<Journal>,
    /// Its lock.
    pub(super) live: LiveRun,
}

impl LocalExecution {
    /// Runs the program and records the run; `events` receives its questions, and `stop` ends it.
    pub(super) async fn run(
        &self,
        store: Arc<RunStore>,
        resumed: Option<Resumed>,
        events: UnboundedSender<RunEvent>,
        stop: CancellationToken,
    ) -> Envelope {
        // Before the record of the start: a program that no sandbox can run has not started.
        let sandboxes = match self.app.sandboxes() {
            Ok(sandboxes) => sandboxes,
            Err(error) => return Envelope::error(error),
        };
        let (run, live) = match self.begin(store, resumed, events, &stop).await {
            Ok(begun) => begun,
            Err(error) => return Envelope::error(error),
        };
        let mut envelope = match self.start(sandboxes, &run, &stop).await {
            Ok(start) => self.execute(sandboxes, &run, start, stop).await,
            Err(error) => self.not_started(&run, error),
        };
        record_end(&run, live, &mut envelope).await;
        envelope
    }

    /// Records that the run begins or goes on.
    async fn begin(
        &self,
        store: Arc<RunStore>,
        resumed: Option<Resumed>,
        events: UnboundedSender<RunEvent>,
        stop: &CancellationToken,
    ) -> Result<(Arc<LocalRun>, LiveRun), ErrorBody> {
        let LocalProgram { analysis, targets, timeout_ms, lock, .. } = &*self.program;
        let mut limits = Limits::client();
        // Concurrent calls can be combined into one question, so all of them may be pending; the router limits how many
        // execute.
        limits.in_flight = usize::try_from(limits.calls).unwrap_or(limits.in_flight);
        if let Some(timeout) = timeout_ms {
            limits.wall = limits.wall.min(Duration::from_millis(timeout.get()));
        }
        let permissions = self.app.permissions();
        let policy = Arc::new(PolicyOfRun::new(Arc::clone(permissions.policy())));
        if let Some(total) = policy.policy().total_ms() {
            limits.wall = limits.wall.min(Duration::from_millis(total));
        }
        let (id, journal, live) = match resumed {
            Some(Resumed { journal, live }) => (journal.run.clone(), Some(journal), live),
            None => {
                let id = uuid::Uuid::now_v7().to_string();
                let live = LiveRun::begin(self.app.records(), &id).map_err(|error| error.body())?;
                (id, None, live)
            }
        };
        tracing::debug!(
            run = %id,
            tools = targets.len(),
            dynamic = analysis.dynamic,
            is_resumed = journal.is_some(),
            "Running a program here"
        );
        let recorder = match &journal {
            Some(_) => Recorder::resume(store, &id, &permissions).await?,
            None => {
                match Recorder::begin(store, &id, &self.program, &permissions, self.mock.as_deref())
                {
                    Ok(recorder) => recorder,
                    Err(error) => {
                        // No record of the run names its lock.
                        live.end();
                        return Err(error);
                    }
                }
            }
        };
        let start = journal.as_ref().map_or_else(RunStart::now, |journal| journal.start);
        let schemas = lock.as_ref().map(|locked| LockedSchemas::new(&locked.lock));
        let schemas = schemas.unwrap_or_default();
        let mock = self.mock.clone();
        let beginning = Beginning { id, limits, start, journal, mock, schemas };
        let app = Arc::clone(&self.app);
        let run = LocalRun::new(app, beginning, policy, recorder, events, stop.clone());
        Ok((Arc::new(run), live))
    }

    /// Asks about the program if needed, and records its start.
    async fn start(
        &self,
        sandboxes: &Pool,
        run: &LocalRun,
        stop: &CancellationToken,
    ) -> Result<RunStart, ErrorBody> {
        if let Some(journal) = &run.journal {
            // What was answered then still counts, for exactly the calls that were shown.
            journal.answers().iter().cloned().for_each(|answer| run.allowed.restore(answer));
            return Ok(run.start);
        }
        // Of a run with a mock, nobody knows yet which of its calls are made. Each of them is asked about on its own.
        if run.mock.is_none() {
            run.ask_about_plan(&self.program, sandboxes, self.can_ask, stop).await?;
        }
        // From now on: the user may have taken minutes to answer.
        let start = RunStart { epoch_ms: now_ms(), ..run.start };
        run.recorder.start_program(&start)?;
        Ok(start)
    }

    /// Runs the program in a sandbox.
    async fn execute(
        &self,
        sandboxes: &Pool,
        run: &Arc<LocalRun>,
        start: RunStart,
        stop: CancellationToken,
    ) -> Envelope {
        let LocalProgram { analysis, targets, args, .. } = &*self.program;
        let clock = ProgramClock::start(start.epoch_ms);
        let router = Router::new(Arc::clone(run), targets.clone(), analysis.dynamic, clock.clone());
        let job = Program {
            source: analysis.program.clone(),
            args: args.clone(),
            implicit_returns: analysis.implicit_returns.clone(),
            repeatable: Some(Repeatable { clock, seed: start.seed }),
        };
        let mut span = Span::of_step("pml.run");
        span.set("pml.run.id", || run.id.clone());
        let outcome = sandboxes.run(job, &run.limits, Arc::new(router), stop);
        let outcome = span.within(outcome).await;
        span.end(outcome.result.as_ref().err().map(|failure| failure.kind.as_str()));
        tracing::debug!(
            run = %run.id,
            duration_ms = outcome.duration.as_secs_f64() * 1e3,
            failure = outcome.result.as_ref().err().map(|failure| failure.kind.as_str()),
            "The program ended"
        );
        let complete = run.journal.as_ref().map_or(Ok(()), |journal| journal.check_complete());
        if let Err(error) = complete {
            run.end_with(error);
        }
        self.envelope(run, outcome)
    }

    /// Returns the envelope of a program that has not started.
    fn not_started(&self, run: &LocalRun, error: ErrorBody) -> Envelope {
        let mut warnings = self.program.warnings.clone();
        warnings.extend(run.ended().warnings);
        let run = RunNote {
            execution_id: run.id.clone(),
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

    fn envelope(&self, run: &LocalRun, outcome: Outcome) -> Envelope {
        let (program, ended) = (&self.program, run.ended());
        let mut warnings = program.warnings.clone();
        warnings.extend(ended.warnings);
        warnings.extend(run.mock.as_ref().map(|mock| mock.summary()));
        warnings.extend(program.analysis.run_warnings());
        warnings.extend(protocol::unanswered_calls(&outcome.unanswered));
        if outcome.returned_nothing && outcome.console.is_empty() {
            warnings.push(protocol::NO_VALUE.to_owned());
        }
        let run = RunNote {
            execution_id: run.id.clone(),
            executed: ExecutedOn::Client,
            duration_ms: outcome.duration.as_secs_f64() * 1e3,
            console: outcome
                .console
                .into_iter()
                .map(|line| ConsoleLine { level: line.level, text: line.text })
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
                dag: self
                    .include
                    .contains(&Include::Dag)
                    .then(|| serde_json::to_value(&program.analysis.dag).unwrap_or_default()),
            })),
        }
    }
}

/// Records the end of a run, before its result is known to anybody. If only this record cannot be stored, the caller still
/// gets the result. If one of a call was lost, the run has failed.
async fn record_end(run: &LocalRun, live: LiveRun, envelope: &mut Envelope) {
    if let Err(error) = run.record_open_question().await {
        tracing::warn!(error = %error.message, "An unanswered question was not recorded");
    }
    let mut recorded = match envelope {
        Envelope::Success(success) => {
            run.recorder.end(Ok(&success.result), printed(&success.run.console)).await
        }
        Envelope::Error(failed) => {
            let console = failed.run.as_ref().and_then(|run| printed(&run.console));
            run.recorder.end(Err(&failed.error), console).await
        }
        Envelope::ExecuteLocally(_) | Envelope::ApprovalRequired(_) => return,
    };
    if recorded.is_err()
        && let Err(lost) = run.recorder.none_lost()
    {
        run.end_with(lost);
        if let Some(error) = run.ended().refused {
            recorded = run.recorder.fail(&error).await;
            let note = match envelope {
                Envelope::Success(success) => Some(success.run.clone()),
                Envelope::Error(failed) => failed.run.take(),
                Envelope::ExecuteLocally(_) | Envelope::ApprovalRequired(_) => None,
            };
            *envelope = Envelope::Error(Box::new(RunError { error, run: note }));
        }
    }
    if run.recorder.is_unbegun() {
        // No record names its lock.
        return live.end();
    }
    let warnings = match envelope {
        Envelope::Success(success) => Some(&mut success.run.warnings),
        Envelope::Error(failed) => failed.run.as_mut().map(|run| &mut run.warnings),
        Envelope::ExecuteLocally(_) | Envelope::ApprovalRequired(_) => None,
    };
    match (recorded, warnings) {
        (Ok(()), _) => {
            live.end();
            run.app.tell_gateway();
        }
        (Err(error), Some(warnings)) => {
            warnings.push(format!("the end of the run was not recorded: {}", error.message));
        }
        (Err(_), None) => {}
    }
}

/// Returns the hash that the record has of what a program printed; `None` if it was nothing.
pub(crate) fn printed(console: &[ConsoleLine]) -> Option<Integrity> {
    let lines = console.iter().map(|line| json!([line.level, line.text]));
    (!console.is_empty()).then(|| RunStore::hash(&lines.collect()))
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
