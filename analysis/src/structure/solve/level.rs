//! What decides whether the place that is walked is reached: the program counter's label.
//!
//! Each branch and each region that can be left adds a level. A jump out of a region adds what decided
//! the jump to the region's level: all that follows up to the region's end depends on it, and nothing
//! behind it does.

use super::*;
use crate::structure::domain::Birth;

/// One level of control.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) id: u32,
    pub(super) deps: Deps,
    /// A run may skip what follows.
    pub(super) may: bool,
    /// A run may do it many times.
    pub(super) many: bool,
    /// Whether it is that of the turns of a loop.
    pub(super) turns: bool,
    /// Whether it is that of one of several items, each of which is walked.
    pub(super) of_item: bool,
}

/// A `catch`, or whatever else sees a failure.
pub(super) struct Handler {
    /// The level of what it guards.
    pub(super) level: usize,
    /// What decides on the failures so far.
    pub(super) thrown: Deps,
    /// What is thrown.
    pub(super) error: Value,
    pub(super) any: bool,
    /// What decides on what the program throws itself.
    pub(super) ends: Deps,
    /// What decides whether it waits for ever for something.
    pub(super) hangs: Deps,
    pub(super) sees: Sees,
}

/// Which failures a handler sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sees {
    All,
    /// What the program throws itself; with any other failure it ends.
    Throws,
    /// All, but what they skip is not reached after them, either.
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

    pub(super) fn push_level(&mut self, deps: Deps, may: bool, many: bool) {
        self.next_level += 1;
        let deps = self.dom.sources.used(deps);
        let (turns, of_item) = (false, false);
        self.levels.push(Level { id: self.next_level, deps, may, many, turns, of_item });
    }

    /// Walks something for one of several items.
    pub(super) fn under_item<T>(&mut self, deps: Deps, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.under(deps, true, false, |solver| {
            if let Some(level) = solver.levels.last_mut() {
                level.of_item = true;
            }
            walk(solver)
        })
    }

    /// Returns the place in the levels at which something is made now.
    pub(super) fn birth(&self) -> Birth {
        let level = self.levels.last().map_or(0, |level| level.id);
        Birth { depth: self.levels.len() as u32, level }
    }

    /// Returns what decides whether this place is reached, given that `birth` is.
    pub(super) fn control_since(&mut self, birth: Birth) -> Deps {
        let depth = self.depth_of(birth);
        self.control_above(depth)
    }

    /// Returns what decides whether a level is reached, given that `birth` is, and whether a run may
    /// not reach it; none is this place.
    pub(super) fn control_between(&mut self, birth: Birth, level: Option<usize>) -> (Deps, bool) {
        let (mut deps, mut may, mut many) = (NONE, false, false);
        let end = level.unwrap_or(self.levels.len()).min(self.levels.len());
        for place in self.depth_of(birth)..end {
            let level = self.levels[place];
            deps = self.dom.union(deps, level.deps);
            may |= level.may;
            many |= level.many || level.turns;
        }
        // What is not skipped is decided by nothing; a loop may have no turn.
        (if may || many { deps } else { NONE }, may)
    }

    /// Returns whether a run that reaches `birth` may skip this place.
    pub(super) fn may_since(&self, birth: Birth) -> bool {
        self.may_above(self.depth_of(birth))
    }

    /// Returns how many of the levels are also around the place of a birth.
    fn depth_of(&self, birth: Birth) -> usize {
        let mut depth = (birth.depth as usize).min(self.levels.len());
        let is_same =
            depth == 0 || self.levels.get(depth - 1).is_some_and(|level| level.id == birth.level);
        if !is_same {
            // It was made elsewhere; levels are numbered as they begin, so those that began before its own and are
            // open still were open then.
            depth = self.levels.partition_point(|level| level.id <= birth.level).min(depth);
        }
        depth
    }

    /// Returns what the levels from a place on decide by.
    pub(super) fn control_above(&mut self, depth: usize) -> Deps {
        let mut deps = NONE;
        for place in depth..self.levels.len() {
            deps = self.dom.union(deps, self.levels[place].deps);
        }
        deps
    }

    /// Returns whether one of the levels from a place on may be skipped.
    pub(super) fn may_above(&self, depth: usize) -> bool {
        self.levels.iter().skip(depth).any(|level| level.may)
    }

    /// Returns whether this place may be reached many times for each time that `birth` is.
    pub(super) fn is_repeated_since(&self, birth: Birth) -> bool {
        self.levels.iter().skip(self.depth_of(birth)).any(|level| level.many)
    }

    pub(super) fn is_repeated(&self) -> bool {
        self.levels.iter().any(|level| level.many)
    }

    /// Notes that what stands here may leave the region of a level, which `deps` decide.
    pub(super) fn leaves(&mut self, level: usize, deps: Deps, may: bool) -> Deps {
        let own = self.control_above(level + 1);
        let deps = self.dom.union(deps, own);
        let may = may || self.may_above(level + 1);
        for place in level..self.levels.len() {
            // Of the loops that are left, the next turn is not reached, either.
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

    /// Notes that this may fail, which `deps` decide, with `error`.
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
            // What comes next is the handler, whatever happens here.
            let error = self.dom.with(error, deps);
            if let Some(handler) = self.handlers.last_mut() {
                handler.error = self.dom.join(handler.error, error);
            }
            return;
        }
        self.diverts(level, deps);
        let all = self.leaves(level, deps, true);
        if let Some(handler) = self.handlers.last_mut() {
            handler.any = true;
            if self.tries.throwing {
                handler.ends = self.dom.sources.union(handler.ends, all);
            }
            handler.thrown = self.dom.sources.union(handler.thrown, all);
            handler.error = self.dom.join(handler.error, error);
        }
    }

    /// Notes that this may fail because of a value.
    pub(super) fn may_fail_by(&mut self, value: Value) {
        if !self.handlers.is_empty() && self.follows(Rule::ImplicitFailure) {
            let error = Value::computed(value.deps);
            self.may_fail(value.deps, error);
        }
    }
}
