//! Functions that the engine calls any number of times, such as the callback of `map`: they are walked like the
//! body of a loop.

use super::*;
use crate::structure::core::Region;

/// The exit region of such a loop; no code of a program uses this id.
const EXIT: Region = Region::MAX - 1;
/// The region of one turn of such a loop.
const TURN: Region = Region::MAX - 2;

impl Solver<'_> {
    /// Walks something that is repeated. `count` decides how often; `over`, if any, is what is iterated.
    pub(super) fn repeat(
        &mut self,
        count: Deps,
        over: Option<Value>,
        mut walk: impl FnMut(&mut Self) -> bool,
    ) {
        // The top bit keeps it apart from a loop instruction with this id.
        let key = (self.context(), self.place | 1 << 31);
        let at = (self.at, self.end, self.place);
        let on = self.called_on();
        self.loop_part(on, |solver| {
            solver.looped(
                key,
                u32::MAX,
                (EXIT, TURN),
                |solver| {
                    // The call before may have changed how many items there are.
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

    /// Calls a function for each item, with `until` only until its result is enough; returns the join of the
    /// results. `args` makes the arguments of one call from its item and from what decides how many there are.
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
                    // As in `some` or `find`: the result decides whether there is another call.
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
