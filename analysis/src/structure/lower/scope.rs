//! The frame of a function during lowering, and its scopes.

use foldhash::{HashMap, HashSet};
use swc_atoms::Atom;

use super::super::core::Variable;
use super::zones::DeadZones;
use super::{ARGUMENTS, Block, FuncForm, MADE, Region, Slot, TARGET, THIS};

/// A target of `break` and `continue`.
pub(super) struct Label {
    pub(super) names: Vec<Atom>,
    pub(super) exit: Region,
    /// For a loop, the region of one iteration.
    pub(super) turn: Option<Region>,
    /// Whether a `break` without a label leaves it.
    pub(super) plain: bool,
}

/// A function during lowering.
pub(super) struct Frame {
    pub(super) form: FuncForm,
    pub(super) is_async: bool,
    pub(super) is_generator: bool,
    pub(super) out: Block,
    pub(super) scopes: Vec<HashMap<Atom, Slot>>,
    pub(super) slots: u32,
    pub(super) variables: Vec<Variable>,
    /// Which variables may be used before their declaration.
    pub(super) zones: DeadZones,
    /// The loop around each loop.
    pub(super) around: Vec<u32>,
    pub(super) regions: Region,
    /// The innermost loop around the current position; 0 is none.
    pub(super) within: u32,
    pub(super) labels: Vec<Label>,
    /// The labels of the next statement.
    pub(super) pending: Vec<Atom>,
    pub(super) uses_arguments: bool,
    pub(super) uses_target: bool,
    /// The variables that cannot be reassigned.
    pub(super) constants: HashSet<Slot>,
    /// Whether it contains `x instanceof Promise`, or reads `then` without calling it.
    pub(super) asks_for_promises: bool,
    /// The region of the current optional chain.
    pub(super) chain: Option<Region>,
    /// Whether it is passed to `new Promise(…)`.
    pub(super) is_executor: bool,
}

/// The number of slots of a typical function, for which capacity is reserved at the start.
const TYPICAL_SLOTS: usize = 48;

impl Frame {
    pub(super) fn new(form: FuncForm, is_async: bool, is_generator: bool) -> Self {
        let mut variables = Vec::with_capacity(TYPICAL_SLOTS);
        // The slots that every function has.
        variables.resize(MADE as usize + 1, Variable::default());
        Self {
            form,
            is_async,
            is_generator,
            out: Block::with_capacity(8),
            scopes: vec![HashMap::default()],
            slots: MADE + 1,
            variables,
            zones: DeadZones::default(),
            around: vec![0],
            regions: 0,
            within: 0,
            labels: Vec::new(),
            pending: Vec::new(),
            uses_arguments: false,
            uses_target: false,
            constants: HashSet::default(),
            asks_for_promises: false,
            chain: None,
            is_executor: false,
        }
    }

    pub(super) fn fresh(&mut self) -> Slot {
        let slot = self.slots;
        self.slots += 1;
        let (in_loop, per_turn) = (self.within, self.within > 0);
        self.variables.push(Variable { in_loop, per_turn, ..Variable::default() });
        slot
    }

    /// Begins a loop, and returns its number and that of the loop around it.
    pub(super) fn begin_loop(&mut self) -> (u32, u32) {
        let around = self.within;
        self.around.push(around);
        self.within = self.around.len() as u32 - 1;
        (self.within, around)
    }

    /// Declares a name in the innermost scope.
    pub(super) fn declare(&mut self, name: &Atom) -> Slot {
        if let Some(slot) = self.scopes.last().and_then(|scope| scope.get(name)) {
            return *slot;
        }
        let slot = self.fresh();
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.clone(), slot);
        }
        slot
    }

    /// Declares a name in the scope of the whole function.
    pub(super) fn declare_var(&mut self, name: &Atom) -> Slot {
        if let Some(slot) = self.scopes.first().and_then(|scope| scope.get(name)) {
            return *slot;
        }
        let slot = self.fresh();
        if let Some(scope) = self.scopes.first_mut() {
            scope.insert(name.clone(), slot);
        }
        slot
    }

    /// Finds a variable of this function.
    pub(super) fn own(&self, name: &Atom) -> Option<Slot> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// Finds a name in the scope of the whole function.
    pub(super) fn first_scope(&self, name: &Atom) -> Option<Slot> {
        self.scopes.first().and_then(|scope| scope.get(name)).copied()
    }

    /// Declares a name in the scope of the whole function, replacing an earlier declaration.
    pub(super) fn redeclare_var(&mut self, name: &Atom) -> Slot {
        let slot = self.fresh();
        if let Some(scope) = self.scopes.first_mut() {
            scope.insert(name.clone(), slot);
        }
        slot
    }

    pub(super) fn find(&mut self, name: &Atom) -> Option<Slot> {
        if let Some(slot) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(*slot);
        }
        // An arrow function has none of these: they are those of the enclosing function.
        match &**name {
            "this" if self.form != FuncForm::Arrow => Some(THIS),
            "%made" if self.form != FuncForm::Arrow => Some(MADE),
            "arguments" if self.form != FuncForm::Arrow => {
                self.uses_arguments = true;
                Some(ARGUMENTS)
            }
            "new.target" if self.form != FuncForm::Arrow => {
                self.uses_target = true;
                Some(TARGET)
            }
            _ => None,
        }
    }

    pub(super) fn capture(&mut self, slot: Slot) {
        if let Some(variable) = self.variables.get_mut(slot as usize) {
            variable.captured = true;
        }
    }
}
