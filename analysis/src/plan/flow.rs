//! What leaves the machine: results and `args` on their way to the server.

use std::collections::{HashMap, VecDeque};

use protocol::Routing;

use super::{ArgsEgress, Egress, PlannedTask};
use crate::{Argument, PathStep};

/// Returns each pair of a task on the client whose result reaches a task on the
/// server, directly or through other tasks' results.
///
/// What a server tool was given is on the server already; its result still
/// carries the client's data to the next tool, and that is listed too: another
/// service sees it.
pub(super) fn egress(tasks: &[PlannedTask]) -> Vec<Egress> {
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (&*task.id, place)).collect();
    let mut out = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if task.side == Routing::Server {
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

/// Walks from one task on the server backwards to all whose results reach it.
fn into(tasks: &[PlannedTask], places: &HashMap<&str, usize>, to: usize, out: &mut Vec<Flow>) {
    // The task that each one was found from, which leads on to the server task.
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
        if task.side != Routing::Client {
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

/// Returns the tasks on the server whose arguments are, or may be, made from `args`.
pub(super) fn args_egress(tasks: &[PlannedTask], program: &str) -> Vec<ArgsEgress> {
    let used = names_args(program);
    tasks
        .iter()
        .filter(|task| used && task.side == Routing::Server)
        .filter_map(|task| {
            let mut parameters = task.parameters.clone();
            let mut computed = false;
            for argument in task.arguments.values() {
                computed |= computes(argument, &mut parameters);
            }
            (computed || !parameters.is_empty()).then(|| ArgsEgress {
                to: task.id.clone(),
                parameters,
                perhaps_more: computed,
            })
        })
        .collect()
}

/// Returns whether an argument has a computed part, and collects what all such
/// parts name of `args`.
fn computes(argument: &Argument, parameters: &mut Vec<String>) -> bool {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Parameter { .. } => false,
        Argument::Object { fields } => {
            fields.values().filter(|field| computes(field, parameters)).count() > 0
        }
        Argument::Array { items } => {
            items.iter().filter(|item| computes(item, parameters)).count() > 0
        }
        Argument::Expression { source, .. } => {
            for name in named(source) {
                add(parameters, name);
            }
            true
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

fn parameter(path: &[PathStep]) -> String {
    let mut out = "args".to_owned();
    for step in path {
        match step {
            PathStep::Index(index) => out += &format!("[{index}]"),
            PathStep::Field(name) if is_identifier(name) => out += &format!(".{name}"),
            PathStep::Field(name) => out += &format!("[{name:?}]"),
        }
    }
    out
}

fn is_identifier(name: &str) -> bool {
    name.chars().all(is_name_part) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn names_args(program: &str) -> bool {
    // An escape in a name is rare; then `args` counts as named.
    program.contains("\\u") || named(program).next().is_some()
}

/// Returns the places where a text names `args`, with the members that follow.
fn named(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("args").filter_map(|(at, word)| {
        let before = text.get(..at)?;
        let after = text.get(at + word.len()..)?;
        // `.args` is a member of something else, `...args` is not.
        let member = before.ends_with('.') && !before.ends_with("...");
        if member || before.ends_with(is_name_part) || after.starts_with(is_name_part) {
            return None;
        }
        let mut end = 0;
        while let Some(field) = after.get(end..).and_then(|rest| {
            let dot = if rest.starts_with("?.") { 2 } else { 1 };
            let name = rest.strip_prefix("?.").or_else(|| rest.strip_prefix('.'))?;
            let length = name.find(|c| !is_name_part(c)).unwrap_or(name.len());
            (length > 0).then_some(dot + length)
        }) {
            end += field;
        }
        Some(format!("args{}", after.get(..end).unwrap_or_default().replace("?.", ".")))
    })
}
