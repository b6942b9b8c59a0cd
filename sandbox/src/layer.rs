//! The names of the layers that hold a child, and how each of them stands.

use serde::{Deserialize, Serialize};

/// One layer of the seal, as a child found it on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerReport {
    /// The layer's short name, as in `seccomp`.
    pub name: String,
    /// Whether a child without it refuses to run anything.
    pub mandatory: bool,
    /// Whether it holds.
    pub state: LayerState,
}

/// Whether a layer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// All of it.
    Holds,
    /// Some of it; the text says what is missing.
    Partial(String),
    /// None of it; the text says why.
    Absent(String),
}

impl LayerReport {
    pub(crate) fn mandatory(name: &str) -> LayerReport {
        LayerReport { name: name.to_owned(), mandatory: true, state: LayerState::Holds }
    }

    pub(crate) fn best_effort(name: &str, state: LayerState) -> LayerReport {
        LayerReport { name: name.to_owned(), mandatory: false, state }
    }
}
