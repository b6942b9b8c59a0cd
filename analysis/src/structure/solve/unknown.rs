//! Unknown code: code of the engine without a row in the table, and everything else that the solver does not
//! follow.
//!
//! It depends on all that it can reach, may change all of that, may call every function in it at any time, and
//! may fail. What any unknown code was ever given is in one *pool*, so that all unknown code shares everything.

use super::level::Sees;
use super::walk::AbstractKey;
use super::*;
use crate::structure::core::FuncForm;
use crate::structure::domain::{Kind, Prim, Promised, Ref, Shape};

/// What unknown code holds.
#[derive(Default)]
pub(super) struct Escaped {
    /// The functions of the program that it may call.
    pub(super) pool: Vec<ObjId>,
    /// The sources of everything that it holds; grows over the rounds.
    pub(super) deps: Deps,
    /// The objects that were passed to it in this round.
    pub(super) handed: HashSet<ObjId>,
    /// The objects that were written into others that escape elsewhere, in this round.
    pub(super) filling: HashSet<ObjId>,
    /// Whether the escape in progress is such a write, and not a call with the object.
    pub(super) fills: bool,
    /// The gaps found by such writes. They are reported only if the call that passes the object does not
    /// already report the same.
    pub(super) gaps: Vec<Gap>,
}

impl Escaped {
    /// Resets the state of a round.
    pub(super) fn begin_round(&mut self) {
        self.handed.clear();
        self.filling.clear();
        self.gaps.clear();
    }
}

impl Solver<'_> {
    /// Returns the abstract value of everything that has escaped.
    pub(super) fn pooled(&mut self) -> Value {
        let refs = smallvec::smallvec![Ref::Pool];
        let shape = Shape { prim: Prim::Any, absent: false, refs, promised: Promised::No };
        Value { deps: self.escaped.deps, shape: self.dom.shapes.add(shape) }
    }

    /// Passes values to unknown code; returns its result.
    pub(super) fn unknown(&mut self, values: &[Value]) -> Value {
        for value in values {
            self.escape(*value);
        }
        self.threads.effects += 1;
        // All unknown code shares the pool, so all of it may see that this code ran.
        let control = self.control_above(0);
        let control = self.dom.union(control, self.time.when);
        self.add_to_pool(control);
        let given = self.pooled();
        self.may_fail_by(given);
        given
    }

    /// Passes the receiver and the arguments of a call to unknown code; returns its result.
    pub(super) fn unknown_call(&mut self, this: Option<Value>, args: &Args) -> Value {
        let values: SmallVec<[Value; 4]> =
            this.into_iter().chain(args.list.iter().copied()).chain(args.rest).collect();
        self.unknown(&values)
    }

    /// Adds sources to what unknown code holds.
    pub(super) fn add_to_pool(&mut self, deps: Deps) {
        let all = self.dom.union(self.escaped.deps, deps);
        if all != self.escaped.deps {
            self.escaped.deps = all;
            self.changed = true;
        }
    }

    /// Passes a value, with all that it leads to, to unknown code.
    pub(super) fn escape(&mut self, value: Value) {
        self.escape_as(value, How::Passed);
    }

    /// The same; `how` is for the gap if the value leads to tools.
    pub(super) fn escape_as(&mut self, value: Value, how: How) {
        if !self.follows(Rule::Escape) {
            return;
        }
        let deps = self.dom.sources.used(value.deps);
        self.add_to_pool(deps);
        let shape = self.dom.shapes.kept(value.shape);
        for one in &shape.refs {
            match one {
                Ref::Obj(object) | Ref::Data(object, _) => self.escape_object(*object, how),
                Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                    self.tool_gap(*one, how);
                }
                Ref::Builtin(name) => self.escape_builtin(*name),
                Ref::Method(_) | Ref::Pool => {}
            }
        }
    }

    /// Writes a value where unknown code may read it: that this point was reached is visible, too.
    pub(super) fn escape_here(&mut self, value: Value) {
        let control = self.control_above(0);
        let control = self.dom.union(control, self.time.when);
        self.add_to_pool(control);
        self.escape_as(value, How::Kept);
    }

    /// Records a gap if a part of the engine escapes from which all others can be reached.
    pub(super) fn escape_builtin(&mut self, name: NameId) {
        match &*self.dom.names.text(name) {
            "eval" | "Function" => self.gap(Code::DynamicEval, About::Change),
            "globalThis" => self.gap(Code::DynamicGlobal, About::Name),
            _ => {}
        }
    }

    /// Passes an object, with all that it leads to, to unknown code.
    ///
    /// That it has escaped is kept over the rounds; its contents are visited again in each round.
    fn escape_object(&mut self, object: ObjId, how: How) {
        let mut open: SmallVec<[ObjId; 8]> = smallvec::smallvec![object];
        while let Some(object) = open.pop() {
            let known = &mut self.heap.objects[object as usize];
            let (kind, cells) = (known.kind, known.keys.clone());
            if !known.escaped {
                known.escaped = true;
                self.changed = true;
                self.keep_object(object);
                if matches!(kind, Kind::Func { .. } | Kind::Bound) {
                    self.escaped.pool.push(object);
                }
                if kind == Kind::Iterator {
                    let _ = self.partly(true, |solver| solver.drive(object));
                }
            }
            let is_new = match self.escaped.fills {
                true => {
                    !self.escaped.handed.contains(&object) && self.escaped.filling.insert(object)
                }
                false => self.escaped.handed.insert(object),
            };
            for (_, cell) in cells {
                let value = self.read(cell);
                let own = self.dom.sources.used(value.deps);
                self.add_to_pool(own);
                if !is_new {
                    continue;
                }
                for one in &self.dom.shapes.kept(value.shape).refs {
                    match one {
                        Ref::Obj(part) | Ref::Data(part, _) => open.push(*part),
                        Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => {
                            self.tool_gap(*one, how);
                        }
                        Ref::Builtin(name) => self.escape_builtin(*name),
                        Ref::Method(_) | Ref::Pool => {}
                    }
                }
            }
        }
    }

    /// Passes on what is written into an object that unknown code holds, whether it escaped in this round or in
    /// an earlier one.
    pub(super) fn escape_into(&mut self, object: ObjId, value: Value) {
        if !self.heap.objects[object as usize].escaped || value.is_never() {
            return;
        }
        if self.escaped.handed.contains(&object) {
            return self.escape_as(value, How::Kept);
        }
        // A gap is better explained where the object is passed than where it is filled.
        let before = std::mem::replace(&mut self.escaped.fills, true);
        self.escape_as(value, How::Kept);
        self.escaped.fills = before;
    }

    /// Calls what has escaped, as unknown code may: at any time, any number of times, with anything that
    /// escaped.
    pub(super) fn call_pool(&mut self) {
        // A gap is better explained where something is passed than where it is used.
        let before = std::mem::replace(&mut self.escaped.fills, true);
        self.call_all_of_pool();
        self.escaped.fills = before;
        self.call_uncalled();
    }

    /// Calls each escaped function.
    fn call_all_of_pool(&mut self) {
        self.drive_escaped();
        // By index, since the calls may add to the pool.
        let mut place = 0;
        while let Some(object) = self.escaped.pool.get(place).copied() {
            if !self.follows(Rule::EscapedCall) {
                break;
            }
            place += 1;
            let pooled = self.pooled();
            let args = Args { list: SmallVec::new(), rest: Some(pooled) };
            let deps = self.escaped.deps;
            let callee = self.dom.reference(Ref::Obj(object));
            let mut given = Value::NEVER;
            // The program may end before that.
            let end = self.cut_by(self.time.returns, |solver| {
                solver.concurrently(|solver| {
                    given = solver
                        .under(deps, true, true, |solver| solver.use_code(callee, pooled, &args));
                })
            });
            // Unknown code that called it sees the failure.
            let thrown = self.dom.sources.used(end.thrown);
            self.add_to_pool(thrown);
            self.escape_as(given, How::Returned);
        }
    }

    /// Records that unknown code may request values of escaped generators.
    fn drive_escaped(&mut self) {
        for object in 0..self.heap.objects.len() as ObjId {
            let known = &self.heap.objects[object as usize];
            if !known.escaped || known.kind != Kind::Iterator {
                continue;
            }
            let before = self.generators.drives.get(&object).copied().unwrap_or(NONE);
            let all = self.dom.union(before, self.escaped.deps);
            if all != before {
                self.generators.drives.insert(object, all);
                self.changed = true;
            }
            self.add_cut(object, self.time.returns);
            let pooled = self.pooled();
            self.settle(object, self.known.sent, pooled);
            self.settle(object, self.known.raised, pooled);
        }
    }

    /// Calls the functions for which no call was found, so that the tools in them are listed.
    fn call_uncalled(&mut self) {
        for (func, object) in self.functions.uncalled.clone() {
            // Walking the first of several functions that call each other has reached the others.
            if self.functions.called.contains(&func) && !self.functions.roots.contains(&func) {
                continue;
            }
            self.functions.roots.insert(func);
            let some = Value::computed(NONE);
            let args = Args { list: SmallVec::new(), rest: Some(some) };
            let callee = self.dom.reference(Ref::Obj(object));
            let _ = self.concurrently(|solver| {
                solver.under(NONE, true, true, |solver| {
                    let _ = solver.use_code(callee, some, &args);
                });
            });
        }
    }

    /// Calls a function, or constructs an object of a class.
    fn use_code(&mut self, callee: Value, this: Value, args: &Args) -> Value {
        let is_class = self.dom.shape(callee).refs.iter().any(|one| match one {
            Ref::Obj(object) => match self.heap.objects[*object as usize].kind {
                Kind::Func { func, .. } => {
                    matches!(self.function(func).form, FuncForm::Constructor { .. })
                }
                _ => false,
            },
            _ => false,
        });
        if !is_class {
            return self.call_value(callee, Some(this), args, false);
        }
        let at = (self.at, self.end, self.place);
        let made = self.construct_any(callee, args);
        (self.at, self.end, self.place) = at;
        made.unwrap_or(Value::NEVER)
    }

    /// Called when nothing new is learned: returns whether there are functions for which no call was found.
    pub(super) fn recheck_functions(&mut self) -> bool {
        let mut found: Vec<(FuncId, ObjId)> = Vec::new();
        for (object, known) in self.heap.objects.iter().enumerate() {
            if let Kind::Func { func, .. } = known.kind
                && !self.functions.called.contains(&func)
                && !self.functions.roots.contains(&func)
                && !found.iter().any(|(other, _)| *other == func)
            {
                found.push((func, object as ObjId));
            }
        }
        self.functions.uncalled.extend(&found);
        !found.is_empty()
    }

    /// Walks concurrent code whose failure is handled elsewhere.
    pub(super) fn concurrently(&mut self, walk: impl FnOnce(&mut Self)) -> Handler {
        self.concurrently_by(Sees::All, walk)
    }

    /// Walks concurrent code whose failure ends the program.
    pub(super) fn concurrently_unguarded(&mut self, walk: impl FnOnce(&mut Self)) -> Handler {
        self.concurrently_by(Sees::Throws, walk)
    }

    /// Walks concurrent code. The handlers around its start do not see its failures.
    fn concurrently_by(&mut self, sees: Sees, walk: impl FnOnce(&mut Self)) -> Handler {
        let handlers = std::mem::take(&mut self.handlers);
        let thread = std::mem::replace(&mut self.threads.level, self.levels.len());
        let hangs = std::mem::replace(&mut self.threads.hangs, NONE);
        self.threads.concurrent += 1;
        let (_, mut handler, _) = self.guarded_by(sees, |solver| {
            walk(solver);
            true
        });
        self.threads.concurrent -= 1;
        handler.hangs = std::mem::replace(&mut self.threads.hangs, hangs);
        self.threads.level = thread;
        self.handlers = handlers;
        handler
    }

    /// Walks the return of the program's result to the host, which converts it to JSON.
    pub(super) fn return_to_host(&mut self, value: Value) {
        let mut open: Vec<Value> = vec![value];
        let mut seen: HashSet<ObjId> = HashSet::default();
        while let Some(value) = open.pop() {
            for one in &self.dom.shapes.kept(value.shape).refs {
                match one {
                    // A tool is a function and has no JSON, so that only `mcp` and namespaces are reported.
                    Ref::Mcp | Ref::Namespace(_) => {
                        self.tool_gap(*one, How::Returned);
                    }
                    Ref::Obj(object) if seen.insert(*object) => {
                        let cells = &self.heap.objects[*object as usize].keys;
                        open.extend(cells.iter().map(|(_, cell)| self.now(*cell)));
                    }
                    _ => {}
                }
            }
        }
        let _ = self.serialise(value);
    }

    /// Reads any property of a value, as unknown code may.
    pub(super) fn any_of(&mut self, value: Value) -> Value {
        self.get(value, &AbstractKey { names: None, deps: NONE }, false)
    }
}
