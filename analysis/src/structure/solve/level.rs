//! The program-counter label: the sources that decide whether the current program point is reached.
//!
//! Each branch, and each region that can be left early, pushes a level. An exit (`return`, `break`, a failure
//! …) out of a region adds its own label to the region's level: everything up to the region's end then depends
//! on it, and nothing after the end does. This is control dependence, computed without a control-flow graph.

use super::*;
use crate::structure::domain::Birth;

/// One level of the label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Its number. Levels are numbered in the order in which a round pushes them.
    pub(super) id: u32,
    /// What decides whether the code under this level is reached, given that the levels outside are. Exits add
    /// to it.
    pub(super) deps: Deps,
    /// Whether a run may skip what follows at this level.
    pub(super) may: bool,
    /// Whether a run may execute what is under this level many times.
    pub(super) many: bool,
    /// Whether this is the level of a loop's turns.
    pub(super) turns: bool,
    /// Whether this is the level of one of several items that are walked one by one.
    pub(super) of_item: bool,
}

/// A `catch`, or whatever else observes a failure: the end of an async function, an executor.
pub(super) struct Handler {
    /// The index of the level of the guarded code.
    pub(super) level: usize,
    /// What decides whether the guarded code fails, so far.
    pub(super) thrown: Deps,
    /// The join of the errors.
    pub(super) error: Value,
    /// Whether a failure was seen.
    pub(super) any: bool,
    /// What decides whether the program's own `throw` is executed.
    pub(super) ends: Deps,
    /// What decides whether the guarded code waits forever.
    pub(super) hangs: Deps,
    /// Which failures it observes.
    pub(super) sees: Sees,
}

/// Which failures a handler observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sees {
    /// All failures; each is an exit out of the guarded code.
    All,
    /// Only `throw`. Any other failure ends the program, and a plan need not list what decides on that.
    Throws,
    /// All failures, but they are no exits: the handler always rethrows, so that what they skip is not reached
    /// either way.
    Futile,
}

impl Solver<'_> {
    /// Walks something under one more level.
    pub(super) fn under<T>(
        &mut self,
        deps: Deps,
        may: bool,
        many: bool,
        walk: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.push_level(deps, may, many);
        let walked = walk(self);
        self.levels.pop();
        walked
    }

    /// Pushes a level.
    pub(super) fn push_level(&mut self, deps: Deps, may: bool, many: bool) {
        self.next_level += 1;
        let deps = self.dom.sources.used(deps);
        let (turns, of_item) = (false, false);
        self.levels.push(Level { id: self.next_level, deps, may, many, turns, of_item });
    }

    /// Walks one of several items that are walked one by one.
    pub(super) fn under_item<T>(&mut self, deps: Deps, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.under(deps, true, false, |solver| {
            if let Some(level) = solver.levels.last_mut() {
                level.of_item = true;
            }
            walk(solver)
        })
    }

    /// Returns the current program point as a position in the stack of levels.
    pub(super) fn birth(&self) -> Birth {
        let level = self.levels.last().map_or(0, |level| level.id);
        Birth { depth: self.levels.len() as u32, level }
    }

    /// Returns what decides whether the current point is reached, given that the point `birth` is.
    pub(super) fn control_since(&mut self, birth: Birth) -> Deps {
        let depth = self.depth_of(birth);
        self.control_above(depth)
    }

    /// Returns what decides whether a level is reached, given that the point `birth` is, and whether a run may
    /// not reach it. `None` stands for the current point.
    pub(super) fn control_between(&mut self, birth: Birth, level: Option<usize>) -> (Deps, bool) {
        let (mut deps, mut may, mut many) = (NONE, false, false);
        let end = level.unwrap_or(self.levels.len()).min(self.levels.len());
        for place in self.depth_of(birth)..end {
            let level = self.levels[place];
            deps = self.dom.union(deps, level.deps);
            may |= level.may;
            many |= level.many || level.turns;
        }
        // Levels that a run can neither skip nor repeat decide nothing. A loop's level counts, since a loop may
        // have no turn.
        (if may || many { deps } else { NONE }, may)
    }

    /// Returns whether a run that reaches `birth` may skip the current point.
    pub(super) fn may_since(&self, birth: Birth) -> bool {
        self.may_above(self.depth_of(birth))
    }

    /// Returns how many of the current levels also enclose the point `birth`.
    fn depth_of(&self, birth: Birth) -> usize {
        let mut depth = (birth.depth as usize).min(self.levels.len());
        // The common case: the innermost level at that point is still open.
        let is_same =
            depth == 0 || self.levels.get(depth - 1).is_some_and(|level| level.id == birth.level);
        if !is_same {
            // The point is under levels that have been popped. Ids grow, so the open levels with smaller ids
            // were open then, and exactly those enclose both points.
            depth = self.levels.partition_point(|level| level.id <= birth.level).min(depth);
        }
        depth
    }

    /// Returns the label from a level on: with 0, the whole label of the current point.
    pub(super) fn control_above(&mut self, depth: usize) -> Deps {
        let mut deps = NONE;
        for place in depth..self.levels.len() {
            deps = self.dom.union(deps, self.levels[place].deps);
        }
        deps
    }

    /// Returns whether a run may skip the current point, given that it reaches the level at `depth`.
    pub(super) fn may_above(&self, depth: usize) -> bool {
        self.levels.iter().skip(depth).any(|level| level.may)
    }

    /// Returns whether the current point may be reached many times for one visit of `birth`.
    pub(super) fn is_repeated_since(&self, birth: Birth) -> bool {
        self.levels.iter().skip(self.depth_of(birth)).any(|level| level.many)
    }

    /// Returns whether a run may reach the current point many times.
    pub(super) fn is_repeated(&self) -> bool {
        self.levels.iter().any(|level| level.many)
    }

    /// Records an exit at the current point out of the region of a level, decided by `deps` and by the levels
    /// inside the region. Returns what decides it. `may` if the exit is not certain even where this point is
    /// reached.
    pub(super) fn record_exit(&mut self, level: usize, deps: Deps, may: bool) -> Deps {
        let own = self.control_above(level + 1);
        let deps = self.dom.union(deps, own);
        // The test of a loop is not `may`, since every run gets past the loop. But a loop may end without
        // a turn, so an exit from its body that leads further than behind the loop is not certain.
        let is_turn = |one: &Level| one.turns;
        let leaves_loop = self.levels.iter().skip(level + 2).any(is_turn);
        let may = may || leaves_loop || self.may_above(level + 1);
        for place in level..self.levels.len() {
            // An exit from a loop also decides whether its next turn is reached, so each loop level on the way
            // gets the label, too.
            let left = &mut self.levels[place];
            if place == level || left.turns {
                left.may |= may;
                if self.forgotten != Some(Rule::WayOut) {
                    left.deps = self.dom.sources.union(left.deps, deps);
                }
            }
        }
        deps
    }

    /// Records that the current point may fail with `error`, decided by `deps` and by the label.
    ///
    /// Without a handler, nothing is recorded: a plan need not list what decides whether the program ends with
    /// an error.
    pub(super) fn may_fail(&mut self, deps: Deps, error: Value) {
        let Some(handler) = self.handlers.last() else { return };
        if self.tries.throwing && !self.follows(Rule::Throw) {
            return;
        }
        let level = handler.level;
        let (sees, deps) = (handler.sees, self.dom.sources.used(deps));
        if sees == Sees::Throws && !self.tries.throwing {
            return;
        }
        if sees == Sees::Futile {
            // See [`Sees::Futile`]: collect the failure, but leave the levels unchanged.
            let all = self.control_above(level + 1);
            let all = self.dom.union(all, deps);
            if let Some(handler) = self.handlers.last_mut() {
                handler.any = true;
                handler.thrown = self.dom.sources.union(handler.thrown, all);
                handler.error = self.dom.join(handler.error, error);
            }
            return;
        }
        if self.tries.doomed > 0 {
            // Something fails here in any case (`Op::Doomed`), so that only which error it is depends on
            // `deps`.
            let error = self.dom.with(error, deps);
            if let Some(handler) = self.handlers.last_mut() {
                handler.error = self.dom.join(handler.error, error);
            }
            return;
        }
        // A failure is an exit, from here to the handler.
        self.note_finally_exit(level, deps);
        let all = self.record_exit(level, deps, true);
        if let Some(handler) = self.handlers.last_mut() {
            handler.any = true;
            if self.tries.throwing {
                handler.ends = self.dom.sources.union(handler.ends, all);
            }
            handler.thrown = self.dom.sources.union(handler.thrown, all);
            handler.error = self.dom.join(handler.error, error);
        }
    }

    /// Records that the current point may fail depending on a value: the implicit failures of reads, calls and
    /// conversions.
    pub(super) fn may_fail_by(&mut self, value: Value) {
        if !self.handlers.is_empty() && self.follows(Rule::ImplicitFailure) {
            let error = Value::computed(value.deps);
            self.may_fail(value.deps, error);
        }
    }
}
