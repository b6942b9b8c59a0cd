//! The core language to which every program is lowered.
//!
//! A function is a frame of numbered slots and a block of instructions. A slot is a variable or the
//! result of one instruction. Control flow is structured: a block has one entry, and its exits name the
//! region that they leave. Classes, patterns, defaults, optional chains, templates and `switch` are
//! expressed by simpler instructions; what cannot be expressed is [`Op::Unknown`], which may do anything.

mod print;
mod uses;

use std::ops::Range;

use swc_atoms::Atom;

#[cfg(test)]
pub(super) use self::print::print;
pub(super) use self::uses::{Text, Use};

/// A variable or an intermediate result of one function.
pub(super) type Slot = u32;
/// A function of the program, by its index in [`Core::functions`].
pub(super) type FuncId = u32;
/// A part of a function that a jump can leave.
pub(super) type Region = u32;

/// `this` of a function that has one.
pub(super) const THIS: Slot = 0;
/// `arguments` of a function that has them.
pub(super) const ARGUMENTS: Slot = 1;
/// The return value of the function.
pub(super) const RESULT: Slot = 2;
/// `new.target` of a function that has one.
pub(super) const TARGET: Slot = 3;
/// The object under construction, before `super(…)` makes it available as `this`.
pub(super) const MADE: Slot = 4;
/// The region of the whole function.
pub(super) const WHOLE: Region = 0;

/// A program in the core language.
pub(super) struct Core {
    /// The functions; the first is the program itself.
    pub(super) functions: Vec<Function>,
    /// Whether a property has the name of a method that the engine calls implicitly: `toString`, `toJSON`, `then` …
    pub(super) converts: bool,
    /// Whether the program has getters or setters.
    pub(super) accessors: bool,
    /// Whether the program mentions `Symbol`.
    pub(super) symbols: bool,
    /// Whether it may replace how objects of the engine are iterated, copied, matched or split.
    pub(super) hooks: bool,
    /// Whether it may observe the order of an object's properties.
    pub(super) orders: bool,
    /// Whether the program ends at its `return`, rather than when everything that it started has ended.
    pub(super) ends_at_return: bool,
    /// The positions of undeclared names that resemble others.
    pub(super) unknown_names: Vec<(u32, Atom)>,
    /// The first use of `arguments` outside of the program's own functions.
    pub(super) foreign_arguments: Option<u32>,
    /// The receivers of method calls, by the id of the call instruction, in order.
    pub(super) called_on: Vec<(u32, Extent)>,
}

/// A function in the core language.
pub(super) struct Function {
    pub(super) slots: u32,
    /// What is known of each slot.
    pub(super) variables: Vec<Variable>,
    /// The loop around each loop.
    pub(super) loops: Vec<u32>,
    pub(super) form: FuncForm,
    pub(super) is_async: bool,
    pub(super) is_generator: bool,
    /// Whether it mentions `arguments`.
    pub(super) uses_arguments: bool,
    /// Whether it mentions `new.target`.
    pub(super) uses_target: bool,
    /// Whether it tests if a value is a promise.
    pub(super) asks_for_promises: bool,
    pub(super) body: Block,
}

impl Function {
    /// Returns whether `new` accepts it.
    pub(super) fn constructs(&self) -> bool {
        match self.form {
            FuncForm::Plain => !self.is_async && !self.is_generator,
            FuncForm::Constructor { .. } => true,
            FuncForm::Method | FuncForm::Arrow => false,
        }
    }
}

/// What the text says about a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Variable {
    /// Whether other functions read or write it.
    pub(super) captured: bool,
    /// Whether it exists anew in each iteration of a loop.
    pub(super) per_turn: bool,
    /// The loop in which it is declared, from 1; 0 is none.
    pub(super) in_loop: u32,
    /// The source text of its value.
    pub(super) text: Text,
}

/// The kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FuncForm {
    Plain,
    /// A method or an accessor, which is no constructor.
    Method,
    /// Has the `this` of the enclosing function.
    Arrow,
    /// The constructor of a class; in a derived one, `super(…)` provides `this`.
    Constructor {
        derived: bool,
    },
}

pub(super) type Block = Vec<Inst>;

/// One instruction and the source text that it comes from.
pub(super) struct Inst {
    pub(super) at: u32,
    pub(super) end: u32,
    /// A number that is unique in the program.
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
    /// Returns whether it is truthy.
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

/// The kind of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Made {
    Object,
    Array,
    /// A regular expression; with the flag `g` or `y`, using it changes its `lastIndex`.
    Pattern {
        goes_on: bool,
    },
}

/// How a literal or a class defines a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Value,
    Getter,
    Setter,
    Prototype,
}

/// A computation on values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// `+`
    Add,
    /// The text of a template, whose parts are converted to strings.
    Text,
    /// `===`, `!==`, `typeof`, `!`: reads no property and calls nothing.
    Look,
    /// Whether the value is `undefined` or `null`.
    IsNothing,
    IsUndefined,
    Not,
    /// The value, where it is known to be truthy.
    True,
    /// The value, where it is known to be falsy.
    False,
    /// The value, where it is known to be neither `undefined` nor `null`.
    There,
    /// Arithmetic and comparisons, which convert their operands.
    Convert,
    /// `in`, which passes the key to the object.
    In,
    /// `instanceof`, which also reads the prototypes.
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

/// How the promise of a call is used, as far as the surrounding syntax shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It is awaited immediately.
    Now,
    /// The function returns it, so it is awaited if the call of the function is.
    Tail,
    /// It is dropped, stored or passed on.
    Other,
}

/// One argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arg {
    pub(super) slot: Slot,
    pub(super) spread: bool,
}

/// A part of the source: the byte offsets of its start and its end.
pub(super) type Extent = (u32, u32);

/// How a branch appears in the structure of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appearance {
    /// It does not appear.
    Hidden,
    /// The test of a loop, whose body may not run at all.
    Test,
    /// A decision with two branches, shown by the text of its test.
    Decision { test: Extent },
    /// A decision with one branch: that of `&&`, `||` or `??`.
    Either { test: Extent },
    /// One branch of the enclosing decision.
    Way(Branch),
}

/// A part of a construct, as it is named in the structure of the plan.
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
    /// One of the promises that are awaited together, from 0.
    Member(u32),
    Members,
}

/// How a block appears in the structure of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A decision whose branches are in the block.
    Decision { of: Slot, test: Extent },
    /// Calls that are in flight together, by the method of `Promise` that waits for them.
    Fork { how: &'static str },
    /// A part of the enclosing construct.
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
    /// Begins the temporal dead zone of a variable that may be used before its declaration.
    Declare {
        slot: Slot,
    },
    /// Reads a variable of an enclosing function.
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
    /// The argument at an index.
    Param {
        to: Slot,
        index: u32,
    },
    /// The arguments from an index on.
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
    /// Copies the fields of an object, except those in `but`.
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
    /// One item of an iterable.
    Item {
        to: Slot,
        of: Slot,
        index: u32,
    },
    /// The items from an index on.
    Items {
        to: Slot,
        of: Slot,
        from: u32,
    },
    Make {
        to: Slot,
        func: FuncId,
    },
    /// Makes a class from its constructor, its prototype and its parent.
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
        /// Whether it is awaited because an async function returns it.
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
        appears: Appearance,
    },
    /// Repeats until `exit` is left; leaving `turn` ends an iteration.
    Loop {
        serial: u32,
        exit: Region,
        turn: Region,
        over: Extent,
        /// Whether the test comes after the body.
        tests_last: bool,
        body: Block,
        after: Block,
    },
    /// Runs once for each item, or for each property name if `names`.
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
        /// The slots that only the block uses.
        own: Range<Slot>,
        body: Block,
    },
    Jump {
        to: Region,
    },
    Throw {
        from: Slot,
    },
    /// Code that ends in a `throw` in any case, so a failure in it decides nothing.
    Doomed {
        body: Block,
    },
    Try {
        body: Block,
        handler: Option<(Slot, Block)>,
        finally: Option<Block>,
    },
    /// A block that appears in the structure of the plan.
    Marked {
        mark: Mark,
        body: Block,
    },
    /// A construct without a lowering: anything may happen to its operands.
    Unknown {
        to: Slot,
        of: Vec<Slot>,
    },
    /// Has no effect. Records that the next instructions use the value as something other than a promise.
    Take {
        of: Slot,
        how: Use,
    },
}
