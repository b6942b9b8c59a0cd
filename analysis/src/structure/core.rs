//! The core language: what every program is a shorthand for.
//!
//! A function is a frame of numbered slots and a block of instructions. A slot is a variable or the
//! result of one instruction. Control is nested: a block has one way in, and ways out that are named
//! by their region. Classes, patterns, defaults, optional chains, templates and `switch` are spelled
//! out; what has no spelling is [`Op::Unknown`], which may do everything.

mod print;
mod uses;

use swc_atoms::Atom;

#[cfg(test)]
pub(super) use self::print::print;
pub(super) use self::uses::{Text, Use};

/// A variable or an intermediate result of one function.
pub(super) type Slot = u32;
/// A function of the program, by its place in [`Core::functions`].
pub(super) type FuncId = u32;
/// A part of a function that can be left in its middle.
pub(super) type Region = u32;

/// `this` of a function that has one.
pub(super) const THIS: Slot = 0;
/// `arguments` of a function that has them.
pub(super) const ARGUMENTS: Slot = 1;
/// What the function gives back.
pub(super) const RESULT: Slot = 2;
/// `new.target` of a function that has one.
pub(super) const TARGET: Slot = 3;
/// The object that a constructor was called for, before `super(…)` gives it `this`.
pub(super) const MADE: Slot = 4;
/// The region of the whole function.
pub(super) const WHOLE: Region = 0;

/// A program in the core language.
pub(super) struct Core {
    /// The functions; the first is the program itself.
    pub(super) functions: Vec<Function>,
    /// Whether a property has the name of a method that conversions call: `toString`, `toJSON`, `then` …
    pub(super) converts: bool,
    /// Whether the program has getters or setters.
    pub(super) accessors: bool,
    /// Whether it names `Symbol`.
    pub(super) symbols: bool,
    /// Whether it may give objects of the engine other ways to iterate, copy, match or split.
    pub(super) hooks: bool,
    /// Whether it may see the order of the properties of an object.
    pub(super) orders: bool,
    /// Whether the program ends at its `return`, and not when all that it has started has ended.
    pub(super) ends_at_return: bool,
    /// The places of names that nothing declares and that look like others.
    pub(super) unknown_names: Vec<(u32, Atom)>,
    /// Where the program first names `arguments` that are not those of a function of its own.
    pub(super) foreign_arguments: Option<u32>,
    /// What methods are called on, by the number of the call, in order.
    pub(super) called_on: Vec<(u32, Extent)>,
}

/// A function in the core language.
pub(super) struct Function {
    pub(super) slots: u32,
    /// The slots that other functions read or write.
    pub(super) captured: Vec<bool>,
    /// The loop in which each slot is declared, from 1; 0 is none.
    pub(super) in_loop: Vec<u32>,
    /// The slots of which there is one for each turn of a loop.
    pub(super) per_turn: Vec<bool>,
    /// The text of what each slot has.
    pub(super) texts: Vec<Text>,
    /// The loop around each loop.
    pub(super) loops: Vec<u32>,
    pub(super) form: FuncForm,
    pub(super) is_async: bool,
    pub(super) is_generator: bool,
    /// Whether it names `arguments`.
    pub(super) uses_arguments: bool,
    /// Whether it names `new.target`.
    pub(super) uses_target: bool,
    /// Whether it asks whether something is a promise.
    pub(super) asks_for_promises: bool,
    pub(super) body: Block,
}

/// What kind of function it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FuncForm {
    Plain,
    /// Has the `this` of what it stands in.
    Arrow,
    /// The constructor of a class; a derived one makes `this` by `super(…)`.
    Constructor {
        derived: bool,
    },
}

pub(super) type Block = Vec<Inst>;

/// One instruction and the text it comes from.
pub(super) struct Inst {
    pub(super) at: u32,
    pub(super) end: u32,
    /// A number that no other instruction has.
    pub(super) id: u32,
    pub(super) op: Op,
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Scalar {
    Undefined,
    Null,
    Bool(bool),
    /// The bits of a number.
    Number(u64),
    Text(Atom),
}

impl Scalar {
    /// Returns whether it counts as true.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::Null => false,
            Self::Bool(value) => *value,
            Self::Number(bits) => {
                let number = f64::from_bits(*bits);
                number != 0.0 && !number.is_nan()
            }
            Self::Text(text) => !text.is_empty(),
        }
    }
}

/// The name of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Name(Atom),
    Slot(Slot),
}

/// What a new object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Made {
    Object,
    Array,
    /// A pattern; one that goes on where it stopped is changed by its use.
    Pattern {
        goes_on: bool,
    },
}

/// How a property is put into an object that is being written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Value,
    Getter,
    Setter,
    Prototype,
}

/// What is computed of some values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// `+`
    Add,
    /// The text of a template, whose parts are texts already or are converted.
    Text,
    /// `===`, `!==`, `typeof`, `!`: looks at no part, and calls nothing.
    Look,
    /// `typeof x === 'undefined'` and the like: whether it is nothing.
    IsNothing,
    IsUndefined,
    Not,
    /// What of a value is left where it is true.
    True,
    /// What of a value is left where it is false.
    False,
    /// What of a value is left where it is neither `undefined` nor `null`.
    There,
    /// Arithmetic and comparisons: what converts its operands.
    Convert,
    /// `in`, which hands the key to whatever the object is.
    In,
    /// `instanceof`, which looks at the prototypes, too.
    Instance,
}

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    Plain,
    New,
    /// `super(…)`
    Super,
}

/// What becomes of the promise of a call, as far as the text beside it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The program waits for it before it does anything else.
    Now,
    /// It is what the function gives back, and is waited for as the call of the function is.
    Tail,
    /// It is dropped, kept or handed on.
    Other,
}

/// One argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arg {
    pub(super) slot: Slot,
    pub(super) spread: bool,
}

/// A part of the source, in bytes: where it begins and where it ends.
pub(super) type Extent = (u32, u32);

/// What a choice is in the structure that people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing.
    Hidden,
    /// The test of a loop, which may be left without a turn.
    Test,
    /// A decision between two ways, by the text of its test.
    Decision { test: Extent },
    /// A decision whether the one way is taken that holds anything: that of `&&`, `||` or `??`.
    Either { test: Extent },
    /// One way of a decision around it.
    Way(Branch),
}

/// The way out of a part of the program that leads to what stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Branch {
    Then,
    Else,
    /// A case of `switch`, from 1.
    Case(u32),
    Default,
    Test,
    Body,
    Update,
    Try,
    Catch,
    Finally,
    /// One of those that are awaited together, from 0.
    Member(u32),
    Members,
}

/// What a block is in the structure that people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A decision whose ways stand in the block.
    Decision { of: Slot, test: Extent },
    /// Calls that are in flight together, by the method of `Promise` that waits for them.
    Fork { how: &'static str },
    /// A way of what stands around the block.
    Way(Branch),
}

/// What an instruction does.
pub(super) enum Op {
    Const {
        to: Slot,
        value: Scalar,
    },
    Copy {
        to: Slot,
        from: Slot,
    },
    /// Reads a variable of a function around this one.
    Outer {
        to: Slot,
        up: u32,
        slot: Slot,
    },
    SetOuter {
        up: u32,
        slot: Slot,
        from: Slot,
    },
    /// Reads a name that the program does not declare.
    Global {
        to: Slot,
        name: Atom,
    },
    SetGlobal {
        name: Atom,
        from: Slot,
    },
    /// What the function is given at a place.
    Param {
        to: Slot,
        index: u32,
    },
    /// What it is given from there on.
    Rest {
        to: Slot,
        index: u32,
    },
    Get {
        to: Slot,
        object: Slot,
        key: Key,
        called: bool,
    },
    /// `super.key`
    Above {
        to: Slot,
        home: Slot,
        this: Slot,
        key: Key,
    },
    Set {
        object: Slot,
        key: Key,
        from: Slot,
    },
    Delete {
        object: Slot,
        key: Key,
    },
    New {
        to: Slot,
        made: Made,
    },
    Put {
        object: Slot,
        key: Key,
        from: Slot,
        how: Put,
    },
    /// Copies the fields of an object, but for some.
    Spread {
        object: Slot,
        from: Slot,
        but: Vec<Key>,
    },
    Push {
        list: Slot,
        from: Slot,
        spread: bool,
    },
    /// One item of what can be iterated.
    Item {
        to: Slot,
        of: Slot,
        index: u32,
    },
    /// The items from a place on.
    Items {
        to: Slot,
        of: Slot,
        from: u32,
    },
    Make {
        to: Slot,
        func: FuncId,
    },
    /// Makes a class of its constructor, its prototype and what it extends.
    Class {
        class: Slot,
        prototype: Slot,
        parent: Option<Slot>,
    },
    Compute {
        to: Slot,
        how: Sum,
        of: Vec<Slot>,
    },
    Call {
        to: Slot,
        callee: Slot,
        this: Option<Slot>,
        args: Vec<Arg>,
        form: CallForm,
        wait: Wait,
    },
    Await {
        to: Slot,
        from: Slot,
        /// Whether it is waited for because an async function returns it.
        returned: bool,
    },
    Yield {
        to: Slot,
        from: Slot,
        all: bool,
    },
    If {
        cond: Slot,
        then: Block,
        other: Block,
        told: Told,
    },
    /// Goes round until it is left; `turn` ends each round but not the loop.
    Loop {
        serial: u32,
        exit: Region,
        turn: Region,
        over: Extent,
        /// Whether the test stands behind the body.
        tests_last: bool,
        body: Block,
        after: Block,
    },
    /// Goes round once for each item, or for each name with `names`.
    Each {
        serial: u32,
        exit: Region,
        turn: Region,
        of: Slot,
        item: Slot,
        names: bool,
        waits: bool,
        over: Extent,
        body: Block,
    },
    Block {
        exit: Region,
        body: Block,
    },
    Jump {
        to: Region,
    },
    Throw {
        from: Slot,
    },
    /// What fails whatever it does: a failure in it decides nothing.
    Doomed {
        body: Block,
    },
    Try {
        body: Block,
        handler: Option<(Slot, Block)>,
        finally: Option<Block>,
    },
    /// A block that people see as a part of the program.
    Marked {
        mark: Mark,
        body: Block,
    },
    /// What has no lowering: everything may happen to what it is given.
    Unknown {
        to: Slot,
        of: Vec<Slot>,
    },
    /// Does nothing: what comes next uses the value in a way that makes no sense for a promise.
    Take {
        of: Slot,
        how: Use,
    },
}
