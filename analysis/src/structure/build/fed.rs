//! What a function does to what it is given, and what its callers make of that.

use foldhash::HashSet;

use swc_ecma_ast::{Expr, ExprOrSpread};

use super::Builder;
use super::alias::{Link, Place, Root};
use super::feed::Slot;
use super::path::{Path, Step};
use super::scope::BindingId;
use super::value::{Deps, Form, FuncId, Value};
use crate::diagnostic::Code;

/// What is done to a part of what a function is given.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fed {
    pub(super) slot: Slot,
    path: Path,
    what: Done,
}

#[derive(Debug, Clone, PartialEq)]
enum Done {
    /// These results flow into it.
    Gets(Deps),
    /// It is called with these results.
    IsCalled(Deps),
    /// It becomes a part of something else that the function is given.
    JoinsGiven { other: Slot, way: Path, copied: bool },
    /// It becomes a part of what others have.
    Joins(Link),
}

impl Fed {
    /// Returns what flows into it.
    pub(super) fn gets(&self) -> Deps {
        match &self.what {
            Done::Gets(deps) => deps.clone(),
            _ => Deps::default(),
        }
    }

    /// Returns what the function gives to a function that it is given.
    pub(super) fn hands_out(&self) -> Deps {
        match (&self.what, self.slot) {
            (Done::Gets(deps) | Done::IsCalled(deps), Slot::Param(_) | Slot::Rest(_)) => {
                deps.clone()
            }
            _ => Deps::default(),
        }
    }

    /// Returns which part of it becomes a part of what others have.
    pub(super) fn joins(&self) -> Option<(&Path, &Link)> {
        match &self.what {
            Done::Joins(link) => Some((&self.path, link)),
            _ => None,
        }
    }

    /// Returns the same with other tasks in the place of its own.
    pub(super) fn map_deps(mut self, map: impl Fn(&Deps) -> Deps) -> Self {
        if let Done::Gets(deps) | Done::IsCalled(deps) = &mut self.what {
            *deps = map(deps);
        }
        self
    }
}

/// The most places of one object that are told apart; of the others it is known only
/// whose parts they are.
const PLACES: usize = 32;
/// The most changes of objects, each counted for every name of its object, that
/// one round follows; ordinary programs have some hundreds.
const FLOWS: u32 = 50_000;
/// The most arguments of which any may be the one that is meant.
const GIVEN: usize = 16;

impl<'a> Builder<'a> {
    /// Walks a call; returns what is done to what it was given.
    pub(super) fn feeding<R>(&mut self, walk: impl FnOnce(&mut Self) -> R) -> (R, Vec<Fed>) {
        let outer = std::mem::take(&mut self.feeds.fed);
        let result = walk(self);
        (result, std::mem::replace(&mut self.feeds.fed, outer))
    }

    /// Does to what a call was given what the function does to it.
    pub(super) fn feed_given(
        &mut self,
        fed: &[Fed],
        receiver: Option<&'a Expr>,
        args: &'a [ExprOrSpread],
    ) {
        self.feed_sources(fed, |slot| match slot {
            Slot::This => receiver.map(|expr| (expr, Path::default())),
            Slot::Param(index) | Slot::Rest(index) => {
                let arg = args.get(index).filter(|arg| arg.spread.is_none())?;
                Some((&*arg.expr, Path::default()))
            }
        });
    }

    /// Does the same where `source` says which part of which expression is given.
    pub(super) fn feed_sources(
        &mut self,
        fed: &[Fed],
        source: impl Fn(Slot) -> Option<(&'a Expr, Path)>,
    ) {
        for Fed { slot, path, what } in fed {
            for (expr, part) in sources(*slot, &source) {
                let part = part.and(path);
                match what {
                    Done::Gets(deps) => self.flows_into_part(expr, &part, deps),
                    Done::IsCalled(deps) => self.calls_with(expr, &part, deps),
                    Done::Joins(link) => {
                        for place in self.places(expr, &part) {
                            self.link(place.root, &place.path, link);
                        }
                    }
                    Done::JoinsGiven { other, way, copied } => {
                        for (other, whole) in sources(*other, &source) {
                            let mut links = self.describe(other, whole.and(way));
                            links.iter_mut().for_each(|link| link.copied |= copied);
                            for place in self.places(expr, &part) {
                                for link in &links {
                                    self.link(place.root, &place.path, link);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn feed(&mut self, func: FuncId, slot: Slot, path: Path, what: Done) {
        // What is done to the list of the other arguments is done to them.
        let (slot, path) = match (slot, path.first()) {
            (Slot::Rest(_), None) => return,
            (Slot::Rest(from), Some(Step::Name(name))) => match name.parse::<usize>() {
                Ok(index) => (Slot::Param(from + index), path.rest()),
                Err(_) => return,
            },
            (Slot::Rest(_), Some(Step::Any)) => (slot, path.rest()),
            _ => (slot, path),
        };
        let here = self.control.chain.since(&self.funcs[func as usize].entry);
        let new = Fed { slot, path, what }.map_deps(|deps| deps.clone().and(&here));
        let feeds = &mut self.funcs[func as usize].feeds;
        let same = |fed: &&mut Fed| fed.slot == new.slot && fed.path == new.path;
        for known in feeds.iter_mut().filter(same) {
            match (&mut known.what, &new.what) {
                (Done::Gets(known), Done::Gets(new))
                | (Done::IsCalled(known), Done::IsCalled(new)) => {
                    let before = known.clone();
                    known.add(new);
                    self.changed |= *known != before;
                    return;
                }
                (known, new) if known == new => return,
                _ => {}
            }
        }
        feeds.push(new);
        self.changed = true;
    }

    /// Keeps that a part of what a function is given is a part of something else.
    pub(super) fn joined_within(&mut self, func: FuncId, root: Root, link: &Link) {
        let place = Place { root, path: link.own.clone() };
        let Some((slot, path)) = self.slot_of(func, &place) else { return };
        match self.slot_of(func, &link.to) {
            Some((other, way)) if (other, &way) != (slot, &path) => {
                let joins = Done::JoinsGiven { other, way, copied: link.copied };
                self.feed(func, slot, path, joins);
            }
            Some(_) => {}
            None => {
                let Root::Name(binding) = link.to.root else { return };
                // A variable of its own is another one in each call.
                if self.bindings[binding as usize].owner != func {
                    let link = Link { own: Path::default(), ..link.clone() };
                    self.feed(func, slot, path, Done::Joins(link));
                }
            }
        }
    }

    /// Lets results flow into whatever has the object of an expression.
    pub(super) fn flows_into(&mut self, expr: &'a Expr, deps: &Deps) {
        self.flows_into_part(expr, &Path::default(), deps);
    }

    /// Lets results flow into whatever has a part of the object of an expression.
    pub(super) fn flows_into_part(&mut self, expr: &'a Expr, part: &Path, deps: &Deps) {
        let mut deps = deps.clone().and(&self.control.local);
        deps.add(&self.choice(expr));
        let open = self.places(expr, part);
        self.flows(open, &deps, None);
    }

    /// Lets what was put into the object of a variable flow into whatever else has it.
    pub(super) fn flows_on(&mut self, binding: BindingId, deps: &Deps) {
        let mut deps = deps.clone().and(&self.control.local);
        deps.add(&self.read(binding).deps);
        let place = Place { root: Root::Name(binding), path: Path::default() };
        self.flows(vec![place], &deps, Some(binding));
    }

    fn flows(&mut self, mut open: Vec<Place>, deps: &Deps, done: Option<BindingId>) {
        let mut seen: HashSet<Place> = HashSet::default();
        while let Some(place) = self.next_place(&mut open, &mut seen) {
            let path = &place.path;
            open.extend(
                self.feeds.links.of(place.root).iter().filter_map(|link| link.follow(path)),
            );
            match place.root {
                Root::This(super::MAIN) => {}
                Root::This(owner) => {
                    self.feed(owner, Slot::This, path.clone(), Done::Gets(deps.clone()));
                }
                Root::Input => {
                    let before = self.feeds.into_input.clone();
                    self.feeds.into_input.add(deps);
                    self.changed |= self.feeds.into_input != before;
                }
                Root::Func(func) => self.call_from_unknown(func, deps, true, true),
                Root::Name(binding) => {
                    if let Some((func, slot, part)) =
                        self.bindings[binding as usize].param_of.clone()
                    {
                        self.feed(func, slot, part.and(path), Done::Gets(deps.clone()));
                    }
                    if done != Some(binding) {
                        self.flow(binding, path, deps);
                    }
                }
            }
        }
    }

    /// Returns the next place that something flows into, unless it was there already.
    fn next_place(&mut self, open: &mut Vec<Place>, seen: &mut HashSet<Place>) -> Option<Place> {
        loop {
            let mut place = open.pop()?;
            if seen.len() >= PLACES && !place.path.is_whole() {
                place.path = Path::of(Step::Deep);
            }
            if !seen.insert(place.clone()) {
                continue;
            }
            self.feeds.flows += 1;
            if self.feeds.flows > FLOWS {
                let message = "the objects of this program have too many names and are changed too often; use fewer names";
                self.refuse(Code::TooComplex, message);
                return None;
            }
            return Some(place);
        }
    }

    /// Lets results flow into the parameters of the functions that may have come to a
    /// place where something is called with them.
    pub(super) fn calls_with(&mut self, expr: &'a Expr, part: &Path, deps: &Deps) {
        if deps.is_nothing() {
            return;
        }
        let mut open = self.places(expr, part);
        let mut seen: HashSet<Place> = HashSet::default();
        while let Some(place) = self.next_place(&mut open, &mut seen) {
            let path = &place.path;
            open.extend(
                self.feeds.links.of(place.root).iter().filter_map(|link| link.follow(path)),
            );
            match place.root {
                Root::Func(func) if path.is_whole() => {
                    self.call_from_unknown(func, deps, true, true);
                }
                Root::This(owner) if owner != super::MAIN => {
                    self.feed(owner, Slot::This, path.clone(), Done::IsCalled(deps.clone()));
                }
                Root::Name(binding) => {
                    if let Some((func, slot, part)) =
                        self.bindings[binding as usize].param_of.clone()
                        && self.may_be_given_functions(func, slot)
                    {
                        self.feed(func, slot, part.and(path), Done::IsCalled(deps.clone()));
                    }
                    if path.is_whole() {
                        for func in self.read(binding).funcs().to_vec() {
                            self.call_from_unknown(func, deps, true, true);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns whether functions are known to be given, or nothing at all is known.
    fn may_be_given_functions(&self, func: FuncId, slot: Slot) -> bool {
        let func = &self.funcs[func as usize];
        let value = match slot {
            Slot::This => &func.this,
            Slot::Param(index) | Slot::Rest(index) => &func.params[index],
        };
        value.form == Form::Never || value.is_loaded()
    }

    fn flow(&mut self, binding: BindingId, path: &Path, deps: &Deps) {
        let value = self.read(binding);
        if !value.caps().is_empty() || !value.funcs().is_empty() || is_own(&value) {
            self.write(binding, value.with_deps(deps));
            return;
        }
        if let (Form::Object { fields, open }, Some(Step::Name(name))) = (&value.form, path.first())
            && let Some(at) = fields.iter().rposition(|(known, _)| **known == **name)
            && !value.partial
        {
            let mut fields = fields.to_vec();
            self.escape(&fields[at].1, "is kept in a value that is changed");
            fields[at].1 = any_of(&fields[at].1, deps);
            let mut changed = Value::object(fields, *open).with_deps(&value.deps);
            changed.fails = value.fails.clone();
            self.write(binding, changed);
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

/// Returns the expressions that give what a slot is given.
fn sources<'a>(
    slot: Slot,
    source: &impl Fn(Slot) -> Option<(&'a Expr, Path)>,
) -> Vec<(&'a Expr, Path)> {
    match slot {
        Slot::Rest(from) => {
            (from..from + GIVEN).filter_map(|index| source(Slot::Param(index))).collect()
        }
        slot => source(slot).into_iter().collect(),
    }
}

/// Returns what is left of a value when any of its parts may have changed: the
/// names of the fields.
fn weakened(value: &Value, deps: &Deps) -> Form {
    let Form::Object { fields, .. } = &value.form else { return Form::Computed };
    let fields = fields.iter().map(|(name, field)| (name.clone(), any_of(field, deps))).collect();
    Form::Object { fields: std::rc::Rc::new(fields), open: true }
}

/// Returns what is left of a field that may have changed.
fn any_of(field: &Value, deps: &Deps) -> Value {
    Value::computed(field.all_deps().and(deps)).spanning(field.span)
}

/// Returns whether a value is an object of a class, which keeps its methods.
fn is_own(value: &Value) -> bool {
    matches!(&value.form, Form::Object { open: true, .. }) && value.is_loaded()
}
