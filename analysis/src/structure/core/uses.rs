//! Uses of values that make no sense for a promise, and the texts by which people know values.

use super::{Key, Slot};

/// What a value is used as.
pub(in crate::structure) enum Use {
    /// What a choice or a loop depends on.
    Condition,
    /// The left side of `??` or `||`.
    Fallback,
    /// A part of a text.
    Text,
    Operand,
    /// One side of a comparison with another value, or with the cases of a `switch`.
    Comparison {
        with: Option<Slot>,
    },
    /// The object of `object.key`.
    Field(Key),
    /// What a pattern takes apart.
    Parts,
    /// What a loop goes over.
    List,
    Spread,
    /// A statement of its own; `chosen` if an operator chooses what it is.
    Dropped {
        chosen: bool,
    },
}

/// The text of what a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::structure) enum Text {
    #[default]
    Unknown,
    /// An expression of the function.
    Written((u32, u32)),
    /// What the caller writes as the argument at a place.
    Given(u32),
}
