//! What shape a value has, and what its parts are.

use std::rc::Rc;

use swc_atoms::Atom;

use super::few::{Few, one};
use super::value::{Scalar, SiteId, Value};
use crate::structure::PathStep;

/// The most steps of a reference.
const STEPS_LIMIT: usize = 32;

/// The names of the parts through which a reference goes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Steps(Option<Few<Atom>>);

impl Steps {
    /// Returns the steps with one more, unless there are too many.
    pub(super) fn and(&self, name: &Atom) -> Option<Self> {
        let Some(steps) = &self.0 else { return Some(Self(Some(one(name.clone())))) };
        let longer = || steps.iter().chain([name]).cloned().collect();
        (steps.len() < STEPS_LIMIT).then(|| Self(Some(Rc::new(longer()))))
    }

    /// Returns the steps as they are told.
    pub(super) fn told(&self) -> Vec<PathStep> {
        self.0.iter().flat_map(|steps| steps.iter()).map(|name| PathStep::of(name)).collect()
    }
}

/// Where a value comes from.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// Nothing has been seen to arrive here (yet).
    Never,
    /// One of these constants.
    Const(Few<Scalar>),
    /// A part of a task's result.
    Result(SiteId, Steps),
    /// A part of `args`.
    Param(Steps),
    /// An object; `open` when it may have fields that are not listed.
    Object { fields: Rc<Vec<(Atom, Value)>>, open: bool },
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
