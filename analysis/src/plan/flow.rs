//! What leaves the machine: results and parts of `args` that flow to tools which run elsewhere or may do so, or that
//! decide whether these are called.

use std::collections::{HashMap, VecDeque};

use protocol::{ArgsEgress, Egress};

use super::PlannedTask;
use crate::Argument;
use crate::structure::parameter;

/// Returns each pair of a task that may be on the client and a task that may send
/// its result away: the result is in the arguments, decides whether or how often
/// the task is called, or reaches it in this way through other tasks.
///
/// The fact that a tool is called reveals what decided on the call. The result of
/// a task depends on its arguments and on whether it was called, so the search
/// follows data and decisions alike.
///
/// The arguments of a server tool are on the server already. The flow from its
/// result to the next tool is listed too, because another service sees the data.
pub(super) fn egress(tasks: &[PlannedTask]) -> Vec<Egress> {
    let sources = Sources::of(tasks);
    let mut out = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        if task.takes_away() {
            sources.reaching(tasks, place, &mut out);
        }
    }
    out.sort_by_key(|flow| (flow.from, flow.to));
    let name = |place: usize| tasks.get(place).map(|task| task.id.clone()).unwrap_or_default();
    out.into_iter()
        .map(|flow| Egress {
            from: name(flow.from),
            to: name(flow.to),
            via: flow.via.into_iter().map(name).collect(),
            decides: flow.decides,
        })
        .collect()
}

/// The maximum number of tasks listed between two. A long chain has quadratically
/// many pairs; with all the tasks between them, the plan would not fit into memory.
const VIA_LIMIT: usize = 8;

/// A pair of tasks, by position, and the tasks between them.
struct Flow {
    from: usize,
    to: usize,
    via: Vec<usize>,
    /// Whether no path between them consists of data only.
    decides: bool,
}

/// The positions of the tasks whose results each task depends on.
struct Sources {
    /// Tasks whose results flow into the arguments.
    data: Vec<Vec<usize>>,
    /// `data`, and the tasks that decide on the call.
    all: Vec<Vec<usize>>,
}

impl Sources {
    fn of(tasks: &[PlannedTask]) -> Self {
        let places: HashMap<&str, usize> =
            tasks.iter().enumerate().map(|(place, task)| (&*task.id, place)).collect();
        let of = |ids: &[String]| -> Vec<usize> {
            ids.iter().filter_map(|id| places.get(id.as_str()).copied()).collect()
        };
        let data: Vec<Vec<usize>> = tasks.iter().map(|task| of(&task.data_from)).collect();
        let all = tasks.iter().zip(&data);
        let all = all.map(|(task, data)| [&data[..], &of(&task.decided_by)].concat()).collect();
        Self { data, all }
    }

    /// Searches backwards from a task that sends data away for all tasks whose results reach it.
    fn reaching(&self, tasks: &[PlannedTask], to: usize, out: &mut Vec<Flow>) {
        let (as_data, any) = (steps_to(&self.data, to), steps_to(&self.all, to));
        for (from, task) in tasks.iter().enumerate() {
            if !task.may_be_here() {
                continue;
            }
            // A result that arrives as data is listed as data, even if it also decides.
            if let Some(via) = path(&as_data, from, to) {
                out.push(Flow { from, to, via, decides: false });
            } else if let Some(via) = path(&any, from, to) {
                out.push(Flow { from, to, via, decides: true });
            }
        }
    }
}

/// Returns, for each task, the next task on a shortest path to `to`.
fn steps_to(sources: &[Vec<usize>], to: usize) -> Vec<Option<usize>> {
    let mut next: Vec<Option<usize>> = vec![None; sources.len()];
    let mut waiting = VecDeque::from([to]);
    while let Some(place) = waiting.pop_front() {
        for &from in sources.get(place).into_iter().flatten() {
            let Some(seen) = next.get_mut(from) else { continue };
            // The search is breadth-first, so the first path found is a shortest one.
            if from == to || seen.is_some() {
                continue;
            }
            *seen = Some(place);
            waiting.push_back(from);
        }
    }
    next
}

/// Returns the first tasks on the path between two, if there is a path.
fn path(next: &[Option<usize>], from: usize, to: usize) -> Option<Vec<usize>> {
    let step = |place: usize| next.get(place).copied().flatten();
    let first = step(from)?;
    let places = std::iter::successors(Some(first), |place| step(*place));
    Some(places.take_while(|place| *place != to).take(VIA_LIMIT).collect())
}

/// Returns the tasks that send data away and whose arguments depend on `args`, or on whose calls `args` decides.
pub(super) fn args_egress(tasks: &[PlannedTask]) -> Vec<ArgsEgress> {
    tasks
        .iter()
        .filter(|task| task.takes_away() && (task.from_args || !task.decided_by_args.is_empty()))
        .map(|task| {
            let mut parameters = task.parameters.clone();
            for argument in task.arguments.values() {
                collect_computed(argument, &mut parameters);
            }
            let is_passed =
                |part: &String| parameters.iter().any(|passed| passed == "args" || passed == part);
            let decides = task.decided_by_args.iter().filter(|part| !is_passed(part));
            let decides = decides.cloned().collect();
            ArgsEgress { to: task.id.clone(), parameters, decides }
        })
        .collect()
}

/// Collects the parts of `args` from which an argument is computed.
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

/// Collects the parts of `args` that an argument contains unchanged.
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
