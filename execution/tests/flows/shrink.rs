//! Makes a program smaller as long as it shows the same miss.

use crate::check::Checker;
use crate::explore::Observed;
use crate::judge::{Miss, judge, see};
use crate::program::{Program, declares_the_same};
use crate::runner::Run;
use crate::told::Prepared;

/// The smallest program found that shows a miss.
pub(crate) struct Small {
    pub(crate) program: Program,
    pub(crate) prepared: Prepared,
    pub(crate) runs: Vec<Run>,
}

/// Returns a smaller program with the same miss, or none if the miss does not show in its runs alone.
pub(crate) fn shrink(
    checker: &Checker,
    program: &Program,
    miss: &Miss,
    runs: &[Run],
) -> Option<Small> {
    let mut small = shows(checker, program, miss, runs)?;
    let whole = program.source();
    let is_sound = |smaller: &&Program| declares_the_same(&whole, &smaller.source());
    while let Some(smaller) = small
        .program
        .smaller()
        .iter()
        .filter(is_sound)
        .find_map(|smaller| shows(checker, smaller, miss, runs))
    {
        small = smaller;
    }
    Some(small)
}

fn shows(checker: &Checker, program: &Program, miss: &Miss, runs: &[Run]) -> Option<Small> {
    let (prepared, runs) = checker.runs(program, runs)?;
    let all: Vec<usize> = (0..runs.len()).collect();
    let groups = miss.from.iter().map(|source| (source.clone(), all.clone())).collect();
    let observed = Observed { runs, groups };
    let is_same =
        |found: &Miss| found.kind == miss.kind && found.from == miss.from && found.to == miss.to;
    judge(&prepared.told, &observed, &see(&observed)).misses.iter().any(is_same).then(|| Small {
        program: program.clone(),
        prepared,
        runs: observed.runs,
    })
}
