//! Concurrent code: async functions that are not awaited, callbacks of promises, and timers.
//!
//! Such code is walked where it is started, with `Threads::concurrent` raised: its writes are weak and visible at
//! any time, and it sees all writes of the program. *When* it runs is a flow of its own: what decides how long
//! it waits decides which writes it sees, and which code sees its writes.

use super::*;
use crate::structure::domain::{Kind, Prim, Promised, Ref};

/// The timing state of the enclosing code, saved while concurrent code is walked.
pub(super) struct SavedTime {
    /// See [`Time`].
    when: Deps,
    /// See [`Time`].
    since: Birth,
    /// `Threads::effects` at the start, to tell whether the code has any.
    effects: usize,
}

/// The concurrent code of a round.
#[derive(Default)]
pub(super) struct Threads {
    /// How many of the functions on the call stack run concurrently with their callers. Zero: the program's own
    /// sequential code.
    pub(super) concurrent: u32,
    /// Whether concurrent code with effects was started whose end nothing can await: a timer.
    pub(super) left: bool,
    /// The promises of concurrent code that has effects and may still run, each with the point where it was
    /// started.
    pub(super) running: HashMap<ObjId, Birth>,
    /// For each promise made by `then`, `catch` or `finally`: the promises that are settled before it is.
    pub(super) before: HashMap<ObjId, SmallVec<[ObjId; 2]>>,
    /// Counts the effects that other code may see: writes, calls of tools, and unknown code.
    pub(super) effects: usize,
    /// The index of the level at which the current thread begins.
    pub(super) level: usize,
    /// What decides whether the current thread waits forever.
    pub(super) hangs: Deps,
    /// What the end of the program cuts off.
    pub(super) cuts: super::cut::Cuts,
}

impl Threads {
    /// Resets the state of a round. `effects` is only ever compared, so it keeps counting.
    pub(super) fn begin_round(&mut self) {
        let effects = self.effects;
        *self = Self { effects, ..Self::default() };
    }
}

/// What decides when things happen, and the engine's hidden state.
#[derive(Default)]
pub(super) struct Time {
    /// What decides when the current code runs, apart from whether it does.
    pub(super) when: Deps,
    /// The point from which on concurrent code has been running. What decided before it is the same for both.
    pub(super) since: Birth,
    /// What decides whether a timer is cleared; grows over the rounds.
    pub(super) cancels: Deps,
    /// What decides which numbers timers get.
    pub(super) timers: Deps,
    /// What decides what the clock shows: the delays of timers.
    pub(super) clock: Deps,
    /// What decides when the program ends at a `return`, if it does.
    pub(super) returns: Option<Deps>,
    /// What decides how many random numbers were drawn before, and so which one is next.
    pub(super) random: Deps,
}

impl Solver<'_> {
    /// Starts an async function whose call is not awaited.
    pub(super) fn start_async(
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
            solver.adopts(given);
        };
        // Whether something handles the promise's rejection is known from earlier rounds only. If nothing does,
        // a failure in it ends the program and is no exit.
        let caught = self.promises.caught.contains(&promise);
        let end = if caught { self.concurrently(walk) } else { self.concurrently_unguarded(walk) };
        self.end_cut(around);
        self.note_open(promise, birth);
        if end.any {
            self.settle_failure(promise, end.thrown, end.error);
        }
        if end.ends != NONE {
            self.settle(promise, self.known.ends, Value::computed(end.ends));
        }
        self.add_settlement(promise, end.hangs);
        let given = self.settled(given);
        self.end_thread(when, promise);
        self.settle(promise, self.known.value, given);
        self.promise(promise)
    }

    /// Begins the walk of concurrent code, which starts at a time that `deps` decide.
    pub(super) fn begin_thread(&mut self, deps: Deps) -> SavedTime {
        let when = self.dom.union(self.time.when, deps);
        let since = self.birth();
        SavedTime {
            when: std::mem::replace(&mut self.time.when, when),
            since: std::mem::replace(&mut self.time.since, since),
            effects: self.threads.effects,
        }
    }

    /// Ends it; returns whether it has effects that other code may see.
    pub(super) fn end_concurrent(&mut self, before: &SavedTime) -> bool {
        (self.time.when, self.time.since) = (before.when, before.since);
        let is_seen = self.threads.effects > before.effects;
        if is_seen && !self.is_concurrent() {
            // The first concurrent code: from here on, timing matters.
            self.time.since = self.birth();
        }
        is_seen
    }

    /// Ends the walk of concurrent code that settles a promise.
    pub(super) fn end_thread(&mut self, before: SavedTime, promise: ObjId) {
        let when = self.time.when;
        if self.end_concurrent(&before) {
            let birth = self.birth();
            self.threads.running.insert(promise, birth);
        }
        if when != NONE {
            self.settle(promise, self.known.when, Value::computed(when));
        }
    }

    /// Returns what decides when the promises of a value are settled.
    pub(super) fn when_of(&mut self, value: Value) -> Deps {
        let mut seen: SmallVec<[ObjId; 8]> = SmallVec::new();
        let mut open: SmallVec<[Value; 4]> = smallvec::smallvec![value];
        let mut deps = NONE;
        while let Some(value) = open.pop() {
            let shape = self.dom.shapes.kept(value.shape);
            let is_choice = shape.refs.len() > 1 || shape.prim != Prim::None || shape.absent;
            if is_choice && self.may_be_pending(value) {
                // What decides which promise it is, or whether it is one.
                deps = self.dom.union(deps, value.deps);
            }
            for one in &shape.refs {
                let Ref::Obj(object) = one else { continue };
                if self.heap.objects[*object as usize].kind != Kind::Promise
                    || seen.contains(object)
                {
                    continue;
                }
                seen.push(*object);
                let own = self.own(*object, self.known.when);
                deps = self.dom.union(deps, own.deps);
                deps = self.dom.union(deps, value.deps);
                let Some(cell) = self.heap.find(*object, self.known.elem) else { continue };
                // `Promise.all` and its like are settled when their parts are. A promise made by `then` has
                // the one before it here, which is in `when` already.
                let parts = self.read(cell);
                let kinds = &self.heap.objects;
                let is_list = |one: &Ref| match one {
                    Ref::Obj(part) => kinds[*part as usize].kind != Kind::Promise,
                    _ => true,
                };
                let lists = self.dom.shapes.only_refs(parts.shape, is_list, false);
                let (part, count) = self.iterated(Value { deps: parts.deps, shape: lists });
                if self.may_be_pending(part) {
                    deps = self.dom.union(deps, count);
                    open.push(part);
                }
            }
        }
        deps
    }

    /// Returns whether a value may be a promise that is not settled yet.
    pub(super) fn may_be_pending(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        shape.refs.iter().any(|one| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == Kind::Promise,
            Ref::Data(..) => !matches!(shape.promised, Promised::No | Promised::Awaited),
            Ref::Pool => true,
            _ => false,
        })
    }

    /// Returns what decides which of several calls of a promise's resolvers comes first.
    pub(super) fn first_of(&mut self, promise: ObjId) -> Deps {
        let settles = self.own(promise, self.known.settles);
        let is_one = settles.is_never()
            || !self.follows(Rule::PromiseFirst)
            || self.dom.shape(settles).only().is_some();
        if is_one { NONE } else { settles.deps }
    }

    /// Marks the arguments of a call as kept: concurrent code uses them after the call has returned.
    pub(super) fn keep_given(&mut self, this: Option<Value>, args: &Args) {
        for value in this.into_iter().chain(args.list.iter().copied()).chain(args.rest) {
            self.keep(value);
        }
    }

    /// Records that the code which settles the promises `seen` in a value has ended, since the value was
    /// awaited. For `race` and `any` only the first one has.
    pub(super) fn end_running(&mut self, value: Value, seen: &HashSet<ObjId>) {
        let mut ended: SmallVec<[ObjId; 4]> = SmallVec::new();
        for (promise, birth) in self.threads.running.clone() {
            // This wait is conditional, given the start of the code.
            if !seen.contains(&promise) || self.may_since(birth) {
                continue;
            }
            let is_itself = self.dom.shape(value).refs.contains(&Ref::Obj(promise));
            if !is_itself || self.is_one(promise) {
                ended.push(promise);
            }
        }
        // So has the code of every promise that is settled before one of these.
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

    /// Returns whether other code may run while the current code waits.
    pub(super) fn is_concurrent(&self) -> bool {
        self.threads.concurrent > 0 || self.threads.left || !self.threads.running.is_empty()
    }

    /// Called when nothing new is learned: a promise that nothing awaits may be rejected without ending the
    /// program. Returns whether there are such promises that were taken to be awaited.
    pub(super) fn recheck_promises(&mut self) -> bool {
        let mut new = false;
        for promise in self.promises.unwaited.clone() {
            if !self.promises.awaited.contains(&promise) {
                new |= self.promises.caught.insert(promise);
            }
        }
        new
    }
}
