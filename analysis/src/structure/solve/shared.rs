//! The context-insensitive fallback: recursive calls of a function, and calls beyond the limits, share one
//! context. Arguments, results, failures and writes of all these calls are joined, and the code is walked once
//! a round.

use super::*;

/// The joined calls of a shared context. All of it only grows over the rounds.
#[derive(Default)]
pub(super) struct Shared {
    /// The join of the receivers.
    this: Option<Value>,
    /// The join of the arguments.
    args: Args,
    /// What decides whether it is called at all.
    deps: Deps,
    /// The join of the results; none until a walk has ended normally.
    result: Option<Value>,
    /// What decides whether it fails.
    thrown: Deps,
    /// The join of the errors.
    error: Option<Value>,
    /// The cells that its code writes and that other functions see.
    writes: HashSet<CellId>,
    /// The cells in which a promise may be replaced by the promised value, while nothing else about the value
    /// changes.
    loosens: HashSet<CellId>,
    /// What decides whether the end of the program cuts off the calls, if it may.
    cut: Option<Deps>,
    /// The last round in which it was walked.
    walked: Option<u32>,
    /// Whether it is being walked.
    open: bool,
}

/// The depth of the call stack up to which a shared context is walked at the call. Deeper ones are walked at
/// the end of the round, and their results are seen in the next round. This bounds both the recursion of the
/// walk and the trail that enclosing forks scan.
const NESTED: usize = 64;

/// Stands for the caller in the key of a shared context.
const ANY_CALLER: u32 = u32::MAX;

/// Which functions of the program were called.
#[derive(Default)]
pub(super) struct Functions {
    /// Functions for which no call was found, each with one of its objects. They are walked anyway, so that the
    /// tools in them are listed.
    pub(super) uncalled: Vec<(FuncId, ObjId)>,
    /// Those of `uncalled` that are walked as entry points because no other unseen function calls them.
    pub(super) roots: HashSet<FuncId>,
    /// The functions for which a call was found.
    pub(super) called: HashSet<FuncId>,
    /// The shared contexts still to be walked in this round, each with the iterator it yields to.
    pub(super) waiting: Vec<(u32, Option<ObjId>)>,
    /// How many instructions were walked in contexts of single calls in this round.
    pub(super) inlined: usize,
}

impl Functions {
    /// Resets the state of a round.
    pub(super) fn begin_round(&mut self) {
        self.waiting.clear();
        self.inlined = 0;
    }
}

impl Solver<'_> {
    /// Adds a call to the shared context of a function object, and returns the joined result of all its calls.
    pub(super) fn call_shared(
        &mut self,
        object: ObjId,
        func: FuncId,
        env: u32,
        this: Option<Value>,
        args: &Args,
        iterator: Option<ObjId>,
    ) -> Option<Value> {
        let key = (ANY_CALLER, iterator.map_or(0, |iterator| iterator + 1), object);
        let context = match self.context_ids.get(&key) {
            Some(context) => *context,
            None => {
                let context = self.add_context(func, env, false);
                self.context_ids.insert(key, context);
                context
            }
        };
        for value in this.into_iter().chain(args.list.iter().copied()).chain(args.rest) {
            self.keep(value);
        }
        // The context is walked at only one of its calls in a round, and the variables that the closure
        // captures may differ at the others.
        self.keep_object(object);
        let control = self.control_above(0);
        let mut shared = self.contexts[context as usize].shared.take().unwrap_or_default();
        let mut is_new = false;
        let given = this.unwrap_or(Value::NEVER);
        is_new |= self.add_to(&mut shared.this, given);
        for (place, value) in args.list.iter().enumerate() {
            if shared.args.list.len() <= place {
                // Earlier calls passed fewer arguments, so that they passed `undefined` here.
                let before = if shared.walked.is_some() { Value::UNDEFINED } else { Value::NEVER };
                shared.args.list.push(before);
                is_new = true;
            }
            let mut joined = self.dom.join(shared.args.list[place], *value);
            if self.round >= WIDEN {
                joined.shape = self.dom.shapes.widened(joined.shape);
            }
            is_new |= joined != shared.args.list[place];
            shared.args.list[place] = joined;
        }
        for place in args.list.len()..shared.args.list.len() {
            let other = args.rest.unwrap_or(Value::UNDEFINED);
            let joined = self.dom.join(shared.args.list[place], other);
            is_new |= joined != shared.args.list[place];
            shared.args.list[place] = joined;
        }
        if let Some(rest) = args.rest {
            is_new |= self.add_to(&mut shared.args.rest, rest);
        }
        let deps = self.dom.union(shared.deps, control);
        is_new |= deps != shared.deps;
        shared.deps = deps;
        let cut = self.cut_ever();
        let cut = self.either(shared.cut, cut);
        is_new |= cut != shared.cut;
        shared.cut = cut;
        self.changed |= is_new;
        // A recursive call inside the walk of this same context only adds its arguments; a later round walks
        // with them.
        let must_walk = !shared.open && shared.walked != Some(self.round);
        if must_walk {
            shared.walked = Some(self.round);
            self.contexts[context as usize].shared = Some(shared);
            if self.activations.len() < NESTED {
                self.walk_open(context, iterator);
            } else {
                self.functions.waiting.push((context, iterator));
            }
            shared = self.contexts[context as usize].shared.take().unwrap_or_default();
        }
        let (result, thrown, error) = (shared.result, shared.thrown, shared.error);
        let writes: Vec<CellId> = shared.writes.iter().copied().collect();
        let loosens: Vec<CellId> = shared.loosens.iter().copied().collect();
        self.contexts[context as usize].shared = Some(shared);
        for cell in writes {
            let known = &mut self.heap.cells[cell as usize];
            // Any of the joined calls may have happened before this point, so each cell may have whatever is
            // ever written to it.
            known.watched = true;
            let joined = self.dom.join(known.now, known.ever);
            self.set_now(cell, joined);
        }
        for cell in loosens {
            self.loosen(cell);
        }
        if thrown != NONE || error.is_some() {
            self.may_fail(thrown, error.unwrap_or(Value::NEVER));
        }
        result
    }

    /// Joins a value into another one, widened in late rounds; returns whether the result is new.
    fn add_to(&mut self, known: &mut Option<Value>, value: Value) -> bool {
        let before = known.unwrap_or(Value::NEVER);
        let mut joined = self.dom.join(before, value);
        if self.round >= WIDEN {
            joined.shape = self.dom.shapes.widened(joined.shape);
        }
        let is_new = *known != Some(joined);
        *known = Some(joined);
        is_new
    }

    /// Walks the shared contexts that were put off during the round.
    pub(super) fn walk_waiting(&mut self) {
        while let Some((context, iterator)) = self.functions.waiting.pop() {
            self.walk_open(context, iterator);
        }
    }

    /// Walks a shared context with the joined arguments of its calls.
    fn walk_open(&mut self, context: u32, iterator: Option<ObjId>) {
        let mut shared = self.contexts[context as usize].shared.take().unwrap_or_default();
        shared.open = true;
        let (this, args, deps) = (shared.this, shared.args.clone(), shared.deps);
        let cut = shared.cut;
        self.contexts[context as usize].shared = Some(shared);
        self.cut_by(cut, |solver| solver.walk_shared(context, this, args, deps, iterator));
        if let Some(shared) = &mut self.contexts[context as usize].shared {
            shared.open = false;
        }
    }

    /// Walks the code of a shared context and collects its result, failures and writes.
    fn walk_shared(
        &mut self,
        context: u32,
        this: Option<Value>,
        args: Args,
        deps: Deps,
        iterator: Option<ObjId>,
    ) {
        let (mark, loosened) = (self.trail.changes.len(), self.misuses.loosened());
        self.trail.tracking += 1;
        // The code stands for calls at unknown times relative to each other, like concurrent code: its writes
        // are weak, and it sees all writes.
        self.threads.concurrent += 1;
        let mut given = None;
        let (_, handler, _) = self.guarded(|solver| {
            given = solver.under(deps, true, true, |solver| {
                solver.enter(context, this, args, false, iterator)
            });
            given.is_some()
        });
        self.threads.concurrent -= 1;
        let written = self.forget_private(mark);
        self.trail.tracking -= 1;
        let mut shared = self.contexts[context as usize].shared.take().unwrap_or_default();
        for cell in written {
            self.changed |= shared.writes.insert(cell);
        }
        for cell in self.misuses.loosened_since(loosened) {
            if !self.heap.cells[cell as usize].private {
                self.changed |= shared.loosens.insert(cell);
            }
        }
        if let Some(given) = given {
            self.keep(given);
            self.changed |= self.add_to(&mut shared.result, given);
        }
        if handler.any {
            let thrown = self.dom.union(shared.thrown, handler.thrown);
            self.changed |= thrown != shared.thrown;
            shared.thrown = thrown;
            self.changed |= self.add_to(&mut shared.error, handler.error);
        }
        self.contexts[context as usize].shared = Some(shared);
    }
}
