//! Properties that are written, and lists that are put together.

use super::walk::At;
use super::*;
use crate::structure::domain::{Kind, Origin, Prim, Ref};

impl Solver<'_> {
    /// Writes a property.
    pub(super) fn put(&mut self, object: Value, key: &At, value: Value) {
        let shape = self.dom.shapes.kept(object.shape);
        if shape.may_be_nothing() {
            let deps = self.dom.union(object.deps, key.deps);
            self.may_fail_by(Value::computed(deps));
        }
        self.check_private(object, key);
        self.fails_if_frozen(object, key);
        let is_one = shape.refs.len() == 1;
        // Which object is changed, and which part of it, flows into what it has then.
        let chosen = if self.follows(Rule::ObjectChosen) {
            self.dom.sources.used(object.deps)
        } else {
            NONE
        };
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => {
                    let is_single = is_one && self.is_followed(*id);
                    let value = if is_single { value } else { self.dom.with(value, chosen) };
                    let value = self.dom.with(value, key.deps);
                    self.put_into(*id, object, key, value, is_one);
                }
                Ref::Data(id, _) => {
                    let value = if is_one && !self.is_part_chosen(object) {
                        value
                    } else {
                        self.dom.with(value, chosen)
                    };
                    let value = self.dom.with(value, key.deps);
                    self.put_any(*id, value);
                }
                Ref::Pool => {
                    let deps = self.dom.union(chosen, key.deps);
                    self.touch_pool(deps);
                    let value = self.dom.with(value, deps);
                    self.escape_here(value);
                }
                Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    self.gap(Code::DynamicWrite, About::Change);
                    self.escape_as(value, How::Kept);
                }
                Ref::Method(method) => self.put_on_method(*method, key, value),
                Ref::Builtin(_) => self.lose_engine(),
            }
        }
    }

    /// Notes that an object cannot be changed if it is frozen.
    pub(super) fn fails_if_frozen(&mut self, object: Value, key: &At) {
        for one in &self.dom.shapes.kept(object.shape).refs {
            let (Ref::Obj(id) | Ref::Data(id, _)) = one else { continue };
            if !self.engine.frozen.contains(id) {
                continue;
            }
            let mut deps = self.dom.union(object.deps, key.deps);
            // Unknown code may be what froze it.
            if self.heap.objects[*id as usize].escaped {
                deps = self.dom.union(deps, self.escaped.deps);
            }
            self.may_fail_by(Value::computed(deps));
        }
    }

    /// Returns whether which part of data a value is depends on more than the data.
    pub(super) fn is_part_chosen(&self, object: Value) -> bool {
        let shape = self.dom.shape(object);
        let Some(Ref::Data(id, _)) = shape.refs.first() else { return false };
        match self.heap.objects[*id as usize].kind {
            Kind::Data(Origin::Task(site)) => self.dom.sources.get(object.deps) != [site],
            Kind::Data(Origin::Args) => self.dom.sources.has_tasks(object.deps),
            _ => true,
        }
    }

    fn put_into(&mut self, object: ObjId, this: Value, key: &At, value: Value, is_one: bool) {
        let deps = self.dom.union(this.deps, key.deps);
        self.asks_above(object, value, deps);
        let is_array = self.heap.objects[object as usize].kind == Kind::Array;
        let value = match self.heap.objects[object as usize].kind {
            // Others of its methods may call what replaces one of them.
            Kind::Opaque | Kind::Pattern if self.leads_to_code(value) => {
                self.set_traps(true);
                let _ = self.unknown(&[this, value]);
                value
            }
            Kind::Opaque => {
                let converted = self.convert(value);
                self.dom.with(value, converted)
            }
            // The engine looks for the methods of an iterator by itself.
            Kind::Iterator => {
                self.set_traps(true);
                self.unknown(&[this, value])
            }
            _ => value,
        };
        if is_array {
            self.grows(object, key.deps);
            self.misuses.set_item(object);
        }
        match &key.names {
            Some(names) => {
                let names = names.clone();
                let strong = is_one && names.len() == 1;
                for name in names {
                    if is_array && name == self.known.length_text {
                        self.cut(object, value);
                    } else if name == self.known.proto_text {
                        self.put_own(object, self.known.proto, value, strong);
                    } else {
                        let has_own = self.set_by_setter(object, this, name, value, strong, key);
                        self.put_own(object, name, value, strong && has_own);
                    }
                }
            }
            None => {
                if self.core.accessors {
                    let _ = self.unknown(&[this, value]);
                }
                if self.heap.objects[object as usize].kind != Kind::Plain {
                    self.put_own(object, self.known.any, value, false);
                }
                self.put_any(object, value);
            }
        }
    }

    /// Calls the setters that a write may reach; returns whether there is none and no getter either.
    fn set_by_setter(
        &mut self,
        object: ObjId,
        this: Value,
        name: NameId,
        value: Value,
        strong: bool,
        key: &At,
    ) -> bool {
        if !self.core.accessors || !self.follows(Rule::Setter) {
            return true;
        }
        let (mut gets, mut sets) = (false, false);
        let (lineage, above) = self.lineage(object);
        let is_certain = strong && lineage.len() <= 2;
        for object in lineage {
            gets |= self.accessor(object, "get", name).is_some();
            let Some(setter) = self.accessor(object, "set", name) else { continue };
            sets = true;
            let args = Args { list: smallvec::smallvec![value], rest: None };
            let is_there = !self.dom.shape(setter).absent;
            let setter = self.here(setter);
            let walk = |solver: &mut Self| solver.call_value(setter, Some(this), &args, false);
            let _ = if is_certain && is_there {
                self.chosen(this, walk)
            } else {
                let deps = self.dom.union(this.deps, key.deps);
                let deps = self.dom.union(deps, setter.deps);
                let deps = self.dom.union(deps, above);
                self.perhaps(deps, walk)
            };
        }
        if gets && !sets {
            let deps = self.dom.union(this.deps, key.deps);
            self.may_fail_by(Value::computed(deps));
        }
        !gets && !sets
    }

    /// Sets the length of a list, by which items may be lost.
    fn cut(&mut self, object: ObjId, length: Value) {
        self.changed |= self.promises.emptied.insert(object);
        let deps = self.reach(length);
        let converted = self.convert(length);
        let deps = self.dom.union(deps, converted);
        self.may_fail_by(Value::computed(deps));
        self.put_any(object, Value { deps, shape: Value::UNDEFINED.shape });
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(deps), false);
    }

    pub(super) fn put_own(&mut self, object: ObjId, name: NameId, value: Value, strong: bool) {
        self.escape_into(object, value);
        self.hold_in_object(value, object);
        if self.core.orders && value != Value::ABSENT && self.follows(Rule::PropertyOrder) {
            self.add_in_order(object, name);
        }
        if !self.engine.converts && self.dom.names.is_hook(name) {
            (self.engine.converts, self.changed) = (true, true);
        }
        let cell = self.heap.cell(object, name);
        self.heap.cells[cell as usize].span = (self.at, self.end);
        let known = &self.heap.objects[object as usize];
        let strong = strong && (known.unique || !known.kept);
        self.write(cell, value, strong);
    }

    /// Returns whether what an object has is followed write by write.
    pub(super) fn is_followed(&self, object: ObjId) -> bool {
        let known = &self.heap.objects[object as usize];
        !known.kept || known.unique && self.threads.beside == 0
    }

    /// Writes some property, it is not known which.
    pub(super) fn put_any(&mut self, object: ObjId, value: Value) {
        self.escape_into(object, value);
        self.hold_in_object(value, object);
        if !self.engine.converts
            && !self.dom.shape(value).refs.is_empty()
            && self.leads_to_code(value)
        {
            (self.engine.converts, self.changed) = (true, true);
        }
        let known = &self.heap.objects[object as usize];
        if known.kind == Kind::Plain && !known.kept {
            for (name, cell) in known.keys.clone() {
                let held = self.now(cell);
                let is_there = !held.is_never() && held != Value::ABSENT;
                if is_there && !self.dom.names.is_own(name) {
                    self.write(cell, value, false);
                }
            }
        }
        let cell = self.heap.cell(object, self.known.elem);
        self.write(cell, value, false);
    }

    /// Returns whether a property has what its cell says, and nothing that was written under a name that is not
    /// known: such a write changed the properties that were there, and those that are set later replace it.
    pub(super) fn is_settled(&self, object: ObjId, held: Value) -> bool {
        let known = &self.heap.objects[object as usize];
        known.kind == Kind::Plain && !known.kept && !held.is_never() && !self.dom.shape(held).absent
    }

    /// Notes that an array may be longer after a write, at a place that `deps` choose.
    fn grows(&mut self, object: ObjId, deps: Deps) {
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(deps), false);
    }

    /// Notes at which place among the properties of an object one stands that is added.
    fn add_in_order(&mut self, object: ObjId, name: NameId) {
        let known = &self.heap.objects[object as usize];
        if matches!(known.kind, Kind::Array | Kind::Map | Kind::Set | Kind::Promise)
            || self.dom.names.is_own(name)
        {
            return;
        }
        let strong = known.unique || !known.kept;
        let before = match self.heap.find(object, name) {
            Some(cell) => self.read(cell),
            None => Value::ABSENT,
        };
        let shape = self.dom.shape(before);
        if !before.is_never() && !shape.absent {
            return;
        }
        let is_new = before.is_never() || before.shape == Value::ABSENT.shape;
        let cell = self.heap.cell(object, self.known.order);
        let order = self.read(cell);
        let bits = match self.dom.shape(order).only() {
            Some(crate::structure::core::Scalar::Number(bits)) => Some(*bits),
            None if order == Value::ABSENT || order.is_never() => Some(0),
            _ => None,
        };
        let deps = self.dom.union(order.deps, before.deps);
        let next = match bits {
            Some(bits) if is_new => {
                let mixed = (bits ^ u64::from(name)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.dom.scalar(crate::structure::core::Scalar::Number(mixed.rotate_left(23)))
            }
            _ => Value::computed(NONE),
        };
        let next = self.dom.with(next, deps);
        self.write(cell, next, strong);
    }

    /// Does something with one of those that a value may be.
    pub(super) fn chosen(&mut self, of: Value, walk: impl FnOnce(&mut Self) -> Value) -> Value {
        let shape = self.dom.shape(of);
        let is_one = shape.refs.len() == 1 && shape.prim == Prim::None && !shape.absent;
        if is_one { walk(self) } else { self.perhaps(of.deps, walk) }
    }

    /// Does something that is done or not, if `deps` decide that.
    pub(super) fn maybe(&mut self, deps: Deps, walk: impl FnOnce(&mut Self) -> Value) -> Value {
        if deps == NONE { walk(self) } else { self.perhaps(deps, walk) }
    }

    /// Does something that is done or not.
    pub(super) fn perhaps(&mut self, deps: Deps, walk: impl FnOnce(&mut Self) -> Value) -> Value {
        let mut given = Value::NEVER;
        self.fork(
            deps,
            |solver| {
                given = solver.under(deps, true, false, walk);
                true
            },
            |_| true,
        );
        given
    }
}
