//! One run on this machine: what its program and the capabilities within it share.
//!
//! Whoever calls, the same rules decide, the same human is asked, one question at a time, and the same limits count.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{CallLog, CallNote, ErrorBody, ErrorCode, ToolId};
use sandbox::{Limits, WallClock};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::capabilities;
use crate::consent::approvals::{Answer, Question};
use crate::consent::permissions::Verdict;
use crate::run::RunEvent;
use crate::targets::{Target, refuse_denied};

/// One run on this machine.
pub(crate) struct LocalRun {
    pub(crate) app: Arc<App>,
    /// Names it in logs and on the gateway.
    pub(crate) id: String,
    /// Those of its program, which hold for all within it.
    pub(crate) limits: Limits,
    events: mpsc::UnboundedSender<RunEvent>,
    cancel: CancellationToken,
    /// Held while the human is asked: one question at a time.
    asking: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: CallLog,
    /// How many calls began, those of capabilities included.
    calls: u64,
    /// The tools allowed with "always" since the run began.
    always: HashSet<ToolId>,
    refused: Option<ErrorBody>,
    warnings: Vec<String>,
}

/// What a run leaves behind.
pub(crate) struct Ended {
    /// Its calls.
    pub(crate) log: CallLog,
    /// Why it was ended from outside of its program, if it was.
    pub(crate) refused: Option<ErrorBody>,
    /// What the user should know although the run went on.
    pub(crate) warnings: Vec<String>,
}

/// A call that is about to be made.
pub(crate) struct Wish<'a> {
    /// The tool.
    pub(crate) id: &'a ToolId,
    /// Where it runs.
    pub(crate) target: &'a Target,
    /// The very arguments that it will get.
    pub(crate) arguments: &'a Value,
    /// The capabilities that make the call, the outermost first.
    pub(crate) through: &'a [ToolId],
    /// The clocks of all programs that wait for it.
    pub(crate) clocks: &'a [WallClock],
}

/// Whether the human is asked about a call.
enum Asked {
    /// It may run.
    No,
    /// For this reason, and to start this first.
    Yes { reason: String, start: Option<String> },
}

impl LocalRun {
    /// Makes a run; `events` gets its questions, and `cancel` ends it.
    pub(crate) fn new(
        app: Arc<App>,
        id: String,
        limits: Limits,
        events: mpsc::UnboundedSender<RunEvent>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            app,
            id,
            limits,
            events,
            cancel,
            asking: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Returns what the run leaves behind.
    pub(crate) fn ended(&self) -> Ended {
        let state = self.state();
        Ended {
            log: state.log.clone(),
            refused: state.refused.clone(),
            warnings: state.warnings.clone(),
        }
    }

    /// Counts a call, and returns its number in the run: every other call has another.
    ///
    /// # Errors
    /// Returns why the run is over: a human's no, or the call that is one too many.
    pub(crate) fn begin_call(&self) -> Result<u64, ErrorBody> {
        let mut state = self.state();
        // Between a no and the end of the run nothing more happens.
        if let Some(refused) = &state.refused {
            return Err(refused.clone());
        }
        state.calls += 1;
        if state.calls <= self.limits.calls {
            return Ok(state.calls);
        }
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
    }

    /// Returns the calls of the program that runs in the calls `outer`.
    pub(crate) fn log_within(&self, outer: &[u64]) -> CallLog {
        self.state().log.within(outer)
    }

    /// Keeps what the user should know.
    pub(crate) fn warn(&self, warning: String) {
        self.state().warnings.push(warning);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the whole run, whatever its programs would catch.
    fn end(&self, code: ErrorCode, message: String) -> ErrorBody {
        let refused = ErrorBody::new(code, message);
        // The first refusal ended the run; what came of that is not told instead.
        self.state().refused.get_or_insert_with(|| refused.clone());
        self.cancel.cancel();
        refused
    }

    /// Lets the call through, refuses it, or waits for the human's answer.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` by a rule, and what ended the run: `APPROVAL_DENIED`, `APPROVAL_EXPIRED`.
    pub(crate) async fn ask(
        &self,
        wish: &Wish<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        let Wish { id, target, .. } = *wish;
        if let Asked::No = self.rules(id, target)? {
            return Ok(());
        }
        let _human_decides: Vec<_> = wish.clocks.iter().map(WallClock::pause).collect();
        let cancelled = || ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
        let _asking = tokio::select! {
            asking = self.asking.lock() => asking,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        // The question before this one may have been answered with "always".
        let Asked::Yes { reason, start } = self.rules(id, target)? else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        let starts = start.is_some();
        let question = Question {
            tool: id.clone(),
            through: wish.through.to_vec(),
            arguments: wish.arguments.clone(),
            reason,
            start,
            answer,
        };
        if self.events.send(RunEvent::Asks(question)).is_err() {
            let message = format!("nobody is left to ask about `{id}`");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        }
        let answer = tokio::select! {
            answer = answered => answer,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        match answer {
            Ok(Answer::Once) => {}
            Ok(Answer::Always) => {
                self.state().always.insert(id.clone());
                if let Err(error) = self.app.allow_always(id) {
                    // The call itself is allowed; only the rule could not be kept.
                    self.warn(format!("`{id}` is allowed for this run only: {}", error.message));
                }
            }
            Ok(Answer::Abort) => {
                let message = format!("the user did not allow `{id}`; the run was ended");
                return Err(self.end(ErrorCode::ApprovalDenied, message));
            }
            Err(_) => {
                let message = format!("the question about `{id}` ended without an answer");
                return Err(self.end(ErrorCode::ApprovalExpired, message));
            }
        }
        // A rule that the user wrote before they answered holds.
        self.rules(id, target)?;
        if starts { self.approve_start(target) } else { Ok(()) }
    }

    /// Writes down what the human let start.
    fn approve_start(&self, target: &Target) -> Result<(), ErrorBody> {
        match target {
            Target::Registered(entry) => self.app.lockfile.approve(entry),
            Target::Capability(capability) => {
                let module = &capability.module;
                self.app.lockfile.approve_capability(module)?;
                if let Err(error) = capabilities::keep(self.app.records(), module) {
                    let name = module.versioned();
                    self.warn(format!("`{name}` will not run without the gateway: {error}"));
                }
                Ok(())
            }
            Target::Native | Target::Configured | Target::Gateway => Ok(()),
        }
    }

    /// Decides by the rules alone whether the human is asked.
    fn rules(&self, id: &ToolId, target: &Target) -> Result<Asked, ErrorBody> {
        refuse_denied(&self.app, id, "")?;
        let decision = self.app.permissions().decide(id);
        let start = match target {
            Target::Registered(entry) => self.app.lockfile.question(entry)?,
            Target::Capability(capability) => self.app.lockfile.capability_question(capability)?,
            Target::Native | Target::Configured | Target::Gateway => None,
        };
        let may_run = decision.verdict == Verdict::Allow || self.state().always.contains(id);
        if may_run && start.is_none() {
            return Ok(Asked::No);
        }
        Ok(Asked::Yes { reason: decision.reason, start })
    }
}
