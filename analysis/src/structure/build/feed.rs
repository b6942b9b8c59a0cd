//! What functions are given, seen from within.
//!
//! Within a function, what flows from a parameter or from `this` is named by a
//! stand-in. Whoever calls the function puts what it gives in the place of the
//! stand-in, so that two calls of one function do not share what they are given.

use foldhash::{HashMap, HashSet};

use super::Builder;
use super::alias::Links;
use super::fed::Fed;
use super::value::{Deps, FuncId, SiteId, Value};

/// What a function is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    This,
    Param(usize),
    /// Any argument from this one on.
    Rest(usize),
}

/// The stand-ins of a program.
#[derive(Default)]
pub(super) struct Feeds {
    ids: HashMap<(FuncId, Slot), SiteId>,
    pub(super) slots: Vec<(FuncId, Slot)>,
    /// What flowed into the objects that the calls in progress were given.
    pub(super) fed: Vec<Fed>,
    /// What flowed into `args`, over all rounds.
    pub(super) into_input: Deps,
    /// What is one object, for all that has a name.
    pub(super) links: Links,
    /// The expressions of which all is said that ever will be, and for whom.
    pub(super) described: HashSet<(u32, u32)>,
    /// Whether a function of the program has to do with what an expression gives.
    pub(super) by_functions: bool,
    /// How often something flowed into a name in this round.
    pub(super) flows: u32,
}

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
        if !value.deps.is_nothing() && (slot == Slot::This || value.parts().next().is_none()) {
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
            Slot::Param(index) | Slot::Rest(index) => func.params[index].all_deps(),
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
        for fed in self.funcs[func as usize].feeds.clone() {
            let fed = fed.map_deps(|deps| self.put_given(func, deps, this, given));
            self.feeds.fed.push(fed);
        }
        returned
    }
}
