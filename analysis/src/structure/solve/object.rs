//! Properties that are read, and what can be gone over.

use super::walk::At;
use super::*;
use crate::structure::builtins;
use crate::structure::core::Scalar;
use crate::structure::domain::{Kind, Paths, Prim, Ref};

/// The longest chain of prototypes that is followed.
const CHAIN: u32 = 16;

impl Solver<'_> {
    /// Reads a property; `called` if it is read to be called.
    pub(super) fn get(&mut self, object: Value, key: &At, called: bool) -> Value {
        let shape = self.dom.shapes.kept(object.shape);
        let is_args = self.is_args(object);
        if shape.may_be_nothing() && !is_args {
            self.may_fail_by(object);
        }
        let mut out = Value::NEVER;
        let calls = self.core.accessors;
        for one in &shape.refs {
            let value = match one {
                Ref::Obj(_) if calls => {
                    self.chosen(object, |solver| solver.get_of(*one, object, key, called))
                }
                _ => self.get_of(*one, object, key, called),
            };
            out = self.dom.join(out, value);
        }
        let is_nothing = |scalar: &Scalar| matches!(scalar, Scalar::Undefined | Scalar::Null);
        let has_methods = match &shape.prim {
            Prim::None => false,
            Prim::Any => true,
            Prim::Consts(scalars) => !scalars.iter().all(is_nothing),
        };
        if has_methods {
            let value = self.get_of_text(object, key, called);
            out = self.dom.join(out, value);
        }
        let out = self.dom.with(out, key.deps);
        if is_args {
            // This does not fail, but what is done with the field may, also in ways that are not followed.
            self.may_fail_by(out);
        }
        out
    }

    pub(super) fn get_of(&mut self, one: Ref, object: Value, key: &At, called: bool) -> Value {
        match one {
            Ref::Obj(id) => {
                let this = Value { deps: object.deps, shape: self.dom.shapes.of_ref(one) };
                let value = self.get_own_or_above(id, this, key, called);
                let deps = self.dom.sources.used(object.deps);
                if self.is_only_method(value) { value } else { self.dom.with(value, deps) }
            }
            Ref::Data(id, path) => self.get_of_data(id, path, object, key, called),
            Ref::Method(_) => {
                self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)))
            }
            Ref::Builtin(base) => self.named(key, |solver, name| solver.builtin_member(base, name)),
            Ref::Mcp => match &key.names {
                Some(names) => {
                    let names = names.clone();
                    let mut out = Value::NEVER;
                    for name in names {
                        let value = self.dom.reference(Ref::Namespace(name));
                        out = self.dom.join(out, value);
                    }
                    self.dom.with(out, key.deps)
                }
                None => {
                    self.gap(Code::DynamicName);
                    self.escape_nothing()
                }
            },
            Ref::Namespace(namespace) => match &key.names {
                Some(names) => {
                    let names = names.clone();
                    let mut out = Value::NEVER;
                    for name in names {
                        let value = self.dom.reference(Ref::Tool(namespace, name));
                        out = self.dom.join(out, value);
                    }
                    self.dom.with(out, key.deps)
                }
                None => {
                    self.gap(Code::DynamicName);
                    self.escape_nothing()
                }
            },
            Ref::Tool(..) => {
                self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)))
            }
            Ref::Pool => {
                if !self.pool.is_empty() {
                    // Code that escaped may run now.
                    let control = self.control_above(0);
                    let deps = self.dom.union(control, key.deps);
                    self.add_to_pool(deps);
                    let pooled = self.pooled();
                    self.may_fail_by(pooled);
                }
                self.pooled()
            }
        }
    }

    fn is_only_method(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        shape.prim == Prim::None && shape.refs.iter().all(|one| matches!(one, Ref::Method(_)))
    }

    fn named(&mut self, key: &At, make: impl Fn(&mut Self, NameId) -> Value) -> Value {
        let Some(names) = &key.names else {
            self.gap(Code::DynamicGlobal);
            return self.pooled();
        };
        let mut out = Value::NEVER;
        for name in names.clone() {
            let value = make(self, name);
            out = self.dom.join(out, value);
        }
        out
    }

    /// Reads a property of a text, a number or the like.
    fn get_of_text(&mut self, object: Value, key: &At, called: bool) -> Value {
        self.looks_at_maker(key);
        if called && key.names.is_some() {
            return self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)));
        }
        let deps = self.dom.sources.used(object.deps);
        Value::computed(deps)
    }

    /// Notes that what makes code out of text is within reach.
    fn looks_at_maker(&mut self, key: &At) {
        let is_maker =
            |name: &NameId| matches!(&*self.dom.names.text(*name), "constructor" | "__proto__");
        if key.names.iter().flatten().any(is_maker) {
            self.gap(Code::DynamicEval);
        }
    }

    /// Reads a part of data that came from elsewhere.
    fn get_of_data(
        &mut self,
        id: ObjId,
        path: u32,
        object: Value,
        key: &At,
        called: bool,
    ) -> Value {
        self.looks_at_maker(key);
        let mut out = match &key.names {
            Some(names) if called => {
                let names = names.clone();
                let mut out = Value::NEVER;
                for name in names {
                    let value = self.dom.reference(Ref::Method(name));
                    out = self.dom.join(out, value);
                }
                out
            }
            Some(names) => {
                let names = names.clone();
                let mut out = Value::NEVER;
                for name in names {
                    let text = self.dom.names.text(name);
                    let deps = self.dom.sources.field(object.deps, &text);
                    let to = self.dom.paths.step(path, name);
                    let shape = self.dom.shapes.of_ref(Ref::Data(id, to));
                    out = self.dom.join(out, Value { deps, shape });
                }
                out
            }
            None => {
                let deps = self.dom.sources.used(object.deps);
                Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(id, Paths::LOST)) }
            }
        };
        // What was written into it may be what is read.
        if let Some(cell) = self.heap.find(id, self.known.elem) {
            let written = self.read(cell);
            let shape = self.dom.shapes.present(written.shape);
            out = self.dom.join(out, Value { deps: written.deps, shape });
        }
        if self.heap.objects[id as usize].escaped {
            let pooled = self.pooled();
            out = self.dom.join(out, pooled);
        }
        out
    }

    /// Reads a property of an object, or of its prototypes.
    fn get_own_or_above(&mut self, object: ObjId, this: Value, key: &At, called: bool) -> Value {
        let calls = self.core.accessors;
        let Some(names) = &key.names else {
            if !calls {
                return self.get_any(object, this);
            }
            return self.maybe(key.deps, |solver| solver.get_any(object, this));
        };
        let mut out = Value::NEVER;
        for name in names.clone() {
            let value = if calls && names.len() > 1 {
                self.maybe(key.deps, |solver| solver.look_up(object, this, name, called, 0))
            } else {
                self.look_up(object, this, name, called, 0)
            };
            out = self.dom.join(out, value);
        }
        out
    }

    fn look_up(
        &mut self,
        object: ObjId,
        this: Value,
        name: NameId,
        called: bool,
        depth: u32,
    ) -> Value {
        if depth > CHAIN {
            return self.pooled();
        }
        let mut out = Value::NEVER;
        let mut is_there = false;
        if let Some(cell) = self.heap.find(object, name) {
            let value = self.read(cell);
            is_there = !value.is_never() && !self.dom.shape(value).absent;
            out = self.here(value);
        }
        if self.core.accessors
            && let Some(getter) = self.accessor(object, "get", name)
        {
            let given = self.call_value(getter, Some(this), &Args::default(), false);
            out = self.dom.join(out, given);
        }
        // The items of a list have numbers for names.
        let text = self.dom.names.text(name);
        let held = match self.heap.objects[object as usize].kind {
            Kind::Array if text.starts_with(|c: char| c.is_ascii_digit()) => Some(self.known.elem),
            Kind::Array | Kind::Map | Kind::Set | Kind::Promise | Kind::Iterator => {
                Some(self.known.any)
            }
            _ => Some(self.known.elem),
        };
        if let Some(cell) = held.and_then(|held| self.heap.find(object, held)) {
            let value = self.read(cell);
            let value = self.here(value);
            out = self.dom.join(out, value);
        }
        if self.heap.objects[object as usize].escaped {
            let pooled = self.pooled();
            out = self.dom.join(out, pooled);
        }
        if is_there {
            return out;
        }
        let above = self.above(object, this, name, called, depth);
        self.dom.join(out, above)
    }

    /// Returns what a property has if it is there.
    pub(super) fn here(&mut self, value: Value) -> Value {
        let shape = self.dom.shape(value);
        if !shape.absent {
            return value;
        }
        let mut shape = shape.clone();
        shape.absent = false;
        Value { deps: value.deps, shape: self.dom.shapes.add(shape) }
    }

    /// Reads a property that an object does not have itself.
    fn above(
        &mut self,
        object: ObjId,
        this: Value,
        name: NameId,
        called: bool,
        depth: u32,
    ) -> Value {
        let kind = self.heap.objects[object as usize].kind;
        let text = self.dom.names.text(name);
        if &*text == "constructor" && !called
            || &*text == "__proto__" && self.heap.find(object, self.known.proto).is_none()
        {
            self.gap(Code::DynamicEval);
        }
        if &*text == "__proto__" {
            return self.own(object, self.known.proto);
        }
        let mut out = Value::NEVER;
        let proto = self.heap.find(object, self.known.proto);
        let proto = proto.map_or(Value::ABSENT, |cell| self.read(cell));
        let shape = self.dom.shapes.kept(proto.shape);
        for one in &shape.refs {
            let value = match one {
                Ref::Obj(above) => self.look_up(*above, this, name, called, depth + 1),
                Ref::Builtin(base) if !builtins::is_prototype_only(&self.dom.names.text(*base)) => {
                    self.builtin_member(*base, name)
                }
                Ref::Pool => self.pooled(),
                _ => self.dom.reference(Ref::Method(name)),
            };
            out = self.dom.join(out, value);
        }
        if &*text == "length" || &*text == "size" {
            let (_, count) = self.iterated(this);
            return self.dom.join(out, Value::computed(count));
        }
        let has_method = match kind {
            Kind::Plain => builtins::is_of_objects(&text),
            Kind::Func { .. } | Kind::Bound => {
                builtins::is_of_objects(&text) || matches!(&*text, "call" | "apply" | "bind")
            }
            _ => builtins::is_method(&text),
        };
        let value = if has_method || kind == Kind::Opaque && called {
            self.dom.reference(Ref::Method(name))
        } else if kind == Kind::Opaque {
            // It may be a view of the whole, as `searchParams` of a URL is.
            let deps = self.reach(this);
            self.dom.join(this, Value::computed(deps))
        } else if matches!(kind, Kind::Func { .. } | Kind::Bound) && &*text == "name" {
            Value::computed(NONE)
        } else {
            Value::UNDEFINED
        };
        self.dom.join(out, value)
    }

    /// Reads any property of an object.
    fn get_any(&mut self, object: ObjId, this: Value) -> Value {
        let mut out = Value::UNDEFINED;
        let mut next = Some(object);
        for _ in 0..CHAIN {
            let Some(object) = next.take() else { break };
            let cells: Vec<(NameId, CellId)> = self.heap.objects[object as usize].keys.clone();
            for (name, cell) in cells {
                let value = self.read(cell);
                if name == self.known.proto {
                    next = self.dom.shape(value).refs.iter().find_map(|one| match one {
                        Ref::Obj(object) => Some(*object),
                        _ => None,
                    });
                    continue;
                }
                if name == self.known.fields || value.is_never() {
                    continue;
                }
                let value = self.here(value);
                let text = self.dom.names.text(name);
                if self.core.accessors && text.starts_with("get:") {
                    let given = self.call_value(value, Some(this), &Args::default(), false);
                    out = self.dom.join(out, given);
                } else {
                    out = self.dom.join(out, value);
                }
            }
            if self.heap.objects[object as usize].escaped {
                let pooled = self.pooled();
                out = self.dom.join(out, pooled);
            }
        }
        let (_, count) = self.iterated(this);
        self.dom.with(out, count)
    }

    /// Reads what is above an object, for `super.key`.
    pub(super) fn get_above(&mut self, home: Value, key: &At) -> Value {
        let shape = self.dom.shapes.kept(home.shape);
        let mut out = Value::NEVER;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            let proto = self.own(*object, self.known.proto);
            let value = self.get(proto, key, true);
            out = self.dom.join(out, value);
        }
        out
    }

    /// Returns what an object itself has by a name.
    pub(super) fn own(&mut self, object: ObjId, name: NameId) -> Value {
        match self.heap.find(object, name) {
            Some(cell) => {
                let value = self.read(cell);
                self.here(value)
            }
            None => Value::NEVER,
        }
    }

    /// Returns the method that an object has by a name, if the program gives it one.
    pub(super) fn own_method(&mut self, object: ObjId, name: NameId) -> Option<Value> {
        let mut next = Some(object);
        for _ in 0..CHAIN {
            let object = next?;
            let mut value = self.own(object, name);
            let elem = self.own(object, self.known.elem);
            value = self.dom.join(value, elem);
            let refs = self.dom.shapes.only_refs(
                value.shape,
                |one| matches!(one, Ref::Obj(_) | Ref::Pool | Ref::Tool(..)),
                false,
            );
            let value = Value { deps: value.deps, shape: refs };
            let is_callable = self.dom.shape(value).refs.iter().any(|one| match one {
                Ref::Obj(id) => {
                    matches!(self.heap.objects[*id as usize].kind, Kind::Func { .. } | Kind::Bound)
                }
                _ => true,
            });
            if is_callable {
                return Some(value);
            }
            let proto = self.own(object, self.known.proto);
            next = self.dom.shape(proto).refs.iter().find_map(|one| match one {
                Ref::Obj(object) => Some(*object),
                _ => None,
            });
        }
        None
    }

    /// Returns the getter or setter that an object itself has by a name.
    pub(super) fn accessor(&mut self, object: ObjId, kind: &str, name: NameId) -> Option<Value> {
        let text = self.dom.names.text(name);
        let name = self.dom.names.known(&format!("{kind}:{text}").into())?;
        let value = self.own(object, name);
        (!value.is_never() && !self.dom.shape(value).refs.is_empty()).then_some(value)
    }
}
