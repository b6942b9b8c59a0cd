//! The instructions that contain blocks: choices, loops, regions and `try`.

use super::*;
use crate::structure::core::{Appearance, Branch, Inst, Mark, Op, Region, Scalar, Slot};
use crate::structure::domain::{Kind, Promised};

/// The length of the word `try`.
const TRY: u32 = 3;

impl<'a> Solver<'a> {
    /// Walks an instruction that contains blocks; returns whether the next one is reached.
    pub(super) fn control(&mut self, inst: &'a Inst) -> bool {
        match &inst.op {
            Op::If { cond, then, other, appears } => {
                let cond = self.slot(*cond);
                let deps = self.decides(cond);
                if *appears == Appearance::Test {
                    self.take_way(Branch::Body);
                }
                // The condition is a constant without sources: only one way is reachable. A decision that
                // people see is still shown with both ways.
                match self.truth(cond) {
                    Some(true) if matches!(appears, Appearance::Hidden | Appearance::Test) => {
                        return self.under(deps, false, false, |solver| solver.run(then));
                    }
                    Some(false) if matches!(appears, Appearance::Hidden | Appearance::Test) => {
                        return self.under(deps, false, false, |solver| solver.run(other));
                    }
                    _ => {}
                }
                // That a loop's body may run zero times is already covered by the level of its turns (`many`).
                let may = *appears != Appearance::Test;
                let walk = |solver: &mut Self, ways: [Option<Branch>; 2]| {
                    solver.fork(
                        deps,
                        |solver| solver.taken(deps, may, ways[0], then),
                        |solver| solver.taken(deps, may, ways[1], other),
                    )
                };
                match *appears {
                    Appearance::Hidden | Appearance::Test => walk(self, [None, None]),
                    Appearance::Way(way) => walk(self, [Some(way), None]),
                    Appearance::Decision { test } => self
                        .part(FoundKind::Decision { test, deps }, |solver| {
                            walk(solver, [Some(Branch::Then), Some(Branch::Else)])
                        }),
                    Appearance::Either { test } => self
                        .part(FoundKind::Decision { test, deps }, |solver| {
                            walk(solver, [Some(Branch::Then); 2])
                        }),
                }
            }
            Op::Marked { mark, body } => match *mark {
                Mark::Decision { of, test } => {
                    let of = self.slot(of);
                    let deps = self.decides(of);
                    self.part(FoundKind::Decision { test, deps }, |solver| solver.run(body))
                }
                Mark::Fork { how } => self.part(FoundKind::Fork { how }, |solver| solver.run(body)),
                Mark::Way(way) => self.way(way, |solver| solver.run(body)),
            },
            // The body fails in any case, but getters and conversions in it may have other effects first.
            Op::Doomed { body } if self.core.accessors || self.engine.converts => self.run(body),
            // A failure in it leads where the program goes anyway, so it decides nothing.
            Op::Doomed { body } => {
                self.tries.doomed += 1;
                let goes_on = self.run(body);
                self.tries.doomed -= 1;
                goes_on
            }
            Op::Loop { serial, exit, turn, over, tests_last, body, after } => {
                let key = (self.context(), inst.id);
                // `do … while` tests after the body; `for` updates after it.
                let (first, last) = match tests_last {
                    true => (Branch::Body, Branch::Test),
                    false => (Branch::Test, Branch::Update),
                };
                let looped = self.loop_part(*over, |solver| {
                    solver.take_way(if is_tested(body) { first } else { Branch::Body });
                    solver.looped(
                        key,
                        *serial,
                        (*exit, *turn),
                        |_| {},
                        |solver| solver.run(body),
                        |solver| solver.way(last, |solver| solver.run(after)),
                    )
                });
                looped.0
            }
            Op::Each { serial, exit, turn, of, item, names, waits, over, body } => {
                let list = self.slot(*of);
                let looped = self.loop_part(*over, |solver| {
                    solver.take_way(Branch::Body);
                    let of = (list, *item, *names, *waits);
                    solver.each_loop(inst.id, *serial, (*exit, *turn), of, body)
                });
                looped.0
            }
            Op::Block { exit, own, body } => {
                let own = self.base() + own.start..self.base() + own.end;
                self.region(*exit, own, |solver| solver.run(body))
            }
            Op::Try { body, handler, finally } => {
                let test = (inst.at, inst.at + TRY);
                self.part(FoundKind::Decision { test, deps: NONE }, |solver| {
                    solver.attempt(body, handler.as_ref(), finally.as_ref())
                })
            }
            // The others hold no block.
            _ => true,
        }
    }

    /// Walks one way of a choice; `may` if a run may not take it.
    fn taken(&mut self, deps: Deps, may: bool, way: Option<Branch>, block: &'a [Inst]) -> bool {
        self.under(deps, may, false, |solver| match way {
            Some(way) => solver.way(way, |solver| solver.run(block)),
            None => solver.run(block),
        })
    }

    /// Walks a loop over items (`for … of`), names (`for … in`) or awaited items (`for await`).
    fn each_loop(
        &mut self,
        id: u32,
        serial: u32,
        (exit, turn): (u32, u32),
        (list, item, names, waits): (Value, Slot, bool, bool),
        body: &'a [Inst],
    ) -> (bool, Deps) {
        let key = (self.context(), id);
        let list = if names || waits { list } else { self.iterable(list) };
        // A loop that can be left early (by a jump or a handled failure) does not run a generator to its end,
        // so the code after a `yield` may not run.
        let partly = self.has_kind(list, Kind::Iterator)
            && (!self.handlers.is_empty() || is_left(body, &mut vec![turn]));
        let (mut value, count) = self.partly(partly, |solver| solver.of_each(list, names));
        if waits {
            self.hang_on_iterators(list);
            value = self.wait(value);
            value = self.dom.promised(value, Promised::Awaited);
        }
        self.may_fail_by(list);
        let value = self.dom.with(value, count);
        let of_turn = std::cell::Cell::new(value);
        self.looped(
            key,
            serial,
            (exit, turn),
            |solver| {
                // The turn before may have appended to the list.
                let (value, count) =
                    solver.partly(partly, |solver| solver.again(list, value, count, names));
                // The loop ends here if there is no further item, which `count` decides.
                solver.under(count, false, false, |solver| solver.jump(exit));
                if waits {
                    // Each turn of `for await` waits.
                    solver.takes_time(value);
                }
                of_turn.set(value);
            },
            |solver| {
                solver.with_item(id, of_turn.get(), |solver, value| {
                    solver.set_slot(item, value);
                    solver.run(body)
                })
            },
            |_| true,
        )
    }

    /// Returns what a loop iterates (the items of a list, or property names), and what decides how many there
    /// are.
    fn of_each(&mut self, list: Value, names: bool) -> (Value, Deps) {
        if names { self.names_within(list) } else { self.iterated(list) }
    }

    /// Returns the item of a turn. The list is read again, since a turn before may have changed it.
    fn again(&mut self, list: Value, before: Value, known: Deps, names: bool) -> (Value, Deps) {
        let (value, count) = self.of_each(list, names);
        let value = self.dom.with(value, count);
        let count = self.dom.union(known, count);
        (self.dom.join(before, value), count)
    }

    /// Returns the truth value of a condition that is one constant without sources.
    fn truth(&self, value: Value) -> Option<bool> {
        let shape = self.dom.shape(value);
        if value.deps != NONE {
            return None;
        }
        shape.only().map(Scalar::is_true)
    }

    /// Returns the sources that decide a choice made by a value.
    fn decides(&mut self, value: Value) -> Deps {
        self.dom.sources.used(value.deps)
    }
}

/// Returns whether a loop evaluates a test before each turn.
fn is_tested(body: &[Inst]) -> bool {
    body.iter().any(|inst| matches!(&inst.op, Op::If { appears: Appearance::Test, .. }))
}

/// Returns whether a jump leads out of a block: to a region that is not in `inner`, the regions within it.
fn is_left(block: &[Inst], inner: &mut Vec<Region>) -> bool {
    block.iter().any(|inst| match &inst.op {
        Op::Jump { to } => !inner.contains(to),
        Op::If { then, other, .. } => is_left(then, inner) || is_left(other, inner),
        Op::Loop { exit, turn, body, after, .. } => {
            inner.extend([*exit, *turn]);
            is_left(body, inner) || is_left(after, inner)
        }
        Op::Each { exit, turn, body, .. } => {
            inner.extend([*exit, *turn]);
            is_left(body, inner)
        }
        Op::Block { exit, body, .. } => {
            inner.push(*exit);
            is_left(body, inner)
        }
        Op::Doomed { body } | Op::Marked { body, .. } => is_left(body, inner),
        Op::Try { body, handler, finally } => {
            is_left(body, inner)
                || handler.as_ref().is_some_and(|(_, block)| is_left(block, inner))
                || finally.as_ref().is_some_and(|block| is_left(block, inner))
        }
        _ => false,
    })
}
