//! Odd but valid programs, and which tools each of them calls when it runs.
//!
//! A program is put together from the templates in `calls`, `values` and
//! `statements`, each with holes that are filled from the same tables at random.
//! While it is written it is known which places its run reaches, so the tools
//! that it must call are known without running it.

// Each of the tests that share this module uses a part of it.
#![allow(dead_code, reason = "each test uses a part of the generator")]

mod alone;
mod calls;
mod changes;
mod kept;
mod program;
mod random;
mod statements;
mod values;
mod writer;

pub(crate) use program::Program;
pub(crate) use random::Random;

/// What programs are given as `args`: the text of a JSON object.
pub(crate) const ARGS: &str =
    r#"{"on":true,"off":false,"n":3,"list":[1,2],"text":"x","space":"given","action":"by_name"}"#;

/// Whether a construct is meant to be followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// A program that is made of such constructs is not dynamic.
    Plain,
    /// It ought to be followed, and is not yet.
    Later,
    /// It may be dynamic.
    Wild,
}

/// A piece of program with holes; `writer` says what the marks mean.
struct Construct {
    name: &'static str,
    grade: Grade,
    text: &'static str,
}

const fn plain(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::Plain, text }
}

const fn later(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::Later, text }
}

const fn wild(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::Wild, text }
}

/// Writes the program of a seed.
pub(crate) fn generate(seed: u64) -> Program {
    writer::write(seed)
}

/// Writes a program for each construct, with nothing else in it, and tells whether
/// the analysis is yet to follow it.
pub(crate) fn each_alone() -> Vec<(Program, bool)> {
    alone::write()
}
