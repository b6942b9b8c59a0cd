//! Reports of failures and counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::generator::Program;
use crate::runner::Found;

/// The maximum number of faulty programs that are shown.
pub(crate) const FAULTS_SHOWN: usize = 8;
/// The maximum number of needlessly dynamic programs that are examined.
const NEEDLESS_KEPT: usize = 400;

/// A fault of the analysis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Undeclared,
    Refused,
    Failed,
    Missed,
}

impl Fault {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Undeclared => "a call was observed that was not declared:",
            Self::Refused => "the analysis refuses a valid program:",
            Self::Failed => "a valid program did not complete:",
            Self::Missed => "a call that every run makes was not observed:",
        }
    }
}

/// Describes a program and its results.
pub(crate) fn of(program: &Program, found: &Found) -> String {
    format!(
        "PML_TEST_PROGRAM={} shows the whole program; resolvable: {}, dynamic: {}\n\
         ---\n{}---\ndeclared: {:?}\nobserved: {:?}\nnot declared: {:?}\nnot seen: {:?}\n\
         ended with: {}\ndiagnostics: {:#?}\n",
        program.seed,
        program.resolvable,
        found.dynamic,
        program.source(),
        found.declared,
        found.observed,
        found.undeclared(),
        found.missed,
        found.failure.as_deref().unwrap_or("a result"),
        found.diagnostics,
    )
}

/// The counts of a test run.
#[derive(Default)]
pub(crate) struct Counts {
    programs: usize,
    resolvable: usize,
    dynamic: usize,
    needless: usize,
    failed: usize,
    calls: u64,
    constructs: BTreeSet<&'static str>,
    needless_programs: Vec<Program>,
}

impl Counts {
    pub(crate) fn add(&mut self, program: &Program, found: &Found) {
        self.programs += 1;
        self.resolvable += usize::from(program.resolvable);
        self.dynamic += usize::from(found.dynamic);
        self.failed += usize::from(found.failure.is_some());
        self.calls += found.calls;
        self.constructs.extend(program.constructs());
        if program.resolvable && found.dynamic {
            self.needless += 1;
            if self.needless_programs.len() < NEEDLESS_KEPT {
                self.needless_programs.push(program.clone());
            }
        }
    }

    pub(crate) fn needless_percent(&self) -> f64 {
        100.0 * self.needless as f64 / self.resolvable.max(1) as f64
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} programs ({} resolvable), {} constructs, {} calls observed; dynamic: {:.1} % of all, {:.2} % of the resolvable; {} did not complete",
            self.programs,
            self.resolvable,
            self.constructs.len(),
            self.calls,
            100.0 * self.dynamic as f64 / self.programs.max(1) as f64,
            self.needless_percent(),
            self.failed,
        )
    }

    /// Lists the constructs that make resolvable programs dynamic, with the smallest example of each.
    pub(crate) fn needless_reasons(&self) -> String {
        let mut reasons: BTreeMap<Vec<&'static str>, (usize, String)> = BTreeMap::new();
        for program in &self.needless_programs {
            let small = program.shrunk(|smaller| {
                let analysis = analysis::analyze(&smaller.source(), &analysis::Limits::default());
                analysis.can_run() && analysis.dynamic
            });
            let why = analysis::analyze(&small.source(), &analysis::Limits::default());
            let why = why.diagnostics.first().map_or_else(String::new, |one| one.message.clone());
            let names: Vec<_> = small.constructs().into_iter().collect();
            let text = format!("{}\n    {why}", small.source().trim());
            let known = reasons.entry(names).or_insert((0, text.clone()));
            known.0 += 1;
            if text.len() < known.1.len() {
                known.1 = text;
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let lines = reasons
            .iter()
            .map(|(names, (count, text))| format!("{count} × {names:?}\n    {text}\n"));
        lines.take(60).collect()
    }
}
