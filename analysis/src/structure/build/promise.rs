//! Promises that are taken for what they will give.
//!
//! A value that surely is the promise of a call, and is used where only what it gives makes sense, is a
//! mistake of the program, told with its place. What may also be something else is no mistake.

use std::rc::Rc;

use swc_ecma_ast::{Callee, Expr, MemberProp};

use super::Builder;
use super::expr::bare;
use super::member::Key;
use super::value::{Form, Scalar, Value};
use crate::diagnostic::{Code, Finding, shown};

/// Whether a value is a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Promised {
    /// As far as is known it is none.
    #[default]
    No,
    /// On some ways here it is one.
    Perhaps,
    /// It is one, unless code that changes parts of objects put what it gave in its place.
    Likely,
    /// It is one, of a call or of several.
    Surely,
    /// It is one by how a class or a function is written, whatever else is known of the value.
    Declared,
    /// It is a list of promises, and of nothing else.
    Each,
}

impl Promised {
    /// Returns what holds of a value that may be either of two.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            _ if self.is_promise() && other.is_promise() => Self::Likely,
            _ => Self::Perhaps,
        }
    }

    /// Returns what holds of a part of an object that others have, too.
    pub(super) fn loosened(self) -> Self {
        if matches!(self, Self::Surely | Self::Declared) { Self::Likely } else { self }
    }

    /// Returns whether it is one, as far as can be seen.
    pub(super) fn is_promise(self) -> bool {
        matches!(self, Self::Surely | Self::Likely | Self::Declared)
    }
}

/// What a promise is used as.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use<'u> {
    Condition,
    Fallback,
    Text,
    Operand,
    Comparison,
    Field(&'u str),
    Parts,
    List,
    Spread,
    Argument,
    Json,
    Printed,
    Converted(&'u str),
}

/// A function of the engine that looks at what it is given.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taker {
    /// It writes the value and all that is in it.
    Json,
    Console,
    /// It makes something of the value itself.
    Converts(&'static str),
}

/// The longest part of the program that a message repeats, in characters.
const QUOTED: usize = 48;

impl Use<'_> {
    /// Returns what is wrong and what to write.
    fn message(self, text: &str) -> String {
        let what = match self {
            Self::Condition => "which counts as true whatever the call gives",
            Self::Fallback => "so that what stands in for it is never used",
            Self::Text => "whose text is `[object Promise]`",
            Self::Operand => "and an operator needs a value",
            Self::Comparison => "which equals no value",
            Self::Field(name) => {
                let name = shown(name, 40);
                return format!(
                    "`{text}` is a promise, which has no `{name}`; write `(await {text}).{name}`"
                );
            }
            Self::Parts => "which has no parts to take out",
            Self::List => "which is no list",
            Self::Spread => "which has nothing to spread",
            Self::Argument => "and a tool takes values",
            Self::Json => "which is `{}` in JSON",
            Self::Printed => "which prints as `Promise {}`",
            Self::Converted(name) => {
                return format!(
                    "`{text}` is a promise, and `{name}` needs what it gives; write `await {text}`"
                );
            }
        };
        format!("`{text}` is a promise, {what}; write `await {text}`")
    }
}

impl Value {
    /// Returns the value as the promise of it; a promise of a promise is one.
    pub(super) fn in_promise(mut self) -> Self {
        self.promised = Promised::Surely;
        self
    }

    /// Notes, where `shared` holds, that other code may have put another value in its place.
    pub(super) fn loosen(&mut self, shared: bool) {
        self.inexact |= shared;
        if shared {
            self.promised = self.promised.loosened();
        }
    }

    /// Returns the value as what awaiting it gives.
    pub(super) fn out_of_promise(mut self) -> Self {
        if self.promised != Promised::Each {
            self.promised = Promised::No;
        }
        self
    }

    /// Returns a list as what it is once each of its promises is awaited.
    pub(super) fn each_awaited(mut self) -> Self {
        self.promised = Promised::No;
        match &self.form {
            Form::Array(items) if items.iter().any(|item| item.promised != Promised::No) => {
                let items = items.iter().cloned().map(Self::out_of_promise).collect();
                self.form = Form::Array(Rc::new(items));
            }
            Form::Items(item) if item.promised != Promised::No => {
                self.form = Form::Items(Rc::new((**item).clone().out_of_promise()));
            }
            _ => {}
        }
        self
    }

    /// Returns whether it is a list of promises.
    fn lists_promises(&self) -> bool {
        let is_promise = |item: &Value| item.promised.is_promise();
        match &self.form {
            _ if self.promised == Promised::Each => true,
            Form::Array(items) => !items.is_empty() && items.iter().all(is_promise),
            Form::Items(item) => is_promise(item),
            _ => false,
        }
    }
}

impl<'a> Builder<'a> {
    /// Notes a use of a value that makes no sense for a promise.
    pub(super) fn takes(&mut self, value: &Value, how: Use<'_>) {
        if value.promised.is_promise() {
            let text = self.quoted(value);
            self.misused(value, how.message(&text));
        }
    }

    /// Notes that a part is taken out of a value.
    pub(super) fn takes_part(&mut self, value: &Value, key: &Key) {
        if !value.promised.is_promise() {
            return;
        }
        match key.only() {
            Some("then" | "catch" | "finally" | "constructor") => {}
            Some(name) if name.starts_with(|first: char| first.is_ascii_digit()) => {
                self.takes(value, Use::List);
            }
            Some(name) if !name.starts_with('#') => self.takes(value, Use::Field(name)),
            _ => {}
        }
    }

    /// Notes that a value and all that is in it are written out.
    pub(super) fn takes_all(&mut self, value: &Value, how: Use<'_>) {
        if value.lists_promises() && !value.promised.is_promise() {
            let text = self.quoted(value);
            let message =
                format!("the items of `{text}` are promises; write `await Promise.all({text})`");
            let mut value = value.clone();
            // One of them may have been replaced by what it gave.
            if value.promised == Promised::Each {
                value.promised = Promised::Likely;
            } else {
                value.promised = Promised::Surely;
                value.loosen(value.shared);
            }
            self.misused(&value, message);
            return;
        }
        self.takes(value, how);
        if value.promised == Promised::No && value.caps().is_empty() {
            for part in value.parts() {
                let mut part = part.clone();
                part.loosen(value.shared || value.inexact);
                self.takes_all(&part, how);
            }
        }
    }

    /// Notes that a value is turned into text: that of a list is that of its items.
    pub(super) fn takes_text(&mut self, value: &Value) {
        if value.lists_promises() {
            self.takes_all(value, Use::Text);
        } else {
            self.takes(value, Use::Text);
        }
    }

    /// Notes that two values are compared.
    pub(super) fn compares(&mut self, left: &Value, right: &Value) {
        let is_data = |value: &Value| match value.only() {
            Some(scalar) => !scalar.is_nothing(),
            None => is_awaited(value) || matches!(value.exact(), Some([Scalar::Text(_), ..])),
        };
        if is_data(right) {
            self.takes(left, Use::Comparison);
        }
        if is_data(left) {
            self.takes(right, Use::Comparison);
        }
    }

    /// Notes that what a function gives decides, where it gives a promise.
    pub(super) fn decides_by(&mut self, method: &str, at: u32, result: &Value) {
        if result.promised.is_promise() {
            let message = format!(
                "this function gives a promise, which `{method}` takes for true; await all first: `const kept = await Promise.all(list.map(…))`"
            );
            let mut result = result.clone();
            result.span = (at, at);
            self.misused(&result, message);
        }
    }

    /// Notes that a method of lists cannot use what a function gives, where that is a promise.
    pub(super) fn cannot_use(&mut self, method: &str, at: u32) {
        let what = match method {
            "flatMap" => {
                "which `flatMap` does not take apart; await all first: `const lists = await Promise.all(list.map(…))`, and then `lists.flat()`"
            }
            _ => {
                "which is no order; await first what is compared: `const keys = await Promise.all(list.map(…))`"
            }
        };
        let message = format!("this function gives a promise, {what}");
        self.findings.insert(Finding::new(Code::ToolPromiseUsed, at, message));
    }

    /// Returns whether a value is a function, all of whose results are promises.
    pub(super) fn gives_promises(&self, value: &Value) -> bool {
        let gives = |func: &u32| {
            let func = &self.funcs[*func as usize];
            let body = func.body;
            body.is_async() && !body.is_generator() || func.returned.promised.is_promise()
        };
        value.form == Form::Function && !value.partial && value.funcs().iter().all(gives)
    }

    /// Notes that nobody gets a value, which may be a promise that nobody awaits.
    pub(super) fn drops(&mut self, value: &Value, expr: &Expr) {
        let passes_on = || {
            let body = self.funcs[self.func as usize].body;
            self.executors.contains(&body.span().lo.0) && handles_failure(bare(expr))
        };
        if matches!(bare(expr), Expr::Assign(_)) || passes_on() {
            return;
        }
        let chosen = value.promised == Promised::Perhaps && matches!(bare(expr), Expr::Bin(_));
        let message = if value.promised.is_promise() || chosen {
            "nothing awaits this promise: the program goes on before the call has ended, and does not see it fail; write `await` before it"
        } else if value.lists_promises() {
            "nothing awaits these promises: the program goes on before the calls have ended, and does not see them fail; write `await Promise.all(…)`"
        } else {
            return;
        };
        let at = if value.span == (0, 0) { self.at } else { value.span.0 };
        self.findings.insert(Finding::new(Code::ToolPromiseDropped, at, message));
    }

    /// Notes that `forEach` is given a function that gives promises.
    pub(super) fn drops_each(&mut self, at: u32, result: &Value) {
        if result.promised.is_promise() {
            let message = "`forEach` awaits nothing: the program goes on before these calls have ended, and does not see them fail; write `for (const item of list) { await … }`, or `await Promise.all(list.map(…))`";
            self.findings.insert(Finding::new(Code::ToolPromiseDropped, at, message));
        }
    }

    /// Takes back what is sure where the program replaces what the engine offers: `Promise`, for one.
    pub(super) fn doubt_promises(&mut self) {
        if !self.findings.iter().any(|found| found.code == Code::DynamicGlobal) {
            return;
        }
        let doubted = std::mem::take(&mut self.findings).into_iter().map(|mut found| {
            if found.code == Code::ToolPromiseUsed {
                found.code = Code::ToolPromiseMaybeUsed;
            }
            found
        });
        self.findings = doubted.collect();
    }

    fn misused(&mut self, value: &Value, message: String) {
        let at = if value.span == (0, 0) { self.at } else { value.span.0 };
        // Whoever changes parts of objects may have put what it gave in the promise's place.
        let unsure = match value.promised {
            Promised::Declared => false,
            Promised::Likely => self.mutates || value.partial,
            _ => value.partial,
        };
        let code = if unsure { Code::ToolPromiseMaybeUsed } else { Code::ToolPromiseUsed };
        self.findings.insert(Finding::new(code, at, message));
    }

    /// Returns an expression as it is written, on one line and shortened.
    fn quoted(&self, value: &Value) -> String {
        let (from, until) = value.span;
        let text = self.source.get(from as usize..until as usize).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.is_empty() {
            return "this".to_owned();
        }
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '$'))
                && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '?'))
        };
        // What a call is given is of no interest.
        match text.find('(') {
            Some(open) if is_name(&text[..open]) && text.chars().count() > QUOTED => {
                format!("{}(…)", shown(&text[..open], QUOTED))
            }
            _ => shown(&text, QUOTED),
        }
    }

    /// Returns what a function of the engine does with what it is given, by its name.
    pub(super) fn taker(&self, callee: &'a Expr) -> Option<Taker> {
        match bare(callee) {
            Expr::Ident(name) if self.lookup(&name.sym).is_none() => {
                let name = match &*name.sym {
                    "String" => "String",
                    "Number" => "Number",
                    "Boolean" => "Boolean",
                    "BigInt" => "BigInt",
                    "parseInt" => "parseInt",
                    "parseFloat" => "parseFloat",
                    "isNaN" => "isNaN",
                    "encodeURIComponent" => "encodeURIComponent",
                    "Date" => "Date",
                    "URL" => "URL",
                    "Map" => "Map",
                    "Set" => "Set",
                    "structuredClone" => "structuredClone",
                    _ => return None,
                };
                Some(Taker::Converts(name))
            }
            Expr::Member(member) => {
                let (Expr::Ident(object), MemberProp::Ident(method)) =
                    (bare(&member.obj), &member.prop)
                else {
                    return None;
                };
                if self.lookup(&object.sym).is_some() {
                    return None;
                }
                Some(match (&*object.sym, &*method.sym) {
                    ("JSON", "stringify") => Taker::Json,
                    ("JSON", "parse") => Taker::Converts("JSON.parse"),
                    ("console", _) => Taker::Console,
                    ("Array", "from") => Taker::Converts("Array.from"),
                    ("Array", "isArray") => Taker::Converts("Array.isArray"),
                    ("Number", "isNaN") => Taker::Converts("Number.isNaN"),
                    ("Number", "isFinite") => Taker::Converts("Number.isFinite"),
                    ("Number", "isInteger") => Taker::Converts("Number.isInteger"),
                    ("Math", _) => Taker::Converts("Math"),
                    _ => return None,
                })
            }
            _ => None,
        }
    }

    /// Notes what a function of the engine is given.
    pub(super) fn taken_by(&mut self, taker: Taker, values: &[Value]) {
        for value in values {
            match taker {
                Taker::Json => self.takes_all(value, Use::Json),
                Taker::Console => self.takes_all(value, Use::Printed),
                Taker::Converts(name) => self.takes(value, Use::Converted(name)),
            }
        }
    }
}

/// Returns whether a value is what a tool gave, and surely no promise of it.
fn is_awaited(value: &Value) -> bool {
    let is_loose = value.partial || value.defaulted || value.inexact;
    matches!(value.form, Form::Result(..)) && value.promised == Promised::No && !is_loose
}

/// Returns whether an expression is `p.catch(f)` or `p.then(f, g)`: whoever writes that in `new Promise(…)` hands
/// on how the call ended.
fn handles_failure(expr: &Expr) -> bool {
    let Expr::Call(call) = expr else { return false };
    let Callee::Expr(callee) = &call.callee else { return false };
    let Expr::Member(member) = bare(callee) else { return false };
    match &member.prop {
        MemberProp::Ident(name) if &*name.sym == "catch" => !call.args.is_empty(),
        MemberProp::Ident(name) if &*name.sym == "then" => call.args.len() > 1,
        MemberProp::Ident(name) if &*name.sym == "finally" => handles_failure(bare(&member.obj)),
        _ => false,
    }
}
