//! Items of lists. A list is *exact* while its length is a constant: then each item has a cell of its own,
//! named by its index. Otherwise all further items share the cell `elem`.

use super::walk::AbstractKey;
use super::*;
use crate::structure::core::Scalar;
use crate::structure::domain::{Kind, Prim, Ref};

impl Solver<'_> {
    /// Returns the number of items of a list, if it is a constant.
    fn length(&mut self, object: ObjId) -> Option<usize> {
        let cell = self.heap.find(object, self.known.length);
        let value = cell.map_or(Value::ABSENT, |cell| self.read(cell));
        if value == Value::ABSENT || value.is_never() {
            return Some(0);
        }
        match self.dom.shape(value).only()? {
            Scalar::Number(bits) => Some(f64::from_bits(*bits) as usize),
            _ => None,
        }
    }

    /// Appends an item, or with `spread` all items of a value, to a list.
    pub(super) fn push(&mut self, list: Value, value: Value, spread: bool) {
        if spread {
            let value = self.iterable(value);
            match self.spread_items(value) {
                (Some(items), _) => items.into_iter().for_each(|item| self.push(list, item, false)),
                (None, some) => {
                    let (_, count) = self.iterated(value);
                    self.push_some(list, some, count);
                }
            }
            return;
        }
        let shape = self.dom.shapes.kept(list.shape);
        let chosen = self.dom.sources.used(list.deps);
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => {
                    // Remembered even when the length is lost: `Promise.race` and `any` of a list behave
                    // differently if it is empty.
                    if shape.refs.len() == 1
                        && !self.may_since(self.heap.objects[*id as usize].birth)
                    {
                        self.promises.stocked.insert(*id);
                    }
                    let is_single = shape.refs.len() == 1 && self.is_exact_object(*id);
                    let birth = self.heap.objects[*id as usize].birth;
                    // A list made outside a loop grows in each turn. Its length would change from round to
                    // round, so it is not exact from the start.
                    let has_place = is_single && !self.is_repeated_since(birth);
                    let length = if has_place { self.length(*id) } else { None };
                    match length {
                        // The limit bounds the number of cells of one list.
                        Some(length) if length < 2_000 => {
                            let name = self.dom.name(&length.to_string().into());
                            self.put_own(*id, name, value, true);
                            let next =
                                self.dom.scalar(Scalar::Number((length as f64 + 1.0).to_bits()));
                            self.put_own(*id, self.known.length, next, true);
                        }
                        _ => {
                            let value =
                                if is_single { value } else { self.dom.with(value, chosen) };
                            let count = if is_single { NONE } else { chosen };
                            self.add_some(*id, value, count);
                        }
                    }
                }
                Ref::Data(id, _) => {
                    let value = self.dom.with(value, chosen);
                    self.put_any(*id, value);
                }
                _ => self.escape_here(value),
            }
        }
    }

    /// Appends any number of items to a list; `count` decides how many.
    pub(super) fn push_some(&mut self, list: Value, value: Value, count: Deps) {
        let shape = self.dom.shapes.kept(list.shape);
        let chosen = if shape.refs.len() == 1 { NONE } else { self.dom.sources.used(list.deps) };
        let value = self.dom.with(value, chosen);
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => self.add_some(*id, value, count),
                Ref::Data(id, _) => self.put_any(*id, value),
                _ => self.escape_here(value),
            }
        }
    }

    /// Appends any number of items to one list, which is no longer exact.
    pub(super) fn add_some(&mut self, object: ObjId, value: Value, count: Deps) {
        let value = self.present(value);
        self.put_any(object, value);
        let cell = self.heap.cell(object, self.known.length);
        // The weak update adds the label of this point.
        self.write(cell, Value::computed(count), false);
    }

    /// Returns the items of a value one by one, if they are known, and their join.
    pub(super) fn spread_items(&mut self, value: Value) -> (Option<Vec<Value>>, Value) {
        let value = self.iterable(value);
        let (some, count) = self.iterated(value);
        self.may_fail_by(value);
        let some = self.dom.with(some, count);
        (self.exact_items(value), some)
    }

    /// Returns the items of a list that is exact and that only the program changes.
    pub(super) fn exact_items(&mut self, value: Value) -> Option<Vec<Value>> {
        let shape = self.dom.shape(value);
        let (Prim::None, [Ref::Obj(id)]) = (&shape.prim, shape.refs.as_slice()) else {
            return None;
        };
        let (id, object) = (*id, &self.heap.objects[*id as usize]);
        if object.kind != Kind::Array || object.escaped || !self.is_exact_object(id) {
            return None;
        }
        if let Some(cell) = self.heap.find(id, self.known.elem)
            && !matches!(self.read(cell), Value::ABSENT | Value::NEVER)
        {
            return None;
        }
        if self.engine.converts {
            let name = self.dom.name(&"@@iterator".into());
            if self.own_method(id, name).is_some() {
                return None;
            }
        }
        let length = self.length(id)?;
        let mut items = Vec::with_capacity(length);
        let deps = self.dom.sources.used(value.deps);
        for place in 0..length {
            let name = self.dom.name(&place.to_string().into());
            let item = self.own(id, name);
            let item = if item.is_never() { Value::UNDEFINED } else { item };
            items.push(self.dom.with(item, deps));
        }
        Some(items)
    }

    /// Returns whether an object that a value may be defines `Symbol.iterator`.
    fn iterates_itself(&mut self, value: Value) -> bool {
        if !self.engine.converts {
            return false;
        }
        let name = self.dom.name(&"@@iterator".into());
        self.dom.shapes.kept(value.shape).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.own_method(*object, name).is_some(),
            _ => false,
        })
    }

    /// Returns the item at an index, for array patterns.
    pub(super) fn item(&mut self, of: Value, index: u32) -> Value {
        self.may_fail_by(of);
        if let Some(items) = self.exact_items(of) {
            return items.get(index as usize).copied().unwrap_or(Value::UNDEFINED);
        }
        if self.iterates_itself(of) {
            let of = self.iterable(of);
            let (value, count) = self.partly(true, |solver| solver.iterated(of));
            let value = self.dom.join(value, Value::UNDEFINED);
            return self.dom.with(value, count);
        }
        let shape = self.dom.shape(of);
        if let (Prim::None, [Ref::Data(..)]) = (&shape.prim, shape.refs.as_slice()) {
            let name = self.dom.name(&index.to_string().into());
            return self.get(
                of,
                &AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE },
                false,
            );
        }
        if let (Prim::None, [Ref::Obj(id)]) = (&shape.prim, shape.refs.as_slice())
            && self.heap.objects[*id as usize].kind == Kind::Array
        {
            let name = self.dom.name(&index.to_string().into());
            return self.get(
                of,
                &AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE },
                false,
            );
        }
        let is_list = |one: &Ref| match one {
            Ref::Obj(id) => self.heap.objects[*id as usize].kind == Kind::Array,
            _ => false,
        };
        // One of several lists: the item at this index of each.
        if shape.prim == Prim::None && shape.refs.iter().all(is_list) {
            let mut out = Value::NEVER;
            for one in shape.refs.clone() {
                let list = Value { deps: of.deps, shape: self.dom.shapes.of_ref(one) };
                let item = self.item(list, index);
                out = self.dom.join(out, item);
            }
            let deps = self.dom.sources.used(of.deps);
            return self.dom.with(out, deps);
        }
        let (value, count) = self.partly(true, |solver| solver.iterated(of));
        let value = self.dom.join(value, Value::UNDEFINED);
        self.dom.with(value, count)
    }

    /// Returns a list of the items from an index on, for rest elements of patterns.
    pub(super) fn items_from(&mut self, of: Value, from: usize) -> Value {
        let list = self.make(4, Kind::Array);
        let of = self.iterable(of);
        match self.spread_items(of) {
            (Some(items), _) => {
                items.into_iter().skip(from).for_each(|item| self.push(list, item, false));
            }
            (None, some) => {
                let (_, count) = self.iterated(of);
                self.push_some(list, some, count);
            }
        }
        list
    }

    /// Returns a list of two items.
    pub(super) fn pair(&mut self, part: u32, one: Value, other: Value) -> Value {
        let object = self.object(part, Kind::Array);
        let list = self.dom.reference(Ref::Obj(object));
        let name = self.dom.name(&"0".into());
        self.put_own(object, name, one, true);
        let name = self.dom.name(&"1".into());
        self.put_own(object, name, other, true);
        let two = self.dom.scalar(Scalar::Number(2f64.to_bits()));
        self.put_own(object, self.known.length, two, true);
        list
    }
}
