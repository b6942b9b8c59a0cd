//! The parts of the program around its calls.

use std::collections::{BTreeMap, BTreeSet};

use super::excerpt::excerpt;
use super::{Report, name};
use crate::structure::core::Branch;
use crate::structure::solve::{FoundKind, FoundNode};
use crate::structure::{Node, NodeKind, StaticStructure, Task};

/// Puts the parts of a program and its tasks into their form.
pub(super) fn structure(report: &Report<'_>, tasks: Vec<Task>) -> StaticStructure {
    let found = &report.solved.nodes;
    let carried = carried(report, found);
    let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
    let mut nodes = Vec::with_capacity(found.len());
    for (id, node) in found.iter().enumerate() {
        let names = |places: BTreeSet<usize>| places.into_iter().map(name).collect();
        let kind = match node.kind {
            FoundKind::Task(place) => {
                let Some(mut task) = tasks.get_mut(place).and_then(Option::take) else { continue };
                task.decided_by
                    .extend(carried.of_tasks.get(&place).into_iter().flatten().copied().map(name));
                NodeKind::Task(task)
            }
            FoundKind::Decision { test, deps } => NodeKind::Decision {
                test: excerpt(report.source, test),
                depends_on: names(report.tasks(deps)),
            },
            FoundKind::Loop { over, deps } => {
                let mut deciders = report.tasks(deps);
                deciders.extend(carried.of_loops.get(&id).into_iter().flatten());
                NodeKind::Loop { over: excerpt(report.source, over), depends_on: names(deciders) }
            }
            FoundKind::Fork { how } => NodeKind::Fork { how: how.into() },
            FoundKind::Join { fork } => NodeKind::Join { fork },
        };
        nodes.push(Node { id: id as u32, parent: node.parent, branch: node.branch.map(way), kind });
    }
    StaticStructure { nodes }
}

/// What decides on calls that stand before it: by the next round of a loop, as a rule.
#[derive(Default)]
struct Carried {
    /// By the number of the innermost loop around such calls.
    of_loops: BTreeMap<usize, BTreeSet<usize>>,
    /// By the place of the call, where no loop is around it.
    of_tasks: BTreeMap<usize, BTreeSet<usize>>,
}

fn carried(report: &Report<'_>, found: &[FoundNode]) -> Carried {
    let mut out = Carried::default();
    for node in found {
        let FoundKind::Task(place) = node.kind else { continue };
        let Some(task) = report.solved.tasks.get(place) else { continue };
        let mut left = report.tasks(task.decides).split_off(&place);
        let mut innermost = None;
        let mut next = node.parent;
        while let (Some(id), false) = (next, left.is_empty()) {
            let Some(node) = found.get(id as usize) else { break };
            if let FoundKind::Loop { deps, .. } = node.kind {
                innermost.get_or_insert(id as usize);
                report.tasks(deps).iter().for_each(|known| {
                    left.remove(known);
                });
            }
            next = node.parent;
        }
        if left.is_empty() {
            continue;
        }
        match innermost {
            Some(id) => out.of_loops.entry(id).or_default().extend(left),
            None => out.of_tasks.entry(place).or_default().extend(left),
        }
    }
    out
}

/// Returns the name of a way out of a part of the program.
fn way(branch: Branch) -> String {
    match branch {
        Branch::Then => "then".into(),
        Branch::Else => "else".into(),
        Branch::Case(place) => format!("case {place}"),
        Branch::Default => "default".into(),
        Branch::Test => "test".into(),
        Branch::Body => "body".into(),
        Branch::Update => "update".into(),
        Branch::Try => "try".into(),
        Branch::Catch => "catch".into(),
        Branch::Finally => "finally".into(),
        Branch::Member(place) => format!("member {place}"),
        Branch::Members => "members".into(),
    }
}
