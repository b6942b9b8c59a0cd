//! The calls of a program that the user is asked about before it starts, in one question.
//!
//! An answer covers calls with exactly the arguments that were shown, as often as was shown. Every other call is asked
//! about when the program reaches it.

mod arguments;
mod rehearsal;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::{Certainty, Place, Plan, PlannedTask, plan_with};
use execution::spans::Span;
use protocol::discovery::SEARCH_TOOLS;
use protocol::{Egress, ErrorBody, ErrorCode, Integrity, Side, ToolId};
use sandbox::Pool;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::arguments::{arguments, exact};
use self::rehearsal::{Rehearsal, can_be_rehearsed, rehearse};
use super::allowed_calls::covered;
use super::local_run::LocalRun;
use super::paused::RunEvent;
use super::permission::{danger, sends_to};
use super::prepare::LocalProgram;
use super::recorder::AnsweredQuestion;
use crate::app::App;
use crate::capabilities::Target;
use crate::consent::decision::Decision;
use crate::consent::question::plan::{AskedPlan, PlannedCall, Uncovered, leaving};
use crate::consent::question::{About, Answer, AskedCall, Given, NeedsPerson, Question};
use crate::run_store::record;
use crate::tools;

/// The minimum number of calls for one question. A single call is asked about when the program reaches it.
const CALLS_MIN: u64 = 2;

/// The maximum number of different calls in one question.
const CALLS_LIMIT: usize = 100;

/// How long the places of the calls may be looked up. The rest of the calls are asked about later.
const TIME_LIMIT: Duration = Duration::from_millis(500);

impl LocalRun {
    /// Asks the user about the calls of a program that are known before it starts, if there are several that need
    /// approval. Unless somebody can answer (`can_ask`), the program starts without a question if none of the calls is
    /// certain.
    ///
    /// # Errors
    /// Returns `APPROVAL_DENIED`, `APPROVAL_EXPIRED` or `CANCELLED`. The program must not start then.
    pub(super) async fn ask_about_plan(
        &self,
        program: &LocalProgram,
        sandboxes: &Pool,
        can_ask: bool,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        let asked = self.asked_plan(program, sandboxes, cancel).await;
        let Some(plan) = asked else { return Ok(()) };
        if !can_ask && plan.calls.iter().all(|planned| planned.may) {
            return Ok(());
        }
        self.recorder.check_stored().await.map_err(|error| self.end_with(error))?;
        let (answer, answered) = oneshot::channel();
        let asked_at = record::now();
        let calls: Vec<AskedCall> = plan.calls.iter().map(|planned| planned.call.clone()).collect();
        let needs_person = NeedsPerson::of(&self.app.permissions(), plan.danger());
        let about = About::Plan(plan);
        let shown = Integrity::of(about.text().as_bytes());
        let questions = calls.iter().map(|call| AnsweredQuestion {
            asked_at: asked_at.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            count: call.count,
            reason: call.reason.clone(),
            shown,
            answer: None,
            is_left_out: false,
            covers: Some(covered(call)),
        });
        self.open_questions(questions.collect());
        let question = Question { about, needs_person, answer };
        let expired = || {
            let message = "the question about the program was not answered; it was not started";
            ErrorBody::new(ErrorCode::ApprovalExpired, message)
        };
        self.send(RunEvent::Asks(Box::new(question))).map_err(|_| self.end_with(expired()))?;
        let waiting = Span::of_step("pml.approval");
        let given = tokio::select! {
            // Without an answer, the run is cancelled, too.
            biased;
            given = answered => given.map_err(|_| self.end_with(expired()))?,
            () = cancel.cancelled() => {
                let error = ErrorBody::new(ErrorCode::Cancelled, "the run was cancelled");
                return Err(self.end_with(error));
            }
        };
        waiting.end(None);
        // A rule is made for one tool, after a question about it. A client may send this answer all the same.
        let answer = match given.answer {
            Answer::Once | Answer::Always => Answer::Once,
            Answer::Abort => Answer::Abort,
        };
        // An answer counts only once it is recorded.
        let without = given.without;
        self.record_answers(Given { answer, without: without.clone(), by: given.by }).await?;
        if answer == Answer::Abort {
            let message = "the user did not allow the program; it was not started";
            return Err(self.end_with(ErrorBody::new(ErrorCode::ApprovalDenied, message)));
        }
        self.allowed.allow(&calls, &without, given.by);
        // The user may have edited the rules while the question was open.
        self.app.read_permissions().map_err(|error| self.end_with(error))
    }

    /// Returns the question about a program; `None` if fewer than two calls would be in it.
    async fn asked_plan(
        &self,
        program: &LocalProgram,
        sandboxes: &Pool,
        cancel: &CancellationToken,
    ) -> Option<AskedPlan> {
        // Which calls a dynamic program makes is not known before it runs.
        if program.analysis.dynamic {
            return None;
        }
        let plan = Arc::new(plan_of(&self.app, program));
        let mut rehearsal = self.rehearsal(program, &plan, sandboxes, cancel).await;
        let begun = Instant::now();
        // Nobody is asked about a call that exceeds a limit.
        let trial = self.policy.unused();
        let mut asked = AskedPlan {
            plan: Arc::clone(&plan),
            calls: Vec::new(),
            later: Vec::new(),
            leaves: leaves(&plan),
        };
        for task in &plan.tasks {
            let Some(target) = program.targets.get(&task.tool) else { continue };
            for call in calls_of(task, &program.args, &mut rehearsal) {
                let no_room = match asked.calls.len() {
                    CALLS_LIMIT => Some(Uncovered::TooMany),
                    _ => (begun.elapsed() > TIME_LIMIT).then_some(Uncovered::TooSlow),
                };
                let mut planned = self.planned(task, target, call, no_room);
                if trial.count_call(&task.tool).is_err() && matches!(planned, Planned::Asked(_)) {
                    planned = Planned::Later(Uncovered::Fails);
                }
                match planned {
                    Planned::Runs => {}
                    Planned::Asked(new) => asked.add(*new),
                    Planned::Later(why) => asked.add_later(&task.tool, why, task.line),
                }
            }
        }
        if let Some(rehearsal) = &rehearsal {
            asked.sort_by(|call| rehearsal.place(&call.tool, &call.arguments));
        }
        let mut changed = HashSet::new();
        for planned in &mut asked.calls {
            // After the first change of a file, it is not what it is now.
            let preview = &mut planned.call.preview;
            preview.take_if(|preview| !changed.insert(preview.real.clone()));
        }
        (asked.count() >= CALLS_MIN).then_some(asked)
    }

    /// Rehearses a program, if that may tell more about a call that needs approval.
    async fn rehearsal(
        &self,
        program: &LocalProgram,
        plan: &Plan,
        sandboxes: &Pool,
        cancel: &CancellationToken,
    ) -> Option<Rehearsal> {
        let may_tell = |task: &PlannedTask| {
            let asks = |target| {
                let decision = self.decide(&task.tool, target, None);
                matches!(decision, Ok(Decision::Ask { start: None, .. }))
            };
            exact(task, &program.args).is_none()
                && can_be_rehearsed(task)
                && program.targets.get(&task.tool).is_some_and(asks)
        };
        if !plan.tasks.iter().any(may_tell) {
            return None;
        }
        let LocalProgram { analysis, args, .. } = program;
        Some(rehearse(analysis, &plan.tasks, args, sandboxes, self.start, cancel).await)
    }

    /// Decides about a call before the program starts; `no_room` is why the question has no room for it.
    fn planned(
        &self,
        task: &PlannedTask,
        target: &Target,
        call: Known,
        no_room: Option<Uncovered>,
    ) -> Planned {
        let id = &task.tool;
        let asks = match self.decide(id, target, None) {
            Ok(Decision::Ask { start: Some(_), .. }) => return Planned::Later(Uncovered::Starts),
            Ok(Decision::Ask { .. }) => true,
            // A native tool may still touch a protected place.
            Ok(Decision::Run { .. }) => false,
            // The call itself reports why.
            Ok(Decision::Refused { .. }) | Err(_) => return Planned::Runs,
        };
        let later = |why| if asks { Planned::Later(why) } else { Planned::Runs };
        let (arguments, may, line) = match (call, no_room) {
            (Known::Exactly { arguments, may, line }, None) => (arguments, may, line),
            (Known::Exactly { .. }, Some(why)) | (Known::Not(why), _) => return later(why),
        };
        // Nobody is asked about a call that fails. It may succeed after the calls before it.
        let Ok(touched) = self.app.check_call(id, target, &arguments, &self.policy) else {
            return later(Uncovered::Fails);
        };
        let Ok(Decision::Ask { reason, .. }) = self.decide(id, target, Some(&touched)) else {
            return Planned::Runs;
        };
        let planned = PlannedCall {
            danger: danger(id, target, false, &touched, &self.policy),
            call: AskedCall {
                tool: id.clone(),
                through: Vec::new(),
                can_be_allowed: touched.can_be_allowed(&self.policy),
                preview: self.app.preview(id, target, &arguments, &self.policy),
                arguments,
                reason,
                changed: None,
                count: 1,
                start: None,
                sends_to: sends_to(&self.app, id, target, &touched),
                touched,
            },
            may,
            line,
        };
        // What is hidden in the middle of a command would be approved unseen.
        if planned.danger.is_some() && !planned.is_shown_in_full() {
            return Planned::Later(Uncovered::TooLong);
        }
        Planned::Asked(Box::new(planned))
    }
}

/// What is known of a call before the program starts.
enum Known {
    /// Its arguments, whether the program may end without making it, and its line if that is known.
    Exactly { arguments: Value, may: bool, line: Option<u32> },
    /// Not enough to ask about it.
    Not(Uncovered),
}

/// Returns the calls of a task. One that is not known stands for any number of them.
fn calls_of(task: &PlannedTask, args: &Value, rehearsal: &mut Option<Rehearsal>) -> Vec<Known> {
    if let Some(arguments) = exact(task, args) {
        let may = task.certainty == Certainty::May;
        return vec![Known::Exactly { arguments, may, line: Some(task.line) }];
    }
    let (calls, may_be_others) = match rehearsal {
        Some(rehearsal) if can_be_rehearsed(task) => rehearsal.calls_of(task),
        _ => (Vec::new(), true),
    };
    let calls = calls.into_iter().map(|call| {
        let line = (!call.is_ambiguous).then_some(task.line);
        Known::Exactly { arguments: call.arguments, may: false, line }
    });
    let why =
        if arguments(task, args).is_some() { Uncovered::Repeated } else { Uncovered::Computed };
    calls.chain(may_be_others.then_some(Known::Not(why))).collect()
}

/// What becomes of a call when the user is asked about the program.
enum Planned {
    /// It needs no approval, or fails before anybody is asked.
    Runs,
    /// It needs approval, and is known exactly.
    Asked(Box<PlannedCall>),
    /// It needs approval, and is asked about when the program reaches it.
    Later(Uncovered),
}

/// Returns the plan of a program whose tools were found.
fn plan_of(app: &App, program: &LocalProgram) -> Plan {
    let place = |id: &ToolId| match program.targets.get(id) {
        Some(Target::Gateway { .. }) => Place::on(Side::Server),
        Some(target) => Place {
            sends_within: sends_within(app, id, target),
            well_known: matches!(target, Target::Native),
            ..Place::on(Side::Client)
        },
        None => Place { well_known: false, ..Place::on(Side::Unknown) },
    };
    plan_with(&program.analysis, Side::Client, place)
}

/// Returns whether a tool on this machine sends its arguments elsewhere.
fn sends_within(app: &App, id: &ToolId, target: &Target) -> bool {
    match target {
        // The search queries the gateway.
        Target::Native => id.as_str() == SEARCH_TOOLS || tools::sends_to(id).is_some(),
        Target::Configured => app.remote_of(id).is_some(),
        Target::Registered(_) => false,
        Target::Capability(capability) => {
            capability.targets.iter().any(|(id, target)| sends_within(app, id, target))
        }
        Target::Gateway { .. } => true,
    }
}

/// Returns which results of tools on this machine reach tools elsewhere, a line each.
fn leaves(plan: &Plan) -> Vec<String> {
    let tasks: HashMap<&str, &PlannedTask> =
        plan.tasks.iter().map(|task| (task.id.as_str(), task)).collect();
    let mut seen = BTreeSet::new();
    let line = |pair: &Egress| {
        let (from, to) = (tasks.get(pair.from.as_str())?, tasks.get(pair.to.as_str())?);
        let (from, to) = ((from.tool.as_str(), from.line), (to.tool.as_str(), to.line));
        // The same tools may be called several times in one line.
        seen.insert((from, to, pair.decides)).then(|| leaving(from, to, pair.decides))
    };
    plan.egress.iter().filter_map(line).collect()
}
