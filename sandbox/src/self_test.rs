//! The report of a self-test, in which sealed children try forbidden system calls on this machine.

use std::fmt;

use serde::Serialize;

use crate::layer::{LayerReport, LayerState};

/// The results of a self-test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelfTest {
    /// The layers, as reported by a child.
    pub layers: Vec<LayerReport>,
    /// The forbidden system calls, each tried in a child that is sealed like any program's.
    pub calls: Vec<CallReport>,
}

/// The result of one forbidden system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallReport {
    /// The system call.
    pub name: String,
    /// Whether the kernel killed the child for it, as required.
    pub refused: bool,
    /// The child's exit, as text.
    pub saw: String,
}

impl SelfTest {
    /// Returns whether every mandatory layer holds and every call was refused.
    #[must_use]
    pub fn holds(&self) -> bool {
        // A mandatory layer that an older kernel supports only partially was requested as a whole.
        let broken =
            |layer: &LayerReport| layer.mandatory && matches!(layer.state, LayerState::Absent(_));
        !self.layers.is_empty()
            && !self.layers.iter().any(broken)
            && !self.calls.is_empty()
            && self.calls.iter().all(|call| call.refused)
    }
}

/// One line for each layer and each call, and the verdict.
impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            let kind = if layer.mandatory { "mandatory" } else { "best effort" };
            let state = match &layer.state {
                LayerState::Holds => "holds".to_owned(),
                LayerState::Partial(why) => format!("holds partially ({why})"),
                LayerState::Absent(why) => format!("is absent ({why})"),
            };
            writeln!(f, "layer  {:<28} {state}, {kind}", layer.name)?;
        }
        for call in &self.calls {
            let state = if call.refused { "refused" } else { "NOT REFUSED" };
            writeln!(f, "call   {:<28} {state}: {}", call.name, call.saw)?;
        }
        let refused = self.calls.iter().filter(|call| call.refused).count();
        let verdict = if self.holds() { "The sandbox holds" } else { "THE SANDBOX DOES NOT HOLD" };
        writeln!(f, "{verdict}: {refused} of {} calls are refused.", self.calls.len())
    }
}
