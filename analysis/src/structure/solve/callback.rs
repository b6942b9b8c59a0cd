//! What the engine calls any number of times, as for each item of a list.

use super::*;
use crate::structure::core::Region;

/// The regions of a loop that the engine's own code goes round.
const EXIT: Region = Region::MAX - 1;
const TURN: Region = Region::MAX - 2;

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
}
