//! The static methods of `Promise`, `new Promise`, and the resolvers.

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::Promised;

impl Solver<'_> {
    /// Calls a static method of `Promise`.
    pub(super) fn of_promises(&mut self, name: &str, this: Option<Value>, args: &Args) -> Value {
        let first = self.arg(args, 0);
        match name {
            "Promise.resolve" => {
                let shape = self.dom.shapes.kept(first.shape);
                let is_promise = |one: &Ref| match one {
                    Ref::Obj(object) => self.heap.objects[*object as usize].kind == Kind::Promise,
                    Ref::Data(..) | Ref::Pool => true,
                    _ => false,
                };
                let is_plain = shape.prim == crate::structure::domain::Prim::None && !shape.absent;
                if is_plain && !shape.refs.is_empty() && shape.refs.iter().all(is_promise) {
                    // `Promise.resolve` returns a promise unchanged.
                    return self.dom.promised(first, Promised::Surely);
                }
                let is_same = |one: &Ref| !matches!(one, Ref::Data(..)) && is_promise(one);
                let same = self.dom.shapes.only_refs(first.shape, is_same, false);
                let same = Value { deps: first.deps, shape: same };
                let (fails, error) = self.failure(first);
                let settled = self.settled(first);
                let promise = self.object(1, Kind::Promise);
                self.settle(promise, self.known.value, settled);
                if fails != NONE || !error.is_never() {
                    self.settle_failure(promise, fails, error);
                }
                let settlement = self.settlement_of(first);
                self.add_settlement(promise, settlement);
                let ends = self.ends_of(first);
                if ends != NONE {
                    self.settle(promise, self.known.ends, Value::computed(ends));
                }
                let made = self.promise(promise);
                // A promise is returned as it is, so the program can see which one it was.
                if self.dom.shape(same).refs.is_empty() { made } else { self.dom.join(made, same) }
            }
            "Promise.reject" => {
                let promise = self.object(1, Kind::Promise);
                let deps = self.reach(first);
                self.settle(promise, self.known.fails, Value { deps, shape: first.shape });
                self.settle(promise, self.known.value, Value::NEVER);
                self.promise(promise)
            }
            "Promise.all" => {
                let (fails, error) = self.failure_of_items(first);
                let all = match self.exact_items(first) {
                    Some(items) => {
                        let items: Vec<Value> =
                            items.into_iter().map(|item| self.settled(item)).collect();
                        self.exact_list(3, items.into_iter())
                    }
                    None => {
                        let (item, count) = self.iterated(first);
                        let item = self.settled(item);
                        self.list_of(3, item, count)
                    }
                };
                self.promise_of(first, all, fails, error)
            }
            "Promise.allSettled" => {
                self.mark_awaited(first, true);
                let all = match self.exact_items(first) {
                    Some(items) => {
                        let place = self.place;
                        let mut outcomes = Vec::new();
                        for (index, item) in items.into_iter().enumerate() {
                            // Each outcome gets its own allocation site.
                            self.place = place ^ ((index as u32 + 1) << 20) ^ (1 << 31);
                            outcomes.push(self.outcome(item));
                        }
                        self.place = place;
                        self.exact_list(3, outcomes.into_iter())
                    }
                    None => {
                        let (item, count) = self.iterated(first);
                        let outcome = self.outcome(item);
                        self.list_of(3, outcome, count)
                    }
                };
                let (fails, error) = self.fails_to_iterate(first);
                self.promise_of(first, all, fails, error)
            }
            "Promise.race" | "Promise.any" => {
                if name == "Promise.any" {
                    self.mark_awaited(first, true);
                } else {
                    // A promise that is rejected after another one was settled ends nothing.
                    let promises = self.promises_in(first);
                    self.mark_caught(&promises);
                }
                let (mut fails, mut error) = self.failure_of_items(first);
                if name == "Promise.any" && !error.is_never() {
                    error = self.all_errors(error);
                }
                let (item, count) = self.iterated(first);
                if name == "Promise.any" && !self.has_items(first) {
                    // `Promise.any` of an empty list is rejected.
                    fails = self.dom.union(fails, count);
                    error = self.dom.join(error, Value::computed(count));
                }
                // Which promise is first depends on how long each takes.
                let when = self.when_of(item);
                let count = self.dom.union(count, when);
                if fails != NONE || !error.is_never() {
                    fails = self.dom.union(fails, when);
                }
                let item = self.settled(item);
                let item = self.dom.with(item, count);
                let item = if name == "Promise.any" { self.dom.with(item, fails) } else { item };
                let made = self.promise_of(first, item, fails, error);
                if name == "Promise.race" && !self.has_items(first) {
                    // `Promise.race` of an empty list is never settled.
                    self.add_settlement_of(made, count);
                    self.mark_maybe_unsettled(made);
                }
                // The mark: the other promises may still be open when this one is settled.
                self.set_own(made, self.known.target, Value::computed(NONE));
                made
            }
            "Promise.withResolvers" => {
                let promise = self.object(1, Kind::Promise);
                self.mark_pending(promise);
                let value = self.promise(promise);
                let made = self.make(3, Kind::Plain);
                let resolve = self.resolver(4, "%resolve", value);
                let reject = self.resolver(5, "%reject", value);
                for (name, value) in [("promise", value), ("resolve", resolve), ("reject", reject)]
                {
                    let name = self.dom.name(&name.into());
                    self.set_own(made, name, value);
                }
                made
            }
            _ => self.unknown_call(this, args),
        }
    }

    /// Makes an outcome of `Promise.allSettled`: status, and value or reason.
    fn outcome(&mut self, item: Value) -> Value {
        let (fails, error) = self.failure(item);
        let item = self.settled(item);
        let reason = self.dom.join(error, Value::computed(fails));
        let outcome = self.make(4, Kind::Plain);
        for (name, value) in
            [("status", Value::computed(fails)), ("value", item), ("reason", reason)]
        {
            let name = self.dom.name(&name.into());
            let value = self.dom.with(value, fails);
            self.set_own(outcome, name, value);
        }
        outcome
    }

    /// Makes the `AggregateError` with which `Promise.any` is rejected.
    fn all_errors(&mut self, error: Value) -> Value {
        let deps = self.reach(error);
        let place = self.place;
        self.place = place ^ (1 << 31);
        let errors = self.list_of(1, error, deps);
        let made = self.make(1, Kind::Plain);
        self.place = place;
        let name = self.dom.name(&"errors".into());
        self.set_own(made, name, errors);
        for (name, value) in [("message", deps), ("stack", deps), ("name", NONE)] {
            let name = self.dom.name(&name.into());
            self.set_own(made, name, Value::computed(value));
        }
        let above = self.dom.name(&"AggregateError.prototype".into());
        let above = self.dom.reference(Ref::Builtin(above));
        self.set_own(made, self.known.proto, above);
        self.dom.with(made, deps)
    }

    /// Returns what decides whether one of the promises of a list is rejected, or the list cannot be iterated,
    /// and the error.
    fn failure_of_items(&mut self, list: Value) -> (Deps, Value) {
        let (item, count) = self.iterated(list);
        let (fails, error) = self.failure(item);
        let (mut fails, mut error) = (fails, error);
        if fails != NONE || !error.is_never() {
            let when = self.when_of(item);
            fails = self.dom.union(fails, count);
            fails = self.dom.union(fails, when);
            error = self.dom.with(error, when);
        }
        let (own, with) = self.fails_to_iterate(list);
        (self.dom.union(fails, own), self.dom.join(error, with))
    }

    /// Returns what decides whether a value cannot be iterated, and the error.
    pub(super) fn fails_to_iterate(&mut self, list: Value) -> (Deps, Value) {
        let shape = self.dom.shapes.kept(list.shape);
        let deps = self.dom.sources.used(list.deps);
        let mut fails = NONE;
        let mut may_fail = shape.absent || shape.prim != crate::structure::domain::Prim::None;
        for one in &shape.refs {
            let Ref::Obj(object) = one else {
                may_fail = true;
                if *one == Ref::Pool {
                    fails = self.dom.union(fails, self.escaped.deps);
                }
                continue;
            };
            let known = &self.heap.objects[*object as usize];
            let is_list =
                matches!(known.kind, Kind::Array | Kind::Map | Kind::Set | Kind::Iterator);
            if known.escaped {
                fails = self.dom.union(fails, self.escaped.deps);
            }
            may_fail |= !is_list || known.escaped;
            if known.kind == Kind::Iterator {
                // The generator's code may throw.
                let own = self.own(*object, self.known.fails);
                fails = self.dom.union(fails, own.deps);
                may_fail |= own.deps != NONE;
            }
        }
        if !may_fail {
            return (NONE, Value::NEVER);
        }
        let fails = self.dom.union(fails, deps);
        (fails, Value::computed(fails))
    }

    /// Returns whether a list surely has an item.
    fn has_items(&mut self, list: Value) -> bool {
        if let Some(items) = self.exact_items(list) {
            return !items.is_empty();
        }
        let shape = self.dom.shapes.kept(list.shape);
        let is_stocked = |one: &Ref| match one {
            Ref::Obj(object) => {
                self.promises.stocked.contains(object)
                    && !self.promises.emptied.contains(object)
                    && !self.heap.objects[*object as usize].escaped
            }
            _ => false,
        };
        shape.prim == crate::structure::domain::Prim::None
            && !shape.absent
            && shape.refs.iter().all(is_stocked)
    }

    /// Makes a promise that is settled when several promises are.
    fn promise_of(&mut self, parts: Value, value: Value, fails: Deps, error: Value) -> Value {
        let promise = self.object(2, Kind::Promise);
        self.settle(promise, self.known.value, value);
        if fails != NONE || !error.is_never() {
            self.settle_failure(promise, fails, error);
        }
        let (item, _) = self.iterated(parts);
        let settlement = self.settlement_of(item);
        self.add_settlement(promise, settlement);
        let ends = if fails == NONE { NONE } else { self.ends_of(item) };
        if ends != NONE {
            self.settle(promise, self.known.ends, Value::computed(ends));
        }
        // Waiting for it waits for its parts.
        self.settle(promise, self.known.elem, parts);
        self.promise(promise)
    }

    /// Makes a resolving function of a promise: the internal function `%resolve` or `%reject`, bound to it.
    fn resolver(&mut self, part: u32, name: &str, promise: Value) -> Value {
        let bound = self.make(part, Kind::Bound);
        let name = self.dom.name(&name.into());
        let target = self.dom.reference(Ref::Builtin(name));
        self.set_own(bound, self.known.target, target);
        self.set_own(bound, self.known.this, promise);
        bound
    }

    /// `new Promise(executor)`
    pub(super) fn new_promise(&mut self, executor: Value) -> Value {
        let promise = self.object(1, Kind::Promise);
        self.mark_pending(promise);
        let value = self.promise(promise);
        let resolve = self.resolver(3, "%resolve", value);
        let reject = self.resolver(4, "%reject", value);
        let args = Args { list: smallvec::smallvec![resolve, reject], rest: None };
        self.settle(promise, self.known.value, Value::NEVER);
        let handlers = std::mem::take(&mut self.handlers);
        let birth = self.birth();
        // What the executor waits for, the current thread does not wait for.
        let around = self.begin_cut(promise, false);
        let (_, handler, _) = self.guarded(|solver| {
            let _ = solver.call_value(executor, None, &args, false);
            true
        });
        self.end_cut(around);
        self.note_open(promise, birth);
        self.handlers = handlers;
        if handler.any {
            // A `throw` in the executor rejects the promise. It competes with the calls of the resolvers, so it
            // also counts as a place that settles.
            self.settle_failure(promise, handler.thrown, handler.error);
            let place = self.dom.scalar(Scalar::Number(f64::from(self.place).to_bits()));
            self.settle(promise, self.known.settles, Value { deps: handler.thrown, ..place });
            self.mark_settled(promise, handler.thrown, false);
        }
        value
    }

    /// Walks a call of a resolving function.
    pub(super) fn resolve(&mut self, name: &str, this: Option<Value>, value: Value) -> Value {
        let shape = self.dom.shapes.kept(this.unwrap_or(Value::UNDEFINED).shape);
        let settled = self.settled(value);
        let (fails, error) = self.failure(value);
        self.mark_awaited(value, true);
        // The instruction's number marks who settles the promise: `first_of` sees several as a race.
        let place = self.dom.scalar(Scalar::Number(f64::from(self.place).to_bits()));
        let late = self.when_of(value);
        let when = self.dom.union(self.time.when, late);
        for one in &shape.refs {
            let Ref::Obj(promise) = one else { continue };
            self.settle(*promise, self.known.settles, place);
            self.mark_settled(*promise, NONE, shape.refs.len() == 1);
            let settlement = self.settlement_of(value);
            self.add_settlement(*promise, settlement);
            if when != NONE {
                self.settle(*promise, self.known.when, Value::computed(when));
            }
            if name == "%resolve" {
                self.settle(*promise, self.known.value, settled);
                if fails != NONE || !error.is_never() {
                    self.settle_failure(*promise, fails, error);
                }
            } else {
                let deps = self.reach(value);
                self.settle(*promise, self.known.fails, Value { deps, shape: value.shape });
            }
        }
        Value::UNDEFINED
    }
}
