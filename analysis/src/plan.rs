//! The plan of a program: what a human judges before it runs.

mod effect;
mod flow;

use indexmap::IndexMap;
use protocol::{ArgsEgress, Egress, RoutingRules, Side, Step, ToolId};
use serde::{Deserialize, Serialize};

pub use effect::Effect;

use crate::{Analysis, Argument, Code, Node, NodeKind, Severity, Task};

/// What a program will and may do, derived from its text alone.
///
/// The plan lists the calls that the analysis found. They are all only if
/// [`complete`](Self::complete) is true; otherwise [`gaps`](Self::gaps) lists the
/// places where the program may do more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Whether the program can run. If not, nothing is planned.
    pub can_run: bool,
    /// The side that runs the program itself.
    pub runs_on: Side,
    /// Whether every tool that any run can call is in `tasks`.
    pub complete: bool,
    /// Where the program chooses tools as it runs, so that the lists of tasks
    /// and of what leaves the machine may be incomplete.
    pub gaps: Vec<Gap>,
    /// The tasks by effect, as an overview.
    pub groups: Vec<Group>,
    /// The tasks in evaluation order.
    pub tasks: Vec<PlannedTask>,
    /// The steps in which the tasks run.
    pub order: Vec<Step>,
    /// Flows of results from tools that may be on the user's machine to tools that
    /// may not be, as data or by deciding whether these are called.
    pub egress: Vec<Egress>,
    /// The parts of `args` that reach tools that may not be on the user's
    /// machine, in a program that may run there, as data or by deciding.
    pub args_egress: Vec<ArgsEgress>,
}

/// A place that the analysis cannot follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The kind of the place.
    pub code: Code,
    /// Why it cannot be followed, and how to write it so that it can.
    pub message: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in code points, from 1.
    pub column: u32,
}

/// The tasks that do one kind of thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What they do.
    pub effect: Effect,
    /// The tasks, in evaluation order.
    pub tasks: Vec<String>,
}

/// Whether every run that ends without an error makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Every such run makes the call.
    Will,
    /// Some runs may not.
    May,
}

impl Certainty {
    /// Returns `will` or `may`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Will => "will",
            Self::May => "may",
        }
    }
}

/// How often one run can make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// At most once.
    Once,
    /// Any number of times.
    Many,
}

impl Times {
    /// Returns `once` or `many`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Many => "many",
        }
    }
}

/// A call of a tool, as planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// The name within the program: `t1`, `t2` …
    pub id: String,
    /// The tool.
    pub tool: ToolId,
    /// The side that runs the tool.
    pub side: Side,
    /// Whether it runs on the user's machine but sends data elsewhere: a capability that reaches tools elsewhere, which
    /// may receive its arguments and what it reads here, or a server behind a URL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sends_within: bool,
    /// What the tool does, according to its name.
    pub effect: Effect,
    /// Whether the call will or may be made.
    pub certainty: Certainty,
    /// How often one run can make it.
    pub times: Times,
    /// The depth of the task in the graph of data and decisions: 0, or one more than
    /// the highest layer of a task that it depends on.
    pub layer: u32,
    /// The line of the call, from 1.
    pub line: u32,
    /// The column of the call in code points, from 1.
    pub column: u32,
    /// The arguments by name; literal ones have `kind` `literal`.
    pub arguments: IndexMap<String, Argument>,
    /// The parts of `args` that are passed unchanged: `args.x`.
    pub parameters: Vec<String>,
    /// Whether `args` flows into the arguments, unchanged or through a computation.
    pub from_args: bool,
    /// The tasks whose results flow into the arguments.
    pub data_from: Vec<String>,
    /// The tasks whose results decide whether or how often the call is made, by a
    /// branch or a loop around it or by an early exit before it.
    pub decided_by: Vec<String>,
    /// The parts of `args` that decide this: `args.x`, or `args` if any part may.
    #[serde(default)]
    pub decided_by_args: Vec<String>,
    /// The branches and loops around the call, outermost first.
    pub conditions: Vec<Condition>,
}

/// A branch or a loop around a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Whether it is a loop.
    pub repeats: bool,
    /// The part of it that contains the call: `then`, `else`, `body` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What is tested or iterated, as written, shortened.
    pub text: String,
}

impl PlannedTask {
    /// Returns whether the tool may have access to data on the user's machine.
    pub fn may_be_here(&self) -> bool {
        self.side != Side::Server
    }

    /// Returns whether the arguments of the call may leave the user's machine.
    pub fn takes_away(&self) -> bool {
        self.side != Side::Client || self.sends_within
    }
}

/// Where a tool runs, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The side.
    pub side: Side,
    /// Whether it runs on the user's machine but may send its arguments elsewhere.
    pub sends_within: bool,
    /// Whether the tool is the one that the table of known tools means by this name. A different
    /// tool of the same name is not assumed to be harmless.
    pub well_known: bool,
}

impl Place {
    /// Returns the place of a well-known tool that sends nothing elsewhere.
    pub fn on(side: Side) -> Self {
        Self { side, sends_within: false, well_known: true }
    }
}

/// Returns the plan of an analysed program under `rules`.
///
/// ```
/// use analysis::{Limits, analyze, plan};
/// use protocol::RoutingRules;
///
/// let analysis = analyze(
///     "const text = await mcp.filesystem.read_file({ path: args.path });
///      return await mcp.json.parse({ data: text });",
///     &Limits::default(),
/// );
/// let plan = plan(&analysis, &RoutingRules::shipped());
/// assert!(plan.complete);
/// assert_eq!(plan.tasks[0].parameters, ["args.path"]);
/// assert_eq!((&*plan.egress[0].from, &*plan.egress[0].to), ("t1", "t2"));
/// ```
pub fn plan(analysis: &Analysis, rules: &RoutingRules) -> Plan {
    let side = |tool: &ToolId| rules.covering(tool).map_or(Side::Unknown, Side::from);
    let runs_on = Side::decide(analysis.dynamic, analysis.tools.iter().map(side));
    plan_with(analysis, runs_on, |tool| Place::on(side(tool)))
}

/// Returns the plan of an analysed program that runs on `runs_on` and whose tools run at
/// `place`.
pub fn plan_with(analysis: &Analysis, runs_on: Side, place: impl Fn(&ToolId) -> Place) -> Plan {
    let nodes = &analysis.structure.nodes;
    let tasks: Vec<PlannedTask> = nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Task(task) | NodeKind::Capability(task) => Some((node, task)),
            _ => None,
        })
        .zip(&analysis.dag.tasks)
        .map(|((node, task), in_dag)| planned(nodes, node, task, in_dag.layer, place(&task.tool)))
        .collect();
    // A program that runs on the server has no client tools, and the server has its `args` already.
    let (egress, args_egress) = if runs_on != Side::Server {
        (flow::egress(&tasks), flow::args_egress(&tasks))
    } else {
        (Vec::new(), Vec::new())
    };
    Plan {
        can_run: analysis.can_run(),
        runs_on,
        complete: analysis.can_run() && !analysis.dynamic,
        gaps: gaps(analysis),
        groups: groups(&tasks),
        order: analysis.order.clone(),
        tasks,
        egress,
        args_egress,
    }
}

fn gaps(analysis: &Analysis) -> Vec<Gap> {
    let found = analysis.diagnostics.iter();
    found
        // A promise that is not awaited is a warning about the run, not a call that the plan may lack.
        .filter(|found| analysis.dynamic && !found.is_for_run())
        .filter(|found| found.severity == Severity::Warning)
        .map(|found| Gap {
            code: found.code,
            message: found.message.clone(),
            line: found.line,
            column: found.column,
        })
        .collect()
}

fn groups(tasks: &[PlannedTask]) -> Vec<Group> {
    Effect::ALL
        .iter()
        .map(|effect| Group {
            effect: *effect,
            tasks: tasks
                .iter()
                .filter(|task| task.effect == *effect)
                .map(|task| task.id.clone())
                .collect(),
        })
        .filter(|group| !group.tasks.is_empty())
        .collect()
}

fn planned(nodes: &[Node], node: &Node, task: &Task, layer: u32, place: Place) -> PlannedTask {
    let (conditions, mut decided_by) = around(nodes, node);
    // An early exit before the call decides on it too, but does not enclose it.
    decided_by.extend(task.decided_by.iter().cloned());
    decided_by.sort_by_key(|id| number(id));
    decided_by.dedup();
    let mut parameters = Vec::new();
    for argument in task.arguments.values() {
        flow::collect_parameters(argument, &mut parameters);
    }
    PlannedTask {
        id: task.task.clone(),
        tool: task.tool.clone(),
        side: place.side,
        sends_within: place.sends_within,
        // The table describes the well-known tool; another tool of that name may do anything.
        effect: match Effect::of(&task.tool) {
            Effect::Reads | Effect::Computes if !place.well_known => Effect::Calls,
            effect => effect,
        },
        certainty: if task.conditional || task.repeats { Certainty::May } else { Certainty::Will },
        times: if task.repeats { Times::Many } else { Times::Once },
        layer,
        line: task.line,
        column: task.column,
        arguments: task.arguments.clone(),
        parameters,
        from_args: task.from_args,
        data_from: task.data_from.clone(),
        decided_by,
        decided_by_args: task.decided_by_args.clone(),
        conditions,
    }
}

/// Returns the number in a task's id, which is its position in the evaluation order.
fn number(id: &str) -> usize {
    id.trim_start_matches('t').parse().unwrap_or(usize::MAX)
}

/// Returns the branches and loops around a node, and the tasks that decide in them.
fn around(nodes: &[Node], node: &Node) -> (Vec<Condition>, Vec<String>) {
    let mut conditions = Vec::new();
    let mut decided_by = Vec::new();
    let mut inner = node;
    while let Some(outer) = inner.parent.and_then(|id| nodes.get(id as usize)) {
        // The test of a branch, and the `try` and `finally` blocks, run in any case.
        let reached = matches!(inner.branch.as_deref(), Some("test" | "try" | "finally"));
        match &outer.kind {
            NodeKind::Decision { test, depends_on } if !reached => {
                conditions.push(Condition {
                    repeats: false,
                    branch: inner.branch.clone(),
                    text: test.clone(),
                });
                decided_by.extend(depends_on.iter().cloned());
            }
            NodeKind::Loop { over, depends_on } => {
                conditions.push(Condition {
                    repeats: true,
                    branch: inner.branch.clone(),
                    text: over.clone(),
                });
                decided_by.extend(depends_on.iter().cloned());
            }
            _ => {}
        }
        inner = outer;
    }
    conditions.reverse();
    (conditions, decided_by)
}
