//! Each row alone: what it misses is listed by its name.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Failed;

use super::{print, show, verdict};
use crate::check::{Checked, Checker};
use crate::explore::Effort;
use crate::known::{self, Counts, DYNAMIC};
use crate::mutants::Tried;
use crate::options::Options;
use crate::program::Program;
use crate::runner::End;
use crate::told::analysis;
use crate::{alone, table};

/// Of the programs whose secret is in `args`, a sample tries one of so many.
const ARGS: usize = 5;

/// What the rows showed.
#[derive(Default)]
struct Alone {
    counts: Counts,
    /// The kinds of misses by the name of the program.
    missed: BTreeMap<String, BTreeSet<String>>,
    tried: BTreeSet<String>,
    wrong_plans: Tried,
    /// Rows of which a run showed a flow, and those of which one showed none.
    shows: BTreeSet<String>,
    shows_nothing: BTreeSet<String>,
    said: Vec<String>,
}

pub(crate) fn each_row_alone() -> Result<(), Failed> {
    let options = Options::read();
    let checker = Checker::start(analysis())?;
    let of_args = |program: &Program| program.name.ends_with("args)");
    let is_all = options.scale >= 1.0 || !options.is_whole() || options.writes_known;
    let all: Vec<(String, Program)> = table::rows()
        .iter()
        .flat_map(|row| alone::alone(row).into_iter().map(|program| (row.full_name(), program)))
        .collect();
    let all_names: BTreeSet<String> = all.iter().map(|(_, one)| one.name.clone()).collect();
    let chosen: Vec<(String, Program)> = all
        .into_iter()
        .enumerate()
        .filter(|(place, (_, program))| is_all || !of_args(program) || place % ARGS == 0)
        .map(|(_, chosen)| chosen)
        .filter(|(_, program)| options.wants(&program.name))
        .collect();
    let (names, programs): (Vec<String>, Vec<Program>) = chosen.into_iter().unzip();
    let mut names = names.into_iter();
    let programs = programs.into_iter().map(|program| {
        let effort = if of_args(&program) { Effort::ARGS } else { Effort::ROW };
        (program, effort)
    });
    let mut alone = Alone::default();
    checker.each(programs, |checked| {
        let row = names.next().unwrap_or_default();
        if !of_args(&checked.program) {
            let shown = !checked.verdict.reached.is_empty();
            let rows = if shown { &mut alone.shows } else { &mut alone.shows_nothing };
            rows.insert(row);
        }
        print(&options, &checked);
        show(&checker, &options, &checked, &mut BTreeMap::new());
        alone.add(&checked);
    });
    println!("{}\nwrong plans: {:?}", alone.counts.summary("rows"), alone.wrong_plans);
    if options.writes_known {
        known::write(&alone.missed)?;
    }
    if !options.writes_known {
        let gone = known::rows().into_keys().filter(|name| !all_names.contains(name));
        alone.said.extend(gone.map(|name| format!("known.txt names `{name}`, which is no row")));
    }
    verdict(alone.faults(&options))
}

impl Alone {
    fn add(&mut self, checked: &Checked) {
        let name = checked.program.name.clone();
        self.counts.add(checked);
        let fault = match (&checked.prepared, checked.observed.runs.first().map(|run| &run.end)) {
            (Err(why), _) => Some(why.clone()),
            (_, Some(End::Well | End::Early)) => checked.observed.cut().map(str::to_owned),
            (_, end) => Some(format!("{end:?}")),
        };
        if let Some(why) = fault {
            self.said.push(format!("{name} does not run: {why}\n{}", checked.program.source()));
        }
        let kinds = checked.verdict.kinds();
        let mut words: BTreeSet<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        if let Ok(prepared) = &checked.prepared {
            if !prepared.told.complete {
                words.insert(DYNAMIC.to_owned());
            }
            if kinds.is_empty()
                && prepared.told.complete
                && prepared.told.pairs().is_subset(&checked.verdict.reached)
            {
                self.wrong_plans.on(&prepared.told, &checked.observed);
            }
        }
        if !words.is_empty() {
            self.missed.insert(name.clone(), words);
        }
        self.tried.insert(name);
    }

    fn faults(mut self, options: &Options) -> Vec<String> {
        let nothing = self.shows_nothing.difference(&self.shows);
        self.said.extend(nothing.map(|row| format!("{row} shows nothing")));
        if !options.is_whole() {
            return self.said;
        }
        let difference = known::difference(&self.missed, |name| self.tried.contains(name));
        if !options.writes_known && !difference.is_empty() {
            let lines = difference.join("\n");
            self.said.push(format!("known.txt differs from what is missed:\n{lines}"));
        }
        self.said.extend(self.wrong_plans.found_too_seldom());
        let (found, least) = (self.counts.confirmed_percent(), known::bounds("rows").confirmed);
        if found < least {
            let fault = format!("rows: {found:.1} % of told pairs confirmed, less than {least} %");
            self.said.push(fault);
        }
        self.said
    }
}
