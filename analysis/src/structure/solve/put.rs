//! Writes of properties.

use super::walk::AbstractKey;
use super::*;
use crate::structure::domain::{Kind, Origin, Prim, Ref};

impl Solver<'_> {
    /// Writes a property, as an assignment does.
    pub(super) fn put(&mut self, object: Value, key: &AbstractKey, value: Value) {
        let shape = self.dom.shapes.kept(object.shape);
        if shape.may_be_nothing() {
            let deps = self.dom.union(object.deps, key.deps);
            self.may_fail_by(Value::computed(deps));
        }
        self.check_private(object, key);
        self.fails_if_frozen(object, key);
        let is_one = shape.refs.len() == 1;
        // Which object is written is a flow into each object that it may be: it is seen in whether the value
        // has changed.
        let chosen = if self.follows(Rule::ObjectChosen) {
            self.dom.sources.used(object.deps)
        } else {
            NONE
        };
        for one in &shape.refs {
            match one {
                Ref::Obj(id) => {
                    let is_single = is_one && self.is_exact_object(*id);
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

    /// Records that a write to a frozen object fails.
    pub(super) fn fails_if_frozen(&mut self, object: Value, key: &AbstractKey) {
        for one in &self.dom.shapes.kept(object.shape).refs {
            let (Ref::Obj(id) | Ref::Data(id, _)) = one else { continue };
            if !self.engine.frozen.contains(id) {
                continue;
            }
            let mut deps = self.dom.union(object.deps, key.deps);
            // Unknown code may have frozen it.
            if self.heap.objects[*id as usize].escaped {
                deps = self.dom.union(deps, self.escaped.deps);
            }
            self.may_fail_by(Value::computed(deps));
        }
    }

    /// Returns whether more than the data itself decides which part of the data a value is.
    pub(super) fn is_part_chosen(&self, object: Value) -> bool {
        let shape = self.dom.shape(object);
        let Some(Ref::Data(id, _)) = shape.refs.first() else { return false };
        match self.heap.objects[*id as usize].kind {
            Kind::Data(Origin::Task(site)) => self.dom.sources.get(object.deps) != [site],
            Kind::Data(Origin::Args) => self.dom.sources.has_tasks(object.deps),
            _ => true,
        }
    }

    /// Writes a property of one object of the program.
    fn put_into(
        &mut self,
        object: ObjId,
        this: Value,
        key: &AbstractKey,
        value: Value,
        is_one: bool,
    ) {
        let deps = self.dom.union(this.deps, key.deps);
        self.pass_to_traps(object, value, deps);
        let is_array = self.heap.objects[object as usize].kind == Kind::Array;
        let value = match self.heap.objects[object as usize].kind {
            // The engine's other methods may call what replaces one of them, such as `exec`.
            Kind::Opaque | Kind::Pattern if self.leads_to_code(value) => {
                self.set_traps(true);
                let _ = self.unknown(&[this, value]);
                value
            }
            // A number or a string is expected, as for `lastIndex`.
            Kind::Opaque => {
                let converted = self.convert(value);
                self.dom.with(value, converted)
            }
            // The engine calls an iterator's methods itself.
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
                        self.set_length(object, value);
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

    /// Calls the setters that a write may reach. Returns whether there is neither a setter nor a getter, so
    /// that the write sets an own property.
    fn set_by_setter(
        &mut self,
        object: ObjId,
        this: Value,
        name: NameId,
        value: Value,
        strong: bool,
        key: &AbstractKey,
    ) -> bool {
        if !self.core.accessors || !self.follows(Rule::Setter) {
            return true;
        }
        let (mut gets, mut sets) = (false, false);
        let (lineage, above) = self.lineage(object);
        // With more prototypes, one setter may shadow another.
        let is_certain = strong && lineage.len() <= 2;
        for object in lineage {
            gets |= self.accessor(object, "get", name).is_some();
            let Some(setter) = self.accessor(object, "set", name) else { continue };
            sets = true;
            let args = Args { list: smallvec::smallvec![value], rest: None };
            let is_there = !self.dom.shape(setter).absent;
            let setter = self.present(setter);
            let walk = |solver: &mut Self| solver.call_value(setter, Some(this), &args, false);
            let _ = if is_certain && is_there {
                self.for_one_of(this, walk)
            } else {
                let deps = self.dom.union(this.deps, key.deps);
                let deps = self.dom.union(deps, setter.deps);
                let deps = self.dom.union(deps, above);
                self.optionally(deps, walk)
            };
        }
        // Without a setter, the write fails.
        if gets && !sets {
            let deps = self.dom.union(this.deps, key.deps);
            self.may_fail_by(Value::computed(deps));
        }
        !gets && !sets
    }

    /// Writes `length` of a list, which may remove items.
    fn set_length(&mut self, object: ObjId, length: Value) {
        self.changed |= self.promises.emptied.insert(object);
        let deps = self.reach(length);
        let converted = self.convert(length);
        let deps = self.dom.union(deps, converted);
        self.may_fail_by(Value::computed(deps));
        self.put_any(object, Value { deps, shape: Value::UNDEFINED.shape });
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(deps), false);
    }

    /// Sets an own property; with `strong`, it replaces the old value if the object is one concrete object.
    pub(super) fn put_own(&mut self, object: ObjId, name: NameId, value: Value, strong: bool) {
        self.escape_into(object, value);
        self.hold_in_object(value, object);
        if self.core.orders && value != Value::ABSENT && self.follows(Rule::PropertyOrder) {
            self.add_in_order(object, name);
        }
        // A property such as `toString` or `then`: from now on, the engine may call code of the program by
        // itself.
        if !self.engine.converts && self.dom.names.is_hook(name) {
            (self.engine.converts, self.changed) = (true, true);
        }
        let cell = self.heap.cell(object, name);
        self.heap.cells[cell as usize].span = (self.at, self.end);
        let known = &self.heap.objects[object as usize];
        let strong = strong && (known.unique || !known.kept);
        self.write(cell, value, strong);
    }

    /// Returns whether an object is one concrete object whose writes are all in program order, so that its
    /// contents are exact.
    pub(super) fn is_exact_object(&self, object: ObjId) -> bool {
        let known = &self.heap.objects[object as usize];
        !known.kept || known.unique && self.threads.concurrent == 0
    }

    /// Writes a property of unknown name.
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
        // The write may have replaced any property that exists. Reads of these need not look at `elem` then;
        // see `is_settled`.
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

    /// Returns whether the cell of a property has its whole value, including writes under unknown names: those
    /// that came before it was set are replaced, and later ones were joined into the cell by `put_any`.
    pub(super) fn is_settled(&self, object: ObjId, held: Value) -> bool {
        let known = &self.heap.objects[object as usize];
        known.kind == Kind::Plain && !known.kept && !held.is_never() && !self.dom.shape(held).absent
    }

    /// Records that a write by index, decided by `deps`, may have lengthened a list.
    fn grows(&mut self, object: ObjId, deps: Deps) {
        let cell = self.heap.cell(object, self.known.length);
        self.write(cell, Value::computed(deps), false);
    }

    /// Adds a new property to the recorded order of an object's properties.
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
                // A hash of the sequence of names: it is compared for equality only.
                let mixed = (bits ^ u64::from(name)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.dom.scalar(crate::structure::core::Scalar::Number(mixed.rotate_left(23)))
            }
            _ => Value::computed(NONE),
        };
        let next = self.dom.with(next, deps);
        self.write(cell, next, strong);
    }

    /// Walks something for one of the things that a value may be: optional, unless it is the only one.
    pub(super) fn for_one_of(&mut self, of: Value, walk: impl FnOnce(&mut Self) -> Value) -> Value {
        let shape = self.dom.shape(of);
        let is_one = shape.refs.len() == 1 && shape.prim == Prim::None && !shape.absent;
        if is_one { walk(self) } else { self.optionally(of.deps, walk) }
    }

    /// Walks something that is optional if `deps` decide on it.
    pub(super) fn optionally_if(
        &mut self,
        deps: Deps,
        walk: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        if deps == NONE { walk(self) } else { self.optionally(deps, walk) }
    }

    /// Walks something optional, on which `deps` decide: a fork whose other way does nothing.
    pub(super) fn optionally(
        &mut self,
        deps: Deps,
        walk: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
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
