//! Calls of the program's functions. Each call walks the function's code anew, in a context of its own (full
//! inlining). Recursive calls, and calls beyond the limits below, share one context per function object instead
//! (`shared`).

use super::branch::NOTHING;
use super::shared::Shared;
use super::*;
use crate::structure::core::{FuncForm, Inst, MADE, RESULT, Slot, THIS, WHOLE};

/// The maximum depth of the call stack of the walk; deeper calls use the shared context.
const DEPTH: usize = 32;
/// The maximum number of instructions walked in calls during one round; later calls use the shared context.
const INLINED: usize = 40_000;
/// The maximum number of contexts.
const CONTEXTS: usize = 4_000;

/// A call that is being walked (an activation).
pub(super) struct Activation<'a> {
    /// Its context.
    pub(super) context: u32,
    /// The first cell of its frame.
    pub(super) base: CellId,
    /// Its arguments.
    pub(super) args: Args,
    /// Whether the caller awaits the call at once, so that an async function is walked like a synchronous one.
    pub(super) wait: bool,
    /// The number of levels around the call.
    pub(super) level: usize,
    /// The iterator to which `yield` gives its values.
    pub(super) iterator: Option<ObjId>,
    /// `new.target`
    pub(super) target: Value,
    /// How the call is written in the source.
    pub(super) written: CallText<'a>,
}

/// A function, together with the call by which it was reached.
pub(super) struct Context {
    /// The function.
    pub(super) func: FuncId,
    /// The context in which the function object was made: its environment.
    pub(super) env: u32,
    /// The first cell of its frame, which all calls in this context reuse.
    pub(super) base: CellId,
    /// Whether it is entered at most once, so that each of its variables is one variable.
    pub(super) unique: bool,
    /// Whether closures made in it may be called after it has returned, so that its captured variables outlive
    /// the call.
    pub(super) leaks: bool,
    /// The joined calls, if several share it.
    pub(super) shared: Option<Shared>,
}

/// Finds a context by the context and the instruction of the call, and the function object.
pub(super) type Contexts = HashMap<(u32, u32, ObjId), u32>;

impl<'a> Solver<'a> {
    /// Returns the current context.
    pub(super) fn context(&self) -> u32 {
        self.activations.last().map_or(0, |act| act.context)
    }

    /// Walks the program's own code.
    pub(super) fn enter_main(&mut self) {
        if self.contexts.is_empty() {
            self.add_context(0, 0, true);
        }
        self.push_level(NONE, false, false);
        let base = self.contexts[0].base;
        let level = self.levels.len();
        self.activations.push(Activation {
            context: 0,
            base,
            args: Args::default(),
            wait: true,
            level,
            iterator: None,
            target: Value::UNDEFINED,
            written: CallText::Nowhere,
        });
        let body: &'a [Inst] = &self.function(0).body;
        let walk = |solver: &mut Self| {
            let goes_on = solver.run(body);
            // The end without a `return`.
            if goes_on {
                solver.ends_program(None);
            }
            goes_on
        };
        if self.region(WHOLE, NOTHING, walk) {
            let value = self.slot(RESULT);
            self.return_to_host(value);
        }
    }

    /// Adds a context, with cells for the function's slots.
    pub(super) fn add_context(&mut self, func: FuncId, env: u32, unique: bool) -> u32 {
        let function = self.function(func);
        let birth = self.birth();
        // A function that returns a new function at each call, which is called in turn, has no end of contexts.
        self.entangled |= self.contexts.len() > 3 * CONTEXTS;
        let of = |slot: Slot| {
            let at = slot as usize;
            // Only its own call writes a variable that no closure captures, so updates of it are strong. A
            // captured one is one variable only if the context is entered once and the variable is not declared
            // anew in each turn of a loop.
            let variable = function.variables[at];
            (!variable.captured || unique && !variable.per_turn, true)
        };
        let base = self.heap.frame(function.slots, of, birth);
        self.contexts.push(Context { func, env, base, unique, leaks: false, shared: None });
        self.contexts.len() as u32 - 1
    }

    /// Calls a function of the program; returns nothing if the call never ends normally.
    pub(super) fn invoke(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
        wait: bool,
    ) -> Option<Value> {
        self.functions.called.insert(func);
        let function = self.function(func);
        // An arrow function captures `this` like a variable.
        let this = if function.form == FuncForm::Arrow { None } else { this };
        if function.is_generator {
            return Some(self.generate(object, func, env, this, args));
        }
        if function.is_async && !wait {
            return Some(self.start_async(object, func, env, this, args));
        }
        self.walk_call(object, func, env, this, args, wait, None)
    }

    /// Returns whether a call of a function is on the stack.
    pub(super) fn is_open(&self, func: FuncId) -> bool {
        self.activations.iter().any(|act| self.contexts[act.context as usize].func == func)
    }

    /// Walks a call in the context that belongs to it, or in the shared context.
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
        let too_much = self.activations.len() >= DEPTH
            || self.functions.inlined > INLINED
            || (!is_known && self.contexts.len() >= CONTEXTS);
        if is_recursive || too_much {
            // Deep recursion may exhaust the stack.
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

    /// Walks the code of a function in a context; returns the result, if the call may end normally.
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
        let written = std::mem::replace(&mut self.written, CallText::Nowhere);
        self.activations.push(Activation {
            context,
            base,
            args,
            wait,
            level,
            iterator,
            target,
            written,
        });
        self.begin_frame(context);
        self.set_slot(RESULT, Value::UNDEFINED);
        let this = this.unwrap_or(Value::UNDEFINED);
        let is_derived = self.function(func).form == FuncForm::Constructor { derived: true };
        if is_derived {
            self.set_slot(MADE, this);
        }
        // The constructor of a derived class has no `this` before `super(…)`: reading it fails, as in a
        // temporal dead zone.
        self.set_slot(THIS, if is_derived { Value::ABSENT } else { this });
        if self.function(func).uses_arguments {
            let list = self.arguments_from(0);
            self.set_slot(crate::structure::core::ARGUMENTS, list);
        }
        if self.function(func).uses_target {
            self.set_slot(crate::structure::core::TARGET, target);
        }
        let ends = self.region(WHOLE, NOTHING, |solver| solver.run(body));
        let value = self.slot(RESULT);
        if is_derived {
            let this = self.slot(THIS);
            // Such a constructor fails at its end if `super(…)` was not called.
            let _ = self.declared(this);
        }
        self.activations.pop();
        (self.at, self.end, self.place) = at;
        self.functions.inlined += self.work - before;
        ends.then_some(value)
    }

    /// Clears the captured variables of an earlier call in this context, unless a closure that outlives the
    /// call may still read them.
    fn begin_frame(&mut self, context: u32) {
        let known = &self.contexts[context as usize];
        let (base, func, leaks) = (known.base, known.func, known.leaks);
        let function = self.function(func);
        if leaks {
            return;
        }
        for slot in 0..function.slots {
            if function.variables[slot as usize].captured {
                self.set_now(base + slot, Value::NEVER);
            }
        }
    }
}
