//! The failure of a command: its error and its exit code.

use std::process::ExitCode;

use protocol::{Envelope, ErrorBody, ErrorCode, escape_text};
use serde_json::Value;

/// The classes of failure, each an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The program or the command itself failed: 1.
    Failed,
    /// The input is invalid (syntax, an unknown tool, wrong arguments): 2.
    CannotRun,
    /// A rule or the user did not allow it: 3.
    NotPermitted,
    /// The gateway, the sandbox or a service is unavailable: 4.
    Unavailable,
}

/// A failure of a command.
#[derive(Debug, Clone)]
pub struct CliError {
    kind: ErrorKind,
    code: ErrorCode,
    message: String,
    frame: Option<String>,
    hint: Option<String>,
    /// The machine-readable form: the message without its position, and the details.
    body: Option<Box<ErrorBody>>,
}

impl CliError {
    /// Creates an error for a failure of the command itself.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Failed,
            code: ErrorCode::Internal,
            message: message.into(),
            frame: None,
            hint: None,
            body: None,
        }
    }

    /// Sets the machine-readable form.
    #[must_use]
    pub(crate) fn with_body(mut self, body: ErrorBody) -> Self {
        self.body = Some(Box::new(body));
        self
    }

    /// Creates an error for invalid input.
    pub(crate) fn cannot_run(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::CannotRun,
            code: ErrorCode::InvalidRequest,
            ..Self::failed(message)
        }
    }

    /// Creates an error for a service of this machine that cannot be used.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, ..Self::failed(message) }
    }

    /// Creates an error with the kind and the hint of a code.
    pub(crate) fn from_code(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::from(ErrorBody::new(code, message))
    }

    /// Creates the error of a command that checks something and found a fault.
    pub(crate) fn failed_check(body: ErrorBody) -> Self {
        Self { kind: ErrorKind::Failed, ..Self::from(body) }
    }

    /// Sets the hint: what to do next.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the exit code of the class.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            ErrorKind::Failed => 1,
            ErrorKind::CannotRun => 2,
            ErrorKind::NotPermitted => 3,
            ErrorKind::Unavailable => 4,
        })
    }

    /// Returns the error envelope for a machine.
    pub(crate) fn to_json(&self) -> Value {
        let plain = || ErrorBody::new(self.code, self.message.clone());
        let mut error = self.body.as_deref().cloned().unwrap_or_else(plain);
        // The hint of the error code is for API clients, not for users of the command line.
        error.hint = self.hint.clone().unwrap_or_else(|| "See `pml help`.".to_owned());
        serde_json::to_value(Envelope::error(error)).unwrap_or_default()
    }

    /// Renders the error for a terminal, with a final newline.
    pub fn render(&self) -> String {
        // Messages may quote a program or a gateway, so each line is escaped; only the line breaks are kept.
        let mut out = String::from("error: ");
        for line in self.message.lines() {
            out += &escape_text(line);
            out.push('\n');
        }
        if let Some(frame) = &self.frame {
            for line in frame.lines() {
                out += &format!("  {}\n", escape_text(line));
            }
        }
        if let Some(hint) = &self.hint {
            out += &format!("hint: {}\n", escape_text(hint));
        }
        out
    }
}

impl From<ErrorBody> for CliError {
    fn from(error: ErrorBody) -> Self {
        let text = |name: &str| error.details.get(name).and_then(Value::as_str).map(str::to_owned);
        let place = |of: &Value| match (of.get("line"), of.get("column")) {
            (Some(Value::Number(line)), Some(Value::Number(column))) => {
                Some(format!("line {line}, column {column}"))
            }
            _ => None,
        };
        let origin = error.details.get("origin");
        let file = origin.and_then(|origin| origin.get("file")).and_then(Value::as_str);
        let place = match (place(&error.details), file, origin.and_then(place)) {
            (Some(_), Some(file), Some(place)) => {
                format!(" ({file}, {place}; line {} of the whole program)", error.details["line"])
            }
            (Some(place), ..) => format!(" ({place})"),
            (None, ..) => String::new(),
        };
        let body = Some(Box::new(error.clone()));
        Self {
            kind: kind_of(error.error_code),
            code: error.error_code,
            message: format!(
                "{}{place} [{} {}]",
                error.message, error.error_number, error.error_code
            ),
            frame: text("code_frame"),
            hint: Some(error.hint),
            body,
        }
    }
}

fn kind_of(code: ErrorCode) -> ErrorKind {
    use ErrorCode as C;
    match code {
        C::PermissionDenied
        | C::PolicyDenied
        | C::ApprovalDenied
        | C::ApprovalExpired
        | C::Unauthorized
        | C::Forbidden
        | C::ToolNotDeclared
        | C::PathOutsideWorkspace => ErrorKind::NotPermitted,
        C::ParseError
        | C::SourceTooLarge
        | C::TooComplex
        | C::UnsupportedSyntax
        | C::PromiseNotAwaited
        | C::InvalidRequest
        | C::ToolNotFound
        | C::ApiKeyRequired
        | C::KeyNotForHost
        | C::ClientToolsRequirePackage
        | C::CodeHashMismatch
        | C::IntegrityMismatch
        | C::WorkflowLost
        | C::WorkflowNotFound
        | C::ConfigInvalid => ErrorKind::CannotRun,
        C::DatabaseUnavailable
        | C::PlatformUnsupported
        | C::SandboxUnavailable
        | C::GatewayUnreachable
        | C::GatewayBadAnswer
        | C::ServerToolsOffline
        | C::Busy
        | C::RateLimited
        | C::IdentityUnavailable
        | C::RunStoreUnavailable => ErrorKind::Unavailable,
        C::ToolFailed
        | C::CallIndeterminate
        | C::ReplayMismatch
        | C::ToolTimeout
        | C::InvalidArguments
        | C::ToolUnavailable
        | C::ToolResultTooLarge
        | C::ArgumentTooLarge
        | C::ProgramFailed
        | C::TimeLimit
        | C::CpuLimit
        | C::OutOfMemory
        | C::StackOverflow
        | C::TooManyCalls
        | C::ResultTooLarge
        | C::ResultNotSerializable
        | C::Deadlock
        | C::Cancelled
        | C::SandboxCrashed
        | C::TooManyTimers
        | C::NotFound
        | C::Conflict
        | C::IdempotencyKeyReused
        | C::RequestInProgress
        | C::ShownOnce
        | C::Gone
        | C::SecretUnreadable
        | C::Internal
        | C::SecretsUnavailable => ErrorKind::Failed,
    }
}
