//! Functions that run beside what follows, and when what they settle is settled.

use super::*;
use crate::structure::domain::{Kind, Ref};

/// What was so before something began to run beside it.
pub(super) struct Before {
    when: Deps,
    since: Birth,
    effects: usize,
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
}
