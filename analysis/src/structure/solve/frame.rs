//! Functions of the program: each call walks the function's code anew, in a context of its own. Where
//! that has no end, or costs too much, all other calls of a function share one context.

use super::shared::Shared;
use super::*;
use crate::structure::core::{FuncForm, Inst, MADE, RESULT, Slot, THIS, WHOLE};

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
        let walk = |solver: &mut Self| {
            let goes_on = solver.run(body);
            if goes_on {
                solver.ends_program(None);
            }
            goes_on
        };
        if self.region(WHOLE, walk) {
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
        self.functions.called.insert(func);
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
            || self.functions.inlined > INLINED
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
        self.functions.inlined += self.work - before;
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
