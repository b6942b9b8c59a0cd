//! The errors of a local MCP server.

use execution::processes::programs::ProgramError;
use protocol::ErrorBody;

use crate::processes::environment::EnvironmentError;

/// Why a local MCP server returned no result.
#[derive(Debug, thiserror::Error)]
pub enum LocalMcpError {
    /// No server of that name is set up.
    #[error("no MCP server `{server}` is configured; add it to `mcpServers` in `.pml.json`")]
    Unknown {
        /// The namespace.
        server: String,
    },
    /// Its entry lists its tools, and not this one.
    #[error(
        "the entry of MCP server `{server}` in `.pml.json` does not list the tool `{action}`; its `tools` are {listed}"
    )]
    NotListed {
        /// The namespace.
        server: String,
        /// The tool.
        action: String,
        /// The tools that it lists, for display.
        listed: String,
    },
    /// Two different entries claim one name.
    #[error("two different MCP servers are named `{server}`; rename one of them")]
    Duplicate {
        /// The namespace.
        server: String,
    },
    /// A variable may not be set or is missing.
    #[error("MCP server `{server}`: {source}")]
    Environment {
        /// The namespace.
        server: String,
        /// Which variable, and why.
        source: EnvironmentError,
    },
    /// Its program cannot be run.
    #[error("MCP server `{server}`: {source}")]
    Program {
        /// The namespace.
        server: String,
        /// Which program.
        source: ProgramError,
    },
    /// Its entry cannot be used.
    #[error("MCP server `{server}`: its entry {reason}")]
    Entry {
        /// The namespace.
        server: String,
        /// Why, as the rest of a sentence about the entry.
        reason: String,
    },
    /// It is not what the user allowed, so it was not started.
    #[error("{}", .0.message)]
    NotAllowed(Box<ErrorBody>),
    /// It did not start.
    #[error("MCP server `{server}` did not start: {reason}{}", quoted(.stderr))]
    Start {
        /// The namespace.
        server: String,
        /// What happened.
        reason: String,
        /// Its last lines on stderr.
        stderr: String,
    },
    /// It exited during the call.
    #[error("MCP server `{server}` {reason} during the call; the call may have had effects and is not repeated{}", quoted(.stderr))]
    Died {
        /// The namespace.
        server: String,
        /// What happened.
        reason: String,
        /// Its last lines on stderr.
        stderr: String,
    },
    /// It failed repeatedly and is not started again yet.
    #[error(
        "MCP server `{server}` failed {failures} times in a row; the next start is possible in {wait_s} s; the last failure: {last}"
    )]
    BackingOff {
        /// The namespace.
        server: String,
        /// The number of failures.
        failures: u32,
        /// The waiting time.
        wait_s: u64,
        /// The last failure.
        last: String,
    },
    /// It answered the call with a JSON-RPC error.
    #[error("MCP server `{server}` refused the call: {message} (code {code})")]
    Refused {
        /// The namespace.
        server: String,
        /// The JSON-RPC code.
        code: i32,
        /// The server's text.
        message: String,
    },
    /// Its answer exceeds the limit of size or of values, and was not read.
    #[error("the answer of MCP server `{server}` is too large")]
    TooLarge {
        /// The namespace.
        server: String,
    },
    /// Its answer is invalid.
    #[error("MCP server `{server}` returned an invalid answer: {reason}")]
    Answer {
        /// The namespace.
        server: String,
        /// The reason.
        reason: String,
    },
    /// The arguments are not an object.
    #[error("the arguments of `{server}:{action}` must be an object")]
    Arguments {
        /// The namespace.
        server: String,
        /// The tool.
        action: String,
    },
    /// The run was cancelled.
    #[error("the call of MCP server `{server}` was cancelled")]
    Cancelled {
        /// The namespace.
        server: String,
    },
}

impl LocalMcpError {
    /// Returns the error of a call with a note at the end of its reason.
    pub(super) fn with_note(mut self, note: &str) -> Self {
        if let Self::Refused { message: reason, .. }
        | Self::Died { reason, .. }
        | Self::Answer { reason, .. } = &mut self
        {
            *reason = format!("{reason} ({note})");
        }
        self
    }

    /// Returns the stable code of the error.
    pub fn code(&self) -> protocol::ErrorCode {
        use protocol::ErrorCode;
        match self {
            Self::Unknown { .. } | Self::NotListed { .. } => ErrorCode::ToolNotFound,
            Self::Duplicate { .. } => ErrorCode::ConfigInvalid,
            Self::Environment { source: EnvironmentError::Missing { .. }, .. } => {
                ErrorCode::ApiKeyRequired
            }
            Self::Environment { .. } | Self::Entry { .. } => ErrorCode::ConfigInvalid,
            Self::Program { .. }
            | Self::Start { .. }
            | Self::Died { .. }
            | Self::BackingOff { .. } => ErrorCode::ToolUnavailable,
            Self::NotAllowed(error) => error.error_code,
            Self::TooLarge { .. } => ErrorCode::ToolResultTooLarge,
            Self::Refused { .. } | Self::Answer { .. } => ErrorCode::ToolFailed,
            Self::Arguments { .. } => ErrorCode::InvalidArguments,
            Self::Cancelled { .. } => ErrorCode::Cancelled,
        }
    }
}

fn quoted(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its stderr: {stderr}") }
}
