//! Checks promises that are passed to tools and to functions of the engine, and keeps track of how calls are
//! written.

use super::misuse::Wrong;
use super::*;
use crate::structure::builtins::{self, Gives};
use crate::structure::core::{Arg, Slot, Text, Use};
use crate::structure::domain::{Kind, Prim, Promised, Ref};

/// The maximum number of objects in an argument that are checked.
const OBJECTS: usize = 256;
/// Stands for the receiver of a call in place of an argument's number.
const THIS: u32 = u32::MAX;

/// What a function does with its arguments.
#[derive(Debug, Clone, Copy)]
enum Consumer {
    /// A tool: they are sent.
    Tool,
    /// `JSON.stringify`
    Json,
    /// A function of `console`: they are printed.
    Console,
    /// It converts the argument itself, and not its parts.
    Converts(&'static str),
}

impl Consumer {
    /// Returns the fault if such a function is given a promise.
    fn wrong(self) -> Wrong {
        match self {
            Self::Tool => Wrong::Argument,
            Self::Json => Wrong::Json,
            Self::Console => Wrong::Printed,
            Self::Converts(name) => Wrong::Converted(name),
        }
    }
}

impl<'a> Solver<'a> {
    /// Checks the arguments of a call for promises; returns how the call is written.
    pub(super) fn check_call(
        &mut self,
        callee: Value,
        this: Option<Slot>,
        args: &'a [Arg],
    ) -> CallText<'a> {
        let shape = self.dom.shapes.kept(callee.shape);
        let (inst, is_plain) = (self.place >> 3, shape.prim == Prim::None && !shape.absent);
        match shape.refs.as_slice() {
            [Ref::Method(name)] if is_plain => {
                if let (Some(this), "join") = (this, self.dom.names.get(*name)) {
                    let value = self.slot(this);
                    let text = self.text_of(this);
                    match self.wrong_use(value, &Use::Text) {
                        Some(wrong) => self.misused((inst, THIS), text, wrong),
                        None => self.misuses.right_part((inst, THIS)),
                    }
                }
            }
            [Ref::Builtin(name)] if is_plain => {
                if let Some(consumer) = consumer(self.dom.names.get(*name)) {
                    self.check_arguments(consumer, args);
                }
            }
            refs if is_plain && refs.iter().all(|one| matches!(one, Ref::Tool(..))) => {
                self.check_arguments(Consumer::Tool, args);
            }
            _ => {}
        }
        let context = &self.contexts[self.context() as usize];
        CallText::Call { func: context.func, this, args }
    }

    /// Returns whether a call returns its receiver or its argument, so that its result is also held elsewhere.
    pub(super) fn returns_argument(&self, callee: Value) -> bool {
        match self.dom.shape(callee).refs.as_slice() {
            [Ref::Method(name)] => builtins::method(self.dom.names.get(*name))
                .is_some_and(|(_, method)| method.gives == Gives::Itself),
            [Ref::Builtin(name)] => matches!(
                self.dom.names.get(*name),
                "Object.assign" | "Object.freeze" | "Object.seal" | "Object.preventExtensions"
            ),
            _ => false,
        }
    }

    /// Checks the arguments of a call.
    fn check_arguments(&mut self, consumer: Consumer, args: &[Arg]) {
        for arg in args.iter().filter(|arg| arg.spread) {
            let (value, text) = (self.slot(arg.slot), self.text_of(arg.slot));
            let place = (self.place >> 3, text.0);
            if self.lists_promises(value) {
                self.misused(place, text, Wrong::Items);
            } else {
                self.misuses.right_part(place);
            }
        }
        // After a spread of unknown length, positions are unknown.
        let plain = args.iter().take_while(|arg| !arg.spread);
        let mut slots: SmallVec<[Slot; 4]> = plain.map(|arg| arg.slot).collect();
        match consumer {
            Consumer::Json => {
                let replacer = slots.get(1).map(|slot| self.slot(*slot));
                // A replacer of `JSON.stringify` may handle promises.
                if replacer.is_some_and(|value| !self.dom.shape(value).refs.is_empty()) {
                    return;
                }
                slots.truncate(1);
            }
            Consumer::Converts("Object") if args.len() != 1 => return,
            _ => {}
        }
        for slot in slots {
            let (value, text) = (self.slot(slot), self.text_of(slot));
            self.check_argument(consumer, value, text, &mut SmallVec::new());
        }
    }

    /// Checks a value that is passed to a function, and everything in it.
    fn check_argument(
        &mut self,
        consumer: Consumer,
        value: Value,
        text: (u32, u32),
        seen: &mut SmallVec<[ObjId; 8]>,
    ) {
        let shape = self.dom.shapes.kept(value.shape);
        let place = (self.place >> 3, text.0);
        // `Boolean(x)` of what may be missing is a test, not a mistake.
        let asks =
            matches!(consumer, Consumer::Converts("Boolean")) && shape.promised == Promised::Likely;
        if shape.promised.is_promise() && !asks {
            self.misused(place, text, consumer.wrong());
            return;
        }
        let is_deep = !matches!(consumer, Consumer::Converts(_));
        if is_deep && self.lists_promises(value) {
            self.misused(place, text, Wrong::Items);
            return;
        }
        self.misuses.right_part(place);
        let ([Ref::Obj(object)], Prim::None, false) =
            (shape.refs.as_slice(), &shape.prim, shape.absent)
        else {
            return;
        };
        if !is_deep || seen.len() >= OBJECTS || seen.contains(object) {
            return;
        }
        seen.push(*object);
        for (cell, value) in self.parts_of(*object) {
            let span = self.heap.cells[cell as usize].span;
            if span == (0, 0) {
                continue;
            }
            if self.dom.shape(value).absent {
                self.misuses.right_part((self.place >> 3, span.0));
            } else {
                self.check_argument(consumer, value, span, seen);
            }
        }
    }

    /// Returns the parts of a list or object that are written to JSON; none if that cannot be known.
    fn parts_of(&mut self, object: ObjId) -> Vec<(CellId, Value)> {
        let known = &self.heap.objects[object as usize];
        if known.kind == Kind::Array {
            return self.listed(object).unwrap_or_default();
        }
        if known.kind != Kind::Plain || known.escaped {
            return Vec::new();
        }
        let mut parts = Vec::new();
        for place in 0..known.keys.len() {
            let (name, cell) = self.heap.objects[object as usize].keys[place];
            let value = self.read(cell);
            if value.is_never() || value == Value::ABSENT || name == self.known.order {
                continue;
            }
            let text = self.dom.names.text(name);
            // An unknown name, a getter or `toJSON` may replace the value.
            if text.starts_with('%') || text.starts_with("get:") || &*text == "toJSON" {
                return Vec::new();
            }
            if !text.starts_with("set:") {
                parts.push((cell, value));
            }
        }
        parts
    }

    /// Returns the source text of the value in a slot of the current function, for messages.
    pub(super) fn text_of(&self, slot: Slot) -> (u32, u32) {
        let function = self.function(self.contexts[self.context() as usize].func);
        match function.variables.get(slot as usize).map(|variable| variable.text) {
            Some(Text::Written(span)) => span,
            Some(Text::Given(index)) => self.given_text(index as usize),
            _ => (0, 0),
        }
    }

    /// Returns the source text of an argument, as the caller writes it.
    fn given_text(&self, index: usize) -> (u32, u32) {
        match self.activations.last().map(|act| act.written) {
            Some(CallText::Items { of, .. }) => of,
            Some(CallText::Call { func, args, .. })
                if args.iter().take(index + 1).all(|arg| !arg.spread) =>
            {
                let text = args.get(index).map(|arg| self.written_text(func, arg.slot));
                text.unwrap_or_default()
            }
            _ => (0, 0),
        }
    }

    /// Returns the source text of the value in a slot of a function.
    fn written_text(&self, func: FuncId, slot: Slot) -> (u32, u32) {
        match self.function(func).variables.get(slot as usize).map(|variable| variable.text) {
            Some(Text::Written(span)) => span,
            _ => (0, 0),
        }
    }

    /// Returns the source text of the first argument of the current call, or of the list whose items a method
    /// passes; `(0, 0)` if it is not known.
    pub(super) fn first_text(&self) -> (u32, u32) {
        match self.written {
            CallText::Call { func, args, .. } => {
                args.first().map_or((0, 0), |arg| self.written_text(func, arg.slot))
            }
            CallText::Items { of, .. } => of,
            CallText::Nowhere => (0, 0),
        }
    }

    /// Returns how the call is written from the view of one of its callees.
    pub(super) fn written_for(&self, callee: Ref) -> CallText<'a> {
        match (callee, self.written) {
            (Ref::Method(_), CallText::Call { func, this, args }) => CallText::Items {
                of: this.map_or((0, 0), |this| self.written_text(func, this)),
                first: args.first().map_or(0, |arg| self.written_text(func, arg.slot).0),
            },
            (Ref::Tool(..), written) => written,
            (Ref::Obj(object), written)
                if matches!(self.heap.objects[object as usize].kind, Kind::Func { .. }) =>
            {
                written
            }
            _ => CallText::Nowhere,
        }
    }
}

/// Returns what a function of the engine does with its arguments.
fn consumer(name: &str) -> Option<Consumer> {
    Some(match name {
        "String" => Consumer::Converts("String"),
        "Number" => Consumer::Converts("Number"),
        "Boolean" => Consumer::Converts("Boolean"),
        "BigInt" => Consumer::Converts("BigInt"),
        "parseInt" => Consumer::Converts("parseInt"),
        "parseFloat" => Consumer::Converts("parseFloat"),
        "isNaN" => Consumer::Converts("isNaN"),
        "encodeURIComponent" => Consumer::Converts("encodeURIComponent"),
        "Date" => Consumer::Converts("Date"),
        "URL" => Consumer::Converts("URL"),
        "Map" => Consumer::Converts("Map"),
        "Set" => Consumer::Converts("Set"),
        "structuredClone" => Consumer::Converts("structuredClone"),
        "Object.keys" | "Object.values" | "Object.entries" => Consumer::Converts("Object"),
        "JSON.stringify" => Consumer::Json,
        "JSON.parse" => Consumer::Converts("JSON.parse"),
        "Array.from" => Consumer::Converts("Array.from"),
        "Array.isArray" => Consumer::Converts("Array.isArray"),
        "Number.isNaN" => Consumer::Converts("Number.isNaN"),
        "Number.isFinite" => Consumer::Converts("Number.isFinite"),
        "Number.isInteger" => Consumer::Converts("Number.isInteger"),
        _ if name.starts_with("Math.") => Consumer::Converts("Math"),
        _ if name.starts_with("console.") => Consumer::Console,
        _ => return None,
    })
}
