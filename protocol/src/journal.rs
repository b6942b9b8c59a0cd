//! The journal of a run: the inputs that a second run needs to be identical.
//!
//! A program depends on its text, its arguments, the time, random numbers and the answers of its tools, and on
//! nothing else: a sandboxed program has no other input. The journal contains a hash of the first two and the values
//! of the other three. It has one JSON object per line, written as events happen: first the run, then each call when
//! it is answered. A crash can only cut off the end, and a call without a line was not answered.
//!
//! A program may race its calls with one another and with its timers. Therefore the order of the lines matters, and
//! each has a timestamp: a second run receives the answers in that order, after the timers that were due before.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Integrity, ToolId};

/// The version of the format.
const VERSION: u32 = 1;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JournalLine {
    /// The first line.
    Run(JournalRun),
    /// Every other line.
    Call(JournalCall),
}

/// The start of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalRun {
    /// The version of the format, 1.
    pub version: u32,
    /// The hash of the program as it was submitted.
    pub code: Integrity,
    /// The hash of what the program sees as `args`, in canonical form.
    pub args: Integrity,
    /// The program's clock at its start, in milliseconds since 1970. It moves only when a timer fires.
    pub epoch_ms: i64,
    /// The seed of its random numbers.
    pub seed: u64,
}

/// A call that was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalCall {
    /// The number of the call among the calls of the run, in the order in which they began, from 1.
    pub index: u64,
    /// The tool.
    pub tool: ToolId,
    /// The hash of its arguments, in canonical form.
    pub args: Integrity,
    /// When it was answered, in milliseconds since the program's start.
    pub at_ms: u64,
    /// The answer that the program received.
    pub answer: JournalAnswer,
}

/// The answer of a call to its program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalAnswer {
    /// The value that the call returned.
    Value(Value),
    /// The error that it threw.
    Error(JournalError),
}

/// An error as the program saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalError {
    /// The error's name, as in `ToolError`.
    pub name: String,
    /// Its message.
    pub message: String,
    /// Its `code`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A journal that was read completely.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    run: JournalRun,
    /// In the order in which they were answered.
    calls: Vec<JournalCall>,
    /// The position of each call, by index.
    places: HashMap<u64, usize>,
}

/// Why a text is not a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalRefusal {
    /// A line is invalid.
    #[error("line {line} of the journal: {reason}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// It has no complete line.
    #[error("the journal is empty")]
    Empty,
}

/// How a second run deviated from the journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalMismatch {
    /// The program is a different one.
    #[error("the program differs from the journal's")]
    Code,
    /// The program's arguments differ.
    #[error("the program's arguments differ from the journal's")]
    Args,
    /// A call has a different tool.
    #[error("call {index} was `{recorded}` and is now `{made}`")]
    Tool {
        /// The call.
        index: u64,
        /// The entry in the journal.
        recorded: ToolId,
        /// The program's call.
        made: ToolId,
    },
    /// The arguments of a call differ.
    #[error("call {index} of `{tool}` has different arguments than in the journal")]
    CallArgs {
        /// The call.
        index: u64,
        /// The tool of both.
        tool: ToolId,
    },
}

impl JournalRun {
    /// Creates the first line of a run of this program.
    pub fn new(code: &str, args: &Value, epoch_ms: i64, seed: u64) -> Self {
        let (code, args) = (Integrity::of(code.as_bytes()), Integrity::of_json(args));
        Self { version: VERSION, code, args, epoch_ms, seed }
    }
}

impl JournalCall {
    /// Creates the line of an answered call.
    pub fn new(index: u64, tool: ToolId, args: &Value, at_ms: u64, answer: JournalAnswer) -> Self {
        Self { index, tool, args: Integrity::of_json(args), at_ms, answer }
    }
}

impl JournalLine {
    /// Returns the line, with its end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("keys are text, so there is a JSON form");
        line.push('\n');
        line
    }
}

impl Journal {
    /// Reads a journal. A last line without a line end was cut off while it was written, and is ignored.
    pub fn read(text: &str) -> Result<Self, JournalRefusal> {
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = whole.lines().enumerate().map(|(at, line)| (at + 1, line));
        let (_, first) = lines.next().ok_or(JournalRefusal::Empty)?;
        let refusal = |line, reason: &str| JournalRefusal::Line { line, reason: reason.to_owned() };
        let read = |line, text| {
            serde_json::from_str::<JournalLine>(text)
                .map_err(|error| JournalRefusal::Line { line, reason: error.to_string() })
        };
        let JournalLine::Run(run) = read(1, first)? else {
            return Err(refusal(1, "the first line must be the run"));
        };
        if run.version != VERSION {
            let reason = format!("version {} is unknown; only {VERSION} is supported", run.version);
            return Err(JournalRefusal::Line { line: 1, reason });
        }
        let (mut calls, mut places) = (Vec::<JournalCall>::new(), HashMap::new());
        for (line, text) in lines {
            let JournalLine::Call(call) = read(line, text)? else {
                return Err(refusal(line, "there is a second run"));
            };
            // The sandbox numbers calls from 1.
            if call.index == 0 {
                return Err(refusal(line, "calls are counted from 1"));
            }
            // A second run fires timers between the answers, at these times, which must not go
            // back.
            if calls.last().is_some_and(|last| last.at_ms > call.at_ms) {
                return Err(refusal(line, "it was answered before the line above it"));
            }
            if places.insert(call.index, calls.len()).is_some() {
                return Err(refusal(line, "this call was answered before"));
            }
            calls.push(call);
        }
        Ok(Self { run, calls, places })
    }

    /// Returns the start of the run.
    pub fn run(&self) -> &JournalRun {
        &self.run
    }

    /// Returns the answered calls in the order in which they were answered.
    pub fn calls(&self) -> &[JournalCall] {
        &self.calls
    }

    /// Checks that a run of this program can follow the journal.
    pub fn is_of(&self, code: &str, args: &Value) -> Result<(), JournalMismatch> {
        if Integrity::of(code.as_bytes()) != self.run.code {
            return Err(JournalMismatch::Code);
        }
        if Integrity::of_json(args) == self.run.args { Ok(()) } else { Err(JournalMismatch::Args) }
    }

    /// Returns the recorded answer to a call of a second run; `None` if the journal has none.
    pub fn answer(
        &self,
        index: u64,
        tool: &ToolId,
        args: &Value,
    ) -> Result<Option<&JournalAnswer>, JournalMismatch> {
        let Some(place) = self.places.get(&index) else { return Ok(None) };
        let call = &self.calls[*place];
        if call.tool != *tool {
            let (recorded, made) = (call.tool.clone(), tool.clone());
            return Err(JournalMismatch::Tool { index, recorded, made });
        }
        if call.args != Integrity::of_json(args) {
            return Err(JournalMismatch::CallArgs { index, tool: tool.clone() });
        }
        Ok(Some(&call.answer))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GOLDEN: &str = include_str!("../tests/wire/journal.jsonl");

    fn tool(id: &str) -> ToolId {
        id.parse().unwrap()
    }

    fn written() -> String {
        let error = JournalError {
            name: "ToolError".to_owned(),
            message: "no such file".to_owned(),
            code: Some("NOT_FOUND".to_owned()),
        };
        let eval = tool("math:eval");
        let read = tool("filesystem:read_file");
        let value = JournalAnswer::Value(json!({ "b": [1, null], "a": "x" }));
        [
            JournalLine::Run(JournalRun::new("return 1", &json!({}), 1_700_000_000_000, u64::MAX)),
            JournalLine::Call(JournalCall::new(
                2,
                read,
                &json!({ "path": "a" }),
                40,
                JournalAnswer::Error(error),
            )),
            JournalLine::Call(JournalCall::new(1, eval, &json!({ "b": 2, "a": 1 }), 41, value)),
        ]
        .iter()
        .map(JournalLine::to_line)
        .collect()
    }

    #[test]
    fn matches_the_golden_file_and_round_trips() {
        assert_eq!(written(), GOLDEN);
        let journal = Journal::read(GOLDEN).unwrap();
        assert_eq!(journal.run().seed, u64::MAX);
        let calls = journal.calls().iter().map(|call| JournalLine::Call(call.clone()).to_line());
        let again: String =
            std::iter::once(JournalLine::Run(*journal.run()).to_line()).chain(calls).collect();
        assert_eq!(again, GOLDEN);
    }

    #[test]
    fn detects_deviations_of_a_second_run() {
        let journal = Journal::read(GOLDEN).unwrap();
        assert_eq!(journal.is_of("return 1", &json!({})), Ok(()));
        assert_eq!(journal.is_of("return 2", &json!({})), Err(JournalMismatch::Code));
        assert_eq!(journal.is_of("return 1", &json!({ "a": 1 })), Err(JournalMismatch::Args));
        let (eval, read) = (tool("math:eval"), tool("filesystem:read_file"));
        let given = journal.answer(1, &eval, &json!({ "a": 1, "b": 2 })).unwrap();
        assert_eq!(given, Some(&JournalAnswer::Value(json!({ "a": "x", "b": [1, null] }))));
        assert!(matches!(
            journal.answer(2, &read, &json!({ "path": "a" })),
            Ok(Some(JournalAnswer::Error(_)))
        ));
        assert_eq!(journal.answer(3, &eval, &json!({})), Ok(None));
        let other = journal.answer(1, &read, &json!({})).unwrap_err();
        assert_eq!(other.to_string(), "call 1 was `math:eval` and is now `filesystem:read_file`");
        let other = journal.answer(1, &eval, &json!({ "a": 1, "b": 3 })).unwrap_err();
        assert_eq!(other, JournalMismatch::CallArgs { index: 1, tool: eval });
    }

    #[test]
    fn reads_the_complete_lines_of_a_truncated_journal() {
        for end in 0..=GOLDEN.len() {
            let lines = GOLDEN[..end].matches('\n').count();
            match Journal::read(&GOLDEN[..end]) {
                Ok(journal) => assert_eq!(journal.calls().len() + 1, lines, "{end}"),
                Err(refusal) => {
                    assert!(matches!(refusal, JournalRefusal::Empty) && lines == 0, "{end}");
                }
            }
        }
    }

    #[test]
    fn reports_the_line_of_an_invalid_journal() {
        let lines: Vec<&str> = GOLDEN.lines().collect();
        let (run, error, value) = (lines[0], lines[1], lines[2]);
        for (text, line) in [
            ("\n".to_owned(), 1),
            (format!("{value}\n"), 1),
            (format!("{}\n", run.replace("\"version\":1", "\"version\":2")), 1),
            (format!("{}\n", run.replace("sha256-", "md5-")), 1),
            (format!("{}\n", run.replace("\"seed\"", "\"seeds\"")), 1),
            (format!("{run}\n{run}\n"), 2),
            (format!("{run}\n{error}\n{error}\n"), 3),
            (format!("{run}\n{error}\n\n{value}\n"), 3),
            (format!("{run}\n{}\n", value.replace("\"index\":1", "\"index\":0")), 2),
            (format!("{run}\n{}\n", value.replace("\"index\":1", "\"index\":1,\"index\":2")), 2),
            (format!("{run}\n{}\n", value.replace("math:eval", "math")), 2),
            (format!("{run}\n{}\n", error.replace("\"code\"", "\"kode\"")), 2),
            (format!("{run}\n{value}\n{error}\n"), 3),
            (format!("{run}\n<<<<<<< HEAD\n"), 2),
        ] {
            match Journal::read(&text) {
                Err(JournalRefusal::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{other:?}: {text}"),
            }
        }
    }
}
