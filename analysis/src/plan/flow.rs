//! What leaves the machine: results and `args` on their way to tools that are, or may be, elsewhere.

use std::collections::{HashMap, VecDeque};

use protocol::{ArgsEgress, Egress};

use super::PlannedTask;
use crate::Argument;
use crate::structure::parameter;

/// Returns each pair of a task that may be on the client whose result reaches a
/// task that may send it away, directly or through other tasks' results.
///
/// What a server tool was given is on the server already; its result still
/// carries the client's data to the next tool, and that is listed too: another
/// service sees it.
pub(super) fn egress(tasks: &[PlannedTask]) -> Vec<Egress> {
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (&*task.id, place)).collect();
    let mut out = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if task.takes_away() {
            into(tasks, &places, place, &mut out);
        }
    }
    out.sort_by_key(|(from, to, _)| (*from, *to));
    let name = |place: usize| tasks.get(place).map(|task| task.id.clone()).unwrap_or_default();
    out.into_iter()
        .map(|(from, to, via)| Egress {
            from: name(from),
            to: name(to),
            via: via.into_iter().map(name).collect(),
        })
        .collect()
}

/// The most tasks that are named between two. Long chains have very many pairs,
/// and with all of their tasks the plan would not fit into memory.
const VIA_LIMIT: usize = 8;

/// A pair of places and what is between them.
type Flow = (usize, usize, Vec<usize>);

/// Walks from one task that takes data away backwards to all whose results reach it.
fn into(tasks: &[PlannedTask], places: &HashMap<&str, usize>, to: usize, out: &mut Vec<Flow>) {
    // The task that each one was found from, which leads on to that task.
    let mut next: Vec<Option<usize>> = vec![None; tasks.len()];
    let mut waiting = VecDeque::from([to]);
    while let Some(place) = waiting.pop_front() {
        let Some(task) = tasks.get(place) else { continue };
        for source in &task.data_from {
            let Some(&from) = places.get(source.as_str()) else { continue };
            let Some(seen) = next.get_mut(from) else { continue };
            // The first way found is a shortest one.
            if from == to || seen.is_some() {
                continue;
            }
            *seen = Some(place);
            waiting.push_back(from);
        }
    }
    for (from, task) in tasks.iter().enumerate() {
        if !task.may_be_here() {
            continue;
        }
        let mut via = Vec::new();
        let mut step = next.get(from).copied().flatten();
        if step.is_none() {
            continue;
        }
        while let Some(place) = step.filter(|place| *place != to && via.len() < VIA_LIMIT) {
            via.push(place);
            step = next.get(place).copied().flatten();
        }
        out.push((from, to, via));
    }
}

/// Returns the tasks that take data away and whose arguments are made from `args`.
pub(super) fn args_egress(tasks: &[PlannedTask]) -> Vec<ArgsEgress> {
    tasks
        .iter()
        .filter(|task| task.from_args && task.takes_away())
        .map(|task| {
            let mut parameters = task.parameters.clone();
            for argument in task.arguments.values() {
                collect_computed(argument, &mut parameters);
            }
            ArgsEgress { to: task.id.clone(), parameters }
        })
        .collect()
}

/// Collects the parts of `args` that an argument is computed with.
fn collect_computed(argument: &Argument, out: &mut Vec<String>) {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Parameter { .. } => {}
        Argument::Object { fields } => {
            fields.values().for_each(|field| collect_computed(field, out));
        }
        Argument::Array { items } => items.iter().for_each(|item| collect_computed(item, out)),
        Argument::Expression { from_args, .. } => {
            from_args.iter().for_each(|part| add(out, part.clone()));
        }
    }
}

/// Collects the parts of `args` that stand in an argument as they are.
pub(super) fn collect_parameters(argument: &Argument, out: &mut Vec<String>) {
    match argument {
        Argument::Parameter { path } => add(out, parameter(path)),
        Argument::Object { fields } => {
            fields.values().for_each(|field| collect_parameters(field, out));
        }
        Argument::Array { items } => items.iter().for_each(|item| collect_parameters(item, out)),
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Expression { .. } => {}
    }
}

fn add(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}
