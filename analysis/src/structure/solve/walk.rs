//! The instructions that hold no others, in execution order.

use super::*;
use crate::structure::core::{Inst, Key, Made, Op, Put, Slot, Wait};
use crate::structure::domain::{Kind, Promised, Ref};

/// The stack that one instruction may need. Less than this left: continue on a new segment of `STACK_MORE`
/// bytes.
pub(super) const STACK_STEP: usize = 256 * 1024;
/// The size of a new stack segment. The walk recurses with the nesting of the program and of its calls.
pub(super) const STACK_MORE: usize = 16 * 1024 * 1024;

/// An abstract property key.
pub(super) struct AbstractKey {
    /// The names that it may be; `None` if it may be any.
    pub(super) names: Option<SmallVec<[NameId; 2]>>,
    /// What decides which name it is.
    pub(super) deps: Deps,
}

impl<'a> Solver<'a> {
    /// Walks the whole program once.
    pub(super) fn walk_main(&mut self) {
        if let Some(at) = self.core.foreign_arguments {
            self.at = at;
            self.gap(Code::DynamicScope, About::Name);
        }
        self.enter_main();
        // Contexts whose walk was put off to limit the recursion of the walk itself.
        self.walk_waiting();
        // Last, since only now is everything known that escapes in this round.
        self.call_pool();
        self.walk_waiting();
    }

    /// Ends the analysis: nothing is walked any more, and the plan says that it is incomplete.
    pub(super) fn give_up(&mut self) {
        self.entangled = true;
        self.work = WORK + 1;
    }

    /// Walks a block; returns whether its end is reached.
    pub(super) fn run(&mut self, block: &'a [Inst]) -> bool {
        for inst in block {
            if let Op::Take { of, how } = &inst.op {
                // A check of a promise's use is not an instruction of the program and does not count as work.
                (self.at, self.end, self.place) = (inst.at, inst.end, inst.id << 3);
                self.check_use(*of, how);
                continue;
            }
            self.work += 1;
            if self.work > WORK {
                self.give_up();
                return false;
            }
            (self.at, self.end, self.place) = (inst.at, inst.end, inst.id << 3);
            if !self.inst(inst) {
                return false;
            }
        }
        true
    }

    /// Walks one instruction; returns whether the next one is reached.
    fn inst(&mut self, inst: &'a Inst) -> bool {
        match &inst.op {
            Op::Const { to, value } => {
                let value = self.dom.scalar(value.clone());
                self.set_slot(*to, value);
            }
            Op::Copy { to, from } => {
                let cell = self.base() + *from;
                let value = self.read(cell);
                // A `Copy` reads a declared variable, which may be in its temporal dead zone (`declared`).
                let value = self.if_set_by_others(value, *from);
                let value = self.declared(value);
                self.set_slot(*to, value);
            }
            Op::Declare { slot } => {
                let cell = self.base() + *slot;
                self.begin_dead_zone(cell);
            }
            Op::Outer { to, up, slot } => {
                let cell = self.outer(*up, *slot);
                let value = self.read(cell);
                let value = self.if_set(value, cell);
                let value = self.declared(value);
                self.set_slot(*to, value);
            }
            Op::SetOuter { up, slot, from } => {
                let (cell, value) = (self.outer(*up, *slot), self.slot(*from));
                let before = self.read(cell);
                // An assignment before the declaration fails, too.
                let _ = self.declared(before);
                self.hold_outer(value, *up, *slot);
                self.write_variable(cell, value);
            }
            Op::Global { to, name } => {
                // Reading an undeclared name throws a `ReferenceError`.
                if !self.handlers.is_empty() && !crate::structure::builtins::is_global(name) {
                    self.may_fail(NONE, Value::computed(NONE));
                }
                let value = self.global(name);
                self.set_slot(*to, value);
            }
            Op::SetGlobal { name, from } => {
                let value = self.slot(*from);
                self.set_global(name, value);
            }
            Op::Param { to, index } => {
                let value = self.argument(*index as usize);
                self.set_slot(*to, value);
            }
            Op::Rest { to, index } => {
                let value = self.arguments_from(*index as usize);
                self.set_slot(*to, value);
            }
            Op::Get { to, object, key, called } => {
                let object = self.slot(*object);
                let key = self.tool_key(object, key);
                let value = self.get(object, &key, *called);
                self.set_slot(*to, value);
            }
            Op::Above { to, home, this, key } => {
                let (home, this, key) = (self.slot(*home), self.slot(*this), self.key(key));
                let value = self.get_above(home, this, &key);
                self.set_slot(*to, value);
            }
            Op::Set { object, key, from } => {
                let (object, key, value) = (self.slot(*object), self.key(key), self.slot(*from));
                self.put(object, &key, value);
            }
            Op::Delete { object, key } => {
                let (object, key) = (self.slot(*object), self.key(key));
                let deps = self.dom.union(object.deps, key.deps);
                self.may_fail_by(Value::computed(deps));
                self.put(object, &key, Value::ABSENT);
            }
            Op::New { to, made } => {
                // A pattern with the flag `g` or `y` has a state, `lastIndex`, and is an opaque object.
                let kind = match made {
                    Made::Object => Kind::Plain,
                    Made::Array => Kind::Array,
                    Made::Pattern { goes_on: true } => Kind::Opaque,
                    Made::Pattern { goes_on: false } => Kind::Pattern,
                };
                let value = self.make(0, kind);
                self.set_slot(*to, value);
            }
            Op::Put { object, key, from, how } => {
                let (object, key, value) = (self.slot(*object), self.key(key), self.slot(*from));
                self.define(object, &key, value, *how);
            }
            Op::Spread { object, from, but } => {
                let (object, from) = (self.slot(*object), self.slot(*from));
                let but: Vec<AbstractKey> = but.iter().map(|key| self.key(key)).collect();
                self.spread(object, from, &but);
            }
            Op::Push { list, from, spread } => {
                let (list, value) = (self.slot(*list), self.slot(*from));
                self.push(list, value, *spread);
            }
            Op::Item { to, of, index } => {
                let of = self.slot(*of);
                let value = self.item(of, *index);
                self.set_slot(*to, value);
            }
            Op::Items { to, of, from } => {
                let of = self.slot(*of);
                let value = self.items_from(of, *from as usize);
                self.set_slot(*to, value);
            }
            Op::Make { to, func } => {
                let value = self.closure(*func);
                self.set_slot(*to, value);
            }
            Op::Class { class, prototype, parent } => {
                let parent = parent.map(|parent| self.slot(parent));
                let (class, prototype) = (self.slot(*class), self.slot(*prototype));
                self.class(class, prototype, parent);
            }
            Op::Compute { to, how, of } => {
                let of: SmallVec<[Value; 4]> = of.iter().map(|slot| self.slot(*slot)).collect();
                let value = self.compute(*how, &of);
                self.set_slot(*to, value);
            }
            Op::Call { to, callee, this, args, form, wait } => {
                let value = self.call(*callee, *this, args, *form, *wait);
                (self.at, self.end, self.place) = (inst.at, inst.end, inst.id << 3);
                // Nothing follows a function that never ends normally.
                let Some(value) = value else { return false };
                if *wait == Wait::Now {
                    self.note_wait();
                }
                self.set_slot(*to, value);
            }
            Op::Await { to, from, returned } => {
                let of = self.slot(*from);
                let mut value = self.wait(of);
                if *returned && self.engine.converts {
                    // Unlike `await`, it asks promises, too, for a method of the program's own.
                    value = self.call_then(of, value, true);
                }
                let value = self.dom.promised(value, Promised::Awaited);
                self.set_slot(*to, value);
            }
            Op::Yield { to, from, all } => {
                let value = self.slot(*from);
                let given = self.yield_value(value, *all);
                self.set_slot(*to, given);
            }
            Op::Jump { to } => {
                self.jump(*to);
                return false;
            }
            Op::Throw { from } => {
                let value = self.slot(*from);
                self.throw(value);
                return false;
            }
            Op::Unknown { to, of } => {
                let of: SmallVec<[Value; 4]> = of.iter().map(|slot| self.slot(*slot)).collect();
                let value = self.unknown(&of);
                self.set_slot(*to, value);
            }
            // Nested blocks are where the walk recurses.
            _ => return stacker::maybe_grow(STACK_STEP, STACK_MORE, || self.control(inst)),
        }
        true
    }

    /// Returns the cell of a variable of an enclosing function, found by the chain of environments.
    pub(super) fn outer(&self, up: u32, slot: Slot) -> CellId {
        let mut context = self.context();
        for _ in 0..up {
            context = self.contexts[context as usize].env;
        }
        self.contexts[context as usize].base + slot
    }

    /// Evaluates a property key. A key that is a value is converted to a string, which may call code.
    pub(super) fn key(&mut self, key: &Key) -> AbstractKey {
        match key {
            Key::Name(name) => {
                let name = self.dom.name(name);
                AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE }
            }
            Key::Slot(slot) => {
                let value = self.slot(*slot);
                let converted = self.convert(value);
                let names = self.dom.keys(value);
                let deps = self.dom.sources.used(value.deps);
                let deps = self.dom.union(deps, converted);
                AbstractKey { names, deps }
            }
        }
    }

    /// Makes an object and returns a reference to it; `part` tells apart the objects that one instruction makes
    /// (0 to 7).
    pub(super) fn make(&mut self, part: u32, kind: Kind) -> Value {
        let object = self.object(part, kind);
        self.dom.reference(Ref::Obj(object))
    }

    /// Makes the object of this allocation site and context.
    pub(super) fn object(&mut self, part: u32, kind: Kind) -> ObjId {
        let context = self.context();
        let unique = self.is_single();
        let birth = self.birth();
        let object = self.heap.object(context, self.place | part, kind, unique, birth);
        self.made(object);
        let known = &self.heap.objects[object as usize];
        if known.unique || !known.kept {
            let cells: SmallVec<[CellId; 8]> =
                self.heap.objects[object as usize].keys.iter().map(|(_, cell)| *cell).collect();
            // The new object replaces the one from the turn or call before, so its properties start out absent.
            // If other objects of the site may still be held, their values stay in the cells instead.
            for cell in cells {
                self.heap.cells[cell as usize].birth = birth;
                self.set_now(cell, Value::ABSENT);
            }
        }
        object
    }

    /// Returns whether the current program point runs at most once: not concurrent, in a context that is
    /// entered once, and under no repeated level of this call. What it makes is one object.
    pub(super) fn is_single(&self) -> bool {
        self.threads.concurrent == 0
            && self.activations.last().is_some_and(|act| {
                self.contexts[act.context as usize].unique
                    && !self.levels[act.level..].iter().any(|level| level.many)
            })
    }

    /// Records that a variable of an enclosing function holds a value.
    fn hold_outer(&mut self, value: Value, up: u32, slot: Slot) {
        let mut context = self.context();
        for _ in 0..up {
            context = self.contexts[context as usize].env;
        }
        let leaks = self.contexts[context as usize].leaks;
        match self.activations.iter().rposition(|act| act.context == context) {
            // The enclosing call is still on the stack, and none of its closures outlives it.
            Some(act) if !leaks => self.hold_in_slot(value, act, slot),
            _ => self.keep(value),
        }
    }

    /// Returns the value of a variable. In its temporal dead zone, where it was never written, the read fails.
    pub(super) fn declared(&mut self, value: Value) -> Value {
        if self.dom.shape(value).absent {
            self.may_fail_by(value);
            return self.present(value);
        }
        if value.is_never() {
            self.may_fail(NONE, Value::computed(NONE));
            return Value::UNDEFINED;
        }
        value
    }

    /// Makes a function object, whose environment is the current context.
    fn closure(&mut self, func: FuncId) -> Value {
        let env = self.context();
        self.make(0, Kind::Func { func, env })
    }

    /// Links a class, its prototype and its parent class.
    fn class(&mut self, class: Value, prototype: Value, parent: Option<Value>) {
        let known = (self.known.prototype, self.known.proto, self.known.constructor);
        let at = |name| AbstractKey { names: Some(smallvec::smallvec![name]), deps: NONE };
        self.define(class, &at(known.0), prototype, Put::Value);
        self.define(prototype, &at(known.2), class, Put::Value);
        if let Some(parent) = parent {
            if !self.constructs(parent) {
                // `extends` fails for what is not a constructor.
                self.may_fail_by(parent);
            }
            let above = self.get(parent, &at(known.0), false);
            self.define(prototype, &at(known.1), above, Put::Value);
            self.define(class, &at(known.1), parent, Put::Value);
        }
    }

    /// Walks `throw`.
    pub(super) fn throw(&mut self, value: Value) {
        if self.handlers.is_empty() {
            if self.tries.rethrows > 0 {
                // See `Tries::futile`: a rethrow that nothing handles is the failure that would have ended the
                // program without this `try`. The `try` decides nothing.
                return;
            }
            // Uncaught: the program ends here. What decides on this place decides on all that follows.
            self.record_exit(0, NONE, false);
            return;
        }
        // A `throw` counts even where a handler ignores implicit failures (`Sees::Throws`).
        let before = std::mem::replace(&mut self.tries.throwing, true);
        self.may_fail(NONE, value);
        self.tries.throwing = before;
    }
}
