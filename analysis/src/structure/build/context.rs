//! Functions that are given functions: each call of one is followed by itself, so
//! that what one call is given does not seem to come out of another.

use super::alias::Link;
use super::call::Given;
use super::function::Func;
use super::value::{Form, FuncId, Value};
use super::{Builder, MAIN};

/// The most calls of one function that are told apart.
const COPIES: usize = 16;
/// The most that are told apart in a program.
const ALL_COPIES: usize = 64;

impl Builder<'_> {
    /// Returns the function as it is for this call of it.
    pub(super) fn in_context(&mut self, func: FuncId, given: &Given) -> FuncId {
        let known = &self.funcs[func as usize];
        let is_given_functions = given.values.iter().any(|value| value.form == Form::Function);
        // A call of a tool is one task, whoever makes it.
        if !is_given_functions
            || given.rest.is_some()
            || known.has_tools
            || known.escaped
            || known.maker_of.is_some()
            || known.context != MAIN
            || self.context != MAIN
        {
            return func;
        }
        let this = known.this.clone();
        let found = known.copies.iter().find(|(at, _)| *at == self.at).map(|(_, copy)| *copy);
        let Some(copy) = found.or_else(|| self.copy(func)) else { return func };
        self.funcs[func as usize].copied = true;
        if this != Value::never() {
            self.called_on(copy, &this);
        }
        copy
    }

    /// Makes a function of its own for the calls here.
    fn copy(&mut self, func: FuncId) -> Option<FuncId> {
        let copy = self.funcs.len() as FuncId;
        let known = &self.funcs[func as usize];
        if known.copies.len() >= COPIES || self.copies >= ALL_COPIES {
            return None;
        }
        let mut made = Func::new(known.body, known.scope, known.parent, copy);
        made.is_copy = true;
        self.funcs.push(made);
        self.copies += 1;
        let at = self.at;
        self.funcs[func as usize].copies.push((at, copy));
        self.changed = true;
        Some(copy)
    }

    /// Notes that a tool is called in the function in progress, and so in those around it.
    pub(super) fn has_tools(&mut self) {
        let mut id = self.func;
        while id != MAIN {
            let func = &mut self.funcs[id as usize];
            let parent = func.parent;
            if !func.has_tools {
                func.has_tools = true;
                self.changed = true;
            }
            if self.funcs[id as usize].is_copy {
                for func in &mut self.funcs {
                    func.has_tools |= func.copies.iter().any(|(_, copy)| *copy == id);
                }
            }
            id = parent;
        }
    }

    /// Returns what a function gives back the object of, in all of its calls.
    pub(super) fn gives_of(&self, func: FuncId) -> Vec<(FuncId, Link)> {
        let copies = self.funcs[func as usize].copies.iter().map(|(_, copy)| *copy);
        let all = [func].into_iter().chain(copies);
        all.flat_map(|func| {
            self.funcs[func as usize].gives.iter().map(move |link| (func, link.clone()))
        })
        .collect()
    }
}
