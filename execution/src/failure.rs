//! Converts failures of the sandbox to error bodies of the protocol.

use protocol::{CallLog, ErrorBody, ErrorCode, ProgramFailure, program_error};
use sandbox::{Failure, FailureKind, JobFailure};

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

/// Returns the error of a sealed job that gave no answer; `what` names the job.
///
/// A job that the machine was too busy for is `BUSY`, and one without a child is `SANDBOX_UNAVAILABLE`. All other
/// failures are `TOO_COMPLEX`: the input made the job exceed a limit, or crash.
pub fn job_error(failure: JobFailure, what: &str) -> ErrorBody {
    let code = match failure {
        JobFailure::Unavailable(reason) => {
            return ErrorBody::new(ErrorCode::SandboxUnavailable, reason);
        }
        JobFailure::Starved { .. } => ErrorCode::Busy,
        _ => ErrorCode::TooComplex,
    };
    ErrorBody::new(code, format!("{what} was stopped: {failure}"))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_input_is_called_too_complex() {
        let code = |failure| job_error(failure, "the analysis").error_code;
        assert_eq!(code(JobFailure::TimedOut), ErrorCode::TooComplex);
        assert_eq!(code(JobFailure::OutOfMemory), ErrorCode::TooComplex);
        assert_eq!(code(JobFailure::Starved { within: Duration::from_secs(9) }), ErrorCode::Busy);
        assert_eq!(code(JobFailure::Unavailable(String::new())), ErrorCode::SandboxUnavailable);
    }
}
