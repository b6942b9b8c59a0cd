//! Uses of values that are mistakes for a promise, and the source text of values.

use super::{Key, Slot};

/// How a value is used.
pub(in crate::structure) enum Use {
    /// The condition of a branch or a loop.
    Condition,
    /// The left side of `??` or `||`.
    Fallback,
    /// A part of a string.
    Text,
    Operand,
    /// One side of a comparison with another value, or with the cases of a `switch`.
    Comparison {
        with: Option<Slot>,
    },
    /// The object of `object.key`.
    Field(Key),
    /// The source of a destructuring.
    Parts,
    /// The iterable of a loop.
    List,
    Spread,
    /// An expression statement; `chosen` if a logical operator selects the value.
    Dropped {
        chosen: bool,
    },
}

/// The source text of the value of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::structure) enum Text {
    #[default]
    Unknown,
    /// An expression of the function.
    Written((u32, u32)),
    /// The argument at an index, as the caller writes it.
    Given(u32),
}
