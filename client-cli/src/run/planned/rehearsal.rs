//! Rehearsals: the program runs in the sandbox before the user is asked, to list the calls in its loops.
//!
//! No tool is called: each call gets a text that means nothing as its result. So a rehearsal can only tell about calls
//! that depend on no result. Which these are is known from the plan. To be sure, there are two rehearsals, with other
//! texts, times and random numbers, and only what both call is listed.
//!
//! The answer to the question covers the listed calls and no others, so a program that behaves differently when it
//! runs is asked about again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use analysis::{Analysis, PlannedTask};
use futures::future::{BoxFuture, FutureExt as _};
use protocol::ToolId;
use sandbox::{
    CallError, FailureKind, Limits, Pool, Program, ProgramClock, Repeatable, ToolCall, ToolCaller,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::arguments::{exact, fits};
use crate::run::journal::RunStart;

/// How long one rehearsal may take.
const TIME_LIMIT: Duration = Duration::from_millis(300);

/// The maximum number of calls of one rehearsal, and the maximum total length of their arguments as JSON, in bytes. At
/// the limit, the rehearsal ends.
const CALLS_LIMIT: usize = 500;
const ARGUMENTS_LIMIT: usize = 4 << 20;

/// The results that the calls get, one for each rehearsal: of different lengths, and numbers as JSON.
const RESULTS: [&str; 2] = ["0", "12"];

/// The time between the clocks of the two: different in year, day, hour, minute and second.
const TIME_SHIFT_MS: i64 = 1_000 * (403 * 86_400 + 5 * 3_600 + 17 * 60 + 7);

/// The calls of a program that were rehearsed.
#[derive(Default)]
pub(super) struct Rehearsal {
    /// All of them, in their order.
    order: Vec<Call>,
    /// Those that are not known without a rehearsal, by the id of their task.
    calls: HashMap<String, Vec<Rehearsed>>,
    /// The ids of the tasks that may make further calls.
    open: HashSet<String>,
}

/// A call that is known from the rehearsal.
pub(super) struct Rehearsed {
    pub(super) arguments: Value,
    /// Whether it may be a call of another task.
    pub(super) is_ambiguous: bool,
}

/// Returns whether a rehearsal can tell which calls a task makes: neither their arguments nor their number depend on
/// the result of a tool.
pub(super) fn can_be_rehearsed(task: &PlannedTask) -> bool {
    task.data_from.is_empty() && task.decided_by.is_empty()
}

/// Rehearses a program whose plan has these tasks.
pub(super) async fn rehearse(
    analysis: &Analysis,
    tasks: &[PlannedTask],
    args: &Value,
    sandboxes: &Pool,
    start: RunStart,
    cancel: &CancellationToken,
) -> Rehearsal {
    let later = RunStart {
        epoch_ms: start.epoch_ms.saturating_add(TIME_SHIFT_MS),
        seed: start.seed.map(|byte| !byte),
    };
    let run = |start, result| run(analysis, args, sandboxes, start, result, cancel);
    let (one, other) = tokio::join!(run(start, RESULTS[0]), run(later, RESULTS[1]));
    let has_ended = one.has_ended && other.has_ended;
    let (both, different) = compare(one.calls, other.calls);
    let mut rehearsal = Rehearsal::new(tasks, args, both, &different);
    if !has_ended {
        rehearsal.open.extend(tasks.iter().map(|task| task.id.clone()));
    }
    rehearsal
}

impl Rehearsal {
    /// Finds the tasks of the calls that both rehearsals made, and of those that only one made.
    fn new(tasks: &[PlannedTask], args: &Value, both: Vec<Call>, different: &[Call]) -> Self {
        // Calls that are known without a rehearsal are listed already.
        let mut listed: Vec<(&ToolId, Value)> =
            tasks.iter().filter_map(|task| Some((&task.tool, exact(task, args)?))).collect();
        let others: Vec<&PlannedTask> =
            tasks.iter().filter(|task| exact(task, args).is_none()).collect();
        let candidates = |call: &Call| -> Vec<&PlannedTask> {
            let may_be =
                |task: &&PlannedTask| task.tool == call.tool && fits(task, args, &call.arguments);
            others.iter().copied().filter(may_be).collect()
        };
        let mut rehearsal = Self::default();
        for call in different {
            rehearsal.open.extend(candidates(call).iter().map(|task| task.id.clone()));
        }
        for call in &both {
            let is_listed =
                |(id, known): &(&ToolId, Value)| **id == call.tool && *known == call.arguments;
            if let Some(place) = listed.iter().position(is_listed) {
                listed.swap_remove(place);
                continue;
            }
            let candidates = candidates(call);
            match &candidates[..] {
                [task, more @ ..] if candidates.iter().all(|task| can_be_rehearsed(task)) => {
                    rehearsal.calls.entry(task.id.clone()).or_default().push(Rehearsed {
                        arguments: call.arguments.clone(),
                        is_ambiguous: !more.is_empty(),
                    });
                }
                // It may depend on a result. With another result, there may be another call.
                _ => rehearsal.open.extend(candidates.iter().map(|task| task.id.clone())),
            }
        }
        rehearsal.order = both;
        rehearsal
    }

    /// Returns the calls of a task, and whether it may make others.
    pub(super) fn calls_of(&mut self, task: &PlannedTask) -> (Vec<Rehearsed>, bool) {
        (self.calls.remove(&task.id).unwrap_or_default(), self.open.contains(&task.id))
    }

    /// Returns the place of the first call of a tool with these arguments.
    pub(super) fn place(&self, tool: &ToolId, arguments: &Value) -> Option<usize> {
        self.order.iter().position(|call| call.tool == *tool && call.arguments == *arguments)
    }
}

/// A call that was rehearsed.
#[derive(Debug, Clone, PartialEq)]
struct Call {
    tool: ToolId,
    arguments: Value,
}

/// What a program did in one rehearsal.
struct Run {
    calls: Vec<Call>,
    /// Whether it came to its end, and returned.
    has_ended: bool,
}

async fn run(
    analysis: &Analysis,
    args: &Value,
    sandboxes: &Pool,
    start: RunStart,
    result: &'static str,
    cancel: &CancellationToken,
) -> Run {
    let ended = cancel.child_token();
    let stage = Arc::new(Stage { noted: Mutex::default(), result, ended: ended.clone() });
    let program = Program {
        source: analysis.program.clone(),
        args: args.clone(),
        implicit_returns: analysis.implicit_returns.clone(),
        repeatable: Some(Repeatable {
            // A program that pauses between its calls is not waited for.
            clock: ProgramClock::virtual_time(start.epoch_ms),
            seed: start.seed,
        }),
    };
    let mut limits = Limits { wall: TIME_LIMIT, cpu: TIME_LIMIT, ..Limits::client() };
    // As when it runs.
    limits.in_flight = usize::try_from(limits.calls).unwrap_or(limits.in_flight);
    let tools: Arc<dyn ToolCaller> = Arc::clone(&stage) as _;
    let outcome = sandboxes.run(program, &limits, tools, ended).await;
    let failure = outcome.result.err().map(|failure| failure.kind);
    let calls = match failure {
        None
        | Some(FailureKind::Exception | FailureKind::StackOverflow | FailureKind::Deadlock) => {
            std::mem::take(&mut stage.noted().calls)
        }
        // How far it came depends on the machine.
        Some(_) => Vec::new(),
    };
    Run { calls, has_ended: failure.is_none() }
}

/// Notes the calls of a program, and answers each with the same text.
struct Stage {
    noted: Mutex<Noted>,
    result: &'static str,
    /// Ends the rehearsal.
    ended: CancellationToken,
}

#[derive(Default)]
struct Noted {
    calls: Vec<Call>,
    /// The total length of their arguments.
    bytes: usize,
}

impl Stage {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolCaller for Stage {
    fn call(
        &self,
        call: ToolCall,
        _cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        if let Ok(tool) = ToolId::from_call(&call.namespace, &call.action) {
            let mut noted = self.noted();
            noted.bytes += call.args.to_string().len();
            if noted.bytes > ARGUMENTS_LIMIT || noted.calls.len() == CALLS_LIMIT {
                self.ended.cancel();
            } else {
                noted.calls.push(Call { tool, arguments: call.args });
            }
        }
        futures::future::ready(Ok(self.result.into())).boxed()
    }
}

/// Returns the calls that are in both lists, in the order of the first, and those that are in one of them only.
fn compare(one: Vec<Call>, mut other: Vec<Call>) -> (Vec<Call>, Vec<Call>) {
    let is_in_both = |call: &Call| {
        let place = other.iter().position(|known| known == call);
        place.map(|place| other.remove(place)).is_some()
    };
    let (both, mut different): (Vec<Call>, Vec<Call>) = one.into_iter().partition(is_in_both);
    different.extend(other);
    (both, different)
}
