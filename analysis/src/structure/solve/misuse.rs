//! Faults that refuse a program whatever flows through it: promises used like the values they give, and names
//! of tools that cannot exist.
//!
//! A fault counts only if the instruction is wrong in every call and turn. So the walk also records where an
//! instruction is right, and one correct use removes the fault.

use swc_atoms::Atom;

use super::*;
use crate::structure::core::{Arg, Slot};
use crate::structure::domain::{Promised, Shape};

/// What is wrong. Except for the last one, a promise is used as …
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::structure) enum Wrong {
    /// The test of a choice or loop, which is always true.
    Condition,
    /// The left side of `??` or `||`, so that the right side is never used.
    Fallback,
    /// A string.
    Text,
    /// An operand of arithmetic.
    Operand,
    /// One side of a comparison.
    Comparison,
    /// An object with this field.
    Field(Atom),
    /// An object that is destructured.
    Parts,
    /// A list.
    List,
    /// An object or list that is spread.
    Spread,
    /// An argument of a tool.
    Argument,
    /// An argument of `JSON.stringify`.
    Json,
    /// An argument of a function of `console`.
    Printed,
    /// An argument of a function of the engine, by its name.
    Converted(&'static str),
    /// An item of a list that is used as a list of values.
    Items,
    /// The result of the callback of this method, which is taken as a truth value.
    Decides(Atom),
    /// The result of the callback of `flatMap`, which should be a list.
    NotFlat,
    /// The result of the callback that compares items for sorting.
    NoOrder,
    /// A statement: nothing awaits it.
    Dropped,
    /// An item of a list that nothing awaits.
    DroppedItems,
    /// The result of the callback of `forEach`, which nothing awaits.
    DroppedByEach,
    /// The name of a tool that cannot exist, with the reason.
    NoTool(String),
}

/// A fault.
#[derive(Debug, Clone)]
pub(in crate::structure) struct Misuse {
    /// Its position in the source.
    pub(in crate::structure) at: u32,
    /// The source text of the value; `(0, 0)` if it is not known.
    pub(in crate::structure) text: (u32, u32),
    /// What is wrong.
    pub(in crate::structure) wrong: Wrong,
    /// Whether it is an error in every run that gets there.
    pub(in crate::structure) sure: bool,
}

/// An instruction, and which of its operands.
pub(super) type Place = (u32, u32);

/// The faults of a round, and the facts on which they depend.
#[derive(Default)]
pub(super) struct Misuses {
    /// For each call of `reduce`, whether its callback returns promises.
    folds: HashMap<ObjId, Promised>,
    /// Lists whose items are set by index, so that one in between may be missing.
    sparse: HashSet<ObjId>,
    /// Whether the program writes undeclared names.
    sets_globals: bool,
    /// For each cell, whether its values are promises, joined over all writes.
    ever: Vec<Option<Promised>>,

    /// For each getter, whether it returns promises.
    got: HashMap<(ObjId, NameId), Promised>,
    /// The faults of this round.
    found: HashMap<Place, Misuse>,
    /// The instructions that were found right on some path, by number.
    right: Vec<bool>,
    /// The operands that were found right on some path.
    right_parts: HashSet<Place>,
    /// Whether the last call returned something that is also held elsewhere, so that dropping the result drops
    /// no promise.
    returned_argument: bool,
    /// A log of the cells in which a promise was replaced by its value, or the reverse, while the data stayed
    /// the same.
    loosened: Vec<CellId>,
}

impl Misuses {
    /// Resets the state of a round.
    pub(super) fn begin_round(&mut self) {
        self.got.clear();
        self.found.clear();
        self.right.clear();
        self.right_parts.clear();
        self.loosened.clear();
    }

    /// Records a value that is written to a cell.
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

    /// Returns whether only promises are ever written to a cell.
    pub(super) fn has_only_promises(&self, cell: CellId) -> bool {
        let ever = self.ever.get(cell as usize).copied().flatten();
        ever.is_none_or(Promised::is_promise)
    }

    /// Logs a cell; see `loosened`.
    pub(super) fn loosens(&mut self, cell: CellId) {
        self.loosened.push(cell);
    }

    /// Returns the length of that log.
    pub(super) fn loosened(&self) -> usize {
        self.loosened.len()
    }

    /// Returns the cells logged since a mark, each once.
    pub(super) fn loosened_since(&self, mark: usize) -> Vec<CellId> {
        let mut cells = self.loosened.get(mark..).unwrap_or_default().to_vec();
        cells.sort_unstable();
        cells.dedup();
        cells
    }

    /// Clears the log.
    pub(super) fn forget_loosened(&mut self) {
        self.loosened.clear();
    }

    /// Records that the program writes an undeclared name.
    pub(super) fn set_global(&mut self) {
        self.sets_globals = true;
    }

    /// Records that an item of a list is set by its index.
    pub(super) fn set_item(&mut self, list: ObjId) {
        self.sparse.insert(list);
    }

    /// Returns whether an item of a list may be missing.
    pub(super) fn is_sparse(&self, list: ObjId) -> bool {
        self.sparse.contains(&list)
    }

    /// Records whether the call just walked returned something that is also held elsewhere.
    pub(super) fn note_returned_argument(&mut self, returned_argument: bool) {
        self.returned_argument = returned_argument;
    }

    /// Returns and clears what `note_returned_argument` recorded.
    pub(super) fn take_returned_argument(&mut self) -> bool {
        std::mem::take(&mut self.returned_argument)
    }

    /// Records whether a getter returned a promise.
    pub(super) fn gets(&mut self, object: ObjId, name: NameId, promised: Promised) {
        let known = self.got.entry((object, name)).or_insert(promised);
        *known = known.or(promised);
    }

    /// Returns whether a getter returns promises.
    pub(super) fn got(&self, object: ObjId, name: NameId) -> Option<Promised> {
        self.got.get(&(object, name)).copied()
    }

    /// Records what a callback of `reduce` returned; returns whether that is new.
    pub(super) fn folds(&mut self, fold: ObjId, promised: Promised) -> bool {
        let before = self.folds.get(&fold).copied();
        let known = before.map_or(promised, |known| known.or(promised));
        self.folds.insert(fold, known);
        before != Some(known)
    }

    /// Returns whether the callback of a call of `reduce` returns promises.
    pub(super) fn folded(&self, fold: ObjId) -> Promised {
        self.folds.get(&fold).copied().unwrap_or_default()
    }

    /// Records that an instruction is right on some path.
    pub(super) fn right(&mut self, inst: u32) {
        let place = inst as usize;
        if self.right.len() <= place {
            self.right.resize(place + 1, false);
        }
        self.right[place] = true;
    }

    /// Records that an operand is right on some path.
    pub(super) fn right_part(&mut self, place: Place) {
        self.right_parts.insert(place);
    }

    /// Records a fault.
    pub(super) fn wrong(&mut self, place: Place, misuse: Misuse) {
        // The first fault of an operand is reported.
        self.found.entry(place).or_insert(misuse);
    }
}

/// How a call is written in the source.
#[derive(Clone, Copy)]
pub(super) enum CallText<'a> {
    /// It is not written as a call: the engine makes it.
    Nowhere,
    /// A call expression.
    Call {
        /// The function that has the call.
        func: FuncId,
        /// The slot of the receiver.
        this: Option<Slot>,
        /// The slots of the arguments.
        args: &'a [Arg],
    },
    /// A method of the engine calls a function with the items of a list.
    Items {
        /// The source text of the list.
        of: (u32, u32),
        /// Where the method's first argument begins.
        first: u32,
    },
}

impl Solver<'_> {
    /// Returns the faults of the last round. An analysis that hit a limit keeps only the impossible tool names.
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
        // The program may have replaced a global such as `Promise`.
        misuses.iter_mut().for_each(|misuse| misuse.sure &= !is_doubted);
        misuses.sort_by_key(|misuse| (misuse.at, misuse.text));
        misuses
    }
}
