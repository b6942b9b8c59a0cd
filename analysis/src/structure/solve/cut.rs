//! What the end of the program cuts off.
//!
//! A `return` at the top level ends the run at once: code that still runs concurrently then is cut off at its
//! next wait, and a call that is not yet sent may never be. So what decides on that `return` also decides on
//! the calls that such code makes after its next wait. The exceptions are promises for which the program has
//! surely waited, and those in its result.

use super::*;
use crate::structure::domain::{Birth, Kind, Origin, Prim, Ref};

/// A promise that concurrent code settles and for which the program has not surely waited.
pub(super) struct Open {
    /// Where that code was started.
    birth: Birth,
    /// A promise that is settled only after this one, because its code waits for this one. Waiting for it
    /// implies that this one is settled.
    implied_by: Option<ObjId>,
    /// What decides whether a wait for it ended early, by the failure of another promise (`Promise.all`).
    failed: Deps,
    /// Whether the site makes a chain of promises: the code of each one waits for the one before it.
    chained: bool,
}

/// A call of a tool for whose answer the program has not surely waited: the program may end before the call is
/// sent.
struct Sent {
    /// Where the call is made.
    birth: Birth,
    /// A promise that is settled only after the answer.
    implied_by: Option<ObjId>,
    /// The promise of the code that makes the call.
    thread: Option<ObjId>,
}

/// What is surely settled once a value is.
#[derive(Default)]
struct Settled {
    /// The promises, each with whether it is the value itself and not a part of it.
    promises: Vec<(ObjId, bool)>,
    /// The calls of tools.
    calls: Vec<SiteId>,
}

/// The threads and calls of this round that the end of the program may cut off.
#[derive(Default)]
pub(super) struct Cuts {
    /// The promises not surely settled at the current point.
    open: HashMap<ObjId, Open>,
    /// Promises that are awaited on one way of a choice only, each with the level of that way: under this
    /// level, they are settled.
    closed: Vec<(ObjId, u32)>,
    /// The calls not surely sent at the current point.
    sent: HashMap<SiteId, Sent>,
    /// Calls that are surely sent on one way of a choice only, each with the level of that way.
    flushed: Vec<(SiteId, u32)>,
    /// The promises made in chains; see [`Open::chained`].
    chained: HashSet<ObjId>,
    /// The promise that the current code settles; none for the program itself.
    thread: Option<ObjId>,
    /// What decides whether the current code is cut off at its next wait, if it may be.
    next: Option<Deps>,
    /// What decides whether it was cut off before the current point, if it may have been.
    now: Option<Deps>,
}

/// The state of the enclosing thread, saved while another one is walked.
pub(super) struct SavedCut {
    /// See [`Cuts`].
    thread: Option<ObjId>,
    /// See [`Cuts`].
    next: Option<Deps>,
    /// See [`Cuts`].
    now: Option<Deps>,
}

impl Solver<'_> {
    /// Begins the walk of the code that settles a promise or feeds an iterator. `late` if the code only starts
    /// after a wait, as a callback of `then` does.
    pub(super) fn begin_cut(&mut self, object: ObjId, late: bool) -> SavedCut {
        let is_promise = self.heap.objects[object as usize].kind == Kind::Promise;
        let own = self.promises.cuts.get(&object).copied();
        let thread = is_promise.then_some(object);
        let now =
            if late { self.either(self.threads.cuts.now, own) } else { self.threads.cuts.now };
        self.swap_cut(SavedCut { thread, next: own, now })
    }

    /// Ends what `begin_cut` began.
    pub(super) fn end_cut(&mut self, around: SavedCut) {
        let _ = self.swap_cut(around);
    }

    /// Sets the state of the current thread; returns the old one.
    fn swap_cut(&mut self, new: SavedCut) -> SavedCut {
        let cuts = &mut self.threads.cuts;
        SavedCut {
            thread: std::mem::replace(&mut cuts.thread, new.thread),
            next: std::mem::replace(&mut cuts.next, new.next),
            now: std::mem::replace(&mut cuts.now, new.now),
        }
    }

    /// Records that concurrent code settles a promise from here on.
    pub(super) fn note_open(&mut self, promise: ObjId, birth: Birth) {
        let chained = self.threads.cuts.chained.contains(&promise);
        let open = Open { birth, implied_by: None, failed: NONE, chained };
        self.threads.cuts.open.insert(promise, open);
    }

    /// Records a wait: from here on, the current thread may have been cut off.
    pub(super) fn note_wait(&mut self) {
        self.threads.cuts.now = self.either(self.threads.cuts.now, self.threads.cuts.next);
    }

    /// Returns what decides whether the program has ended before the current point, if it may have.
    pub(super) fn cut_here(&mut self) -> Option<Deps> {
        let (now, next) = (self.threads.cuts.now, self.threads.cuts.next);
        // In a loop, a wait later in the body comes before this point in the next turn.
        let turns = self.levels.iter().skip(self.threads.level).any(|one| one.turns || one.many);
        if turns { self.either(now, next) } else { now }
    }

    /// Returns what decides whether the current thread is cut off at any point, if it may be.
    pub(super) fn cut_ever(&mut self) -> Option<Deps> {
        self.either(self.threads.cuts.now, self.threads.cuts.next)
    }

    /// Adds to what decides whether the code of a promise or an iterator is cut off.
    pub(super) fn add_cut(&mut self, object: ObjId, deps: Option<Deps>) {
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

    /// Records that something may be cut off; returns whether that is learned in this round. It is learned only
    /// once everything else is stable: in early rounds, a wait may not yet be recognized as the wait for a
    /// promise.
    fn learns_cut(&mut self) -> bool {
        self.promises.is_cut = true;
        self.promises.learns_cuts
    }

    /// Called when nothing new is learned: returns whether cut-offs were found that are to be learned from now
    /// on.
    pub(super) fn recheck_ends(&mut self) -> bool {
        let is_new = self.promises.is_cut && !self.promises.learns_cuts;
        self.promises.learns_cuts |= is_new;
        is_new
    }

    /// Joins two conditions, where `None` means never.
    pub(super) fn either(&mut self, one: Option<Deps>, other: Option<Deps>) -> Option<Deps> {
        match (one, other) {
            (Some(one), Some(other)) => Some(self.dom.union(one, other)),
            (one, other) => one.or(other),
        }
    }

    /// Walks code that runs whenever others drive it (generators, shared contexts), so that its waits belong to
    /// no thread.
    pub(super) fn cut_by<T>(&mut self, cut: Option<Deps>, walk: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.swap_cut(SavedCut { thread: None, next: cut, now: cut });
        let walked = walk(self);
        let _ = self.swap_cut(around);
        walked
    }

    /// Records that the promises of a value are settled before what follows in this thread, or before the
    /// promise `chain` is. `fails` is set if a wait for several of them may end early by a failure that is
    /// handled.
    pub(super) fn note_settled(&mut self, value: Value, fails: Option<Deps>, chain: Option<ObjId>) {
        let mut settled = Settled::default();
        self.add_chained(value, &mut settled);
        if self.threads.cuts.open.is_empty() && self.threads.cuts.sent.is_empty() {
            return;
        }
        let implied_by = chain.or(self.threads.cuts.thread);
        let chained = settled;
        let mut settled = self.settled_with(value);
        settled.promises.extend(chained.promises);
        let is_answer = settled.calls.iter().any(|site| self.threads.cuts.sent.contains_key(site));
        // A promise that others settle by its resolvers is settled after some answer or timer.
        let is_later = |one: &(ObjId, bool)| {
            self.threads.cuts.open.contains_key(&one.0)
                || self.heap.find(one.0, self.known.done).is_some()
        };
        let is_later = settled.promises.iter().any(is_later);
        let is_of_code = |one: &(ObjId, bool)| self.threads.cuts.open.contains_key(&one.0);
        // Concurrent code may fail before any answer comes.
        let is_sure = fails.is_none() || !settled.promises.iter().any(is_of_code);
        if chain.is_none() && is_sure && (is_answer || is_later) {
            self.note_answer();
        }
        // This thread has the answers once it goes on, and its own promise is settled later still.
        if let Some(implied_by) = implied_by {
            for site in &settled.calls {
                if let Some(sent) = self.threads.cuts.sent.get_mut(site) {
                    sent.implied_by = Some(implied_by);
                }
            }
        }
        for (promise, is_itself) in settled.promises {
            let Some(birth) = self.threads.cuts.open.get(&promise).map(|open| open.birth) else {
                continue;
            };
            // One of several promises of this site: the others may still be open.
            if is_itself && !self.is_one(promise) && !self.threads.cuts.chained.contains(&promise) {
                continue;
            }
            let fails = fails.filter(|_| !is_itself);
            // Awaited under a condition: it is settled under this level only.
            if self.may_since(birth) {
                if fails.is_none() && implied_by.is_none() && self.threads.concurrent == 0 {
                    let level = self.levels.last().map_or(0, |level| level.id);
                    self.threads.cuts.closed.push((promise, level));
                }
                continue;
            }
            if let Some(fails) = fails {
                if let Some(open) = self.threads.cuts.open.get_mut(&promise) {
                    open.failed = self.dom.union(open.failed, fails);
                }
            } else if implied_by.is_some() {
                if let Some(open) = self.threads.cuts.open.get_mut(&promise) {
                    open.implied_by = implied_by;
                }
            } else if self.threads.concurrent == 0 {
                self.threads.cuts.open.remove(&promise);
            }
        }
    }

    /// Recognizes `last = step(last)`: a thread that awaits another promise of its own allocation site.
    /// Settling the newest promise of such a chain settles all of them.
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

    /// Returns what is surely settled once a value is.
    fn settled_with(&mut self, value: Value) -> Settled {
        let mut found = Settled::default();
        let mut seen: HashSet<ObjId> = HashSet::default();
        let mut open = vec![(value, true)];
        while let Some((value, is_itself)) = open.pop() {
            let shape = self.dom.shapes.kept(value.shape);
            // If the value may be one of several promises, none of them is surely settled.
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
                // `race` and `any` are settled with their first promise; the others may be open.
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

    /// Walks the end of the program: everything that still runs is cut off, except for the promises in the
    /// result.
    pub(super) fn ends_program(&mut self, result: Option<Value>) {
        if !self.core.ends_at_return {
            return;
        }
        let mut deps = NONE;
        for own in [self.control_above(0), self.time.when, self.time.clock] {
            deps = self.dom.union(deps, own);
        }
        let deps = self.dom.sources.used(deps);
        self.nothing_after(deps);
        let (mut given, mut calls) = (HashSet::default(), Vec::new());
        if let Some(result) = result {
            (given, calls) = self.handed_out(result);
        }
        let promises: Vec<ObjId> = self.threads.cuts.open.keys().copied().collect();
        for promise in promises {
            if let Some(failed) = self.is_running(promise, &given) {
                let deps = self.dom.union(deps, failed);
                self.add_cut(promise, Some(deps));
            }
        }
        let sent = self.threads.cuts.sent.iter().map(|(site, sent)| (*site, sent.implied_by));
        let sent: Vec<(SiteId, Option<ObjId>)> = sent.collect();
        for (site, implied_by) in sent {
            // A conditional wait counts only under the level at which it happened.
            let is_open = |level: u32| self.levels.iter().any(|one| one.id == level);
            let is_sent = |one: &(SiteId, u32)| one.0 == site && is_open(one.1);
            if calls.contains(&site) || self.threads.cuts.flushed.iter().any(is_sent) {
                continue;
            }
            let running = match implied_by {
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

    /// Records that a call of a tool is made here; `wait` if this thread awaits the answer. Returns what
    /// decides whether the program ends before the call is sent, if it may.
    pub(super) fn note_call(&mut self, site: SiteId, wait: bool) -> Option<Deps> {
        let known = self.promises.unsent.get(&site).copied();
        if wait && self.threads.concurrent == 0 && self.threads.cuts.thread.is_none() {
            // The program itself waits for the answer, so the call is surely sent.
            self.note_answer();
            return known;
        }
        let (birth, thread) = (self.birth(), self.threads.cuts.thread);
        if wait {
            self.note_answer();
        }
        let implied_by = thread.filter(|_| wait);
        self.threads.cuts.sent.insert(site, Sent { birth, implied_by, thread });
        known
    }

    /// Records that the current thread waits for an answer of a tool. Calls are sent in order, so all calls
    /// made before are sent by then.
    fn note_answer(&mut self) {
        if let Some(thread) = self.threads.cuts.thread {
            // The promise of this thread is settled after the answers to all calls that it made so far.
            for sent in self.threads.cuts.sent.values_mut() {
                if sent.thread == Some(thread) {
                    sent.implied_by = Some(thread);
                }
            }
            return;
        }
        if self.threads.concurrent > 0 {
            return;
        }
        let level = self.levels.last().map_or(0, |level| level.id);
        let sent = std::mem::take(&mut self.threads.cuts.sent);
        for (site, sent) in sent {
            // This wait is conditional, given the call.
            if self.may_since(sent.birth) {
                self.threads.cuts.flushed.push((site, level));
                self.threads.cuts.sent.insert(site, sent);
            }
        }
    }

    /// Returns the promises and calls in the program's result, for which its end waits.
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

    /// Returns what else decides whether a promise is still open at the end of the program; `None` if it surely
    /// is not. Follows the chain of promises that are settled after it: if one of these was awaited, it is
    /// settled.
    fn is_running(&mut self, promise: ObjId, given: &HashSet<ObjId>) -> Option<Deps> {
        let mut deps = NONE;
        let mut at = promise;
        // The bound breaks cycles.
        for _ in 0..self.threads.cuts.open.len() {
            let open = self.threads.cuts.open.get(&at)?;
            let is_open = |level: u32| self.levels.iter().any(|one| one.id == level);
            let is_closed = |one: &(ObjId, u32)| one.0 == at && is_open(one.1);
            if given.contains(&at) || self.threads.cuts.closed.iter().any(is_closed) {
                return None;
            }
            deps = self.dom.union(deps, open.failed);
            match open.implied_by {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(deps)
    }
}
