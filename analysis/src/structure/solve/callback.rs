//! Promises, functions that run beside, generators, and what goes over lists.

use super::*;
use crate::structure::core::Region;
use crate::structure::domain::{Kind, Origin, Prim, Promised, Ref};

/// The regions of a loop that the engine's own code goes round.
const EXIT: Region = Region::MAX - 1;
const TURN: Region = Region::MAX - 2;

/// What was so before something began to run beside it.
pub(super) struct Before {
    when: Deps,
    since: Birth,
    effects: usize,
}

impl Solver<'_> {
    /// Walks what is done any number of times, which `count` decides.
    pub(super) fn repeat(
        &mut self,
        count: Deps,
        over: Option<Value>,
        mut walk: impl FnMut(&mut Self) -> bool,
    ) {
        let key = (self.context(), self.place | 1 << 31);
        let at = (self.at, self.end, self.place);
        let on = self.called_on();
        self.loop_part(on, |solver| {
            solver.looped(
                key,
                u32::MAX,
                (EXIT, TURN),
                |solver| {
                    // The call before may have changed how many there are.
                    let more = over.map_or(NONE, |over| solver.iterated(over).1);
                    let count = solver.dom.union(count, more);
                    let count = if solver.follows(Rule::CallbackCount) { count } else { NONE };
                    solver.under(count, false, false, |solver| solver.jump(EXIT));
                },
                |solver| {
                    let goes_on = walk(solver);
                    (solver.at, solver.end, solver.place) = at;
                    goes_on
                },
                |_| true,
            )
        });
        (self.at, self.end, self.place) = at;
    }

    /// Calls a function once for each of something, or until what it gives is enough; returns what the
    /// calls give. `args` makes what a call is given from an item.
    pub(super) fn call_each(
        &mut self,
        callee: Value,
        this: Option<Value>,
        (count, over): (Deps, Option<Value>),
        until: bool,
        args: impl Fn(&mut Self, Option<(Value, Deps)>) -> Args,
    ) -> Value {
        let mut out = Value::NEVER;
        self.repeat(count, over, |solver| {
            let mut call = |solver: &mut Self, item: Option<(Value, Deps)>| {
                let args = args(solver, item);
                let Some(value) = solver.call_any(callee, this, &args, false) else { return false };
                out = solver.dom.join(out, value);
                if until && solver.follows(Rule::CallbackUntil) {
                    let deps = solver.reach(value);
                    solver.under(deps, false, false, |solver| solver.jump(EXIT));
                }
                true
            };
            let Some(over) = over else { return call(solver, None) };
            let (item, more) = solver.held(over);
            let count = solver.dom.union(count, more);
            let item = solver.dom.with(item, count);
            solver.with_item(solver.place | 1 << 31, item, |solver, item| {
                call(solver, Some((item, count)))
            })
        });
        out
    }

    /// Starts an async function for which nobody waits here.
    pub(super) fn start(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
    ) -> Value {
        self.keep_object(object);
        self.keep_given(this, args);
        let promise = self.object(2, Kind::Promise);
        self.unwaited.insert(promise);
        let when = self.begin_thread(NONE);
        let mut given = Value::NEVER;
        let walk = |solver: &mut Self| {
            let value = solver.walk_call(object, func, env, this, args, true, None);
            given = value.unwrap_or(Value::NEVER);
        };
        let caught = self.caught.contains(&promise);
        let end = if caught { self.beside(walk) } else { self.beside_unguarded(walk) };
        if end.any {
            self.settle_failure(promise, end.thrown, end.error);
        }
        if end.ends != NONE {
            self.settle(promise, self.known.ends, Value::computed(end.ends));
        }
        self.comes(promise, end.hangs);
        let given = self.settled(given);
        self.end_thread(when, promise);
        self.settle(promise, self.known.value, given);
        self.promise(promise)
    }

    /// Notes that something begins to run beside what follows, at a time that `deps` decide.
    pub(super) fn begin_thread(&mut self, deps: Deps) -> Before {
        let when = self.dom.union(self.when, deps);
        let since = self.birth();
        Before {
            when: std::mem::replace(&mut self.when, when),
            since: std::mem::replace(&mut self.since, since),
            effects: self.effects,
        }
    }

    /// Notes that what began to run beside this is followed; returns whether anybody may see it.
    pub(super) fn end_beside(&mut self, before: &Before) -> bool {
        (self.when, self.since) = (before.when, before.since);
        let is_seen = self.effects > before.effects;
        if is_seen && !self.is_concurrent() {
            self.since = self.birth();
        }
        is_seen
    }

    /// Notes what decides when something that ran beside has settled a promise.
    pub(super) fn end_thread(&mut self, before: Before, promise: ObjId) {
        let when = self.when;
        if self.end_beside(&before) {
            let birth = self.birth();
            self.running.insert(promise, birth);
        }
        if when != NONE {
            self.settle(promise, self.known.when, Value::computed(when));
        }
    }

    /// Returns what decides when the promises of a value are settled.
    pub(super) fn when_of(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        for one in &self.dom.shapes.kept(value.shape).refs {
            let Ref::Obj(object) = one else { continue };
            if self.heap.objects[*object as usize].kind == Kind::Promise {
                let own = self.own(*object, self.known.when);
                deps = self.dom.union(deps, own.deps);
                deps = self.dom.union(deps, value.deps);
                if let Some(cell) = self.heap.find(*object, self.known.elem) {
                    // It is settled with others.
                    let parts = self.read(cell);
                    let (parts, _) = self.iterated(parts);
                    for one in &self.dom.shapes.kept(parts.shape).refs {
                        if let Ref::Obj(part) = one {
                            let own = self.own(*part, self.known.when);
                            deps = self.dom.union(deps, own.deps);
                        }
                    }
                }
            }
        }
        deps
    }

    /// Returns what decides which of several ways to settle a promise is the first.
    fn first_of(&mut self, promise: ObjId) -> Deps {
        let settles = self.own(promise, self.known.settles);
        let is_one = settles.is_never()
            || !self.follows(Rule::PromiseFirst)
            || self.dom.shape(settles).only().is_some();
        if is_one { NONE } else { settles.deps }
    }

    /// Notes what a function is given may be seen after the call.
    pub(super) fn keep_given(&mut self, this: Option<Value>, args: &Args) {
        for value in this.into_iter().chain(args.list.iter().copied()).chain(args.rest) {
            self.keep(value);
        }
    }

    /// Puts into a promise what it gives, or why it fails.
    pub(super) fn settle(&mut self, promise: ObjId, name: NameId, value: Value) {
        self.escape_into(promise, value);
        self.hold_in_object(value, promise);
        let cell = self.heap.cell(promise, name);
        self.write(cell, value, false);
    }

    /// Puts into a promise what decides whether it fails, and with what.
    pub(super) fn settle_failure(&mut self, promise: ObjId, thrown: Deps, error: Value) {
        self.settle(promise, self.known.fails, Value { deps: thrown, shape: error.shape });
        self.settle(promise, self.known.error, error);
    }

    /// Returns what a promise is settled with by a value, without a look at failures.
    pub(super) fn settled(&mut self, value: Value) -> Value {
        let settled = self.given_by(value);
        if !self.converts {
            return settled;
        }
        let settled = self.wait_for_objects(settled);
        // Of a promise, too, a method of the program's own is called.
        self.call_then(value, settled, true)
    }

    /// Returns what the promises of a value give.
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

    /// Returns what decides whether a value is a promise that fails, and with what.
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
                    deps = self.dom.union(deps, self.pool_deps);
                    let pooled = self.pooled();
                    error = self.dom.join(error, pooled);
                }
                _ => {}
            }
        }
        (deps, error)
    }

    /// Notes that someone sees whether the promises of a value fail, or only that they end.
    ///
    /// Returns these promises.
    pub(super) fn sees(&mut self, value: Value, caught: bool) -> HashSet<ObjId> {
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
                if kind == Kind::Promise {
                    self.awaited.insert(*object);
                    if caught && self.caught.insert(*object) {
                        self.changed = true;
                    }
                }
                // A promise for several has them as its items.
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

    /// Notes that what settles promises is done: all of them, and not only the first.
    fn end_running(&mut self, value: Value, seen: &HashSet<ObjId>) {
        let mut ended: SmallVec<[ObjId; 4]> = SmallVec::new();
        for (promise, birth) in self.running.clone() {
            if !seen.contains(&promise) || self.may_since(birth) {
                continue;
            }
            let is_itself = self.dom.shape(value).refs.contains(&Ref::Obj(promise));
            if !is_itself || self.is_one(promise) {
                ended.push(promise);
            }
        }
        let is_first = self.dom.shapes.kept(value.shape).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.heap.find(*object, self.known.target).is_some(),
            _ => false,
        });
        if !is_first {
            self.running.retain(|promise, _| !ended.contains(promise));
        }
    }

    /// Returns whether something else may run while this waits.
    pub(super) fn is_concurrent(&self) -> bool {
        self.beside > 0 || self.threads || !self.running.is_empty()
    }

    /// Waits for a value.
    pub(super) fn wait(&mut self, value: Value) -> Value {
        if self.dom.shape(value).refs.is_empty() {
            self.takes_time(value);
            return value;
        }
        let caught = !self.handlers.is_empty();
        let seen = self.sees(value, caught);
        let concurrent = self.is_concurrent();
        if self.beside == 0 && !self.running.is_empty() {
            self.end_running(value, &seen);
        }
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
                self.reaches(*one, How::Awaited);
            }
        }
        if !self.is_concurrent() {
            self.when = NONE;
        } else if concurrent {
            self.takes_time(value);
        }
        self.waits_for(value);
        let settled = self.given_by(value);
        if !self.converts {
            return settled;
        }
        self.wait_for_objects(settled)
    }

    /// Notes that what follows comes later by what decides on this place and on a value.
    pub(super) fn takes_time(&mut self, value: Value) {
        if self.is_concurrent() && self.follows(Rule::Waiting) {
            // What decided before both ran is the same for both.
            let control = self.control_since(self.since);
            let when = self.when_of(value);
            let when = self.dom.union(when, control);
            self.when = self.dom.union(self.when, when);
        }
    }

    /// Notes that the program may end here with what an async function throws.
    fn ends_with(&mut self, value: Value) {
        let deps = self.ends_of(value);
        if deps != NONE {
            self.leaves(0, deps, true);
        }
    }

    /// Returns what decides whether an async function throws.
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

    /// Waits for objects that have a method `then` of the program's own.
    fn wait_for_objects(&mut self, value: Value) -> Value {
        self.call_then(value, value, false)
    }

    /// Adds to what is settled what a method `then` of `value` gives: of its promises, or of its objects.
    pub(super) fn call_then(&mut self, value: Value, settled: Value, promises: bool) -> Value {
        let shape = self.dom.shapes.kept(value.shape);
        let Some(name) = self.dom.names.known(&"then".into()) else { return settled };
        let mut out = settled;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            if (self.heap.objects[*object as usize].kind == Kind::Promise) != promises {
                continue;
            }
            if let Some(then) = self.own_method(*object, name) {
                let own = self.dom.reference(*one);
                let unknown = self.unknown(&[then, own]);
                self.hang(unknown.deps);
                out = self.dom.join(out, unknown);
            }
        }
        out
    }

    /// When nothing new is learned: a promise that nobody waits for fails without an end of the program.
    pub(super) fn doubt_promises(&mut self) -> bool {
        let mut new = false;
        for promise in self.unwaited.clone() {
            if !self.awaited.contains(&promise) {
                new |= self.caught.insert(promise);
            }
        }
        new
    }

    /// Makes a generator; its code runs as far as someone asks for values.
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
        // A generator that makes others of its kind gives to one that stands for all of them.
        let iterator = if self.is_open(func) {
            let birth = crate::structure::domain::Birth::default();
            self.heap.object(u32::MAX, object << 3, Kind::Iterator, false, birth)
        } else {
            self.object(3, Kind::Iterator)
        };
        if self.function(func).is_async {
            self.settle(iterator, self.known.later, Value::computed(NONE));
        }
        // What it is sent later is looked at by its code.
        self.keep_object(iterator);
        for name in [self.known.sent, self.known.raised] {
            let _ = self.heap.cell(iterator, name);
        }
        let driven = self.drives.get(&iterator).copied().unwrap_or(NONE);
        let may = !self.driven.contains(&iterator);
        let walk = |solver: &mut Self| {
            solver.under(driven, may, false, |solver| {
                let value = solver.walk_call(object, func, env, this, args, true, Some(iterator));
                if let Some(value) = value {
                    solver.settle(iterator, solver.known.elem, value);
                }
            });
        };
        let caught = self.caught.contains(&iterator);
        let end = if caught { self.beside(walk) } else { self.beside_unguarded(walk) };
        self.comes(iterator, end.hangs);
        let thrown = end.thrown;
        if thrown != NONE {
            self.settle(iterator, self.known.fails, Value::computed(thrown));
        }
        self.dom.reference(Ref::Obj(iterator))
    }

    /// Notes that values of a generator are asked for here; returns what decides which they are.
    pub(super) fn drive(&mut self, iterator: ObjId) -> Deps {
        if !self.follows(Rule::IteratorState) {
            return NONE;
        }
        let control = self.control_above(0);
        let before = self.drives.get(&iterator).copied().unwrap_or(NONE);
        let all = self.dom.union(before, control);
        if all != before {
            self.drives.insert(iterator, all);
            self.changed = true;
        }
        if !self.handlers.is_empty() && self.caught.insert(iterator) {
            self.changed = true;
        }
        if self.partly == 0 && !self.may_above(0) && self.driven.insert(iterator) {
            self.changed = true;
        }
        if let Some(cell) = self.heap.find(iterator, self.known.fails) {
            let fails = self.read(cell);
            self.may_fail_by(fails);
        }
        all
    }

    /// Does something that may ask generators for only some of their values.
    pub(super) fn partly<T>(&mut self, partly: bool, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.partly += u32::from(partly);
        let walked = walk(self);
        self.partly -= u32::from(partly);
        walked
    }

    /// `yield`
    pub(super) fn give(&mut self, value: Value, all: bool) -> Value {
        let Some(iterator) = self.acts.last().and_then(|act| act.iterator) else {
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
        // How many there are is decided by what decides whether this is reached.
        self.settle(iterator, self.known.length, Value::computed(count));
        let raised = self.own(iterator, self.known.raised);
        if !raised.is_never() || raised.deps != NONE {
            let before = std::mem::replace(&mut self.throwing, true);
            self.may_fail(raised.deps, raised);
            self.throwing = before;
        }
        let sent = self.own(iterator, self.known.sent);
        let driven = self.drives.get(&iterator).copied().unwrap_or(NONE);
        // What is delegated to gives a result, too.
        let sent = if all { self.dom.join(sent, given) } else { sent };
        let sent = self.dom.join(sent, Value::UNDEFINED);
        self.dom.with(sent, driven)
    }
}
