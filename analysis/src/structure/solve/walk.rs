//! The instructions, one after the other.

use super::*;
use crate::structure::core::{Inst, Key, Made, Op, Put, Slot, Wait};
use crate::structure::domain::{Kind, Promised, Ref};

/// The stack that one instruction may need, and what is added when less is left.
const STACK_STEP: usize = 256 * 1024;
const STACK_MORE: usize = 16 * 1024 * 1024;

/// A key of a property, as far as it is known.
pub(super) struct At {
    /// The names that it may be; none if it may be any.
    pub(super) names: Option<SmallVec<[NameId; 2]>>,
    pub(super) deps: Deps,
}

impl<'a> Solver<'a> {
    pub(super) fn walk_main(&mut self) {
        if let Some(at) = self.core.foreign_arguments {
            self.at = at;
            self.gap(Code::DynamicScope, About::Name);
        }
        self.enter_main();
        self.walk_waiting();
        self.call_pool();
        self.walk_waiting();
    }

    /// Walks a block; returns whether its end is reached.
    pub(super) fn run(&mut self, block: &'a [Inst]) -> bool {
        for inst in block {
            if let Op::Take { of, how } = &inst.op {
                // It costs the program nothing.
                (self.at, self.end, self.place) = (inst.at, inst.end, inst.id << 3);
                self.takes(*of, how);
                continue;
            }
            self.work += 1;
            if self.work > WORK {
                self.entangled = true;
                return false;
            }
            (self.at, self.end, self.place) = (inst.at, inst.end, inst.id << 3);
            if !self.inst(inst) {
                return false;
            }
        }
        true
    }

    fn inst(&mut self, inst: &'a Inst) -> bool {
        match &inst.op {
            Op::Const { to, value } => {
                let value = self.dom.scalar(value.clone());
                self.set_slot(*to, value);
            }
            Op::Copy { to, from } => {
                let cell = self.base() + *from;
                let value = self.read(cell);
                let value = self.if_set_by_others(value, *from);
                let value = self.declared(value);
                self.set_slot(*to, value);
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
                let _ = self.declared(before);
                self.hold_outer(value, *up, *slot);
                self.write_variable(cell, value);
            }
            Op::Global { to, name } => {
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
                let value = self.given(*index as usize);
                self.set_slot(*to, value);
            }
            Op::Rest { to, index } => {
                let value = self.given_from(*index as usize);
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
                let but: Vec<At> = but.iter().map(|key| self.key(key)).collect();
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
                    self.has_waited();
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
                let given = self.give(value, *all);
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
            _ => return stacker::maybe_grow(STACK_STEP, STACK_MORE, || self.control(inst)),
        }
        true
    }

    /// Finds a variable of a function around this one.
    pub(super) fn outer(&self, up: u32, slot: Slot) -> CellId {
        let mut context = self.context();
        for _ in 0..up {
            context = self.contexts[context as usize].env;
        }
        self.contexts[context as usize].base + slot
    }

    pub(super) fn key(&mut self, key: &Key) -> At {
        match key {
            Key::Name(name) => {
                let name = self.dom.name(name);
                At { names: Some(smallvec::smallvec![name]), deps: NONE }
            }
            Key::Slot(slot) => {
                let value = self.slot(*slot);
                let converted = self.convert(value);
                let names = self.dom.keys(value);
                let deps = self.dom.sources.used(value.deps);
                let deps = self.dom.union(deps, converted);
                At { names, deps }
            }
        }
    }

    /// Makes an object; `part` tells apart those of one instruction.
    pub(super) fn make(&mut self, part: u32, kind: Kind) -> Value {
        let object = self.object(part, kind);
        self.dom.reference(Ref::Obj(object))
    }

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
            for cell in cells {
                self.heap.cells[cell as usize].birth = birth;
                self.set_now(cell, Value::ABSENT);
            }
        }
        object
    }

    /// Returns whether this place is walked for one run of it alone.
    pub(super) fn is_single(&self) -> bool {
        self.threads.beside == 0
            && self.acts.last().is_some_and(|act| {
                self.contexts[act.context as usize].unique
                    && !self.levels[act.level..].iter().any(|level| level.many)
            })
    }

    /// Notes that a variable of a function around this one holds a value.
    fn hold_outer(&mut self, value: Value, up: u32, slot: Slot) {
        let mut context = self.context();
        for _ in 0..up {
            context = self.contexts[context as usize].env;
        }
        let leaks = self.contexts[context as usize].leaks;
        match self.acts.iter().rposition(|act| act.context == context) {
            Some(act) if !leaks => self.hold_in_slot(value, act, slot),
            _ => self.keep(value),
        }
    }

    /// Returns what a variable has; one that is not declared yet cannot be read.
    pub(super) fn declared(&mut self, value: Value) -> Value {
        if self.dom.shape(value).absent {
            self.may_fail_by(value);
            return self.here(value);
        }
        if value.is_never() {
            self.may_fail(NONE, Value::computed(NONE));
            return Value::UNDEFINED;
        }
        value
    }

    fn closure(&mut self, func: FuncId) -> Value {
        let env = self.context();
        self.make(0, Kind::Func { func, env })
    }

    /// Joins a class, its prototype and what it extends.
    fn class(&mut self, class: Value, prototype: Value, parent: Option<Value>) {
        let known = (self.known.prototype, self.known.proto, self.known.constructor);
        let at = |name| At { names: Some(smallvec::smallvec![name]), deps: NONE };
        self.define(class, &at(known.0), prototype, Put::Value);
        self.define(prototype, &at(known.2), class, Put::Value);
        if let Some(parent) = parent {
            let shape = self.dom.shape(parent);
            if shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None {
                self.may_fail_by(parent);
            }
            let above = self.get(parent, &at(known.0), false);
            self.define(prototype, &at(known.1), above, Put::Value);
            self.define(class, &at(known.1), parent, Put::Value);
        }
    }

    pub(super) fn throw(&mut self, value: Value) {
        if self.handlers.is_empty() {
            if self.tries.rethrows > 0 {
                // The failure that is thrown again would have ended the program.
                return;
            }
            // Whatever stands behind is not done; the program ends.
            self.leaves(0, NONE, false);
            return;
        }
        let before = std::mem::replace(&mut self.tries.throwing, true);
        self.may_fail(NONE, value);
        self.tries.throwing = before;
    }
}
