//! The normal form of a program: its meaning, independent of its formatting and local names.
//!
//! Two programs with the same form behave alike. The form omits white space,
//! comments, types, quote style, the notation of numbers, semicolons, trailing
//! commas, redundant parentheses, and the braces around a single statement; local
//! names and labels are replaced by numbers in the order of their first use. It
//! keeps everything else: tools and other names that the program does not
//! declare, property and private names, literals by value, operators, the kind
//! and the order of statements. If a program reads a property `name`, which may
//! be that of a function, the names of its functions and classes are kept; if it
//! mentions `eval`, all names are.
//!
//! The form does not cover programs that convert their own functions to text:
//! `String(f)` and `error.stack` reveal names, comments and lines. Code that runs
//! an approved program must therefore compare the hash of the bytes as well.
//!
//! The form begins with [`VERSION`], which changes whenever the form of any
//! program changes, so that only hashes of the same version can be equal.

mod class;
mod expr;
mod pattern;
pub(crate) mod scope;
mod stmt;

use std::ops::Range;

use protocol::Integrity;
use swc_ecma_ast::Function;

use scope::Scopes;

/// The version of the rules for normal forms; it changes whenever the form of any program changes.
pub const VERSION: &str = "pml-normal-2";

/// How names that the program declares are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// As in the source.
    Kept,
    /// As numbers; the names of functions and classes are written in addition.
    NumberedButFunctions,
    /// As numbers.
    Numbered,
}

/// A program's form with all names as in the source, and what is needed to number them.
pub(crate) struct Reading {
    form: Vec<u8>,
    /// Where the top-level statements begin: in the form, and in the source.
    statements: Vec<(usize, u32)>,
    /// The identifiers in the form, in order.
    names: Vec<NameUse>,
    reads_name: bool,
    mentions_eval: bool,
}

/// An identifier in a form.
struct NameUse {
    /// Its bytes in the form.
    at: Range<usize>,
    /// The number of its declaration; `None` if the program does not declare it.
    number: Option<u32>,
    /// Whether the function or class that follows gets it as its `name`.
    names_function: bool,
}

impl Reading {
    /// Reads the body of this function as a program, and resolves its names.
    pub(crate) fn of(function: &Function) -> Self {
        Writer::write(function, Some(Scopes::default()))
    }

    /// Reads a program without resolving its names, to compare it with another one. Equal forms resolve equally.
    pub(crate) fn without_meanings(function: &Function) -> Self {
        Writer::write(function, None)
    }

    /// Returns the offset in this program's source of the first statement that differs from another reading.
    pub(crate) fn differs_at(&self, other: &Self) -> Option<u32> {
        if self.form == other.form {
            return None;
        }
        let same = self.form.iter().zip(&other.form).take_while(|(a, b)| a == b).count();
        // The statement that contains the first different byte.
        let before = self.statements.iter().rev().find(|(at, _)| *at <= same);
        Some(before.map_or(0, |(_, offset)| *offset))
    }

    /// Returns the hash of the program's normal form.
    pub(crate) fn hash(&self) -> Integrity {
        Integrity::of(&self.normal_form())
    }

    /// Returns the normal form: this form with numbers in place of local names.
    fn normal_form(&self) -> Vec<u8> {
        // `eval` could see every name, and `f.name` those of functions, so these must stay distinct.
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

/// Writes a number. Faster than `write!`, which matters for programs with many names.
fn put_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        put_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Writes the form of a tree.
struct Writer<'a> {
    out: Vec<u8>,
    /// Resolves names; `None` if they are not to be resolved.
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

    /// Runs `walk` in a scope that declares names.
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

    /// Writes a node in parentheses: its tag, then its parts.
    fn node(&mut self, tag: &str, parts: impl FnOnce(&mut Self)) {
        self.out.push(b'(');
        self.out.extend_from_slice(tag.as_bytes());
        parts(self);
        self.out.push(b')');
    }

    /// Writes a word from a fixed set.
    fn word(&mut self, word: &str) {
        self.out.push(b' ');
        self.out.extend_from_slice(word.as_bytes());
    }

    /// Writes a word if `holds`.
    fn flag(&mut self, holds: bool, word: &str) {
        if holds {
            self.word(word);
        }
    }

    /// Writes the placeholder for a missing part.
    fn absent(&mut self) {
        self.out.extend_from_slice(b" ~");
    }

    /// Writes arbitrary text with its length, so that its end is unambiguous.
    fn text(&mut self, text: &str) {
        self.out.push(b' ');
        put_decimal(&mut self.out, text.len());
        self.out.push(b':');
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes an identifier.
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

    /// Records that the function or class that follows gets the identifier just written as its `name`.
    fn names_function(&mut self) {
        if let Some(name) = self.names.last_mut() {
            name.names_function = true;
        }
    }

    /// Records the use of a property.
    fn property(&mut self, name: &str) {
        self.reads_name |= name == "name";
    }
}
