//! The records of replays.

use serde::{Deserialize, Serialize};

use super::Content;

/// How a replay compares with the run that it replays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayCompared {
    /// The time.
    pub(crate) at: String,
    /// The id of the replay.
    pub(crate) run: String,
    /// The number of calls that were answered from the record.
    pub(crate) answered: u64,
    /// Whether it ended like the run; `None` if that could not be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) matches: Option<bool>,
    /// The first call that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<CallDiffers>,
    /// What the run depended on and is another one now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changed: Vec<InputChanged>,
}

/// The first call in which a replay differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallDiffers {
    /// Its number.
    pub(crate) call: u64,
    /// The tool that is called now; `None` if the call is not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The arguments that it has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Content>,
}

/// Something that a run depended on, such as its program, and that is another one now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputChanged {
    /// What it is: `program`, `policy`, `pml` or `tool`.
    pub(crate) what: String,
    /// For a tool, its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The name of the error that it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// Its hash or version in the record.
    pub(crate) recorded: String,
    /// The present one; `None` if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) now: Option<String>,
}
