//! Converts failures of the sandbox to error bodies of the protocol.

use protocol::{CallLog, ErrorBody, ErrorCode, ProgramFailure, program_error};
use sandbox::{Failure, FailureKind};

/// Converts the failure of the program `source` to the error of its envelope; `calls` is the log of its calls.
pub fn error_body(failure: &Failure, source: &str, calls: &CallLog) -> ErrorBody {
    let failure = ProgramFailure {
        code: code_of(failure.kind),
        name: &failure.name,
        message: &failure.message,
        thrown_code: failure.code.as_deref(),
        line: failure.line,
        column: failure.column,
        stack: failure.stack.as_deref(),
        call: failure.call,
    };
    program_error(&failure, source, calls)
}

fn code_of(kind: FailureKind) -> ErrorCode {
    match kind {
        FailureKind::Exception => ErrorCode::ProgramFailed,
        FailureKind::Syntax => ErrorCode::ParseError,
        FailureKind::WallTime => ErrorCode::TimeLimit,
        FailureKind::CpuTime => ErrorCode::CpuLimit,
        FailureKind::OutOfMemory => ErrorCode::OutOfMemory,
        FailureKind::StackOverflow => ErrorCode::StackOverflow,
        FailureKind::TooManyCalls => ErrorCode::TooManyCalls,
        FailureKind::TooManyTimers => ErrorCode::TooManyTimers,
        FailureKind::ArgumentTooLarge => ErrorCode::ArgumentTooLarge,
        FailureKind::ToolResultTooLarge => ErrorCode::ToolResultTooLarge,
        FailureKind::ResultTooLarge => ErrorCode::ResultTooLarge,
        FailureKind::ResultNotSerializable => ErrorCode::ResultNotSerializable,
        FailureKind::Deadlock => ErrorCode::Deadlock,
        FailureKind::Cancelled => ErrorCode::Cancelled,
        FailureKind::Crashed => ErrorCode::SandboxCrashed,
        FailureKind::Unavailable => ErrorCode::SandboxUnavailable,
    }
}
