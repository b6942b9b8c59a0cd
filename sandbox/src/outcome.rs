//! The input and the output of a run.

use std::time::Duration;

use serde_json::Value;

use crate::repeatable::Repeatable;

/// A program that is ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Plain JavaScript: the body of an async function, with top-level `await` and `return`.
    pub source: String,
    /// The program's `args`.
    pub args: Value,
    /// The clock and the random numbers of a run that can be repeated; `None` for those of the machine.
    pub repeatable: Option<Repeatable>,
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

/// Declares the kinds once: variant, name in snake case, name of the error, and who determines the kind. A kind of the
/// `host` is not accepted from a child.
macro_rules! failure_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $error:literal, $by:ident;)*) => {
        /// The class of a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FailureKind {
            $($(#[$doc])* $kind,)*
        }

        impl FailureKind {
            /// Returns the kind's name in snake case.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn error_name(self) -> &'static str {
                match self { $(Self::$kind => $error,)* }
            }

            /// Parses a kind that a child may report. Only the host determines the others.
            pub(crate) fn claimed(name: &str) -> Option<Self> {
                match name {
                    $($name => failure_kinds!(@$by Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
    (@child $kind:expr) => { Some($kind) };
    (@host $kind:expr) => { None };
}

failure_kinds! {
    /// The program threw and did not catch.
    Exception = "exception", "Error", child;
    /// The program does not parse.
    Syntax = "syntax", "SyntaxError", child;
    /// The wall time ran out.
    WallTime = "wall_time", "LimitError", host;
    /// The CPU time ran out.
    CpuTime = "cpu_time", "LimitError", child;
    /// The heap ran out.
    OutOfMemory = "out_of_memory", "LimitError", child;
    /// The program recursed too deeply.
    StackOverflow = "stack_overflow", "RangeError", child;
    /// The program exceeded its limit of calls.
    TooManyCalls = "too_many_calls", "LimitError", host;
    /// The program exceeded its limit of active timers.
    TooManyTimers = "too_many_timers", "RangeError", child;
    /// A call's arguments were too large.
    ArgumentTooLarge = "argument_too_large", "LimitError", child;
    /// A tool's result was too large.
    ToolResultTooLarge = "tool_result_too_large", "LimitError", host;
    /// The program's result was too large.
    ResultTooLarge = "result_too_large", "LimitError", child;
    /// The program's result has no JSON form.
    ResultNotSerializable = "result_not_serializable", "TypeError", child;
    /// The program waits for a promise that can never settle.
    Deadlock = "deadlock", "DeadlockError", child;
    /// The caller cancelled the run.
    Cancelled = "cancelled", "AbortError", host;
    /// The child died or broke the protocol.
    Crashed = "crashed", "SandboxError", host;
    /// No sealed child could be started.
    Unavailable = "unavailable", "SandboxError", host;
}
