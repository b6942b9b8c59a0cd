//! Promises: settling, rejection and waiting. A promise is an object whose internal slots (`value`, `fails`,
//! `error` …) are read at each wait.

use super::*;
use crate::structure::domain::{Kind, Origin, Prim, Promised, Ref};

/// Facts about promises that are not in their slots.
#[derive(Default)]
pub(super) struct Promises {
    /// Those whose rejection something handles. Grows over the rounds.
    pub(super) caught: HashSet<ObjId>,
    /// Those that something awaits, in this round.
    pub(super) awaited: HashSet<ObjId>,
    /// Those of async functions and callbacks that were started without a wait, in this round.
    pub(super) unwaited: HashSet<ObjId>,
    /// What decides whether the end of the program cuts off the code that settles a promise. Grows over the
    /// rounds.
    pub(super) cuts: HashMap<ObjId, Deps>,
    /// What decides whether the program ends before a call is sent. Grows over the rounds.
    pub(super) unsent: HashMap<SiteId, Deps>,
    /// Whether this round has found anything that is cut off.
    pub(super) is_cut: bool,
    /// Whether cut-offs are learned: only once everything else is stable. See `learns_cut`.
    pub(super) learns_cuts: bool,
    /// The lists into which an item is surely put where they are made.
    pub(super) stocked: HashSet<ObjId>,
    /// The lists from which items may be removed.
    pub(super) emptied: HashSet<ObjId>,
    /// The number of levels around a `then` whose callbacks are the resolvers of another promise. That promise
    /// is settled with either callback, so that the levels inside do not decide whether it is.
    pub(super) settling: Option<usize>,
}

impl Promises {
    /// Resets the state of a round.
    pub(super) fn begin_round(&mut self) {
        self.awaited.clear();
        self.unwaited.clear();
        self.stocked.clear();
        self.settling = None;
        self.is_cut = false;
    }
}

impl Solver<'_> {
    /// Adds to a slot of a promise or an iterator.
    pub(super) fn settle(&mut self, promise: ObjId, name: NameId, value: Value) {
        self.escape_into(promise, value);
        self.hold_in_object(value, promise);
        let cell = self.heap.cell(promise, name);
        self.write(cell, value, false);
    }

    /// Adds to what decides whether a promise is rejected, and with what.
    pub(super) fn settle_failure(&mut self, promise: ObjId, thrown: Deps, error: Value) {
        self.settle(promise, self.known.fails, Value { deps: thrown, shape: error.shape });
        self.settle(promise, self.known.error, error);
    }

    /// Returns what a promise resolved with a value gives, apart from failures.
    pub(super) fn settled(&mut self, value: Value) -> Value {
        let settled = self.given_by(value);
        if !self.engine.converts && !self.engine.traps {
            return settled;
        }
        let settled = self.wait_for_objects(settled);
        // A promise, too, may have a method `then` that the program defines.
        self.call_then(value, settled, true)
    }

    /// Returns what the promises of a value are fulfilled with.
    fn given_by(&mut self, value: Value) -> Value {
        let shape = self.dom.shapes.kept(value.shape);
        if !self.follows(Rule::PromiseValue) {
            return Value::UNDEFINED;
        }
        let is_promise = |one: &Ref| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == Kind::Promise,
            _ => false,
        };
        if !shape.refs.iter().any(is_promise) {
            return self.dom.promised(value, Promised::No);
        }
        let mut out = Value::NEVER;
        for one in &shape.refs {
            let own = Value { deps: value.deps, shape: self.dom.shapes.of_ref(*one) };
            let value = match one {
                Ref::Obj(object) if self.heap.objects[*object as usize].kind == Kind::Promise => {
                    let given = self.own(*object, self.known.value);
                    let first = self.first_of(*object);
                    let given = self.dom.with(given, first);
                    let given = self.dom.with(given, value.deps);
                    let deep = self.heap.find(*object, self.known.value).is_some();
                    if deep { given } else { Value::UNDEFINED }
                }
                _ => own,
            };
            out = self.dom.join(out, value);
        }
        if shape.prim != Prim::None || shape.absent {
            let rest = self.dom.shapes.only_refs(value.shape, |_| false, true);
            out = self.dom.join(out, Value { deps: value.deps, shape: rest });
        }
        self.dom.promised(out, Promised::No)
    }

    /// Returns what decides whether a value is a rejected promise, and the error.
    pub(super) fn failure(&mut self, value: Value) -> (Deps, Value) {
        let shape = self.dom.shapes.kept(value.shape);
        let mut deps = NONE;
        let mut error = Value::NEVER;
        if !self.follows(Rule::PromiseFailure) {
            return (deps, error);
        }
        for one in &shape.refs {
            match one {
                Ref::Obj(object) if self.heap.objects[*object as usize].kind == Kind::Promise => {
                    let own = self.own(*object, self.known.fails);
                    if own.is_never() && own.deps == NONE {
                        continue;
                    }
                    let first = self.first_of(*object);
                    let own = self.dom.with(own, first);
                    let used = self.dom.union(own.deps, value.deps);
                    deps = self.dom.union(deps, used);
                    error = self.dom.join(error, own);
                    let with = self.own(*object, self.known.error);
                    error = self.dom.join(error, with);
                }
                Ref::Data(object, _) => {
                    // The promise of a call is the abstract value of its result. It fails if the call does.
                    let Kind::Data(Origin::Task(site)) = self.heap.objects[*object as usize].kind
                    else {
                        continue;
                    };
                    let own = self.dom.sources.one(site);
                    let own = self.dom.union(own, value.deps);
                    deps = self.dom.union(deps, own);
                    error = self.dom.join(error, Value::computed(own));
                }
                Ref::Pool => {
                    deps = self.dom.union(deps, self.escaped.deps);
                    let pooled = self.pooled();
                    error = self.dom.join(error, pooled);
                }
                _ => {}
            }
        }
        (deps, error)
    }

    /// Records that the current point fails if a promise does.
    pub(super) fn fails_with(&mut self, given: Value) {
        // The result of a call that was awaited before cannot fail again.
        let is_open = self.dom.shape(given).promised.is_promise();
        let keep = |one: &Ref| match one {
            Ref::Obj(_) | Ref::Pool => true,
            _ => is_open,
        };
        let refs = self.dom.shapes.only_refs(given.shape, keep, false);
        let given = Value { deps: given.deps, shape: refs };
        let (fails, error) = self.failure(given);
        if fails != NONE || !error.is_never() {
            self.may_fail(fails, error);
        }
    }

    /// Records that the promises of a value are awaited, and with `caught` that their rejection is handled.
    /// Returns these promises.
    pub(super) fn mark_awaited(&mut self, value: Value, caught: bool) -> HashSet<ObjId> {
        let seen = self.promises_in(value);
        for object in &seen {
            if self.heap.objects[*object as usize].kind == Kind::Promise {
                self.promises.awaited.insert(*object);
            }
        }
        if caught {
            self.mark_caught(&seen);
        }
        seen
    }

    /// Records that the rejection of promises is handled, or has no effect on the code that started them.
    pub(super) fn mark_caught(&mut self, promises: &HashSet<ObjId>) {
        for object in promises {
            if self.heap.objects[*object as usize].kind == Kind::Promise
                && self.promises.caught.insert(*object)
            {
                self.changed = true;
            }
        }
    }

    /// Returns the promises of a value and of the lists in it, with these lists.
    pub(super) fn promises_in(&mut self, value: Value) -> HashSet<ObjId> {
        let mut open: SmallVec<[Value; 8]> = smallvec::smallvec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            let shape = self.dom.shapes.kept(value.shape);
            for one in &shape.refs {
                let Ref::Obj(object) = one else { continue };
                let kind = self.heap.objects[*object as usize].kind;
                if !matches!(kind, Kind::Promise | Kind::Array) || !seen.insert(*object) {
                    continue;
                }
                // A promise for several promises holds them in its slots.
                for (_, cell) in self.heap.objects[*object as usize].keys.clone() {
                    let held = self.read(cell);
                    if !held.is_never() {
                        open.push(held);
                    }
                }
            }
        }
        seen
    }

    /// `await`
    pub(super) fn wait(&mut self, value: Value) -> Value {
        if self.dom.shape(value).refs.is_empty() {
            self.note_wait();
            self.takes_time(value);
            return value;
        }
        let caught = !self.handlers.is_empty();
        let seen = self.mark_awaited(value, caught);
        let concurrent = self.end_waited(value, &seen);
        self.note_wait();
        let fails = self.seen_to_fail(value, caught);
        self.note_settled(value, fails, None);
        if caught {
            let (deps, error) = self.failure(value);
            if deps != NONE || !error.is_never() {
                self.may_fail(deps, error);
            }
        } else {
            self.ends_with(value);
        }
        for one in &self.dom.shapes.kept(value.shape).refs {
            if matches!(one, Ref::Mcp | Ref::Namespace(_)) {
                self.tool_gap(*one, How::Awaited);
            }
        }
        self.passes_time(value, concurrent);
        self.waits_for(value);
        let settled = self.given_by(value);
        if !self.engine.converts && !self.engine.traps {
            return settled;
        }
        self.wait_for_objects(settled)
    }

    /// Returns what decides whether a value is a rejected promise, if that is possible and handled.
    pub(super) fn seen_to_fail(&mut self, value: Value, caught: bool) -> Option<Deps> {
        if !caught {
            return None;
        }
        let (deps, error) = self.failure(value);
        (deps != NONE || !error.is_never()).then_some(deps)
    }

    /// Records that the code behind a value, whose promises are `seen`, has ended, since the program waited for
    /// it. Returns whether other code was running before.
    pub(super) fn end_waited(&mut self, value: Value, seen: &HashSet<ObjId>) -> bool {
        let concurrent = self.is_concurrent();
        if self.threads.concurrent == 0 && !self.threads.running.is_empty() {
            self.end_running(value, seen);
        }
        concurrent
    }

    /// Records that what decided when a value is settled decides when the current code goes on, if other code
    /// was running during the wait (`concurrent`).
    pub(super) fn passes_time(&mut self, value: Value, concurrent: bool) {
        if !self.is_concurrent() {
            // Nothing runs concurrently any more, so that timing no longer matters.
            self.time.when = NONE;
        } else if concurrent {
            self.takes_time(value);
        }
    }

    /// Records that how long the current code takes depends on this point's label and on when a value is
    /// settled.
    pub(super) fn takes_time(&mut self, value: Value) {
        if self.is_concurrent() && self.follows(Rule::Waiting) {
            // What was decided before the concurrent code started affects the timing of both alike.
            let control = self.control_since(self.time.since);
            let when = self.when_of(value);
            let when = self.dom.union(when, control);
            self.time.when = self.dom.union(self.time.when, when);
        }
    }

    /// Records that the promise of the current code is settled with a value, if that is a promise: it takes as
    /// long as that one does.
    pub(super) fn adopts(&mut self, value: Value) {
        if self.may_be_pending(value) {
            self.takes_time(value);
        }
    }

    /// Records that the program may end here with the error of an async function.
    fn ends_with(&mut self, value: Value) {
        let deps = self.ends_of(value);
        if deps != NONE {
            self.record_exit(0, deps, true);
        }
    }

    /// Returns what decides whether the async functions behind a value throw.
    pub(super) fn ends_of(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        for one in &self.dom.shapes.kept(value.shape).refs {
            let Ref::Obj(object) = one else { continue };
            if self.heap.objects[*object as usize].kind == Kind::Promise {
                let own = self.own(*object, self.known.ends);
                deps = self.dom.union(deps, own.deps);
            }
        }
        deps
    }

    /// Waits for objects with a method `then` that the program defines.
    fn wait_for_objects(&mut self, value: Value) -> Value {
        self.call_then(value, value, false)
    }

    /// Adds to a settled value what methods `then` of the program give: those of the promises in `value`, or
    /// those of its other objects.
    pub(super) fn call_then(&mut self, value: Value, settled: Value, promises: bool) -> Value {
        let shape = self.dom.shapes.kept(value.shape);
        if shape.refs.contains(&Ref::Pool) {
            self.touch_pool(value.deps);
        }
        let Some(name) = self.dom.names.known(&"then".into()) else { return settled };
        let mut out = settled;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            if (self.heap.objects[*object as usize].kind == Kind::Promise) != promises {
                continue;
            }
            let mut unknown = None;
            let _ = self.for_one_of(value, |solver| {
                // The engine calls it with resolving functions. That call is treated as unknown code.
                if let Some(then) = solver.own_method(*object, name) {
                    let own = solver.dom.reference(*one);
                    unknown = Some(solver.unknown(&[then, own]));
                }
                Value::NEVER
            });
            if let Some(unknown) = unknown {
                // It may never call them.
                self.hang(unknown.deps);
                out = self.dom.join(out, unknown);
            }
        }
        out
    }
}
