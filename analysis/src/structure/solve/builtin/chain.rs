//! `then`, `catch` and `finally` of promises.

use super::*;
use crate::structure::domain::Promised;

impl Solver<'_> {
    /// Walks a call of `then`, `catch` or `finally`. If its result is awaited at once, the callbacks are walked
    /// as sequential code; otherwise they are concurrent code that settles a new promise.
    pub(super) fn chain(&mut self, name: &str, this: Value, args: &Args, wait: bool) -> Value {
        // Whether the call has a callback for failures. A failure that reaches it does not end the program.
        let handles = match name {
            "then" => args.list.len() > 1 || args.rest.is_some(),
            _ => true,
        };
        let seen = self.mark_awaited(this, handles || !self.handlers.is_empty());
        let (fails, error) = self.failure(this);
        let may_fail = fails != NONE || !error.is_never();
        let settled = self.settled(this);
        let settlement = self.settlement_of(this);
        let waits = std::cell::Cell::new(settlement);
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
                // A `then` that passes both outcomes to the resolvers of another promise settles it in any
                // case.
                let settling = solver.settles_another(callee).then_some(depth);
                let before = std::mem::replace(&mut solver.promises.settling, settling);
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
                solver.promises.settling = before;
                if let Some(given) = given {
                    solver.fails_with(given);
                    solver.adopts(given);
                    let own = solver.settlement_of(given);
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
                    // Exactly one of the two callbacks is called.
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
                    // People see a `catch` as a choice.
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
            let caught = handles || !self.handlers.is_empty();
            let fails = self.seen_to_fail(this, caught);
            self.note_settled(this, fails, None);
            self.note_wait();
            self.waits_for(this);
            let concurrent = self.end_waited(this, &seen);
            self.passes_time(this, concurrent);
            walk(self);
            self.hang(waits.get());
            return out;
        }
        self.keep_given(Some(this), args);
        // Not awaited here: make the promise that the callbacks settle.
        let promise = self.object(2, Kind::Promise);
        self.promises.unwaited.insert(promise);
        let before = self.when_of(this);
        let birth = self.birth();
        let seen = self.seen_to_fail(this, true);
        self.note_settled(this, seen, Some(promise));
        let when = self.begin_thread(before);
        let around = self.begin_cut(promise, true);
        let mut thrown = NONE;
        let mut with = Value::NEVER;
        let caught = self.promises.caught.contains(&promise);
        let walk = |solver: &mut Self| {
            // The callbacks run only if the first promise is settled.
            let may = settlement != NONE || solver.is_never_settled(this);
            solver.under(settlement, may, false, walk);
        };
        let ended =
            if caught { self.concurrently(walk) } else { self.concurrently_unguarded(walk) };
        self.end_cut(around);
        self.note_open(promise, birth);
        let waits = self.dom.union(waits.get(), ended.hangs);
        self.add_settlement(promise, waits);
        thrown = self.dom.union(thrown, ended.thrown);
        if ended.any {
            with = self.dom.join(with, ended.error);
        }
        let mut ends = ended.ends;
        // `then` and `finally` pass a failure of the first promise on.
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
        // Waiting for the new promise implies that the first one is settled.
        for one in &self.dom.shapes.kept(this.shape).refs {
            if let Ref::Obj(object) = one {
                self.threads.before.entry(promise).or_default().push(*object);
            }
        }
        if !handles {
            // Without a callback for failures, whoever handles the new promise's rejection handles that of the
            // first one.
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
        // An object that is not surely a promise may have a method of this name that the program defines.
        if is_promise { made } else { self.dom.promised(made, Promised::Perhaps) }
    }
}
