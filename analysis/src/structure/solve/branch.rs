//! Forks, regions that can be left early, and loops.

use std::ops::Range;

use super::state::Changes;
use super::*;
use crate::structure::core::{RESULT, Region, WHOLE};

/// The own cells of a region that has none, or of which they are not known.
pub(super) const NOTHING: Range<CellId> = 0..0;

/// A region that is being walked.
pub(super) struct RegionState {
    /// Its id in the function's code.
    id: Region,
    /// The height of the call stack at which it was opened: ids are only unique within a function.
    pub(super) act: usize,
    /// The index of its level.
    pub(super) level: usize,
    /// The length of the trail at its start.
    mark: usize,
    /// The cells that only code of the region refers to.
    own: Range<CellId>,
    /// The joined state at all early exits, for the cells that changed in the region; `None` if it was never
    /// left early.
    pub(super) exits: Option<HashMap<CellId, Value>>,
    /// What decides whether it is left early.
    pub(super) deps: Deps,
    /// The value of `Tries::jumps` at its last early exit, so that a `finally` can tell which regions its `try`
    /// has left.
    pub(super) left: usize,
}

impl Solver<'_> {
    /// Walks two alternatives, between which `deps` decide, from the same state, and joins their results.
    /// Returns whether either reaches its end.
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
        // The first alternative changes the state in place. Its changes are saved and undone before the second
        // one is walked.
        let one_goes_on = one(self);
        let middle = self.made;
        let changed = self.changed_since(mark);
        let mut after: Changes = changed.iter().map(|(cell, _)| (*cell, self.now(*cell))).collect();
        after.sort_unstable_by_key(|(cell, _)| *cell);
        self.undo(mark, &changed);
        let other_goes_on = other(self);
        match (one_goes_on, other_goes_on) {
            // Only the second alternative, if any, goes on: its state is already in place.
            (false, _) => {}
            // Only the first one goes on: restore the state before the fork, then apply its changes.
            (true, false) => {
                for (cell, before) in self.changed_since(mark) {
                    self.set_now(cell, before);
                }
                for (cell, value) in after {
                    self.set_now(cell, value);
                }
            }
            (true, true) => {
                // Cells that only the second one changed, then cells that the first one changed. An object made
                // within one alternative cannot be read in the other, so its cells need no join.
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

    /// Returns whether a cell belongs to an object that is made once, between two time stamps: within one
    /// alternative, which no code of the other one can refer to.
    fn is_made_within(&self, cell: CellId, begin: u32, end: u32) -> bool {
        self.heap.cells[cell as usize].object.is_some_and(|object| {
            let known = &self.heap.objects[object as usize];
            known.unique && begin < known.made && known.made <= end
        })
    }

    /// Ends a fork or a region. Once none is open, nothing needs the trail any more.
    pub(super) fn close(&mut self) {
        self.trail.tracking -= 1;
        if self.trail.tracking == 0 {
            self.trail.changes.clear();
            self.misuses.forget_loosened();
        }
    }

    /// Walks a region that can be left early; returns whether the code after it is reached. The state after it
    /// joins the normal end with all early exits. No code outside of the region refers to the cells `own`.
    pub(super) fn region(
        &mut self,
        id: Region,
        own: Range<CellId>,
        walk: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        self.push_level(NONE, false, false);
        let (level, mark) = (self.levels.len() - 1, self.trail.changes.len());
        let act = self.activations.len();
        self.regions.push(RegionState {
            id,
            act,
            level,
            mark,
            own,
            exits: None,
            deps: NONE,
            left: 0,
        });
        self.trail.tracking += 1;
        let goes_on = walk(self);
        let region = self.regions.pop();
        let Some(RegionState { exits, deps, .. }) = region else { return goes_on };
        self.levels.pop();
        let left = exits.is_some();
        if let Some(exits) = exits {
            let mut changed = self.changed_since(mark);
            changed.retain(|(cell, _)| !exits.contains_key(cell));
            for (cell, at_exit) in changed.into_iter().chain(exits) {
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

    /// Walks an early exit out of a region of the current function (`break`, `continue`, `return`).
    pub(super) fn jump(&mut self, to: Region) {
        let act = self.activations.len();
        let found = self.regions.iter().rposition(|region| region.act == act && region.id == to);
        let Some(place) = found else { return };
        self.tries.jumps += 1;
        let (level, mark) = (self.regions[place].level, self.regions[place].mark);
        let deps = self.record_exit(level, NONE, false);
        let own = self.dom.union(self.regions[place].deps, deps);
        self.regions[place].deps = own;
        self.regions[place].left = self.tries.jumps;
        self.note_finally_exit(level, NONE);
        // A `return` of the program itself: concurrent code is cut off here.
        if to == WHOLE && self.activations.len() == 1 {
            let result = self.slot(RESULT);
            self.ends_program(Some(result));
        }
        if to == WHOLE && self.activations.len() == 1 || !self.follows(Rule::WayOutMerges) {
            // No code follows the program, so that no state has to be joined.
            self.regions[place].exits.get_or_insert_default();
            return;
        }
        let mut changed = self.changed_since(mark);
        // No code after the region reads what it alone uses, except a closure. Without this, the time for a
        // chain of optional links would grow with the square of its length.
        let (within, base) = (self.regions[place].own.clone(), self.base());
        let variables = &self.function(self.contexts[self.context() as usize].func).variables;
        changed.retain(|(cell, before)| {
            let is_own = within.contains(cell) && !variables[(*cell - base) as usize].captured;
            !(is_own && before.is_never())
        });
        let turned = self.changed_in_turns(place);
        let exits = self.regions[place].exits.take();
        let is_first = exits.is_none();
        let mut exits = exits.unwrap_or_default();
        // Join with the earlier exits. Unless both states hold the same exact value, which exit was taken flows
        // into the cell.
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
            // The turn in which the loop was left shows in every value that its turns change.
            if turned.contains(&cell) && !self.is_constant(now) {
                now = self.dom.with(now, own);
            }
            if is_first {
                exits.insert(cell, now);
            // No earlier exit changed this cell: there it had its value at the region's start.
            } else if !exits.contains_key(&cell) && (before != now || !self.is_exact(now)) {
                let joined = self.dom.join(before, now);
                let is_flow = !self.dom.same(before, now) || !self.is_exact(now);
                let is_flow = is_flow && !before.is_never();
                exits.insert(cell, if is_flow { self.dom.with(joined, own) } else { joined });
            }
        }
        self.regions[place].exits = Some(exits);
    }

    /// Returns the cells that changed in the loops which an exit out of a region leaves.
    fn changed_in_turns(&mut self, place: usize) -> HashSet<CellId> {
        let act = self.activations.len();
        let is_loop = |region: &RegionState| {
            region.act == act && self.levels.get(region.level + 1).is_some_and(|level| level.turns)
        };
        let Some(looped) = self.regions[place..].iter().find(|region| is_loop(region)) else {
            return HashSet::default();
        };
        let mark = looped.mark;
        self.changed_since(mark).into_iter().map(|(cell, _)| cell).collect()
    }

    /// Walks a loop's body once, from the join of the state before the loop and the learned entry state of
    /// later turns, and adds its final state to that entry state. Returns whether the code after the loop is
    /// reached, and what decides how many turns there are. `head` is walked before each turn and can leave the
    /// loop.
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
        let goes_on = self.region(exit, NOTHING, |solver| {
            let level = solver.levels.len() - 1;
            let known = solver.loops.entry(key).or_default();
            // Enter with what the turns of earlier rounds have left behind.
            let cells: Changes = known.cells.iter().map(|(cell, value)| (*cell, *value)).collect();
            let learned = known.deps;
            for (cell, value) in cells {
                let joined = solver.dom.join(solver.now(cell), value);
                solver.set_now(cell, joined);
            }
            let (mark, loosened) = (solver.trail.changes.len(), solver.misuses.loosened());
            // `may` is false: that a turn may not be reached is already covered by `many`.
            solver.push_level(learned, false, true);
            solver.levels[level + 1].turns = true;
            solver.begin_turn(serial);
            head(solver);
            let goes_on = solver.region(turn, NOTHING, body) && after(solver);
            let turns = solver.levels.pop();
            let own = turns.map_or(NONE, |level| level.deps);
            // Every exit has added its label to the region's level or to that of the turns; together they
            // decide the number of turns.
            ends = solver.dom.union(solver.levels[level].deps, own);
            if !solver.follows(Rule::LoopDecides) {
                ends = NONE;
            }
            // Pass the state at the end of the turn to the next turn.
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
                    // How often the loop was repeated shows in whatever a turn changes.
                    let mut value = solver.dom.with(now, ends);
                    if solver.dom.same(now, before) && solver.is_exact(now) {
                        // Nothing differs except whether it is a promise, which is no flow.
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
                changed |= known.deps != all;
                known.deps = all;
            }
            solver.changed |= changed;
            // The body never falls out of the loop: its end leads to the next turn, so the code after it is
            // reached by exits only.
            false
        });
        (goes_on, ends)
    }

    /// Returns whether a cell holds the length of a list or the order of an object's properties. If these grow
    /// in each turn, they are widened at once: counting up would take a round for each turn.
    fn is_counted(&self, cell: CellId) -> bool {
        let names = [self.known.length, self.known.order];
        let object = self.heap.cells[cell as usize].object;
        object.is_some_and(|id| names.iter().any(|name| self.heap.find(id, *name) == Some(cell)))
    }

    /// Passes to the next turn which cells may hold the promised value in place of a promise; returns whether
    /// that is new.
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
