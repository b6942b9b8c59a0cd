//! The names of the layers that confine a child, and the state of each.

use serde::{Deserialize, Serialize};

/// One layer of the seal, as reported by a child on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerReport {
    /// The layer's short name, as in `seccomp`.
    pub name: String,
    /// Whether a child without it refuses to run.
    pub mandatory: bool,
    /// Whether the layer holds.
    pub state: LayerState,
}

/// The state of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// It is enforced completely.
    Holds,
    /// Partially enforced; the text names the missing part.
    Partial(String),
    /// Not enforced; the text has the reason.
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
