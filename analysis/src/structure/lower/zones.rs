//! Which variables may be used before their declaration, where every use fails.

use foldhash::{HashMap, HashSet};

use super::Slot;

/// The temporal dead zones of a function's variables: which of them may be used before their declaration.
///
/// A function that has a name uses the variables in its body only once its name is used. Most programs declare their
/// functions first, and call them when the variables are declared.
#[derive(Default)]
pub(super) struct DeadZones {
    /// The variables whose declaration is not lowered yet.
    undeclared: HashSet<Slot>,
    /// Those whose declaration is lowered, in order.
    declared: Vec<Slot>,
    /// Those that may be used before their declaration.
    pub(super) early: HashSet<Slot>,
    /// The variables that a function uses, by its own; only those that are not declared where the function is, and
    /// other functions.
    bodies: HashMap<Slot, Vec<Slot>>,
    /// The named function whose body is lowered now.
    within: Option<Slot>,
}

impl DeadZones {
    pub(super) fn begin(&mut self, slots: std::ops::Range<Slot>) {
        self.undeclared.extend(slots);
    }

    pub(super) fn end(&mut self, slot: Slot) {
        if self.undeclared.remove(&slot) {
            self.declared.push(slot);
        }
    }

    pub(super) fn is_open(&self, slot: Slot) -> bool {
        self.undeclared.contains(&slot)
    }

    /// Returns a mark for [`Self::reopen`].
    pub(super) fn mark(&self) -> usize {
        self.declared.len()
    }

    /// Takes back the ends since a mark: the code that follows may run without the code since then.
    pub(super) fn reopen(&mut self, mark: usize) {
        self.undeclared.extend(self.declared.drain(mark..));
    }

    /// Begins the body of the function that a variable holds from its declaration on. Returns the function around.
    pub(super) fn begin_body(&mut self, function: Slot) -> Option<Slot> {
        self.bodies.entry(function).or_default();
        self.within.replace(function)
    }

    pub(super) fn end_body(&mut self, around: Option<Slot>) {
        self.within = around;
    }

    /// Records the use of a variable.
    pub(super) fn used(&mut self, slot: Slot) {
        if self.undeclared.is_empty() {
            return;
        }
        if let Some(function) = self.within {
            self.bodies.entry(function).or_default().push(slot);
            return;
        }
        self.note(slot);
        // Each function is followed once: at its later uses, no more variables are undeclared.
        let mut used = self.bodies.remove(&slot).unwrap_or_default();
        while let Some(slot) = used.pop() {
            self.note(slot);
            used.extend(self.bodies.remove(&slot).unwrap_or_default());
        }
    }

    fn note(&mut self, slot: Slot) {
        if self.undeclared.contains(&slot) {
            self.early.insert(slot);
        }
    }
}
