//! Generates unusual but valid programs, and the set of tools that each of them calls when it runs.
//!
//! A program is composed of the templates in `calls`, `values` and `statements`,
//! whose holes are filled from the same tables at random. The writer tracks which
//! places a run reaches, so the tools that the program must call are known without
//! running it.

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

/// The `args` of the programs, as JSON.
pub(crate) const ARGS: &str =
    r#"{"on":true,"off":false,"n":3,"list":[1,2],"text":"x","space":"given","action":"by_name"}"#;

/// Whether the analysis is expected to follow a construct.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// A program that consists of such constructs is not dynamic.
    Plain,
    /// It should be followed, but is not yet.
    Later,
    /// It may be dynamic.
    Wild,
}

/// A program template with holes; `writer` documents the marks.
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

/// Writes a program for each construct, with nothing else in it, and returns whether the
/// analysis does not follow it yet.
pub(crate) fn each_alone() -> Vec<(Program, bool)> {
    alone::write()
}
