//! Functions that run beside what follows, and when what they settle is settled.

use super::*;
use crate::structure::domain::{Kind, Ref};

/// What was so before something began to run beside it.
pub(super) struct Before {
    when: Deps,
    since: Birth,
    effects: usize,
}

/// What runs beside what.
#[derive(Default)]
pub(super) struct Threads {
    /// How many of the functions that are walked run beside others.
    pub(super) beside: u32,
    /// How many of them run when timers say so.
    pub(super) timers: u32,
    /// Whether something runs beside the program whose end nobody waits for.
    pub(super) left: bool,
    /// What runs beside the program and changes something, by its promise.
    pub(super) running: HashMap<ObjId, Birth>,
    /// The promises that are settled before another one is, which `then`, `catch` or `finally` made of them.
    pub(super) before: HashMap<ObjId, SmallVec<[ObjId; 2]>>,
    /// How much was changed that others may see.
    pub(super) effects: usize,
    /// The level of what is walked beside others, and what decides whether it waits for ever.
    pub(super) level: usize,
    pub(super) hangs: Deps,
    pub(super) cuts: super::cut::Cuts,
}

impl Threads {
    pub(super) fn begin_round(&mut self) {
        let effects = self.effects;
        *self = Self { effects, ..Self::default() };
    }
}

/// What decides when something happens.
#[derive(Default)]
pub(super) struct Time {
    /// When the code that is walked runs, beyond what decides whether it does.
    pub(super) when: Deps,
    /// Where what runs beside others began to.
    pub(super) since: Birth,
    /// Whether timers are stopped.
    pub(super) cancels: Deps,
    /// Which numbers timers have, what the clock shows, and what is drawn by chance.
    pub(super) timers: Deps,
    pub(super) clock: Deps,
    /// Whether the program ends at a `return`, and what decides when.
    pub(super) returns: Option<Deps>,
    pub(super) chance: Deps,
}

impl Solver<'_> {
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
        self.promises.unwaited.insert(promise);
        let birth = self.birth();
        let when = self.begin_thread(NONE);
        let around = self.begin_cut(promise, false);
        let mut given = Value::NEVER;
        let walk = |solver: &mut Self| {
            let value = solver.walk_call(object, func, env, this, args, true, None);
            given = value.unwrap_or(Value::NEVER);
        };
        let caught = self.promises.caught.contains(&promise);
        let end = if caught { self.beside(walk) } else { self.beside_unguarded(walk) };
        self.end_cut(around);
        self.opens(promise, birth);
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
        let when = self.dom.union(self.time.when, deps);
        let since = self.birth();
        Before {
            when: std::mem::replace(&mut self.time.when, when),
            since: std::mem::replace(&mut self.time.since, since),
            effects: self.threads.effects,
        }
    }

    /// Notes that what began to run beside this is followed; returns whether anybody may see it.
    pub(super) fn end_beside(&mut self, before: &Before) -> bool {
        (self.time.when, self.time.since) = (before.when, before.since);
        let is_seen = self.threads.effects > before.effects;
        if is_seen && !self.is_concurrent() {
            self.time.since = self.birth();
        }
        is_seen
    }

    /// Notes what decides when something that ran beside has settled a promise.
    pub(super) fn end_thread(&mut self, before: Before, promise: ObjId) {
        let when = self.time.when;
        if self.end_beside(&before) {
            let birth = self.birth();
            self.threads.running.insert(promise, birth);
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
    pub(super) fn first_of(&mut self, promise: ObjId) -> Deps {
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

    /// Notes that what settles promises is done: all of them, and not only the first.
    pub(super) fn end_running(&mut self, value: Value, seen: &HashSet<ObjId>) {
        let mut ended: SmallVec<[ObjId; 4]> = SmallVec::new();
        for (promise, birth) in self.threads.running.clone() {
            if !seen.contains(&promise) || self.may_since(birth) {
                continue;
            }
            let is_itself = self.dom.shape(value).refs.contains(&Ref::Obj(promise));
            if !is_itself || self.is_one(promise) {
                ended.push(promise);
            }
        }
        let mut place = 0;
        while let Some(promise) = ended.get(place).copied() {
            place += 1;
            for before in self.threads.before.get(&promise).into_iter().flatten() {
                let birth = self.threads.running.get(before);
                if birth.is_some_and(|birth| !self.may_since(*birth)) && !ended.contains(before) {
                    ended.push(*before);
                }
            }
        }
        let is_first = self.dom.shapes.kept(value.shape).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.heap.find(*object, self.known.target).is_some(),
            _ => false,
        });
        if !is_first {
            self.threads.running.retain(|promise, _| !ended.contains(promise));
        }
    }

    /// Returns whether something else may run while this waits.
    pub(super) fn is_concurrent(&self) -> bool {
        self.threads.beside > 0 || self.threads.left || !self.threads.running.is_empty()
    }

    /// When nothing new is learned: a promise that nobody waits for fails without an end of the program.
    pub(super) fn doubt_promises(&mut self) -> bool {
        let mut new = false;
        for promise in self.promises.unwaited.clone() {
            if !self.promises.awaited.contains(&promise) {
                new |= self.promises.caught.insert(promise);
            }
        }
        new
    }
}
