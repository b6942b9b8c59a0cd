//! What decides whether a place is reached, and what is written on the way.

use foldhash::HashMap;
use std::rc::Rc;

use swc_atoms::Atom;

use super::Builder;
use super::finish::RoundKind;
use super::scope::BindingId;
use super::value::{Deps, Value};

/// What governs the place where the walk is.
#[derive(Debug, Clone, Default)]
pub(super) struct Control {
    /// The tasks that must be done before the place is reached.
    pub(super) deps: Deps,
    /// Those of them whose results decide whether, or how often, it is reached.
    pub(super) decides: Deps,
    /// Those of them that decide within the function being walked.
    pub(super) local: Deps,
    /// Those of them that decide within the innermost region that is open.
    pub(super) region: Deps,
    /// All of them, innermost first, for those who ask what was decided since.
    pub(super) chain: Chain,
    /// Whether a run may skip the place.
    pub(super) conditional: bool,
    /// Whether a run may come here any number of times, also none.
    pub(super) repeats: bool,
}

impl Control {
    pub(super) fn add(&mut self, deps: &Deps) {
        self.decides.add(deps);
        self.wait_for(deps);
    }

    /// Adds what governs another place from which the same code is reached.
    pub(super) fn join(&mut self, deps: &Deps, decides: &Deps) {
        let more = deps.beyond(&self.deps);
        if !more.is_nothing() {
            self.deps.add(&more);
            self.chain = self.chain.with(&more);
        }
        self.decides.add(decides);
    }

    /// Adds tasks that come before and decide nothing, as a promise does on its `then`.
    fn wait_for(&mut self, deps: &Deps) {
        if deps.is_nothing() {
            return;
        }
        self.deps.add(deps);
        self.local.add(deps);
        self.region.add(deps);
        self.chain = self.chain.with(deps);
    }
}

/// The conditions that govern a place, one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain(Option<Rc<Link>>);

#[derive(Debug)]
struct Link {
    deps: Deps,
    depth: u32,
    outer: Chain,
}

impl Chain {
    fn depth(&self) -> u32 {
        self.0.as_ref().map_or(0, |link| link.depth)
    }

    fn with(&self, deps: &Deps) -> Self {
        let link = Link { deps: deps.clone(), depth: self.depth() + 1, outer: self.clone() };
        Self(Some(Rc::new(link)))
    }

    /// Returns what decides here and did not yet at another place.
    pub(super) fn since(&self, place: &Self) -> Deps {
        let mut deps = Deps::default();
        let (mut here, mut there) = (self, place);
        while let Some(link) = &here.0 {
            while let Some(other) = &there.0
                && other.depth > link.depth
            {
                there = &other.outer;
            }
            if there.0.as_ref().is_some_and(|other| Rc::ptr_eq(link, other)) {
                break;
            }
            deps.add(&link.deps);
            here = &link.outer;
        }
        deps
    }
}

/// How a statement may end other than by going on to the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct Exit {
    /// By `return`.
    pub(super) returns: bool,
    /// By `throw`.
    pub(super) throws: bool,
    /// By `break` without a label.
    pub(super) breaks: bool,
    /// By `continue` without a label.
    pub(super) continues: bool,
    /// By a jump to these labels.
    pub(super) labels: Vec<Atom>,
    /// Whether it always does.
    pub(super) always: bool,
    /// The tasks whose results decide it.
    pub(super) deps: Deps,
}

impl Exit {
    pub(super) fn may(&self) -> bool {
        self.returns || self.throws || self.breaks || self.continues || !self.labels.is_empty()
    }

    /// Returns whether it always ends, and only by `throw`.
    pub(super) fn only_throws(&self) -> bool {
        let others = self.returns || self.breaks || self.continues || !self.labels.is_empty();
        self.always && self.throws && !others
    }

    /// Adds the ways out of another statement, without its `always`.
    pub(super) fn add(&mut self, other: &Self) {
        self.returns |= other.returns;
        self.throws |= other.throws;
        self.breaks |= other.breaks;
        self.continues |= other.continues;
        for label in &other.labels {
            if !self.labels.contains(label) {
                self.labels.push(label.clone());
            }
        }
        self.deps.add(&other.deps);
    }

    /// Forgets what no longer matters once no way out is left.
    pub(super) fn settle(mut self) -> Self {
        if !self.may() {
            self.always = false;
            self.deps = Deps::default();
        }
        self
    }
}

/// What one branch wrote.
pub(super) type Writes = HashMap<BindingId, Option<Value>>;

impl<'a> Builder<'a> {
    /// Walks under an additional condition.
    pub(super) fn under<R>(
        &mut self,
        deps: &Deps,
        conditional: bool,
        repeats: bool,
        walk: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let before = self.control.clone();
        let pending = self.jumps.pending.clone();
        if conditional || repeats {
            self.control.add(deps);
        } else {
            self.control.wait_for(deps);
        }
        self.control.conditional |= conditional;
        self.control.repeats |= repeats;
        let result = walk(self);
        self.control = before;
        if self.jumps.pending != pending
            && let Some(deps) = &self.jumps.pending
        {
            // What follows in the same statement is reached only if nothing was thrown.
            self.control.add(deps);
            self.control.conditional = true;
        }
        result
    }

    /// Walks one of several branches and takes its writes back.
    pub(super) fn branch<R>(&mut self, walk: impl FnOnce(&mut Self) -> R) -> (R, Writes) {
        let mark = self.trail.len();
        let result = walk(self);
        let mut writes = Writes::default();
        while self.trail.len() > mark {
            let Some((binding, old)) = self.trail.pop() else { break };
            let slot = &mut self.env[binding as usize];
            let new = std::mem::replace(slot, old);
            writes.entry(binding).or_insert(new);
        }
        (result, writes)
    }

    /// Walks code that may be skipped when `skips` is set, as a part of `a?.[b]` may.
    pub(super) fn perhaps<R>(
        &mut self,
        deps: &Deps,
        skips: bool,
        walk: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if !skips {
            return self.under(deps, false, false, walk);
        }
        let (result, writes) = self.branch(|builder| builder.under(deps, true, false, walk));
        self.merge(vec![writes, Writes::default()], deps);
        result
    }

    /// Continues after branches, of which one was taken; `deps` decided which.
    pub(super) fn merge(&mut self, branches: Vec<Writes>, deps: &Deps) {
        #[cfg(test)]
        let branches = super::fault::first_if(super::fault::Fault::Joins, branches);
        let mut bindings: Vec<BindingId> =
            branches.iter().flat_map(|writes| writes.keys().copied()).collect();
        bindings.sort_unstable();
        bindings.dedup();
        for binding in bindings {
            let before = self.env[binding as usize].clone();
            let mut joined: Option<Value> = None;
            for writes in &branches {
                let value = match writes.get(&binding) {
                    Some(value) => value.clone(),
                    None => before.clone(),
                };
                joined = match (joined, value) {
                    (None, value) => value,
                    (joined, None) => joined,
                    (Some(left), Some(right)) => Some(self.join(&left, &right)),
                };
            }
            let joined = joined.map(|value| value.with_deps(deps));
            self.set(binding, joined);
        }
    }

    /// Walks code that can be left in its middle; afterwards every variable may
    /// have its value from before or any that was written.
    /// `walk` returns what decides how far the code goes.
    pub(super) fn region(&mut self, walk: impl FnOnce(&mut Self) -> Deps) {
        for (binding, value) in self.collect(walk) {
            self.set(binding, Some(value));
        }
    }

    /// Walks code that can be left in its middle and returns what the variables
    /// that it writes may hold wherever it is left.
    pub(super) fn collect(
        &mut self,
        walk: impl FnOnce(&mut Self) -> Deps,
    ) -> Vec<(BindingId, Value)> {
        let mark = self.trail.len();
        self.regions.push(HashMap::default());
        let outer = std::mem::take(&mut self.control.region);
        let deps = walk(self);
        self.control.region = outer;
        let written = self.regions.pop().unwrap_or_default();
        // The values from before the region, for those that it wrote.
        let mut old: HashMap<BindingId, Option<Value>> = HashMap::default();
        for (binding, value) in self.trail[mark.min(self.trail.len())..].iter().rev() {
            old.insert(*binding, value.clone());
        }
        let mut written: Vec<_> = written.into_iter().collect();
        written.sort_by_key(|(binding, _)| *binding);
        let mut out = Vec::with_capacity(written.len());
        for (binding, value) in written {
            self.note_in_region(binding, &value);
            // A branch that left the region took its writes back itself.
            let before = match old.remove(&binding) {
                Some(before) => before,
                None => self.env[binding as usize].clone(),
            };
            let after = match before {
                Some(before) => self.join(&before, &value),
                None => value,
            };
            out.push((binding, after.with_deps(&deps)));
        }
        out
    }

    /// Notes a write in the innermost region that is open.
    pub(super) fn note_in_region(&mut self, binding: BindingId, value: &Value) {
        let Some(region) = self.regions.last_mut() else { return };
        let other = region.remove(&binding);
        // Whether it is written at all is part of what the value depends on.
        let value = value.clone().with_deps(&self.control.region);
        let joined = match other {
            Some(other) => self.join(&other, &value),
            None => value,
        };
        if let Some(region) = self.regions.last_mut() {
            region.insert(binding, joined);
        }
    }

    /// Lets what the open region has written so far be seen, as at the start of
    /// a `catch` or a `case`.
    pub(super) fn see_region_writes(&mut self) {
        let Some(region) = self.regions.last() else { return };
        let mut seen: Vec<_> = region.iter().map(|(id, value)| (*id, value.clone())).collect();
        seen.sort_by_key(|(binding, _)| *binding);
        for (binding, value) in seen {
            let after = match self.env[binding as usize].clone() {
                Some(now) => self.join(&now, &value),
                None => value,
            };
            self.set(binding, Some(after));
        }
    }

    /// Walks a loop's body with what an earlier round of it may have written.
    pub(super) fn looped(&mut self, key: u32, walk: impl FnOnce(&mut Self) -> Deps) {
        self.region(|builder| {
            builder.see_carried_writes(key);
            let deps = walk(builder);
            builder.carry_writes(key);
            deps
        });
    }

    /// Sees what the last round found to be written at a place that stands later.
    pub(super) fn see_carried_writes(&mut self, key: u32) {
        #[cfg(test)]
        if super::fault::is(super::fault::Fault::CarriedWrites) {
            return;
        }
        let mut carried: Vec<_> = self
            .loop_writes
            .get(&(self.context, key))
            .map(|writes| writes.iter().map(|(id, value)| (*id, value.clone())).collect())
            .unwrap_or_default();
        carried.sort_by_key(|(binding, _)| *binding);
        for (binding, value) in carried {
            let entry = match self.env[binding as usize].clone() {
                Some(now) => self.join(&now, &value),
                None => value,
            };
            self.set(binding, Some(entry));
        }
    }

    /// Keeps what the region in progress writes for [`Self::see_carried_writes`].
    pub(super) fn carry_writes(&mut self, key: u32) {
        let written = self.regions.last().cloned().unwrap_or_default();
        let known = self.loop_writes.entry((self.context, key)).or_default();
        if *known != written {
            *known = written;
            self.changed = true;
        }
    }

    /// Walks the parts of a structure node; the node is kept if a task is in it.
    pub(super) fn node<R>(&mut self, kind: RoundKind, walk: impl FnOnce(&mut Self) -> R) -> R {
        let id = self.add_node(kind);
        let (parent, branch) = (self.parent, self.branch.take());
        self.parent = Some(id);
        let result = walk(self);
        (self.parent, self.branch) = (parent, branch);
        result
    }

    /// Walks one of the ways out of the node that is open.
    pub(super) fn way<R>(&mut self, name: &str, walk: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.branch.replace(name.into());
        let result = walk(self);
        self.branch = before;
        result
    }
}
