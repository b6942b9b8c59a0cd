//! The state of one run on this machine, shared by its program and the capabilities within it.
//!
//! The same rules and limits apply to all their calls, and the user is asked one question at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{CallLog, CallNote, ErrorBody, ErrorCode, Integrity, ToolId};
use sandbox::{Limits, WallClock};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::identical_calls::IdenticalCalls;
use super::paused::RunEvent;
use super::recorder::{AnsweredQuestion, Recorder};
use crate::app::App;
use crate::capabilities::{self, Target};
use crate::consent::decision::{Call, Decision, decide, denied, refuse_denied};
use crate::consent::question::{Answer, Channel, Given, NeedsPerson, Question, Start};
use crate::run_store::record;
use crate::workspace::protected::{Granted, Protected};

/// One run on this machine.
pub(crate) struct LocalRun {
    pub(crate) app: Arc<App>,
    /// Its id in logs and on the gateway.
    pub(crate) id: String,
    /// The limits of its program, which also apply to the capabilities within it.
    pub(crate) limits: Limits,
    /// Writes its records.
    pub(crate) recorder: Recorder,
    events: mpsc::UnboundedSender<RunEvent>,
    cancel: CancellationToken,
    /// Held while the user is asked: one question at a time.
    asking: tokio::sync::Mutex<()>,
    identical: IdenticalCalls,
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
    /// The question that waits for an answer.
    open: Option<AnsweredQuestion>,
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

/// The permission to make a call.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The protected places that it may touch.
    pub(crate) granted: Granted,
    /// The reason, for the record: the rule that allows it, or the user's answer.
    pub(crate) reason: String,
}

/// A call that is about to be made.
pub(crate) struct PendingCall<'a> {
    /// The tool that would run.
    pub(crate) tool: &'a ToolId,
    /// The name that rules are applied to and that is shown: the full one for a tool of another organisation.
    pub(crate) id: &'a ToolId,
    /// Where it runs.
    pub(crate) target: &'a Target,
    /// The exact arguments of the call.
    pub(crate) arguments: &'a Value,
    /// The capabilities that make the call, the outermost first.
    pub(crate) through: &'a [ToolId],
    /// The clocks of all programs that wait for the call.
    pub(crate) clocks: &'a [WallClock],
}

impl LocalRun {
    /// Creates a run; `events` receives its questions, and `cancel` ends it.
    pub(crate) fn new(
        app: Arc<App>,
        id: String,
        limits: Limits,
        recorder: Recorder,
        events: mpsc::UnboundedSender<RunEvent>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            app,
            id,
            limits,
            recorder,
            events,
            cancel,
            asking: tokio::sync::Mutex::default(),
            identical: IdenticalCalls::default(),
            state: Mutex::default(),
        }
    }

    /// Records a question that nobody answered, after the run has ended.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE`.
    pub(crate) async fn record_open_question(&self) -> Result<(), ErrorBody> {
        let open = self.state().open.take();
        match open {
            Some(question) => self.recorder.answer(question).await,
            None => Ok(()),
        }
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

    /// Counts a call and returns its number, which is unique in the run.
    ///
    /// # Errors
    /// Returns the error that ended the run, or `TOO_MANY_CALLS`.
    pub(crate) fn begin_call(&self) -> Result<u64, ErrorBody> {
        let mut state = self.state();
        // After a refusal, no further call starts while the run is being ended.
        if let Some(refused) = &state.refused {
            return Err(refused.clone());
        }
        state.calls += 1;
        if state.calls <= self.limits.calls {
            return Ok(state.calls);
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

    /// Stores a warning for the user.
    pub(crate) fn warn(&self, warning: String) {
        self.state().warnings.push(warning);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the whole run with an error that its programs cannot catch.
    fn end(&self, code: ErrorCode, message: String) -> ErrorBody {
        self.end_with(ErrorBody::new(code, message))
    }

    /// Ends the whole run with an error that its programs cannot catch.
    pub(crate) fn end_with(&self, refused: ErrorBody) -> ErrorBody {
        // The first error is the reason; later ones are its consequences.
        self.state().refused.get_or_insert_with(|| refused.clone());
        self.cancel.cancel();
        refused
    }

    /// Applies the rules to a call and, if needed, waits for the user's answer.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` for a rule, and `APPROVAL_DENIED` or `APPROVAL_EXPIRED` if the run was ended.
    pub(crate) async fn ask(
        &self,
        pending: &PendingCall<'_>,
        cancel: &CancellationToken,
    ) -> Result<Permit, ErrorBody> {
        let PendingCall { id, target, .. } = *pending;
        let is_native = matches!(target, Target::Native);
        // Protected places are known only for native tools, so an allowed call of any other tool
        // needs no check.
        match self.decide(id, target, &[])? {
            Decision::Run { reason } if !is_native => {
                return Ok(Permit { granted: Granted::default(), reason });
            }
            _ => {}
        }
        let places = self.app.check_call(id, target, pending.arguments)?;
        // The call may touch what the user is shown. The tool checks the places again when it runs,
        // because a link may lead elsewhere by then.
        let granted = Granted::of(&places);
        if let Decision::Run { reason } = self.decide(id, target, &places)? {
            return Ok(Permit { granted, reason });
        }
        let _paused_clocks: Vec<_> = pending.clocks.iter().map(WallClock::pause).collect();
        let cancelled = || ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
        // The call joins its group before it waits for the lock, so that the next question counts
        // it.
        let waiting_call = self.identical.join(id, pending.through, pending.arguments, &places);
        let _asking = tokio::select! {
            asking = self.asking.lock() => asking,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        // The previous question may have been about this call too, or answered with "always".
        if let Some(by) = waiting_call.take_approval() {
            // Ask again if the server or capability was not approved with that answer.
            if let Decision::Run { .. } | Decision::Ask { start: None, .. } =
                self.decide(id, target, &[])?
            {
                return Ok(approved(granted, by));
            }
        }
        // Decided again: while this call waited, the user may have answered "always", or approved
        // the same start.
        let (reason, start) = match self.decide(id, target, &places)? {
            Decision::Ask { reason, start, .. } => (reason, start),
            Decision::Run { reason } => return Ok(Permit { granted, reason }),
            Decision::Refused { reason } => return Err(denied(id, "", &reason)),
        };
        let count = tokio::select! {
            count = waiting_call.settle() => count,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let (answer, answered) = oneshot::channel();
        let (starts, shown) = (start.is_some(), start.as_ref().and_then(|start| start.hash));
        let question = Question {
            tool: id.clone(),
            through: pending.through.to_vec(),
            arguments: pending.arguments.clone(),
            reason: reason.clone(),
            start,
            count,
            places: places.clone(),
            sends_to: match target {
                Target::Configured => self.app.remote_of(id).map(|remote| remote.to_string()),
                _ => None,
            },
            needs_person: NeedsPerson::of(
                &self.app.permissions(),
                danger(pending, starts, &places),
            ),
            answer,
        };
        let asked_at = record::now();
        if self.events.send(RunEvent::Asks(Box::new(question))).is_err() {
            let message = format!("the user cannot be asked about `{id}`");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        }
        self.state().open = Some(AnsweredQuestion {
            asked_at,
            tool: id.clone(),
            arguments: pending.arguments.clone(),
            count,
            reason,
            answer: None,
        });
        // Without an answer, nobody can answer any more: the time is over, or the run was cancelled. Then the run ends,
        // which records the open question.
        let given = tokio::select! {
            answer = answered => answer.ok(),
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let Some(given) = given else {
            let message = format!("the question about `{id}` was not answered");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        };
        // A model could allow its own calls for ever. A protected place is never allowed permanently: the question does
        // not offer this answer, but a client may send it.
        let is_lasting = places.is_empty() && given.by != Channel::Agent;
        let answer = match given.answer {
            Answer::Always if !is_lasting => Answer::Once,
            answer => answer,
        };
        let open = self.state().open.take();
        if let Some(mut question) = open {
            question.answer = Some(Given { answer, by: given.by });
            // An answer counts only once it is recorded.
            self.recorder.answer(question).await.map_err(|error| self.end_with(error))?;
        }
        match answer {
            // Calls that joined the group after the question was shown are not covered: its count
            // did not include them.
            Answer::Once => {
                waiting_call.allow(count - 1, given.by);
                if given.answer == Answer::Always {
                    let why = match places.is_empty() {
                        true => {
                            "only the user can allow it permanently, with `pml approve` or in `.pml.json`"
                        }
                        false => "calls that touch protected places always need approval",
                    };
                    self.warn(format!("`{id}` was allowed once: {why}"));
                }
            }
            Answer::Always => {
                self.state().always.insert(id.unversioned());
                if let Err(error) = self.app.allow_always(id) {
                    // The call itself is allowed; only the rule could not be stored.
                    self.warn(format!("`{id}` is allowed for this run only: {}", error.message));
                }
            }
            Answer::Abort => {
                let message = format!("the user did not allow `{id}`; the run was ended");
                return Err(self.end(ErrorCode::ApprovalDenied, message));
            }
        }
        // The user may have added a rule while the question was open.
        self.app.read_permissions()?;
        self.decide(id, target, &[])?;
        if starts {
            self.approve_start(id, target, shown)?;
        }
        Ok(approved(granted, given.by))
    }

    /// Records that the user approved a start; `shown` is the hash of what the user saw.
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
                // This run has the program already. Only a later one without the gateway needs the
                // file.
                if let Err(error) = capabilities::save_module(self.app.records(), module) {
                    let name = module.versioned();
                    self.warn(format!("`{name}` cannot run without the gateway: {error}"));
                }
                Ok(())
            }
            Target::Native | Target::Configured | Target::Gateway { .. } => Ok(()),
        }
    }

    /// Decides whether a call that leads to these protected places runs or needs an answer.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED`, or why a start cannot be described.
    fn decide(
        &self,
        id: &ToolId,
        target: &Target,
        places: &[Protected],
    ) -> Result<Decision, ErrorBody> {
        // Checked first: nothing is looked up for a denied call.
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
        // Rules apply to every version of a tool, and so does "always".
        let allowed_in_run = self.state().always.contains(&id.unversioned());
        let call = Call { allowed_in_run, start, places, ..Call::default() };
        match decide(&self.app.permissions(), id, call) {
            Decision::Refused { reason } => Err(denied(id, "", &reason)),
            decision => Ok(decision),
        }
    }
}

/// Returns the permission that an answer gives.
fn approved(granted: Granted, by: Channel) -> Permit {
    Permit { granted, reason: by.approval().to_owned() }
}

/// Returns why a call is dangerous in itself. The tool that runs decides, not the name that rules are applied to.
fn danger(pending: &PendingCall<'_>, starts: bool, places: &[Protected]) -> Option<NeedsPerson> {
    match pending.target {
        _ if !places.is_empty() => Some(NeedsPerson::Place),
        Target::Native if pending.tool.namespace() == "shell" => Some(NeedsPerson::Command),
        Target::Registered(_) if starts => Some(NeedsPerson::Start),
        _ => None,
    }
}
