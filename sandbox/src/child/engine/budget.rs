//! The CPU time that a program may use.

use std::cell::Cell;
use std::time::Duration;

use crate::child::process::cpu_time;

/// The CPU time of the program.
#[derive(Default)]
pub(super) struct Budget {
    pub(super) end: Cell<Option<Duration>>,
    pub(super) exceeded: Cell<bool>,
}

impl Budget {
    pub(super) fn is_spent(&self) -> bool {
        if self.end.get().is_some_and(|end| cpu_time() >= end) {
            self.exceeded.set(true);
        }
        self.exceeded.get()
    }
}
