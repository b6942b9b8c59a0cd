//! What shape a value has, and what its parts are.

use std::rc::Rc;

use super::value::{Scalar, SiteId, Value};
use crate::structure::PathStep;

/// Where a value comes from.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// Nothing has been seen to arrive here (yet).
    Never,
    /// One of these constants.
    Const(Rc<[Scalar]>),
    /// A part of a task's result.
    Result(SiteId, Rc<[PathStep]>),
    /// A part of `args`.
    Param(Rc<[PathStep]>),
    /// An object; `open` when it may have fields that are not listed.
    Object { fields: Rc<Vec<(Rc<str>, Value)>>, open: bool },
    /// An array, with every item in its place.
    Array(Rc<Vec<Value>>),
    /// What can be iterated and gives this each time, any number of times: an
    /// array of unknown length, or what a generator makes.
    Items(Rc<Value>),
    /// Exactly one of the functions in `funcs`.
    Function,
    /// Anything.
    Computed,
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        // Most often it is the very same list or object.
        if self.content().is_some_and(|content| other.content() == Some(content)) {
            return self.is_open() == other.is_open();
        }
        match (self, other) {
            (Self::Never, Self::Never)
            | (Self::Function, Self::Function)
            | (Self::Computed, Self::Computed) => true,
            (Self::Const(left), Self::Const(right)) => left == right,
            (Self::Result(left, a), Self::Result(right, b)) => left == right && a == b,
            (Self::Param(left), Self::Param(right)) => left == right,
            (Self::Object { fields: left, open }, Self::Object { fields: right, open: other }) => {
                open == other && left == right
            }
            (Self::Array(left), Self::Array(right)) => left == right,
            (Self::Items(left), Self::Items(right)) => left == right,
            _ => false,
        }
    }
}

impl Form {
    fn is_open(&self) -> bool {
        matches!(self, Self::Object { open: true, .. })
    }

    /// Returns where its parts are kept.
    pub(super) fn content(&self) -> Option<usize> {
        match self {
            Self::Object { fields, .. } => Some(Rc::as_ptr(fields) as usize),
            Self::Array(items) => Some(Rc::as_ptr(items) as usize),
            Self::Items(item) => Some(Rc::as_ptr(item) as usize),
            _ => None,
        }
    }
}
