//! The record of a call that was not made.

use serde::{Deserialize, Serialize};

use super::{Content, Failure, Status};

/// A call that got the recorded answer of another run's call. It was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallMocked {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
    /// The tool.
    pub(crate) tool: String,
    /// Where the other call ran: `client` or `server`.
    pub(crate) routing: String,
    /// The arguments.
    pub(crate) args: Content,
    /// The run that has the answer.
    pub(crate) of: String,
    /// The call of that run.
    pub(crate) of_call: String,
    /// `success` or `error`.
    pub(crate) status: Status,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Content>,
    /// The error that it threw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    /// When the program got this answer, in milliseconds since its start.
    pub(crate) at_ms: u64,
}
