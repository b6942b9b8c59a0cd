//! Converts the result of the solver to the public types.

mod argument;
mod excerpt;
mod gap;
mod lines;
mod nodes;
mod promise;

use std::collections::BTreeSet;

use foldhash::HashMap;
use protocol::ToolId;

use self::argument::Arguments;
use self::lines::Lines;
use super::domain::{Deps, SiteId};
use super::lower::lower;
use super::solve::{FoundTask, Solved, solve};
use super::{Argument, StaticStructure, Task, parameter};
use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::parse::Parsed;

/// The result of the flow analysis.
pub(crate) struct Built {
    pub(crate) tools: BTreeSet<ToolId>,
    pub(crate) dynamic: bool,
    pub(crate) structure: StaticStructure,
    pub(crate) findings: Vec<Finding>,
    /// The positions of the tasks, in order.
    pub(crate) sites: Vec<u32>,
}

/// Analyses a parsed program.
pub(crate) fn build(parsed: &Parsed, source: &str, limits: &Limits) -> Result<Built, Finding> {
    let Some(main) = parsed.function() else {
        return Err(Finding::new(Code::ParseError, 0, "the program is not the body of a function"));
    };
    let mut core = lower(main);
    // A `return` that was inserted for the last statement does not cancel what still runs.
    core.ends_at_return = parsed.implicit_returns.is_none();
    let solved = solve(&core, limits)?;
    let mut findings = gap::findings(&solved);
    findings.extend(promise::findings(&core, &solved.misuses, source));
    findings.sort();
    findings.dedup();
    let report = Report::new(&solved, source);
    let mut lines = Lines::default();
    let mut tasks = Vec::new();
    let mut edges = 0;
    for (place, found) in report.found.iter().enumerate() {
        let task = report.task(place, found, &mut lines);
        // Without a limit, the output would grow quadratically with the program.
        edges += task.depends_on.len().max(task.data_from.len());
        if edges > limits.edges {
            let message = "the calls in this program have too many dependencies on each other; split it into smaller programs";
            return Err(Finding::new(Code::TooComplex, found.at, message));
        }
        tasks.push(task);
    }
    Ok(Built {
        tools: solved.tools.clone(),
        dynamic: solved.lost || !solved.gaps.is_empty(),
        structure: nodes::structure(&report, tasks),
        findings,
        sites: report.found.iter().map(|task| task.at).collect(),
    })
}

/// The input of the report's parts.
struct Report<'s> {
    solved: &'s Solved,
    source: &'s str,
    /// The calls in the order of the structure.
    found: Vec<&'s FoundTask>,
    places: HashMap<SiteId, usize>,
    /// The ids of the calls: `t1`, `t2` …
    ids: Vec<String>,
}

impl<'s> Report<'s> {
    fn new(solved: &'s Solved, source: &'s str) -> Self {
        let found = nodes::in_order(solved);
        let places = found.iter().enumerate().map(|(place, task)| (task.site, place)).collect();
        let ids = (1..=solved.tasks.len()).map(|number| format!("t{number}")).collect();
        Self { solved, source, found, places, ids }
    }

    /// Returns the indices of the tasks in a set of sources, sorted.
    fn tasks(&self, deps: Deps) -> Vec<usize> {
        if self.solved.lost {
            return (0..self.solved.tasks.len()).collect();
        }
        let sites = self.solved.domain.sources.tasks(deps);
        sorted(sites.filter_map(|site| self.places.get(&site).copied()).collect())
    }

    /// Returns the ids of tasks, by their indices.
    fn ids_of<'t>(&self, tasks: impl IntoIterator<Item = &'t usize>) -> Vec<String> {
        tasks.into_iter().filter_map(|place| self.ids.get(*place).cloned()).collect()
    }

    /// Returns the parts of the input in a set of sources.
    fn inputs(&self, deps: Deps) -> Vec<String> {
        if self.solved.lost {
            return vec![parameter(&[])];
        }
        self.solved.domain.sources.inputs(deps)
    }

    fn task(&self, place: usize, found: &FoundTask, lines: &mut Lines) -> Task {
        let (data, decides) = (self.tasks(found.data), self.tasks(found.decides));
        // The graph is acyclic, so dependencies on the previous iteration of a loop are omitted.
        let before = |of: &&usize| **of < place;
        let needed = sorted(data.iter().chain(&decides).filter(before).copied().collect());
        let (line, column) = lines.locate(self.source, found.at);
        let arguments = Arguments { report: self, place }.all(found);
        Task {
            task: self.ids[place].clone(),
            tool: found.tool.clone(),
            line,
            column,
            conditional: found.may,
            repeats: found.many,
            from_args: arguments.values().any(Argument::is_from_args),
            arguments,
            depends_on: self.ids_of(&needed),
            decided_by: self.ids_of(decides.iter().filter(before)),
            decided_by_args: self.inputs(found.decides),
            data_from: self.ids_of(&data),
        }
    }
}

/// Returns indices sorted, each once.
fn sorted(mut places: Vec<usize>) -> Vec<usize> {
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests;
