//! What flows into objects: through the names they have, and through functions
//! that are given them.
//!
//! Within a function, what flows from a parameter or from `this` is named by a
//! stand-in. Whoever calls the function puts what it gives in the place of the
//! stand-in, so that two calls of one function do not share what they are given.

use foldhash::{HashMap, HashSet};

use swc_ecma_ast::{Callee, Expr, ExprOrSpread};

use super::Builder;
use super::alias::Root;
use super::expr::bare;
use super::scope::BindingId;
use super::value::{Deps, Form, FuncId, SiteId, Value};
use crate::diagnostic::Code;

/// What a function is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    This,
    Param(usize),
}

/// The stand-ins of a program.
#[derive(Default)]
pub(super) struct Feeds {
    ids: HashMap<(FuncId, Slot), SiteId>,
    pub(super) slots: Vec<(FuncId, Slot)>,
    /// What flowed into the objects that the calls in progress were given.
    pub(super) fed: Vec<(Slot, Deps)>,
    /// What flowed into `args`, over all rounds.
    pub(super) into_input: Deps,
    /// The variables that have `args` as a whole.
    pub(super) names_of_input: Vec<Root>,
    /// How often something flowed into a name in this round.
    pub(super) flows: u32,
}

/// The most changes of objects, each counted for every name of its object, that
/// one round follows; ordinary programs have some hundreds.
const FLOWS: u32 = 50_000;

impl<'a> Builder<'a> {
    /// Returns the stand-in of what a function is given.
    fn stand_in(&mut self, func: FuncId, slot: Slot) -> Deps {
        let next = Deps::STAND_INS + self.feeds.slots.len() as SiteId;
        let id = *self.feeds.ids.entry((func, slot)).or_insert(next);
        if id == next {
            self.feeds.slots.push((func, slot));
        }
        Deps::one(id)
    }

    /// Returns a value as the function that is given it sees it.
    pub(super) fn as_given(&mut self, func: FuncId, slot: Slot, mut value: Value) -> Value {
        // The parts of an object have results of their own, which are told apart.
        if !value.deps.is_nothing() && (slot == Slot::This || value.parts().is_empty()) {
            value.deps = self.stand_in(func, slot);
        }
        value
    }

    /// Puts what a call gives in the place of a function's stand-ins.
    fn put_given(&self, func: FuncId, deps: &Deps, this: Option<&Value>, given: &[Value]) -> Deps {
        if !deps.has_stand_ins() {
            return deps.clone();
        }
        let mut out = deps.without_sites();
        let mut seen = HashSet::default();
        let mut open: Vec<SiteId> = deps.iter().collect();
        while let Some(site) = open.pop() {
            match self.slot(site) {
                Some((owner, Slot::This)) if owner == func => {
                    if let Some(this) = this {
                        out.add(&this.all_deps());
                    }
                }
                Some((owner, Slot::Param(index))) if owner == func => {
                    if let Some(value) = given.get(index) {
                        out.add(&value.all_deps());
                    }
                }
                // What a function within this one was given came from this one.
                Some((owner, slot)) if self.is_within(owner, func) => {
                    if seen.insert(site) {
                        let given = self.all_given(owner, slot);
                        out.add(&given.without_sites());
                        open.extend(given.iter());
                    }
                }
                _ => out.add(&Deps::one(site)),
            }
        }
        out
    }

    fn is_within(&self, inner: FuncId, outer: FuncId) -> bool {
        let mut id = inner;
        while id != outer && id != super::MAIN {
            id = self.funcs[id as usize].parent;
        }
        id == outer
    }

    /// Returns what a function is given by all of its calls.
    pub(super) fn all_given(&self, func: FuncId, slot: Slot) -> Deps {
        let func = &self.funcs[func as usize];
        match slot {
            Slot::This => func.this.all_deps(),
            Slot::Param(index) => func.params[index].all_deps(),
        }
    }

    fn slot(&self, site: SiteId) -> Option<(FuncId, Slot)> {
        let index = site.checked_sub(Deps::STAND_INS)?;
        self.feeds.slots.get(index as usize).copied()
    }

    /// Ends a call: what it returns, throws and feeds comes from what it was given.
    pub(super) fn given_back(
        &mut self,
        func: FuncId,
        this: Option<&Value>,
        given: &[Value],
    ) -> Value {
        let returned = self.funcs[func as usize].returned.clone();
        let mut returned = returned.map_deps(&|deps| self.put_given(func, deps, this, given));
        let throws = self.funcs[func as usize].throws.as_ref();
        let throws = throws.map(|deps| self.put_given(func, deps, this, given));
        let thrown = self.put_given(func, &self.funcs[func as usize].thrown, this, given);
        self.after_call(func, throws, &thrown, &mut returned);
        for (slot, deps) in self.funcs[func as usize].feeds.clone() {
            let deps = self.put_given(func, &deps, this, given);
            self.feeds.fed.push((slot, deps));
        }
        returned
    }

    /// Walks a call; returns what flowed into the objects that it was given.
    pub(super) fn feeding<R>(
        &mut self,
        walk: impl FnOnce(&mut Self) -> R,
    ) -> (R, Vec<(Slot, Deps)>) {
        let outer = std::mem::take(&mut self.feeds.fed);
        let result = walk(self);
        (result, std::mem::replace(&mut self.feeds.fed, outer))
    }

    /// Lets what flowed into the objects of a call flow into what has them.
    pub(super) fn feed_given(
        &mut self,
        fed: &[(Slot, Deps)],
        receiver: Option<&'a Expr>,
        args: &'a [ExprOrSpread],
    ) {
        for (slot, deps) in fed {
            match slot {
                Slot::This => {
                    if let Some(receiver) = receiver {
                        self.flows_into(receiver, deps);
                    }
                }
                Slot::Param(index) => {
                    if let Some(arg) = args.get(*index).filter(|arg| arg.spread.is_none()) {
                        self.flows_into(&arg.expr, deps);
                    }
                }
            }
        }
    }

    fn feed(&mut self, func: FuncId, slot: Slot, deps: &Deps) {
        let here = self.control.chain.since(&self.funcs[func as usize].entry);
        let deps = deps.clone().and(&here);
        let feeds = &mut self.funcs[func as usize].feeds;
        let at = feeds.iter().position(|(known, _)| *known == slot).unwrap_or_else(|| {
            feeds.push((slot, Deps::default()));
            feeds.len() - 1
        });
        let before = feeds[at].1.clone();
        feeds[at].1.add(&deps);
        if feeds[at].1 != before {
            self.changed = true;
        }
    }

    /// Lets results flow into whatever has the object of an expression.
    pub(super) fn flows_into(&mut self, expr: &'a Expr, deps: &Deps) {
        let mut deps = deps.clone().and(&self.control.local);
        deps.add(&self.choice(expr));
        let open = self.roots(expr, true);
        self.flows(open, &deps, None);
    }

    /// Lets what was put into the object of a variable flow into whatever else has it.
    pub(super) fn flows_on(&mut self, binding: BindingId, deps: &Deps) {
        let deps = deps.clone().and(&self.control.local);
        self.flows(vec![Root::Name(binding)], &deps, Some(binding));
    }

    fn flows(&mut self, mut open: Vec<Root>, deps: &Deps, done: Option<BindingId>) {
        let mut seen: HashSet<Root> = HashSet::default();
        while let Some(root) = open.pop() {
            if !seen.insert(root) {
                continue;
            }
            self.feeds.flows += 1;
            if self.feeds.flows > FLOWS {
                let message = "the objects of this program have too many names and are changed too often; use fewer names";
                self.refuse(Code::TooComplex, message);
                return;
            }
            match root {
                Root::This => {
                    let owner = self.arguments_owner();
                    if owner != super::MAIN {
                        self.feed(owner, Slot::This, deps);
                    }
                }
                Root::Input => {
                    open.extend(&self.feeds.names_of_input);
                    let before = self.feeds.into_input.clone();
                    self.feeds.into_input.add(deps);
                    self.changed |= self.feeds.into_input != before;
                }
                Root::Name(binding) => {
                    open.extend(&self.bindings[binding as usize].aliases);
                    if let Some((func, index)) = self.bindings[binding as usize].param_of {
                        self.feed(func, Slot::Param(index), deps);
                    }
                    if done != Some(binding) {
                        self.flow(binding, deps);
                    }
                }
            }
        }
    }

    /// Returns what decides which object an expression gives.
    fn choice(&mut self, expr: &'a Expr) -> Deps {
        match bare(expr) {
            Expr::Cond(choice) => self.quiet_deps(&choice.test),
            Expr::Bin(binary) if binary.op.may_short_circuit() => self.quiet_deps(&binary.left),
            _ => Deps::default(),
        }
    }

    /// Returns the tasks whose results flow into an expression that was followed already.
    pub(super) fn quiet_deps(&mut self, expr: &'a Expr) -> Deps {
        match bare(expr) {
            Expr::Bin(binary) => {
                let left = self.quiet_deps(&binary.left);
                left.and(&self.quiet_deps(&binary.right))
            }
            Expr::Unary(unary) => self.quiet_deps(&unary.arg),
            Expr::Call(call) => {
                let mut deps = Deps::default();
                if let Callee::Expr(callee) = &call.callee {
                    deps.add(&self.quiet_deps(callee));
                }
                for arg in &call.args {
                    deps.add(&self.quiet_deps(&arg.expr));
                }
                deps
            }
            Expr::Member(member) => self.quiet_deps(&member.obj),
            Expr::Ident(name) => self
                .lookup(&name.sym)
                .map_or_else(Deps::default, |binding| self.read(binding).all_deps()),
            Expr::This(_) => self.this().all_deps(),
            _ => Deps::default(),
        }
    }

    fn flow(&mut self, binding: BindingId, deps: &Deps) {
        let value = self.read(binding);
        if !value.caps().is_empty() || !value.funcs().is_empty() || is_own(&value) {
            self.write(binding, value.with_deps(deps));
            return;
        }
        let form = match &value.form {
            // What was added to a list is not in its place any more.
            Form::Array(_)
            | Form::Items(_)
            | Form::Object { .. }
            | Form::Result(..)
            | Form::Param(_) => {
                for part in value.parts() {
                    self.escape(part, "is kept in a value that is changed");
                }
                weakened(&value, deps)
            }
            form => form.clone(),
        };
        let mut changed = Value::of(form).with_deps(&value.all_deps()).with_deps(deps);
        changed.fails = value.fails.clone();
        self.write(binding, changed);
    }
}

/// Returns what is left of a value when any of its parts may have changed: the
/// names of the fields.
fn weakened(value: &Value, deps: &Deps) -> Form {
    let Form::Object { fields, .. } = &value.form else { return Form::Computed };
    let fields = fields
        .iter()
        .map(|(name, field)| {
            let any = Value::computed(field.all_deps().and(deps)).spanning(field.span);
            (name.clone(), any)
        })
        .collect();
    Form::Object { fields: std::rc::Rc::new(fields), open: true }
}

/// Returns whether a value is an object of a class, which keeps its methods.
fn is_own(value: &Value) -> bool {
    matches!(&value.form, Form::Object { open: true, .. }) && value.is_loaded()
}
