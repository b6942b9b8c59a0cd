//! Calls of functions of the program: each call walks the function's code anew, in a context of its
//! own. Where that has no end, or costs too much, all other calls of a function share one context.

use super::shared::Shared;
use super::*;
use crate::structure::core::{
    Arg, CallForm, FuncForm, Inst, MADE, RESULT, Slot, THIS, WHOLE, Wait,
};
use crate::structure::domain::{Kind, Ref};

/// The deepest nesting of calls that are walked apart.
const DEPTH: usize = 32;
/// How often the code of a program may be walked in one round, functions counted at each of their calls.
const INLINED: usize = 40_000;
/// The most contexts.
const CONTEXTS: usize = 4_000;

/// The function that is walked.
pub(super) struct Act<'a> {
    pub(super) context: u32,
    pub(super) base: CellId,
    pub(super) args: Args,
    /// Whether the program waits for the call.
    pub(super) wait: bool,
    /// The number of levels around it.
    pub(super) level: usize,
    /// What a generator gives its values to.
    pub(super) iterator: Option<ObjId>,
    /// `new.target`
    pub(super) target: Value,
    /// How the call is written.
    pub(super) written: Written<'a>,
}

/// A function in one of the ways in which it is called.
pub(super) struct Context {
    pub(super) func: FuncId,
    /// The context in which it was made.
    pub(super) env: u32,
    pub(super) base: CellId,
    pub(super) unique: bool,
    /// Whether functions that are made in it may be called after it.
    pub(super) leaks: bool,
    pub(super) shared: Option<Shared>,
}

/// Where a context is found: the context and place of the call, and the function.
pub(super) type Contexts = HashMap<(u32, u32, ObjId), u32>;

impl<'a> Solver<'a> {
    pub(super) fn context(&self) -> u32 {
        self.acts.last().map_or(0, |act| act.context)
    }

    pub(super) fn enter_main(&mut self) {
        if self.contexts.is_empty() {
            self.add_context(0, 0, true);
        }
        self.push_level(NONE, false, false);
        let base = self.contexts[0].base;
        let level = self.levels.len();
        self.acts.push(Act {
            context: 0,
            base,
            args: Args::default(),
            wait: true,
            level,
            iterator: None,
            target: Value::UNDEFINED,
            written: Written::Nowhere,
        });
        let body: &'a [Inst] = &self.function(0).body;
        if self.region(WHOLE, |solver| solver.run(body)) {
            let value = self.slot(RESULT);
            self.hand_out(value);
        }
    }

    pub(super) fn add_context(&mut self, func: FuncId, env: u32, unique: bool) -> u32 {
        let function = self.function(func);
        let birth = self.birth();
        // Functions that make functions that make functions have no end of contexts.
        self.entangled |= self.contexts.len() > 3 * CONTEXTS;
        let of = |slot: Slot| {
            let at = slot as usize;
            // A variable that no other function sees is written by its own function alone.
            let captured = function.captured[at];
            (!captured || unique && !function.per_turn[at], true)
        };
        let base = self.heap.frame(function.slots, of, birth);
        self.contexts.push(Context { func, env, base, unique, leaks: false, shared: None });
        self.contexts.len() as u32 - 1
    }

    pub(super) fn given(&mut self, index: usize) -> Value {
        let Some(act) = self.acts.last() else { return Value::UNDEFINED };
        match (act.args.list.get(index), act.args.rest) {
            (Some(value), _) if !value.is_never() => *value,
            (Some(_), _) | (None, None) => Value::UNDEFINED,
            (None, Some(rest)) => self.dom.join(rest, Value::UNDEFINED),
        }
    }

    pub(super) fn given_from(&mut self, index: usize) -> Value {
        let list = self.make(7, Kind::Array);
        let Some(act) = self.acts.last() else { return list };
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

    pub(super) fn call(
        &mut self,
        callee: Slot,
        this: Option<Slot>,
        args: &'a [Arg],
        form: CallForm,
        wait: Wait,
    ) -> Option<Value> {
        let callee = self.slot(callee);
        let (written, is_itself) = (self.hands_over(callee, this, args), self.gives_itself(callee));
        let this = this.map(|this| self.slot(this));
        let this = this.filter(|this| !self.is_told_where_named(callee, *this));
        let args = self.args(args);
        let wait = match wait {
            Wait::Now => true,
            Wait::Tail => self.acts.last().is_some_and(|act| act.wait),
            Wait::Other => false,
        };
        self.written = written;
        let given = stacker::maybe_grow(256 * 1024, 16 * 1024 * 1024, || match form {
            CallForm::Plain => self.call_any(callee, this, &args, wait),
            CallForm::New => self.construct_any(callee, &args),
            CallForm::Super => self.call_parent(callee, this, &args),
        });
        self.written = Written::Nowhere;
        self.misuses.give_itself(is_itself);
        given
    }

    /// Calls a value and returns what that gives, or nothing that is known.
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
        let shape = self.dom.shapes.kept(callee.shape);
        if shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None {
            self.may_fail_by(callee);
        }
        self.each_way(callee.deps, &shape.refs, |solver, one| {
            let written = solver.written;
            solver.written = solver.written_for(one);
            let given = solver.call_one(one, this, args, wait);
            solver.written = written;
            given
        })
    }

    /// Does something with one of several, of which `deps` choose.
    fn each_way(
        &mut self,
        deps: Deps,
        ways: &[Ref],
        mut walk: impl FnMut(&mut Self, Ref) -> Option<Value>,
    ) -> Option<Value> {
        let deps = if self.follows(Rule::CalleeChosen) { deps } else { NONE };
        match ways {
            [] => None,
            [one] => {
                let value = self.under(deps, false, false, |solver| walk(solver, *one))?;
                let is_one = match one {
                    Ref::Obj(object) => self.is_one(*object),
                    _ => true,
                };
                Some(if is_one { value } else { self.dom.with(value, deps) })
            }
            _ => {
                // Of these, one is taken; that any of them may be is more than that.
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

    fn call_one(
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
                    // A class is not called.
                    self.may_fail(NONE, Value::computed(NONE));
                    None
                }
                Kind::Func { func, env } => self.invoke(object, func, env, this, args, wait),
                Kind::Bound => self.call_bound(object, args, wait),
                Kind::Opaque => Some(self.unknown_callee(callee, this, args)),
                _ if self.heap.objects[object as usize].escaped => {
                    Some(self.unknown_callee(callee, this, args))
                }
                _ => {
                    let value = self.dom.reference(callee);
                    self.may_fail_by(value);
                    None
                }
            },
            Ref::Tool(namespace, action) => Some(self.task(namespace, action, args, wait)),
            Ref::Method(name) => {
                Some(self.method(name, this.unwrap_or(Value::UNDEFINED), args, wait))
            }
            Ref::Builtin(name) => Some(self.builtin(name, this, args, wait)),
            Ref::Pool => Some(self.unknown_call(this, args)),
            Ref::Mcp | Ref::Namespace(_) => {
                self.gap(Code::DynamicCall, About::Value(callee, How::Called));
                Some(self.unknown_call(None, args))
            }
            // Data is no function: the call fails.
            Ref::Data(..) => None,
        }
    }

    /// Calls something of which it is not known what it does.
    fn unknown_callee(&mut self, callee: Ref, this: Option<Value>, args: &Args) -> Value {
        let callee = self.dom.reference(callee);
        let values: SmallVec<[Value; 4]> = std::iter::once(callee)
            .chain(this)
            .chain(args.list.iter().copied())
            .chain(args.rest)
            .collect();
        self.unknown(&values)
    }

    fn call_bound(&mut self, object: ObjId, args: &Args, wait: bool) -> Option<Value> {
        let target = self.heap.cell(object, self.known.target);
        let target = self.read(target);
        // Whoever is bound has a target.
        let target = self.here(target);
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
        self.call_any(target, Some(this), &all, wait)
    }

    /// `new callee(…)`
    pub(super) fn construct_any(&mut self, callee: Value, args: &Args) -> Option<Value> {
        let shape = self.dom.shapes.kept(callee.shape);
        if shape.may_be_nothing() || shape.prim != crate::structure::domain::Prim::None {
            self.may_fail_by(callee);
        }
        self.each_way(callee.deps, &shape.refs, |solver, one| solver.construct_one(one, args))
    }

    fn construct_one(&mut self, callee: Ref, args: &Args) -> Option<Value> {
        match callee {
            Ref::Obj(object) => match self.heap.objects[object as usize].kind {
                Kind::Func { func, env } => {
                    let made = self.make(0, Kind::Plain);
                    self.prototype_of(object);
                    let prototype = self.own(object, self.known.prototype);
                    self.set_own(made, self.known.proto, prototype);
                    let target = self.dom.reference(callee);
                    let before = std::mem::replace(&mut self.target, target);
                    let given = self.invoke(object, func, env, Some(made), args, true);
                    self.target = before;
                    let given = given?;
                    let refs = self.dom.shapes.only_refs(given.shape, |_| true, false);
                    let given = Value { deps: given.deps, shape: refs };
                    if given.is_never() { Some(made) } else { Some(self.dom.join(made, given)) }
                }
                _ => Some(self.unknown_callee(callee, None, args)),
            },
            Ref::Tool(namespace, action) => Some(self.task(namespace, action, args, true)),
            Ref::Builtin(name) => Some(self.construct_builtin(name, args)),
            Ref::Pool => Some(self.unknown_call(None, args)),
            _ => {
                self.gap_if_leads(callee);
                Some(self.unknown_call(None, args))
            }
        }
    }

    /// Returns whether what is called is a part of `this` that leads to tools, of which is told where it
    /// is named that it is not known.
    fn is_told_where_named(&self, callee: Value, this: Value) -> bool {
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

    fn gap_if_leads(&mut self, callee: Ref) {
        if matches!(callee, Ref::Mcp | Ref::Namespace(_) | Ref::Tool(..)) {
            self.gap(Code::DynamicCall, About::Value(callee, How::Called));
        }
    }

    /// `super(…)`
    fn call_parent(&mut self, parent: Value, this: Option<Value>, args: &Args) -> Option<Value> {
        let shape = self.dom.shapes.kept(parent.shape);
        let given = self.each_way(parent.deps, &shape.refs, |solver, one| match one {
            Ref::Obj(object) => match solver.heap.objects[object as usize].kind {
                Kind::Func { func, env } => {
                    let act = solver.acts.last();
                    let target = act.map_or(Value::UNDEFINED, |act| act.target);
                    let before = std::mem::replace(&mut solver.target, target);
                    let given = solver.invoke(object, func, env, this, args, true);
                    solver.target = before;
                    given
                }
                _ => Some(solver.unknown_callee(one, this, args)),
            },
            Ref::Builtin(name) => {
                solver.init_builtin(name, this.unwrap_or(Value::UNDEFINED), args);
                Some(Value::UNDEFINED)
            }
            _ => Some(solver.unknown_callee(one, this, args)),
        })?;
        // A constructor may give another object than the one that was made.
        let refs = self.dom.shapes.only_refs(given.shape, |_| true, false);
        let given = Value { deps: given.deps, shape: refs };
        let this = this.unwrap_or(Value::UNDEFINED);
        Some(if given.is_never() { this } else { self.dom.join(this, given) })
    }

    /// Calls a function of the program.
    pub(super) fn invoke(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Option<Value> {
        self.called.insert(func);
        let function = self.function(func);
        // An arrow's `this` is that of what it stands in.
        let this = if function.form == FuncForm::Arrow { None } else { this };
        if function.is_generator {
            return Some(self.generate(object, func, env, this, args));
        }
        if function.is_async && !wait {
            return Some(self.start(object, func, env, this, args));
        }
        self.walk_call(object, func, env, this, args, wait, None)
    }

    /// Returns whether a function is walked already.
    pub(super) fn is_open(&self, func: FuncId) -> bool {
        self.acts.iter().any(|act| self.contexts[act.context as usize].func == func)
    }

    #[expect(clippy::too_many_arguments, reason = "they are what a call is made of")]
    pub(super) fn walk_call(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
        wait: bool,
        iterator: Option<ObjId>,
    ) -> Option<Value> {
        let is_recursive = self.is_open(func);
        let key = (self.context(), self.place, object);
        let is_known = self.context_ids.contains_key(&key);
        let too_much = self.acts.len() >= DEPTH
            || self.inlined > INLINED
            || (!is_known && self.contexts.len() >= CONTEXTS);
        if is_recursive || too_much {
            // The stack has an end.
            self.may_fail(NONE, Value::computed(NONE));
            return self.call_shared(object, func, env, this, args, iterator);
        }
        let unique = self.is_single();
        let context = match self.context_ids.get(&key) {
            Some(context) => *context,
            None => {
                let context = self.add_context(func, env, unique);
                self.context_ids.insert(key, context);
                context
            }
        };
        self.enter(context, this, args.clone(), wait, iterator)
    }

    /// Walks the code of a function in a context; returns what it gives, if it ends.
    pub(super) fn enter(
        &mut self,
        context: u32,
        this: Option<Value>,
        args: Args,
        wait: bool,
        iterator: Option<ObjId>,
    ) -> Option<Value> {
        let (base, func) =
            (self.contexts[context as usize].base, self.contexts[context as usize].func);
        let body: &'a [Inst] = &self.function(func).body;
        let at = (self.at, self.end, self.place);
        let level = self.levels.len();
        let before = self.work;
        let target = std::mem::replace(&mut self.target, Value::UNDEFINED);
        let written = std::mem::replace(&mut self.written, Written::Nowhere);
        self.acts.push(Act { context, base, args, wait, level, iterator, target, written });
        self.begin_frame(context);
        self.set_slot(RESULT, Value::UNDEFINED);
        let this = this.unwrap_or(Value::UNDEFINED);
        let is_derived = self.function(func).form == FuncForm::Constructor { derived: true };
        if is_derived {
            self.set_slot(MADE, this);
        }
        self.set_slot(THIS, if is_derived { Value::ABSENT } else { this });
        if self.function(func).uses_arguments {
            let list = self.given_from(0);
            self.set_slot(crate::structure::core::ARGUMENTS, list);
        }
        if self.function(func).uses_target {
            self.set_slot(crate::structure::core::TARGET, target);
        }
        let ends = self.region(WHOLE, |solver| solver.run(body));
        let value = self.slot(RESULT);
        if is_derived {
            let this = self.slot(THIS);
            let _ = self.declared(this);
        }
        self.acts.pop();
        (self.at, self.end, self.place) = at;
        self.inlined += self.work - before;
        ends.then_some(value)
    }

    /// Forgets what the variables had in a call before, where nobody can ask for that.
    fn begin_frame(&mut self, context: u32) {
        let known = &self.contexts[context as usize];
        let (base, func, leaks) = (known.base, known.func, known.leaks);
        let function = self.function(func);
        if leaks {
            return;
        }
        for slot in 0..function.slots {
            if function.captured[slot as usize] {
                self.set_now(base + slot, Value::NEVER);
            }
        }
    }
}
