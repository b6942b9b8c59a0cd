//! Decides whether a call of a run may be made, and asks the user if needed.

use std::sync::Arc;

use execution::spans::Span;
use protocol::{ErrorBody, ErrorCode, Integrity, ToolId, escape_text};
use sandbox::WallClock;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::earlier_answers::BEFORE_START;
use super::local_run::LocalRun;
use super::paused::RunEvent;
use super::recorder::AnsweredQuestion;
use crate::app::App;
use crate::capabilities::{self, Target};
use crate::consent::decision::{Call, Decision, decide, denied, refuse_denied};
use crate::consent::question::left_out::LeftOut;
use crate::consent::question::{
    About, Answer, AskedCall, Channel, Given, NeedsPerson, Question, Start,
};
use crate::policy::{Judged, PolicyOfRun};
use crate::run_store::record;
use crate::tools;
use crate::tools::filesystem::preview::Preview;
use crate::workspace::touched::{Granted, Touched};

/// The permission to make a call.
#[derive(Debug)]
pub(crate) struct Permit {
    /// What the user allowed it to touch.
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
        // Only calls of the program itself are in its plan.
        if pending.through.is_empty() && self.allowed.leaves_out(id, pending.arguments) {
            let message = format!("this call of `{id}` was left out when the program was allowed");
            return Err(ErrorBody::new(ErrorCode::ApprovalDenied, message));
        }
        // Protected places are known only for native tools, so an allowed call of any other tool
        // needs no check.
        match self.decide(id, target, None)? {
            Decision::Run { reason } if !is_native => {
                self.count_call(id)?;
                return Ok(self.permitted(reason));
            }
            _ => {}
        }
        let touched = self.app.check_call(id, target, pending.arguments, &self.policy)?;
        // The call may touch what the user is shown. The tool checks the places again when it runs,
        // because a link may lead elsewhere by then.
        let granted = Granted::of(&touched).under(Arc::clone(&self.policy));
        let places = &touched.protected[..];
        let decision = self.decide(id, target, Some(&touched))?;
        // Before anybody is asked about it.
        self.count_call(id)?;
        match decision {
            Decision::Run { reason } => return Ok(self.permitted(reason)),
            // Only calls of the program itself are in its plan. A start is approved on its own.
            Decision::Ask { start: None, .. } if pending.through.is_empty() => {
                let preview = || self.app.preview(id, target, pending.arguments, &self.policy);
                if let Some(by) = self.allowed.take(id, pending.arguments, &touched, preview) {
                    // The user may have changed the rules since the answer.
                    self.app.read_permissions()?;
                    self.decide(id, target, Some(&touched))?;
                    if by != Channel::Agent || !self.app.permissions().by_person_only() {
                        let reason = format!("{}{BEFORE_START}", by.approval());
                        return Ok(Permit { granted, reason });
                    }
                }
            }
            Decision::Ask { .. } | Decision::Refused { .. } => {}
        }
        let _paused_clocks: Vec<_> = pending.clocks.iter().map(WallClock::pause).collect();
        let cancelled = || ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
        // The call joins its group before it waits for the lock, so that the next question counts
        // it.
        let waiting_call = self.identical.join(id, pending.through, pending.arguments, &touched);
        let _asking = tokio::select! {
            asking = self.asking.lock() => asking,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        // The previous question may have been about this call too, or answered with "always".
        if let Some(by) = waiting_call.take_approval() {
            // Ask again if the server or capability was not approved with that answer.
            if let Decision::Run { .. } | Decision::Ask { start: None, .. } =
                self.decide(id, target, None)?
            {
                return Ok(approved(granted, by));
            }
        }
        // Decided again: while this call waited, the user may have answered "always", or approved
        // the same start.
        let (reason, start) = match self.decide(id, target, Some(&touched))? {
            Decision::Ask { reason, start, .. } => (self.with_mock(reason), start),
            Decision::Run { reason } => return Ok(self.permitted(reason)),
            Decision::Refused { reason, code } => return Err(denied(id, "", &reason, code)),
        };
        let count = tokio::select! {
            count = waiting_call.settle() => count,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        self.recorder.check_stored().await.map_err(|error| self.end_with(error))?;
        let (answer, answered) = oneshot::channel();
        let (starts, shown) = (start.is_some(), start.as_ref().and_then(|start| start.hash));
        let preview = self.app.preview(id, target, pending.arguments, &self.policy);
        let call = AskedCall {
            tool: id.clone(),
            through: pending.through.to_vec(),
            arguments: pending.arguments.clone(),
            reason: reason.clone(),
            start,
            changed: None,
            count,
            touched: touched.clone(),
            preview: preview.clone(),
            can_be_allowed: touched.can_be_allowed(&self.policy),
            sends_to: sends_to(&self.app, id, target, &touched),
        };
        let danger = danger(pending.tool, target, starts, &touched, &self.policy);
        let about = About::Call(Box::new(call));
        let shown_text = Integrity::of(about.text().as_bytes());
        let question = Question {
            about,
            needs_person: NeedsPerson::of(&self.app.permissions(), danger),
            answer,
        };
        let asked_at = record::now();
        if self.send(RunEvent::Asks(Box::new(question))).is_err() {
            let message = format!("the user cannot be asked about `{id}`");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        }
        self.open_questions(vec![AnsweredQuestion {
            asked_at,
            tool: id.clone(),
            arguments: pending.arguments.clone(),
            count,
            reason,
            shown: shown_text,
            answer: None,
            is_left_out: false,
            covers: None,
        }]);
        // Without an answer, nobody can answer any more: the time is over, or the run was cancelled. Then the run ends,
        // which records the open question.
        let waiting = Span::of_step("pml.approval");
        let given = tokio::select! {
            biased;
            answer = answered => answer.ok(),
            () = cancel.cancelled() => return Err(cancelled()),
        };
        waiting.end(None);
        let Some(given) = given else {
            let message = format!("the question about `{id}` was not answered");
            return Err(self.end(ErrorCode::ApprovalExpired, message));
        };
        // A model could allow its own calls for ever. A protected place is never allowed permanently: the question does
        // not offer this answer, but a client may send it.
        let is_lasting = touched.can_be_allowed(&self.policy) && given.by != Channel::Agent;
        let answer = match given.answer {
            Answer::Always if !is_lasting => Answer::Once,
            answer => answer,
        };
        // An answer counts only once it is recorded.
        let by = given.by;
        self.record_answers(Given { answer, without: LeftOut::default(), by }).await?;
        match answer {
            // Calls that joined the group after the question was shown are not covered: its count
            // did not include them.
            Answer::Once => {
                waiting_call.allow(count - 1, given.by);
                if given.answer == Answer::Always {
                    let why = match touched.judged(self.policy.policy()) {
                        _ if !places.is_empty() => {
                            "calls that touch protected places always need approval"
                        }
                        Judged::Beyond(reason) => reason,
                        Judged::Within | Judged::Denied(_) => {
                            "only the user can allow it permanently, with `pml approve` or in `.pml.json`"
                        }
                    };
                    self.warn(format!("`{id}` was allowed once: {why}"));
                }
            }
            Answer::Always => {
                self.allow_tool(id);
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
        self.decide(id, target, None)?;
        let before = |preview: &Option<Preview>| preview.as_ref().map(|preview| preview.before);
        let present = self.app.preview(id, target, pending.arguments, &self.policy);
        if before(&present) != before(&preview) {
            let message = format!(
                "the file that `{id}` changes is not what it was when the user was asked; call it again"
            );
            return Err(ErrorBody::new(ErrorCode::PolicyDenied, message));
        }
        if starts {
            self.approve_start(id, target, shown, given.by.as_str())?;
        }
        Ok(approved(granted, given.by))
    }

    /// Records that the user approved a start; `shown` is the hash of what the user saw, and `by` how they answered.
    fn approve_start(
        &self,
        id: &ToolId,
        target: &Target,
        shown: Option<Integrity>,
        by: &str,
    ) -> Result<(), ErrorBody> {
        match target {
            Target::Registered(entry) => match self.app.grant(entry, id)? {
                Some(grant) => {
                    self.app.lockfile.approve(entry, &grant, shown, by)?;
                    if let Err(error) = capabilities::save_entry(self.app.records(), entry) {
                        let name = escape_text(&entry.fqdn);
                        self.warn(format!("`{name}` cannot start without the gateway: {error}"));
                    }
                    Ok(())
                }
                None => Ok(()),
            },
            Target::Capability(capability) => {
                let module = &capability.module;
                self.app.lockfile.approve_capability(module, by)?;
                // This run has the program already. Only a later one without the gateway needs the
                // file.
                if let Err(error) = capabilities::save_module(self.app.records(), module) {
                    let name = module.versioned();
                    self.warn(format!("`{name}` cannot run without the gateway: {error}"));
                }
                Ok(())
            }
            Target::Configured => self.app.approve_program(id.namespace(), shown, by),
            Target::Native | Target::Gateway { .. } => Ok(()),
        }
    }

    /// Decides whether a call that touches this, as far as that is known, runs or needs an answer.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` or `POLICY_DENIED`, or why a start cannot be described.
    pub(super) fn decide(
        &self,
        id: &ToolId,
        target: &Target,
        touched: Option<&Touched>,
    ) -> Result<Decision, ErrorBody> {
        let policy = Some(self.policy.policy());
        // Rules apply to every version of a tool, and so does "always".
        let allowed_in_run = self.allows_tool(id);
        let call = Call { allowed_in_run, touched, policy, ..Call::default() };
        decide_call(&self.app, id, target, call)
    }

    /// Adds to the reason for a question that another run has no answer to the call.
    fn with_mock(&self, reason: String) -> String {
        match &self.mock {
            Some(mock) => format!("the record of run {} has no answer to it; {reason}", mock.run),
            None => reason,
        }
    }

    /// Counts a call that is not denied towards the limits of the policy.
    fn count_call(&self, id: &ToolId) -> Result<(), ErrorBody> {
        self.policy
            .count_call(id)
            .map_err(|reason| denied(id, "", &reason, ErrorCode::PolicyDenied))
    }

    /// Returns the permission that a rule gives.
    fn permitted(&self, reason: String) -> Permit {
        Permit { granted: Granted::by_rule(Arc::clone(&self.policy)), reason }
    }
}

/// Decides whether a call runs or needs an answer; looks up what it would start.
///
/// # Errors
/// Returns `PERMISSION_DENIED` or `POLICY_DENIED`, or why a start cannot be described.
pub(super) fn decide_call(
    app: &App,
    id: &ToolId,
    target: &Target,
    call: Call<'_>,
) -> Result<Decision, ErrorBody> {
    // Checked first: nothing is looked up for a denied call.
    refuse_denied(&app.permissions(), id, "")?;
    let start = match target {
        Target::Registered(entry) => match app.grant(entry, id)? {
            Some(grant) => app.lockfile.question(entry, &grant)?,
            None => None,
        },
        Target::Capability(capability) => {
            let what = app.lockfile.capability_question(capability)?;
            what.map(|what| Start { what, grants: Vec::new(), hash: None })
        }
        Target::Configured => app.changed_program(id.namespace())?,
        Target::Native | Target::Gateway { .. } => None,
    };
    match decide(&app.permissions(), id, Call { start, ..call }) {
        Decision::Refused { reason, code } => Err(denied(id, "", &reason, code)),
        decision => Ok(decision),
    }
}

/// Returns the address that receives a call, if it is not on this machine.
pub(super) fn sends_to(
    app: &App,
    id: &ToolId,
    target: &Target,
    touched: &Touched,
) -> Option<String> {
    match target {
        Target::Configured => app.remote_of(id).map(|remote| remote.to_string()),
        Target::Native => touched.url.as_ref().map(|url| url.origin().ascii_serialization()),
        _ => None,
    }
}

/// Returns the permission that an answer gives.
fn approved(granted: Granted, by: Channel) -> Permit {
    Permit { granted, reason: by.approval().to_owned() }
}

/// Returns why a call is dangerous in itself. `tool` is the one that runs, not the name that rules are applied to;
/// `starts` if it starts a server or a capability.
pub(super) fn danger(
    tool: &ToolId,
    target: &Target,
    starts: bool,
    touched: &Touched,
    policy: &PolicyOfRun,
) -> Option<NeedsPerson> {
    match target {
        _ if !touched.protected.is_empty() => Some(NeedsPerson::Place),
        Target::Native if tools::runs_command(tool) => {
            Some(NeedsPerson::Command(touched.command.as_ref().map(|command| command.access)))
        }
        Target::Native if touched.url.is_some() && !touched.can_be_allowed(policy) => {
            Some(NeedsPerson::Web)
        }
        Target::Registered(_) if starts => Some(NeedsPerson::Start),
        Target::Configured if starts => Some(NeedsPerson::ChangedProgram),
        _ => None,
    }
}
