//! Functions and methods of the engine. The table in `builtins.rs` says what each of them takes, calls and
//! returns; this folder applies its rows, and has the functions whose behavior no row can express.

mod apply;
mod chain;
mod construct;
mod entries;
mod iterator;
mod list;
mod method;
mod promise;
mod some;
mod timer;

use super::walk::AbstractKey;
use super::*;
use crate::structure::builtins::{self, Calls, Gives, Method, Takes};
use crate::structure::domain::{Kind, Ref};

/// Which simplifying assumptions about the engine do not hold for this program. Each field only ever grows.
#[derive(Default)]
pub(super) struct Engine {
    /// Whether some property has the name of a method that the engine calls by itself, such as `toString`.
    pub(super) converts: bool,
    /// Whether the program may change how the engine's objects are iterated, copied, matched or split.
    pub(super) hooks: bool,
    /// Whether a property access may run code: getters and proxies added by unknown code.
    pub(super) traps: bool,
    /// Whether the program may have set properties of the engine's methods.
    pub(super) marked: bool,
    /// Whether the program changes the engine's own objects. Then everything depends on everything.
    pub(super) lost: bool,
    /// The objects that may be frozen.
    pub(super) frozen: HashSet<ObjId>,
}

/// The maximum number of members in the name of an engine object, as in `Intl.NumberFormat.prototype.format`. What is
/// read from such an object is taken to be the object: a loop or a recursion could read members of members forever.
const MEMBERS: usize = 3;

impl Solver<'_> {
    /// Returns a member of an object of the engine.
    pub(super) fn builtin_member(&mut self, base: NameId, name: NameId) -> Value {
        let object = base;
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
        let full = match base.matches('.').count() {
            MEMBERS.. => object,
            _ => self.dom.name(&format!("{base}.{member}").into()),
        };
        self.dom.reference(Ref::Builtin(full))
    }

    /// Records that a property access may run code.
    pub(super) fn set_traps(&mut self, traps: bool) {
        if traps && !self.engine.traps {
            (self.engine.traps, self.changed) = (true, true);
        }
    }

    /// Returns the sources of all arguments and their parts.
    pub(super) fn reach_args(&mut self, args: &Args) -> Deps {
        let mut deps = NONE;
        for value in args.list.iter().chain(&args.rest) {
            let own = self.reach(*value);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Converts all arguments to strings or numbers; returns their sources and those of the conversions.
    fn convert_args(&mut self, args: &Args) -> Deps {
        let mut deps = self.reach_args(args);
        for value in args.list.iter().chain(&args.rest) {
            let own = self.convert(*value);
            deps = self.dom.union(deps, own);
        }
        deps
    }

    /// Iterates the arguments, as some functions do with lists: that runs generators.
    fn iterate_args(&mut self, args: &Args) -> Deps {
        let mut deps = NONE;
        for value in args.list.iter().chain(&args.rest) {
            if self.has_kind(*value, Kind::Iterator)
                || self.engine.converts && !self.dom.shape(*value).refs.is_empty()
            {
                let (item, count) = self.iterated(*value);
                let own = self.reach(item);
                deps = self.dom.union(deps, own);
                deps = self.dom.union(deps, count);
            }
        }
        deps
    }

    /// Reads the fields of objects that are passed as options, and converts what they hold.
    fn take_fields(&mut self, args: &Args) -> Deps {
        let mut deps = NONE;
        if !self.engine.converts && !self.core.accessors {
            return deps;
        }
        for value in args.list.iter().chain(&args.rest) {
            for one in &self.dom.shapes.kept(value.shape).refs {
                let Ref::Obj(object) = one else { continue };
                if self.heap.objects[*object as usize].kind != Kind::Plain {
                    continue;
                }
                let own = Value { deps: value.deps, shape: self.dom.shapes.of_ref(*one) };
                let held = self.any_of(own);
                let read = self.shown_fields(own);
                let converted =
                    self.optionally(NONE, |solver| Value::computed(solver.convert(held)));
                for own in [read, converted.deps] {
                    deps = self.dom.union(deps, own);
                }
            }
        }
        deps
    }

    /// Returns the argument at an index.
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
            // It writes into its argument.
            return if &*text == "crypto.getRandomValues" {
                self.unknown_call(this, args)
            } else {
                Value::computed(deps)
            };
        }
        let is_raw = &*text == "String.raw";
        if is_raw && args.list.first().is_some_and(|first| self.has_kind(*first, Kind::Plain)) {
            return self.unknown_call(this, args);
        }
        if builtins::is_pure(&text) {
            // Printing an object reads its getters.
            if text.starts_with("console.") {
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
        if builtins::changes_its_argument(&text) {
            self.may_change_engine(args);
        }
        let first = self.arg(args, 0);
        // On a class of the program, `Array.from` and the like call its constructor and methods.
        if (text.starts_with("Array.") || text.starts_with("Promise."))
            && this.is_some_and(|this| self.leads_to_code(this))
        {
            return self.unknown_call(this, args);
        }
        if text.starts_with("Object.") && self.dom.shape(first).may_be_nothing() {
            self.may_fail_by(first);
        }
        match &*text {
            "JSON.parse" | "structuredClone" => {
                let read = if &*text == "JSON.parse" { NONE } else { self.shown_fields(first) };
                let deps = self.convert_args(args);
                let deps = self.dom.union(deps, read);
                self.may_fail_by(Value::computed(deps));
                // A reviver, options, and arguments that hold functions or tools are not modeled.
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
                self.freeze(first);
                first
            }
            "Object.getPrototypeOf" | "Reflect.getPrototypeOf" => self.prototype_above(first),
            "Object.setPrototypeOf" | "Reflect.setPrototypeOf" => {
                self.set_prototypes(first, args);
                self.unknown_call(this, args)
            }
            // The second argument defines properties, possibly accessors.
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
            | "process.nextTick" => self.start_timer(&text, args),
            "clearTimeout" | "clearInterval" | "clearImmediate" => {
                // Which timer is cleared is not tracked: it may be any.
                let control = self.control_above(0);
                let deps = self.reach_args(args);
                let all = self.dom.union(control, deps);
                let all = self.dom.union(self.time.cancels, all);
                self.changed |= all != self.time.cancels;
                self.time.cancels = all;
                Value::UNDEFINED
            }
            _ if text.starts_with("Promise.") => self.of_promises(&text, this, args),
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

    /// Notes that nothing known of the engine holds if one of its objects is what a call changes.
    pub(super) fn may_change_engine(&mut self, args: &Args) {
        // The target, and the receiver of `Reflect.set`.
        let changed = [args.list.first(), args.list.get(3), args.rest.as_ref()];
        if changed.into_iter().flatten().any(|value| self.is_of_engine(*value)) {
            self.lose_engine();
        }
    }

    /// Returns whether a value may be a function or an object of the engine that all code shares.
    pub(super) fn is_of_engine(&self, value: Value) -> bool {
        let is_shared = |one: &Ref| matches!(one, Ref::Builtin(_) | Ref::Method(_));
        self.dom.shape(value).refs.iter().any(is_shared)
    }

    /// Notes that what is known of the engine does not hold any more.
    pub(super) fn lose_engine(&mut self) {
        self.gap(Code::DynamicGlobal, About::Change);
        self.engine.lost = true;
    }

    /// Gives objects of the program another prototype, as `Object.setPrototypeOf` does.
    fn set_prototypes(&mut self, objects: Value, args: &Args) {
        let above = self.arg(args, 1);
        let above = self.dom.with(above, objects.deps);
        for one in &self.dom.shapes.kept(objects.shape).refs {
            if let Ref::Obj(object) = one {
                self.put_own(*object, self.known.proto, above, false);
            }
        }
    }

    /// Records that writes to an object may fail from now on.
    fn freeze(&mut self, value: Value) {
        let shape = self.dom.shapes.kept(value.shape);
        let mut chosen = self.time.when != NONE || self.control_above(0) != NONE;
        for one in &shape.refs {
            let (Ref::Obj(object) | Ref::Data(object, _)) = one else { continue };
            self.changed |= self.engine.frozen.insert(*object);
            chosen |= match one {
                Ref::Data(..) if shape.refs.len() == 1 => self.is_part_chosen(value),
                _ => value.deps != NONE,
            };
        }
        // What decides whether it is frozen decides whether later writes fail.
        if chosen {
            let _ = self.unknown(&[value]);
        }
    }

    /// Returns what decides the result of a function of the engine with hidden state: the generator of random
    /// numbers, or the clock. Each draw moves the generator, so that what decides on a draw shows in later
    /// ones.
    fn hidden_state(&mut self, name: &str) -> Option<Deps> {
        let control = self.control_above(0);
        match name {
            "Math.random" | "crypto.randomUUID" | "crypto.getRandomValues" => {
                let all = self.dom.union(self.time.random, control);
                self.changed |= all != self.time.random;
                self.time.random = all;
                Some(all)
            }
            "Date.now" | "performance.now" => Some(self.time.clock),
            _ => None,
        }
    }

    /// Calls the getters of a value whose fields are all read; returns the sources of their results.
    fn shown_fields(&mut self, value: Value) -> Deps {
        let mut deps = NONE;
        let _ = self.optionally(NONE, |solver| {
            deps = solver.serialise(value).unwrap_or(NONE);
            let got = solver.got_deep(value);
            deps = solver.dom.union(deps, got);
            Value::NEVER
        });
        deps
    }

    /// Returns whether an argument may be a function.
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

    /// Returns whether `mcp`, a namespace or a tool can be reached from a value.
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
}
