//! Checks the plans of programs of a single row.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Failed;

use super::{print_examples, print_program, verdict};
use crate::check::{Checked, Checker};
use crate::claims::real_analysis;
use crate::counts::Counts;
use crate::explore::Effort;
use crate::mutants::Tally;
use crate::options::Options;
use crate::program::Program;
use crate::runner::End;
use crate::{single, table};

/// A sample tests one of this many programs whose source is `args`.
const ARGS: usize = 5;

/// The results for all rows.
#[derive(Default)]
struct Results {
    counts: Counts,
    mutants: Tally,
    /// The rows of which some program has an observed flow.
    with_flow: BTreeSet<String>,
    /// The rows of which some program has none.
    without_flow: BTreeSet<String>,
    failures: Vec<String>,
}

pub(crate) fn plans_cover_single_rows() -> Result<(), Failed> {
    let options = Options::read();
    let checker = Checker::start(real_analysis())?;
    let of_args = |program: &Program| program.name.ends_with("args)");
    let is_full = options.scale >= 1.0 || !options.selects_all();
    let all: Vec<(String, Program)> = table::rows()
        .iter()
        .flat_map(|row| single::programs(row).into_iter().map(|program| (row.full_name(), program)))
        .collect();
    let chosen: Vec<(String, Program)> = all
        .into_iter()
        .enumerate()
        .filter(|(index, (_, program))| is_full || !of_args(program) || index % ARGS == 0)
        .map(|(_, chosen)| chosen)
        .filter(|(_, program)| options.selects(&program.name))
        .collect();
    let (rows, programs): (Vec<String>, Vec<Program>) = chosen.into_iter().unzip();
    let mut rows = rows.into_iter();
    let programs = programs.into_iter().map(|program| {
        let effort = if of_args(&program) { Effort::ARGS } else { Effort::ROW };
        (program, effort)
    });
    let mut results = Results::default();
    checker.check_all(programs, |checked| {
        // Programs are checked in their order, so this is the row of the program.
        let row = rows.next().unwrap_or_default();
        if !of_args(&checked.program) {
            let has_flow = !checked.verdict.reached.is_empty();
            let rows = if has_flow { &mut results.with_flow } else { &mut results.without_flow };
            rows.insert(row);
        }
        print_program(&options, &checked);
        print_examples(&checker, &options, &checked, &mut BTreeMap::new());
        results.add(&checked);
    });
    println!("{}\nmutants: {:?}", results.counts.summary("rows"), results.mutants);
    verdict(results.into_failures(&options))
}

impl Results {
    fn add(&mut self, checked: &Checked) {
        let name = checked.program.name.clone();
        self.counts.add(checked);
        let first_end = checked.exploration.runs.first().map(|run| &run.end);
        let failure = match (&checked.prepared, first_end) {
            (Err(why), _) => Some(why.clone()),
            (_, Some(End::Completed | End::ReturnedEarly)) => {
                checked.exploration.limit_reached().map(str::to_owned)
            }
            (_, end) => Some(format!("{end:?}")),
        };
        if let Some(why) = failure {
            self.failures.push(format!("{name} does not run: {why}\n{}", checked.program.source()));
        }
        let kinds = checked.verdict.kinds();
        if let Ok(prepared) = &checked.prepared {
            let claims = &prepared.claims;
            let wrong = if claims.complete { "" } else { " dynamic" };
            let wrong = kinds.iter().fold(wrong.to_owned(), |all, kind| all + " " + kind.name());
            if !wrong.is_empty() {
                self.failures.push(format!("{name}:{wrong}"));
            }
            // Only a right plan whose egress the runs confirm can show whether a mutant is detected.
            if kinds.is_empty()
                && claims.complete
                && claims.egress_tools().is_subset(&checked.verdict.reached)
            {
                self.mutants.add(claims, &checked.exploration);
            }
        }
    }

    fn into_failures(mut self, options: &Options) -> Vec<String> {
        let ineffective = self.without_flow.difference(&self.with_flow);
        self.failures.extend(ineffective.map(|row| format!("no run of {row} shows a flow")));
        if !options.selects_all() {
            return self.failures;
        }
        self.failures.extend(self.mutants.rarely_detected());
        self.failures.extend(self.counts.failures("rows"));
        self.failures
    }
}
