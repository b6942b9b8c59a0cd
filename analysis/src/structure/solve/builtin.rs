//! Functions and methods of the engine, by the table of what they do.

mod list;
mod promise;
mod some;

use super::iterate::Which;
use super::walk::At;
use super::*;
use crate::structure::builtins::{self, Calls, Gives, Method, Takes};
use crate::structure::domain::{Kind, Ref};

impl Solver<'_> {
    /// Returns a member of an object of the engine.
    pub(super) fn builtin_member(&mut self, base: NameId, name: NameId) -> Value {
        let (base, member) = (self.dom.names.text(base), self.dom.names.text(name));
        let traps = match &*member {
            "defineProperty" | "defineProperties" | "setPrototypeOf" => true,
            "Proxy" => &*base == "globalThis",
            "__proto__" => true,
            _ => false,
        };
        self.set_traps(traps);
        if &*base == "globalThis" {
            return self.global(&member);
        }
        if builtins::is_prototype_only(&base) {
            return self.dom.reference(Ref::Method(name));
        }
        if matches!(&*member, "call" | "apply" | "bind") && &*base != "Reflect" {
            return self.dom.reference(Ref::Method(name));
        }
        let is_number = matches!(&*base, "Math" | "Number")
            && member.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
        if is_number {
            return Value::computed(NONE);
        }
        let full = self.dom.name(&format!("{base}.{member}").into());
        self.dom.reference(Ref::Builtin(full))
    }

    /// Notes that the program may make objects whose properties are more than they seem.
    pub(super) fn set_traps(&mut self, traps: bool) {
        if traps && !self.traps {
            (self.traps, self.changed) = (true, true);
        }
    }

    /// Returns all that flows into what a call is given.
    pub(super) fn reach_args(&mut self, args: &Args) -> Deps {
        let mut deps = NONE;
        for value in args.list.iter().chain(&args.rest) {
            let own = self.reach(*value);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Converts all that a call is given.
    fn convert_args(&mut self, args: &Args) -> Deps {
        let mut deps = self.reach_args(args);
        for value in args.list.iter().chain(&args.rest) {
            let own = self.convert(*value);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    pub(super) fn arg(&mut self, args: &Args, place: usize) -> Value {
        match (args.list.get(place), args.rest) {
            (Some(value), _) => *value,
            (None, Some(rest)) => self.dom.join(rest, Value::UNDEFINED),
            (None, None) => Value::UNDEFINED,
        }
    }

    /// Calls a function of the engine.
    pub(super) fn builtin(
        &mut self,
        name: NameId,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Value {
        let text = self.dom.names.text(name);
        if let Some(drawn) = self.hidden_state(&text) {
            let deps = self.convert_args(args);
            let deps = self.dom.union(deps, drawn);
            return if &*text == "crypto.getRandomValues" {
                self.unknown_call(this, args)
            } else {
                Value::computed(deps)
            };
        }
        if builtins::is_pure(&text) {
            if text.starts_with("console.") {
                // Getters are read to show an object.
                for value in args.list.iter().chain(&args.rest) {
                    self.shown_fields(*value);
                }
            }
            let deps = self.convert_args(args);
            self.may_fail_by(Value::computed(deps));
            return match &*text {
                "console.log" | "console.error" | "console.warn" | "console.info"
                | "console.debug" => Value::UNDEFINED,
                _ => Value::computed(deps),
            };
        }
        let first = self.arg(args, 0);
        if text.starts_with("Object.") && self.dom.shape(first).may_be_nothing() {
            self.may_fail_by(first);
        }
        match &*text {
            "JSON.parse" | "structuredClone" => {
                let read = if &*text == "JSON.parse" { NONE } else { self.shown_fields(first) };
                let deps = self.convert_args(args);
                let deps = self.dom.union(deps, read);
                self.may_fail_by(Value::computed(deps));
                let leads = self.leads_to_functions(args)
                    || args.list.iter().any(|value| self.has_tools(*value));
                if leads || args.list.len() > 1 {
                    self.unknown_call(this, args)
                } else {
                    self.data(deps)
                }
            }
            "JSON.stringify" => {
                let own = self.serialise(first).unwrap_or(NONE);
                let deps = self.convert_args(args);
                let deps = self.dom.union(deps, own);
                self.may_fail_by(Value::computed(deps));
                if self.leads_to_functions(args) && args.list.len() > 1 {
                    return self.unknown_call(this, args);
                }
                Value::computed(deps)
            }
            "Object.keys" | "Object.getOwnPropertyNames" => {
                let (names, count) = self.names_in(first);
                self.list_of(1, names, count)
            }
            "Object.values" => {
                let (item, count) = self.iterated(first);
                let item = self.got_by_getters(first, item);
                match self.exact_fields(first) {
                    Some(fields) => self.exact_list(1, fields.into_iter().map(|(_, value)| value)),
                    None => self.list_of(1, item, count),
                }
            }
            "Object.entries" => self.entries(first),
            "Object.fromEntries" => self.of_entries(first),
            "Object.assign" => {
                let sources: SmallVec<[Value; 4]> =
                    args.list.iter().skip(1).copied().chain(args.rest).collect();
                for from in sources {
                    self.assign(first, from);
                }
                first
            }
            "Object.freeze" | "Object.seal" | "Object.preventExtensions" => {
                for one in &self.dom.shapes.kept(first.shape).refs {
                    if let Ref::Obj(object) | Ref::Data(object, _) = one {
                        self.changed |= self.frozen.insert(*object);
                    }
                }
                // Later writes fail or not by what decides on this.
                if self.control_above(0) != NONE {
                    let _ = self.unknown_call(this, args);
                }
                first
            }
            "Object.getPrototypeOf" | "Reflect.getPrototypeOf" => self.prototype_above(first),
            "Object.create" if args.list.len() != 1 => {
                self.set_traps(true);
                self.unknown_call(this, args)
            }
            "Object.create" => {
                let made = self.make(1, Kind::Plain);
                self.set_own(made, self.known.proto, first);
                made
            }
            "Array.from" => self.array_from(args),
            "Array.of" => {
                let list = self.make(1, Kind::Array);
                args.list.iter().for_each(|value| self.push(list, *value, false));
                if let Some(rest) = args.rest {
                    self.push_some(list, rest, rest.deps);
                }
                list
            }
            "Array" => self.construct_builtin(name, args),
            "Reflect.apply" => {
                let own = self.arg(args, 1);
                let list = self.arg(args, 2);
                let given = match self.spread_items(list) {
                    (Some(items), _) => Args { list: items.into(), rest: None },
                    (None, some) => Args { list: SmallVec::new(), rest: Some(some) },
                };
                self.call_any(first, Some(own), &given, wait).unwrap_or(Value::NEVER)
            }
            "setTimeout" | "setInterval" | "setImmediate" | "queueMicrotask"
            | "process.nextTick" => self.later(&text, args),
            "clearTimeout" | "clearInterval" | "clearImmediate" => {
                let control = self.control_above(0);
                let deps = self.reach_args(args);
                let all = self.dom.union(control, deps);
                let all = self.dom.union(self.cancels, all);
                self.changed |= all != self.cancels;
                self.cancels = all;
                Value::UNDEFINED
            }
            _ if text.starts_with("Promise.") => self.of_promises(&text, this, args, wait),
            "%resolve" | "%reject" => self.resolve(&text, this, first),
            _ if builtins::is_error(&text) || matches!(&*text, "RegExp") => {
                self.construct_builtin(name, args)
            }
            "eval" | "Function" => {
                self.gap(Code::DynamicEval, About::Change);
                self.unknown_call(this, args)
            }
            _ => self.unknown_call(this, args),
        }
    }

    /// Returns what decides on what a function of the engine gives that has a state which nobody names.
    fn hidden_state(&mut self, name: &str) -> Option<Deps> {
        let control = self.control_above(0);
        match name {
            "Math.random" | "crypto.randomUUID" | "crypto.getRandomValues" => {
                let all = self.dom.union(self.chance, control);
                self.changed |= all != self.chance;
                self.chance = all;
                Some(all)
            }
            "Date.now" | "performance.now" => Some(self.clock),
            _ => None,
        }
    }

    /// Calls the getters of a value of which all fields are read; returns what flows into what they give.
    fn shown_fields(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        let _ = self.perhaps(NONE, |solver| {
            deps = solver.serialise(value).unwrap_or(NONE);
            let got = solver.got_deep(value);
            deps = solver.dom.union(deps, got);
            Value::NEVER
        });
        deps
    }

    pub(super) fn leads_to_functions(&self, args: &Args) -> bool {
        args.list.iter().chain(&args.rest).any(|value| self.leads_to_code(*value))
    }

    /// Returns whether a value may be a function.
    pub(super) fn leads_to_code(&self, value: Value) -> bool {
        self.dom.shape(value).refs.iter().any(|one| match one {
            Ref::Obj(object) => {
                matches!(self.heap.objects[*object as usize].kind, Kind::Func { .. } | Kind::Bound)
            }
            Ref::Tool(..) | Ref::Mcp | Ref::Namespace(_) | Ref::Pool => true,
            _ => false,
        })
    }

    /// Returns whether something that leads to tools can be reached from a value.
    fn has_tools(&mut self, value: Value) -> bool {
        let mut open: SmallVec<[Value; 8]> = smallvec::smallvec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            for one in &self.dom.shapes.kept(value.shape).refs {
                match one {
                    Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => return true,
                    Ref::Obj(object) | Ref::Data(object, _) if seen.insert(*object) => {
                        for (_, cell) in self.heap.objects[*object as usize].keys.clone() {
                            open.push(self.read(cell));
                        }
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// `new name(…)`
    pub(super) fn construct_builtin(&mut self, name: NameId, args: &Args) -> Value {
        let text = self.dom.names.text(name);
        let first = self.arg(args, 0);
        match &*text {
            "Map" | "WeakMap" | "Set" | "WeakSet" => {
                let is_map = text.ends_with("Map");
                let made = self.make(1, if is_map { Kind::Map } else { Kind::Set });
                if !args.list.is_empty() {
                    self.fill(made, first, is_map);
                }
                made
            }
            "Array" => {
                let list = self.make(1, Kind::Array);
                let deps = self.reach_args(args);
                // One number is a length, and not every number can be one.
                let is_length = args.list.len() == 1 && self.dom.shape(first).only().is_none();
                if is_length || args.rest.is_some() {
                    self.may_fail_by(Value::computed(deps));
                }
                let item = match args.list.len() {
                    1 => Value { deps, shape: self.dom.join(first, Value::UNDEFINED).shape },
                    _ => first,
                };
                if args.list.len() == 1 {
                    self.push_some(list, item, deps);
                } else {
                    args.list.iter().for_each(|value| self.push(list, *value, false));
                }
                list
            }
            "Promise" => self.new_promise(first),
            _ if builtins::is_error(&text) => {
                let made = self.make(1, Kind::Plain);
                self.init_builtin(name, made, args);
                let above = self.dom.name(&format!("{text}.prototype").into());
                let above = self.dom.reference(Ref::Builtin(above));
                self.set_own(made, self.known.proto, above);
                made
            }
            _ if builtins::is_opaque(&text) => {
                let deps = self.convert_args(args);
                let is_now = &*text == "Date" && args.list.is_empty() && args.rest.is_none();
                let deps = if is_now { self.dom.union(deps, self.clock) } else { deps };
                self.may_fail_by(Value::computed(deps));
                let made = self.make(1, Kind::Opaque);
                self.set_own(made, self.known.elem, Value::computed(deps));
                // It may be a view of what it is made of.
                let of = self.dom.shapes.only_refs(
                    first.shape,
                    |one| match one {
                        Ref::Obj(object) => {
                            self.heap.objects[*object as usize].kind == Kind::Opaque
                        }
                        _ => false,
                    },
                    false,
                );
                self.dom.join(made, Value { deps: first.deps, shape: of })
            }
            "Object" => first,
            "Function" => {
                self.gap(Code::DynamicEval, About::Change);
                self.unknown_call(None, args)
            }
            _ => self.unknown_call(None, args),
        }
    }

    /// Does what `super(…)` does in a class that extends one of the engine's.
    pub(super) fn init_builtin(&mut self, name: NameId, this: Value, args: &Args) {
        let text = self.dom.names.text(name);
        if builtins::is_error(&text) {
            let deps = self.convert_args(args);
            let of_several = usize::from(&*text == "AggregateError");
            if of_several > 0 {
                let errors = self.arg(args, 0);
                let (item, count) = self.iterated(errors);
                let list = self.list_of(2, item, count);
                let name = self.dom.name(&"errors".into());
                self.set_own(this, name, list);
            }
            let message = self.arg(args, of_several);
            let message = if self.dom.shape(message).refs.is_empty() {
                message
            } else {
                Value::computed(deps)
            };
            // Without a text, that of the class is seen.
            let has_message = match self.dom.shape(message).only() {
                Some(crate::structure::core::Scalar::Undefined) => None,
                _ => Some(!self.dom.shape(message).may_be_nothing()),
            };
            if has_message == Some(false) {
                let name = self.dom.name(&"message".into());
                for one in &self.dom.shapes.kept(this.shape).refs {
                    if let Ref::Obj(object) = one {
                        self.put_own(*object, name, message, false);
                    }
                }
            }
            for (field, value) in [
                ("message", message),
                ("stack", Value::computed(deps)),
                ("name", Value::computed(NONE)),
            ] {
                if field == "message" && has_message != Some(true) {
                    continue;
                }
                let name = self.dom.name(&field.into());
                self.set_own(this, name, value);
            }
            if args.list.len() > 1 + of_several || args.rest.is_some() {
                let options = self.arg(args, 1 + of_several);
                let cause = self.dom.name(&"cause".into());
                let key = At { names: Some(smallvec::smallvec![cause]), deps: NONE };
                let value = self.get(options, &key, false);
                self.set_own(this, cause, value);
            }
            return;
        }
        let _ = self.unknown_call(Some(this), args);
    }

    /// Calls a method of the engine.
    pub(super) fn method(&mut self, name: NameId, this: Value, args: &Args, wait: bool) -> Value {
        let text = self.dom.names.text(name);
        match &*text {
            "then" | "catch" | "finally" => return self.chain(&text, this, args, wait),
            "call" | "apply" | "bind" => return self.applied(&text, this, args, wait),
            "next" | "return" | "throw" => return self.advance(&text, this, args),
            _ if name == self.known.method => return self.some_method_of(this, args),
            _ => {}
        }
        self.set_traps(text.starts_with("__"));
        let Some(method) = builtins::method(&text).filter(|_| !self.core.hooks) else {
            return self.unknown_call(Some(this), args);
        };
        // What goes over an iterator does so as far as it is asked.
        if self.has_kind(this, Kind::Iterator) && &*text != "toArray" {
            return self.unknown_call(Some(this), args);
        }
        let (row, method) = method;
        let method = self.remembered(row, *method);
        let given = self.by_table(&text, method, this, args);
        if &*text != "valueOf" {
            return given;
        }
        // Of an object it is the object.
        let objects = self.dom.shapes.only_refs(this.shape, |_| true, false);
        self.dom.join(given, Value { deps: this.deps, shape: objects })
    }

    /// Notes that a pattern may go on from another place.
    fn move_pattern(&mut self, pattern: Value, deps: Deps) {
        let deps = self.dom.union(deps, pattern.deps);
        for one in &self.dom.shapes.kept(pattern.shape).refs {
            if let Ref::Obj(object) = one
                && self.heap.objects[*object as usize].kind == Kind::Opaque
            {
                let cell = self.heap.cell(*object, self.known.elem);
                self.write(cell, Value::computed(deps), false);
            }
        }
    }

    /// Returns whether one of those that a value may be is of a kind.
    pub(super) fn has_kind(&self, value: Value, kind: Kind) -> bool {
        self.dom.shape(value).refs.iter().any(|one| match one {
            Ref::Obj(object) => self.heap.objects[*object as usize].kind == kind,
            _ => false,
        })
    }

    fn by_table(&mut self, name: &str, method: Method, this: Value, args: &Args) -> Value {
        let first = self.arg(args, 0);
        let callee = match method.calls {
            Calls::Match => self.arg(args, 1),
            _ => first,
        };
        // Of a list nothing but its items is looked at; all else is converted.
        let deep = self.reach(this);
        let (item, count) = if matches!(method.gives, Gives::Computed | Gives::Data | Gives::Texts)
            && method.calls == Calls::Never
        {
            (Value::computed(deep), deep)
        } else {
            self.iterated(this)
        };
        let mut given = NONE;
        let is_each = matches!(method.calls, Calls::Each | Calls::Until);
        if !is_each {
            given = self.reach_args(args);
        }
        let sorts = method.calls == Calls::Order && self.dom.shape(callee).refs.is_empty();
        if sorts {
            let own = self.under(NONE, true, true, |solver| solver.convert(this));
            given = self.dom.union(given, own);
        }
        if matches!(method.gives, Gives::Computed | Gives::Data | Gives::Texts) {
            let own = self.convert(this);
            given = self.dom.union(given, own);
            let own = self.convert_args(args);
            if !is_each {
                given = self.dom.union(given, own);
            }
        }
        let both = self.dom.union(deep, given);
        self.may_fail_by(Value::computed(both));
        if matches!(name, "match" | "matchAll" | "replace" | "replaceAll" | "search" | "split") {
            self.move_pattern(first, both);
        }
        let called = if sorts {
            Value::computed(given)
        } else {
            self.callbacks(method.calls, callee, this, args, item, count, deep)
        };
        self.judges(name, called);
        if !self.take(name, method, this, args, called) {
            return self.unknown_call(Some(this), args);
        }
        self.gives(name, method, this, args, called, both)
    }

    /// Calls what a method calls; returns what that gives.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of one call")]
    fn callbacks(
        &mut self,
        calls: Calls,
        callee: Value,
        this: Value,
        args: &Args,
        item: Value,
        count: Deps,
        deep: Deps,
    ) -> Value {
        let item = self.dom.with(item, count);
        match calls {
            Calls::Never => Value::NEVER,
            Calls::Each | Calls::Until => {
                let own = self.arg(args, 1);
                let over = (count, Some(this));
                let until = calls == Calls::Until;
                let is_keyed = self.has_kind(this, Kind::Map) || self.has_kind(this, Kind::Set);
                self.call_each(callee, Some(own), over, until, |solver, item| {
                    let (item, count) = item.unwrap_or((Value::UNDEFINED, NONE));
                    let (item, key) = if is_keyed {
                        let (value, _) = solver.parts(this, Which::Values);
                        let (key, _) = solver.parts(this, Which::Keys);
                        (solver.dom.with(value, count), solver.dom.with(key, count))
                    } else {
                        (item, Value::computed(count))
                    };
                    Args { list: smallvec::smallvec![item, key, this], rest: None }
                })
            }
            Calls::Order | Calls::Match if self.dom.shape(callee).refs.is_empty() => Value::NEVER,
            Calls::Order => {
                // Which are compared next depends on how these did.
                self.call_each(callee, None, (count, Some(this)), true, |_, item| {
                    let (item, _) = item.unwrap_or((Value::UNDEFINED, NONE));
                    Args { list: smallvec::smallvec![item, item], rest: None }
                })
            }
            Calls::Match => {
                let text = Value::computed(deep);
                self.call_each(callee, None, (deep, None), false, |_, _| Args {
                    list: SmallVec::new(),
                    rest: Some(text),
                })
            }
            Calls::Fold => {
                let start = match args.list.get(1) {
                    Some(start) => *start,
                    None => item,
                };
                // What one call gives is what the next is given; it is learned from round to round.
                let key = self.object(3, Kind::Opaque);
                let cell = self.heap.cell(key, self.known.value);
                self.hold_in_object(start, key);
                self.write(cell, start, false);
                let mut last = start;
                self.repeat(count, Some(this), |solver| {
                    let (more, _) = solver.iterated(this);
                    let item = solver.dom.join(item, more);
                    let before = solver.read(cell);
                    let before = solver.here(before);
                    let before = solver.folded(key, args.list.get(1).copied(), before);
                    let list: SmallVec<[Value; 4]> =
                        smallvec::smallvec![before, item, Value::computed(count), this];
                    let Some(value) =
                        solver.call_any(callee, None, &Args { list, rest: None }, false)
                    else {
                        return false;
                    };
                    solver.folds(key, value);
                    solver.hold_in_object(value, key);
                    solver.write(cell, value, false);
                    last = solver.dom.join(last, value);
                    true
                });
                self.dom.with(last, count)
            }
        }
    }
}
