//! Reads of properties.

use super::walk::AbstractKey;
use super::*;
use crate::structure::builtins;
use crate::structure::core::Scalar;
use crate::structure::domain::{Prim, Ref};

impl Solver<'_> {
    /// Reads a property; `called` if it is read to be called.
    pub(super) fn get(&mut self, object: Value, key: &AbstractKey, called: bool) -> Value {
        let shape = self.dom.shapes.kept(object.shape);
        let is_args = self.is_args(object);
        // Reading a property of `undefined` or `null` fails.
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
            self.check_tool_names(&shape, tools);
        }
        for one in &shape.refs {
            let key = match (&tools, leads(one)) {
                (Some(tools), true) => tools,
                // The innermost loop is walked again item by item in the next round; see `chosen.rs`.
                (None, true) => continue,
                _ => key,
            };
            let value = match one {
                // With accessors, a read may run code, so that each object it may be is walked as optional.
                Ref::Obj(_) if calls => {
                    self.for_one_of(object, |solver| solver.get_of(*one, object, key, called))
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
            // Reading a field of `args` never fails, but a use of a missing field may, also a use that is not
            // modeled.
            self.may_fail_by(out);
        }
        out
    }

    /// Records a failure if a private name (`#x`) may be missing in an object.
    pub(super) fn check_private(&mut self, object: Value, key: &AbstractKey) {
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

    /// Reads a property of one of the things that a value may be.
    pub(super) fn get_of(
        &mut self,
        one: Ref,
        object: Value,
        key: &AbstractKey,
        called: bool,
    ) -> Value {
        match one {
            Ref::Obj(id) => {
                let this = Value { deps: object.deps, shape: self.dom.shapes.of_ref(one) };
                let value = self.get_own_or_above(id, this, key, called);
                let deps = self.dom.sources.used(object.deps);
                // An inherited method is the same for every object, so that the choice of the object does not
                // flow into it.
                if self.is_only_method(value) || !self.follows(Rule::ObjectRead) {
                    value
                } else {
                    self.dom.with(value, deps)
                }
            }
            Ref::Data(id, path) => self.get_of_data(id, path, object, key, called),
            Ref::Method(_) => {
                self.gap_if_code_maker(key);
                self.get_of_method(key)
            }
            Ref::Builtin(base) => {
                if key.names.is_none() && leads_to_engine(self.dom.names.get(base)) {
                    self.gap(Code::DynamicGlobal, About::Name);
                }
                if self.dom.names.get(base) == "globalThis" {
                    self.note_symbol_access(key);
                } else {
                    self.gap_if_code_maker(key);
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
                    self.pooled()
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
                    self.pooled()
                }
            },
            Ref::Tool(..) => {
                if !self.is_applied(key) {
                    self.gap(Code::DynamicCall, About::Value(one, How::Called));
                }
                self.named(key, |solver, name| solver.dom.reference(Ref::Method(name)))
            }
            Ref::Pool => {
                self.gap_if_code_maker(key);
                self.touch_pool(key.deps);
                self.pooled()
            }
        }
    }

    /// Records that the program may reach `Symbol`, and so the hooks that the engine calls by symbols.
    fn note_symbol_access(&mut self, key: &AbstractKey) {
        let is_symbol = |name: &NameId| self.dom.names.get(*name) == "Symbol";
        let leads = key.names.as_ref().is_none_or(|names| names.iter().any(is_symbol));
        if leads && !self.engine.hooks {
            (self.engine.hooks, self.changed) = (true, true);
        }
    }

    /// Returns an unknown method of the engine.
    pub(super) fn some_method(&mut self) -> Value {
        self.dom.reference(Ref::Method(self.known.method))
    }

    /// Returns whether a key can only name members that every function has.
    fn is_applied(&self, key: &AbstractKey) -> bool {
        let is_method = |name: &NameId| {
            matches!(self.dom.names.get(*name), "call" | "apply" | "bind" | "name" | "length")
        };
        key.names.as_ref().is_some_and(|names| names.iter().all(is_method))
    }

    /// Returns whether a value can only be methods of the engine.
    fn is_only_method(&self, value: Value) -> bool {
        let shape = self.dom.shape(value);
        shape.prim == Prim::None && shape.refs.iter().all(|one| matches!(one, Ref::Method(_)))
    }

    /// Joins what `make` returns for each name of a key. For an unknown name, anything that escaped.
    pub(super) fn named(
        &mut self,
        key: &AbstractKey,
        make: impl Fn(&mut Self, NameId) -> Value,
    ) -> Value {
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

    /// Records a gap if a key leads to `Function`, which makes code from text.
    pub(super) fn gap_if_code_maker(&mut self, key: &AbstractKey) {
        let is_maker =
            |name: &NameId| matches!(self.dom.names.get(*name), "constructor" | "__proto__");
        if key.names.iter().flatten().any(is_maker) {
            self.gap(Code::DynamicEval, About::Name);
        }
    }

    /// Reads a property of an object or of its prototypes.
    pub(super) fn get_own_or_above(
        &mut self,
        object: ObjId,
        this: Value,
        key: &AbstractKey,
        called: bool,
    ) -> Value {
        let calls = self.core.accessors;
        let Some(names) = &key.names else {
            if !calls {
                return self.get_any(object, this);
            }
            return self.optionally(key.deps, |solver| solver.get_any(object, this));
        };
        let mut out = Value::NEVER;
        for name in names.clone() {
            // One of several getters is called.
            let value = if calls && names.len() > 1 {
                self.optionally(key.deps, |solver| solver.look_up(object, this, name, called, 0))
            } else {
                self.look_up(object, this, name, called, 0)
            };
            out = self.dom.join(out, value);
        }
        out
    }

    /// Returns a value with `undefined` in place of absence.
    pub(super) fn present(&mut self, value: Value) -> Value {
        let shape = self.dom.shape(value);
        if !shape.absent {
            return value;
        }
        Value { deps: value.deps, shape: self.dom.shapes.present(value.shape) }
    }

    /// Reads a property of unknown name: the join of all properties and methods.
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
                let value = self.present(value);
                let text = self.dom.names.text(name);
                if self.core.accessors && text.starts_with("get:") {
                    let given = self.optionally(NONE, |solver| {
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

    /// Returns an own property of an object; `NEVER` if it has none of this name.
    pub(super) fn own(&mut self, object: ObjId, name: NameId) -> Value {
        match self.heap.find(object, name) {
            Some(cell) => {
                let value = self.read(cell);
                self.present(value)
            }
            None => Value::NEVER,
        }
    }

    /// Records a use of an object that unknown code holds: its getters and traps may run, and see this point's
    /// label.
    pub(super) fn touch(&mut self, object: ObjId, deps: Deps) {
        if !self.engine.traps || !self.heap.objects[object as usize].escaped {
            return;
        }
        let control = self.control_above(0);
        let deps = self.dom.union(control, deps);
        let deps = self.dom.sources.used(deps);
        self.add_to_pool(deps);
        let pooled = self.pooled();
        self.may_fail_by(pooled);
    }

    /// Records a use of something that unknown code may hold: escaped functions may run now, and see this
    /// point's label.
    pub(super) fn touch_pool(&mut self, deps: Deps) {
        if self.escaped.pool.is_empty() {
            return;
        }
        let control = self.control_above(0);
        let deps = self.dom.union(control, deps);
        let deps = self.dom.sources.used(deps);
        self.add_to_pool(deps);
        let pooled = self.pooled();
        self.may_fail_by(pooled);
    }
}

/// Returns whether an unknown member of this object of the engine may lead to other parts of the engine.
fn leads_to_engine(name: &str) -> bool {
    let root = name.split('.').next().unwrap_or(name);
    let is_harmless = matches!(root, "Math" | "Number" | "JSON" | "console" | "Intl");
    builtins::is_global(root) && !is_harmless
}
