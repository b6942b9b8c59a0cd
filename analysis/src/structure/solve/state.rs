//! What cells have now, and how that changes.

use super::*;
use crate::structure::core::Slot;
use crate::structure::domain::{Paths, Prim, Promised, Ref};

/// Cells, with what they have at some place.
pub(super) type Changes = SmallVec<[(CellId, Value); 12]>;

/// What changed, for the places at which ways part and meet.
#[derive(Default)]
pub(super) struct Trail {
    /// The cells that were written, and what they had.
    pub(super) changes: Vec<(CellId, Value)>,
    /// How many regions are open whose end needs it.
    pub(super) tracking: u32,
    /// Marks cells that were seen in one look at it.
    pub(super) seen: Vec<u32>,
    pub(super) epoch: u32,
}

impl Solver<'_> {
    pub(super) fn base(&self) -> CellId {
        self.acts.last().map_or(0, |act| act.base)
    }

    /// Reads a slot of the function that is walked.
    pub(super) fn slot(&mut self, slot: Slot) -> Value {
        let cell = self.base() + slot;
        let value = self.read(cell);
        if value.is_never() { Value::UNDEFINED } else { value }
    }

    /// Writes a slot of the function that is walked.
    pub(super) fn set_slot(&mut self, slot: Slot, value: Value) {
        let cell = self.base() + slot;
        let act = self.acts.len().saturating_sub(1);
        self.hold_in_slot(value, act, slot);
        self.write_variable(cell, value);
    }

    /// Returns what a cell may have for the code that is walked.
    pub(super) fn read(&mut self, cell: CellId) -> Value {
        let known = &mut self.heap.cells[cell as usize];
        if known.private {
            return known.now;
        }
        let mut value = known.now;
        if !known.beside.is_never() {
            value = self.dom.join(value, known.beside);
            // When it is read decides what of that is there.
            value = self.dom.with(value, self.time.when);
        }
        if self.threads.beside > 0 {
            let known = &mut self.heap.cells[cell as usize];
            known.watched = true;
            value = self.dom.join(value, known.ever);
        }
        value
    }

    /// Writes a variable.
    pub(super) fn write_variable(&mut self, cell: CellId, value: Value) {
        let known = &self.heap.cells[cell as usize];
        let strong = known.unique || known.private;
        self.write(cell, value, strong);
    }

    /// Writes to a cell: in place of what it has if `strong`, or beside it.
    pub(super) fn write(&mut self, cell: CellId, value: Value, strong: bool) {
        let known = self.heap.cells[cell as usize];
        self.misuses.has(cell, self.dom.shape(value));
        if known.private {
            let value = if strong { value } else { self.dom.join(known.now, value) };
            self.set_now(cell, value);
            return;
        }
        let since = if self.follows(Rule::WriteUnderBranch) {
            self.control_since(known.birth)
        } else {
            NONE
        };
        // The program itself finds what it wrote whenever that was; what runs beside it may not.
        let value =
            if self.threads.beside > 0 { self.dom.with(value, self.time.when) } else { value };
        let is_promise = known.object.is_some_and(|object| {
            self.heap.objects[object as usize].kind == crate::structure::domain::Kind::Promise
        });
        self.threads.effects += usize::from(!is_promise);
        let marked = self.dom.with(value, since);
        let seen_beside = self.dom.with(marked, self.time.when);
        if known.object.is_some_and(|object| self.heap.objects[object as usize].escaped) {
            // Unknown code sees what is written, and that it is.
            self.escape(seen_beside);
        }
        self.changed |= self.heap.note(&mut self.dom, cell, seen_beside);
        if strong && self.threads.beside == 0 {
            self.set_now(cell, value);
            return;
        }
        let joined = self.dom.join(known.now, marked);
        self.set_now(cell, joined);
        if self.threads.beside > 0 {
            let known = &mut self.heap.cells[cell as usize];
            let joined = self.dom.join(known.beside, marked);
            if joined != known.beside {
                known.beside = joined;
                self.changed = true;
            }
        }
    }

    /// Sets what a cell has now.
    pub(super) fn set_now(&mut self, cell: CellId, value: Value) {
        // Of two computed values, that as much is known of both does not make them equal.
        let now = self.now(cell);
        if self.dom.same(now, value) && (value.is_never() || self.is_exact(value)) {
            if now != value {
                // Whether it is a promise is no flow: where that differs, nothing is sure.
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
        if let Some(recorder) = self.recorders.last_mut() {
            let written = recorder.entry(cell).or_insert(before);
            *written = self.dom.join(*written, value);
        }
    }

    /// Notes that what a cell has may be no promise any more.
    pub(super) fn loosen(&mut self, cell: CellId) {
        let now = self.now(cell);
        if self.dom.shape(now).promised.is_promise() {
            self.heap.cells[cell as usize].now = self.dom.promised(now, Promised::Perhaps);
            if self.trail.tracking > 0 {
                self.misuses.loosens(cell);
            }
        }
    }

    /// Returns whether all values of which as much is known are the same value.
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

    /// Returns whether a value is the same in each turn of a loop.
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

    pub(super) fn is_one(&self, object: ObjId) -> bool {
        let known = &self.heap.objects[object as usize];
        known.unique || !known.kept
    }

    /// Returns the cells that changed since a place in the trail, with what they had there.
    pub(super) fn changed_since(&mut self, mark: usize) -> Changes {
        self.trail.epoch += 1;
        if self.trail.seen.len() < self.heap.cells.len() {
            self.trail.seen.resize(self.heap.cells.len(), 0);
        }
        let mut out = Changes::new();
        for (cell, before) in &self.trail.changes[mark..] {
            let seen = &mut self.trail.seen[*cell as usize];
            if *seen != self.trail.epoch {
                *seen = self.trail.epoch;
                out.push((*cell, *before));
            }
        }
        out
    }

    /// Takes out of the trail what concerns nobody after a function has ended, its own variables above all; returns the
    /// cells that are left.
    ///
    /// Whoever looks back sees each of the others once, however deep they were written.
    pub(super) fn forget_private(&mut self, mark: usize) -> Vec<CellId> {
        let mut changed = self.changed_since(mark);
        changed.retain(|(cell, _)| !self.heap.cells[*cell as usize].private);
        self.trail.changes.truncate(mark);
        self.trail.changes.extend(changed.iter().copied());
        changed.into_iter().map(|(cell, _)| cell).collect()
    }

    /// Takes back what changed since a place in the trail.
    pub(super) fn undo(&mut self, mark: usize, changed: &[(CellId, Value)]) {
        for (cell, before) in changed {
            self.heap.cells[*cell as usize].now = *before;
        }
        self.trail.changes.truncate(mark);
    }

    pub(super) fn now(&self, cell: CellId) -> Value {
        self.heap.cells[cell as usize].now
    }

    /// Sets a cell to what it may have of two ways that `deps` choose between.
    pub(super) fn merge(&mut self, cell: CellId, one: Value, other: Value, deps: Deps) {
        let deps = if self.follows(Rule::BranchMerges) { deps } else { NONE };
        let value = if self.dom.same(one, other) && self.is_exact(one) {
            self.dom.join(one, other)
        } else {
            let joined = self.dom.join(one, other);
            // What was never written on one way is not read after it.
            if one.is_never() || other.is_never() { joined } else { self.dom.with(joined, deps) }
        };
        self.set_now(cell, value);
    }
}
