//! The input and the output of a run.

use std::time::Duration;

use serde_json::Value;

/// A program that is ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Plain JavaScript: the body of an async function, with top-level `await` and `return`.
    pub source: String,
    /// The program's `args`.
    pub args: Value,
    /// Freezes the program's clock at this instant; it then moves only when a timer fires. Timers fire without waiting,
    /// but only when no tool call is in flight, so that a second run has the same order.
    pub epoch_ms: Option<i64>,
    /// Seeds `Math.random` and `crypto`, so that a second run gets the same numbers.
    pub seed: Option<u64>,
    /// The offsets in `source` at which `return await (` was inserted before an expression, because the author wrote
    /// no `return`. Such a program ends when everything that it started has ended.
    pub implicit_returns: Option<Vec<u32>>,
}

/// The result of a run and its other output.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The returned value, or the failure.
    pub result: Result<Value, Failure>,
    /// Whether the returned value is `undefined`, which is reported as `null`.
    pub returned_nothing: bool,
    /// The program's console output.
    pub console: Vec<ConsoleLine>,
    /// Whether the console output was truncated.
    pub console_truncated: bool,
    /// Tool calls that the program made.
    pub calls: u64,
    /// The tools of the calls that the program did not wait for, as `namespace:action` in the order
    /// of the calls. They were cancelled: each may have happened, or not.
    pub unanswered: Vec<String>,
    /// Time from start to end, including waits for humans.
    pub duration: Duration,
    /// CPU time, if the host could measure it.
    pub cpu: Option<Duration>,
}

impl Outcome {
    /// Returns the outcome of a run that never started.
    pub(crate) fn never_started(failure: Failure) -> Outcome {
        Outcome {
            result: Err(failure),
            returned_nothing: false,
            console: Vec::new(),
            console_truncated: false,
            calls: 0,
            unanswered: Vec::new(),
            duration: Duration::ZERO,
            cpu: None,
        }
    }
}

/// One line that a program printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLine {
    /// `log`, `info`, `warn`, `error` or `debug`.
    pub level: String,
    /// The text as printed.
    pub text: String,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class of the failure.
    pub kind: FailureKind,
    /// The error's name, as in `TypeError`.
    pub name: String,
    /// One sentence for the author of the program.
    pub message: String,
    /// The error's own `code`, if it has one.
    pub code: Option<String>,
    /// Line in the program, from 1.
    pub line: Option<u32>,
    /// Column in the program, from 1.
    pub column: Option<u32>,
    /// The program's own stack frames, innermost first.
    pub stack: Option<String>,
    /// The number of the tool call, from 1, whose error ended the program, if one did.
    pub call: Option<u64>,
}

impl Failure {
    /// Returns a failure without a position in the program.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            name: kind.error_name().to_owned(),
            message: message.into(),
            code: None,
            line: None,
            column: None,
            stack: None,
            call: None,
        }
    }
}

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The program threw and did not catch.
    Exception,
    /// The program does not parse.
    Syntax,
    /// The wall time ran out.
    WallTime,
    /// The CPU time ran out.
    CpuTime,
    /// The heap ran out.
    OutOfMemory,
    /// The program recursed too deeply.
    StackOverflow,
    /// The program exceeded its limit of calls.
    TooManyCalls,
    /// The program exceeded its limit of active timers.
    TooManyTimers,
    /// A call's arguments were too large.
    ArgumentTooLarge,
    /// A tool's result was too large.
    ToolResultTooLarge,
    /// The program's result was too large.
    ResultTooLarge,
    /// The program's result has no JSON form.
    ResultNotSerializable,
    /// The program waits for a promise that can never settle.
    Deadlock,
    /// The caller cancelled the run.
    Cancelled,
    /// The child died or broke the protocol.
    Crashed,
    /// No sealed child could be started.
    Unavailable,
}

impl FailureKind {
    const NAMES: [(FailureKind, &'static str, &'static str); 16] = [
        (FailureKind::Exception, "exception", "Error"),
        (FailureKind::Syntax, "syntax", "SyntaxError"),
        (FailureKind::WallTime, "wall_time", "LimitError"),
        (FailureKind::CpuTime, "cpu_time", "LimitError"),
        (FailureKind::OutOfMemory, "out_of_memory", "LimitError"),
        (FailureKind::StackOverflow, "stack_overflow", "RangeError"),
        (FailureKind::TooManyCalls, "too_many_calls", "LimitError"),
        (FailureKind::TooManyTimers, "too_many_timers", "RangeError"),
        (FailureKind::ArgumentTooLarge, "argument_too_large", "LimitError"),
        (FailureKind::ToolResultTooLarge, "tool_result_too_large", "LimitError"),
        (FailureKind::ResultTooLarge, "result_too_large", "LimitError"),
        (FailureKind::ResultNotSerializable, "result_not_serializable", "TypeError"),
        (FailureKind::Deadlock, "deadlock", "DeadlockError"),
        (FailureKind::Cancelled, "cancelled", "AbortError"),
        (FailureKind::Crashed, "crashed", "SandboxError"),
        (FailureKind::Unavailable, "unavailable", "SandboxError"),
    ];

    fn row(self) -> (FailureKind, &'static str, &'static str) {
        *Self::NAMES.iter().find(|row| row.0 == self).expect("the table has every kind")
    }

    /// Returns the kind's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    fn error_name(self) -> &'static str {
        self.row().2
    }

    /// Parses a kind that a child may report. Only the host determines the others.
    pub(crate) fn claimed(name: &str) -> Option<FailureKind> {
        let kind = Self::NAMES.iter().find(|row| row.1 == name)?.0;
        let hosts_own = matches!(
            kind,
            FailureKind::WallTime
                | FailureKind::TooManyCalls
                | FailureKind::Cancelled
                | FailureKind::Crashed
                | FailureKind::Unavailable
        );
        (!hosts_own).then_some(kind)
    }
}
