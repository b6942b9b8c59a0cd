//! The normal form of a program: what it means, without how it is written.
//!
//! Two programs with one form do the same. The form leaves out spacing, comments,
//! types, quote style, digits' spelling, semicolons, trailing commas, brackets
//! that change nothing, and the braces around a single statement; local names,
//! labels among them, are replaced by numbers in the order of their first use.
//! It keeps everything else: tools and other names that the program does not
//! declare, property and private names, literals by value, operators, the kind
//! and the order of statements. Where a program reads a property `name`, which
//! may be that of a function, the names of its functions and classes are kept,
//! and where it mentions `eval` all names are.
//!
//! What the form cannot see is a program that turns its own functions into text:
//! `String(f)` and `error.stack` show names, comments and lines. Whoever runs
//! what was approved therefore compares the hash of the bytes as well.
//!
//! The form begins with [`VERSION`], which changes whenever the form of any
//! program does, so that stored hashes are compared with their like only.

mod class;
mod expr;
mod pattern;
pub(crate) mod scope;
mod stmt;

use std::ops::Range;

use protocol::Integrity;
use swc_ecma_ast::Function;

use scope::Scopes;

/// Names the rules by which normal forms are made; it changes when any form does.
pub const VERSION: &str = "pml-normal-2";

/// What becomes of the names that a program declares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// They are written as they stand.
    Kept,
    /// They become numbers; the names of functions and classes are written as well.
    NumberedButFunctions,
    /// They become numbers.
    Numbered,
}

/// How a program is read: its form with all names as they stand.
pub(crate) struct Reading {
    form: Vec<u8>,
    /// Where the statements at the top begin: in the form, and in the source.
    statements: Vec<(usize, u32)>,
    /// The names that the program may declare, in the order of the form.
    names: Vec<NameUse>,
    reads_name: bool,
    mentions_eval: bool,
}

/// A name in a form.
struct NameUse {
    /// Where it stands.
    at: Range<usize>,
    /// The number of what it means; `None` when the program does not declare it.
    number: Option<u32>,
    /// A function or class that follows gets it as its own.
    names_function: bool,
}

impl Reading {
    /// Reads the program that is this function's body, and what its names mean.
    pub(crate) fn of(function: &Function) -> Self {
        Writer::write(function, Some(Scopes::default()))
    }

    /// Reads a program to be compared with another: one form gives its names one meaning.
    pub(crate) fn without_meanings(function: &Function) -> Self {
        Writer::write(function, None)
    }

    /// Returns where in this program's source another reading begins to differ.
    pub(crate) fn differs_at(&self, other: &Self) -> Option<u32> {
        if self.form == other.form {
            return None;
        }
        let same = self.form.iter().zip(&other.form).take_while(|(a, b)| a == b).count();
        let before = self.statements.iter().rev().find(|(at, _)| *at <= same);
        Some(before.map_or(0, |(_, offset)| *offset))
    }

    /// Returns the hash of the program's normal form.
    pub(crate) fn hash(&self) -> Integrity {
        Integrity::of(&self.normal_form())
    }

    /// Returns the normal form: this one, with numbers where names make no difference.
    fn normal_form(&self) -> Vec<u8> {
        let naming = if self.mentions_eval {
            Naming::Kept
        } else if self.reads_name {
            Naming::NumberedButFunctions
        } else {
            Naming::Numbered
        };
        let mut out = Vec::with_capacity(VERSION.len() + 1 + self.form.len());
        out.extend_from_slice(VERSION.as_bytes());
        out.push(b'\n');
        let mut copied = 0;
        for NameUse { at, number, names_function } in &self.names {
            out.extend_from_slice(&self.form[copied..at.start]);
            copied = at.end;
            let name = &self.form[at.clone()];
            match number {
                None => put(&mut out, &[b"(free", name, b")"]),
                Some(_) if naming == Naming::Kept => out.extend_from_slice(name),
                Some(number) => {
                    out.extend_from_slice(b" $");
                    put_decimal(&mut out, *number as usize);
                }
            }
            if *names_function && naming == Naming::NumberedButFunctions {
                put(&mut out, &[b"(named", name, b")"]);
            }
        }
        out.extend_from_slice(&self.form[copied..]);
        out
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Writes a number without what a format string would cost.
fn put_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        put_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Writes the form of a tree.
struct Writer<'a> {
    out: Vec<u8>,
    /// What names mean; `None` when nobody asks.
    scopes: Option<Scopes<'a>>,
    labels: Vec<&'a str>,
    statements: Vec<(usize, u32)>,
    names: Vec<NameUse>,
    reads_name: bool,
    mentions_eval: bool,
}

impl<'a> Writer<'a> {
    fn write(function: &'a Function, scopes: Option<Scopes<'a>>) -> Reading {
        let length = (function.span.hi - function.span.lo).0 as usize;
        let mut writer = Writer {
            out: Vec::with_capacity(length * 2),
            scopes,
            labels: Vec::new(),
            statements: Vec::new(),
            names: Vec::new(),
            reads_name: false,
            mentions_eval: false,
        };
        if let Some(body) = &function.body {
            writer.program(&body.stmts);
        }
        let Writer { out: form, statements, names, reads_name, mentions_eval, .. } = writer;
        Reading { form, statements, names, reads_name, mentions_eval }
    }

    /// Walks in a scope in which names are declared.
    fn scope<I: IntoIterator<Item = &'a str>>(
        &mut self,
        names: impl FnOnce() -> I,
        walk: impl FnOnce(&mut Self),
    ) {
        if let Some(scopes) = &mut self.scopes {
            scopes.open(names());
        }
        walk(self);
        if let Some(scopes) = &mut self.scopes {
            scopes.close();
        }
    }

    /// Writes a node: its tag, and its parts between brackets.
    fn node(&mut self, tag: &str, parts: impl FnOnce(&mut Self)) {
        self.out.push(b'(');
        self.out.extend_from_slice(tag.as_bytes());
        parts(self);
        self.out.push(b')');
    }

    /// Writes a word out of a fixed list.
    fn word(&mut self, word: &str) {
        self.out.push(b' ');
        self.out.extend_from_slice(word.as_bytes());
    }

    /// Writes a word if something holds.
    fn flag(&mut self, holds: bool, word: &str) {
        if holds {
            self.word(word);
        }
    }

    /// Stands for a part that is not there.
    fn nothing(&mut self) {
        self.out.extend_from_slice(b" ~");
    }

    /// Writes any text; its length keeps it apart from what follows.
    fn text(&mut self, text: &str) {
        self.out.push(b' ');
        put_decimal(&mut self.out, text.len());
        self.out.push(b':');
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a name that the program may declare.
    fn name(&mut self, name: &'a str) {
        let start = self.out.len();
        self.text(name);
        if let Some(scopes) = &mut self.scopes {
            let number = scopes.number(name);
            self.mentions_eval |= number.is_none() && name == "eval";
            let at = start..self.out.len();
            self.names.push(NameUse { at, number, names_function: false });
        }
    }

    /// Notes that the function or class that follows gets the name just written as its own.
    fn names_function(&mut self) {
        if let Some(name) = self.names.last_mut() {
            name.names_function = true;
        }
    }

    /// Notes the use of a property.
    fn property(&mut self, name: &str) {
        self.reads_name |= name == "name";
    }
}
