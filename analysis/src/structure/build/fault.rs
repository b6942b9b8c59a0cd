//! Deliberate faults, each of which lets the walk miss one construct, and the proof
//! that the generated programs find every one of them.
//!
//! A fault is switched on for the thread that runs the test; no other build has any.

use std::cell::Cell;

use swc_ecma_ast::{Expr, Stmt};

use super::engine::Callback;
use super::value::{Deps, Value};

#[path = "../../../tests/generator/generator.rs"]
mod generator;

/// What the walk gets wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The tests of `while`, `do` and `for` are not looked at.
    LoopTests,
    /// The third part of `for (;;)` is not looked at.
    LoopUpdates,
    /// Defaults of parameters and patterns are not looked at.
    Defaults,
    /// Computed names of properties are not looked at.
    ComputedNames,
    /// Tagged templates are not looked at.
    TaggedTemplates,
    /// Getters are not looked at.
    Getters,
    /// Fields of classes are not looked at.
    ClassFields,
    /// `static { … }` is not looked at.
    StaticBlocks,
    /// `finally` is not looked at.
    Finally,
    /// What `...rest` gathers in an object is forgotten.
    ObjectRest,
    /// What is taken out of objects by their patterns is forgotten.
    ObjectPatterns,
    /// After branches only one of them counts.
    Joins,
    /// What a function writes to variables around it is forgotten.
    ClosureWrites,
    /// What an earlier round of a loop wrote is forgotten.
    CarriedWrites,
    /// What a block wrote before it failed is forgotten.
    WritesBeforeThrow,
    /// Functions given to `map` and its like are not looked at.
    Callbacks,
    /// Functions given to `then` are not looked at.
    Then,
    /// Optional chains are not looked at.
    OptionalChains,
    /// `for await` is not looked at.
    ForAwait,
    /// `yield` is not looked at.
    Yield,
    /// What is right of `&&`, `||` and `??` is not looked at.
    Logical,
    /// `switch` is not looked at.
    Switch,
    /// Labelled statements are not looked at.
    Labels,
    /// What is inside of `${…}` is not looked at.
    Templates,
}

const ALL: &[Fault] = &[
    Fault::LoopTests,
    Fault::LoopUpdates,
    Fault::Defaults,
    Fault::ComputedNames,
    Fault::TaggedTemplates,
    Fault::Getters,
    Fault::ClassFields,
    Fault::StaticBlocks,
    Fault::Finally,
    Fault::ObjectRest,
    Fault::ObjectPatterns,
    Fault::Joins,
    Fault::ClosureWrites,
    Fault::CarriedWrites,
    Fault::WritesBeforeThrow,
    Fault::Callbacks,
    Fault::Then,
    Fault::OptionalChains,
    Fault::ForAwait,
    Fault::Yield,
    Fault::Logical,
    Fault::Switch,
    Fault::Labels,
    Fault::Templates,
];

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Returns whether the walk has this fault.
pub(super) fn is(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

/// Returns whether the walk is to pass over an expression.
pub(super) fn skips(expr: &Expr) -> bool {
    match expr {
        Expr::OptChain(_) => is(Fault::OptionalChains),
        Expr::TaggedTpl(_) => is(Fault::TaggedTemplates),
        Expr::Tpl(_) => is(Fault::Templates),
        Expr::Yield(_) => is(Fault::Yield),
        _ => false,
    }
}

/// Returns whether the walk is to pass over a statement.
pub(super) fn skips_statement(statement: &Stmt) -> bool {
    match statement {
        Stmt::Switch(_) => is(Fault::Switch),
        Stmt::Labeled(_) => is(Fault::Labels),
        Stmt::ForOf(repeat) => repeat.is_await && is(Fault::ForAwait),
        _ => false,
    }
}

/// Returns whether the walk is to pass over a method that calls functions.
pub(super) fn skips_callback(kind: &Callback) -> bool {
    match kind {
        Callback::Each | Callback::Map | Callback::Fold => is(Fault::Callbacks),
        Callback::Then => is(Fault::Then),
        _ => false,
    }
}

/// Returns a value, of which nothing is known when the walk has the fault.
pub(super) fn without(fault: Fault, value: Value) -> Value {
    if is(fault) { Value::computed(Deps::default()) } else { value }
}

/// Returns a list, or only its first item when the walk has the fault.
pub(super) fn first_if<T>(fault: Fault, mut list: Vec<T>) -> Vec<T> {
    if is(fault) {
        list.truncate(1);
    }
    list
}

/// Returns a list, or an empty one when the walk has the fault.
pub(super) fn none_if<T>(fault: Fault, list: Vec<T>) -> Vec<T> {
    if is(fault) { Vec::new() } else { list }
}

mod tests {
    use std::collections::BTreeSet;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::generator::{Program, Random, each_alone, generate};
    use super::{ALL, FAULT, Fault};
    use crate::{Limits, analyze};

    /// How many programs may pass before a fault is found.
    const PROGRAMS: usize = 2_500;

    /// Returns the tools that a run calls and that were neither declared nor doubted.
    fn slipped(program: &Program) -> Vec<String> {
        let analysis = analyze(&program.source(), &Limits::default());
        if analysis.dynamic || !analysis.can_run() {
            return Vec::new();
        }
        let declared: BTreeSet<String> = analysis.tools.iter().map(ToString::to_string).collect();
        program.called().difference(&declared).cloned().collect()
    }

    fn with_fault<R>(fault: Option<Fault>, run: impl FnOnce() -> R) -> R {
        FAULT.set(fault);
        let result = run();
        FAULT.set(None);
        result
    }

    #[test]
    fn each_fault_is_found() {
        let given = std::env::var("PML_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let seed = given.unwrap_or(now as u64);
        println!("seed {seed} (PML_TEST_SEED={seed} repeats it)");
        let mut random = Random::new(seed);
        let mut programs: Vec<Program> = (0..PROGRAMS).map(|_| generate(random.next())).collect();
        // By chance a rare construct may be in none of them.
        programs.extend(each_alone().into_iter().map(|(program, _)| program));
        let mut needed = 0;
        for fault in ALL {
            let found = programs
                .iter()
                .position(|program| !with_fault(Some(*fault), || slipped(program)).is_empty());
            let Some(found) = found else {
                panic!(
                    "{fault:?} is found neither by {PROGRAMS} programs of seed {seed} nor by its construct alone"
                );
            };
            println!("{fault:?}: found by program {}", found + 1);
            needed = needed.max(found + 1);
            let source = programs[found].source();
            assert_eq!(slipped(&programs[found]), [""; 0], "seed {seed}, no fault:\n{source}");
        }
        for program in &programs[..needed] {
            assert_eq!(slipped(program), [""; 0], "seed {seed}, no fault:\n{}", program.source());
        }
        println!("{} faults, all found within {needed} programs", ALL.len());
    }
}
