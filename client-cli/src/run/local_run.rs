//! The state of one run on this machine, shared by its program and the capabilities within it.
//!
//! The same rules and limits apply to all their calls, and the user is asked one question at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{CallLog, CallNote, ErrorBody, ErrorCode, ToolId};
use sandbox::Limits;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::allowed_calls::AllowedCalls;
use super::identical_calls::IdenticalCalls;
use super::journal::{Journal, RunStart};
use super::locked_schemas::LockedSchemas;
use super::mock::Mock;
use super::paused::RunEvent;
use super::recorder::{AnsweredQuestion, Recorder};
use crate::app::App;
use crate::consent::question::Given;
use crate::policy::PolicyOfRun;

/// One run on this machine.
pub(crate) struct LocalRun {
    pub(crate) app: Arc<App>,
    /// Its id in logs and on the gateway.
    pub(crate) id: String,
    /// The limits of its program, which also apply to the capabilities within it.
    pub(crate) limits: Limits,
    /// Writes its records.
    pub(crate) recorder: Recorder,
    /// The start of its program.
    pub(crate) start: RunStart,
    /// Its record so far, if it is resumed.
    pub(crate) journal: Option<Arc<Journal>>,
    /// The run whose record answers its calls, if one does.
    pub(super) mock: Option<Arc<Mock>>,
    /// The schemas that its tools have to have.
    pub(super) schemas: LockedSchemas,
    events: mpsc::UnboundedSender<RunEvent>,
    cancel: CancellationToken,
    /// Held while the user is asked: one question at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// The policy in force when it began, and what it has used of its limits.
    pub(super) policy: Arc<PolicyOfRun>,
    /// The calls that wait for the same answer.
    pub(super) identical: IdenticalCalls,
    /// The calls that were allowed before the program started.
    pub(super) allowed: AllowedCalls,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: CallLog,
    /// The number of calls, including those of capabilities.
    calls: u64,
    /// The tools allowed with "always" since the run began.
    always: HashSet<ToolId>,
    refused: Option<ErrorBody>,
    warnings: Vec<String>,
    /// The question that waits for an answer: the calls that it is about.
    open: Vec<AnsweredQuestion>,
}

/// The outcome of a run.
pub(crate) struct Ended {
    /// Its calls.
    pub(crate) log: CallLog,
    /// The error that ended it, if it was not ended by its program.
    pub(crate) refused: Option<ErrorBody>,
    /// Warnings of a successful run.
    pub(crate) warnings: Vec<String>,
}

/// What a run begins with.
pub(crate) struct Beginning {
    /// Its id.
    pub(crate) id: String,
    /// The limits of its program.
    pub(crate) limits: Limits,
    /// The start of its program.
    pub(crate) start: RunStart,
    /// Its record so far, if it is resumed.
    pub(crate) journal: Option<Arc<Journal>>,
    /// The run whose record answers its calls, if one does.
    pub(super) mock: Option<Arc<Mock>>,
    /// The schemas that its tools have to have.
    pub(super) schemas: LockedSchemas,
}

impl LocalRun {
    /// Creates a run; `events` receives its questions, and `cancel` ends it.
    pub(crate) fn new(
        app: Arc<App>,
        beginning: Beginning,
        policy: Arc<PolicyOfRun>,
        recorder: Recorder,
        events: mpsc::UnboundedSender<RunEvent>,
        cancel: CancellationToken,
    ) -> Self {
        let Beginning { id, limits, start, journal, mock, schemas } = beginning;
        Self {
            app,
            id,
            policy,
            limits,
            recorder,
            start,
            journal,
            mock,
            schemas,
            events,
            cancel,
            asking: tokio::sync::Mutex::default(),
            identical: IdenticalCalls::default(),
            allowed: AllowedCalls::default(),
            state: Mutex::default(),
        }
    }

    /// Records a question that nobody answered, after the run has ended.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(crate) async fn record_open_question(&self) -> Result<(), ErrorBody> {
        let open = std::mem::take(&mut self.state().open);
        for question in open {
            self.recorder.answer(question).await?;
        }
        Ok(())
    }

    /// Remembers the calls of a question that is being asked.
    pub(super) fn open_questions(&self, calls: Vec<AnsweredQuestion>) {
        self.state().open = calls;
    }

    /// Records the answer to the question that waits.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE` and ends the run. The answer does not count then.
    pub(super) async fn record_answers(&self, given: Given) -> Result<(), ErrorBody> {
        let open = std::mem::take(&mut self.state().open);
        for (place, mut question) in open.into_iter().enumerate() {
            question.is_left_out = given.without.has(place);
            question.answer = Some(given.clone());
            self.recorder.answer(question).await.map_err(|error| self.end_with(error))?;
        }
        Ok(())
    }

    /// Sends an event to the follower of the run.
    ///
    /// # Errors
    /// Returns an error if there is none any more.
    pub(super) fn send(&self, event: RunEvent) -> Result<(), mpsc::error::SendError<RunEvent>> {
        self.events.send(event)
    }

    /// Returns the outcome of the run.
    pub(crate) fn ended(&self) -> Ended {
        let state = self.state();
        Ended {
            log: state.log.clone(),
            refused: state.refused.clone(),
            warnings: state.warnings.clone(),
        }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// Returns the error that ended the run, or `TOO_MANY_CALLS`.
    pub(crate) fn begin_call(&self) -> Result<(), ErrorBody> {
        let mut state = self.state();
        // After a refusal, no further call starts while the run is being ended.
        if let Some(refused) = &state.refused {
            return Err(refused.clone());
        }
        state.calls += 1;
        if state.calls <= self.limits.calls {
            return Ok(());
        }
        // `end` locks the state again.
        drop(state);
        let message = format!(
            "the program and its capabilities made more than {} tool calls",
            self.limits.calls
        );
        Err(self.end(ErrorCode::TooManyCalls, message))
    }

    /// Records an ended call of the program that runs in the calls `outer`.
    pub(crate) fn record(
        &self,
        outer: &[u64],
        index: u64,
        note: CallNote,
        failed: Option<ErrorCode>,
    ) {
        self.state().log.record_within(outer, index, note, failed);
        // The follower of the run may no longer exist.
        let _ = self.events.send(RunEvent::CallEnded);
    }

    /// Returns the calls of the program that runs in the calls `outer`.
    pub(crate) fn log_within(&self, outer: &[u64]) -> CallLog {
        self.state().log.within(outer)
    }

    /// Allows a tool for the rest of the run, in every version.
    pub(super) fn allow_tool(&self, tool: &ToolId) {
        self.state().always.insert(tool.unversioned());
    }

    /// Returns whether a tool is allowed for the rest of the run.
    pub(super) fn allows_tool(&self, tool: &ToolId) -> bool {
        self.state().always.contains(&tool.unversioned())
    }

    /// Stores a warning for the user.
    pub(crate) fn warn(&self, warning: String) {
        self.state().warnings.push(warning);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the whole run with an error that its programs cannot catch.
    pub(super) fn end(&self, code: ErrorCode, message: String) -> ErrorBody {
        self.end_with(ErrorBody::new(code, message))
    }

    /// Ends the whole run with an error that its programs cannot catch.
    pub(crate) fn end_with(&self, refused: ErrorBody) -> ErrorBody {
        // The first error is the reason; later ones are its consequences.
        self.state().refused.get_or_insert_with(|| refused.clone());
        self.cancel.cancel();
        refused
    }
}
