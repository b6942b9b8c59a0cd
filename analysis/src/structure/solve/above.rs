//! Property look-up in an object and along its chain of prototypes, up to the methods of the engine.

use super::walk::AbstractKey;
use super::*;
use crate::structure::builtins;
use crate::structure::core::FuncForm;
use crate::structure::domain::{Kind, Prim, Ref};

/// The maximum length of a chain of prototypes; the plan of a program with a longer one is incomplete.
const CHAIN: u32 = 16;

impl Solver<'_> {
    /// Reads a property of an object or of its prototypes. `this` is the receiver for getters, `depth` the
    /// distance from it.
    pub(super) fn look_up(
        &mut self,
        object: ObjId,
        this: Value,
        name: NameId,
        called: bool,
        depth: u32,
    ) -> Value {
        if depth > CHAIN {
            self.entangled = true;
            return self.pooled();
        }
        let mut out = Value::NEVER;
        let (mut is_there, mut is_settled) = (false, false);
        if name == self.known.prototype {
            self.prototype_of(object);
        }
        if let Some(cell) = self.heap.find(object, name) {
            let value = self.read(cell);
            is_there = !value.is_never() && !self.dom.shape(value).absent;
            is_settled = self.is_settled(object, value);
            out = self.present(value);
        }
        if self.core.accessors
            && self.follows(Rule::Getter)
            && let Some(getter) = self.accessor(object, "get", name)
        {
            let may_lack = self.dom.shape(getter).absent;
            let getter = self.present(getter);
            let walk =
                |solver: &mut Self| solver.call_value(getter, Some(this), &Args::default(), false);
            let given = if may_lack { self.optionally(getter.deps, walk) } else { walk(self) };
            let given = self.dom.with(given, getter.deps);
            let promised = self.dom.shape(given).promised;
            self.misuses.gets(object, name, promised);
            out = self.dom.join(out, given);
        }
        let text = self.dom.names.get(name);
        // Where a value under an unknown name may be what is read: for a list, `elem` has its items and `any`
        // the rest.
        let held = match self.heap.objects[object as usize].kind {
            Kind::Array if text.starts_with(|c: char| c.is_ascii_digit()) => Some(self.known.elem),
            Kind::Array | Kind::Map | Kind::Set | Kind::Promise | Kind::Iterator => {
                Some(self.known.any)
            }
            _ if is_settled => None,
            _ => Some(self.known.elem),
        };
        if let Some(cell) = held.and_then(|held| self.heap.find(object, held)) {
            let value = self.read(cell);
            let value = self.present(value);
            out = self.dom.join(out, value);
        }
        // Unknown code may have written any property, but it cannot name the internal slots.
        if self.heap.objects[object as usize].escaped && !self.dom.names.is_own(name) {
            self.touch(object, this.deps);
            let pooled = self.pooled();
            out = self.dom.join(out, pooled);
        }
        if is_there {
            return out;
        }
        let above = self.above(object, this, name, called, depth);
        self.dom.join(out, above)
    }

    /// Returns a function or an object of the engine by its name.
    fn engine_part(&mut self, name: &str) -> Value {
        let name = self.dom.name(&name.into());
        self.dom.reference(Ref::Builtin(name))
    }

    /// Reads a property that an object does not have itself: from its prototype, or else from the engine.
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
        // A function's `constructor` is `Function`, which makes code from text; so does reaching it by
        // `__proto__`.
        let is_code = matches!(kind, Kind::Func { .. } | Kind::Bound);
        if &*text == "constructor" && (!called || is_code)
            || &*text == "__proto__" && self.heap.find(object, self.known.proto).is_none()
        {
            self.gap(Code::DynamicEval, About::Name);
        }
        if &*text == "__proto__" {
            return self.own(object, self.known.proto);
        }
        let mut out = Value::NEVER;
        let proto = self.heap.find(object, self.known.proto);
        let proto = proto.filter(|_| self.follows(Rule::Prototype));
        let proto = proto.map_or(Value::ABSENT, |cell| self.read(cell));
        let shape = self.dom.shapes.kept(proto.shape);
        for one in &shape.refs {
            let value = match one {
                Ref::Obj(above) if self.core.accessors => self.for_one_of(proto, |solver| {
                    solver.look_up(*above, this, name, called, depth + 1)
                }),
                Ref::Obj(above) => self.look_up(*above, this, name, called, depth + 1),
                Ref::Builtin(base) if !builtins::is_prototype_only(self.dom.names.get(*base)) => {
                    self.builtin_member(*base, name)
                }
                Ref::Pool => {
                    self.touch_pool(this.deps);
                    self.pooled()
                }
                _ => self.dom.reference(Ref::Method(name)),
            };
            out = self.dom.join(out, value);
        }
        out = self.dom.with(out, proto.deps);
        if &*text == "length" || &*text == "size" {
            let (_, count) = self.iterated(this);
            return self.dom.join(out, Value::computed(count));
        }
        // A missing list item is `undefined`.
        let is_place = text.starts_with(|c: char| c.is_ascii_digit());
        let value = match kind {
            // The engine's defaults, for an object without a prototype of its own.
            Kind::Plain if &*text == "constructor" => self.engine_part("Object"),
            Kind::Func { .. } | Kind::Bound if &*text == "constructor" => {
                self.engine_part("Function")
            }
            Kind::Func { .. } | Kind::Bound
                if is_hidden_method(&text) || called && &*text == "@@hasInstance" =>
            {
                self.dom.reference(Ref::Method(name))
            }
            Kind::Plain if builtins::is_of_objects(&text) || is_hidden_method(&text) => {
                self.dom.reference(Ref::Method(name))
            }
            Kind::Plain => Value::UNDEFINED,
            Kind::Func { .. } | Kind::Bound => match &*text {
                "call" | "apply" | "bind" => self.dom.reference(Ref::Method(name)),
                text if builtins::is_of_objects(text) => self.dom.reference(Ref::Method(name)),
                "name" => {
                    // That of a bound function is that of its target.
                    let target = self.own(object, self.known.target);
                    Value::computed(target.deps)
                }
                _ => Value::UNDEFINED,
            },
            Kind::Opaque if called => self.dom.reference(Ref::Method(name)),
            // `format` of `Intl` is a function that is bound to its object.
            Kind::Opaque if builtins::is_method(&text) && &*text != "format" => {
                self.dom.reference(Ref::Method(name))
            }
            Kind::Opaque => {
                // The property may be a view of the whole object, such as `searchParams` of a URL.
                let deps = self.reach(this);
                self.dom.join(this, Value::computed(deps))
            }
            Kind::Pattern if !called && !builtins::is_engine_function(&text) => {
                let deps = self.reach(this);
                Value::computed(deps)
            }
            _ if is_place => Value::UNDEFINED,
            _ if called || builtins::is_method(&text) => self.dom.reference(Ref::Method(name)),
            _ => {
                // The engine may have methods that the table does not list.
                let method = self.dom.reference(Ref::Method(name));
                self.dom.join(method, Value::UNDEFINED)
            }
        };
        self.dom.join(out, value)
    }

    /// `super.key`: reads from the prototype of `home`, the object in whose literal or class the method is.
    pub(super) fn get_above(&mut self, home: Value, this: Value, key: &AbstractKey) -> Value {
        let shape = self.dom.shapes.kept(home.shape);
        let mut out = Value::NEVER;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            let proto = self.own(*object, self.known.proto);
            let above = self.dom.shapes.kept(proto.shape);
            for one in &above.refs {
                let value = match one {
                    Ref::Obj(id) => self
                        .for_one_of(proto, |solver| solver.get_own_or_above(*id, this, key, true)),
                    _ => self.get_of(*one, proto, key, true),
                };
                let value = self.dom.with(value, proto.deps);
                out = self.dom.join(out, value);
            }
            if above.refs.is_empty() {
                let own = AbstractKey { names: key.names.clone(), deps: key.deps };
                let value = self.named(&own, |solver, name| {
                    let text = solver.dom.names.text(name);
                    if builtins::is_of_objects(&text) {
                        solver.dom.reference(Ref::Method(name))
                    } else {
                        Value::UNDEFINED
                    }
                });
                out = self.dom.join(out, value);
            }
        }
        self.dom.with(out, key.deps)
    }

    /// Returns the method of a given name that the program, and not the engine, gives an object. It has no function
    /// if something only decides which method of the engine it is, or whether there is one.
    pub(super) fn own_method(&mut self, object: ObjId, name: NameId) -> Option<Value> {
        let this = self.dom.reference(Ref::Obj(object));
        let value = self.look_up(object, this, name, true, 0);
        let has_engine_function = self.is_of_engine(value);
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
        if value.deps == NONE || !has_engine_function {
            return None;
        }
        // Only a property that the program itself names can hold one of the engine's functions or nothing.
        let is_named = self.lineage(object).0.into_iter().any(|one| {
            let own = self.own(one, name);
            let is_own = !own.is_never() && !self.dom.shape(own).refs.is_empty();
            is_own || self.accessor(one, "get", name).is_some()
        });
        let none = self.dom.shapes.only_refs(value.shape, |_| false, false);
        is_named.then_some(Value { deps: value.deps, shape: none })
    }

    /// Returns an object and all its possible prototypes, and what decides which they are.
    pub(super) fn lineage(&mut self, object: ObjId) -> (SmallVec<[ObjId; 4]>, Deps) {
        let mut deps = NONE;
        let mut all: SmallVec<[ObjId; 4]> = smallvec::smallvec![object];
        let mut place = 0;
        while let Some(object) = all.get(place).copied() {
            place += 1;
            let proto = self.own(object, self.known.proto);
            deps = self.dom.union(deps, proto.deps);
            for one in &self.dom.shapes.kept(proto.shape).refs {
                if let Ref::Obj(above) = one
                    && !all.contains(above)
                {
                    if all.len() >= 4 * CHAIN as usize {
                        self.entangled = true;
                        break;
                    }
                    all.push(*above);
                }
            }
        }
        (all, deps)
    }

    /// Passes a value to the unknown code that may be in an object's chain of prototypes: the traps of a proxy.
    pub(super) fn pass_to_traps(&mut self, object: ObjId, given: Value, deps: Deps) {
        if !self.engine.traps {
            return;
        }
        let (lineage, above) = self.lineage(object);
        let deps = self.dom.union(deps, above);
        for object in lineage {
            let proto = self.own(object, self.known.proto);
            if self.dom.shape(proto).refs.contains(&Ref::Pool) {
                self.touch_pool(deps);
                self.escape(given);
            }
            if self.heap.objects[object as usize].escaped {
                self.touch(object, deps);
                self.escape(given);
            }
        }
    }

    /// Returns the prototype of a value (`Object.getPrototypeOf`).
    pub(super) fn prototype_above(&mut self, of: Value) -> Value {
        let shape = self.dom.shapes.kept(of.shape);
        let engine = self.dom.name(&"Object.prototype".into());
        let engine = self.dom.reference(Ref::Builtin(engine));
        let mut out = if shape.prim == Prim::None { Value::NEVER } else { engine };
        for one in &shape.refs {
            let Ref::Obj(object) = one else {
                if *one == Ref::Pool {
                    self.touch_pool(of.deps);
                    let pooled = self.pooled();
                    out = self.dom.join(out, pooled);
                }
                out = self.dom.join(out, engine);
                continue;
            };
            let proto = self.heap.find(*object, self.known.proto);
            let proto = proto.map_or(Value::ABSENT, |cell| self.read(cell));
            if self.dom.shape(proto).absent || proto.is_never() {
                out = self.dom.join(out, engine);
            }
            let proto = self.present(proto);
            out = self.dom.join(out, proto);
            if self.heap.objects[*object as usize].escaped {
                self.touch(*object, of.deps);
                let pooled = self.pooled();
                out = self.dom.join(out, pooled);
            }
        }
        self.dom.with(out, of.deps)
    }

    /// Makes the object `prototype` of a plain function on first use. Most functions are never used as
    /// constructors.
    pub(super) fn prototype_of(&mut self, function: ObjId) {
        let known = &self.heap.objects[function as usize];
        let (Kind::Func { func, .. }, birth, unique) = (known.kind, known.birth, known.unique)
        else {
            return;
        };
        let code = self.function(func);
        if code.form != FuncForm::Plain || code.is_async {
            return;
        }
        if let Some(cell) = self.heap.find(function, self.known.prototype)
            && !matches!(self.now(cell), Value::ABSENT | Value::NEVER)
        {
            return;
        }
        let made = self.heap.object(u32::MAX - 1, function << 3, Kind::Plain, unique, birth);
        self.keep_object(made);
        let value = self.dom.reference(Ref::Obj(made));
        let cell = self.heap.cell(function, self.known.prototype);
        // Written without the label of the current point: the object exists from the beginning.
        let joined = self.dom.join(value, Value::NEVER);
        self.changed |= self.heap.note(&mut self.dom, cell, joined);
        self.set_now(cell, joined);
    }

    /// Returns the own getter or setter of an object by a property's name.
    pub(super) fn accessor(&mut self, object: ObjId, kind: &str, name: NameId) -> Option<Value> {
        let text = self.dom.names.text(name);
        let name = self.dom.names.known(&format!("{kind}:{text}").into())?;
        let value = self.read(self.heap.find(object, name)?);
        (!self.dom.shape(value).refs.is_empty()).then_some(value)
    }
}

/// Returns whether a name is one of the legacy methods of every object, such as `__defineGetter__`.
fn is_hidden_method(name: &str) -> bool {
    name.starts_with("__") && builtins::is_engine_function(name)
}
