//! The record of a run that is resumed or replayed.
//!
//! Its program runs again, from its beginning: with the recorded start, and with the recorded answers of the calls that
//! have ended. They come in the recorded order and at the recorded times, so the program does what it did before. Other
//! calls are made after the last recorded answer. A call that was begun and has no end may have taken effect: it is
//! made again only if the user says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::{ErrorBody, ErrorCode, Integrity, Routing, ToolId};
use sandbox::{AnswerOrder, NotMade, ProgramClock, Seed};
use serde_json::Value;

use super::earlier_answers::{EarlierAnswer, earlier_answers};
use crate::run_store::RunStore;
use crate::run_store::reader::{Call, MadeCall, Reader, Run};
use crate::run_store::record::{CallEnded, Content, Failure};
use crate::tools;

/// What determines the clock and the random numbers of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunStart {
    /// What its clock shows at its start, in milliseconds since 1970.
    pub(crate) epoch_ms: i64,
    /// Its seed.
    pub(crate) seed: Seed,
}

/// What becomes of a call that may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redo {
    /// It is made again.
    Repeat,
    /// The program gets an error.
    Fail,
}

/// A call that was begun before `pml` was stopped, and may have taken effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Indeterminate {
    /// Its name in the record.
    pub(crate) call: String,
    /// The tool.
    pub(crate) tool: String,
    /// The JSON text of its arguments.
    pub(crate) arguments: String,
    /// When it began.
    pub(crate) at: String,
}

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The run's id.
    pub(crate) run: String,
    /// The program as it was submitted.
    pub(crate) code: String,
    /// Whether it is another program than the one of the record.
    pub(crate) is_changed: bool,
    /// Its `args`.
    pub(crate) args: Value,
    /// Its start.
    pub(crate) start: RunStart,
    calls: HashMap<String, RecordedCall>,
    /// The calls with answers, each with the time, in the order of the answers.
    answered: Vec<(String, u64)>,
    indeterminate: Vec<Indeterminate>,
    decisions: HashMap<String, Redo>,
    /// What is left of the answers that were given before the program started.
    answers: Vec<EarlierAnswer>,
    /// The programs that are run again.
    orders: Mutex<Vec<Arc<AnswerOrder>>>,
}

/// A call of the record.
#[derive(Debug)]
struct RecordedCall {
    tool: String,
    arguments: Integrity,
    routing: Routing,
    epoch_ms: Option<i64>,
    /// Its answer; `None` for a call that was begun only.
    answer: Option<RecordedAnswer>,
}

/// An answer, as it was recorded.
#[derive(Debug, Clone)]
struct RecordedAnswer {
    at_ms: u64,
    /// The JSON text of the result, or the error.
    result: Result<String, (ErrorCode, String)>,
}

/// What a call of a resumed run does.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is not made: it gets the recorded answer, at its time.
    Answer {
        /// Milliseconds since the program's start.
        at_ms: u64,
        /// Where it ran.
        routing: Routing,
        /// The answer.
        answer: Result<Value, ErrorBody>,
    },
    /// It is made.
    Make(Option<Begun>),
    /// It is not made, because the user said so: the program gets this error.
    Fail(ErrorBody),
}

/// A call that was begun before the run was resumed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// What the clock of the capability's program showed at its start.
    pub(crate) epoch_ms: Option<i64>,
}

impl RunStart {
    /// Returns the start of a program that starts now.
    pub(crate) fn now() -> Self {
        let mut seed = Seed::default();
        getrandom::fill(&mut seed).expect("the kernel provides random bytes");
        Self { epoch_ms: now_ms(), seed }
    }

    /// Returns the seed of the program of a capability that a call of this run starts.
    pub(crate) fn seed_within(&self, call: &str) -> Seed {
        Integrity::of(&[&self.seed[..], call.as_bytes()].concat()).into_bytes()
    }
}

/// Returns the present time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

impl Journal {
    /// Reads the record of a run.
    ///
    /// # Errors
    /// Returns why the run cannot be resumed or replayed from it.
    pub(crate) fn read(reader: &Reader, run: &Run) -> Result<Self, ErrorBody> {
        let started = run
            .started
            .as_ref()
            .ok_or_else(|| refused("its program had not started; run it again"))?;
        let seed = seed(&started.seed).ok_or_else(|| refused("its seed is invalid"))?;
        let code = text_of(reader, &run.began.code, "the program")?;
        let args = text_of(reader, &run.began.args, "an argument of the program")?;
        let read = |text: &str| serde_json::from_str::<Value>(text);
        let (Ok(Value::String(code)), Ok(args)) = (read(&code), read(&args)) else {
            return Err(refused("its program is not a text"));
        };
        let mut journal = Self {
            run: run.began.run.clone(),
            code,
            is_changed: false,
            args,
            start: RunStart { epoch_ms: started.epoch_ms, seed },
            calls: HashMap::new(),
            answered: Vec::new(),
            indeterminate: Vec::new(),
            decisions: HashMap::new(),
            answers: earlier_answers(reader, run),
            orders: Mutex::default(),
        };
        for call in &run.calls {
            journal.add(reader, run, call)?;
        }
        let calls = &journal.calls;
        // What a capability began does not matter once it has ended.
        let is_within_ended = |name: &str| {
            let outer = name.match_indices('.').filter_map(|(end, _)| calls.get(&name[..end]));
            outer.into_iter().any(|outer| outer.answer.is_some())
        };
        journal.indeterminate.retain(|call| !is_within_ended(&call.call));
        for name in &run.answered {
            let answer = journal.calls.get(name).and_then(|call| call.answer.as_ref());
            let at_ms = answer.map(|answer| answer.at_ms);
            journal.answered.extend(at_ms.map(|at_ms| (name.clone(), at_ms)));
        }
        Ok(journal)
    }

    fn add(&mut self, reader: &Reader, run: &Run, call: &Call) -> Result<(), ErrorBody> {
        let (name, recorded) = match call {
            Call::Refused(refused) => {
                let recorded = RecordedCall {
                    tool: refused.tool.clone(),
                    arguments: refused.args.hash,
                    routing: Routing::Client,
                    epoch_ms: None,
                    answer: Some(RecordedAnswer {
                        at_ms: refused.at_ms.ok_or_else(|| undated(&refused.call))?,
                        result: Err(error_of(&refused.error, &refused.call)?),
                    }),
                };
                (&refused.call, recorded)
            }
            Call::Mocked(mocked) => {
                let (call, output, error) = (&mocked.call, &mocked.output, &mocked.error);
                let at_ms = mocked.at_ms;
                let recorded = RecordedCall {
                    tool: mocked.tool.clone(),
                    arguments: mocked.args.hash,
                    routing: routing_of(&mocked.routing),
                    epoch_ms: None,
                    answer: Some(answer_of(reader, call, output.as_ref(), error.as_ref(), at_ms)?),
                };
                (call, recorded)
            }
            Call::Made(made) => {
                let MadeCall { began, ended, .. } = &**made;
                let answer =
                    ended.as_ref().map(|ended| answer_of_made(reader, ended)).transpose()?;
                let stays_here =
                    |tool: ToolId| !tools::runs_command(&tool) && tools::sends_to(&tool).is_none();
                let changed_nothing = began.native
                    && began.tool.parse().is_ok_and(stays_here)
                    && run.changes.iter().all(|change| change.call != began.call);
                // The program of a capability is run again: its own calls have records.
                if answer.is_none() && !changed_nothing && began.epoch_ms.is_none() {
                    self.indeterminate.push(Indeterminate {
                        call: began.call.clone(),
                        tool: began.tool.clone(),
                        arguments: reader.content(&began.args).unwrap_or_default(),
                        at: began.at.clone(),
                    });
                }
                let recorded = RecordedCall {
                    tool: began.tool.clone(),
                    arguments: began.args.hash,
                    routing: routing_of(&began.routing),
                    epoch_ms: began.epoch_ms,
                    answer,
                };
                (&began.call, recorded)
            }
        };
        match self.calls.insert(name.clone(), recorded) {
            Some(_) => Err(refused(format!("call {name} was recorded twice"))),
            None => Ok(()),
        }
    }

    /// Replaces the program: the calls of another one get the recorded answers.
    pub(crate) fn replace_program(&mut self, code: String) {
        self.is_changed = code != self.code;
        self.code = code;
    }

    /// Returns what is left of the answers that were given before the program started.
    pub(super) fn answers(&self) -> &[EarlierAnswer] {
        &self.answers
    }

    /// Forgets those answers: somebody else may have written them.
    pub(crate) fn forget_answers(&mut self) {
        self.answers.retain(|answer| matches!(answer, EarlierAnswer::LeftOut { .. }));
    }

    /// Returns the calls that may have taken effect.
    pub(crate) fn indeterminate(&self) -> &[Indeterminate] {
        &self.indeterminate
    }

    /// Decides what becomes of a call that may have taken effect.
    pub(crate) fn decide(&mut self, call: &str, redo: Redo) {
        self.decisions.insert(call.to_owned(), redo);
    }

    /// Returns the journal of the program of the run, or of a capability that the calls `outer` started.
    pub(super) fn of_program(
        self: &Arc<Self>,
        outer: &[u64],
        clock: &ProgramClock,
    ) -> ProgramJournal {
        let prefix: String = outer.iter().map(|index| format!("{index}.")).collect();
        // The numbers of the calls of this program; those within capabilities have more parts.
        let own = |name: &str| name.strip_prefix(&prefix).and_then(|rest| rest.parse::<u64>().ok());
        let answers = self.answered.iter();
        let answers = answers.filter_map(|(name, at_ms)| Some((own(name)?, *at_ms))).collect();
        let order = Arc::new(AnswerOrder::new(clock.clone(), answers));
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&order));
        ProgramJournal { journal: Arc::clone(self), prefix, order }
    }

    /// Checks after the run that all recorded answers were used.
    ///
    /// # Errors
    /// Returns `REPLAY_MISMATCH`.
    pub(super) fn check_complete(&self) -> Result<(), ErrorBody> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        match orders.iter().find_map(|order| order.next()) {
            Some(call) => Err(deviates(&NotMade(call))),
            None => Ok(()),
        }
    }
}

/// The record of one program of a run.
pub(super) struct ProgramJournal {
    journal: Arc<Journal>,
    /// What the names of its calls begin with.
    prefix: String,
    order: Arc<AnswerOrder>,
}

impl ProgramJournal {
    /// Returns the numbers of the recorded calls of this program, in their order.
    pub(super) fn calls(&self) -> Vec<u64> {
        let names = self.journal.calls.keys();
        let own = names.filter_map(|name| name.strip_prefix(&self.prefix)?.parse().ok());
        let mut calls: Vec<u64> = own.collect();
        calls.sort_unstable();
        calls
    }

    /// Returns whether the record has a call.
    pub(super) fn has(&self, index: u64) -> bool {
        self.journal.calls.contains_key(&format!("{}{index}", self.prefix))
    }

    /// Returns the call whose answer is next; `None` after the last one.
    pub(super) fn next_answer(&self) -> Option<u64> {
        self.order.next()
    }

    /// Returns what a call does, once it is its turn.
    ///
    /// # Errors
    /// Returns `REPLAY_MISMATCH` if it is not the recorded call.
    pub(super) async fn step(
        &self,
        index: u64,
        tool: &str,
        arguments: &Value,
    ) -> Result<Step, ErrorBody> {
        let name = format!("{}{index}", self.prefix);
        let Some(recorded) = self.journal.calls.get(&name) else {
            self.order.end().await.map_err(|error| deviates(&error))?;
            return Ok(Step::Make(None));
        };
        if recorded.tool != tool {
            let message = format!("call {name} was `{}` and is now `{tool}`", recorded.tool);
            return Err(mismatch(message));
        }
        if recorded.arguments != RunStore::hash(arguments) {
            let message = format!("call {name} of `{tool}` has other arguments than in the record");
            return Err(mismatch(message));
        }
        let Some(answer) = &recorded.answer else {
            self.order.end().await.map_err(|error| deviates(&error))?;
            let is_indeterminate = self.journal.indeterminate.iter().any(|call| call.call == name);
            return Ok(match self.journal.decisions.get(&name) {
                Some(Redo::Repeat) => Step::Make(Some(Begun { epoch_ms: None })),
                None if !is_indeterminate => {
                    Step::Make(Some(Begun { epoch_ms: recorded.epoch_ms }))
                }
                // Without a decision, it is not made.
                Some(Redo::Fail) | None => Step::Fail(ErrorBody::new(
                    ErrorCode::CallIndeterminate,
                    format!(
                        "call {name} of `{tool}` was begun before `pml` was stopped, and was not made again"
                    ),
                )),
            });
        };
        let result = match &answer.result {
            Ok(text) => Ok(serde_json::from_str(text).map_err(|error| {
                refused(format!("the answer to call {name} is invalid: {error}"))
            })?),
            Err((code, message)) => Err(ErrorBody::new(*code, message.clone())),
        };
        let at_ms = self.order.turn_of(index).await.map_err(|error| deviates(&error))?;
        Ok(Step::Answer { at_ms, routing: recorded.routing, answer: result })
    }
}

/// Returns where a recorded call ran.
pub(super) fn routing_of(recorded: &str) -> Routing {
    match recorded {
        "server" => Routing::Server,
        _ => Routing::Client,
    }
}

fn answer_of_made(reader: &Reader, ended: &CallEnded) -> Result<RecordedAnswer, ErrorBody> {
    let at_ms = ended.at_ms.ok_or_else(|| undated(&ended.call))?;
    answer_of(reader, &ended.call, ended.output.as_ref(), ended.error.as_ref(), at_ms)
}

fn answer_of(
    reader: &Reader,
    call: &str,
    output: Option<&Content>,
    error: Option<&Failure>,
    at_ms: u64,
) -> Result<RecordedAnswer, ErrorBody> {
    let result = match (output, error) {
        (Some(output), None) => Ok(text_of(reader, output, &format!("the answer to call {call}"))?),
        (_, Some(error)) => Err(error_of(error, call)?),
        (None, None) => return Err(refused(format!("call {call} has no answer"))),
    };
    Ok(RecordedAnswer { at_ms, result })
}

/// Returns a recorded error.
pub(super) fn error_of(failure: &Failure, call: &str) -> Result<(ErrorCode, String), ErrorBody> {
    if failure.erased {
        return Err(refused(format!("the error of call {call} was erased")));
    }
    if failure.redacted {
        return Err(without_key(&format!("the error of call {call}")));
    }
    let code = failure.code.parse();
    let code = code.map_err(|_| refused(format!("call {call} has an unknown error code")))?;
    Ok((code, failure.message.clone()))
}

/// Returns the JSON text of a value that the program has to get as it was.
fn text_of(reader: &Reader, content: &Content, what: &str) -> Result<String, ErrorBody> {
    if content.erased {
        return Err(refused(format!("{what} was erased")));
    }
    if content.redacted {
        return Err(without_key(what));
    }
    let missing = || refused(format!("{what} is missing, or was changed"));
    reader.content(content).ok_or_else(missing)
}

fn seed(hex: &str) -> Option<Seed> {
    let mut seed = Seed::default();
    if hex.len() != 2 * seed.len() || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in seed.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(seed)
}

fn undated(call: &str) -> ErrorBody {
    refused(format!("the time of the answer to call {call} was not recorded"))
}

fn without_key(what: &str) -> ErrorBody {
    refused(format!("{what} contained a key, which is not recorded"))
}

fn refused(reason: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::Conflict, format!("the record of the run cannot be used: {reason}"))
}

fn deviates(error: &NotMade) -> ErrorBody {
    mismatch(error.to_string()).with_details(serde_json::json!({ "not_made": error.0 }))
}

fn mismatch(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::ReplayMismatch, message)
}
