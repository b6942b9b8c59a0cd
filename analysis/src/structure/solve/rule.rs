//! The rules of the walk, each of which a test can make it forget.
//!
//! A rule that can be forgotten without a program that shows it is not needed, or not tested.

use std::cell::Cell;

use super::Solver;
use crate::structure::builtins::{Calls, Gives, Method, Takes};

/// A rule that the walk applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// What a branch decides flows into what is written under it.
    WriteUnderBranch,
    /// What a branch decides flows into what differs after it.
    BranchMerges,
    /// A way out decides what comes after it.
    WayOut,
    /// What left a region is what it had there.
    WayOutMerges,
    /// What decides on a turn of a loop decides on the next.
    LoopDecides,
    /// A turn of a loop hands on what it wrote.
    LoopCarries,
    /// What may throw decides what comes after its handler.
    Throw,
    /// A handler sees what was written before the failure.
    HandlerSeesWrites,
    /// Parsing, missing fields and the like may fail.
    ImplicitFailure,
    /// Which function is called decides what it does.
    CalleeChosen,
    /// Which object is written decides what it has.
    ObjectChosen,
    /// Which property is named flows into what is read.
    KeyRead,
    /// Which object is read flows into what is read.
    ObjectRead,
    /// An object is sent with its parts.
    Parts,
    /// How often a callback is called is decided by its list.
    CallbackCount,
    /// What a callback gives decides how often it is called.
    CallbackUntil,
    /// Getters are called.
    Getter,
    /// Setters are called.
    Setter,
    /// Conversions call methods of the program.
    Conversion,
    /// `toJSON` and getters are called when a value is sent.
    Serialised,
    /// What an object stands under is looked at.
    Prototype,
    /// What decides how far an iterator went flows into what it gives next.
    IteratorState,
    /// A promise hands on what it is resolved with.
    PromiseValue,
    /// A promise hands on that it failed, and by what.
    PromiseFailure,
    /// Of two ways to settle a promise, the first counts.
    PromiseFirst,
    /// What escaped is handed to all unknown code.
    Escape,
    /// Functions that escaped are called.
    EscapedCall,
    /// How long code waits decides what it finds, and what finds it.
    Waiting,
    /// Items of a list are not told apart where they are moved.
    Moved,
    /// A timer that may be stopped may not run.
    TimerStopped,
    /// The delay of a timer decides what comes before it.
    TimerDelay,
    /// The order in which properties are added is seen.
    PropertyOrder,
    /// Rest parameters and spread arguments take all items.
    Rest,
    /// The row of a method of the engine forgets what is put into its receiver.
    Takes(&'static str),
    /// The row forgets what it calls.
    Calls(&'static str),
    /// The row forgets what flows into what it gives.
    Gives(&'static str),
    /// The row forgets that it moves items.
    Moves(&'static str),
}

thread_local! {
    static FORGOTTEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Does something while a rule is forgotten.
pub(crate) fn forgetting<T>(rule: Rule, make: impl FnOnce() -> T) -> T {
    let before = FORGOTTEN.replace(Some(rule));
    let made = make();
    FORGOTTEN.set(before);
    made
}

/// Returns the rule that is forgotten.
pub(super) fn forgotten() -> Option<Rule> {
    FORGOTTEN.get()
}

impl Rule {
    /// The rules that are no row of a table.
    const OF_THE_WALK: &'static [Self] = &[
        Self::WriteUnderBranch,
        Self::BranchMerges,
        Self::WayOut,
        Self::WayOutMerges,
        Self::LoopDecides,
        Self::LoopCarries,
        Self::Throw,
        Self::HandlerSeesWrites,
        Self::ImplicitFailure,
        Self::CalleeChosen,
        Self::ObjectChosen,
        Self::KeyRead,
        Self::ObjectRead,
        Self::Parts,
        Self::CallbackCount,
        Self::CallbackUntil,
        Self::Getter,
        Self::Setter,
        Self::Conversion,
        Self::Serialised,
        Self::Prototype,
        Self::IteratorState,
        Self::PromiseValue,
        Self::PromiseFailure,
        Self::PromiseFirst,
        Self::Escape,
        Self::EscapedCall,
        Self::Waiting,
        Self::Moved,
        Self::TimerStopped,
        Self::TimerDelay,
        Self::PropertyOrder,
        Self::Rest,
    ];

    /// Returns all rules: those of the walk, and four for each row of the table of methods, by the row's first name.
    pub fn all() -> Vec<Self> {
        let mut all = Self::OF_THE_WALK.to_vec();
        for (name, method) in crate::structure::builtins::rows() {
            if method.takes != Takes::Nothing {
                all.push(Self::Takes(name));
            }
            if method.calls != Calls::Never {
                all.push(Self::Calls(name));
            }
            if method.gives != Gives::Undefined {
                all.push(Self::Gives(name));
            }
            if method.moves {
                all.push(Self::Moves(name));
            }
        }
        all
    }
}

impl Solver<'_> {
    /// Returns whether a rule is followed: all are, but for one in tests.
    pub(super) fn follows(&self, rule: Rule) -> bool {
        self.forgotten.is_none_or(|forgotten| forgotten != rule)
    }

    /// Returns the row of a method, or what is left of it.
    pub(super) fn remembered(&self, row: &'static str, mut method: Method) -> Method {
        match self.forgotten {
            Some(Rule::Takes(name)) if name == row => method.takes = Takes::Nothing,
            Some(Rule::Calls(name)) if name == row => method.calls = Calls::Never,
            Some(Rule::Gives(name)) if name == row => method.gives = Gives::Undefined,
            Some(Rule::Moves(name)) if name == row => method.moves = false,
            _ => {}
        }
        method
    }
}
