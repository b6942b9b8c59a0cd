//! The CPU time that a program may use.

use std::cell::Cell;
use std::time::Duration;

use crate::child::process::cpu_time;

/// The CPU time of the program.
#[derive(Default)]
pub(super) struct Budget {
    /// The reading of the CPU clock at which the budget ends; `None` before there is a program.
    pub(super) end: Cell<Option<Duration>>,
    pub(super) exceeded: Cell<bool>,
}

impl Budget {
    /// Returns whether the CPU time has run out. The state is sticky, whatever the program catches.
    pub(super) fn is_spent(&self) -> bool {
        if self.end.get().is_some_and(|end| cpu_time() >= end) {
            self.exceeded.set(true);
        }
        self.exceeded.get()
    }
}
