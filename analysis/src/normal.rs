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
mod scope;
mod stmt;

use protocol::Integrity;
use swc_ecma_ast::Function;

use scope::Scopes;

/// Names the rules by which normal forms are made; it changes when any form does.
pub const VERSION: &str = "pml-normal-1";

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

/// Returns the hash of the normal form of a program that is this function's body.
pub(crate) fn hash(function: &Function) -> Integrity {
    Integrity::of(&form(function))
}

/// Returns the normal form of a program that is this function's body.
pub(crate) fn form(function: &Function) -> Vec<u8> {
    let mut writer = Writer::of(function, Naming::Numbered);
    if writer.mentions_eval {
        writer = Writer::of(function, Naming::Kept);
    } else if writer.reads_name {
        writer = Writer::of(function, Naming::NumberedButFunctions);
    }
    [VERSION.as_bytes(), b"\n", &writer.out].concat()
}

/// How a program is read: its form with all names kept.
#[derive(PartialEq, Eq)]
pub(crate) struct Reading {
    form: Vec<u8>,
    /// Where the statements at the top begin: in the form, and in the source.
    statements: Vec<(usize, u32)>,
}

impl Reading {
    /// Reads the program that is this function's body.
    pub(crate) fn of(function: &Function) -> Self {
        let writer = Writer::of(function, Naming::Kept);
        Self { form: writer.out, statements: writer.statements }
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
}

/// Writes the form of a tree.
struct Writer<'a> {
    out: Vec<u8>,
    naming: Naming,
    scopes: Scopes<'a>,
    labels: Vec<&'a str>,
    statements: Vec<(usize, u32)>,
    reads_name: bool,
    mentions_eval: bool,
}

impl<'a> Writer<'a> {
    fn of(function: &'a Function, naming: Naming) -> Self {
        let mut writer = Writer {
            out: Vec::new(),
            naming,
            scopes: Scopes::default(),
            labels: Vec::new(),
            statements: Vec::new(),
            reads_name: false,
            mentions_eval: false,
        };
        if let Some(body) = &function.body {
            writer.program(&body.stmts);
        }
        writer
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
        self.decimal(text.len());
        self.out.push(b':');
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes a number without what a format string would cost.
    fn decimal(&mut self, number: usize) {
        if number >= 10 {
            self.decimal(number / 10);
        }
        self.out.push(b'0' + (number % 10) as u8);
    }

    /// Writes a name that the program may declare.
    fn name(&mut self, name: &'a str) {
        match self.scopes.number(name) {
            Some(number) if self.naming != Naming::Kept => {
                self.out.extend_from_slice(b" $");
                self.decimal(number as usize);
            }
            Some(_) => self.text(name),
            None => {
                self.mentions_eval |= name == "eval";
                self.node("free", |writer| writer.text(name));
            }
        }
    }

    /// Notes that a function or class gets `name` as its own.
    fn function_name(&mut self, name: &str) {
        if self.naming == Naming::NumberedButFunctions {
            self.node("named", |writer| writer.text(name));
        }
    }

    /// Notes the use of a property.
    fn property(&mut self, name: &str) {
        self.reads_name |= name == "name";
    }
}
