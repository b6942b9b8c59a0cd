//! Checks where a promise is used like the value that it gives.

use super::misuse::{Misuse, Wrong};
use super::walk::AbstractKey;
use super::*;
use crate::structure::core::{Key, Scalar, Slot, Use};
use crate::structure::domain::{Kind, Origin, Prim, Promised, Ref, Shape};

/// Stands for the result of a callback in place of an argument's number.
const GIVEN: u32 = u32::MAX - 1;

impl Solver<'_> {
    /// Checks a use of a value that makes no sense for a promise.
    pub(super) fn check_use(&mut self, of: Slot, how: &Use) {
        let value = self.slot(of);
        let inst = self.place >> 3;
        let is_kept = matches!(how, Use::Dropped { .. }) && self.misuses.take_returned_argument();
        let Some(wrong) = self.wrong_use(value, how).filter(|_| !is_kept) else {
            self.misuses.right(inst);
            return;
        };
        let text = self.text_of(of);
        self.misused((inst, 0), text, wrong);
    }

    /// Returns what is wrong with a use of a value, if anything is.
    pub(super) fn wrong_use(&mut self, value: Value, how: &Use) -> Option<Wrong> {
        let shape = self.dom.shapes.kept(value.shape);
        if shape.refs.is_empty() {
            return None;
        }
        let is_promise = shape.promised.is_promise();
        match how {
            Use::Dropped { chosen }
                if is_promise || *chosen && shape.promised == Promised::Perhaps =>
            {
                return Some(Wrong::Dropped);
            }
            Use::Dropped { .. } => {
                return self.lists_promises(value).then_some(Wrong::DroppedItems);
            }
            Use::Text if !is_promise => return self.lists_promises(value).then_some(Wrong::Items),
            _ if !is_promise => return None,
            _ => {}
        }
        Some(match how {
            // A test whether the promise is there at all is right.
            Use::Condition | Use::Fallback if shape.promised == Promised::Likely => return None,
            Use::Condition => Wrong::Condition,
            Use::Fallback => Wrong::Fallback,
            Use::Text => Wrong::Text,
            Use::Operand => Wrong::Operand,
            Use::Comparison { with: None } => Wrong::Comparison,
            Use::Comparison { with: Some(with) } => {
                let with = self.slot(*with);
                return self.is_data(with).then_some(Wrong::Comparison);
            }
            Use::Field(key) => return self.wrong_field(&shape, key),
            Use::Parts => Wrong::Parts,
            Use::List => Wrong::List,
            Use::Spread => Wrong::Spread,
            Use::Dropped { .. } => return None,
        })
    }

    /// Returns what is wrong with reading a field of a promise, if anything is.
    fn wrong_field(&mut self, of: &Shape, key: &Key) -> Option<Wrong> {
        let name = match key {
            Key::Name(name) => self.dom.name(name),
            Key::Slot(slot) => {
                let value = self.slot(*slot);
                match self.dom.keys(value).as_deref() {
                    Some([name]) => *name,
                    _ => return None,
                }
            }
        };
        let text = self.dom.names.text(name);
        let is_of_promises = matches!(&*text, "then" | "catch" | "finally" | "constructor");
        // The program may have added fields to the promise.
        let has_own = of.refs.iter().any(|one| match one {
            Ref::Obj(object) | Ref::Data(object, _) => {
                let known = &self.heap.objects[*object as usize];
                let is_data = matches!(one, Ref::Data(..));
                known.escaped
                    || is_data && !known.keys.is_empty()
                    || self.heap.find(*object, name).is_some()
                    || self.heap.find(*object, self.known.any).is_some()
            }
            _ => true,
        });
        if is_of_promises || has_own {
            return None;
        }
        let is_place = text.starts_with(|first: char| first.is_ascii_digit());
        Some(if is_place { Wrong::List } else { Wrong::Field(text) })
    }

    /// Returns whether a value is surely there and no promise.
    fn is_data(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let is_nothing = |scalar: &Scalar| matches!(scalar, Scalar::Undefined | Scalar::Null);
        let is_result = |one: &Ref| match one {
            Ref::Data(object, _) => {
                let known = &self.heap.objects[*object as usize];
                matches!(known.kind, Kind::Data(Origin::Task(_)))
                    && !known.escaped
                    && known.keys.is_empty()
            }
            _ => false,
        };
        match &shape.prim {
            _ if shape.absent => false,
            Prim::Consts(scalars) => shape.refs.is_empty() && !scalars.iter().any(is_nothing),
            // Not known to be a promise is not enough: it must be known to be awaited.
            Prim::None => {
                shape.promised == Promised::Awaited
                    && !shape.refs.is_empty()
                    && shape.refs.iter().all(is_result)
            }
            Prim::Any => false,
        }
    }

    /// Checks the result of a callback of a method.
    pub(super) fn check_callback(&mut self, method: &str, called: Value) {
        let wrong = match method {
            "forEach" => Wrong::DroppedByEach,
            "flatMap" => Wrong::NotFlat,
            "sort" | "toSorted" => Wrong::NoOrder,
            "filter" | "some" | "every" | "find" | "findIndex" | "findLast" | "findLastIndex" => {
                Wrong::Decides(method.into())
            }
            _ => return,
        };
        let place = (self.place >> 3, GIVEN);
        if self.dom.shape(called).promised.is_promise() {
            let at = match self.written {
                CallText::Items { first, .. } if first > 0 => first,
                _ => self.at,
            };
            self.misuses.wrong(place, Misuse { at, text: (0, 0), wrong, sure: true });
        } else if !called.is_never() {
            self.misuses.right_part(place);
        }
    }

    /// Checks the names of the tools that a property of a namespace may be.
    pub(super) fn check_tool_names(&mut self, of: &Shape, key: &AbstractKey) {
        let inst = self.place >> 3;
        let Some(names) = &key.names else { return };
        if !of.refs.iter().any(|one| matches!(one, Ref::Namespace(_))) {
            return;
        }
        let mut is_right = of.prim != Prim::None;
        let mut wrong = Vec::new();
        for one in &of.refs {
            let Ref::Namespace(namespace) = one else {
                is_right = true;
                continue;
            };
            for name in names {
                let kept = self.dom.names.get(*name);
                let is_own = ["@@", "%", "#"].iter().any(|start| kept.starts_with(start));
                match self.tool_ids.number(&self.dom.names, *namespace, *name) {
                    Err(error) if !is_own => wrong.push((*name, error.to_owned())),
                    _ => is_right = true,
                }
            }
        }
        if is_right {
            self.misuses.right(inst);
            return;
        }
        for (name, why) in wrong {
            let misuse =
                Misuse { at: self.at, text: (0, 0), wrong: Wrong::NoTool(why), sure: true };
            self.misuses.wrong((inst, name), misuse);
        }
    }

    /// Records a fault of the current instruction.
    pub(super) fn misused(&mut self, place: (u32, u32), text: (u32, u32), wrong: Wrong) {
        let at = if text == (0, 0) { self.at } else { text.0 };
        let function = self.function(self.contexts[self.context() as usize].func);
        // A function that tests whether something is a promise may get here only with values that are none.
        let sure = !function.asks_for_promises;
        self.misuses.wrong(place, Misuse { at, text, wrong, sure });
    }
}
