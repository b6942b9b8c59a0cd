//! The state at the current program point: reads and writes of cells, strong and weak updates, and the undo
//! log.

use super::*;
use crate::structure::core::Slot;
use crate::structure::domain::{Paths, Prim, Promised, Ref};

/// Cells, each with its value at some program point.
pub(super) type Changes = SmallVec<[(CellId, Value); 12]>;

/// Up to this many changes, the list of them is allocated at once.
const TYPICAL_CHANGES: usize = 64;

/// The undo log: which cells were written since a fork or the start of a region, so that only these are
/// restored and joined.
#[derive(Default)]
pub(super) struct Trail {
    /// The written cells with their values before the write, oldest first.
    pub(super) changes: Vec<(CellId, Value)>,
    /// How many forks and regions are open that need the log. At zero, nothing is logged.
    pub(super) tracking: u32,
    /// For each cell, the epoch in which `changed_since` last saw it.
    pub(super) seen: Vec<u32>,
    /// The number of the current scan of `changed_since`; it avoids clearing `seen`.
    pub(super) epoch: u32,
}

impl Solver<'_> {
    /// Returns the first cell of the current frame.
    pub(super) fn base(&self) -> CellId {
        self.activations.last().map_or(0, |act| act.base)
    }

    /// Reads a slot of the current function. A slot that was never written has `undefined`.
    pub(super) fn slot(&mut self, slot: Slot) -> Value {
        let cell = self.base() + slot;
        let value = self.read(cell);
        if value.is_never() { Value::UNDEFINED } else { value }
    }

    /// Writes a slot of the current function.
    pub(super) fn set_slot(&mut self, slot: Slot, value: Value) {
        let cell = self.base() + slot;
        let act = self.activations.len().saturating_sub(1);
        self.hold_in_slot(value, act, slot);
        self.write_variable(cell, value);
    }

    /// Returns the value of a cell as the current code may see it.
    pub(super) fn read(&mut self, cell: CellId) -> Value {
        let known = &mut self.heap.cells[cell as usize];
        // No other function sees a private cell: `now` is exact.
        if known.private {
            return known.now;
        }
        let mut value = known.now;
        if !known.concurrent.is_never() {
            value = self.dom.join(value, known.concurrent);
            // Whether a concurrent write has happened yet depends on when this code runs.
            value = self.dom.with(value, self.time.when);
        }
        if self.threads.concurrent > 0 {
            let known = &mut self.heap.cells[cell as usize];
            // Concurrent code may run before or after any write, so it sees every write of the program.
            // `watched`: a new write needs another round.
            known.watched = true;
            value = self.dom.join(value, known.ever);
        }
        value
    }

    /// Writes a variable. The update is strong if its cell stands for one variable.
    pub(super) fn write_variable(&mut self, cell: CellId, value: Value) {
        let known = &self.heap.cells[cell as usize];
        let strong = known.unique || known.private;
        self.write(cell, value, strong);
    }

    /// Marks a variable as declared but not initialized. This is no value that the program gives it.
    pub(super) fn begin_dead_zone(&mut self, cell: CellId) {
        let known = &self.heap.cells[cell as usize];
        let strong = known.unique || known.private;
        self.store(cell, Value::ABSENT, strong);
    }

    /// Writes a cell: a strong update replaces its value, a weak one joins the new value with it.
    pub(super) fn write(&mut self, cell: CellId, value: Value, strong: bool) {
        self.misuses.has(cell, self.dom.shape(value));
        self.store(cell, value, strong);
    }

    fn store(&mut self, cell: CellId, value: Value, strong: bool) {
        let known = self.heap.cells[cell as usize];
        if known.private {
            let value = if strong { value } else { self.dom.join(known.now, value) };
            self.set_now(cell, value);
            return;
        }
        // The sources that decide between the cell's birth and this write. What decided before the birth
        // decides for every value of the cell alike, and says nothing about which one it has.
        let since = if self.follows(Rule::WriteUnderBranch) {
            self.control_since(known.birth)
        } else {
            NONE
        };
        // Whether other code sees a write of concurrent code depends on when that code runs. Sequential code sees
        // its own writes in any case.
        let value =
            if self.threads.concurrent > 0 { self.dom.with(value, self.time.when) } else { value };
        // The slots of a promise are written by the solver itself; only other writes count as effects that the
        // rest of the program may see.
        let is_promise = known.object.is_some_and(|object| {
            self.heap.objects[object as usize].kind == crate::structure::domain::Kind::Promise
        });
        self.threads.effects += usize::from(!is_promise);
        // A strong update stores `value` without `since`: in sequential code, a later read on the same path
        // knows that the write happened, and the join after the branch adds the label. Other readers (`ever`,
        // `concurrent`, a weak update) do not know it, so for them the label is part of the value.
        let marked = self.dom.with(value, since);
        let seen_elsewhere = self.dom.with(marked, self.time.when);
        if known.object.is_some_and(|object| self.heap.objects[object as usize].escaped) {
            // Unknown code sees what is written, and that it is.
            self.escape(seen_elsewhere);
        }
        self.changed |= self.heap.note(&mut self.dom, cell, seen_elsewhere);
        if strong && self.threads.concurrent == 0 {
            self.set_now(cell, value);
            return;
        }
        let joined = self.dom.join(known.now, marked);
        self.set_now(cell, joined);
        if self.threads.concurrent > 0 {
            let known = &mut self.heap.cells[cell as usize];
            let joined = self.dom.join(known.concurrent, marked);
            if joined != known.concurrent {
                known.concurrent = joined;
                self.changed = true;
            }
        }
    }

    /// Sets the current value of a cell, and logs its old one.
    pub(super) fn set_now(&mut self, cell: CellId, value: Value) {
        // Two computed values with the same sources may still differ, so only exact values count as unchanged.
        let now = self.now(cell);
        if self.dom.same(now, value) && (value.is_never() || self.is_exact(value)) {
            if now != value {
                // Equal except for what is known about promises. That is no data flow, so it is joined without
                // a log entry.
                let joined = self.dom.join(now, value);
                self.heap.cells[cell as usize].now = joined;
                if self.trail.tracking > 0 {
                    self.misuses.loosens(cell);
                }
            }
            return;
        }
        let known = &mut self.heap.cells[cell as usize];
        let before = std::mem::replace(&mut known.now, value);
        if self.trail.tracking > 0 {
            self.trail.changes.push((cell, before));
        }
        // The open `try` records both the old and the new value: its handler may start before or after this
        // write.
        if let Some(recorder) = self.recorders.last_mut() {
            let written = recorder.entry(cell).or_insert(before);
            *written = self.dom.join(*written, value);
        }
    }

    /// Records that a cell which holds a promise may hold the promised value instead.
    pub(super) fn loosen(&mut self, cell: CellId) {
        let now = self.now(cell);
        if self.dom.shape(now).promised.is_promise() {
            self.heap.cells[cell as usize].now = self.dom.promised(now, Promised::Perhaps);
            if self.trail.tracking > 0 {
                self.misuses.loosens(cell);
            }
        }
    }

    /// Returns whether an abstract value stands for exactly one concrete value, so that two equal abstract
    /// values are equal.
    pub(super) fn is_exact(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        match (&shape.prim, shape.refs.as_slice()) {
            (Prim::None, []) => true,
            (Prim::Consts(scalars), []) => scalars.len() == 1 && !shape.absent,
            (Prim::None, [one]) if !shape.absent => match one {
                Ref::Obj(object) => self.is_one(*object),
                Ref::Data(object, path) => Paths::is_known(*path) && self.is_one(*object),
                Ref::Pool => false,
                _ => true,
            },
            _ => false,
        }
    }

    /// Returns whether a value is the same in each turn of a loop: constants and built-in functions, but no
    /// objects.
    pub(super) fn is_constant(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        match (&shape.prim, shape.refs.as_slice()) {
            (Prim::None, refs) => {
                !refs.iter().any(|one| matches!(one, Ref::Obj(_) | Ref::Data(..) | Ref::Pool))
            }
            (Prim::Consts(scalars), []) => scalars.len() == 1,
            _ => false,
        }
    }

    /// Returns whether an abstract object stands for one concrete object at a time.
    pub(super) fn is_one(&self, object: ObjId) -> bool {
        let known = &self.heap.objects[object as usize];
        known.unique || !known.kept
    }

    /// Returns the cells written since a mark in the log, each once, with their values at the mark.
    pub(super) fn changed_since(&mut self, mark: usize) -> Changes {
        self.trail.epoch += 1;
        if self.trail.seen.len() < self.heap.cells.len() {
            self.trail.seen.resize(self.heap.cells.len(), 0);
        }
        let log = &self.trail.changes[mark..];
        let mut out = Changes::with_capacity(log.len().min(TYPICAL_CHANGES));
        for (cell, before) in log {
            let seen = &mut self.trail.seen[*cell as usize];
            if *seen != self.trail.epoch {
                *seen = self.trail.epoch;
                out.push((*cell, *before));
            }
        }
        out
    }

    /// Drops from the log, after a function has ended, its private cells, and keeps the first entry of each
    /// other cell. Returns these other cells.
    ///
    /// Without this, an outer fork would scan every write of every nested call, and the cost would grow with
    /// the depth.
    pub(super) fn forget_private(&mut self, mark: usize) -> Vec<CellId> {
        let mut changed = self.changed_since(mark);
        changed.retain(|(cell, _)| !self.heap.cells[*cell as usize].private);
        self.trail.changes.truncate(mark);
        self.trail.changes.extend(changed.iter().copied());
        changed.into_iter().map(|(cell, _)| cell).collect()
    }

    /// Restores the values at a mark in the log.
    pub(super) fn undo(&mut self, mark: usize, changed: &[(CellId, Value)]) {
        for (cell, before) in changed {
            self.heap.cells[*cell as usize].now = *before;
        }
        self.trail.changes.truncate(mark);
    }

    /// Returns the value of a cell at the current program point, without concurrent writes.
    pub(super) fn now(&self, cell: CellId) -> Value {
        self.heap.cells[cell as usize].now
    }

    /// Joins the values of a cell at the end of two ways between which `deps` decide. Unless both ways leave
    /// the same exact value, the result depends on `deps` (an implicit flow).
    pub(super) fn merge(&mut self, cell: CellId, one: Value, other: Value, deps: Deps) {
        let deps = if self.follows(Rule::BranchMerges) { deps } else { NONE };
        let value = if self.dom.same(one, other) && self.is_exact(one) {
            self.dom.join(one, other)
        } else {
            let joined = self.dom.join(one, other);
            // A cell that one way never wrote belongs to that way's scope, and no code after the join reads it.
            if one.is_never() || other.is_never() { joined } else { self.dom.with(joined, deps) }
        };
        self.set_now(cell, value);
    }
}
