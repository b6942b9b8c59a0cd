//! `try`, `catch` and `finally`, and other code whose failure is observed.

use super::branch::NOTHING;
use super::level::Sees;
use super::*;
use crate::structure::core::{Block, Branch, Slot};

/// A `finally` block under analysis, and the exits from it that cancel the exit that led into it.
pub(super) struct FinallyBlock {
    /// The number of levels around it.
    depth: usize,
    /// The levels to which its own exits lead, and what decides on each exit.
    ways: Vec<(usize, Deps)>,
}

/// The state of the `try` statements.
#[derive(Default)]
pub(super) struct Tries {
    /// How many `finally` blocks are being walked, one within the other.
    pub(super) finally_depth: u32,
    /// These blocks, innermost last.
    pub(super) finally_blocks: Vec<FinallyBlock>,
    /// How many expressions are being walked that fail whatever they do.
    pub(super) doomed: u32,
    /// The handlers that always rethrow where nothing else handles the failure, by context and place. Learned
    /// over the rounds. With or without such a handler the program ends, so that it decides nothing.
    pub(super) futile: HashSet<(u32, u32)>,
    /// How many of these handlers are being walked.
    pub(super) rethrows: u32,
    /// Whether the failure being recorded is the program's own `throw`.
    pub(super) throwing: bool,
    /// How many walks are open that go through the same code a second time. A call found twice that way is not
    /// made twice.
    pub(super) replays: u32,
    /// Counts the early exits of regions, as a time stamp.
    pub(super) jumps: usize,
}

impl Tries {
    /// Resets the state of a round; `futile` and `jumps` stay.
    pub(super) fn begin_round(&mut self) {
        self.finally_depth = 0;
        self.finally_blocks.clear();
        self.doomed = 0;
        self.rethrows = 0;
        self.replays = 0;
    }
}

impl<'a> Solver<'a> {
    /// Walks a `try` statement; returns whether the code after it is reached.
    pub(super) fn attempt(
        &mut self,
        body: &'a Block,
        handler: Option<&'a (Slot, Block)>,
        finally: Option<&'a Block>,
    ) -> bool {
        // The label at the start of the statement, which is also the label of its `finally`.
        let before: Vec<(Deps, bool)> = self.levels.iter().map(|one| (one.deps, one.may)).collect();
        let jumps = self.tries.jumps;
        if finally.is_some() {
            self.recorders.push(HashMap::default());
        }
        let mut goes_on = match handler {
            Some((error, caught)) => self.caught(body, *error, caught),
            None => {
                self.region(u32::MAX, NOTHING, |solver| solver.way(Branch::Try, |s| s.run(body)))
            }
        };
        if let Some(finally) = finally {
            let written = self.recorders.pop().unwrap_or_default();
            // `finally` runs after every completion of the body, so what decided on the body's exits does not
            // decide whether it runs. Take the exits' labels off the levels while it is walked.
            let inner: Vec<(Deps, bool)> =
                self.levels.iter().map(|one| (one.deps, one.may)).collect();
            for (level, (deps, may)) in self.levels.iter_mut().zip(&before) {
                (level.deps, level.may) = (*deps, *may);
            }
            // The exception: code that waits forever never reaches `finally`.
            if let Some(thread) = self.levels.get_mut(self.threads.level)
                && self.threads.hangs != NONE
            {
                thread.deps = self.dom.sources.union(thread.deps, self.threads.hangs);
                thread.may = true;
            }
            // The state in which it starts does depend on the exits.
            let mut decided = NONE;
            for ((deps, _), (old, _)) in inner.iter().zip(&before) {
                if deps != old {
                    decided = self.dom.union(decided, *deps);
                }
            }
            self.tries
                .finally_blocks
                .push(FinallyBlock { depth: self.levels.len(), ways: Vec::new() });
            goes_on = self.way(Branch::Finally, |s| {
                s.walk_finally((goes_on, jumps), decided, written, finally)
            });
            let ways = self.tries.finally_blocks.pop().map_or_else(Vec::new, |last| last.ways);
            // After the block, the exits of the body take effect, unless an exit of `finally` has cancelled
            // them.
            self.cancel_exits(jumps, &ways);
            for (place, (deps, may)) in inner.into_iter().enumerate() {
                let own = self.dom.union(self.levels[place].deps, deps);
                self.levels[place].deps = own;
                self.levels[place].may |= may;
            }
        }
        goes_on
    }

    /// Records that an exit leads to a level, decided by `deps` and by the current label. If it leaves a
    /// `finally` block, it cancels the exit that led into the block.
    pub(super) fn note_finally_exit(&mut self, level: usize, deps: Deps) {
        for place in 0..self.tries.finally_blocks.len() {
            let depth = self.tries.finally_blocks[place].depth;
            if level < depth {
                let own = self.control_above(depth);
                let deps = self.dom.union(own, deps);
                self.tries.finally_blocks[place].ways.push((level, deps));
            }
        }
    }

    /// Applies the exits of a `finally` block (`ways`) to the earlier exits that they may cancel: the regions
    /// left, and the failure observed, since `jumps`. Whether those happen depends on what decides on the exit
    /// of `finally`.
    fn cancel_exits(&mut self, jumps: usize, ways: &[(usize, Deps)]) {
        let act = self.activations.len();
        for &(to, deps) in ways.iter().filter(|(_, deps)| *deps != NONE) {
            for place in 0..self.regions.len() {
                let region = &self.regions[place];
                let level = region.level;
                // The earlier exit leads further out than the one that cancels it.
                if region.act == act && region.left > jumps && level < to {
                    let deps = self.record_exit(level, deps, true);
                    self.regions[place].deps = self.dom.union(self.regions[place].deps, deps);
                }
            }
            if let Some(Handler { level, any: true, .. }) = self.handlers.last()
                && *level < to
            {
                let deps = self.record_exit(*level, deps, true);
                if let Some(handler) = self.handlers.last_mut() {
                    handler.thrown = self.dom.sources.union(handler.thrown, deps);
                }
            }
        }
    }

    /// Walks a `finally` block: for the normal completion of the body, and for all abrupt completions. Returns
    /// whether the code after the statement is reached.
    fn walk_finally(
        &mut self,
        (goes_on, jumps): (bool, usize),
        decided: Deps,
        written: HashMap<CellId, Value>,
        finally: &'a Block,
    ) -> bool {
        self.tries.finally_depth += 1;
        // The two completions are walked separately for precision. Nested blocks would double the work at each
        // depth, so that beyond three they are walked once, in the joined state.
        let apart = self.tries.finally_depth <= 3;
        self.tries.replays += u32::from(goes_on && apart);
        let outer: Vec<(CellId, Value)> = written.into_iter().collect();
        let mut finishes = false;
        let mut touched = super::state::Changes::new();
        let mut after = HashMap::default();
        let alive = if goes_on && apart {
            self.fork(
                NONE,
                |solver| {
                    let mark = solver.trail.changes.len();
                    for (cell, value) in &outer {
                        let now = solver.now(*cell);
                        // An abrupt completion starts with any value that a cell had in the body.
                        solver.merge(*cell, now, *value, decided);
                    }
                    let _ = solver.run(finally);
                    touched = solver.changed_since(mark);
                    after = touched.iter().map(|(cell, _)| (*cell, solver.now(*cell))).collect();
                    // After an abrupt completion, the exit that led here continues.
                    false
                },
                |solver| {
                    finishes = solver.run(finally);
                    finishes
                },
            )
        } else {
            let mark = self.trail.changes.len();
            self.trail.tracking += 1;
            for (cell, value) in &outer {
                let now = self.now(*cell);
                self.merge(*cell, now, *value, decided);
            }
            finishes = self.run(finally);
            touched = self.changed_since(mark);
            touched.extend(outer.iter().map(|(cell, _)| (*cell, self.now(*cell))));
            after = touched.iter().map(|(cell, _)| (*cell, self.now(*cell))).collect();
            self.close();
            finishes && goes_on
        };
        self.tries.replays -= u32::from(goes_on && apart);
        self.tries.finally_depth -= 1;
        // The exits taken in the body continue after this block, so their saved states must see its writes.
        let act = self.activations.len();
        for (cell, before) in touched {
            let Some(value) = after.get(&cell).copied() else { continue };
            for region in &mut self.regions {
                let is_left_here = region.act == act && region.left > jumps;
                let Some(exits) = &mut region.exits else { continue };
                if let Some(own) = exits.get_mut(&cell) {
                    *own = self.dom.join(*own, value);
                } else if is_left_here {
                    let joined = self.dom.join(before, value);
                    exits.insert(cell, self.dom.with(joined, region.deps));
                }
            }
            if let Some(recorder) = self.recorders.last_mut() {
                let own = recorder.entry(cell).or_insert(value);
                *own = self.dom.join(*own, value);
            }
        }
        alive
    }

    /// Walks the body and the `catch` handler of a `try` statement.
    fn caught(&mut self, body: &'a Block, error: Slot, caught: &'a Block) -> bool {
        let mark = self.trail.changes.len();
        self.trail.tracking += 1;
        let key = (self.context(), self.place);
        let futile = self.tries.futile.contains(&key) && self.handlers.is_empty();
        let sees = if futile { Sees::Futile } else { Sees::All };
        let (goes_on, handler, mut written) =
            self.guarded_by(sees, |solver| solver.way(Branch::Try, |s| s.run(body)));
        if !self.follows(Rule::HandlerSeesWrites) {
            written.clear();
        }
        // The state at the body's normal end is saved and undone. The fork then chooses between it and the
        // handler.
        let changed = self.changed_since(mark);
        let after: Vec<(CellId, Value)> =
            changed.iter().map(|(cell, _)| (*cell, self.now(*cell))).collect();
        self.undo(mark, &changed);
        let (thrown, value) = (handler.thrown, self.dom.with(handler.error, handler.thrown));
        let mut ways: Option<Vec<(CellId, Value)>> = Some(after);
        let result = self.fork(
            thrown,
            |solver| {
                for (cell, value) in ways.take().unwrap_or_default() {
                    solver.set_now(cell, value);
                }
                goes_on
            },
            |solver| {
                // The handler starts with any value that a cell had in the body.
                for (cell, value) in &written {
                    let now = solver.now(*cell);
                    solver.merge(*cell, now, *value, thrown);
                }
                solver.under(thrown, true, false, |solver| {
                    let value = if value.is_never() { Value::computed(thrown) } else { value };
                    solver.set_slot(error, value);
                    let jumps = solver.tries.jumps;
                    solver.tries.rethrows += u32::from(futile);
                    let goes_on = solver.way(Branch::Catch, |s| s.run(caught));
                    solver.tries.rethrows -= u32::from(futile);
                    // The handler always throws (it neither ends nor jumps), and nothing handles that.
                    if !goes_on
                        && jumps == solver.tries.jumps
                        && solver.handlers.is_empty()
                        && solver.threads.concurrent == 0
                    {
                        solver.changed |= solver.tries.futile.insert(key);
                    }
                    goes_on
                })
            },
        );
        self.close();
        result
    }

    /// Walks something whose failures are observed here. Returns whether its end is reached, the failures, and
    /// the join of all values of each written cell.
    pub(super) fn guarded(
        &mut self,
        walk: impl FnOnce(&mut Self) -> bool,
    ) -> (bool, Handler, HashMap<CellId, Value>) {
        self.guarded_by(Sees::All, walk)
    }

    /// The same, for some kinds of failures.
    pub(super) fn guarded_by(
        &mut self,
        sees: Sees,
        walk: impl FnOnce(&mut Self) -> bool,
    ) -> (bool, Handler, HashMap<CellId, Value>) {
        self.push_level(NONE, false, false);
        let level = self.levels.len() - 1;
        self.handlers.push(Handler {
            level,
            thrown: NONE,
            error: Value::NEVER,
            any: false,
            ends: NONE,
            hangs: NONE,
            sees,
        });
        self.recorders.push(HashMap::default());
        let goes_on = walk(self);
        let written = self.recorders.pop().unwrap_or_default();
        if let Some(outer) = self.recorders.last_mut() {
            // What is written in here is also written in the enclosing `try`.
            for (cell, value) in &written {
                let own = outer.entry(*cell).or_insert(*value);
                *own = self.dom.join(*own, *value);
            }
        }
        let none = Handler {
            level,
            thrown: NONE,
            error: Value::NEVER,
            any: false,
            ends: NONE,
            hangs: NONE,
            sees,
        };
        let handler = self.handlers.pop().unwrap_or(none);
        self.levels.pop();
        (goes_on, handler, written)
    }
}
