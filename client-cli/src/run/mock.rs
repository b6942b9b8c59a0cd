//! The record of a run that answers the calls of another one: a mock.
//!
//! A call gets the answer that the same tool gave to the same arguments. If there are several, they are given in their
//! order. A capability is answered as a whole, so only calls of the program itself are. What a rule refused is no answer
//! of a tool, and neither is an error of a run that was ended.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use protocol::{ErrorBody, Integrity, Routing};
use serde_json::Value;

use super::journal::{error_of, routing_of};
use crate::run_store::RunStore;
use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{Content, Failure};

/// What the codes of the errors of tools begin with.
const OF_TOOLS: u16 = 2;

/// The record of a run that answers the calls of another one.
pub(crate) struct Mock {
    /// The id of the run that has the answers.
    pub(crate) run: String,
    state: Mutex<State>,
}

struct State {
    /// The answers, by the tool and the hash of the arguments; `None` for one that is not on record.
    answers: HashMap<(String, Integrity), VecDeque<Option<MockedAnswer>>>,
    given: usize,
}

/// A recorded answer.
#[derive(Debug, Clone)]
pub(super) struct MockedAnswer {
    /// The call that got it.
    pub(super) call: String,
    /// Where that ran.
    pub(super) routing: Routing,
    /// The answer.
    pub(super) answer: Result<Value, ErrorBody>,
}

impl Mock {
    /// Reads the answers in the record of a run.
    pub(crate) fn read(reader: &Reader, run: &Run) -> Self {
        let mut answers: HashMap<_, VecDeque<_>> = HashMap::new();
        for call in &run.calls {
            let (call, tool, args, routing, answer) = match call {
                Call::Refused(_) => continue,
                Call::Made(made) => {
                    let Some(ended) = &made.ended else { continue };
                    let answer = answer(reader, ended.output.as_ref(), ended.error.as_ref());
                    let began = &made.began;
                    (&began.call, &began.tool, &began.args, routing_of(&began.routing), answer)
                }
                Call::Mocked(mocked) => {
                    let answer = answer(reader, mocked.output.as_ref(), mocked.error.as_ref());
                    (&mocked.call, &mocked.tool, &mocked.args, routing_of(&mocked.routing), answer)
                }
            };
            let is_of_tool = match &answer {
                Some(Err(error)) => error.error_code.number() / 1000 == OF_TOOLS,
                _ => true,
            };
            if call.contains('.') || args.redacted || !is_of_tool {
                continue;
            }
            let answer = answer.map(|answer| MockedAnswer { call: call.clone(), routing, answer });
            answers.entry((tool.clone(), args.hash)).or_default().push_back(answer);
        }
        Self { run: run.began.run.clone(), state: Mutex::new(State { answers, given: 0 }) }
    }

    /// Takes the next answer of a tool to these arguments; `None` if the record has no other one.
    pub(super) fn take(&self, tool: &str, arguments: &Value) -> Option<MockedAnswer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tool.to_owned(), RunStore::hash(arguments));
        let answer = state.answers.get_mut(&key)?.pop_front()??;
        state.given += 1;
        Some(answer)
    }

    /// Says how many calls were answered.
    pub(super) fn summary(&self) -> String {
        let given = self.state.lock().unwrap_or_else(PoisonError::into_inner).given;
        let calls =
            if given == 1 { "1 call was".to_owned() } else { format!("{given} calls were") };
        format!("{calls} not made, but answered from the record of run {}", self.run)
    }
}

/// Returns a recorded answer, if it is on record as the program got it.
fn answer(
    reader: &Reader,
    output: Option<&Content>,
    error: Option<&Failure>,
) -> Option<Result<Value, ErrorBody>> {
    if let Some(error) = error {
        let (code, message) = error_of(error, "").ok()?;
        return Some(Err(ErrorBody::new(code, message)));
    }
    let output = output.filter(|output| !output.redacted && !output.erased)?;
    serde_json::from_str(&reader.content(output)?).ok().map(Ok)
}
