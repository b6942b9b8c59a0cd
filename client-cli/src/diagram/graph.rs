//! A plan as nodes and edges, for all diagram formats.

use std::collections::{BTreeMap, BTreeSet};

use analysis::{Certainty, Effect, Plan, PlannedTask, Times};
use protocol::Side;

use super::display::{Limit, named, short};

/// The maximum length of a line in a node.
const LINE_LIMIT: usize = 44;
/// The maximum length of an argument in a node.
const ARGUMENT: Limit = Limit::marked(30);
/// The maximum number of arguments in a node.
const ARGUMENTS_LIMIT: usize = 3;

/// The contents of the diagram.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// Whether the plan is incomplete, which is shown above the diagram.
    pub(super) incomplete: bool,
}

/// A task, or `args`.
pub(super) struct Node {
    pub(super) id: String,
    pub(super) kind: NodeKind,
    pub(super) effect: Option<Effect>,
    pub(super) may: bool,
    pub(super) many: bool,
    /// The first line, escaped for display.
    pub(super) title: String,
    /// The steps that it is in, as text.
    pub(super) step: String,
    /// More lines, escaped for display.
    pub(super) lines: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Client,
    Server,
    /// The location is unknown.
    Unknown,
    /// The input of the program.
    Args,
}

/// An edge between two nodes, by their indexes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: EdgeKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeKind {
    /// A result flows into arguments.
    Data,
    /// Data of the user's machine flows to the server, or from one call to another there.
    Egress,
    /// A result decides whether the call is made.
    Control,
    /// Data of the user's machine decides whether a call outside this machine is made.
    EgressControl,
    /// One effect happens after another, which no other edge shows.
    Order,
}

impl Graph {
    /// Creates the graph of a plan.
    ///
    /// A control edge is omitted if a path of other edges leads from its source to its target (a transitive reduction).
    /// The text and the JSON have all of them.
    pub(super) fn of(plan: &Plan) -> Self {
        let indexes: BTreeMap<&str, usize> =
            plan.tasks.iter().enumerate().map(|(index, task)| (&*task.id, index)).collect();
        let mut nodes: Vec<Node> = plan.tasks.iter().map(|task| node(plan, task)).collect();
        let reached: BTreeSet<&str> = plan.egress.iter().map(|pair| &*pair.to).collect();
        let data_targets = plan.egress.iter().filter(|pair| !pair.decides);
        let data_targets: BTreeSet<&str> = data_targets.map(|pair| &*pair.to).collect();
        // Whether the result of `from` is data of this machine or may contain such data, and `to` sends it away.
        let leaves = |from: usize, to: &PlannedTask, on: &BTreeSet<&str>| {
            plan.runs_on != Side::Server
                && to.takes_away()
                && plan
                    .tasks
                    .get(from)
                    .is_some_and(|from| from.may_be_here() || on.contains(&*from.id))
        };
        let mut data = BTreeMap::new();
        let mut control = BTreeMap::new();
        for (to, task) in plan.tasks.iter().enumerate() {
            for source in &task.data_from {
                let Some(&from) = indexes.get(&**source) else { continue };
                // A call that uses its own earlier result is shown as "many".
                if from != to {
                    let leaves = leaves(from, task, &data_targets);
                    data.insert((from, to), if leaves { EdgeKind::Egress } else { EdgeKind::Data });
                }
            }
            for source in &task.decided_by {
                if let Some(&from) = indexes.get(&**source)
                    && from != to
                {
                    let leaves = leaves(from, task, &reached);
                    let kind = if leaves { EdgeKind::EgressControl } else { EdgeKind::Control };
                    control.insert((from, to), kind);
                }
            }
        }
        // A result that is passed on may decide as well. One edge is enough, and data says more.
        control.retain(|pair, _| !data.contains_key(pair));
        let known: BTreeSet<(usize, usize)> = data.keys().copied().collect();
        let decided: BTreeSet<(usize, usize)> = control.keys().copied().collect();
        let all: BTreeSet<(usize, usize)> = known.union(&decided).copied().collect();
        // An order edge is omitted if data or decisions lead to the same call, directly or through others.
        let mut order = effects_in_order(plan, &indexes);
        order.retain(|pair| !all.contains(pair));
        let order = reduced(nodes.len(), all, &order);
        let left = reduced(nodes.len(), known, &decided);
        let mut edges: Vec<Edge> =
            data.into_iter().map(|((from, to), kind)| Edge { from, to, kind }).collect();
        edges.extend(left.into_iter().filter_map(|(from, to)| {
            let kind = control.get(&(from, to)).copied()?;
            Some(Edge { from, to, kind })
        }));
        edges.extend(order.into_iter().map(|(from, to)| Edge { from, to, kind: EdgeKind::Order }));
        if !plan.args_egress.is_empty() {
            // The last node, so that the indexes of the tasks stay valid.
            let from = nodes.len();
            nodes.push(Node {
                id: "args".into(),
                kind: NodeKind::Args,
                effect: None,
                may: false,
                many: false,
                title: "args".into(),
                step: String::new(),
                lines: Vec::new(),
            });
            for flow in &plan.args_egress {
                let Some(&to) = indexes.get(&*flow.to) else { continue };
                let only_decides = flow.parameters.is_empty();
                let kind = if only_decides { EdgeKind::EgressControl } else { EdgeKind::Egress };
                edges.push(Edge { from, to, kind });
            }
        }
        Self { nodes, edges, incomplete: !plan.complete }
    }
}

/// Returns edges from the effects of each step to those of the next step that has effects. Effects that are not
/// awaited, or that can happen at any time, precede no other.
fn effects_in_order(plan: &Plan, indexes: &BTreeMap<&str, usize>) -> BTreeSet<(usize, usize)> {
    let has_effect = |index: &usize| {
        plan.tasks.get(*index).is_some_and(|task| {
            !matches!(task.effect, Effect::Reads | Effect::Asks | Effect::Computes)
        })
    };
    let mut edges = BTreeSet::new();
    let mut before: Vec<usize> = Vec::new();
    for step in plan.order.iter().filter(|step| !step.any_time) {
        let found = step.tasks.iter().filter_map(|id| indexes.get(&**id).copied());
        let effects: Vec<usize> = found.filter(has_effect).collect();
        if effects.is_empty() {
            continue;
        }
        for to in &effects {
            // A call in a function that is called twice is in two steps. Edges back to it would
            // form a circle.
            edges.extend(before.iter().filter(|from| *from < to).map(|from| (*from, *to)));
        }
        // Many-to-many edges would clutter the diagram, and add nothing to the step numbers.
        let has_few = effects.len() <= 3 && step.unawaited.is_none();
        before = if has_few { effects } else { Vec::new() };
    }
    edges
}

/// Returns the edges of `control` that no other path replaces.
fn reduced(
    nodes: usize,
    data: BTreeSet<(usize, usize)>,
    control: &BTreeSet<(usize, usize)>,
) -> Vec<(usize, usize)> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (from, to) in data.iter().chain(control) {
        // Forward edges only: the back edge of a loop does not lead to a later call.
        if from < to
            && let Some(next) = next.get_mut(*from)
        {
            next.push(*to);
        }
    }
    let has_other_path = |from: usize, to: usize| {
        let mut seen = vec![false; nodes];
        let steps = next.get(from).into_iter().flatten().copied();
        // Without the direct edge, which is not another path.
        let mut waiting: Vec<usize> = steps.filter(|step| *step != to).collect();
        while let Some(index) = waiting.pop() {
            if index == to {
                return true;
            }
            // All edges lead to higher indexes, so no path from here leads back to `to`.
            if index > to {
                continue;
            }
            if let Some(known) = seen.get_mut(index)
                && !std::mem::replace(known, true)
            {
                waiting.extend(next.get(index).into_iter().flatten());
            }
        }
        false
    };
    control.iter().copied().filter(|(from, to)| !has_other_path(*from, *to)).collect()
}

fn node(plan: &Plan, task: &PlannedTask) -> Node {
    let mut lines = Vec::new();
    for (name, value) in task.arguments.iter().take(ARGUMENTS_LIMIT) {
        lines.push(cut(&named(name, value, ARGUMENT)));
    }
    if task.arguments.len() > ARGUMENTS_LIMIT {
        lines.push(format!("and {} more", task.arguments.len() - ARGUMENTS_LIMIT));
    }
    Node {
        id: task.id.clone(),
        kind: match task.side {
            Side::Client => NodeKind::Client,
            Side::Server => NodeKind::Server,
            Side::Unknown => NodeKind::Unknown,
        },
        effect: Some(task.effect),
        may: task.certainty == Certainty::May,
        many: task.times == Times::Many,
        title: format!("{} {}", task.id, short(task.tool.as_str(), Limit::marked(60))),
        step: steps(plan, &task.id),
        lines,
    }
}

/// Returns the step numbers of a task as text.
fn steps(plan: &Plan, id: &str) -> String {
    const SHOWN: usize = 3;
    let mut shown = String::new();
    let steps = plan.order.iter().enumerate();
    let own = steps.filter(|(_, step)| step.tasks.iter().any(|task| task == id));
    for (count, (index, step)) in own.enumerate() {
        if step.any_time {
            return "any time".to_owned();
        }
        match count {
            0 => shown = format!("step {}", index + 1),
            SHOWN => shown += " …",
            count if count < SHOWN => shown += &format!(" {}", index + 1),
            _ => {}
        }
    }
    shown
}

/// Shortens a line, which must be escaped already.
fn cut(line: &str) -> String {
    if line.chars().count() <= LINE_LIMIT {
        return line.to_owned();
    }
    let kept: String = line.chars().take(LINE_LIMIT - 1).collect();
    format!("{kept}…")
}
