//! Abstract objects, identified by allocation site and context, and the cells that hold their fields.

use foldhash::{HashMap, HashMapExt as _};

use super::{Domain, NameId, SiteId, Value};
use crate::structure::core::{FuncId, Slot};

/// An object, or all objects that one allocation site creates.
pub(in crate::structure) type ObjId = u32;
/// Something that holds a value: a variable or a property.
pub(in crate::structure) type CellId = u32;

/// The control levels around an allocation: how many there are, and the number of the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::structure) struct Birth {
    pub(in crate::structure) depth: u32,
    pub(in crate::structure) level: u32,
}

/// Where data comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::structure) enum Origin {
    Task(SiteId),
    Args,
    Other,
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::structure) enum Kind {
    Plain,
    Array,
    /// A function, with the context in which it was made.
    Func {
        func: FuncId,
        env: u32,
    },
    /// A function with bound arguments.
    Bound,
    Data(Origin),
    Promise,
    Iterator,
    Map,
    Set,
    /// A regular expression that its use does not change.
    Pattern,
    /// Another object of the engine, of which only its arguments are known.
    Opaque,
}

/// An object.
pub(in crate::structure) struct Object {
    pub(in crate::structure) kind: Kind,
    /// Whether it stands for exactly one object.
    pub(in crate::structure) unique: bool,
    pub(in crate::structure) escaped: bool,
    pub(in crate::structure) birth: Birth,
    /// Whether something other than the variables of one iteration or one call may hold it.
    pub(in crate::structure) kept: bool,
    /// The loop iteration in which it is made, and the round of the analysis.
    pub(in crate::structure) turn: (u32, u32),
    /// The number of allocations up to its last one.
    pub(in crate::structure) made: u32,
    /// The names of its properties, in the order in which they were first set.
    pub(in crate::structure) keys: Vec<(NameId, CellId)>,
}

/// What is known about a cell, over all rounds and at the current point.
#[derive(Clone, Copy)]
pub(in crate::structure) struct Cell {
    pub(in crate::structure) now: Value,
    /// Everything that was ever written to it.
    pub(in crate::structure) ever: Value,
    /// What concurrent code may write at any time.
    pub(in crate::structure) concurrent: Value,
    pub(in crate::structure) birth: Birth,
    /// Whether the cell is exactly one variable or property, so that a write replaces its value.
    pub(in crate::structure) unique: bool,
    /// Whether only the code of one function has access to it.
    pub(in crate::structure) private: bool,
    /// Whether `ever` was read, so that a change of it needs another round.
    pub(in crate::structure) watched: bool,
    /// The source text of what was written to it last.
    pub(in crate::structure) span: (u32, u32),
    /// The object that has it; `None` for a variable.
    pub(in crate::structure) object: Option<ObjId>,
    /// Its value at the beginning of a round.
    first: Value,
}

/// Objects with more properties than this are searched through `many`.
const LINEAR_SEARCH_LIMIT: usize = 12;

/// The numbers of objects and cells of a typical program, for which capacity is reserved at the start.
const TYPICAL_OBJECTS: usize = 50;
const TYPICAL_CELLS: usize = 300;

/// All objects and cells.
pub(in crate::structure) struct Heap {
    pub(in crate::structure) objects: Vec<Object>,
    pub(in crate::structure) cells: Vec<Cell>,
    ids: HashMap<(u32, u32, Kind), ObjId>,
    many: HashMap<(ObjId, NameId), CellId>,
}

impl Default for Heap {
    fn default() -> Self {
        Self {
            objects: Vec::with_capacity(TYPICAL_OBJECTS),
            cells: Vec::with_capacity(TYPICAL_CELLS),
            ids: HashMap::with_capacity(TYPICAL_OBJECTS),
            many: HashMap::default(),
        }
    }
}

impl Heap {
    /// Returns the object that an allocation site creates in a context.
    pub(in crate::structure) fn object(
        &mut self,
        context: u32,
        at: u32,
        kind: Kind,
        unique: bool,
        birth: Birth,
    ) -> ObjId {
        if let Some(id) = self.ids.get(&(context, at, kind)) {
            let object = &mut self.objects[*id as usize];
            // The level may change between rounds; the cells were born with the object.
            object.unique &= unique;
            object.birth = birth;
            for (_, cell) in &object.keys {
                self.cells[*cell as usize].birth = birth;
            }
            return *id;
        }
        let id = self.objects.len() as ObjId;
        self.objects.push(Object {
            kind,
            unique,
            escaped: false,
            birth,
            kept: false,
            turn: (0, u32::MAX),
            made: 0,
            keys: Vec::new(),
        });
        self.ids.insert((context, at, kind), id);
        id
    }

    pub(in crate::structure) fn find(&self, object: ObjId, name: NameId) -> Option<CellId> {
        let keys = &self.objects[object as usize].keys;
        if keys.len() > LINEAR_SEARCH_LIMIT {
            return self.many.get(&(object, name)).copied();
        }
        keys.iter().find(|(known, _)| *known == name).map(|(_, cell)| *cell)
    }

    /// Returns the cell of a property, which is created if it does not exist.
    pub(in crate::structure) fn cell(&mut self, object: ObjId, name: NameId) -> CellId {
        if let Some(cell) = self.find(object, name) {
            return cell;
        }
        let known = &self.objects[object as usize];
        let (unique, birth, private) = (known.unique, known.birth, !known.kept);
        let cell = self.add(Value::ABSENT, unique, private, birth);
        self.cells[cell as usize].object = Some(object);
        let keys = &mut self.objects[object as usize].keys;
        keys.push((name, cell));
        let count = keys.len();
        // When the limit is exceeded, all properties move into the table; later only the new one does.
        let new = if count == LINEAR_SEARCH_LIMIT + 1 { &keys[..] } else { &keys[count - 1..] };
        if count > LINEAR_SEARCH_LIMIT {
            self.many.extend(new.iter().map(|(name, cell)| ((object, *name), *cell)));
        }
        cell
    }

    fn add(&mut self, first: Value, unique: bool, private: bool, birth: Birth) -> CellId {
        let id = self.cells.len() as CellId;
        let (ever, concurrent) = (Value::NEVER, Value::NEVER);
        self.cells.push(Cell {
            now: first,
            ever,
            concurrent,
            birth,
            unique,
            private,
            watched: false,
            span: (0, 0),
            object: None,
            first,
        });
        id
    }

    /// Adds the cells of a function's frame and returns the first of them.
    pub(in crate::structure) fn frame(
        &mut self,
        slots: Slot,
        mut of: impl FnMut(Slot) -> (bool, bool),
        birth: Birth,
    ) -> CellId {
        let base = self.cells.len() as CellId;
        for slot in 0..slots {
            let (unique, private) = of(slot);
            self.add(Value::NEVER, unique, private, birth);
        }
        base
    }

    /// Resets the current values of all cells.
    pub(in crate::structure) fn begin_round(&mut self) {
        for cell in &mut self.cells {
            cell.now = cell.first;
        }
    }

    /// Adds to what was ever written to a cell; returns whether another round is needed.
    pub(in crate::structure) fn note(
        &mut self,
        domain: &mut Domain,
        cell: CellId,
        value: Value,
    ) -> bool {
        let known = &mut self.cells[cell as usize];
        if known.ever == value {
            return false;
        }
        let joined = domain.join(known.ever, value);
        let is_new = joined != known.ever;
        known.ever = joined;
        is_new && known.watched
    }
}
