//! Replays a run: its program runs again in the sandbox, and each of its calls gets the recorded answer.
//!
//! Nothing else happens: no tool is called, nobody is asked, and nothing is recorded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use analysis::Analysis;
use execution::failure;
use futures::future::{BoxFuture, FutureExt as _};
use protocol::{CallLog, CallNote, ErrorBody, ErrorCode, ToolId};
use sandbox::{
    CallError, ConsoleLine, Limits, Pool, Program, ProgramClock, Repeatable, ToolCall, ToolCaller,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::journal::{Journal, ProgramJournal, Step};

/// What a program did when it was replayed.
pub(crate) struct Replayed {
    /// What it returned, or how it failed.
    pub(crate) result: Result<Value, ErrorBody>,
    /// What it printed.
    pub(crate) console: Vec<ConsoleLine>,
    /// The number of its calls that were answered.
    pub(crate) calls: usize,
}

/// Replays a run; `analysis` is that of its program. `patience` is how long its program may take after the last recorded answer, if it has ended; a call
/// that had no answer by its end gets none again.
///
/// # Errors
/// Returns why its program cannot run here, or where it leaves the record (`REPLAY_MISMATCH`).
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
        ended: ended.clone(),
    });
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
    let outcome = sandboxes.run(program, &limits, caller, ended).await;
    if stop.is_cancelled() {
        return Err(ErrorBody::new(ErrorCode::Cancelled, "the replay was cancelled"));
    }
    let state = std::mem::take(&mut *player.state());
    if let Some(left) = state.left {
        return Err(left);
    }
    let result =
        outcome.result.map_err(|failure| failure::error_body(&failure, &journal.code, &state.log));
    Ok(Replayed { result, console: outcome.console, calls: state.log.notes().len() })
}

/// Answers the calls of the program from the record.
struct Player {
    journal: ProgramJournal,
    state: Mutex<State>,
    patience: Option<Duration>,
    /// Ends the program.
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    log: CallLog,
    /// When its calls were answered, for the sandbox, which takes each time with the answer.
    answered: HashMap<u64, u64>,
    /// Where the program has left the record.
    left: Option<ErrorBody>,
}

impl Player {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, call: &ToolCall, tool: &str) -> Result<Value, ErrorBody> {
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
                if let Some(patience) = self.patience {
                    // Cancelled by the sandbox once the program has ended.
                    tokio::time::sleep(patience).await;
                }
                let message = format!("the record has no answer to call {} of `{tool}`", call.id);
                ErrorBody::new(ErrorCode::ReplayMismatch, message)
            }
            Err(error) => error,
        };
        // The first one is the reason for those after it.
        self.state().left.get_or_insert_with(|| left.clone());
        self.ended.cancel();
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
