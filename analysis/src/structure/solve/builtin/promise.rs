//! Promises, timers, functions that are bound, and iterators that are asked.

use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::Promised;

impl Solver<'_> {
    /// `Promise.all` and its like.
    pub(super) fn of_promises(
        &mut self,
        name: &str,
        this: Option<Value>,
        args: &Args,
        _: bool,
    ) -> Value {
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
                    return self.dom.promised(first, Promised::Surely);
                }
                let (fails, error) = self.failure(first);
                let settled = self.settled(first);
                let promise = self.object(1, Kind::Promise);
                self.settle(promise, self.known.value, settled);
                if fails != NONE || !error.is_never() {
                    self.settle_failure(promise, fails, error);
                }
                let comes = self.comes_of(first);
                self.comes(promise, comes);
                let ends = self.ends_of(first);
                if ends != NONE {
                    self.settle(promise, self.known.ends, Value::computed(ends));
                }
                self.promise(promise)
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
                self.sees(first, true);
                let all = match self.exact_items(first) {
                    Some(items) => {
                        let place = self.place;
                        let mut outcomes = Vec::new();
                        for (index, item) in items.into_iter().enumerate() {
                            // Each of them is an object of its own.
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
                    self.sees(first, true);
                }
                let (mut fails, mut error) = self.failure_of_items(first);
                if name == "Promise.any" && !error.is_never() {
                    error = self.all_errors(error);
                }
                let (item, count) = self.iterated(first);
                if name == "Promise.any" && !self.has_items(first) {
                    // That there is none is a failure, too.
                    fails = self.dom.union(fails, count);
                    error = self.dom.join(error, Value::computed(count));
                }
                // Which of them is the first is in how long they take.
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
                    // That there is none is no end.
                    self.comes_by(made, count);
                }
                // Others may still run when it is settled.
                self.set_own(made, self.known.target, Value::computed(NONE));
                made
            }
            "Promise.withResolvers" => {
                let promise = self.object(1, Kind::Promise);
                self.is_resolved_later(promise);
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

    /// Makes what tells how a promise ended.
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

    /// Makes the error that has those with which all promises failed.
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

    /// Notes that what hands on a promise fails as that does.
    pub(in crate::structure::solve) fn fails_with(&mut self, given: Value) {
        // What is waited for already fails no more.
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

    /// Returns what decides whether a value cannot be gone over, and with what that fails.
    fn fails_to_iterate(&mut self, list: Value) -> (Deps, Value) {
        let shape = self.dom.shapes.kept(list.shape);
        let deps = self.dom.sources.used(list.deps);
        let mut fails = NONE;
        let mut may_fail = shape.absent || shape.prim != crate::structure::domain::Prim::None;
        for one in &shape.refs {
            let Ref::Obj(object) = one else {
                may_fail = true;
                if *one == Ref::Pool {
                    fails = self.dom.union(fails, self.pool_deps);
                }
                continue;
            };
            let known = &self.heap.objects[*object as usize];
            let is_list =
                matches!(known.kind, Kind::Array | Kind::Map | Kind::Set | Kind::Iterator);
            if known.escaped {
                fails = self.dom.union(fails, self.pool_deps);
            }
            may_fail |= !is_list || known.escaped;
            if known.kind == Kind::Iterator {
                // The code of a generator may fail.
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

    /// Returns whether a list is known to have an item.
    fn has_items(&mut self, list: Value) -> bool {
        if let Some(items) = self.exact_items(list) {
            return !items.is_empty();
        }
        let shape = self.dom.shapes.kept(list.shape);
        let is_stocked = |one: &Ref| match one {
            Ref::Obj(object) => {
                self.stocked.contains(object)
                    && !self.emptied.contains(object)
                    && !self.heap.objects[*object as usize].escaped
            }
            _ => false,
        };
        shape.prim == crate::structure::domain::Prim::None
            && !shape.absent
            && shape.refs.iter().all(is_stocked)
    }

    /// Makes a promise for what several promises give.
    fn promise_of(&mut self, parts: Value, value: Value, fails: Deps, error: Value) -> Value {
        let promise = self.object(2, Kind::Promise);
        self.settle(promise, self.known.value, value);
        if fails != NONE || !error.is_never() {
            self.settle_failure(promise, fails, error);
        }
        let (item, _) = self.iterated(parts);
        let comes = self.comes_of(item);
        self.comes(promise, comes);
        let ends = if fails == NONE { NONE } else { self.ends_of(item) };
        if ends != NONE {
            self.settle(promise, self.known.ends, Value::computed(ends));
        }
        // Who waits for it waits for all of them.
        self.settle(promise, self.known.elem, parts);
        self.promise(promise)
    }

    fn resolver(&mut self, part: u32, name: &str, promise: Value) -> Value {
        let bound = self.make(part, Kind::Bound);
        let name = self.dom.name(&name.into());
        let target = self.dom.reference(Ref::Builtin(name));
        self.set_own(bound, self.known.target, target);
        self.set_own(bound, self.known.this, promise);
        bound
    }

    pub(super) fn new_promise(&mut self, executor: Value) -> Value {
        let promise = self.object(1, Kind::Promise);
        self.is_resolved_later(promise);
        let value = self.promise(promise);
        let resolve = self.resolver(3, "%resolve", value);
        let reject = self.resolver(4, "%reject", value);
        let args = Args { list: smallvec::smallvec![resolve, reject], rest: None };
        self.settle(promise, self.known.value, Value::NEVER);
        let handlers = std::mem::take(&mut self.handlers);
        let (_, handler, _) = self.guarded(|solver| {
            let _ = solver.call_value(executor, None, &args, true);
            true
        });
        self.handlers = handlers;
        if handler.any {
            self.settle_failure(promise, handler.thrown, handler.error);
            let place = self.dom.scalar(Scalar::Number(f64::from(self.place).to_bits()));
            self.settle(promise, self.known.settles, Value { deps: handler.thrown, ..place });
            self.is_done(promise, handler.thrown, false);
        }
        value
    }

    pub(super) fn resolve(&mut self, name: &str, this: Option<Value>, value: Value) -> Value {
        let shape = self.dom.shapes.kept(this.unwrap_or(Value::UNDEFINED).shape);
        let settled = self.settled(value);
        let (fails, error) = self.failure(value);
        self.sees(value, true);
        let place = self.dom.scalar(Scalar::Number(f64::from(self.place).to_bits()));
        let late = self.when_of(value);
        let when = self.dom.union(self.when, late);
        for one in &shape.refs {
            let Ref::Obj(promise) = one else { continue };
            self.settle(*promise, self.known.settles, place);
            self.is_done(*promise, NONE, shape.refs.len() == 1);
            let comes = self.comes_of(value);
            self.comes(*promise, comes);
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

    /// `then`, `catch` and `finally`.
    pub(super) fn chain(&mut self, name: &str, this: Value, args: &Args, wait: bool) -> Value {
        // An object of the program's own may have such a method that was lost on the way.
        let handles = match name {
            "then" => args.list.len() > 1 || args.rest.is_some(),
            _ => true,
        };
        self.sees(this, handles || !self.handlers.is_empty());
        let (fails, error) = self.failure(this);
        let may_fail = fails != NONE || !error.is_never();
        let settled = self.settled(this);
        let comes = self.comes_of(this);
        let waits = std::cell::Cell::new(comes);
        let at = (self.at, self.end, self.place);
        let (first, second, on) = (self.arg(args, 0), self.arg(args, 1), self.called_on());
        let mut out = Value::NEVER;
        let mut walk = |solver: &mut Self| {
            let depth = solver.levels.len();
            let done = |solver: &mut Self, callee: Value, args: Args, failed: bool| {
                if solver.dom.shape(callee).refs.is_empty() {
                    return None;
                }
                (solver.at, solver.end, solver.place) = at;
                // Who hands on success and failure alike settles the promise in the end.
                let settling = solver.settles_another(callee).then_some(depth);
                let before = std::mem::replace(&mut solver.settling, settling);
                let mut given = None;
                let deps = if failed { fails } else { NONE };
                let mut call = |solver: &mut Self| {
                    given = Some(solver.under(deps, failed, false, |solver| {
                        let value = solver.call_any(callee, None, &args, true);
                        value.unwrap_or(Value::NEVER)
                    }));
                    true
                };
                if failed {
                    solver.fork(deps, &mut call, |_| true)
                } else {
                    call(solver)
                };
                (solver.at, solver.end, solver.place) = at;
                solver.settling = before;
                if let Some(given) = given {
                    solver.fails_with(given);
                    solver.takes_time(given);
                    let own = solver.comes_of(given);
                    waits.set(solver.dom.union(waits.get(), own));
                }
                given
            };
            let failed = solver.dom.with(error, fails);
            let failed = if failed.is_never() { Value::computed(fails) } else { failed };
            let with = |value: Value| Args { list: smallvec::smallvec![value], rest: None };
            out = match name {
                "then" => {
                    if !solver.handlers.is_empty() && args.list.len() < 2 && may_fail {
                        solver.may_fail(fails, failed);
                    }
                    // With two of them, one is called.
                    let is_either = args.list.len() > 1 && may_fail;
                    let fails = if is_either { fails } else { NONE };
                    let mut given = settled;
                    if !is_either {
                        given = done(solver, first, with(settled), false).unwrap_or(settled);
                    } else {
                        let mut walked = None;
                        solver.fork(
                            fails,
                            |solver| {
                                walked = solver.under(fails, true, false, |solver| {
                                    done(solver, first, with(settled), false)
                                });
                                true
                            },
                            |_| true,
                        );
                        given = walked.unwrap_or(given);
                    }
                    match done(solver, second, with(failed), true) {
                        Some(other) => {
                            let joined = solver.dom.join(given, other);
                            solver.dom.with(joined, fails)
                        }
                        None => given,
                    }
                }
                "catch" => {
                    let part = FoundKind::Decision { test: on, deps: fails };
                    let given = solver.part(part, |solver| {
                        done(solver, first, with(failed), true).unwrap_or(Value::NEVER)
                    });
                    let given = solver.settled(given);
                    let joined = solver.dom.join(settled, given);
                    solver.dom.with(joined, fails)
                }
                _ => {
                    if !solver.handlers.is_empty() && may_fail {
                        solver.may_fail(fails, failed);
                    }
                    let _ = done(solver, first, Args::default(), false);
                    settled
                }
            };
            out = solver.settled(out);
        };
        if wait {
            self.waits_for(this);
            walk(self);
            self.hang(waits.get());
            return out;
        }
        self.keep_given(Some(this), args);
        let promise = self.object(2, Kind::Promise);
        self.unwaited.insert(promise);
        let before = self.when_of(this);
        let when = self.begin_thread(before);
        let mut thrown = NONE;
        let mut with = Value::NEVER;
        let caught = self.caught.contains(&promise);
        let walk = |solver: &mut Self| {
            let may = comes != NONE || solver.never_comes(this);
            solver.under(comes, may, false, walk);
        };
        let ended = if caught { self.beside(walk) } else { self.beside_unguarded(walk) };
        let waits = self.dom.union(waits.get(), ended.hangs);
        self.comes(promise, waits);
        thrown = self.dom.union(thrown, ended.thrown);
        if ended.any {
            with = self.dom.join(with, ended.error);
        }
        let mut ends = ended.ends;
        if name != "catch" {
            let own = self.ends_of(this);
            ends = self.dom.union(ends, own);
        }
        if ends != NONE {
            self.settle(promise, self.known.ends, Value::computed(ends));
        }
        (self.at, self.end, self.place) = at;
        self.end_thread(when, promise);
        self.settle(promise, self.known.value, out);
        if !handles {
            // Who sees that this one fails sees that the other does.
            self.settle(promise, self.known.elem, this);
        }
        if name != "catch" {
            thrown = self.dom.union(thrown, fails);
            with = self.dom.join(with, error);
        }
        if thrown != NONE || !with.is_never() {
            self.settle_failure(promise, thrown, with);
        }
        let made = self.promise(promise);
        let is_promise = self.is_promise(this);
        // What is no promise may have a method of that name of its own.
        if is_promise { made } else { self.dom.promised(made, Promised::Perhaps) }
    }

    /// `call`, `apply` and `bind`; `this` is the function.
    pub(super) fn applied(&mut self, name: &str, this: Value, args: &Args, wait: bool) -> Value {
        let own = self.arg(args, 0);
        let mut rest = args.clone();
        if !rest.list.is_empty() {
            rest.list.remove(0);
        }
        let is_data = self.dom.shape(this).refs.iter().any(|one| matches!(one, Ref::Data(..)));
        // A part of a text that is not known may be a method of it.
        if is_data || self.dom.shape(this).prim == crate::structure::domain::Prim::Any {
            return self.unknown_call(Some(this), args);
        }
        match name {
            "call" => self.call_any(this, Some(own), &rest, wait).unwrap_or(Value::NEVER),
            "apply" => {
                let list = self.arg(args, 1);
                let given = match self.spread_items(list) {
                    (Some(items), _) => Args { list: items.into(), rest: None },
                    (None, some) => Args { list: SmallVec::new(), rest: Some(some) },
                };
                self.call_any(this, Some(own), &given, wait).unwrap_or(Value::NEVER)
            }
            _ => {
                let bound = self.make(0, Kind::Bound);
                self.set_own(bound, self.known.target, this);
                self.set_own(bound, self.known.this, own);
                let list = self.make(1, Kind::Array);
                rest.list.iter().for_each(|value| self.push(list, *value, false));
                if let Some(some) = rest.rest {
                    self.push_some(list, some, some.deps);
                }
                self.set_own(bound, self.known.elem, list);
                bound
            }
        }
    }

    /// Returns what a bound function is given first.
    pub(in crate::structure::solve) fn bound_args(
        &mut self,
        list: Value,
    ) -> (Option<Vec<Value>>, Value) {
        if self.dom.shape(list).refs.is_empty() {
            return (Some(Vec::new()), Value::NEVER);
        }
        self.spread_items(list)
    }

    /// `next`, `return` and `throw` of an iterator.
    pub(super) fn advance(&mut self, name: &str, this: Value, args: &Args) -> Value {
        let shape = self.dom.shapes.kept(this.shape);
        let sent = self.arg(args, 0);
        let known = |one: &Ref| match one {
            Ref::Obj(object) => {
                matches!(self.heap.objects[*object as usize].kind, Kind::Iterator | Kind::Array)
            }
            _ => false,
        };
        if shape.refs.is_empty() || !shape.refs.iter().all(known) {
            return self.unknown_call(Some(this), args);
        }
        let mut later = false;
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let name = if name == "throw" { self.known.raised } else { self.known.sent };
                let control = self.control_above(0);
                let sent = self.dom.with(sent, control);
                self.settle(*object, name, sent);
                later |= self.heap.find(*object, self.known.later).is_some();
            }
        }
        if name == "throw" {
            // What nobody catches in the generator is thrown here.
            let before = std::mem::replace(&mut self.throwing, true);
            self.may_fail(sent.deps, sent);
            self.throwing = before;
        }
        let (mut item, mut count) = self.partly(true, |solver| solver.iterated(this));
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let driven = self.partly(true, |solver| solver.drive(*object));
                count = self.dom.union(count, driven);
            }
        }
        if name == "return" {
            item = self.dom.join(item, sent);
        }
        let item = self.dom.join(item, Value::UNDEFINED);
        let item = self.dom.with(item, count);
        let made = self.make(1, Kind::Plain);
        let value = self.dom.name(&"value".into());
        self.set_own(made, value, item);
        let done = self.dom.name(&"done".into());
        self.set_own(made, done, Value::computed(count));
        if !later {
            return made;
        }
        let promise = self.object(2, Kind::Promise);
        self.settle(promise, self.known.value, made);
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let fails = self.own(*object, self.known.fails);
                if !fails.is_never() || fails.deps != NONE {
                    self.settle(promise, self.known.fails, fails);
                }
            }
        }
        if name == "throw" {
            self.settle(promise, self.known.fails, sent);
        }
        for one in &shape.refs {
            if let Ref::Obj(object) = one {
                let comes = self.own(*object, self.known.comes);
                self.comes(promise, comes.deps);
            }
        }
        self.dom.reference(Ref::Obj(promise))
    }

    /// Timers: what they call runs later, unless it is stopped.
    pub(super) fn later(&mut self, name: &str, args: &Args) -> Value {
        let callee = self.arg(args, 0);
        let skip = if matches!(name, "setTimeout" | "setInterval") { 2 } else { 1 };
        let given = Args { list: args.list.iter().skip(skip).copied().collect(), rest: args.rest };
        self.keep_given(None, args);
        let cancels = if self.follows(Rule::TimerStopped) { self.cancels } else { NONE };
        let many = name == "setInterval";
        let may = cancels != NONE || many;
        // How long it takes decides what comes before it.
        let delay = if skip == 2 { self.arg(args, 1) } else { Value::UNDEFINED };
        let mut late = self.convert(delay);
        let control = self.control_above(0);
        for deps in [delay.deps, control, self.when] {
            late = self.dom.union(late, deps);
        }
        let late = self.dom.sources.used(late);
        let late = if self.follows(Rule::TimerDelay) { late } else { NONE };
        let clock = self.dom.union(self.clock, late);
        let timers = self.dom.union(self.timers, control);
        self.changed |= clock != self.clock || timers != self.timers;
        (self.clock, self.timers) = (clock, timers);
        let before = self.begin_thread(late);
        let at = (self.at, self.end, self.place);
        let is_text = self.dom.shape(callee).refs.is_empty()
            && !matches!(self.dom.shape(callee).only(), Some(Scalar::Undefined));
        if is_text {
            self.gap(Code::DynamicEval, About::Change);
        }
        let _ = self.beside(|solver| {
            solver.under(cancels, may, many, |solver| {
                let _ = solver.call_value(callee, None, &given, false);
            });
        });
        (self.at, self.end, self.place) = at;
        self.threads |= self.end_beside(&before);
        Value::computed(self.timers)
    }
}
