//! Properties that are written, and lists that are put together.

use super::walk::At;
use super::*;
use crate::structure::core::{Put, Scalar};
use crate::structure::domain::{Kind, Origin, Prim, Ref};

impl Solver<'_> {
    /// Writes a property.
    pub(super) fn put(&mut self, object: Value, key: &At, value: Value) {
        let shape = self.dom.shapes.kept(object.shape);
        if shape.may_be_nothing() {
            self.may_fail_by(object);
        }
        let is_one = shape.refs.len() == 1;
        // Which object is changed, and which part of it, flows into what it has then.
        let chosen = self.dom.sources.used(object.deps);
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => {
                    let is_single = is_one && self.is_followed(*id);
                    let value = if is_single { value } else { self.dom.with(value, chosen) };
                    let value = self.dom.with(value, key.deps);
                    self.put_into(*id, object, key, value, is_one);
                }
                Ref::Data(id, _) => {
                    let value = if is_one && !self.is_part_chosen(object) { value } else { self.dom.with(value, chosen) };
                    let value = self.dom.with(value, key.deps);
                    self.put_any(*id, value);
                }
                Ref::Pool => self.escape(value, Code::DynamicWrite),
                Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    self.gap(Code::DynamicWrite);
                    self.escape(value, Code::DynamicWrite);
                }
                Ref::Builtin(_) | Ref::Method(_) => {
                    // What is known of the engine does not hold any more.
                    self.gap(Code::DynamicWrite);
                    self.entangled = true;
                }
            }
        }
    }

    /// Returns whether which part of data a value is depends on more than the data.
    fn is_part_chosen(&self, object: Value) -> bool {
        let shape = self.dom.shape(object);
        let Some(Ref::Data(id, _)) = shape.refs.first() else { return false };
        match self.heap.objects[*id as usize].kind {
            Kind::Data(Origin::Task(site)) => self.dom.sources.get(object.deps) != [site],
            Kind::Data(Origin::Args) => self.dom.sources.has_tasks(object.deps),
            _ => true,
        }
    }

    fn put_into(&mut self, object: ObjId, this: Value, key: &At, value: Value, is_one: bool) {
        if self.heap.objects[object as usize].escaped {
            self.escape(value, Code::DynamicWrite);
        }
        if self.heap.objects[object as usize].kind == Kind::Array {
            self.grows(object, value);
        }
        match &key.names {
            Some(names) => {
                let names = names.clone();
                let strong = is_one && names.len() == 1;
                for name in names {
                    if self.core.accessors {
                        self.call_setter(object, this, name, value);
                    }
                    self.put_own(object, name, value, strong);
                }
            }
            None => {
                if self.core.accessors {
                    let _ = self.unknown(&[this, value], Code::DynamicWrite);
                }
                if self.heap.objects[object as usize].kind != Kind::Plain {
                    self.put_own(object, self.known.any, value, false);
                }
                self.put_any(object, value);
            }
        }
    }

    pub(super) fn put_own(&mut self, object: ObjId, name: NameId, value: Value, strong: bool) {
        self.hold_in_object(value, object);
        let cell = self.heap.cell(object, name);
        self.heap.cells[cell as usize].span = (self.at, self.end);
        let known = &self.heap.objects[object as usize];
        let strong = strong && (known.unique || !known.kept);
        self.write(cell, value, strong);
    }

    /// Returns whether what an object has is followed write by write.
    pub(super) fn is_followed(&self, object: ObjId) -> bool {
        let known = &self.heap.objects[object as usize];
        !known.kept || known.unique && self.beside == 0
    }

    /// Writes some property, it is not known which.
    pub(super) fn put_any(&mut self, object: ObjId, value: Value) {
        if self.heap.objects[object as usize].escaped {
            self.escape(value, Code::DynamicWrite);
        }
        self.hold_in_object(value, object);
        let cell = self.heap.cell(object, self.known.elem);
        self.write(cell, value, false);
    }

    /// Notes that an array may be longer after a write.
    fn grows(&mut self, object: ObjId, value: Value) {
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(NONE), false);
        let _ = value;
    }

    fn call_setter(&mut self, object: ObjId, this: Value, name: NameId, value: Value) {
        let mut next = Some(object);
        for _ in 0..16 {
            let Some(object) = next else { break };
            if let Some(setter) = self.accessor(object, "set", name) {
                let args = Args { list: smallvec::smallvec![value], rest: None };
                let _ = self.call_value(setter, Some(this), &args, false);
            }
            let proto = self.own(object, self.known.proto);
            next = self.dom.shape(proto).refs.iter().find_map(|one| match one {
                Ref::Obj(object) => Some(*object),
                _ => None,
            });
        }
    }

    /// Puts a property into an object that is being written down.
    pub(super) fn define(&mut self, object: Value, key: &At, value: Value, how: Put) {
        let value = self.dom.with(value, key.deps);
        let shape = self.dom.shapes.kept(object.shape);
        let is_one = shape.refs.len() == 1;
        for one in &shape.refs {
            let Ref::Obj(id) = one else {
                self.put(object, key, value);
                continue;
            };
            if self.heap.objects[*id as usize].escaped {
                self.escape(value, Code::DynamicWrite);
            }
            match (how, &key.names) {
                (Put::Prototype, _) => self.put_own(*id, self.known.proto, value, is_one),
                (_, None) => self.put_any(*id, value),
                (how, Some(names)) => {
                    let names = names.clone();
                    let strong = is_one && names.len() == 1;
                    for name in names {
                        let name = match how {
                            Put::Getter => self.accessor_name("get", name),
                            Put::Setter => self.accessor_name("set", name),
                            _ => name,
                        };
                        self.put_own(*id, name, value, strong);
                    }
                }
            }
        }
    }

    fn accessor_name(&mut self, kind: &str, name: NameId) -> NameId {
        let text = self.dom.names.text(name);
        self.dom.name(&format!("{kind}:{text}").into())
    }

    /// Sets a property of the engine's own on an object that was just made.
    pub(super) fn set_own(&mut self, object: Value, name: NameId, value: Value) {
        let shape = self.dom.shapes.kept(object.shape);
        for one in &shape.refs {
            if let Ref::Obj(id) = one {
                self.put_own(*id, name, value, true);
            }
        }
    }

    /// Copies the fields of a value into an object.
    pub(super) fn spread(&mut self, object: Value, from: Value, but: &[At]) {
        let shape = self.dom.shapes.kept(from.shape);
        let mut deps = self.dom.sources.used(from.deps);
        for key in but {
            deps = self.dom.union(deps, key.deps);
        }
        let left_out = |name: NameId| {
            but.iter().any(|key| key.names.as_ref().is_some_and(|names| names.len() == 1 && names[0] == name))
        };
        let only = shape.refs.len() == 1 && shape.prim == Prim::None;
        for one in &shape.refs {
            match one {
                Ref::Obj(id) if matches!(self.heap.objects[*id as usize].kind, Kind::Plain) => {
                    let cells: Vec<(NameId, CellId)> = self.heap.objects[*id as usize].keys.clone();
                    let escaped = self.heap.objects[*id as usize].escaped;
                    for (name, cell) in cells {
                        let text = self.dom.names.text(name);
                        if left_out(name) || name == self.known.proto || name == self.known.fields {
                            continue;
                        }
                        let value = self.read(cell);
                        if value.is_never() || value == Value::ABSENT {
                            continue;
                        }
                        let may_lack = self.dom.shape(value).absent;
                        let value = self.dom.with(value, deps);
                        if let Some(real) = text.strip_prefix("get:") {
                            let given = self.call_value(value, Some(from), &Args::default(), false);
                            let given = self.dom.with(given, deps);
                            let name = self.dom.name(&real.into());
                            self.copy_field(object, name, given, only);
                        } else if name == self.known.elem {
                            self.put(object, &At { names: None, deps: NONE }, value);
                        } else if !text.starts_with("set:") {
                            self.copy_field(object, name, value, only && !may_lack);
                        }
                    }
                    if escaped {
                        let pooled = self.pooled();
                        self.put(object, &At { names: None, deps: NONE }, pooled);
                    }
                }
                Ref::Builtin(_) | Ref::Method(_) | Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    if matches!(one, Ref::Mcp | Ref::Namespace(_)) {
                        self.gap(Code::DynamicEscape);
                    }
                }
                other => {
                    let one = Value { deps, shape: self.dom.shapes.of_ref(*other) };
                    let (value, count) = self.iterated(one);
                    let value = self.dom.with(value, count);
                    self.put(object, &At { names: None, deps: NONE }, value);
                }
            }
        }
        if shape.prim != Prim::None && deps != NONE {
            self.put(object, &At { names: None, deps: NONE }, Value::computed(deps));
        }
    }

    fn copy_field(&mut self, object: Value, name: NameId, value: Value, strong: bool) {
        if strong {
            let key = At { names: Some(smallvec::smallvec![name]), deps: NONE };
            self.define(object, &key, value, Put::Value);
            return;
        }
        let shape = self.dom.shapes.kept(object.shape);
        for one in &shape.refs {
            if let Ref::Obj(id) = one {
                self.put_own(*id, name, value, false);
            }
        }
    }

    /// Returns how many items a list has, if that is known.
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

    /// Adds an item, or all items of a value, to a list.
    pub(super) fn push(&mut self, list: Value, value: Value, spread: bool) {
        if spread {
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
                    let is_single = shape.refs.len() == 1 && self.is_followed(*id);
                    let length = if is_single { self.length(*id) } else { None };
                    match length {
                        Some(length) if length < 2_000 => {
                            if self.heap.objects[*id as usize].escaped {
                                self.escape(value, Code::DynamicWrite);
                            }
                            let name = self.dom.name(&length.to_string().into());
                            self.put_own(*id, name, value, true);
                            let next = self.dom.scalar(Scalar::Number((length as f64 + 1.0).to_bits()));
                            self.put_own(*id, self.known.length, next, true);
                        }
                        _ => {
                            let value = if is_single { value } else { self.dom.with(value, chosen) };
                            let count = if is_single { NONE } else { chosen };
                            self.add_some(*id, value, count);
                        }
                    }
                }
                Ref::Data(id, _) => {
                    let value = self.dom.with(value, chosen);
                    self.put_any(*id, value);
                }
                _ => self.escape(value, Code::DynamicWrite),
            }
        }
    }

    /// Adds any number of items to a list.
    pub(super) fn push_some(&mut self, list: Value, value: Value, count: Deps) {
        let shape = self.dom.shapes.kept(list.shape);
        let chosen = if shape.refs.len() == 1 { NONE } else { self.dom.sources.used(list.deps) };
        let value = self.dom.with(value, chosen);
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => self.add_some(*id, value, count),
                Ref::Data(id, _) => self.put_any(*id, value),
                _ => self.escape(value, Code::DynamicWrite),
            }
        }
    }

    pub(super) fn add_some(&mut self, object: ObjId, value: Value, count: Deps) {
        let value = self.here_or_undefined(value);
        self.put_any(object, value);
        let cell = self.heap.cell(object, self.known.length);
        // What decides whether this is reached is added by the write.
        self.write(cell, Value::computed(count), false);
    }

    fn here_or_undefined(&mut self, value: Value) -> Value {
        Value { deps: value.deps, shape: self.dom.shapes.present(value.shape) }
    }

    /// Returns the items of a value, if they are known one by one, and what each may be.
    pub(super) fn spread_items(&mut self, value: Value) -> (Option<Vec<Value>>, Value) {
        let (some, count) = self.iterated(value);
        self.may_fail_by(value);
        let some = self.dom.with(some, count);
        (self.exact_items(value), some)
    }

    /// Returns the items of a list that is known item by item.
    pub(super) fn exact_items(&mut self, value: Value) -> Option<Vec<Value>> {
        let shape = self.dom.shape(value);
        let (Prim::None, [Ref::Obj(id)]) = (&shape.prim, shape.refs.as_slice()) else { return None };
        let (id, object) = (*id, &self.heap.objects[*id as usize]);
        if object.kind != Kind::Array || object.escaped || !self.is_followed(id) {
            return None;
        }
        if let Some(cell) = self.heap.find(id, self.known.elem)
            && !matches!(self.read(cell), Value::ABSENT | Value::NEVER)
        {
            return None;
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

    /// Returns one item of what can be gone over.
    pub(super) fn item(&mut self, of: Value, index: u32) -> Value {
        self.may_fail_by(of);
        if let Some(items) = self.exact_items(of) {
            return items.get(index as usize).copied().unwrap_or(Value::UNDEFINED);
        }
        let shape = self.dom.shape(of);
        if let (Prim::None, [Ref::Data(..)]) = (&shape.prim, shape.refs.as_slice()) {
            let name = self.dom.name(&index.to_string().into());
            return self.get(of, &At { names: Some(smallvec::smallvec![name]), deps: NONE }, false);
        }
        if let (Prim::None, [Ref::Obj(id)]) = (&shape.prim, shape.refs.as_slice())
            && self.heap.objects[*id as usize].kind == Kind::Array
        {
            let name = self.dom.name(&index.to_string().into());
            return self.get(of, &At { names: Some(smallvec::smallvec![name]), deps: NONE }, false);
        }
        let (value, count) = self.iterated(of);
        let value = self.dom.join(value, Value::UNDEFINED);
        self.dom.with(value, count)
    }

    /// Returns a list of the items from a place on.
    pub(super) fn items_from(&mut self, of: Value, from: usize) -> Value {
        let list = self.make(4, Kind::Array);
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

    /// Returns a list of two.
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
