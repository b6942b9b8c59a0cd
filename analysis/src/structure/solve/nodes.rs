//! The structure that people see around the calls: choices, loops, and calls in flight together. A node is
//! added when the first call in it is found; a construct without a call gets none.

use super::*;
use crate::structure::core::{Branch, Extent};

/// A node of this structure.
#[derive(Debug)]
pub(in crate::structure) struct FoundNode {
    /// The node around it.
    pub(in crate::structure) parent: Option<u32>,
    /// Which way of the parent leads to it.
    pub(in crate::structure) branch: Option<Branch>,
    /// What it is.
    pub(in crate::structure) kind: FoundKind,
}

/// What a node is.
#[derive(Debug, Clone, Copy)]
pub(in crate::structure) enum FoundKind {
    /// A call, by its index in [`Tasks::found`].
    Task(usize),
    /// A call that was found again elsewhere, with less recursion; this node is void.
    Moved,
    /// A choice.
    Decision {
        /// The extent of its test.
        test: Extent,
        /// What decides it.
        deps: Deps,
    },
    /// A loop.
    Loop {
        /// The extent of what it iterates, or of its test.
        over: Extent,
        /// What decides how often it is repeated.
        deps: Deps,
    },
    /// Calls in flight together.
    Fork {
        /// The method of `Promise` that waits for them.
        how: &'static str,
    },
    /// The end of a fork.
    Join {
        /// The node of the fork.
        fork: u32,
    },
}

/// A construct that is being walked.
struct Open {
    /// What it is.
    kind: FoundKind,
    /// Which way of it is being walked.
    way: Option<Branch>,
    /// The index of its node, once a call in it was found.
    number: Option<u32>,
}

/// The nodes of a round.
#[derive(Default)]
pub(super) struct Nodes {
    /// The nodes; a parent is before its children.
    pub(super) found: Vec<FoundNode>,
    /// The constructs around the current point, outermost first.
    open: Vec<Open>,
    /// For each call: its node, and the number of recursive activations on the stack when it was noted.
    tasks: Vec<(usize, usize)>,
}

impl Nodes {
    /// Adds a node for a call, by its index, and for the constructs around it.
    ///
    /// A call in a recursive function may be found both directly and below a recursive call. The place with the
    /// least recursion wins: that is how the call reads in the source.
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
        // Outermost first: a construct gets its node before those inside it.
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

    /// Returns whether the node of a call is final.
    fn is_settled(&self, place: usize) -> bool {
        self.tasks.get(place).is_some_and(|(_, recursion)| *recursion == 0)
    }

    /// Ends a construct.
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
    /// Adds the node of a call, by its index.
    pub(super) fn note_task(&mut self, place: usize) {
        if self.nodes.is_settled(place) {
            return;
        }
        let recursion = self.recursion();
        self.nodes.note(place, recursion);
    }

    /// Returns how many activations on the stack are of a function that is there already.
    fn recursion(&self) -> usize {
        // One function alone, such as the program itself, is no recursion.
        if self.activations.len() < 2 {
            return 0;
        }
        let mut seen: HashSet<FuncId> = HashSet::default();
        let functions = self.activations.iter().map(|act| self.contexts[act.context as usize].func);
        functions.filter(|func| !seen.insert(*func)).count()
    }

    /// Walks a construct that people see.
    pub(super) fn part<T>(&mut self, kind: FoundKind, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.nodes.open.push(Open { kind, way: None, number: None });
        let walked = walk(self);
        self.nodes.close();
        walked
    }

    /// Sets which way of the innermost construct is walked from here on.
    pub(super) fn take_way(&mut self, way: Branch) {
        if let Some(open) = self.nodes.open.last_mut() {
            open.way = Some(way);
        }
    }

    /// Walks one way of the innermost construct.
    pub(super) fn way<T>(&mut self, way: Branch, walk: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.nodes.open.last_mut().and_then(|open| open.way.replace(way));
        let walked = walk(self);
        if let Some(open) = self.nodes.open.last_mut() {
            open.way = before;
        }
        walked
    }

    /// Walks a loop, whose walk returns what decides how often it is repeated.
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

    /// Returns the source extent of the receiver of the current method call.
    pub(super) fn called_on(&self) -> Extent {
        let (id, all) = (self.place >> 3, &self.core.called_on);
        match all.binary_search_by_key(&id, |(call, _)| *call) {
            Ok(place) => all[place].1,
            Err(_) => (self.at, self.end),
        }
    }
}
