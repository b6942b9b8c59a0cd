//! What the end of the program cuts off: whatever runs beside it then, after the wait that it stands at.

use super::*;
use crate::structure::domain::{Birth, Kind, Origin, Prim, Ref};

/// A promise that code beside the program settles, and for which the program has not surely waited.
pub(super) struct Open {
    /// Where that code began to run.
    birth: Birth,
    /// The promise that is settled after this one.
    before: Option<ObjId>,
    /// What decides whether the wait for it ended early, by the failure of another.
    failed: Deps,
    /// Whether each of several waits for the one before.
    chained: bool,
}

/// A call whose answer the program has not surely waited for: its end may come before the call is sent.
struct Sent {
    birth: Birth,
    /// The promise that is settled after the answer.
    before: Option<ObjId>,
    /// The promise that the code which makes the call settles.
    thread: Option<ObjId>,
}

/// What is settled when a value is.
#[derive(Default)]
struct Settled {
    /// Promises, and which of them are that value.
    promises: Vec<(ObjId, bool)>,
    calls: Vec<SiteId>,
}

/// What is cut off where, in the round in progress.
#[derive(Default)]
pub(super) struct Cuts {
    open: HashMap<ObjId, Open>,
    /// Those that are waited for on one way of a choice, with the level of that way.
    closed: Vec<(ObjId, u32)>,
    sent: HashMap<SiteId, Sent>,
    /// The levels of the ways on which all calls are sent.
    flushed: Vec<(SiteId, u32)>,
    /// Those of which each is given the one before, and waits for it.
    chained: HashSet<ObjId>,
    /// The promise that the code which is walked settles.
    thread: Option<ObjId>,
    /// What decides whether that code is cut off at its next wait, if it may be.
    next: Option<Deps>,
    /// What decides whether it was cut off before this place, if it may have been.
    now: Option<Deps>,
}

/// What was so around a thread.
pub(super) struct Around {
    thread: Option<ObjId>,
    next: Option<Deps>,
    now: Option<Deps>,
}

impl Solver<'_> {
    /// Begins to walk what settles a promise or gives what an iterator does; `late` if others have waited before that.
    pub(super) fn begin_cut(&mut self, object: ObjId, late: bool) -> Around {
        let is_promise = self.heap.objects[object as usize].kind == Kind::Promise;
        let own = self.promises.cuts.get(&object).copied();
        let thread = is_promise.then_some(object);
        let now =
            if late { self.either(self.threads.cuts.now, own) } else { self.threads.cuts.now };
        self.swap_cut(Around { thread, next: own, now })
    }

    /// Ends what `begin_cut` began.
    pub(super) fn end_cut(&mut self, around: Around) {
        let _ = self.swap_cut(around);
    }

    fn swap_cut(&mut self, new: Around) -> Around {
        let cuts = &mut self.threads.cuts;
        Around {
            thread: std::mem::replace(&mut cuts.thread, new.thread),
            next: std::mem::replace(&mut cuts.next, new.next),
            now: std::mem::replace(&mut cuts.now, new.now),
        }
    }

    /// Notes that a promise is settled by what runs beside the program from here on.
    pub(super) fn opens(&mut self, promise: ObjId, birth: Birth) {
        let chained = self.threads.cuts.chained.contains(&promise);
        let open = Open { birth, before: None, failed: NONE, chained };
        self.threads.cuts.open.insert(promise, open);
    }

    /// Notes that what follows in this thread follows a wait.
    pub(super) fn has_waited(&mut self) {
        self.threads.cuts.now = self.either(self.threads.cuts.now, self.threads.cuts.next);
    }

    /// Returns what decides whether a return of the program comes before this place, if one may.
    pub(super) fn cut_here(&mut self) -> Option<Deps> {
        let (now, next) = (self.threads.cuts.now, self.threads.cuts.next);
        // The turn before may have waited.
        let turns = self.levels.iter().skip(self.threads.level).any(|one| one.turns || one.many);
        if turns { self.either(now, next) } else { now }
    }

    /// Returns what decides whether this thread is cut off at all, if it may be.
    pub(super) fn cut_ever(&mut self) -> Option<Deps> {
        self.either(self.threads.cuts.now, self.threads.cuts.next)
    }

    /// Notes what decides whether something is cut off.
    pub(super) fn cuts(&mut self, object: ObjId, deps: Option<Deps>) {
        let before = self.promises.cuts.get(&object).copied();
        let all = self.either(before, deps);
        if let Some(own) = all
            && all != before
            && self.learns_cut()
        {
            self.promises.cuts.insert(object, own);
            self.changed = true;
        }
    }

    /// Returns whether what is cut off is learned yet: before all else is known, a wait may not be seen to be one.
    fn learns_cut(&mut self) -> bool {
        self.promises.is_cut = true;
        self.promises.learns_cuts
    }

    /// When nothing new is learned: something may be cut off. Returns whether that is to be learned now.
    pub(super) fn doubt_ends(&mut self) -> bool {
        let is_new = self.promises.is_cut && !self.promises.learns_cuts;
        self.promises.learns_cuts |= is_new;
        is_new
    }

    pub(super) fn either(&mut self, one: Option<Deps>, other: Option<Deps>) -> Option<Deps> {
        match (one, other) {
            (Some(one), Some(other)) => Some(self.dom.union(one, other)),
            (one, other) => one.or(other),
        }
    }

    /// Walks something in which waits are nobody's, as it runs when others ask for it.
    pub(super) fn cut_by<T>(&mut self, cut: Option<Deps>, walk: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.swap_cut(Around { thread: None, next: cut, now: cut });
        let walked = walk(self);
        let _ = self.swap_cut(around);
        walked
    }

    /// Notes that the promises of a value are settled before what follows in this thread, or before that of `chain`.
    /// `fails` decides whether a promise for several of them fails first, and the failure is seen.
    pub(super) fn closes(&mut self, value: Value, fails: Option<Deps>, chain: Option<ObjId>) {
        let mut settled = Settled::default();
        self.add_chained(value, &mut settled);
        if self.threads.cuts.open.is_empty() && self.threads.cuts.sent.is_empty() {
            return;
        }
        let before = chain.or(self.threads.cuts.thread);
        let chained = settled;
        let mut settled = self.settled_with(value);
        settled.promises.extend(chained.promises);
        let is_answer = settled.calls.iter().any(|site| self.threads.cuts.sent.contains_key(site));
        // A promise that others settle is settled after an answer or a timer.
        let is_later = |one: &(ObjId, bool)| {
            self.threads.cuts.open.contains_key(&one.0)
                || self.heap.find(one.0, self.known.done).is_some()
        };
        let is_later = settled.promises.iter().any(is_later);
        // Code beside the program may fail before any answer.
        let is_of_code = |one: &(ObjId, bool)| self.threads.cuts.open.contains_key(&one.0);
        let is_sure = fails.is_none() || !settled.promises.iter().any(is_of_code);
        if chain.is_none() && is_sure && (is_answer || is_later) {
            self.has_answer();
        }
        if let Some(before) = before {
            for site in &settled.calls {
                if let Some(sent) = self.threads.cuts.sent.get_mut(site) {
                    sent.before = Some(before);
                }
            }
        }
        for (promise, is_itself) in settled.promises {
            let Some(birth) = self.threads.cuts.open.get(&promise).map(|open| open.birth) else {
                continue;
            };
            if is_itself && !self.is_one(promise) && !self.threads.cuts.chained.contains(&promise) {
                continue;
            }
            let fails = fails.filter(|_| !is_itself);
            if self.may_since(birth) {
                if fails.is_none() && before.is_none() && self.threads.beside == 0 {
                    let level = self.levels.last().map_or(0, |level| level.id);
                    self.threads.cuts.closed.push((promise, level));
                }
                continue;
            }
            if let Some(fails) = fails {
                if let Some(open) = self.threads.cuts.open.get_mut(&promise) {
                    open.failed = self.dom.union(open.failed, fails);
                }
            } else if before.is_some() {
                if let Some(open) = self.threads.cuts.open.get_mut(&promise) {
                    open.before = before;
                }
            } else if self.threads.beside == 0 {
                self.threads.cuts.open.remove(&promise);
            }
        }
    }

    /// Adds the promise of which each waits for the one before, and notes that this one does.
    fn add_chained(&mut self, value: Value, settled: &mut Settled) {
        let shape = self.dom.shapes.kept(value.shape);
        if shape.refs.len() < 2 || shape.prim != Prim::None {
            return;
        }
        let thread = self.threads.cuts.thread;
        for one in &shape.refs {
            let Ref::Obj(object) = one else { continue };
            if thread == Some(*object) {
                self.threads.cuts.chained.insert(*object);
            } else if self.threads.cuts.open.get(object).is_some_and(|open| open.chained) {
                settled.promises.push((*object, true));
            }
        }
    }

    /// Returns what is settled when a value is.
    fn settled_with(&mut self, value: Value) -> Settled {
        let mut found = Settled::default();
        let mut seen: HashSet<ObjId> = HashSet::default();
        let mut open = vec![(value, true)];
        while let Some((value, is_itself)) = open.pop() {
            let shape = self.dom.shapes.kept(value.shape);
            // One of several, or none, is not surely this one.
            if is_itself && (shape.refs.len() != 1 || shape.prim != Prim::None || shape.absent) {
                continue;
            }
            for one in &shape.refs {
                if let Ref::Data(object, _) = one
                    && let Kind::Data(Origin::Task(site)) = self.heap.objects[*object as usize].kind
                {
                    found.calls.push(site);
                }
                let Ref::Obj(object) = one else { continue };
                let kind = self.heap.objects[*object as usize].kind;
                if !seen.insert(*object) || !matches!(kind, Kind::Promise | Kind::Array) {
                    continue;
                }
                let is_first = self.heap.find(*object, self.known.target).is_some();
                if kind == Kind::Promise {
                    found.promises.push((*object, is_itself));
                }
                // Of a race, the first is enough.
                if !is_first {
                    let elem = self.heap.find(*object, self.known.elem);
                    let cells: Vec<CellId> = match kind {
                        Kind::Promise => elem.into_iter().collect(),
                        _ => self.heap.objects[*object as usize].keys.iter().map(|k| k.1).collect(),
                    };
                    open.extend(cells.into_iter().map(|cell| (self.now(cell), false)));
                }
            }
        }
        found
    }

    /// Notes that the program ends here with a result: its promises are waited for, and nothing else is.
    pub(super) fn ends_program(&mut self, result: Option<Value>) {
        if !self.core.ends_at_return {
            return;
        }
        let mut deps = NONE;
        for own in [self.control_above(0), self.time.when, self.time.clock] {
            deps = self.dom.union(deps, own);
        }
        let deps = self.dom.sources.used(deps);
        self.no_timer_after(deps);
        let (mut given, mut calls) = (HashSet::default(), Vec::new());
        if let Some(result) = result {
            (given, calls) = self.handed_out(result);
        }
        let promises: Vec<ObjId> = self.threads.cuts.open.keys().copied().collect();
        for promise in promises {
            if let Some(failed) = self.is_running(promise, &given) {
                let deps = self.dom.union(deps, failed);
                self.cuts(promise, Some(deps));
            }
        }
        let sent = self.threads.cuts.sent.iter().map(|(site, sent)| (*site, sent.before));
        let sent: Vec<(SiteId, Option<ObjId>)> = sent.collect();
        for (site, before) in sent {
            let is_open = |level: u32| self.levels.iter().any(|one| one.id == level);
            let is_sent = |one: &(SiteId, u32)| one.0 == site && is_open(one.1);
            if calls.contains(&site) || self.threads.cuts.flushed.iter().any(is_sent) {
                continue;
            }
            let running = match before {
                Some(promise) => self.is_running(promise, &given),
                None => Some(NONE),
            };
            let Some(running) = running else { continue };
            let known = self.promises.unsent.get(&site).copied();
            let own = self.dom.union(deps, running);
            let all = self.either(known, Some(own));
            if all != known && self.learns_cut() {
                self.promises.unsent.insert(site, all.unwrap_or(NONE));
                self.changed = true;
            }
        }
    }

    /// Notes that a call is made here; `wait` if this thread waits for its answer.
    pub(super) fn sends(&mut self, site: SiteId, wait: bool) -> Option<Deps> {
        let known = self.promises.unsent.get(&site).copied();
        if wait && self.threads.beside == 0 && self.threads.cuts.thread.is_none() {
            self.has_answer();
            return known;
        }
        let (birth, thread) = (self.birth(), self.threads.cuts.thread);
        if wait {
            self.has_answer();
        }
        let before = thread.filter(|_| wait);
        self.threads.cuts.sent.insert(site, Sent { birth, before, thread });
        known
    }

    /// Notes that the program waits here for an answer: all calls before it are sent.
    fn has_answer(&mut self) {
        if let Some(thread) = self.threads.cuts.thread {
            // Once that is settled, so is what it waits for here.
            for sent in self.threads.cuts.sent.values_mut() {
                if sent.thread == Some(thread) {
                    sent.before = Some(thread);
                }
            }
            return;
        }
        if self.threads.beside > 0 {
            return;
        }
        let level = self.levels.last().map_or(0, |level| level.id);
        let sent = std::mem::take(&mut self.threads.cuts.sent);
        for (site, sent) in sent {
            if self.may_since(sent.birth) {
                self.threads.cuts.flushed.push((site, level));
                self.threads.cuts.sent.insert(site, sent);
            }
        }
    }

    /// Returns the promises and the calls that stand in the result.
    fn handed_out(&mut self, result: Value) -> (HashSet<ObjId>, Vec<SiteId>) {
        let (mut promises, mut calls) = (HashSet::default(), Vec::new());
        let mut seen: HashSet<ObjId> = HashSet::default();
        let mut open = vec![result];
        while let Some(value) = open.pop() {
            let own = self.settled_with(value);
            calls.extend(own.calls);
            for (promise, is_itself) in own.promises {
                if !is_itself || self.is_one(promise) {
                    promises.insert(promise);
                }
            }
            let shape = self.dom.shapes.kept(value.shape);
            if let [Ref::Obj(object)] = shape.refs.as_slice()
                && self.heap.objects[*object as usize].kind == Kind::Plain
                && seen.insert(*object)
            {
                let cells = &self.heap.objects[*object as usize].keys;
                open.extend(cells.iter().map(|(_, cell)| self.now(*cell)));
            }
        }
        (promises, calls)
    }

    /// Returns what more decides whether a promise is still to be settled, if it may be.
    fn is_running(&mut self, promise: ObjId, given: &HashSet<ObjId>) -> Option<Deps> {
        let mut deps = NONE;
        let mut at = promise;
        for _ in 0..self.threads.cuts.open.len() {
            let open = self.threads.cuts.open.get(&at)?;
            let is_open = |level: u32| self.levels.iter().any(|one| one.id == level);
            let is_closed = |one: &(ObjId, u32)| one.0 == at && is_open(one.1);
            if given.contains(&at) || self.threads.cuts.closed.iter().any(is_closed) {
                return None;
            }
            deps = self.dom.union(deps, open.failed);
            match open.before {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(deps)
    }
}
