//! Each rule of the analysis is needed: one that forgets it tells too little of some row.

use analysis::Rule;
use libtest_mimic::Failed;

use super::verdict;
use crate::check::Checker;
use crate::explore::Effort;
use crate::judge::{judge, see};
use crate::program::Program;
use crate::told::{Told, analysis, forgetting};
use crate::{alone, table};

pub(crate) fn each_rule_is_needed() -> Result<(), Failed> {
    let checker = Checker::start(analysis())?;
    let programs: Vec<(Program, Effort)> = table::rows()
        .iter()
        .flat_map(alone::alone)
        .filter(|program| !program.name.ends_with("args)"))
        .map(|program| (program, Effort::ROW))
        .collect();
    let mut left = Rule::all();
    let all = left.len();
    let mut found: Vec<String> = Vec::new();
    for programs in programs.chunks(CHUNK) {
        if left.is_empty() {
            break;
        }
        checker.each(programs.iter().cloned(), |checked| {
            let Ok(prepared) = &checked.prepared else { return };
            let seen = see(&checked.observed);
            let misses = |told: &Told| judge(told, &checked.observed, &seen).misses;
            let known = misses(&prepared.told);
            left.retain(|rule| {
                let Ok(wrong) = forgetting(*rule)(&checked.program.source()) else { return true };
                // What it does not claim to tell completely, it does not tell wrongly.
                let is_found = wrong.told != prepared.told
                    && misses(&wrong.told).iter().any(|miss| !known.contains(miss));
                if is_found {
                    found.push(format!("{rule:?} by {}", checked.program.name));
                }
                !is_found
            });
        });
    }
    println!("{} of {all} rules are needed:\n{}", found.len(), found.join("\n"));
    verdict(left.iter().map(|rule| format!("no row shows that `{rule:?}` is needed")).collect())
}

/// Rows between which it is asked whether all rules are found.
const CHUNK: usize = 64;
