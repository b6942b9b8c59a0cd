//! Tools chosen by computed names, as in `for (const [ns, action] of table) await mcp[ns][action](…)`.
//!
//! Joined over all rows, any namespace could be paired with any action. If that matters, the body of the loop
//! is walked once for each row, so that the names of a row stay together.

use std::cell::RefCell;

use super::walk::AbstractKey;
use super::*;
use crate::structure::core::{Key, Scalar};
use crate::structure::domain::{Prim, Promised, Ref, Shape};

/// The maximum number of items of a loop that are walked one by one.
const WAYS: usize = 16;
/// The maximum number of loops whose items are walked one by one.
const LOOPS: usize = 12;

/// A loop, by its instruction: what holds for it holds in all contexts.
pub(super) type Loop = u32;

/// The state of computed tool names.
#[derive(Default)]
pub(super) struct Chosen {
    /// The loops whose items are walked one by one; only grows.
    apart: HashSet<Loop>,
    /// The instructions at which the pairs of names are unknown even so; only grows. They are gaps.
    unclear: HashSet<u32>,
    /// The loops around the current point that could be walked item by item but are not yet.
    open: Vec<Loop>,
    /// The namespaces and actions seen together at an instruction in this round.
    met: HashMap<u32, Met>,
    /// For each item walk in progress: the calls found in it, and whether the item's run may skip them.
    found: Vec<HashMap<SiteId, bool>>,
}

/// The function that walks an item, and the calls found so far: in how many items, and whether a run may skip
/// them.
type Ways<'f, W> = (W, &'f mut HashMap<SiteId, (usize, bool)>);

/// The names that came together at an instruction, each list sorted.
#[derive(Default)]
struct Met {
    /// The namespaces.
    namespaces: SmallVec<[NameId; 1]>,
    /// The actions.
    names: SmallVec<[NameId; 1]>,
    /// Whether each time there was only one of both, so that no wrong pair was formed.
    apart: bool,
}

impl Chosen {
    /// Resets the state of a round.
    pub(super) fn begin_round(&mut self) {
        self.open.clear();
        self.met.clear();
        self.found.clear();
    }
}

impl Solver<'_> {
    /// Evaluates a key. On `mcp` or a namespace, a key that may be something other than a string or a number
    /// counts as unknown.
    pub(super) fn tool_key(&mut self, object: Value, key: &Key) -> AbstractKey {
        let mut at = self.key(key);
        let Key::Slot(slot) = key else { return at };
        let leads = |one: &Ref| matches!(one, Ref::Mcp | Ref::Namespace(_));
        if !self.dom.shape(object).refs.iter().any(leads) {
            return at;
        }
        let name = self.slot(*slot);
        if let Prim::Consts(scalars) = &self.dom.shape(name).prim
            && scalars.iter().any(|one| !matches!(one, Scalar::Text(_) | Scalar::Number(_)))
        {
            at.names = None;
        }
        at
    }

    /// Returns the names by which tools or namespaces are taken from a value. Returns nothing if the innermost
    /// loop has just been marked to be walked item by item, and the names are therefore left to the next round.
    pub(super) fn tools_of(&mut self, of: &Shape, key: &AbstractKey) -> Option<AbstractKey> {
        let place = self.place;
        let namespaces: SmallVec<[NameId; 2]> = of
            .refs
            .iter()
            .filter_map(|one| match one {
                Ref::Namespace(name) => Some(*name),
                _ => None,
            })
            .collect();
        let is_known = match &key.names {
            None => false,
            Some(_) if namespaces.is_empty() => true,
            Some(names) => self.meet(place, &namespaces, names),
        };
        if is_known && !self.chosen.unclear.contains(&place) {
            return Some(AbstractKey { names: key.names.clone(), deps: key.deps });
        }
        if let Some(innermost) = self.chosen.open.last().copied()
            && self.chosen.apart.len() < LOOPS
        {
            self.chosen.apart.insert(innermost);
            self.changed = true;
            // The loop will be walked item by item, so that nothing is learned from the joined names in this
            // round.
            return None;
        }
        // No loop separates the pairs: the place becomes a gap.
        self.changed |= self.chosen.unclear.insert(place);
        Some(AbstractKey { names: None, deps: key.deps })
    }

    /// Records that namespaces and names come together; returns whether every namespace may really occur with
    /// every name.
    fn meet(&mut self, place: u32, namespaces: &[NameId], names: &[NameId]) -> bool {
        let is_one = namespaces.len() == 1 && names.len() == 1;
        let met = self.chosen.met.entry(place).or_insert(Met { apart: true, ..Met::default() });
        met.apart &= is_one;
        for (all, new) in [(&mut met.namespaces, namespaces), (&mut met.names, names)] {
            for name in new {
                if let Err(place) = all.binary_search(name) {
                    all.insert(place, *name);
                }
            }
        }
        // One namespace with several actions, or the reverse, forms no pair that does not exist.
        met.apart || met.namespaces.len() == 1 || met.names.len() == 1
    }

    /// Walks the body of a loop with its item: once with the joined item, or once with each possible item.
    pub(super) fn with_item(
        &mut self,
        key: Loop,
        item: Value,
        mut walk: impl FnMut(&mut Self, Value) -> bool,
    ) -> bool {
        if self.is_one_way(item) {
            return walk(self, item);
        }
        let ways = self.ways(item);
        if ways.len() < 2 || ways.len() > WAYS {
            return walk(self, item);
        }
        if !self.chosen.apart.contains(&key) {
            self.chosen.open.push(key);
            let goes_on = walk(self, item);
            self.chosen.open.pop();
            return goes_on;
        }
        let mut found: HashMap<SiteId, (usize, bool)> = HashMap::default();
        let state = RefCell::new((walk, &mut found));
        let goes_on = self.with_each(item.deps, &ways, &state);
        // A call that is found with every possible item is made whichever item it is.
        for (site, (times, may)) in found {
            let may = may || times < ways.len();
            match self.chosen.found.last_mut() {
                Some(outer) => *outer.entry(site).or_insert(false) |= may,
                None => self.tasks.narrow_may(site, may),
            }
        }
        goes_on
    }

    /// Walks the body with each of several items, of which a turn has one: a chain of forks.
    fn with_each<W>(&mut self, deps: Deps, ways: &[Value], state: &RefCell<Ways<'_, W>>) -> bool
    where
        W: FnMut(&mut Self, Value) -> bool,
    {
        let Some((first, rest)) = ways.split_first() else { return false };
        let at = (self.at, self.end, self.place);
        let one = |solver: &mut Self| {
            solver.chosen.found.push(HashMap::default());
            // Objects made for different items get different allocation sites.
            solver.place = at.2 ^ ((rest.len() as u32 + 1) << 20);
            let goes_on = solver.under_item(deps, |solver| {
                solver.begin_part_of_turn();
                let goes_on = (state.borrow_mut().0)(solver, *first);
                solver.turns.pop();
                goes_on
            });
            for (site, may) in solver.chosen.found.pop().unwrap_or_default() {
                let mut state = state.borrow_mut();
                let (times, known) = state.1.entry(site).or_insert((0, false));
                *times += 1;
                *known |= may;
            }
            (solver.at, solver.end, solver.place) = at;
            goes_on
        };
        if rest.is_empty() {
            return one(self);
        }
        self.fork(deps, one, |solver| solver.with_each(deps, rest, state))
    }

    /// Records that a call was found while an item is being walked.
    pub(super) fn found_with_item(&mut self, site: SiteId) {
        let may = self.levels.iter().any(|level| level.may && !level.of_item);
        if let Some(found) = self.chosen.found.last_mut() {
            let known = found.entry(site).or_insert(may);
            *known &= may;
        }
    }

    /// Returns whether a value has at most one possibility in the sense of `ways`. Cheaper than `ways`.
    fn is_one_way(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let prims = match &shape.prim {
            Prim::None => 0,
            Prim::Any => 1,
            Prim::Consts(scalars) => scalars.len(),
        };
        shape.refs.len() + prims + usize::from(shape.absent) < 2
    }

    /// Splits a value into its possibilities: one for each reference and each constant, and one for everything
    /// else.
    fn ways(&mut self, value: Value) -> Vec<Value> {
        let shape = self.dom.shapes.kept(value.shape);
        let base = |refs, prim| Shape { prim, absent: false, refs, promised: shape.promised };
        let mut shapes: Vec<Shape> = Vec::new();
        for one in &shape.refs {
            shapes.push(base(smallvec::smallvec![*one], Prim::None));
        }
        match &shape.prim {
            Prim::None => {}
            Prim::Any => shapes.push(base(SmallVec::new(), Prim::Any)),
            Prim::Consts(scalars) => {
                for scalar in scalars {
                    shapes.push(base(
                        SmallVec::new(),
                        Prim::Consts(smallvec::smallvec![scalar.clone()]),
                    ));
                }
            }
        }
        if shape.absent {
            shapes.push(Shape { absent: true, ..base(SmallVec::new(), Prim::None) });
        }
        let mut ways = Vec::new();
        for mut shape in shapes {
            if shape.refs.is_empty() {
                shape.promised = Promised::No;
            }
            ways.push(Value { deps: value.deps, shape: self.dom.shapes.add(shape) });
        }
        ways
    }
}
