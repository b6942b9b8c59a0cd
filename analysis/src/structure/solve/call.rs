//! Calls: which functions a value may be, and what they are given.

use super::walk::{STACK_MORE, STACK_STEP};
use super::*;
use crate::structure::builtins;
use crate::structure::core::{Arg, CallForm, FuncForm, Slot, Wait};
use crate::structure::domain::{Kind, Paths, Ref};

impl<'a> Solver<'a> {
    /// Returns a parameter of the current function.
    pub(super) fn argument(&mut self, index: usize) -> Value {
        let Some(act) = self.activations.last() else { return Value::UNDEFINED };
        match (act.args.list.get(index), act.args.rest) {
            (Some(value), _) if !value.is_never() => *value,
            (Some(_), _) | (None, None) => Value::UNDEFINED,
            (None, Some(rest)) => self.dom.join(rest, Value::UNDEFINED),
        }
    }

    /// Returns a list of the current function's arguments from a position on, for rest parameters and
    /// `arguments`.
    pub(super) fn arguments_from(&mut self, index: usize) -> Value {
        let list = self.make(7, Kind::Array);
        let Some(act) = self.activations.last() else { return list };
        let args = act.args.clone();
        for value in args.list.iter().skip(index) {
            self.push(list, *value, false);
        }
        if let Some(rest) = args.rest
            && self.follows(Rule::Rest)
        {
            self.push_some(list, rest, rest.deps);
        }
        list
    }

    /// Evaluates the arguments of a call. After a spread of unknown length, positions are unknown.
    pub(super) fn args(&mut self, args: &[Arg]) -> Args {
        let mut out = Args::default();
        for arg in args {
            let value = self.slot(arg.slot);
            let (exact, some) = if arg.spread { self.spread_items(value) } else { (None, value) };
            match (arg.spread, exact, out.rest) {
                (true, Some(items), None) => out.list.extend(items),
                (false, _, None) => out.list.push(value),
                (_, _, rest) => {
                    let before = rest.unwrap_or(Value::NEVER);
                    out.rest = Some(self.dom.join(before, some));
                }
            }
        }
        out
    }

    /// Walks a call expression. Returns the result, or nothing if no callee returns normally.
    pub(super) fn call(
        &mut self,
        callee: Slot,
        this: Option<Slot>,
        args: &'a [Arg],
        form: CallForm,
        wait: Wait,
    ) -> Option<Value> {
        let callee = self.slot(callee);
        let (written, is_itself) =
            (self.check_call(callee, this, args), self.returns_argument(callee));
        let this = this.map(|this| self.slot(this));
        // Such a receiver was already reported where its property is named; as an argument of unknown code it
        // would be reported twice.
        let this = this.filter(|this| !self.is_reported_at_name(callee, *this));
        let args = self.args(args);
        let wait = match wait {
            Wait::Now => true,
            // `return f()` in an async function: awaited if and only if the call of that function is.
            Wait::Tail => self.activations.last().is_some_and(|act| act.wait),
            Wait::Other => false,
        };
        self.written = written;
        let given = stacker::maybe_grow(STACK_STEP, STACK_MORE, || match form {
            CallForm::Plain => self.call_functions(callee, this, &args, wait, true),
            CallForm::New => self.construct_any(callee, &args),
            CallForm::Super => self.call_parent(callee, this, &args),
        });
        self.written = CallText::Nowhere;
        self.misuses.note_returned_argument(is_itself);
        given
    }

    /// Calls a value from within a rule of the solver and restores the source position. Without a normal end,
    /// the result is `NEVER`.
    pub(super) fn call_value(
        &mut self,
        callee: Value,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Value {
        let at = (self.at, self.end, self.place);
        let value = self.call_any(callee, this, args, wait);
        (self.at, self.end, self.place) = at;
        value.unwrap_or(Value::NEVER)
    }

    /// Calls each of the functions that a value may be.
    pub(super) fn call_any(
        &mut self,
        callee: Value,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Option<Value> {
        self.call_functions(callee, this, args, wait, false)
    }

    /// Calls each of the functions that a value may be. If it was read from `this`, the function that is called
    /// rules out some of the shapes of `this`.
    fn call_functions(
        &mut self,
        callee: Value,
        this: Option<Value>,
        args: &Args,
        wait: bool,
        is_member: bool,
    ) -> Option<Value> {
        if !self.may_nest() {
            return None;
        }
        let shape = self.dom.shapes.kept(callee.shape);
        // A call of what is no function fails.
        if shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None {
            self.may_fail_by(callee);
        }
        self.nested += 1;
        let given = self.each_way(callee.deps, &shape.refs, |solver, one| {
            let this = if is_member { this.map(|this| solver.read_from(one, this)) } else { this };
            if solver.borrows(one, this, is_member) {
                return Some(solver.unknown_call(this, args));
            }
            let written = solver.written;
            solver.written = solver.written_for(one);
            let given = solver.call_one(one, this, args, wait);
            solver.written = written;
            given
        });
        self.nested -= 1;
        given
    }

    /// Returns whether a further call may be walked within those that are being walked. Functions of the program
    /// that call themselves are cut off before; but `call`, `apply`, `bind` and proxies may lead to themselves,
    /// too.
    pub(super) fn may_nest(&mut self) -> bool {
        if self.nested >= NESTED_LIMIT {
            self.give_up();
        }
        self.work <= WORK
    }

    /// Walks one of several alternatives, between which `deps` decide.
    pub(super) fn each_way(
        &mut self,
        deps: Deps,
        ways: &[Ref],
        mut walk: impl FnMut(&mut Self, Ref) -> Option<Value>,
    ) -> Option<Value> {
        let deps = if self.follows(Rule::CalleeChosen) { deps } else { NONE };
        match ways {
            [] => None,
            [one] => {
                // One abstract callee is certainly called. It may still stand for several closures of one
                // allocation site; then which of them it is flows into the result.
                let value = self.under(deps, false, false, |solver| walk(solver, *one))?;
                let is_one = match one {
                    Ref::Obj(object) => self.is_one(*object),
                    _ => true,
                };
                Some(if is_one { value } else { self.dom.with(value, deps) })
            }
            _ => {
                // Exactly one of them is called. Walking each as optional also covers that.
                let mut result: Option<Value> = None;
                for one in ways {
                    let mut found = None;
                    self.fork(
                        deps,
                        |solver| {
                            found = solver.under(deps, true, false, |solver| walk(solver, *one));
                            found.is_some()
                        },
                        |_| true,
                    );
                    if let Some(value) = found {
                        result = Some(self.dom.join(result.unwrap_or(Value::NEVER), value));
                    }
                }
                let value = result?;
                Some(self.dom.with(value, deps))
            }
        }
    }

    /// Calls one callee.
    fn call_one(
        &mut self,
        callee: Ref,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Option<Value> {
        if let Ref::Obj(object) = callee
            && self.heap.objects[object as usize].kind == Kind::Bound
        {
            return self.call_bound(object, args, wait);
        }
        // What another function calls, it calls later, when the bound functions before it have passed their call on.
        let around = std::mem::take(&mut self.bound);
        let given = self.call_unbound(callee, this, args, wait);
        self.bound = around;
        given
    }

    /// Calls one callee that is no bound function.
    fn call_unbound(
        &mut self,
        callee: Ref,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Option<Value> {
        match callee {
            Ref::Obj(object) => match self.heap.objects[object as usize].kind {
                Kind::Func { func, .. }
                    if matches!(self.function(func).form, FuncForm::Constructor { .. }) =>
                {
                    // A class cannot be called without `new`.
                    self.may_fail(NONE, Value::computed(NONE));
                    None
                }
                Kind::Func { func, env } => self.invoke(object, func, env, this, args, wait),
                Kind::Opaque => Some(self.unknown_callee(callee, this, args)),
                _ if self.heap.objects[object as usize].escaped => {
                    Some(self.unknown_callee(callee, this, args))
                }
                _ => {
                    let value = self.dom.reference(callee);
                    // An object that is no function.
                    self.may_fail_by(value);
                    None
                }
            },
            Ref::Tool(namespace, action) => Some(self.task(namespace, action, args, wait)),
            Ref::Method(name) => {
                let this = this.unwrap_or(Value::UNDEFINED);
                if self.has_no_method(this, name) {
                    self.may_fail_by(this);
                    return None;
                }
                Some(self.method(name, this, args, wait))
            }
            Ref::Builtin(name) => Some(self.builtin(name, this, args, wait)),
            Ref::Pool => Some(self.unknown_call(this, args)),
            Ref::Mcp | Ref::Namespace(_) => {
                // Neither `mcp` nor a namespace is a function; calling one fails, but the plan says that it was
                // not understood.
                self.gap(Code::DynamicCall, About::Value(callee, How::Called));
                Some(self.unknown_call(None, args))
            }
            Ref::Data(_, path) if Paths::may_be_method(path) => Some(self.unknown_call(this, args)),
            // A tool's result holds no function, so the call fails. That was recorded by the caller.
            Ref::Data(..) => None,
        }
    }

    /// Returns whether calling a method of data surely fails: no method of the engine has this name, and what
    /// the program itself wrote into the data is a separate callee.
    fn has_no_method(&self, this: Value, name: NameId) -> bool {
        let is_data = |one: &Ref| matches!(one, Ref::Data(..));
        name != self.known.method
            && !self.engine.lost
            && self.dom.shape(this).refs.iter().all(is_data)
            && is_plain_name(self.dom.names.get(name))
            && !builtins::is_engine_function(self.dom.names.get(name))
    }

    /// Calls an object whose behavior is not known.
    pub(super) fn unknown_callee(
        &mut self,
        callee: Ref,
        this: Option<Value>,
        args: &Args,
    ) -> Value {
        let callee = self.dom.reference(callee);
        let values: SmallVec<[Value; 4]> = std::iter::once(callee)
            .chain(this)
            .chain(args.list.iter().copied())
            .chain(args.rest)
            .collect();
        self.unknown(&values)
    }

    /// Calls a bound function: its target, with the bound `this` and the bound arguments first.
    fn call_bound(&mut self, object: ObjId, args: &Args, wait: bool) -> Option<Value> {
        let target = self.heap.cell(object, self.known.target);
        let target = self.read(target);
        // A bound function always has a target; `absent` only comes from the weak update.
        let target = self.present(target);
        let this = self.heap.cell(object, self.known.this);
        let this = self.read(this);
        let before = self.heap.cell(object, self.known.elem);
        let before = self.read(before);
        let mut all = args.clone();
        let bound = self.bound_args(before);
        match bound {
            (Some(items), _) => {
                all.list = items.into_iter().chain(args.list.iter().copied()).collect();
            }
            (None, some) => {
                let rest = args
                    .list
                    .iter()
                    .chain(&args.rest)
                    .fold(some, |all, one| self.dom.join(all, *one));
                all = Args { list: SmallVec::new(), rest: Some(rest) };
            }
        }
        // A loop may bind a function again and again. One object stands for all of them, so it is its own target.
        // Calling it with the same arguments once more adds nothing to what its other targets do; other arguments
        // are joined, until they are the same.
        if let Some((_, outer)) = self.bound.iter().rev().find(|(one, _)| *one == object) {
            if *outer == all {
                return None;
            }
            let both: SmallVec<[Value; 8]> = [outer, &all]
                .into_iter()
                .flat_map(|args| args.list.iter().chain(&args.rest).copied())
                .collect();
            let rest = both.into_iter().fold(Value::NEVER, |all, one| self.dom.join(all, one));
            let joined = Args { list: SmallVec::new(), rest: Some(rest) };
            if self.bound.iter().any(|(one, args)| *one == object && *args == joined) {
                return None;
            }
            all = joined;
        }
        self.bound.push((object, all.clone()));
        let given = self.call_any(target, Some(this), &all, wait);
        self.bound.pop();
        given
    }

    /// Returns whether `this` leads to tools and the read of the callee from it has already been reported as a
    /// gap.
    fn is_reported_at_name(&self, callee: Value, this: Value) -> bool {
        let (callee, this) = (&self.dom.shape(callee).refs, &self.dom.shape(this).refs);
        let is_applied = |one: &Ref| match one {
            Ref::Method(name) => {
                matches!(&*self.dom.names.text(*name), "call" | "apply" | "bind")
            }
            _ => false,
        };
        let of_tools = this.iter().all(|one| matches!(one, Ref::Tool(..)));
        let above = this.iter().all(|one| matches!(one, Ref::Mcp | Ref::Namespace(_)));
        !this.is_empty()
            && (above && callee.contains(&Ref::Pool)
                || of_tools && !callee.iter().any(is_applied) && !callee.is_empty())
    }

    /// Returns the part of the receiver from which a function can have been read.
    ///
    /// Tools and namespaces have no functions except tools and `call`, `apply` and `bind`. Objects of the
    /// program inherit only the known methods of the engine.
    fn read_from(&mut self, callee: Ref, this: Value) -> Value {
        let is_unknown = match callee {
            Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => return this,
            Ref::Method(name) => {
                let text = self.dom.names.get(name);
                if matches!(text, "call" | "apply" | "bind") {
                    return this;
                }
                let is_known = builtins::method(text).is_some()
                    || builtins::is_offered(text)
                    || text == "constructor"
                    || text.starts_with("__");
                !is_known && !text.starts_with('%')
            }
            _ => false,
        };
        let is_kept = |one: &Ref| match one {
            Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..) => false,
            Ref::Obj(object) => {
                let known = &self.heap.objects[*object as usize];
                // With a prototype of its own, it may extend a class of the engine.
                let is_alone = self.heap.find(*object, self.known.proto).is_none();
                !is_unknown || known.escaped || known.kind != Kind::Plain || !is_alone
            }
            _ => true,
        };
        if self.dom.shape(this).refs.iter().all(is_kept) {
            return this;
        }
        let left: SmallVec<[Ref; 4]> =
            self.dom.shape(this).refs.iter().filter(|one| is_kept(one)).copied().collect();
        let shape = self.dom.shapes.only_refs(this.shape, |one| left.contains(one), true);
        let left = Value { deps: this.deps, shape };
        if left.is_never() { Value::UNDEFINED } else { left }
    }

    /// Records a gap if `mcp`, a namespace or a tool is called in a form that is not followed.
    pub(super) fn gap_if_leads(&mut self, callee: Ref) {
        if matches!(callee, Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..)) {
            self.gap(Code::DynamicCall, About::Value(callee, How::Called));
        }
    }
}

/// Returns whether a name is an ordinary identifier, and no internal slot.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
