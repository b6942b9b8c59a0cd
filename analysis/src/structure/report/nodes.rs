//! The branches, loops and forks around the calls.

use std::collections::{BTreeMap, BTreeSet};

use super::excerpt::excerpt;
use super::{Report, sorted};
use crate::structure::core::Branch;
use crate::structure::solve::{FoundKind, FoundNode, FoundTask, Solved};
use crate::structure::{Node, NodeKind, StaticStructure, Task};

/// Returns the calls in the order of the structure.
pub(super) fn in_order(solved: &Solved) -> Vec<&FoundTask> {
    let found = solved.nodes.iter().filter_map(|node| match node.kind {
        FoundKind::Task(place) => solved.tasks.get(place),
        _ => None,
    });
    found.collect()
}

/// Converts the nodes that the solver found, and their tasks.
pub(super) fn structure(report: &Report<'_>, tasks: Vec<Task>) -> StaticStructure {
    let found = &report.solved.nodes;
    let carried = carried(report, found);
    let numbers = numbers(found);
    let number = |id: u32| numbers.get(id as usize).copied().flatten();
    let mut tasks = tasks.into_iter().enumerate();
    let mut nodes = Vec::with_capacity(found.len());
    for (at, node) in found.iter().enumerate() {
        let Some(id) = number(at as u32) else { continue };
        let kind = match node.kind {
            FoundKind::Task(_) => {
                let Some((place, mut task)) = tasks.next() else { break };
                let later = carried.of_tasks.get(&place).into_iter().flatten();
                task.decided_by.extend(report.ids_of(later));
                NodeKind::Task(task)
            }
            FoundKind::Moved => continue,
            FoundKind::Decision { test, deps } => NodeKind::Decision {
                test: excerpt(report.source, test),
                depends_on: report.ids_of(&report.tasks(deps)),
            },
            FoundKind::Loop { over, deps } => {
                let mut deciders = report.tasks(deps);
                deciders.extend(carried.of_loops.get(&at).into_iter().flatten());
                let depends_on = report.ids_of(&sorted(deciders));
                NodeKind::Loop { over: excerpt(report.source, over), depends_on }
            }
            FoundKind::Fork { how } => NodeKind::Fork { how: how.into() },
            FoundKind::Join { fork } => NodeKind::Join { fork: number(fork).unwrap_or_default() },
        };
        let parent = node.parent.and_then(number);
        nodes.push(Node { id, parent, branch: node.branch.map(branch_name), kind });
    }
    StaticStructure { nodes }
}

/// Returns the number of each node; nodes without a call are omitted.
fn numbers(found: &[FoundNode]) -> Vec<Option<u32>> {
    let mut kept = vec![false; found.len()];
    // A parent comes before its children, so walking backwards marks children first.
    for (at, node) in found.iter().enumerate().rev() {
        kept[at] |= matches!(node.kind, FoundKind::Task(_));
        if let (true, Some(parent)) = (kept[at], node.parent) {
            kept[parent as usize] = true;
        }
    }
    let mut next = 0;
    let mut numbers = Vec::with_capacity(found.len());
    for (at, node) in found.iter().enumerate() {
        let is_kept = match node.kind {
            // A join comes after its fork.
            FoundKind::Join { fork } => kept.get(fork as usize).copied().unwrap_or_default(),
            _ => kept[at],
        };
        numbers.push(is_kept.then_some(next));
        next += u32::from(is_kept);
    }
    numbers
}

/// Tasks that decide on earlier calls, usually through the next iteration of a loop.
#[derive(Default)]
struct Carried {
    /// By the index of the innermost loop around such calls.
    of_loops: BTreeMap<usize, BTreeSet<usize>>,
    /// By the index of the call, if no loop encloses it.
    of_tasks: BTreeMap<usize, BTreeSet<usize>>,
}

fn carried(report: &Report<'_>, found: &[FoundNode]) -> Carried {
    let mut out = Carried::default();
    let nodes = found.iter().filter(|node| matches!(node.kind, FoundKind::Task(_)));
    for (place, (node, task)) in nodes.zip(&report.found).enumerate() {
        // Tasks from this call on usually decide on it through an earlier iteration. A loop around the
        // call that lists them already covers them.
        let mut left = report.tasks(task.decides);
        left.retain(|decider| *decider >= place);
        let mut innermost = None;
        let mut next = node.parent;
        while let (Some(id), false) = (next, left.is_empty()) {
            let Some(node) = found.get(id as usize) else { break };
            if let FoundKind::Loop { deps, .. } = node.kind {
                innermost.get_or_insert(id as usize);
                let known = report.tasks(deps);
                left.retain(|decider| known.binary_search(decider).is_err());
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

/// Returns the public name of a branch.
fn branch_name(branch: Branch) -> String {
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
