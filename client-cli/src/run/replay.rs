//! Replays a run: its program runs again in the sandbox, and each of its calls gets the recorded answer.
//!
//! Nothing else happens: no tool is called, and nobody is asked. Afterwards, the replay is recorded as a run of its own.

pub(crate) mod record;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use analysis::Analysis;
use execution::failure;
use futures::future::{BoxFuture, FutureExt as _};
use protocol::{CallLog, CallNote, ConsoleLine, ErrorBody, ErrorCode, Integrity, ToolId};
use sandbox::{CallError, Limits, Pool, Program, ProgramClock, Repeatable, ToolCall, ToolCaller};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::journal::{Journal, ProgramJournal, Step};
use super::local_execution::printed;

/// How long a program that has left the record may go on, so that the place of its call is known: if it does not catch
/// the error of the call, it ends with it.
const GRACE: Duration = Duration::from_secs(1);

/// How long a changed program may make no call while the record has further answers. Until then its clock stands still,
/// so it may be waiting for a timer that never fires.
const IDLE: Duration = Duration::from_secs(10);

/// What a program did when it was replayed.
pub(crate) struct Replayed {
    /// What it returned, or how it failed. A program that has left the record was ended there.
    pub(crate) result: Result<Value, ErrorBody>,
    /// What it printed.
    pub(crate) console: Vec<ConsoleLine>,
    /// The hash of that, as the record of a run has it.
    pub(crate) printed: Option<Integrity>,
    /// The number of its calls that were answered.
    pub(crate) calls: usize,
    /// Where it has left the record, if so.
    pub(crate) left: Option<Departure>,
    /// The other calls of the record that it has not made, in their order.
    pub(crate) not_made: Vec<u64>,
}

/// Where a program has left the record.
pub(crate) struct Departure {
    /// The number of the call.
    pub(crate) call: u64,
    /// What the program calls now, with the arguments; `None` if it does not make the call.
    pub(crate) now: Option<(String, Value)>,
    /// The line and the column of the call, if they are known.
    pub(crate) place: Option<(u32, u32)>,
    /// The error.
    pub(crate) error: ErrorBody,
}

/// Replays a run; `analysis` is that of its program. `patience` is how long its program may take after the last recorded
/// answer, if it has ended; a call that had no answer by its end gets none again.
///
/// # Errors
/// Returns why its program cannot run here.
pub(crate) async fn replay(
    analysis: &Analysis,
    sandboxes: &Pool,
    journal: Journal,
    patience: Option<Duration>,
    stop: &CancellationToken,
) -> Result<Replayed, ErrorBody> {
    let journal = Arc::new(journal);
    if let Some(error) = analysis.error_body() {
        return Err(error);
    }
    let clock = ProgramClock::start(journal.start.epoch_ms);
    let ended = stop.child_token();
    let player = Arc::new(Player {
        journal: journal.of_program(&[], &clock),
        state: Mutex::default(),
        patience,
        is_changed: journal.is_changed,
        ended: ended.clone(),
    });
    let watch = journal.is_changed.then(|| tokio::spawn(watch_idle(Arc::clone(&player))));
    let program = Program {
        source: analysis.program.clone(),
        args: journal.args.clone(),
        implicit_returns: analysis.implicit_returns.clone(),
        repeatable: Some(Repeatable { clock, seed: journal.start.seed }),
    };
    let mut limits = Limits::client();
    // As when it ran: calls that wait for the user are in flight.
    limits.in_flight = usize::try_from(limits.calls).unwrap_or(limits.in_flight);
    let caller = Arc::new(Answers(Arc::clone(&player)));
    let outcome = sandboxes.run(program, &limits, caller, ended.clone()).await;
    // Ends what waits for it.
    ended.cancel();
    if let Some(watch) = watch {
        watch.abort();
    }
    if stop.is_cancelled() {
        return Err(ErrorBody::new(ErrorCode::Cancelled, "the replay was cancelled"));
    }
    let State { log, made, mut left, .. } = std::mem::take(&mut *player.state());
    if let (Some(left), Err(failure)) = (&mut left, &outcome.result)
        && failure.call == Some(left.call)
    {
        left.place = failure.line.zip(failure.column);
    }
    let mut not_made = player.journal.calls();
    let departed = left.as_ref().map(|left| left.call);
    not_made.retain(|call| !made.contains(call) && departed != Some(*call));
    let result =
        outcome.result.map_err(|failure| failure::error_body(&failure, &journal.code, &log));
    let lines = outcome.console.into_iter();
    let lines = lines.map(|line| ConsoleLine { level: line.level, text: line.text });
    let console: Vec<ConsoleLine> = lines.collect();
    let (printed, calls) = (printed(&console), log.notes().len());
    Ok(Replayed { result, console, printed, calls, left, not_made })
}

/// Ends a program that makes no call although the record has answers.
async fn watch_idle(player: Arc<Player>) {
    let mut made = 0;
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(call) = player.journal.next_answer() else { return };
        let before = std::mem::replace(&mut made, player.state().made.len());
        if before == made {
            let message = format!("the program did not make call {call} of its record");
            let error = ErrorBody::new(ErrorCode::ReplayMismatch, message);
            player.leave(Departure { call, now: None, place: None, error });
            player.ended.cancel();
            return;
        }
    }
}

/// Answers the calls of the program from the record.
struct Player {
    journal: ProgramJournal,
    state: Mutex<State>,
    patience: Option<Duration>,
    /// Whether it is not the program of the record.
    is_changed: bool,
    /// Ends the program.
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    log: CallLog,
    /// When its calls were answered, for the sandbox, which takes each time with the answer.
    answered: HashMap<u64, u64>,
    /// The numbers of the calls that it made.
    made: HashSet<u64>,
    /// Where the program has left the record.
    left: Option<Departure>,
}

impl Player {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes where the program has left the record. The first call is the reason for those after it.
    fn leave(&self, departure: Departure) {
        self.state().left.get_or_insert(departure);
        let ended = self.ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(GRACE) => ended.cancel(),
                () = ended.cancelled() => {}
            }
        });
    }

    async fn answer(&self, call: &ToolCall, tool: &str) -> Result<Value, ErrorBody> {
        let has_left = {
            let mut state = self.state();
            if state.left.is_none() {
                state.made.insert(call.id);
            }
            state.left.is_some()
        };
        if has_left {
            // What it does from here on says nothing about the record.
            return std::future::pending().await;
        }
        let left = match self.journal.step(call.id, tool, &call.args).await {
            Ok(Step::Answer { at_ms, routing, answer }) => {
                let (ok, failed) = (answer.is_ok(), answer.as_ref().err());
                let failed = failed.map(|error| error.error_code);
                let tool = tool.to_owned();
                let note = CallNote { tool, routing, ok, duration_ms: 0.0, through: Vec::new() };
                let mut state = self.state();
                state.answered.insert(call.id, at_ms);
                state.log.record(call.id, note, failed);
                return answer;
            }
            // All recorded answers were given.
            Ok(Step::Make(_) | Step::Fail(_)) => {
                // A changed program makes calls of its own, which the recorded one did not.
                let is_new = self.is_changed && !self.journal.has(call.id);
                if let Some(patience) = self.patience.filter(|_| !is_new) {
                    // Cancelled by the sandbox once the program has ended.
                    tokio::time::sleep(patience).await;
                }
                let message = format!("the record has no answer to call {} of `{tool}`", call.id);
                ErrorBody::new(ErrorCode::ReplayMismatch, message)
            }
            Err(error) => error,
        };
        let not_made = left.details.get("not_made").and_then(Value::as_u64);
        let departure = match not_made {
            Some(call) => Departure { call, now: None, place: None, error: left.clone() },
            None => {
                let now = Some((tool.to_owned(), call.args.clone()));
                Departure { call: call.id, now, place: None, error: left.clone() }
            }
        };
        self.leave(departure);
        Err(left)
    }
}

/// Gives the answers to the sandbox.
struct Answers(Arc<Player>);

impl ToolCaller for Answers {
    fn call(
        &self,
        call: ToolCall,
        _cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let player = Arc::clone(&self.0);
        async move {
            let tool = match ToolId::from_call(&call.namespace, &call.action) {
                Ok(id) => id.to_string(),
                Err(_) => protocol::escape_text(&format!("{}:{}", call.namespace, call.action)),
            };
            let answer = player.answer(&call, &tool).await;
            answer.map_err(|error| CallError::new(error.message).with_code(error.error_code.name()))
        }
        .boxed()
    }

    fn answered_at(&self, call: u64) -> Option<u64> {
        self.0.state().answered.remove(&call)
    }
}
