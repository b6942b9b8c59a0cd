//! What is wrong with a program, whatever flows through it: promises that are taken for what they
//! will give, and names of tools that cannot exist.
//!
//! A fault refuses the program, so that it counts only if it is one in every call of its function.

use swc_atoms::Atom;

use super::*;
use crate::structure::core::{Arg, Slot};
use crate::structure::domain::{Promised, Shape};

/// What a promise is used as, or what is wrong otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::structure) enum Wrong {
    Condition,
    Fallback,
    Text,
    Operand,
    Comparison,
    Field(Atom),
    Parts,
    List,
    Spread,
    Argument,
    Json,
    Printed,
    /// It is given to a function of the engine.
    Converted(&'static str),
    /// A list of promises is taken for a list of values.
    Items,
    /// The function that a method is given decides by a promise.
    Decides(Atom),
    /// The function that `flatMap` is given gives a promise.
    NotFlat,
    /// The function that sorts gives a promise.
    NoOrder,
    /// Nothing awaits it.
    Dropped,
    DroppedItems,
    DroppedByEach,
    /// The name of a tool that cannot exist, and why.
    NoTool(String),
}

/// A fault and its place.
#[derive(Debug, Clone)]
pub(in crate::structure) struct Misuse {
    pub(in crate::structure) at: u32,
    /// The text of the value, or nothing.
    pub(in crate::structure) text: (u32, u32),
    pub(in crate::structure) wrong: Wrong,
    pub(in crate::structure) sure: bool,
}

/// An instruction, and which of the values that it uses.
pub(super) type Place = (u32, u32);

/// The faults of one round, and what they depend on.
#[derive(Default)]
pub(super) struct Misuses {
    /// Whether the calls of `reduce` give promises.
    folds: HashMap<ObjId, Promised>,
    /// The lists whose items are set by their places, so that some may be missing.
    sparse: HashSet<ObjId>,
    /// Whether the program sets names that it does not declare.
    sets_globals: bool,
    /// What the values that each cell ever has are.
    ever: Vec<Option<Promised>>,

    /// Whether getters give promises.
    got: HashMap<(ObjId, NameId), Promised>,
    found: HashMap<Place, Misuse>,
    /// The instructions that use something else on some way.
    right: Vec<bool>,
    right_parts: HashSet<Place>,
    /// Whether the last call gave what someone else has, too.
    itself: bool,
    /// The cells that got the same data, but as a promise or as none any more.
    loosened: Vec<CellId>,
}

impl Misuses {
    pub(super) fn begin_round(&mut self) {
        self.got.clear();
        self.found.clear();
        self.right.clear();
        self.right_parts.clear();
        self.loosened.clear();
    }

    /// Notes what a cell has.
    pub(super) fn has(&mut self, cell: CellId, shape: &Shape) {
        if shape.is_empty() {
            return;
        }
        let place = cell as usize;
        if self.ever.len() <= place {
            self.ever.resize(place + 1, None);
        }
        let ever = &mut self.ever[place];
        *ever = Some(ever.map_or(shape.promised, |known| known.or(shape.promised)));
    }

    /// Returns whether a cell never has anything but promises.
    pub(super) fn has_only_promises(&self, cell: CellId) -> bool {
        let ever = self.ever.get(cell as usize).copied().flatten();
        ever.is_none_or(Promised::is_promise)
    }

    pub(super) fn loosens(&mut self, cell: CellId) {
        self.loosened.push(cell);
    }

    pub(super) fn loosened(&self) -> usize {
        self.loosened.len()
    }

    pub(super) fn loosened_since(&self, mark: usize) -> Vec<CellId> {
        let mut cells = self.loosened.get(mark..).unwrap_or_default().to_vec();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    pub(super) fn forget_loosened(&mut self) {
        self.loosened.clear();
    }

    pub(super) fn set_global(&mut self) {
        self.sets_globals = true;
    }

    pub(super) fn set_item(&mut self, list: ObjId) {
        self.sparse.insert(list);
    }

    pub(super) fn is_sparse(&self, list: ObjId) -> bool {
        self.sparse.contains(&list)
    }

    /// Notes whether a call gave what someone else has, too.
    pub(super) fn give_itself(&mut self, itself: bool) {
        self.itself = itself;
    }

    pub(super) fn takes_itself(&mut self) -> bool {
        std::mem::take(&mut self.itself)
    }

    /// Notes what a getter gives.
    pub(super) fn gets(&mut self, object: ObjId, name: NameId, promised: Promised) {
        let known = self.got.entry((object, name)).or_insert(promised);
        *known = known.or(promised);
    }

    pub(super) fn got(&self, object: ObjId, name: NameId) -> Option<Promised> {
        self.got.get(&(object, name)).copied()
    }

    /// Notes what a call of `reduce` gives; returns whether that is new.
    pub(super) fn folds(&mut self, fold: ObjId, promised: Promised) -> bool {
        let before = self.folds.get(&fold).copied();
        let known = before.map_or(promised, |known| known.or(promised));
        self.folds.insert(fold, known);
        before != Some(known)
    }

    pub(super) fn folded(&self, fold: ObjId) -> Promised {
        self.folds.get(&fold).copied().unwrap_or_default()
    }

    /// Notes that an instruction uses what it may use.
    pub(super) fn right(&mut self, inst: u32) {
        let place = inst as usize;
        if self.right.len() <= place {
            self.right.resize(place + 1, false);
        }
        self.right[place] = true;
    }

    pub(super) fn right_part(&mut self, place: Place) {
        self.right_parts.insert(place);
    }

    pub(super) fn wrong(&mut self, place: Place, misuse: Misuse) {
        self.found.entry(place).or_insert(misuse);
    }
}

/// How a call is written in the program.
#[derive(Clone, Copy)]
pub(super) enum Written<'a> {
    Nowhere,
    Call {
        func: FuncId,
        this: Option<Slot>,
        args: &'a [Arg],
    },
    /// A method calls a function with the items of a list; `first` is where its first argument begins.
    Items {
        of: (u32, u32),
        first: u32,
    },
}

impl Solver<'_> {
    /// Returns the faults of the last round.
    pub(super) fn found_misuses(&mut self, entangled: bool) -> Vec<Misuse> {
        let Misuses { found, right, right_parts, sets_globals, .. } =
            std::mem::take(&mut self.misuses);
        let is_doubted =
            sets_globals || self.gaps.iter().any(|gap| gap.code == Code::DynamicGlobal);
        let is_right = |place: &Place| {
            right.get(place.0 as usize).is_some_and(|right| *right) || right_parts.contains(place)
        };
        let mut misuses: Vec<Misuse> = found
            .into_iter()
            .filter(|(place, _)| !is_right(place))
            .map(|(_, misuse)| misuse)
            .filter(|misuse| !entangled || matches!(misuse.wrong, Wrong::NoTool(_)))
            .collect();
        // What the engine offers may have been replaced: `Promise`, for one.
        misuses.iter_mut().for_each(|misuse| misuse.sure &= !is_doubted);
        misuses.sort_by_key(|misuse| (misuse.at, misuse.text));
        misuses
    }
}
