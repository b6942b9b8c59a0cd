//! One run on this machine: what its program and the capabilities within it share.
//!
//! Whoever makes a call, the same rules, the same human, one question at a time, and the same limits apply.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{CallLog, CallNote, ErrorBody, ErrorCode, Integrity, ToolId};
use sandbox::{Limits, WallClock};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::paused::RunEvent;
use crate::app::App;
use crate::capabilities::{self, Target};
use crate::consent::decision::{Call, Decision, decide, denied, refuse_denied};
use crate::consent::question::{Answer, Question, Start};
use crate::workspace::protected::{Granted, Protected};

/// How long to wait for further identical calls before a question is asked.
const SETTLING: Duration = Duration::from_millis(30);

/// The maximum number of such waits.
const SETTLING_ROUNDS: usize = 20;

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
    /// The number of calls, including those of capabilities.
    calls: u64,
    /// The tools allowed with "always" since the run began.
    always: HashSet<ToolId>,
    /// The calls that wait for a question, or were allowed together with an identical one.
    alike: HashMap<Alike, Together>,
    refused: Option<ErrorBody>,
    warnings: Vec<String>,
}

/// The common part of calls that form one question: the tool, its caller, and a hash of its arguments and of the
/// protected places that they lead to.
type Alike = (ToolId, Vec<ToolId>, Integrity);

/// Calls that are one question.
#[derive(Default)]
struct Together {
    /// The number of waiting calls.
    waiting: u64,
    /// How many of them a human has allowed.
    allowed: u64,
}

/// A call that waits for a question.
struct Waits<'a> {
    run: &'a LocalRun,
    alike: Alike,
}

impl Waits<'_> {
    /// Uses one approval of a human.
    fn is_allowed(&self) -> bool {
        let mut state = self.run.state();
        let Some(together) = state.alike.get_mut(&self.alike) else { return false };
        let allowed = together.allowed > 0;
        together.allowed -= u64::from(allowed);
        allowed
    }

    fn allow(&self, others: u64) {
        if let Some(together) = self.run.state().alike.get_mut(&self.alike) {
            together.allowed = others;
        }
    }

    /// Waits until no further calls like this one arrive, and returns how many wait: calls that a program starts
    /// together arrive one after the other.
    async fn settle(&self) -> u64 {
        let count = || self.run.state().alike.get(&self.alike).map_or(1, |alike| alike.waiting);
        let mut known = count();
        for _ in 0..SETTLING_ROUNDS {
            tokio::time::sleep(SETTLING).await;
            let now = count();
            if now == known {
                break;
            }
            known = now;
        }
        known
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.run.state();
        let Some(together) = state.alike.get_mut(&self.alike) else { return };
        together.waiting -= 1;
        if together.waiting == 0 {
            // An approval is never kept for a call that nobody has seen.
            state.alike.remove(&self.alike);
        }
    }
}

/// The outcome of a run.
pub(crate) struct Ended {
    /// Its calls.
    pub(crate) log: CallLog,
    /// The reason, if it was ended from outside of its program.
    pub(crate) refused: Option<ErrorBody>,
    /// Warnings of a successful run.
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

impl LocalRun {
    /// Creates a run; `events` receives its questions, and `cancel` ends it.
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
        // The follower of the run may no longer exist.
        let _ = self.events.send(RunEvent::CallEnded);
    }

    /// Returns the calls of the program that runs in the calls `outer`.
    pub(crate) fn log_within(&self, outer: &[u64]) -> CallLog {
        self.state().log.within(outer)
    }

    /// Stores a warning for the user.
    pub(crate) fn warn(&self, warning: String) {
        self.state().warnings.push(warning);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the whole run, whatever its programs would catch.
    fn end(&self, code: ErrorCode, message: String) -> ErrorBody {
        let refused = ErrorBody::new(code, message);
        // The first refusal ended the run; its consequences are not reported instead.
        self.state().refused.get_or_insert_with(|| refused.clone());
        self.cancel.cancel();
        refused
    }

    /// Lets the call through, refuses it, or waits for the human's answer. Returns the protected places that it may
    /// touch.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` by a rule, and the reason if the run was ended: `APPROVAL_DENIED`,
    /// `APPROVAL_EXPIRED`.
    pub(crate) async fn ask(
        &self,
        wish: &Wish<'_>,
        cancel: &CancellationToken,
    ) -> Result<Granted, ErrorBody> {
        let Wish { id, target, .. } = *wish;
        let is_native = matches!(target, Target::Native);
        if self.decide(id, target, &[])? == Decision::Run && !is_native {
            return Ok(Granted::default());
        }
        let places = self.app.check_call(id, target, wish.arguments)?;
        let granted = Granted::of(&places);
        if self.decide(id, target, &places)? == Decision::Run {
            return Ok(granted);
        }
        let _human_decides: Vec<_> = wish.clocks.iter().map(WallClock::pause).collect();
        let cancelled = || ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
        let waits = self.wait(wish, &places);
        let _asking = tokio::select! {
            asking = self.asking.lock() => asking,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        // The question before this one may have been answered for this call, or with "always".
        if waits.is_allowed() {
            // The start may not have been pinned for the call that was asked about.
            if let Decision::Run | Decision::Ask { start: None, .. } =
                self.decide(id, target, &[])?
            {
                return Ok(granted);
            }
        }
        let Decision::Ask { reason, start, .. } = self.decide(id, target, &places)? else {
            return Ok(granted);
        };
        let count = tokio::select! {
            count = waits.settle() => count,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let (answer, answered) = oneshot::channel();
        let (starts, shown) = (start.is_some(), start.as_ref().and_then(|start| start.hash));
        let question = Question {
            tool: id.clone(),
            through: wish.through.to_vec(),
            arguments: wish.arguments.clone(),
            reason,
            start,
            count,
            places: places.clone(),
            sends_to: match target {
                Target::Configured => self.app.remote_of(id).map(|remote| remote.to_string()),
                _ => None,
            },
            answer,
        };
        if self.events.send(RunEvent::Asks(Box::new(question))).is_err() {
            let message = format!("there is nobody to ask about `{id}`");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        }
        let answer = tokio::select! {
            answer = answered => answer,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        match answer {
            Ok(Answer::Once) => waits.allow(count - 1),
            Ok(Answer::Always) if !places.is_empty() => {
                waits.allow(count - 1);
                self.warn(format!(
                    "`{id}` was allowed once: calls that touch protected places always need approval"
                ));
            }
            Ok(Answer::Always) => {
                self.state().always.insert(id.unversioned());
                if let Err(error) = self.app.allow_always(id) {
                    // The call itself is allowed; only the rule could not be stored.
                    self.warn(format!("`{id}` is allowed for this run only: {}", error.message));
                }
            }
            Ok(Answer::Abort) => {
                let message = format!("the user did not allow `{id}`; the run was ended");
                return Err(self.end(ErrorCode::ApprovalDenied, message));
            }
            Err(_) => {
                let message = format!("the question about `{id}` was not answered");
                return Err(self.end(ErrorCode::ApprovalExpired, message));
            }
        }
        // A rule that the user wrote before they answered holds.
        self.decide(id, target, &[])?;
        if starts {
            self.approve_start(id, target, shown)?;
        }
        Ok(granted)
    }

    /// Counts a call among those like it that wait.
    fn wait(&self, wish: &Wish<'_>, places: &[Protected]) -> Waits<'_> {
        let places: Vec<_> = places.iter().map(|place| place.real.display()).collect();
        let arguments = Integrity::of(format!("{places:?}{}", wish.arguments).as_bytes());
        let alike = (wish.id.clone(), wish.through.to_vec(), arguments);
        self.state().alike.entry(alike.clone()).or_default().waiting += 1;
        Waits { run: self, alike }
    }

    /// Records the start that the human allowed; `shown` is the hash of what they saw.
    fn approve_start(
        &self,
        id: &ToolId,
        target: &Target,
        shown: Option<Integrity>,
    ) -> Result<(), ErrorBody> {
        match target {
            Target::Registered(entry) => match self.app.grant(entry, id)? {
                Some(grant) => self.app.lockfile.approve(entry, &grant, shown),
                None => Ok(()),
            },
            Target::Capability(capability) => {
                let module = &capability.module;
                self.app.lockfile.approve_capability(module)?;
                if let Err(error) = capabilities::keep(self.app.records(), module) {
                    let name = module.versioned();
                    self.warn(format!("`{name}` cannot run without the gateway: {error}"));
                }
                Ok(())
            }
            Target::Native | Target::Configured | Target::Gateway { .. } => Ok(()),
        }
    }

    /// Decides about a call that leads to these protected places: it runs, or it is asked about.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED`, and why a start cannot be described.
    fn decide(
        &self,
        id: &ToolId,
        target: &Target,
        places: &[Protected],
    ) -> Result<Decision, ErrorBody> {
        // A denied call is refused before anything is read for it.
        refuse_denied(&self.app.permissions(), id, "")?;
        let start = match target {
            Target::Registered(entry) => match self.app.grant(entry, id)? {
                Some(grant) => self.app.lockfile.question(entry, &grant)?,
                None => None,
            },
            Target::Capability(capability) => {
                let what = self.app.lockfile.capability_question(capability)?;
                what.map(|what| Start { what, grants: Vec::new(), hash: None })
            }
            Target::Native | Target::Configured | Target::Gateway { .. } => None,
        };
        let allowed_in_run = self.state().always.contains(&id.unversioned());
        let call = Call { allowed_in_run, start, places, ..Call::default() };
        match decide(&self.app.permissions(), id, call) {
            Decision::Refused { reason } => Err(denied(id, "", &reason)),
            decision => Ok(decision),
        }
    }
}
