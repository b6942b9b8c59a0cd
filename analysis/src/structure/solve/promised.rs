//! Which values are promises. This is tracked apart from the data flow (`Promised`), to detect promises that
//! are not awaited.

use super::walk::AbstractKey;
use super::*;
use crate::structure::core::{Scalar, Slot};
use crate::structure::domain::{Kind, Prim, Promised, Ref};

/// The maximum length of a chain of prototypes.
const CHAIN: usize = 16;

impl Solver<'_> {
    /// Returns a reference to an object that is surely a promise.
    pub(super) fn promise(&mut self, object: ObjId) -> Value {
        let value = self.dom.reference(Ref::Obj(object));
        self.dom.promised(value, Promised::Surely)
    }

    /// Returns whether a value is a promise.
    pub(super) fn is_promise(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        let is_promise = |one: &Ref| self.kind_of(one) == Some(Kind::Promise);
        shape.promised.is_promise()
            || shape.prim == Prim::None
                && !shape.refs.is_empty()
                && shape.refs.iter().all(is_promise)
    }

    /// Returns the kind of an object of the program.
    fn kind_of(&self, one: &Ref) -> Option<Kind> {
        match one {
            Ref::Obj(object) => Some(self.heap.objects[*object as usize].kind),
            _ => None,
        }
    }

    /// Returns the items of a list that only the program changes, with their cells.
    pub(super) fn listed(&mut self, object: ObjId) -> Option<Vec<(CellId, Value)>> {
        let known = &self.heap.objects[object as usize];
        if known.kind != Kind::Array || known.escaped {
            return None;
        }
        let mut items = Vec::new();
        for place in 0..known.keys.len() {
            let (name, cell) = self.heap.objects[object as usize].keys[place];
            if name == self.known.length {
                continue;
            }
            let value = self.read(cell);
            if value.is_never() || value == Value::ABSENT {
                continue;
            }
            let is_place = self.dom.names.get(name).starts_with(|c: char| c.is_ascii_digit());
            // With other properties, it is not a plain list.
            if !is_place && name != self.known.elem {
                return None;
            }
            items.push((cell, value));
        }
        Some(items)
    }

    /// Returns whether a value is a list that has promises and nothing else.
    pub(super) fn lists_promises(&mut self, value: Value) -> bool {
        let shape = self.dom.shapes.kept(value.shape);
        if shape.prim != Prim::None || shape.absent || shape.refs.is_empty() {
            return false;
        }
        shape.refs.iter().all(|one| {
            let Ref::Obj(object) = one else { return false };
            let items = self.listed(*object);
            items.is_some_and(|items| {
                !items.is_empty()
                    && items.iter().all(|(_, item)| self.dom.shape(*item).promised.is_promise())
            })
        })
    }

    /// Refines what is known about a property that was read: whether it is surely a promise, or a promise if it
    /// is there.
    pub(super) fn surely(&mut self, value: Value, of: &[Ref], key: &AbstractKey) -> Value {
        let promised = self.dom.shape(value).promised;
        let ([Ref::Obj(object)], Some([name])) = (of, key.names.as_deref()) else { return value };
        let (object, name) = (*object, *name);
        if promised == Promised::Surely
            && let Some(cell) = self.heap.find(object, name)
        {
            return self.if_set(value, cell);
        }
        if promised != Promised::Perhaps {
            return value;
        }
        let is_place = self.dom.names.get(name).starts_with(|c: char| c.is_ascii_digit());
        let promised = if is_place && !self.misuses.is_sparse(object) {
            let list = self.dom.reference(Ref::Obj(object));
            self.lists_promises(list).then_some(Promised::Likely)
        } else {
            self.given_by_getter(object, name)
        };
        promised.map_or(value, |promised| self.dom.promised(value, promised))
    }

    /// Weakens `Surely` to `Likely` if the cell also has other values at other times: testing whether the
    /// promise is there then makes sense.
    pub(super) fn if_set(&mut self, value: Value, cell: CellId) -> Value {
        let is_sure = self.dom.shape(value).promised != Promised::Surely
            || self.misuses.has_only_promises(cell);
        if is_sure { value } else { self.dom.promised(value, Promised::Likely) }
    }

    /// Weakens `Surely` to `Likely` for an item of a list that may have holes.
    pub(super) fn if_all_are_set(&mut self, item: Value, list: ObjId) -> Value {
        let is_sure =
            self.dom.shape(item).promised != Promised::Surely || !self.misuses.is_sparse(list);
        if is_sure { item } else { self.dom.promised(item, Promised::Likely) }
    }

    /// Weakens `Surely` to `Likely` for a variable that other functions may set.
    pub(super) fn if_set_by_others(&mut self, value: Value, slot: Slot) -> Value {
        let function = self.function(self.contexts[self.context() as usize].func);
        if function.variables[slot as usize].captured {
            self.if_set(value, self.base() + slot)
        } else {
            value
        }
    }

    /// Returns whether the getter of a property returns promises; `None` if the property may be anything else.
    fn given_by_getter(&mut self, object: ObjId, name: NameId) -> Option<Promised> {
        let text = self.dom.names.text(name);
        let getter = self.dom.names.known(&format!("get:{text}").into())?;
        let mut object = object;
        for _ in 0..CHAIN {
            if self.heap.objects[object as usize].escaped {
                return None;
            }
            for name in [name, self.known.elem, self.known.any] {
                if !matches!(self.own(object, name), Value::NEVER) {
                    return None;
                }
            }
            if let Some(cell) = self.heap.find(object, getter) {
                let getter = self.read(cell);
                let is_there = !getter.is_never() && !self.dom.shape(getter).absent;
                return self.misuses.got(object, name).filter(|_| is_there);
            }
            let above = self.own(object, self.known.proto);
            let shape = self.dom.shape(above);
            match (&shape.prim, shape.refs.as_slice()) {
                (Prim::None, [Ref::Obj(above)]) if !shape.absent => object = *above,
                _ => return None,
            }
        }
        None
    }

    /// Returns the accumulator that a callback of `reduce` is given. If the callback returns promises, it is
    /// taken to be a promise in the first call, too: for a list of one item, the start value is passed, but a
    /// program that relies on that is still wrong.
    pub(super) fn folded(&mut self, fold: ObjId, start: Option<Value>, before: Value) -> Value {
        let Some(start) = start else { return before };
        let shape = self.dom.shape(start);
        let is_nothing = matches!(shape.only(), Some(Scalar::Undefined | Scalar::Null));
        if is_nothing
            || shape.promised == Promised::Perhaps
            || !self.misuses.folded(fold).is_promise()
        {
            return before;
        }
        self.dom.promised(before, Promised::Surely)
    }

    /// Records what a callback of `reduce` returned.
    pub(super) fn folds(&mut self, fold: ObjId, value: Value) {
        let promised = self.dom.shape(value).promised;
        self.changed |= self.misuses.folds(fold, promised);
    }
}
