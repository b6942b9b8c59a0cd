//! Generates unusual but valid programs, with the tools that each of them calls when it runs.
//!
//! A program consists of templates from `calls`, `values` and `statements`. The holes of a template are filled with
//! random templates. The generator tracks which places every run reaches, so it knows the tools that a program must
//! call without running it.

// Each of the tests that share this module uses a part of it.
#![allow(dead_code, reason = "each test uses a part of the generator")]

mod calls;
mod changes;
mod program;
mod random;
mod single;
mod statements;
mod stored;
mod values;
mod writer;

pub(crate) use program::Program;
pub(crate) use random::Random;

/// The `args` of the programs, as JSON.
pub(crate) const ARGS: &str =
    r#"{"on":true,"off":false,"n":3,"list":[1,2],"text":"x","space":"given","action":"by_name"}"#;

/// Whether the analysis must resolve the tools that a construct calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// It must: a program of such constructs is not dynamic.
    Plain,
    /// It should, and does not yet.
    KnownGap,
    /// It need not: the program may be dynamic.
    Dynamic,
}

/// A template: a piece of a program with holes. `writer` defines the marks.
struct Construct {
    name: &'static str,
    grade: Grade,
    text: &'static str,
}

const fn plain(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::Plain, text }
}

const fn known_gap(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::KnownGap, text }
}

const fn dynamic(name: &'static str, text: &'static str) -> Construct {
    Construct { name, grade: Grade::Dynamic, text }
}

/// Generates the program of a seed.
pub(crate) fn generate(seed: u64) -> Program {
    writer::write(seed)
}

/// Generates a program for each construct alone, and returns with it whether the construct is a known gap.
pub(crate) fn each_alone() -> Vec<(Program, bool)> {
    single::programs()
}
