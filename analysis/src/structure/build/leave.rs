//! Ways out: what ends a loop, and what a function throws.

use swc_atoms::Atom;

use super::Builder;
use super::control::Chain;
use super::function::FuncBody;
use super::promise::Promised;
use super::value::{Deps, FuncId, Value};

/// A statement that jumps may leave.
pub(super) struct Frame {
    /// What governs the place where it begins.
    begin: Chain,
    kind: FrameKind,
    /// What decides how often it goes round.
    exits: Deps,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FrameKind {
    Loop,
    Switch,
    Label(Atom),
}

/// The jumps that are open within one function.
#[derive(Default)]
pub(super) struct Jumps {
    frames: Vec<Frame>,
    /// The frames below this place stay when something is thrown: it is caught before.
    caught: usize,
    /// What governs the statement in progress.
    statement: Chain,
    /// What decides whether the statement in progress throws in its middle.
    pub(super) pending: Option<Deps>,
    /// What decides whether the function throws.
    throws: Option<Deps>,
    /// What flows into the values that are thrown.
    thrown: Deps,
    /// The same, of the code that [`Builder::catching`] walked last.
    caught_value: Deps,
}

/// Adds to what is perhaps not there yet.
pub(super) fn add_to(known: &mut Option<Deps>, deps: &Deps) {
    known.get_or_insert_default().add(deps);
}

impl Builder<'_> {
    /// Walks a statement that jumps may leave; returns what decides how often it
    /// goes round.
    pub(super) fn framed<R>(
        &mut self,
        kind: FrameKind,
        walk: impl FnOnce(&mut Self) -> R,
    ) -> (R, Deps) {
        let begin = self.control.chain.clone();
        self.jumps.frames.push(Frame { begin, kind, exits: Deps::default() });
        let result = walk(self);
        let exits = self.jumps.frames.pop().map_or_else(Deps::default, |frame| frame.exits);
        (result, exits)
    }

    /// Walks a loop; its body sees what ended it in an earlier round.
    pub(super) fn framed_loop(
        &mut self,
        key: u32,
        walk: impl FnOnce(&mut Self, &Deps) -> Deps,
    ) -> Deps {
        let carried = self.loop_exits.get(&(self.context, key)).cloned().unwrap_or_default();
        let (over, mut exits) = self.framed(FrameKind::Loop, |builder| walk(builder, &carried));
        exits.add(&carried);
        if exits != carried {
            self.loop_exits.insert((self.context, key), exits.clone());
            self.changed = true;
        }
        exits.and(&over)
    }

    /// Notes what else decides how often the innermost loop goes round.
    pub(super) fn ends_loop(&mut self, deps: &Deps) {
        if let Some(frame) = self.jumps.frames.last_mut() {
            frame.exits.add(deps);
        }
    }

    fn leave(&mut self, from: usize, deps: &Deps) {
        let here = &self.control.chain;
        for frame in self.jumps.frames.iter_mut().skip(from) {
            if frame.kind == FrameKind::Loop {
                frame.exits.add(&here.since(&frame.begin));
                frame.exits.add(deps);
            }
        }
    }

    pub(super) fn leave_by_return(&mut self) {
        self.leave(0, &Deps::default());
    }

    pub(super) fn leave_by_break(&mut self, label: Option<&str>) {
        let frames = &self.jumps.frames;
        let from = match label {
            None => frames.iter().rposition(|frame| !matches!(frame.kind, FrameKind::Label(_))),
            Some(label) => frames.iter().rposition(|frame| is_label(frame, label)),
        };
        self.leave(from.unwrap_or(0), &Deps::default());
    }

    pub(super) fn leave_by_continue(&mut self, label: Option<&str>) {
        let frames = &self.jumps.frames;
        let named = match label {
            None => frames.iter().rposition(|frame| frame.kind == FrameKind::Loop),
            Some(label) => frames.iter().rposition(|frame| is_label(frame, label)).map(|at| {
                let below = frames[at..].iter().position(|frame| frame.kind == FrameKind::Loop);
                at + below.unwrap_or(0)
            }),
        };
        // The loop itself goes on.
        self.leave(named.map_or(0, |at| at + 1), &Deps::default());
    }

    /// Follows a `throw` here.
    pub(super) fn leave_by_throw(&mut self, value: &Deps) {
        self.throws(&Deps::default());
        self.jumps.thrown.add(value);
    }

    fn throws(&mut self, deps: &Deps) {
        self.leave(self.jumps.caught, deps);
        let local = self.control.local.clone();
        add_to(&mut self.jumps.throws, &local.and(deps));
    }

    /// Goes on after a call that may have thrown, which `deps` decide.
    pub(super) fn may_have_thrown(&mut self, deps: &Deps) {
        self.throws(deps);
        let mut deps = deps.clone();
        deps.add(&self.control.chain.since(&self.jumps.statement));
        add_to(&mut self.jumps.pending, &deps);
        self.control.add(&deps);
        self.control.conditional = true;
    }

    /// Walks one statement; returns what decides whether it throws in its middle.
    pub(super) fn within_statement<R>(
        &mut self,
        walk: impl FnOnce(&mut Self) -> R,
    ) -> (R, Option<Deps>) {
        let begin = self.control.chain.clone();
        let outer = std::mem::replace(&mut self.jumps.statement, begin);
        let pending = self.jumps.pending.take();
        let result = walk(self);
        self.jumps.statement = outer;
        (result, std::mem::replace(&mut self.jumps.pending, pending))
    }

    /// Walks code whose throws go no further; returns what decides whether it throws.
    pub(super) fn catching<R>(&mut self, walk: impl FnOnce(&mut Self) -> R) -> (R, Option<Deps>) {
        let before = (self.jumps.caught, self.jumps.throws.take());
        let outer = std::mem::take(&mut self.jumps.thrown);
        self.jumps.caught = self.jumps.frames.len();
        let result = walk(self);
        let thrown = std::mem::replace(&mut self.jumps.throws, before.1);
        self.jumps.caught = before.0;
        self.jumps.caught_value = std::mem::replace(&mut self.jumps.thrown, outer);
        (result, thrown)
    }

    /// Walks a function that a promise calls: what it throws fails the promise.
    pub(super) fn failing<R>(&mut self, walk: impl FnOnce(&mut Self) -> R) -> (R, Option<Deps>) {
        let control = self.control.clone();
        let ((result, _), thrown) = self.catching(|builder| builder.within_statement(walk));
        let value = self.caught_value();
        self.control = control;
        (result, thrown.map(|deps| deps.and(&value)))
    }

    /// Returns what flows into the values that were caught last.
    pub(super) fn caught_value(&mut self) -> Deps {
        std::mem::take(&mut self.jumps.caught_value)
    }

    /// Lets what was caught be thrown after all.
    pub(super) fn throw_on(&mut self, thrown: &Option<Deps>, value: &Deps) {
        if let Some(deps) = thrown {
            add_to(&mut self.jumps.throws, deps);
            self.jumps.thrown.add(value);
        }
    }

    /// Walks the body of a function and keeps what it throws.
    pub(super) fn keeping_throws(&mut self, id: FuncId, walk: impl FnOnce(&mut Self)) {
        let statement = self.control.chain.clone();
        let outer = std::mem::replace(&mut self.jumps, Jumps { statement, ..Jumps::default() });
        walk(self);
        let inner = std::mem::replace(&mut self.jumps, outer);
        let Some(thrown) = inner.throws else { return };
        let func = &mut self.funcs[id as usize];
        let before = (func.throws.clone(), func.thrown.clone());
        add_to(&mut func.throws, &thrown);
        func.thrown.add(&inner.thrown);
        if func.throws != before.0 || func.thrown != before.1 {
            self.changed = true;
        }
    }

    /// Goes on after a call of a function of the program, which gave `returned`.
    /// `thrown` flows into what it throws.
    pub(super) fn after_call(
        &mut self,
        id: FuncId,
        throws: Option<Deps>,
        thrown: &Deps,
        returned: &mut Value,
    ) {
        let Some(deps) = throws else { return };
        if self.funcs[id as usize].body.is_deferred() {
            // What a promise fails with is not told apart from whether it does.
            add_to(&mut returned.fails, &deps.and(thrown));
        } else {
            self.may_have_thrown(&deps);
            self.jumps.thrown.add(thrown);
        }
    }

    /// Goes on after an `await` of a value.
    pub(super) fn after_await(&mut self, value: &mut Value) {
        if value.promised != Promised::Each {
            value.promised = Promised::No;
        }
        if let Some(deps) = value.fails.take() {
            self.may_have_thrown(&deps);
            self.jumps.thrown.add(&deps);
        }
    }

    /// Returns what decides whether a value, or one that is in it, is a promise that fails.
    pub(super) fn all_fails(value: &Value) -> Option<Deps> {
        let mut fails = value.fails.clone();
        for part in value.parts() {
            if let Some(deps) = Self::all_fails(part) {
                add_to(&mut fails, &deps);
            }
        }
        fails
    }
}

impl FuncBody<'_> {
    /// Returns whether a call of it does not run into what it throws.
    fn is_deferred(self) -> bool {
        self.is_async() || self.is_generator()
    }

    pub(super) fn is_generator(self) -> bool {
        matches!(self, Self::Function(function) if function.is_generator)
    }
}

fn is_label(frame: &Frame, wanted: &str) -> bool {
    matches!(&frame.kind, FrameKind::Label(label) if **label == *wanted)
}
