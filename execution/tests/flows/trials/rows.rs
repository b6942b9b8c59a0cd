//! Checks the plans of programs of a single row. Their misses are listed by name.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Failed;

use super::{print_examples, print_program, verdict};
use crate::check::{Checked, Checker};
use crate::claims::real_analysis;
use crate::explore::Effort;
use crate::known::{self, Counts, DYNAMIC};
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
    /// The kinds of misses by the name of the program.
    missed: BTreeMap<String, BTreeSet<String>>,
    /// The names of the tested programs.
    tested: BTreeSet<String>,
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
    let is_full = options.scale >= 1.0 || !options.selects_all() || options.writes_known;
    let all: Vec<(String, Program)> = table::rows()
        .iter()
        .flat_map(|row| single::programs(row).into_iter().map(|program| (row.full_name(), program)))
        .collect();
    let all_names: BTreeSet<String> = all.iter().map(|(_, one)| one.name.clone()).collect();
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
    if options.writes_known {
        known::write(&results.missed)?;
    } else {
        let unknown = known::listed().into_keys().filter(|name| !all_names.contains(name));
        let failures = unknown.map(|name| format!("known.txt lists `{name}`, which is not a row"));
        results.failures.extend(failures);
    }
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
        let mut words: BTreeSet<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        if let Ok(prepared) = &checked.prepared {
            let claims = &prepared.claims;
            if !claims.complete {
                words.insert(DYNAMIC.to_owned());
            }
            // Only a right plan whose egress the runs confirm can show whether a mutant is detected.
            if kinds.is_empty()
                && claims.complete
                && claims.egress_tools().is_subset(&checked.verdict.reached)
            {
                self.mutants.add(claims, &checked.exploration);
            }
        }
        if !words.is_empty() {
            self.missed.insert(name.clone(), words);
        }
        self.tested.insert(name);
    }

    fn into_failures(mut self, options: &Options) -> Vec<String> {
        let ineffective = self.without_flow.difference(&self.with_flow);
        self.failures.extend(ineffective.map(|row| format!("no run of {row} shows a flow")));
        if !options.selects_all() {
            return self.failures;
        }
        let difference = known::difference(&self.missed, |name| self.tested.contains(name));
        if !options.writes_known && !difference.is_empty() {
            let lines = difference.join("\n");
            self.failures.push(format!("known.txt differs from the misses found:\n{lines}"));
        }
        self.failures.extend(self.mutants.rarely_detected());
        let found = self.counts.confirmed_percent();
        let least = known::bounds("rows").min_confirmed_percent;
        if found < least {
            self.failures.push(format!(
                "rows: {found:.1} % of claimed pairs confirmed, less than {least} %"
            ));
        }
        self.failures
    }
}
