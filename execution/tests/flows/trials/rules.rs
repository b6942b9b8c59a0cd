//! Checks that each rule of the analysis is needed: without it, the plan of some row misses a flow.

use analysis::Rule;
use libtest_mimic::Failed;

use super::verdict;
use crate::check::Checker;
use crate::claims::{Claims, analysis_without, real_analysis};
use crate::compare::observed_flows;
use crate::explore::Effort;
use crate::judge::judge;
use crate::program::Program;
use crate::{single, table};

/// The number of programs after which the search stops if no rule is left.
const CHUNK: usize = 64;

pub(crate) fn each_rule_is_needed() -> Result<(), Failed> {
    let checker = Checker::start(real_analysis())?;
    let programs: Vec<(Program, Effort)> = table::rows()
        .iter()
        .flat_map(single::programs)
        .filter(|program| !program.name.ends_with("args)"))
        .map(|program| (program, Effort::ROW))
        .collect();
    let mut left = Rule::all();
    let all = left.len();
    let mut needed: Vec<String> = Vec::new();
    for programs in programs.chunks(CHUNK) {
        if left.is_empty() {
            break;
        }
        checker.check_all(programs.iter().cloned(), |checked| {
            let Ok(prepared) = &checked.prepared else { return };
            let flows = observed_flows(&checked.exploration);
            let misses = |claims: &Claims| judge(claims, &checked.exploration, &flows).misses;
            let known = misses(&prepared.claims);
            left.retain(|rule| {
                let analyse = analysis_without(*rule);
                let Ok(wrong) = analyse(&checked.program.source()) else { return true };
                // An incomplete plan has no misses, so a rule without which the analysis gives up is not yet shown
                // to be needed.
                let is_needed = wrong.claims != prepared.claims
                    && misses(&wrong.claims).iter().any(|miss| !known.contains(miss));
                if is_needed {
                    needed.push(format!("{rule:?} by {}", checked.program.name));
                }
                !is_needed
            });
        });
    }
    println!("{} of {all} rules are needed:\n{}", needed.len(), needed.join("\n"));
    verdict(left.iter().map(|rule| format!("no row needs the rule `{rule:?}`")).collect())
}
