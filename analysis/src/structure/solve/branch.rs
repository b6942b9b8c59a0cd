//! Branches, regions that can be left, and loops.

use super::state::Changes;
use super::*;
use crate::structure::core::{RESULT, Region, WHOLE};

/// A region that is open.
pub(super) struct RegionState {
    id: Region,
    pub(super) act: usize,
    pub(super) level: usize,
    mark: usize,
    /// What cells have where the region was left, of those that changed in it.
    pub(super) exits: Option<HashMap<CellId, Value>>,
    pub(super) deps: Deps,
    /// How many jumps there were when it was left last.
    pub(super) left: usize,
}

impl Solver<'_> {
    /// Walks either of two ways, which `deps` choose between; returns whether either goes on.
    pub(super) fn fork(
        &mut self,
        deps: Deps,
        one: impl FnOnce(&mut Self) -> bool,
        other: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        let deps = self.dom.sources.used(deps);
        let mark = self.trail.changes.len();
        self.trail.tracking += 1;
        let begin = self.made;
        let one_goes_on = one(self);
        let middle = self.made;
        let changed = self.changed_since(mark);
        let mut after: Changes = changed.iter().map(|(cell, _)| (*cell, self.now(*cell))).collect();
        after.sort_unstable_by_key(|(cell, _)| *cell);
        self.undo(mark, &changed);
        let other_goes_on = other(self);
        match (one_goes_on, other_goes_on) {
            (false, _) => {}
            (true, false) => {
                for (cell, before) in self.changed_since(mark) {
                    self.set_now(cell, before);
                }
                for (cell, value) in after {
                    self.set_now(cell, value);
                }
            }
            (true, true) => {
                for (cell, before) in self.changed_since(mark) {
                    if after.binary_search_by_key(&cell, |(known, _)| *known).is_err()
                        && !self.is_made_within(cell, middle, self.made)
                    {
                        let now = self.now(cell);
                        self.merge(cell, before, now, deps);
                    }
                }
                for (cell, value) in after {
                    if self.is_made_within(cell, begin, middle) {
                        self.set_now(cell, value);
                        continue;
                    }
                    let now = self.now(cell);
                    self.merge(cell, value, now, deps);
                }
            }
        }
        self.close();
        one_goes_on || other_goes_on
    }

    /// Returns whether a cell is one of an object that is made once, on one way of a choice: on the
    /// other, nobody can ask for it.
    fn is_made_within(&self, cell: CellId, begin: u32, end: u32) -> bool {
        self.heap.cells[cell as usize].object.is_some_and(|object| {
            let known = &self.heap.objects[object as usize];
            known.unique && begin < known.made && known.made <= end
        })
    }

    pub(super) fn close(&mut self) {
        self.trail.tracking -= 1;
        if self.trail.tracking == 0 {
            self.trail.changes.clear();
            self.misuses.forget_loosened();
        }
    }

    /// Walks a region that can be left; returns whether what stands behind it is reached.
    pub(super) fn region(&mut self, id: Region, walk: impl FnOnce(&mut Self) -> bool) -> bool {
        self.push_level(NONE, false, false);
        let (level, mark) = (self.levels.len() - 1, self.trail.changes.len());
        let act = self.acts.len();
        self.regions.push(RegionState { id, act, level, mark, exits: None, deps: NONE, left: 0 });
        self.trail.tracking += 1;
        let goes_on = walk(self);
        let region = self.regions.pop();
        let Some(RegionState { exits, deps, .. }) = region else { return goes_on };
        self.levels.pop();
        let left = exits.is_some();
        if let Some(exits) = exits {
            let changed = self.changed_since(mark);
            let kept = changed.into_iter().filter(|(cell, _)| !exits.contains_key(cell));
            let kept: Changes = kept.collect();
            for (cell, at_exit) in kept.into_iter().chain(exits) {
                if goes_on {
                    let now = self.now(cell);
                    self.merge(cell, at_exit, now, deps);
                } else {
                    self.set_now(cell, at_exit);
                }
            }
        }
        self.close();
        goes_on || left
    }

    /// Leaves a region of the function that is walked.
    pub(super) fn jump(&mut self, to: Region) {
        let act = self.acts.len();
        let found = self.regions.iter().rposition(|region| region.act == act && region.id == to);
        let Some(place) = found else { return };
        self.tries.jumps += 1;
        let (level, mark) = (self.regions[place].level, self.regions[place].mark);
        let deps = self.leaves(level, NONE, false);
        let own = self.dom.union(self.regions[place].deps, deps);
        self.regions[place].deps = own;
        self.regions[place].left = self.tries.jumps;
        self.diverts(level, NONE);
        if to == WHOLE && self.acts.len() == 1 {
            let result = self.slot(RESULT);
            self.ends_program(Some(result));
        }
        if to == WHOLE && self.acts.len() == 1 || !self.follows(Rule::WayOutMerges) {
            // Nothing comes after the program.
            self.regions[place].exits.get_or_insert_default();
            return;
        }
        let changed = self.changed_since(mark);
        let turned = self.changed_in_turns(place);
        let exits = self.regions[place].exits.take();
        let is_first = exits.is_none();
        let mut exits = exits.unwrap_or_default();
        if !is_first {
            let mut both = Changes::new();
            for (cell, value) in &exits {
                let now = self.heap.cells[*cell as usize].now;
                if now != *value || !self.is_exact(now) {
                    both.push((*cell, now));
                }
            }
            for (cell, now) in both {
                if let Some(value) = exits.get_mut(&cell) {
                    let joined = self.dom.join(*value, now);
                    let is_flow = !self.dom.same(*value, now) || !self.is_exact(now);
                    *value = if is_flow { self.dom.with(joined, own) } else { joined };
                }
            }
        }
        for (cell, before) in changed {
            let mut now = self.heap.cells[cell as usize].now;
            // In which turn a loop is left is in what was written in it.
            if turned.contains(&cell) && !self.is_constant(now) {
                now = self.dom.with(now, own);
            }
            if is_first {
                exits.insert(cell, now);
            } else if !exits.contains_key(&cell) && (before != now || !self.is_exact(now)) {
                let joined = self.dom.join(before, now);
                let is_flow = !self.dom.same(before, now) || !self.is_exact(now);
                let is_flow = is_flow && !before.is_never();
                exits.insert(cell, if is_flow { self.dom.with(joined, own) } else { joined });
            }
        }
        self.regions[place].exits = Some(exits);
    }

    /// Returns the cells that changed in loops which a jump out of a region leaves.
    fn changed_in_turns(&mut self, place: usize) -> HashSet<CellId> {
        let act = self.acts.len();
        let is_loop = |region: &RegionState| {
            region.act == act && self.levels.get(region.level + 1).is_some_and(|level| level.turns)
        };
        let Some(looped) = self.regions[place..].iter().find(|region| is_loop(region)) else {
            return HashSet::default();
        };
        let mark = looped.mark;
        self.changed_since(mark).into_iter().map(|(cell, _)| cell).collect()
    }

    /// Walks a loop; `head` is walked before each turn, and can leave it.
    pub(super) fn looped(
        &mut self,
        key: (u32, u32),
        serial: u32,
        (exit, turn): (Region, Region),
        head: impl FnOnce(&mut Self),
        body: impl FnOnce(&mut Self) -> bool,
        after: impl FnOnce(&mut Self) -> bool,
    ) -> (bool, Deps) {
        let mut ends = NONE;
        let goes_on = self.region(exit, |solver| {
            let level = solver.levels.len() - 1;
            let known = solver.loops.entry(key).or_default();
            let cells: Changes = known.cells.iter().map(|(cell, value)| (*cell, *value)).collect();
            let learned = (known.deps, known.may);
            for (cell, value) in cells {
                let joined = solver.dom.join(solver.now(cell), value);
                solver.set_now(cell, joined);
            }
            let (mark, loosened) = (solver.trail.changes.len(), solver.misuses.loosened());
            // That a turn may not be reached is in that it may be repeated.
            solver.push_level(learned.0, false, true);
            solver.levels[level + 1].turns = true;
            solver.begin_turn(serial);
            head(solver);
            let goes_on = solver.region(turn, body) && after(solver);
            let turns = solver.levels.pop();
            let (own, may) = turns.map_or((NONE, false), |level| (level.deps, level.may));
            ends = solver.dom.union(solver.levels[level].deps, own);
            let may = may || solver.levels[level].may;
            if !solver.follows(Rule::LoopDecides) {
                ends = NONE;
            }
            let mut changed = false;
            if goes_on {
                let carried = if solver.follows(Rule::LoopCarries) {
                    solver.changed_since(mark)
                } else {
                    Changes::new()
                };
                for (cell, before) in carried {
                    let now = solver.now(cell);
                    if now == before && solver.is_exact(now) || solver.ends_with_turn(cell, serial)
                    {
                        continue;
                    }
                    let mut value = solver.dom.with(now, ends);
                    if solver.dom.same(now, before) && solver.is_exact(now) {
                        // Only whether it is a promise differs.
                        value = now;
                    } else if solver.round >= WIDEN || solver.is_counted(cell) {
                        value.shape = solver.dom.shapes.widened(value.shape);
                    }
                    let Some(known) = solver.loops.get_mut(&key) else { continue };
                    let own = known.cells.entry(cell).or_insert(Value::NEVER);
                    let joined = solver.dom.join(*own, value);
                    changed |= joined != *own;
                    *own = joined;
                }
            }
            if goes_on {
                changed |= solver.loosen_before(&key, loosened, serial);
            }
            solver.turns.pop();
            if let Some(known) = solver.loops.get_mut(&key) {
                let all = solver.dom.sources.union(known.deps, ends);
                changed |= known.deps != all || may && !known.may;
                (known.deps, known.may) = (all, known.may || may);
            }
            solver.changed |= changed;
            false
        });
        (goes_on, ends)
    }

    /// Returns whether a cell has how long a list is, or in which order properties were added. Of what
    /// grows in each turn, neither is known.
    fn is_counted(&self, cell: CellId) -> bool {
        let names = [self.known.length, self.known.order];
        let object = self.heap.cells[cell as usize].object;
        object.is_some_and(|id| names.iter().any(|name| self.heap.find(id, *name) == Some(cell)))
    }

    /// Lets the next turn of a loop know of what is no promise any more; returns whether that is new.
    fn loosen_before(&mut self, key: &(u32, u32), mark: usize, serial: u32) -> bool {
        let mut is_new = false;
        for cell in self.misuses.loosened_since(mark) {
            let now = self.now(cell);
            if self.ends_with_turn(cell, serial) {
                continue;
            }
            let Some(known) = self.loops.get_mut(key) else { continue };
            let own = known.cells.entry(cell).or_insert(Value::NEVER);
            let joined = self.dom.join(*own, now);
            is_new |= joined != *own;
            *own = joined;
        }
        is_new
    }
}
