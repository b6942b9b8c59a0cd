//! Functions that call themselves, or that are called too often to be walked at each of their calls:
//! all of those calls share one context, which is walked once a round.

use super::*;

/// What is known of a context that several calls share.
#[derive(Default)]
pub(super) struct Shared {
    this: Option<Value>,
    args: Args,
    deps: Deps,
    result: Option<Value>,
    thrown: Deps,
    error: Option<Value>,
    writes: HashSet<CellId>,
    /// What is awaited in place of a promise, of what is the same otherwise.
    loosens: HashSet<CellId>,
    /// What decides whether the end of the program comes before the calls in it, if it may.
    cut: Option<Deps>,
    walked: Option<u32>,
    open: bool,
}

/// The deepest nesting in which shared contexts are walked where they are called: whoever looks back at
/// what was written since, looks at all that stands deeper. Further ones are walked afterwards, and what
/// they give is seen in the next round.
const NESTED: usize = 64;

/// In place of the caller, for contexts that calls share.
const ANY_CALLER: u32 = u32::MAX;

/// The functions of the program, and which of them were walked.
#[derive(Default)]
pub(super) struct Functions {
    /// Those of which no call was found.
    pub(super) unseen: Vec<(FuncId, ObjId)>,
    /// Those of them that nothing else calls.
    pub(super) roots: HashSet<FuncId>,
    /// Those of which a call was found.
    pub(super) called: HashSet<FuncId>,
    /// The shared contexts that are still to be walked in this round.
    pub(super) waiting: Vec<(u32, Option<ObjId>)>,
    /// How many instructions were walked in calls of their own.
    pub(super) inlined: usize,
}

impl Functions {
    pub(super) fn begin_round(&mut self) {
        self.waiting.clear();
        self.inlined = 0;
    }
}

impl Solver<'_> {
    /// Calls a function in the context that all such calls share.
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
        // It is walked for one of the calls of a round: what it sees may be different at the others.
        self.keep_object(object);
        let control = self.control_above(0);
        let mut shared = self.contexts[context as usize].shared.take().unwrap_or_default();
        let mut is_new = false;
        let given = this.unwrap_or(Value::NEVER);
        is_new |= self.add_to(&mut shared.this, given);
        for (place, value) in args.list.iter().enumerate() {
            if shared.args.list.len() <= place {
                // The calls before gave nothing there.
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
        let must_walk = !shared.open && shared.walked != Some(self.round);
        if must_walk {
            shared.walked = Some(self.round);
            self.contexts[context as usize].shared = Some(shared);
            if self.acts.len() < NESTED {
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

    /// Walks the shared contexts that were not walked where they were called.
    pub(super) fn walk_waiting(&mut self) {
        while let Some((context, iterator)) = self.functions.waiting.pop() {
            self.walk_open(context, iterator);
        }
    }

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
        self.threads.beside += 1;
        let mut given = None;
        let (_, handler, _) = self.guarded(|solver| {
            given = solver.under(deps, true, true, |solver| {
                solver.enter(context, this, args, false, iterator)
            });
            given.is_some()
        });
        self.threads.beside -= 1;
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
