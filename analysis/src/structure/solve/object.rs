//! Properties that are read, and what can be gone over.

use super::walk::At;
use super::*;
use crate::structure::builtins;
use crate::structure::core::{FuncForm, Scalar};
use crate::structure::domain::{Kind, Paths, Prim, Ref, written};

/// The longest chain of prototypes that is followed.
const CHAIN: u32 = 16;

impl Solver<'_> {
    /// Reads a property; `called` if it is read to be called.
    pub(super) fn get(&mut self, object: Value, key: &At, called: bool) -> Value {
        let shape = self.dom.shapes.kept(object.shape);
        let is_args = self.is_args(object);
        if shape.may_be_nothing() && !is_args {
            let deps = self.dom.union(object.deps, key.deps);
            self.may_fail_by(Value { deps, shape: object.shape });
        }
        self.check_private(object, key);
        let mut out = Value::NEVER;
        let calls = self.core.accessors;
        let leads = |one: &Ref| matches!(one, Ref::Mcp | Ref::Namespace(_));
        let tools = match shape.refs.iter().any(leads) {
            true => self.tools_of(&shape, key),
            false => None,
        };
        if let Some(tools) = &tools {
            self.names_tools(&shape, tools);
        }
        for one in &shape.refs {
            let key = match (&tools, leads(one)) {
                (Some(tools), true) => tools,
                // It is looked at again with each item of a loop.
                (None, true) => continue,
                _ => key,
            };
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
        let out = self.surely(out, &shape.refs, key);
        let out = if self.follows(Rule::KeyRead) { self.dom.with(out, key.deps) } else { out };
        if is_args {
            // This does not fail, but what is done with the field may, also in ways that are not followed.
            self.may_fail_by(out);
        }
        out
    }

    /// Notes that a private name may not be there, which fails.
    pub(super) fn check_private(&mut self, object: Value, key: &At) {
        let Some(&[name]) = key.names.as_deref() else { return };
        if self.handlers.is_empty() || !self.dom.names.get(name).starts_with('#') {
            return;
        }
        let shape = self.dom.shapes.kept(object.shape);
        let mut is_there = shape.prim == Prim::None;
        for one in &shape.refs {
            let Ref::Obj(id) = one else {
                is_there = false;
                continue;
            };
            let (lineage, _) = self.lineage(*id);
            is_there &= lineage.into_iter().any(|id| {
                let has = |cell: CellId| !self.dom.shape(self.now(cell)).absent;
                self.heap.find(id, name).is_some_and(has)
                    || self.accessor(id, "get", name).is_some()
                    || self.accessor(id, "set", name).is_some()
            });
        }
        if !is_there {
            self.may_fail_by(Value::computed(object.deps));
        }
    }

    pub(super) fn get_of(&mut self, one: Ref, object: Value, key: &At, called: bool) -> Value {
        match one {
            Ref::Obj(id) => {
                let this = Value { deps: object.deps, shape: self.dom.shapes.of_ref(one) };
                let value = self.get_own_or_above(id, this, key, called);
                let deps = self.dom.sources.used(object.deps);
                if self.is_only_method(value) || !self.follows(Rule::ObjectRead) {
                    value
                } else {
                    self.dom.with(value, deps)
                }
            }
            Ref::Data(id, path) => self.get_of_data(id, path, object, key, called),
            Ref::Method(_) => {
                self.looks_at_maker(key);
                self.get_of_method(key)
            }
            Ref::Builtin(base) => {
                if key.names.is_none() && leads_to_engine(self.dom.names.get(base)) {
                    self.gap(Code::DynamicGlobal, About::Name);
                }
                if &*self.dom.names.text(base) != "globalThis" {
                    self.looks_at_maker(key);
                }
                self.named(key, |solver, name| solver.builtin_member(base, name))
            }
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
                    self.gap(Code::DynamicName, About::Name);
                    self.escape_nothing()
                }
            },
            Ref::Namespace(namespace) => match &key.names {
                Some(names) => {
                    let names = names.clone();
                    let mut out = Value::NEVER;
                    for name in names {
                        self.named_tools.insert((namespace, name));
                        let value = self.dom.reference(Ref::Tool(namespace, name));
                        out = self.dom.join(out, value);
                    }
                    self.dom.with(out, key.deps)
                }
                None => {
                    self.gap(Code::DynamicName, About::Name);
                    self.escape_nothing()
                }
            },
            Ref::Tool(..) => {
                if !self.is_applied(key) {
                    self.gap(Code::DynamicCall, About::Value(one, How::Called));
                }
                self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)))
            }
            Ref::Pool => {
                self.looks_at_maker(key);
                self.touch_pool(key.deps);
                self.pooled()
            }
        }
    }

    /// Returns a method of the engine of which it is not known which.
    fn some_method(&mut self) -> Value {
        self.dom.reference(Ref::Method(self.known.method))
    }

    /// Returns whether a part of a function is one of its methods.
    fn is_applied(&self, key: &At) -> bool {
        let is_method = |name: &NameId| {
            matches!(self.dom.names.get(*name), "call" | "apply" | "bind" | "name" | "length")
        };
        key.names.as_ref().is_some_and(|names| names.iter().all(is_method))
    }

    fn is_only_method(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        shape.prim == Prim::None && shape.refs.iter().all(|one| matches!(one, Ref::Method(_)))
    }

    pub(super) fn named(&mut self, key: &At, make: impl Fn(&mut Self, NameId) -> Value) -> Value {
        let Some(names) = &key.names else {
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
        let value = Value::computed(deps);
        if !called {
            return value;
        }
        let method = self.some_method();
        self.dom.join(value, method)
    }

    /// Notes that what makes code out of text is within reach.
    fn looks_at_maker(&mut self, key: &At) {
        let is_maker =
            |name: &NameId| matches!(self.dom.names.get(*name), "constructor" | "__proto__");
        if key.names.iter().flatten().any(is_maker) {
            self.gap(Code::DynamicEval, About::Name);
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
                    let text = written(self.dom.names.text(name));
                    let deps = self.dom.sources.field(object.deps, &text);
                    let to = self.dom.paths.step(path, name);
                    let shape = self.dom.shapes.of_ref(Ref::Data(id, to));
                    out = self.dom.join(out, Value { deps, shape });
                }
                out
            }
            None => {
                let deps = self.dom.sources.used(object.deps);
                let part =
                    Value { deps, shape: self.dom.shapes.of_ref(Ref::Data(id, Paths::LOST)) };
                let method = if called { self.some_method() } else { Value::NEVER };
                self.dom.join(part, method)
            }
        };
        // What was written into it may be what is read.
        if let Some(cell) = self.heap.find(id, self.known.elem) {
            let written = self.read(cell);
            let shape = self.dom.shapes.present(written.shape);
            out = self.dom.join(out, Value { deps: written.deps, shape });
        }
        if self.heap.objects[id as usize].escaped {
            self.touch(id, object.deps);
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
            return self.perhaps(key.deps, |solver| solver.get_any(object, this));
        };
        let mut out = Value::NEVER;
        for name in names.clone() {
            let value = if calls && names.len() > 1 {
                self.perhaps(key.deps, |solver| solver.look_up(object, this, name, called, 0))
            } else {
                self.look_up(object, this, name, called, 0)
            };
            out = self.dom.join(out, value);
        }
        out
    }

    pub(super) fn look_up(
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
        let (mut is_there, mut is_settled) = (false, false);
        if name == self.known.prototype {
            self.prototype_of(object);
        }
        if let Some(cell) = self.heap.find(object, name) {
            let value = self.read(cell);
            is_there = !value.is_never() && !self.dom.shape(value).absent;
            is_settled = self.is_settled(object, value);
            out = self.here(value);
        }
        if self.core.accessors
            && self.follows(Rule::Getter)
            && let Some(getter) = self.accessor(object, "get", name)
        {
            let may_lack = self.dom.shape(getter).absent;
            let getter = self.here(getter);
            let walk =
                |solver: &mut Self| solver.call_value(getter, Some(this), &Args::default(), false);
            let given = if may_lack { self.perhaps(getter.deps, walk) } else { walk(self) };
            let given = self.dom.with(given, getter.deps);
            let promised = self.dom.shape(given).promised;
            self.misuses.gets(object, name, promised);
            out = self.dom.join(out, given);
        }
        // The items of a list have numbers for names.
        let text = self.dom.names.get(name);
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
            let value = self.here(value);
            out = self.dom.join(out, value);
        }
        // Nobody else knows the names of the analysis itself.
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

    fn engine_part(&mut self, name: &str) -> Value {
        let name = self.dom.name(&name.into());
        self.dom.reference(Ref::Builtin(name))
    }

    /// Returns what a property has if it is there.
    pub(super) fn here(&mut self, value: Value) -> Value {
        let shape = self.dom.shape(value);
        if !shape.absent {
            return value;
        }
        Value { deps: value.deps, shape: self.dom.shapes.present(value.shape) }
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
        // Of an object it makes objects, and of a function, functions.
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
                Ref::Obj(above) if self.core.accessors => self
                    .chosen(proto, |solver| solver.look_up(*above, this, name, called, depth + 1)),
                Ref::Obj(above) => self.look_up(*above, this, name, called, depth + 1),
                Ref::Builtin(base) if !builtins::is_prototype_only(self.dom.names.get(*base)) => {
                    self.builtin_member(*base, name)
                }
                Ref::Pool => self.pooled(),
                _ => self.dom.reference(Ref::Method(name)),
            };
            out = self.dom.join(out, value);
        }
        out = self.dom.with(out, proto.deps);
        if &*text == "length" || &*text == "size" {
            let (_, count) = self.iterated(this);
            return self.dom.join(out, Value::computed(count));
        }
        let is_place = text.starts_with(|c: char| c.is_ascii_digit());
        let value = match kind {
            Kind::Plain if &*text == "constructor" => self.engine_part("Object"),
            Kind::Func { .. } | Kind::Bound if &*text == "constructor" => {
                self.engine_part("Function")
            }
            Kind::Func { .. } | Kind::Bound
                if called && (text.starts_with("__") || &*text == "@@hasInstance") =>
            {
                self.dom.reference(Ref::Method(name))
            }
            Kind::Plain if builtins::is_of_objects(&text) || called && text.starts_with("__") => {
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
                // It may be a view of the whole, as `searchParams` of a URL is.
                let deps = self.reach(this);
                self.dom.join(this, Value::computed(deps))
            }
            Kind::Pattern if !called && !builtins::is_method(&text) => {
                let deps = self.reach(this);
                Value::computed(deps)
            }
            _ if is_place => Value::UNDEFINED,
            _ if called || builtins::is_method(&text) => self.dom.reference(Ref::Method(name)),
            _ => {
                // The engine may have more methods than are known.
                let method = self.dom.reference(Ref::Method(name));
                self.dom.join(method, Value::UNDEFINED)
            }
        };
        self.dom.join(out, value)
    }

    /// Reads any property of an object.
    fn get_any(&mut self, object: ObjId, this: Value) -> Value {
        let method = self.some_method();
        let mut out = self.dom.join(Value::UNDEFINED, method);
        for object in self.lineage(object).0 {
            let cells: Vec<(NameId, CellId)> = self.heap.objects[object as usize].keys.clone();
            for (name, cell) in cells {
                let value = self.read(cell);
                if name == self.known.proto || name == self.known.order {
                    out = self.dom.with(out, value.deps);
                    continue;
                }
                if name == self.known.fields || value.is_never() {
                    continue;
                }
                let value = self.here(value);
                let text = self.dom.names.text(name);
                if self.core.accessors && text.starts_with("get:") {
                    let given = self.perhaps(NONE, |solver| {
                        solver.call_value(value, Some(this), &Args::default(), false)
                    });
                    out = self.dom.join(out, given);
                } else {
                    out = self.dom.join(out, value);
                }
            }
            if self.heap.objects[object as usize].escaped {
                self.touch(object, NONE);
                let pooled = self.pooled();
                out = self.dom.join(out, pooled);
            }
        }
        let (_, count) = self.iterated(this);
        self.dom.with(out, count)
    }

    /// Reads what is above an object, for `super.key`.
    pub(super) fn get_above(&mut self, home: Value, this: Value, key: &At) -> Value {
        let shape = self.dom.shapes.kept(home.shape);
        let mut out = Value::NEVER;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            let proto = self.own(*object, self.known.proto);
            let above = self.dom.shapes.kept(proto.shape);
            for one in &above.refs {
                let value = match one {
                    Ref::Obj(id) => {
                        self.chosen(proto, |solver| solver.get_own_or_above(*id, this, key, true))
                    }
                    _ => self.get_of(*one, proto, key, true),
                };
                let value = self.dom.with(value, proto.deps);
                out = self.dom.join(out, value);
            }
            if above.refs.is_empty() {
                let own = At { names: key.names.clone(), deps: key.deps };
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
        let this = self.dom.reference(Ref::Obj(object));
        let value = self.look_up(object, this, name, true, 0);
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
        is_callable.then_some(value)
    }

    /// Returns an object and all that may stand above it, and what decides what does.
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
                    && all.len() < 4 * CHAIN as usize
                {
                    all.push(*above);
                }
            }
        }
        (all, deps)
    }

    /// Notes that an object which unknown code knows is used: getters and traps may run.
    pub(super) fn touch(&mut self, object: ObjId, deps: Deps) {
        if !self.traps || !self.heap.objects[object as usize].escaped {
            return;
        }
        let control = self.control_above(0);
        let deps = self.dom.union(control, deps);
        let deps = self.dom.sources.used(deps);
        self.add_to_pool(deps);
        let pooled = self.pooled();
        self.may_fail_by(pooled);
    }

    /// Notes that what escaped is used: code that escaped may run now.
    pub(super) fn touch_pool(&mut self, deps: Deps) {
        if self.pool.is_empty() {
            return;
        }
        let control = self.control_above(0);
        let deps = self.dom.union(control, deps);
        let deps = self.dom.sources.used(deps);
        self.add_to_pool(deps);
        let pooled = self.pooled();
        self.may_fail_by(pooled);
    }

    /// Returns what stands above a value: an object of the program, or one of the engine.
    pub(super) fn prototype_above(&mut self, of: Value) -> Value {
        let shape = self.dom.shapes.kept(of.shape);
        let engine = self.dom.name(&"Object.prototype".into());
        let engine = self.dom.reference(Ref::Builtin(engine));
        let mut out = if shape.prim == Prim::None { Value::NEVER } else { engine };
        for one in &shape.refs {
            let Ref::Obj(object) = one else {
                let given = if *one == Ref::Pool { self.pooled() } else { engine };
                out = self.dom.join(out, given);
                continue;
            };
            let proto = self.heap.find(*object, self.known.proto);
            let proto = proto.map_or(Value::ABSENT, |cell| self.read(cell));
            if self.dom.shape(proto).absent || proto.is_never() {
                out = self.dom.join(out, engine);
            }
            let proto = self.here(proto);
            out = self.dom.join(out, proto);
            if self.heap.objects[*object as usize].escaped {
                let pooled = self.pooled();
                out = self.dom.join(out, pooled);
            }
        }
        self.dom.with(out, of.deps)
    }

    /// Returns the object that a function of the program gives to what it constructs.
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
        // It is there from the beginning, whatever decides on this place.
        let joined = self.dom.join(value, Value::NEVER);
        self.changed |= self.heap.note(&mut self.dom, cell, joined);
        self.set_now(cell, joined);
    }

    /// Returns the getter or setter that an object itself has by a name.
    pub(super) fn accessor(&mut self, object: ObjId, kind: &str, name: NameId) -> Option<Value> {
        let text = self.dom.names.text(name);
        let name = self.dom.names.known(&format!("{kind}:{text}").into())?;
        let value = self.read(self.heap.find(object, name)?);
        (!self.dom.shape(value).refs.is_empty()).then_some(value)
    }
}

/// Returns whether more of the engine can be reached by a part of an object of it that is not known.
fn leads_to_engine(name: &str) -> bool {
    let root = name.split('.').next().unwrap_or(name);
    let is_harmless = matches!(root, "Math" | "Number" | "JSON" | "console" | "Intl");
    builtins::is_global(root) && !is_harmless
}
