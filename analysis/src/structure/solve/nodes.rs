//! The parts of the program that people see around its calls: choices, loops, and what is in flight
//! together. A part is noted when the first call in it is found; one that governs no call never is.

use super::*;
use crate::structure::core::{Branch, Extent};

/// A part of the program, or a call in it.
#[derive(Debug)]
pub(in crate::structure) struct FoundNode {
    pub(in crate::structure) parent: Option<u32>,
    pub(in crate::structure) branch: Option<Branch>,
    pub(in crate::structure) kind: FoundKind,
}

/// What a part of the program is.
#[derive(Debug, Clone, Copy)]
pub(in crate::structure) enum FoundKind {
    /// A call, by its place among the calls.
    Task(usize),
    /// A call that stands elsewhere.
    Moved,
    Decision {
        test: Extent,
        deps: Deps,
    },
    Loop {
        over: Extent,
        deps: Deps,
    },
    Fork {
        how: &'static str,
    },
    Join {
        fork: u32,
    },
}

/// A part whose end is not reached yet.
struct Open {
    kind: FoundKind,
    /// Which way of it is walked.
    way: Option<Branch>,
    /// Its number, once a call in it was found.
    number: Option<u32>,
}

/// The parts of one round.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) found: Vec<FoundNode>,
    open: Vec<Open>,
    /// Where each call was noted, and in how many functions that call themselves.
    tasks: Vec<(usize, usize)>,
}

impl Nodes {
    /// Notes a call, by its place among the calls, and all that stands around it.
    ///
    /// A function that calls itself may do so before it makes the call; it stands where it is made without that.
    fn note(&mut self, place: usize, recursion: usize) {
        let known = self.tasks.get(place).copied();
        if let Some((at, before)) = known {
            if before <= recursion {
                return;
            }
            if let Some(node) = self.found.get_mut(at) {
                node.kind = FoundKind::Moved;
            }
        }
        let (mut parent, mut branch) = (None, None);
        for open in &mut self.open {
            let number = *open.number.get_or_insert_with(|| {
                self.found.push(FoundNode { parent, branch, kind: open.kind });
                self.found.len() as u32 - 1
            });
            (parent, branch) = (Some(number), open.way);
        }
        let noted = (self.found.len(), recursion);
        match self.tasks.get_mut(place) {
            Some(known) => *known = noted,
            None => self.tasks.push(noted),
        }
        self.found.push(FoundNode { parent, branch, kind: FoundKind::Task(place) });
    }

    /// Returns whether nothing is to be learned of where a call stands.
    fn is_settled(&self, place: usize) -> bool {
        self.tasks.get(place).is_some_and(|(_, recursion)| *recursion == 0)
    }

    fn close(&mut self) {
        let Some(Open { kind: FoundKind::Fork { .. }, number: Some(fork), .. }) = self.open.pop()
        else {
            return;
        };
        let (parent, branch) = match self.open.last() {
            Some(open) => (open.number, open.way),
            None => (None, None),
        };
        self.found.push(FoundNode { parent, branch, kind: FoundKind::Join { fork } });
    }
}

impl Solver<'_> {
    /// Notes where a call stands, by its place among the calls.
    pub(super) fn note_task(&mut self, place: usize) {
        if self.nodes.is_settled(place) {
            return;
        }
        let mut seen: HashSet<FuncId> = HashSet::default();
        let functions = self.acts.iter().map(|act| self.contexts[act.context as usize].func);
        let recursion = functions.filter(|func| !seen.insert(*func)).count();
        self.nodes.note(place, recursion);
    }

    /// Walks a part of the program that people see.
    pub(super) fn part<T>(&mut self, kind: FoundKind, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.nodes.open.push(Open { kind, way: None, number: None });
        let walked = walk(self);
        self.nodes.close();
        walked
    }

    /// Notes which way of the innermost part is walked from here on.
    pub(super) fn take_way(&mut self, way: Branch) {
        if let Some(open) = self.nodes.open.last_mut() {
            open.way = Some(way);
        }
    }

    /// Walks a way of the innermost part.
    pub(super) fn way<T>(&mut self, way: Branch, walk: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.nodes.open.last_mut().and_then(|open| open.way.replace(way));
        let walked = walk(self);
        if let Some(open) = self.nodes.open.last_mut() {
            open.way = before;
        }
        walked
    }

    /// Walks a loop, which gives what decides how often it goes round.
    pub(super) fn loop_part<T>(
        &mut self,
        over: Extent,
        walk: impl FnOnce(&mut Self) -> (T, Deps),
    ) -> (T, Deps) {
        self.nodes.open.push(Open {
            kind: FoundKind::Loop { over, deps: NONE },
            way: None,
            number: None,
        });
        let (walked, ends) = walk(self);
        if let Some(Open { number: Some(number), .. }) = self.nodes.open.last()
            && let Some(FoundNode { kind: FoundKind::Loop { deps, .. }, .. }) =
                self.nodes.found.get_mut(*number as usize)
        {
            *deps = self.dom.sources.used(ends);
        }
        self.nodes.close();
        (walked, ends)
    }

    /// Returns what the method is called on whose call is followed.
    pub(super) fn called_on(&self) -> Extent {
        let (id, all) = (self.place >> 3, &self.core.called_on);
        match all.binary_search_by_key(&id, |(call, _)| *call) {
            Ok(place) => all[place].1,
            Err(_) => (self.at, self.end),
        }
    }
}
