//! Operators, and what they do with objects.

use super::*;
use crate::structure::core::{Scalar, Sum};
use crate::structure::domain::{Prim, Ref, key_text};

/// The longest text that is put together.
const TEXT: usize = 4096;

impl Solver<'_> {
    pub(super) fn compute(&mut self, how: Sum, of: &[Value]) -> Value {
        match how {
            Sum::Look | Sum::Not => {
                let deps = self.all_own(of);
                let known = match (how, of) {
                    (Sum::Not, [one]) if deps == NONE => self.known_truth(*one),
                    _ => None,
                };
                match known {
                    Some(truth) => self.dom.scalar(Scalar::Bool(!truth)),
                    None => Value::computed(deps),
                }
            }
            Sum::IsNothing | Sum::IsUndefined => {
                let deps = self.all_own(of);
                let shape = of.first().map(|one| self.dom.shape(*one));
                let is_args = of.first().is_some_and(|one| self.is_args(*one));
                let known = match shape {
                    Some(_) if is_args => Some(false),
                    Some(shape) if !shape.may_be_nothing() => Some(false),
                    Some(shape) => match shape.only() {
                        Some(Scalar::Undefined) => Some(true),
                        Some(Scalar::Null) => Some(how == Sum::IsNothing),
                        _ => None,
                    },
                    None => None,
                };
                match known {
                    // What it may be is known, whatever decided on it.
                    Some(truth) => self.dom.scalar(Scalar::Bool(truth)),
                    None => Value::computed(deps),
                }
            }
            Sum::Convert => {
                let mut deps = self.all_own(of);
                for one in of {
                    let converted = self.convert(*one);
                    deps = self.dom.union(deps, converted);
                }
                self.may_fail_by_objects(of);
                Value::computed(deps)
            }
            Sum::Add | Sum::Text => self.text(how, of),
        }
    }

    fn known_truth(&self, value: Value) -> Option<bool> {
        match self.dom.shape(value).only()? {
            Scalar::Undefined | Scalar::Null => Some(false),
            Scalar::Bool(value) => Some(*value),
            _ => None,
        }
    }

    fn all_own(&mut self, of: &[Value]) -> Deps {
        let mut deps = NONE;
        for one in of {
            let own = self.dom.sources.used(one.deps);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Puts texts together.
    fn text(&mut self, how: Sum, of: &[Value]) -> Value {
        let mut deps = self.all_own(of);
        let mut text = String::new();
        let mut known = how == Sum::Text;
        for one in of {
            let converted = self.convert(*one);
            deps = self.dom.union(deps, converted);
            known |= matches!(self.dom.shape(*one).only(), Some(Scalar::Text(_)));
        }
        for one in of {
            match self.dom.shape(*one).only().and_then(key_text) {
                Some(part) if text.len() + part.len() <= TEXT => text += &part,
                _ => known = false,
            }
        }
        if how == Sum::Add || self.core.symbols {
            self.may_fail_by_objects(of);
        } else {
            for one in of {
                // Of what is no object, symbols alone are no texts.
                if !self.dom.shape(*one).refs.is_empty() {
                    self.may_fail_by_objects(&[*one]);
                }
            }
        }
        if known {
            let value = self.dom.scalar(Scalar::Text(text.into()));
            return self.dom.with(value, deps);
        }
        Value::computed(deps)
    }

    /// Notes that converting objects may fail.
    fn may_fail_by_objects(&mut self, of: &[Value]) {
        if self.handlers.is_empty() {
            return;
        }
        for one in of {
            let shape = self.dom.shape(*one);
            if !shape.refs.is_empty() || matches!(shape.prim, Prim::Any) {
                self.may_fail_by(*one);
            }
        }
    }

    /// Converts a value to text or a number; returns what flows into that from its parts.
    pub(super) fn convert(&mut self, value: Value) -> Deps {
        if self.dom.shape(value).refs.is_empty() {
            return NONE;
        }
        let shape = self.dom.shapes.kept(value.shape);
        let mut deps = NONE;
        for one in &shape.refs {
            match one {
                Ref::Obj(object) => {
                    let own = self.reach(Value { deps: NONE, shape: value.shape });
                    deps = self.dom.union(deps, own);
                    if self.core.converts {
                        let called = self.call_conversions(value, *object);
                        deps = self.dom.union(deps, called);
                    }
                }
                Ref::Data(object, _) => {
                    let own = self.written_into(*object);
                    deps = self.dom.union(deps, own);
                }
                Ref::Pool => deps = self.dom.union(deps, self.pool_deps),
                Ref::Mcp | Ref::Namespace(_) => self.gap(Code::DynamicEscape),
                _ => {}
            }
        }
        deps
    }

    /// Calls the methods of an object that make a text or a number of it.
    fn call_conversions(&mut self, value: Value, object: ObjId) -> Deps {
        let mut deps = NONE;
        for name in ["toString", "valueOf", "@@toPrimitive", "@@hasInstance"] {
            let given = self.call_named(value, object, name);
            if let Some(given) = given {
                let own = self.reach(given);
                deps = self.dom.union(deps, own);
            }
        }
        deps
    }

    /// Calls a method of an object if the program gives it one; returns what that gives.
    pub(super) fn call_named(&mut self, value: Value, object: ObjId, name: &str) -> Option<Value> {
        let name = self.dom.names.known(&name.into())?;
        let method = self.own_method(object, name)?;
        let this = Value { deps: value.deps, shape: self.dom.shapes.of_ref(Ref::Obj(object)) };
        Some(
            self.chosen(value, |solver| {
                solver.call_value(method, Some(this), &Args::default(), false)
            }),
        )
    }
}
