//! What the solver found, in the form that the rest of the crate has.

mod overlay;
mod promise;

use std::collections::BTreeSet;

use foldhash::HashMap;
use indexmap::IndexMap;
use protocol::ToolId;

pub(crate) use self::overlay::build;
use super::build::excerpt;
use super::core::Core;
use super::domain::{Deps, SiteId};
use super::solve::{FoundTask, Shown, Solved};
use super::{Argument, parameter};
use crate::Limits;
use crate::diagnostic::Finding;

/// A call of a tool, as the new analysis tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) at: u32,
    pub(super) tool: ToolId,
    pub(super) may: bool,
    pub(super) many: bool,
    /// The calls whose results flow into the arguments, by place.
    pub(super) data: BTreeSet<usize>,
    /// The calls whose results decide whether it is made, by place.
    pub(super) decided: BTreeSet<usize>,
    /// The parts of the input that flow into the arguments.
    pub(super) inputs: Vec<String>,
    /// The parts of the input that decide whether it is made.
    pub(super) decided_inputs: Vec<String>,
    pub(super) arguments: IndexMap<String, Argument>,
}

/// Everything that is told of a program.
pub(super) struct Report {
    pub(super) tasks: Vec<Told>,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
    pub(super) dynamic: bool,
    /// Whether its values are too entangled to be followed.
    pub(super) entangled: bool,
    /// Promises that are taken for what they will give, and names that cannot be.
    pub(super) findings: Vec<Finding>,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
    pub(super) rounds: u32,
}

/// Analyses a program in the core language.
pub(super) fn report(core: &Core, source: &str, limits: &Limits) -> Report {
    let solved = super::solve::solve(core, limits);
    let places: HashMap<SiteId, usize> =
        solved.tasks.iter().enumerate().map(|(place, task)| (task.site, place)).collect();
    let writer = Writer { solved: &solved, places, source };
    let tasks = solved.tasks.iter().map(|task| writer.task(task)).collect();
    Report {
        tasks,
        dynamic: !solved.gaps.is_empty(),
        entangled: solved.entangled,
        findings: promise::findings(core, &solved.misuses, source),
        rounds: solved.rounds,
    }
}

struct Writer<'s> {
    solved: &'s Solved,
    places: HashMap<SiteId, usize>,
    source: &'s str,
}

impl Writer<'_> {
    fn tasks(&self, deps: Deps) -> BTreeSet<usize> {
        if self.solved.entangled {
            return (0..self.solved.tasks.len()).collect();
        }
        let sites = self.solved.domain.sources.tasks(deps);
        sites.filter_map(|site| self.places.get(&site).copied()).collect()
    }

    fn task(&self, task: &FoundTask) -> Told {
        let arguments = task.arguments.iter();
        Told {
            at: task.at,
            tool: task.tool.clone(),
            may: task.may,
            many: task.many,
            data: self.tasks(task.data),
            decided: self.tasks(task.decides),
            inputs: self.inputs(task.data),
            decided_inputs: self.inputs(task.decides),
            arguments: arguments
                .map(|(name, shown)| (name.to_string(), self.argument(shown)))
                .collect(),
        }
    }

    fn inputs(&self, deps: Deps) -> Vec<String> {
        if self.solved.entangled {
            return vec![parameter(&[])];
        }
        self.solved.domain.sources.inputs(deps)
    }

    fn names(&self, deps: Deps) -> Vec<String> {
        self.tasks(deps).into_iter().map(|place| format!("t{}", place + 1)).collect()
    }

    fn argument(&self, shown: &Shown) -> Argument {
        let paths = &self.solved.domain.paths;
        let names = &self.solved.domain.names;
        match shown {
            Shown::Literal(value) => Argument::Literal { value: value.clone() },
            Shown::Reference(site, path) => Argument::Reference {
                task: self
                    .places
                    .get(site)
                    .map(|place| format!("t{}", place + 1))
                    .unwrap_or_default(),
                path: paths.told(*path, names),
            },
            Shown::Parameter(path) => Argument::Parameter { path: paths.told(*path, names) },
            Shown::Object { fields, rest } => {
                let mut out: IndexMap<String, Argument> = fields
                    .iter()
                    .map(|(name, shown)| (name.to_string(), self.argument(shown)))
                    .collect();
                if let Some((deps, span)) = rest {
                    out.insert("*".into(), self.computed(*deps, *span));
                }
                Argument::Object { fields: out }
            }
            Shown::Array(items) => {
                Argument::Array { items: items.iter().map(|item| self.argument(item)).collect() }
            }
            Shown::Computed { deps, span } => self.computed(*deps, *span),
        }
    }

    fn computed(&self, deps: Deps, (low, high): (u32, u32)) -> Argument {
        let text = self.source.get(low as usize..high as usize).unwrap_or_default();
        Argument::Expression {
            source: excerpt(text),
            depends_on: self.names(deps),
            from_args: self.solved.domain.sources.inputs(deps),
        }
    }
}

#[cfg(test)]
mod tests;
