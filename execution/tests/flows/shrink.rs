//! Reduces a program while it shows the same miss.

use crate::check::Checker;
use crate::claims::Prepared;
use crate::compare::observed_flows;
use crate::explore::Exploration;
use crate::judge::judge;
use crate::miss::Miss;
use crate::program::{Program, keeps_declarations};
use crate::runner::Run;

/// A reduced program that shows a miss.
pub(crate) struct Reduced {
    pub(crate) program: Program,
    pub(crate) prepared: Prepared,
    pub(crate) runs: Vec<Run>,
}

/// Returns the smallest program found with the same miss, or none if these runs alone do not show the miss.
pub(crate) fn shrink(
    checker: &Checker,
    program: &Program,
    miss: &Miss,
    runs: &[Run],
) -> Option<Reduced> {
    let mut reduced = reproduce(checker, program, miss, runs)?;
    let whole = program.source();
    let is_valid = |program: &&Program| keeps_declarations(&whole, &program.source());
    while let Some(smaller) = reduced
        .program
        .reductions()
        .iter()
        .filter(is_valid)
        .find_map(|program| reproduce(checker, program, miss, runs))
    {
        reduced = smaller;
    }
    Some(reduced)
}

/// Runs a program with the inputs of `runs`, and returns it if it shows the miss.
fn reproduce(checker: &Checker, program: &Program, miss: &Miss, runs: &[Run]) -> Option<Reduced> {
    let (prepared, runs) = checker.rerun(program, runs)?;
    let all: Vec<usize> = (0..runs.len()).collect();
    let groups = miss.from.iter().map(|source| (source.clone(), all.clone())).collect();
    let exploration = Exploration { runs, groups };
    let verdict = judge(&prepared.claims, &exploration, &observed_flows(&exploration));
    let is_shown = verdict.misses.iter().any(|found| found.is_same(miss));
    is_shown.then(|| Reduced { program: program.clone(), prepared, runs: exploration.runs })
}
