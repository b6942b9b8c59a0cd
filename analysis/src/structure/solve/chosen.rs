//! Names that choose tools. Where a loop goes over a table of names, its body is walked once for each
//! row, so that names of one row stay together.

use std::cell::RefCell;

use super::walk::At;
use super::*;
use crate::structure::core::{Key, Scalar};
use crate::structure::domain::{Prim, Promised, Ref, Shape};

/// The most items of a loop that are walked apart.
const WAYS: usize = 16;
/// The most loops of which the items are walked apart.
const LOOPS: usize = 12;

/// A loop, by its place in the program: what holds of it holds in all contexts.
pub(super) type Loop = u32;

/// What is known of names that choose tools.
#[derive(Default)]
pub(super) struct Chosen {
    /// The loops of which the items are walked apart; it only grows.
    apart: HashSet<Loop>,
    /// The places at which it is not known which names come together; they only grow.
    unclear: HashSet<u32>,
    /// The loops that are walked and might be walked apart.
    open: Vec<Loop>,
    /// The namespaces and the names that came together at a place, in this round.
    met: HashMap<u32, Met>,
    /// The calls that are found while one of several items is walked, and whether they may be skipped.
    found: Vec<HashMap<SiteId, bool>>,
}

/// How items are walked, and the calls that were found: with how many items, and whether they may be
/// skipped.
type Ways<'f, W> = (W, &'f mut HashMap<SiteId, (usize, bool)>);

/// The names that came together at a place, each sorted.
#[derive(Default)]
struct Met {
    namespaces: SmallVec<[NameId; 1]>,
    names: SmallVec<[NameId; 1]>,
    /// Whether each time there was only one of both.
    apart: bool,
}

impl Chosen {
    pub(super) fn begin_round(&mut self) {
        self.open.clear();
        self.met.clear();
        self.found.clear();
    }
}

impl Solver<'_> {
    /// Returns the key by which a part of something is taken; of what leads to tools, a name that is
    /// no text for certain is not known.
    pub(super) fn tool_key(&mut self, object: Value, key: &Key) -> At {
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

    /// Decides whether it is known which tools, or namespaces, the parts of a value are that a key
    /// takes; returns the names, or nothing while that is found out.
    pub(super) fn tools_of(&mut self, of: &Shape, key: &At) -> Option<At> {
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
            return Some(At { names: key.names.clone(), deps: key.deps });
        }
        if let Some(innermost) = self.chosen.open.last().copied()
            && self.chosen.apart.len() < LOOPS
        {
            self.chosen.apart.insert(innermost);
            self.changed = true;
            return None;
        }
        self.changed |= self.chosen.unclear.insert(place);
        Some(At { names: None, deps: key.deps })
    }

    /// Notes that namespaces and names come together; returns whether each of them may with each.
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
        met.apart || met.namespaces.len() == 1 || met.names.len() == 1
    }

    /// Walks the body of a loop with its item: at once, or with each that it may be.
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
        for (site, (times, may)) in found {
            // What is called with each of them is called whichever it is.
            let may = may || times < ways.len();
            match self.chosen.found.last_mut() {
                Some(outer) => *outer.entry(site).or_insert(false) |= may,
                None => self.tasks.is_reached(site, may),
            }
        }
        goes_on
    }

    /// Walks something with each of several values, one of which it has.
    fn with_each<W>(&mut self, deps: Deps, ways: &[Value], state: &RefCell<Ways<'_, W>>) -> bool
    where
        W: FnMut(&mut Self, Value) -> bool,
    {
        let Some((first, rest)) = ways.split_first() else { return false };
        let at = (self.at, self.end, self.place);
        let one = |solver: &mut Self| {
            solver.chosen.found.push(HashMap::default());
            // What is made for one item is not what is made for another.
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

    /// Notes a call that is found while one of several items is walked.
    pub(super) fn found_with_item(&mut self, site: SiteId) {
        let may = self.levels.iter().any(|level| level.may && !level.of_item);
        if let Some(found) = self.chosen.found.last_mut() {
            let known = found.entry(site).or_insert(may);
            *known &= may;
        }
    }

    /// Returns whether a value can be one thing only, as far as `ways` tells things apart.
    fn is_one_way(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let prims = match &shape.prim {
            Prim::None => 0,
            Prim::Any => 1,
            Prim::Consts(scalars) => scalars.len(),
        };
        shape.refs.len() + prims + usize::from(shape.absent) < 2
    }

    /// Returns the values that a value may be, one by one.
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
