//! The instructions, one after the other.

use super::*;
use crate::structure::core::{Branch, Inst, Key, Made, Mark, Op, Put, Region, Scalar, Slot, Told};
use crate::structure::domain::{Kind, Promised, Ref};

/// The stack that one instruction may need, and what is added when less is left.
const STACK_STEP: usize = 256 * 1024;
const STACK_MORE: usize = 16 * 1024 * 1024;

/// How long the word `try` is.
const TRY: u32 = 3;

/// Returns whether a loop looks at a test before each turn.
fn is_tested(body: &[Inst]) -> bool {
    body.iter().any(|inst| matches!(&inst.op, Op::If { told: Told::Test, .. }))
}

/// Returns whether a jump leads out of a block to a region that is not in it.
fn is_left(block: &[Inst], inner: &mut Vec<Region>) -> bool {
    block.iter().any(|inst| match &inst.op {
        Op::Jump { to } => !inner.contains(to),
        Op::If { then, other, .. } => is_left(then, inner) || is_left(other, inner),
        Op::Loop { exit, turn, body, after, .. } => {
            inner.extend([*exit, *turn]);
            is_left(body, inner) || is_left(after, inner)
        }
        Op::Each { exit, turn, body, .. } => {
            inner.extend([*exit, *turn]);
            is_left(body, inner)
        }
        Op::Block { exit, body } => {
            inner.push(*exit);
            is_left(body, inner)
        }
        Op::Doomed { body } | Op::Marked { body, .. } => is_left(body, inner),
        Op::Try { body, handler, finally } => {
            is_left(body, inner)
                || handler.as_ref().is_some_and(|(_, block)| is_left(block, inner))
                || finally.as_ref().is_some_and(|block| is_left(block, inner))
        }
        _ => false,
    })
}

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
                self.set_slot(*to, value);
            }
            Op::Await { to, from, returned } => {
                let of = self.slot(*from);
                let mut value = self.wait(of);
                if *returned && self.converts {
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

    /// Walks an instruction that holds others.
    fn control(&mut self, inst: &'a Inst) -> bool {
        match &inst.op {
            Op::If { cond, then, other, told } => {
                let cond = self.slot(*cond);
                let deps = self.decides(cond);
                if *told == Told::Test {
                    self.take_way(Branch::Body);
                }
                match self.truth(cond) {
                    Some(true) if matches!(told, Told::Hidden | Told::Test) => {
                        return self.under(deps, false, false, |solver| solver.run(then));
                    }
                    Some(false) if matches!(told, Told::Hidden | Told::Test) => {
                        return self.under(deps, false, false, |solver| solver.run(other));
                    }
                    _ => {}
                }
                // That a loop is not entered is in that it may be repeated.
                let may = *told != Told::Test;
                let walk = |solver: &mut Self, ways: [Option<Branch>; 2]| {
                    solver.fork(
                        deps,
                        |solver| solver.taken(deps, may, ways[0], then),
                        |solver| solver.taken(deps, may, ways[1], other),
                    )
                };
                match *told {
                    Told::Hidden | Told::Test => walk(self, [None, None]),
                    Told::Way(way) => walk(self, [Some(way), None]),
                    Told::Decision { test } => self
                        .part(FoundKind::Decision { test, deps }, |solver| {
                            walk(solver, [Some(Branch::Then), Some(Branch::Else)])
                        }),
                    Told::Either { test } => self
                        .part(FoundKind::Decision { test, deps }, |solver| {
                            walk(solver, [Some(Branch::Then); 2])
                        }),
                }
            }
            Op::Marked { mark, body } => match *mark {
                Mark::Decision { of, test } => {
                    let of = self.slot(of);
                    let deps = self.decides(of);
                    self.part(FoundKind::Decision { test, deps }, |solver| solver.run(body))
                }
                Mark::Fork { how } => self.part(FoundKind::Fork { how }, |solver| solver.run(body)),
                Mark::Way(way) => self.way(way, |solver| solver.run(body)),
            },
            // Getters and conversions may do more than fail.
            Op::Doomed { body } if self.core.accessors || self.converts => self.run(body),
            Op::Doomed { body } => {
                self.doomed += 1;
                let goes_on = self.run(body);
                self.doomed -= 1;
                goes_on
            }
            Op::Loop { serial, exit, turn, over, tests_last, body, after } => {
                let key = (self.context(), inst.id);
                let (first, last) = match tests_last {
                    true => (Branch::Body, Branch::Test),
                    false => (Branch::Test, Branch::Update),
                };
                let looped = self.loop_part(*over, |solver| {
                    solver.take_way(if is_tested(body) { first } else { Branch::Body });
                    solver.looped(
                        key,
                        *serial,
                        (*exit, *turn),
                        |_| {},
                        |solver| solver.run(body),
                        |solver| solver.way(last, |solver| solver.run(after)),
                    )
                });
                looped.0
            }
            Op::Each { serial, exit, turn, of, item, names, waits, over, body } => {
                let list = self.slot(*of);
                let looped = self.loop_part(*over, |solver| {
                    solver.take_way(Branch::Body);
                    let of = (list, *item, *names, *waits);
                    solver.each_loop(inst.id, *serial, (*exit, *turn), of, body)
                });
                looped.0
            }
            Op::Block { exit, body } => self.region(*exit, |solver| solver.run(body)),
            Op::Try { body, handler, finally } => {
                let test = (inst.at, inst.at + TRY);
                self.part(FoundKind::Decision { test, deps: NONE }, |solver| {
                    solver.attempt(body, handler.as_ref(), finally.as_ref())
                })
            }
            // The others hold no block.
            _ => true,
        }
    }

    /// Walks one way of a choice.
    fn taken(&mut self, deps: Deps, may: bool, way: Option<Branch>, block: &'a [Inst]) -> bool {
        self.under(deps, may, false, |solver| match way {
            Some(way) => solver.way(way, |solver| solver.run(block)),
            None => solver.run(block),
        })
    }

    fn each_loop(
        &mut self,
        id: u32,
        serial: u32,
        (exit, turn): (u32, u32),
        (list, item, names, waits): (Value, Slot, bool, bool),
        body: &'a [Inst],
    ) -> (bool, Deps) {
        let key = (self.context(), id);
        let partly = self.has_kind(list, Kind::Iterator)
            && (!self.handlers.is_empty() || is_left(body, &mut vec![turn]));
        let (mut value, count) = self.partly(partly, |solver| solver.of_each(list, names));
        if waits {
            self.hang_on_iterators(list);
            value = self.wait(value);
            value = self.dom.promised(value, Promised::Awaited);
        }
        self.may_fail_by(list);
        let value = self.dom.with(value, count);
        let of_turn = std::cell::Cell::new(value);
        self.looped(
            key,
            serial,
            (exit, turn),
            |solver| {
                // The list may have grown in the turn before.
                let (value, count) =
                    solver.partly(partly, |solver| solver.again(list, value, count, names));
                solver.under(count, false, false, |solver| solver.jump(exit));
                if waits {
                    // Each turn waits.
                    solver.takes_time(value);
                }
                of_turn.set(value);
            },
            |solver| {
                solver.with_item(id, of_turn.get(), |solver, value| {
                    solver.set_slot(item, value);
                    solver.run(body)
                })
            },
            |_| true,
        )
    }

    /// Returns what a loop goes over: the items of a list, or the names of its properties.
    fn of_each(&mut self, list: Value, names: bool) -> (Value, Deps) {
        if names { self.names_within(list) } else { self.iterated(list) }
    }

    /// Returns the item of a turn, for which the list is looked at again.
    fn again(&mut self, list: Value, before: Value, known: Deps, names: bool) -> (Value, Deps) {
        let (value, count) = self.of_each(list, names);
        let value = self.dom.with(value, count);
        let count = self.dom.union(known, count);
        (self.dom.join(before, value), count)
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
        self.beside == 0
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

    /// Returns whether a condition holds, if it is known and nothing flows into it.
    fn truth(&self, value: Value) -> Option<bool> {
        let shape = self.dom.shape(value);
        if value.deps != NONE {
            return None;
        }
        shape.only().map(Scalar::is_true)
    }

    /// Returns what decides on a choice by a value.
    fn decides(&mut self, value: Value) -> Deps {
        self.dom.sources.used(value.deps)
    }

    pub(super) fn throw(&mut self, value: Value) {
        if self.handlers.is_empty() {
            if self.rethrows > 0 {
                // The failure that is thrown again would have ended the program.
                return;
            }
            // Whatever stands behind is not done; the program ends.
            self.leaves(0, NONE, false);
            return;
        }
        let before = std::mem::replace(&mut self.throwing, true);
        self.may_fail(NONE, value);
        self.throwing = before;
    }
}
