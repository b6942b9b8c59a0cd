//! The answers to questions to the user.

use protocol::Integrity;
use serde::{Deserialize, Serialize};

use super::Content;

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalGiven {
    /// When it was answered.
    pub(crate) at: String,
    /// When it was asked.
    pub(crate) asked_at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The tool.
    pub(crate) tool: String,
    /// The arguments that were shown.
    pub(crate) args: Content,
    /// The number of calls with these arguments that it covers.
    pub(crate) count: u32,
    /// Why the user was asked.
    pub(crate) reason: String,
    /// The hash of the text of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shown_hash: Option<Integrity>,
    /// The answer.
    pub(crate) answer: Answered,
    /// Where it came from: `agent`, `client`, `terminal` or `page`; `None` without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// For a call of a list: what exactly was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) covers: Option<Covered>,
}

/// What an answer about a call of a list covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Covered {
    /// A hash of the arguments and of the places that they lead to.
    pub(crate) key: Integrity,
    /// What was at the place of the file that the call changes, if the answer depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Before>,
}

/// What was at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Before {
    /// There was no file.
    Nothing,
    /// A file with this content.
    File(Integrity),
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answered {
    /// The calls may run.
    Once,
    /// The calls and all later calls of the tool may run.
    Always,
    /// The calls fail, although others of the same question may run.
    LeftOut,
    /// The run ends.
    Abort,
    /// There was none in time, or the run was cancelled.
    None,
}
