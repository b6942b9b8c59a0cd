//! The rules of the walk. A mutation test disables one at a time and expects that a test program shows it: a
//! rule whose absence no program shows is not needed or not tested.

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
    /// An exit decides what comes after it.
    WayOut,
    /// The state at an exit from a region is joined into the state after the region.
    WayOutMerges,
    /// What decides on a turn of a loop decides on the next one.
    LoopDecides,
    /// A turn of a loop passes its writes to the next one.
    LoopCarries,
    /// What decides on a `throw` decides what comes after its handler.
    Throw,
    /// A handler sees what was written before the failure.
    HandlerSeesWrites,
    /// Parsing, reads of missing fields and the like may fail.
    ImplicitFailure,
    /// Which function is called decides what it does.
    CalleeChosen,
    /// Which object is written flows into its contents.
    ObjectChosen,
    /// Which property is named flows into what is read.
    KeyRead,
    /// Which object is read flows into what is read.
    ObjectRead,
    /// An object is sent with all its parts.
    Parts,
    /// How often a callback is called depends on the list.
    CallbackCount,
    /// A callback's result decides how often it is called.
    CallbackUntil,
    /// Getters are called.
    Getter,
    /// Setters are called.
    Setter,
    /// Conversions call methods of the program.
    Conversion,
    /// `toJSON` and getters are called when a value is sent.
    Serialised,
    /// Properties are looked up in prototypes.
    Prototype,
    /// What decides how far an iterator went flows into what it gives next.
    IteratorState,
    /// A promise passes on what it is fulfilled with.
    PromiseValue,
    /// A promise passes on whether it is rejected, and with what.
    PromiseFailure,
    /// The first call of a promise's resolvers counts.
    PromiseFirst,
    /// What escapes reaches all unknown code.
    Escape,
    /// Functions that escaped are called at any time.
    EscapedCall,
    /// How long code waits decides what it sees, and what sees it.
    Waiting,
    /// After a method that moves items, any item may be at any index.
    Moved,
    /// A timer that may be cleared may not run.
    TimerStopped,
    /// The delay of a timer decides what runs before it.
    TimerDelay,
    /// The order in which properties are added is visible.
    PropertyOrder,
    /// Rest parameters and spread arguments take all items.
    Rest,
    /// The method's row in the table loses what it puts into its receiver.
    Takes(&'static str),
    /// The row loses what it calls.
    Calls(&'static str),
    /// The row loses what flows into its result.
    Gives(&'static str),
    /// The row loses that it moves items.
    Moves(&'static str),
}

thread_local! {
    /// The rule that is disabled on this thread.
    static FORGOTTEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Runs something while a rule is disabled.
pub(crate) fn forgetting<T>(rule: Rule, make: impl FnOnce() -> T) -> T {
    let before = FORGOTTEN.replace(Some(rule));
    let made = make();
    FORGOTTEN.set(before);
    made
}

/// Returns the rule that is disabled.
pub(super) fn forgotten() -> Option<Rule> {
    FORGOTTEN.get()
}

impl Rule {
    /// The rules that are not rows of the table of methods.
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

    /// Returns all rules: those of the walk, and up to four for each row of the table of methods, named by the
    /// row's first method.
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
    /// Returns whether a rule is enabled. All are, except for one in mutation tests.
    pub(super) fn follows(&self, rule: Rule) -> bool {
        self.forgotten.is_none_or(|forgotten| forgotten != rule)
    }

    /// Returns a method's row, without what the mutation test disables.
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
