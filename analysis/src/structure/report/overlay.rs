//! The flows of the new analysis in the structure that the one in use builds.

use std::collections::BTreeSet;

use foldhash::HashMap;

use super::{Report, Told, report};
use crate::Limits;
use crate::diagnostic::Finding;
use crate::parse::Parsed;
use crate::structure::build::{Built, build};
use crate::structure::lower::lower;
use crate::structure::{Argument, NodeKind, Task};

/// Builds the structure of a program, with the flows that the new analysis finds.
///
/// Tools, gaps and findings, and the nodes around the calls, are those of the analysis in use.
pub(crate) fn build_by_core(
    parsed: &Parsed,
    source: &str,
    limits: &Limits,
) -> Result<Built, Finding> {
    let mut built = build(parsed, source, limits)?;
    if let Some(main) = parsed.function() {
        let found = report(&lower(main), source, limits);
        lay_over(&mut built, &found);
    }
    Ok(built)
}

fn lay_over(built: &mut Built, found: &Report) {
    let new: HashMap<(u32, &str), usize> = found
        .tasks
        .iter()
        .enumerate()
        .map(|(place, told)| ((told.at, told.tool.as_str()), place))
        .collect();
    let sites = built.sites.clone();
    let tools: Vec<String> =
        built.structure.tasks().map(|task| task.tool.as_str().to_owned()).collect();
    let of_old: Vec<Option<usize>> = sites
        .iter()
        .zip(&tools)
        .map(|(at, tool)| new.get(&(*at, tool.as_str())).copied())
        .collect();
    let of_new: HashMap<usize, usize> =
        of_old.iter().enumerate().filter_map(|(old, new)| Some(((*new)?, old))).collect();
    let mut tasks = built.structure.nodes.iter_mut().filter_map(|node| match &mut node.kind {
        NodeKind::Task(task) | NodeKind::Capability(task) => Some(task),
        _ => None,
    });
    for (place, new) in of_old.iter().enumerate() {
        let Some(task) = tasks.next() else { break };
        let Some(told) = new.and_then(|new| found.tasks.get(new)) else { continue };
        let before = task.clone();
        tell(task, place, told, &of_new);
        if found.dynamic {
            // What is unknown to one of the two is told as the other has it.
            join(&mut task.data_from, &before.data_from);
            join(&mut task.decided_by, &before.decided_by);
            join(&mut task.depends_on, &before.depends_on);
        }
    }
}

fn tell(task: &mut Task, place: usize, told: &Told, of_new: &HashMap<usize, usize>) {
    let places = |found: &BTreeSet<usize>| -> BTreeSet<usize> {
        found.iter().filter_map(|new| of_new.get(new).copied()).collect()
    };
    let names = |places: &BTreeSet<usize>, before: usize| -> Vec<String> {
        places.range(..before).map(|place| format!("t{}", place + 1)).collect()
    };
    let (data, decided) = (places(&told.data), places(&told.decided));
    // What a call only waits for is told by the analysis in use.
    let waits = task
        .depends_on
        .iter()
        .filter(|name| !task.data_from.contains(name) && !task.decided_by.contains(name));
    let waits = waits.filter_map(|name| name.strip_prefix('t')?.parse::<usize>().ok());
    let mut all: BTreeSet<usize> = waits.map(|number| number - 1).collect();
    all.extend(data.iter().chain(&decided));
    task.data_from = names(&data, usize::MAX);
    task.decided_by = names(&decided, place);
    task.depends_on = names(&all, place);
    (task.conditional, task.repeats) = (told.may, told.many);
    if !told.inputs.is_empty() && !task.arguments.values().any(Argument::is_from_args) {
        task.arguments.entry("*".into()).or_insert_with(|| Argument::Expression {
            source: String::new(),
            depends_on: Vec::new(),
            from_args: told.inputs.clone(),
        });
    }
    task.from_args = task.arguments.values().any(Argument::is_from_args);
}

/// Adds names of tasks to others, in the order of the tasks.
fn join(names: &mut Vec<String>, more: &[String]) {
    names.extend(more.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
    names.sort_by_key(|name| name.get(1..).and_then(|number| number.parse::<usize>().ok()));
}
