//! The flows of the analysis of the core language in the structure that the walk over the tree builds.
//!
//! What either of the two tells is told: a flow that one of them does not see is not lost.

mod merge;

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;

use self::merge::Merge;
use super::{Report, Told, report};
use crate::Limits;
use crate::diagnostic::{Code, Finding};
use crate::parse::Parsed;
use crate::structure::build::{Built, build_by_tree};
use crate::structure::lower::lower;
use crate::structure::{Argument, Node, NodeKind, Task};

/// Builds the structure of a program, with the flows that either analysis finds.
///
/// Tools and gaps, and the nodes around the calls, are those of the walk over the tree.
pub(crate) fn build(parsed: &Parsed, source: &str, limits: &Limits) -> Result<Built, Finding> {
    let mut built = build_by_tree(parsed, source, limits)?;
    if let Some(main) = parsed.function() {
        let found = report(&lower(main), source, limits);
        built.findings.retain(|known| !is_of_core(known.code));
        built.findings.extend(found.findings.iter().cloned());
        if !built.sites.is_empty() {
            lay_over(&mut built, &found, limits)?;
        }
    }
    Ok(built)
}

/// Returns whether the analysis of the core language alone tells of this.
fn is_of_core(code: Code) -> bool {
    matches!(
        code,
        Code::ToolPromiseUsed
            | Code::ToolPromiseMaybeUsed
            | Code::ToolPromiseDropped
            | Code::UnknownName
            | Code::InvalidToolName
    )
}

fn lay_over(built: &mut Built, found: &Report, limits: &Limits) -> Result<(), Finding> {
    if found.entangled && built.dynamic {
        // It says already that it does not tell everything.
        return Ok(());
    }
    if found.entangled {
        let message = "the values of this program are too entangled to be followed; call tools directly, from fewer functions";
        built.findings.push(Finding::new(Code::DynamicEscape, 0, message));
        built.dynamic = true;
        return Ok(());
    }
    let new: HashMap<(u32, &str), usize> = found
        .tasks
        .iter()
        .enumerate()
        .map(|(place, told)| ((told.at, told.tool.as_str()), place))
        .collect();
    let tasks = built.structure.nodes.iter_mut().filter_map(|node| match &mut node.kind {
        NodeKind::Task(task) | NodeKind::Capability(task) => Some(task),
        _ => None,
    });
    let mut tasks: Vec<(u32, &mut Task)> = built.sites.iter().copied().zip(tasks).collect();
    let of_old: Vec<Option<usize>> =
        tasks.iter().map(|(at, task)| new.get(&(*at, task.tool.as_str())).copied()).collect();
    let mut of_new: Vec<Option<usize>> = vec![None; found.tasks.len()];
    for (old, new) in of_old.iter().enumerate() {
        if let Some(known) = new.and_then(|new| of_new.get_mut(new)) {
            *known = Some(old);
        }
    }
    let mut later = Vec::new();
    let mut edges = 0;
    for (place, (at, task)) in tasks.iter_mut().enumerate() {
        match of_old[place].and_then(|new| found.tasks.get(new)) {
            Some(told) => {
                let decided = tell(task, place, told, &of_new);
                if !decided.is_empty() {
                    later.push((place, decided));
                }
            }
            // One of the two finds no way to it.
            None => task.conditional |= !task.repeats,
        }
        edges += task.depends_on.len().max(task.data_from.len());
        if edges > limits.edges {
            let message = "the tasks of this program depend on each other in too many ways; pass results on in smaller steps";
            return Err(Finding::new(Code::TooComplex, *at, message));
        }
    }
    tell_loops(&mut built.structure.nodes, &later);
    Ok(())
}

/// Adds what is told of a task; returns those that decide on it and do not stand before it.
fn tell(task: &mut Task, place: usize, told: &Told, of_new: &[Option<usize>]) -> BTreeSet<usize> {
    let places = |found: &BTreeSet<usize>| -> BTreeSet<usize> {
        found.iter().filter_map(|new| of_new.get(*new).copied().flatten()).collect()
    };
    let (data, decided) = (places(&told.data), places(&told.decided));
    join(&mut task.data_from, &data);
    // A graph has no place for what an earlier round of a loop hands on.
    let before = |of: &BTreeSet<usize>| of.range(..place).copied().collect::<BTreeSet<usize>>();
    join(&mut task.decided_by, &before(&decided));
    join(&mut task.depends_on, &before(&data));
    join(&mut task.depends_on, &before(&decided));
    task.decided_by_args.clone_from(&told.decided_inputs);
    task.repeats |= told.many;
    task.conditional |= told.may && !task.repeats;
    let merge = Merge { of_new, place };
    merge.all(&mut task.arguments, &told.arguments, &told.inputs);
    task.from_args = task.arguments.values().any(Argument::is_from_args);
    decided.range(place..).copied().collect()
}

/// Tells the innermost loop around each task which later ones decide on its next round, if none says so;
/// without a loop, the task itself.
fn tell_loops(nodes: &mut [Node], later: &[(usize, BTreeSet<usize>)]) {
    let of_tasks: Vec<usize> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| matches!(node.kind, NodeKind::Task(_) | NodeKind::Capability(_)))
        .map(|(at, _)| at)
        .collect();
    let mut of_loops: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut of_calls: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    for (place, deciders) in later {
        let mut left = deciders.clone();
        let mut innermost = None;
        let mut next = of_tasks.get(*place).copied();
        while let Some((at, node)) = next.and_then(|at| Some((at, nodes.get(at)?))) {
            if let NodeKind::Loop { depends_on, .. } = &node.kind {
                innermost.get_or_insert(at);
                for known in depends_on.iter().filter_map(|name| place_of(name)) {
                    left.remove(&known);
                }
            }
            next = node.parent.map(|parent| parent as usize);
        }
        match innermost {
            Some(at) => of_loops.entry(at).or_default().extend(left),
            None => of_calls.extend(of_tasks.get(*place).map(|at| (*at, left))),
        }
    }
    for (at, deciders) in of_calls {
        if let Some(NodeKind::Task(task) | NodeKind::Capability(task)) =
            nodes.get_mut(at).map(|node| &mut node.kind)
        {
            join(&mut task.decided_by, &deciders);
        }
    }
    for (at, deciders) in of_loops {
        if let Some(NodeKind::Loop { depends_on, .. }) =
            nodes.get_mut(at).map(|node| &mut node.kind)
        {
            join(depends_on, &deciders);
        }
    }
}

/// Returns the name of the task at a place.
fn name(place: usize) -> String {
    format!("t{}", place + 1)
}

/// Returns the place of the task of a name.
fn place_of(name: &str) -> Option<usize> {
    name.strip_prefix('t')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Adds tasks to others, in the order of the tasks.
fn join(names: &mut Vec<String>, more: &BTreeSet<usize>) {
    if more.is_empty() {
        return;
    }
    let mut places: BTreeSet<usize> = names.iter().filter_map(|name| place_of(name)).collect();
    let before = places.len();
    places.extend(more);
    if places.len() > before {
        *names = places.into_iter().map(name).collect();
    }
}
