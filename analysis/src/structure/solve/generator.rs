//! Generators. A generator's code is walked where the generator is made, as concurrent code, and its values are
//! collected in its iterator. The code that iterates decides how far the generator runs.

use super::*;
use crate::structure::domain::{Kind, Ref};

/// Facts about generators that are not in their slots.
#[derive(Default)]
pub(super) struct Generators {
    /// The generators that are iterated to their end at a place that is always reached, so that their code
    /// surely runs.
    pub(super) driven: HashSet<ObjId>,
    /// What decides how far the code of each one runs.
    pub(super) drives: HashMap<ObjId, Deps>,
    /// How many walks are open that may take only some of a generator's values.
    pub(super) partly: u32,
}

impl Solver<'_> {
    /// Makes a generator and walks its code.
    pub(super) fn generate(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
    ) -> Value {
        self.keep_object(object);
        self.keep_given(this, args);
        // A recursive generator would make a new iterator in each context; one iterator stands for all of them.
        let iterator = if self.is_open(func) {
            let birth = crate::structure::domain::Birth::default();
            self.heap.object(u32::MAX, object << 3, Kind::Iterator, false, birth)
        } else {
            self.object(3, Kind::Iterator)
        };
        if self.function(func).is_async {
            self.settle(iterator, self.known.later, Value::computed(NONE));
        }
        if let Some(cell) = self.heap.find(object, self.known.prototype) {
            let above = self.read(cell);
            if !self.dom.shape(above).refs.is_empty() {
                let made = self.dom.reference(Ref::Obj(iterator));
                self.set_own(made, self.known.proto, above);
            }
        }
        self.keep_object(iterator);
        // Created now, since the code reads them before a later `next` writes them.
        for name in [self.known.sent, self.known.raised] {
            let _ = self.heap.cell(iterator, name);
        }
        let driven = self.generators.drives.get(&iterator).copied().unwrap_or(NONE);
        let may = !self.generators.driven.contains(&iterator);
        let walk = |solver: &mut Self| {
            solver.under(driven, may, false, |solver| {
                let value = solver.walk_call(object, func, env, this, args, true, Some(iterator));
                if let Some(value) = value {
                    solver.settle(iterator, solver.known.elem, value);
                }
            });
        };
        let caught = self.promises.caught.contains(&iterator);
        let cut = self.promises.cuts.get(&iterator).copied();
        let end = self.cut_by(cut, |solver| {
            if caught { solver.concurrently(walk) } else { solver.concurrently_unguarded(walk) }
        });
        self.add_settlement(iterator, end.hangs);
        if end.any {
            self.settle(iterator, self.known.fails, Value::computed(end.thrown));
        }
        self.dom.reference(Ref::Obj(iterator))
    }

    /// Records that values of a generator are requested here; returns what decides which ones come.
    pub(super) fn drive(&mut self, iterator: ObjId) -> Deps {
        if !self.follows(Rule::IteratorState) {
            return NONE;
        }
        let cut = self.cut_ever();
        self.add_cut(iterator, cut);
        let control = self.control_above(0);
        let before = self.generators.drives.get(&iterator).copied().unwrap_or(NONE);
        let all = self.dom.union(before, control);
        if all != before {
            self.generators.drives.insert(iterator, all);
            self.changed = true;
        }
        if !self.handlers.is_empty() && self.promises.caught.insert(iterator) {
            self.changed = true;
        }
        if self.generators.partly == 0
            && !self.may_above(0)
            && self.generators.driven.insert(iterator)
        {
            self.changed = true;
        }
        if let Some(cell) = self.heap.find(iterator, self.known.fails) {
            let fails = self.read(cell);
            // What the generator throws is thrown at the place that requests a value.
            let before = std::mem::replace(&mut self.tries.throwing, true);
            self.may_fail_by(fails);
            self.tries.throwing = before;
        }
        all
    }

    /// Walks something that may take only some of a generator's values.
    pub(super) fn partly<T>(&mut self, partly: bool, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.generators.partly += u32::from(partly);
        let walked = walk(self);
        self.generators.partly -= u32::from(partly);
        walked
    }

    /// `yield`: passes a value, or with `all` the values of an iterable, to the iterator. Returns what `next`
    /// sends in.
    pub(super) fn yield_value(&mut self, value: Value, all: bool) -> Value {
        let Some(iterator) = self.activations.last().and_then(|act| act.iterator) else {
            return self.unknown(&[value]);
        };
        let (given, count) = if all {
            self.may_fail_by(value);
            let (item, count) = self.iterated(value);
            (self.dom.with(item, count), count)
        } else {
            let func = self.contexts[self.context() as usize].func;
            let given = if self.function(func).is_async {
                // It is waited for in here.
                self.fails_with(value);
                self.settled(value)
            } else {
                value
            };
            (given, NONE)
        };
        self.settle(iterator, self.known.elem, given);
        // The write adds the label of this point: what decides whether a `yield` is reached decides how many
        // values there are.
        self.settle(iterator, self.known.length, Value::computed(count));
        // `throw(value)` on the iterator makes the `yield` throw.
        let raised = self.own(iterator, self.known.raised);
        if !raised.is_never() || raised.deps != NONE {
            let before = std::mem::replace(&mut self.tries.throwing, true);
            self.may_fail(raised.deps, raised);
            self.tries.throwing = before;
        }
        let sent = self.own(iterator, self.known.sent);
        let driven = self.generators.drives.get(&iterator).copied().unwrap_or(NONE);
        // `yield*` also has a result, that of the inner generator.
        let sent = if all { self.dom.join(sent, given) } else { sent };
        let sent = self.dom.join(sent, Value::UNDEFINED);
        self.dom.with(sent, driven)
    }
}
