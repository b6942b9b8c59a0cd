//! Promises that may never be settled. Code that waits for one may wait forever, so what decides whether it is
//! settled decides on everything after the wait.

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::{Kind, Prim, Ref, Shape};

impl Solver<'_> {
    /// Records that a promise is settled by the code that has its resolvers.
    pub(super) fn mark_pending(&mut self, promise: ObjId) {
        self.keep_object(promise);
        // The slot marks such a promise. It is created now because code that waits is walked before the code
        // that settles.
        let _ = self.heap.cell(promise, self.known.done);
    }

    /// Records that the promises of a value may never be settled.
    pub(super) fn mark_maybe_unsettled(&mut self, value: Value) {
        for one in &self.dom.shapes.kept(value.shape).refs {
            if let Ref::Obj(object) = one {
                let cell = self.heap.cell(*object, self.known.done);
                let waits = self.dom.scalar(Scalar::Bool(false));
                self.changed |= self.heap.note(&mut self.dom, cell, waits);
            }
        }
    }

    /// Records that a promise is settled here; `one` if it is known which promise it is.
    pub(super) fn mark_settled(&mut self, promise: ObjId, deps: Deps, one: bool) {
        let (birth, unique) = {
            let known = &self.heap.objects[promise as usize];
            (known.birth, known.unique)
        };
        let (control, may) = self.control_between(birth, self.promises.settling);
        let deps = self.dom.union(deps, control);
        let cell = self.heap.cell(promise, self.known.done);
        let done = self.dom.scalar(Scalar::Bool(true));
        // Only a settling that no run can skip counts as `true` in what is ever written; see `has_done`.
        let outcome = if may { self.dom.scalar(Scalar::Bool(false)) } else { done };
        let marked = self.dom.with(outcome, deps);
        self.changed |= self.heap.note(&mut self.dom, cell, marked);
        if one && unique && self.threads.concurrent == 0 {
            self.set_now(cell, done);
        } else {
            let joined = self.dom.join(self.now(cell), marked);
            self.set_now(cell, joined);
        }
    }

    /// Adds to what decides whether a promise is ever settled.
    pub(super) fn add_settlement(&mut self, promise: ObjId, deps: Deps) {
        if deps != NONE {
            self.settle(promise, self.known.settlement, Value::computed(deps));
        }
    }

    /// Adds to what decides whether the promises of a value are ever settled.
    pub(super) fn add_settlement_of(&mut self, value: Value, deps: Deps) {
        for one in &self.dom.shapes.kept(value.shape).refs {
            if let Ref::Obj(object) = one {
                self.add_settlement(*object, deps);
            }
        }
    }

    /// Returns what decides whether the promises of a value are ever settled.
    pub(super) fn settlement_of(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        for one in &self.dom.shapes.kept(value.shape).refs {
            let Ref::Obj(object) = one else { continue };
            if self.heap.objects[*object as usize].kind != Kind::Promise {
                continue;
            }
            let own = self.own(*object, self.known.settlement);
            deps = self.dom.union(deps, own.deps);
            let Some(cell) = self.heap.find(*object, self.known.done) else { continue };
            let known = &mut self.heap.cells[cell as usize];
            known.watched = true;
            let (now, ever) = (known.now, known.ever);
            if !is_done(self.dom.shape(now)) {
                // The current value may lack what decided on the turns of loops around the settling; `ever` has
                // it.
                deps = self.dom.union(deps, ever.deps);
            }
        }
        if deps == NONE { NONE } else { self.dom.union(deps, value.deps) }
    }

    /// Returns whether one of the promises of a value may be settled nowhere, as far as is known.
    pub(super) fn is_never_settled(&mut self, value: Value) -> bool {
        if self.round == 0 {
            // The settling code may only be walked later in this round.
            return false;
        }
        let mut open: SmallVec<[Value; 4]> = smallvec::smallvec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            for one in &self.dom.shape(value).refs {
                let Ref::Obj(object) = one else { continue };
                let known = &self.heap.objects[*object as usize];
                if known.escaped || !seen.insert(*object) {
                    continue;
                }
                if known.kind == Kind::Array {
                    open.extend(known.keys.iter().map(|(_, cell)| self.now(*cell)));
                }
                if known.kind != Kind::Promise {
                    continue;
                }
                if let Some(cell) = self.heap.find(*object, self.known.done) {
                    let known = &self.heap.cells[cell as usize];
                    let is_sure =
                        is_done(self.dom.shape(known.now)) || has_done(self.dom.shape(known.ever));
                    if !is_sure {
                        return true;
                    }
                }
                // It is settled with its parts; for `race` and `any`, the first part is enough.
                if self.heap.find(*object, self.known.target).is_none() {
                    let parts = self.heap.find(*object, self.known.elem);
                    open.extend(parts.map(|cell| self.now(cell)));
                }
            }
        }
        false
    }

    /// Walks a wait for the promises of a value, which may last forever.
    pub(super) fn waits_for(&mut self, value: Value) {
        let settlement = self.settlement_of(value);
        self.hang(settlement);
        if self.is_never_settled(value) && !self.levels.is_empty() {
            // Nothing after the wait is reached in such a run of this thread.
            let level = self.threads.level.min(self.levels.len() - 1);
            self.record_exit(level, NONE, true);
        }
    }

    /// Records that the current thread may wait forever here, which `deps` decide: an exit out of the thread.
    pub(super) fn hang(&mut self, deps: Deps) {
        let deps = self.dom.sources.used(deps);
        if deps == NONE || self.levels.is_empty() {
            return;
        }
        let level = self.threads.level.min(self.levels.len() - 1);
        let all = self.record_exit(level, deps, true);
        self.threads.hangs = self.dom.union(self.threads.hangs, all);
    }

    /// Records that the current thread may wait forever for the values of async generators.
    pub(super) fn hang_on_iterators(&mut self, value: Value) {
        for one in &self.dom.shapes.kept(value.shape).refs {
            if let Ref::Obj(object) = one {
                let settlement = self.own(*object, self.known.settlement);
                self.hang(settlement.deps);
            }
        }
    }

    /// Returns whether a value can only be resolving functions of promises.
    pub(super) fn settles_another(&mut self, callee: Value) -> bool {
        let shape = self.dom.shapes.kept(callee.shape);
        shape.prim == Prim::None
            && !shape.refs.is_empty()
            && shape.refs.iter().all(|one| {
                let Ref::Obj(object) = one else { return false };
                if self.heap.objects[*object as usize].kind != Kind::Bound {
                    return false;
                }
                let target = self.own(*object, self.known.target);
                match self.dom.shape(target).refs.as_slice() {
                    [Ref::Builtin(name)] => {
                        matches!(&*self.dom.names.text(*name), "%resolve" | "%reject")
                    }
                    _ => false,
                }
            })
    }
}

/// Returns whether a promise is settled at the current point.
fn is_done(now: &Shape) -> bool {
    now.only() == Some(&Scalar::Bool(true))
}

/// Returns whether some place that is always reached settles a promise.
fn has_done(ever: &Shape) -> bool {
    match &ever.prim {
        Prim::None => false,
        Prim::Consts(scalars) => scalars.contains(&Scalar::Bool(true)),
        Prim::Any => true,
    }
}
