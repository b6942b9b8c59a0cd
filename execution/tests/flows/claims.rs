//! The claims of a plan: what the analysis states about a program before it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use analysis::{
    Analysis, Argument, Certainty, Limits, Plan, Rule, Times, analyze_forgetting,
    analyze_with_misused_promises, plan,
};
use protocol::{ArgsEgress, Egress, RoutingRules, Side, Step};

/// A program that passed the analysis, with the claims of its plan.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The JavaScript that runs.
    pub(crate) program: String,
    pub(crate) implicit_returns: Option<Vec<u32>>,
    pub(crate) claims: Claims,
}

/// The analysis under test: the real one, or one without a rule. An error says why it refuses the program.
pub(crate) type Analyser = Arc<dyn Fn(&str) -> Result<Prepared, String> + Send + Sync>;

/// The claims of a plan. Tasks are named by their index in `tasks`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Claims {
    /// Whether the plan states that it is complete.
    pub(crate) complete: bool,
    pub(crate) tasks: Vec<Task>,
    pub(crate) egress: BTreeSet<(usize, usize)>,
    /// The pairs in `egress` whose first task only decides on a call.
    pub(crate) only_decide: BTreeSet<(usize, usize)>,
    /// The parts of `args` whose values leave the machine with a task.
    pub(crate) args_egress: BTreeMap<usize, Vec<String>>,
    /// The parts of `args` that only decide on a task that sends data off the machine.
    pub(crate) args_only_decide: BTreeMap<usize, Vec<String>>,
    pub(crate) order: Vec<Step>,
}

/// A call in the text of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) will: bool,
    pub(crate) once: bool,
    /// Whether its result may come from the user's machine.
    pub(crate) reads_locally: bool,
    /// Whether its arguments may leave the machine.
    pub(crate) sends: bool,
    pub(crate) data_from: BTreeSet<usize>,
    pub(crate) decided_by: BTreeSet<usize>,
    /// The parts of `args` that decide on the call.
    pub(crate) decided_by_args: Vec<String>,
    /// The parts of `args` in the arguments.
    pub(crate) from_args: Vec<String>,
    /// The arguments as the plan displays them.
    pub(crate) arguments: Argument,
}

impl Claims {
    /// Returns the indices of the tasks that call a tool.
    pub(crate) fn tasks_of<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = usize> + 'a {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter(move |(_, task)| task.tool == tool).map(|(index, _)| index)
    }

    /// Returns the pairs of tools in `egress`: data of the first leaves the machine with the second.
    pub(crate) fn egress_tools(&self) -> BTreeSet<(String, String)> {
        let tool = |index: &usize| self.tasks[*index].tool.clone();
        self.egress.iter().map(|(from, to)| (tool(from), tool(to))).collect()
    }

    fn of(plan: &Plan) -> Self {
        let index = |id: &String| plan.tasks.iter().position(|task| task.id == *id);
        let indices = |ids: &[String]| ids.iter().filter_map(index).collect::<BTreeSet<usize>>();
        let pair = |one: &Egress| Some((index(&one.from)?, index(&one.to)?));
        let args = |parts: fn(&ArgsEgress) -> &Vec<String>| {
            let flows = plan.args_egress.iter();
            let flows = flows.filter_map(|one| Some((index(&one.to)?, parts(one).clone())));
            flows.filter(|(_, parts)| !parts.is_empty()).collect::<BTreeMap<_, _>>()
        };
        let tasks = plan.tasks.iter().map(|task| Task {
            id: task.id.clone(),
            tool: task.tool.to_string(),
            will: task.certainty == Certainty::Will,
            once: task.times == Times::Once,
            reads_locally: task.side != Side::Server,
            sends: task.side != Side::Client || task.sends_within,
            data_from: indices(&task.data_from),
            decided_by: indices(&task.decided_by),
            decided_by_args: task.decided_by_args.clone(),
            from_args: task.arguments.values().flat_map(parts_of_args).collect(),
            arguments: Argument::Object { fields: task.arguments.clone() },
        });
        Self {
            complete: plan.complete,
            tasks: tasks.collect(),
            egress: plan.egress.iter().filter_map(pair).collect(),
            only_decide: plan.egress.iter().filter(|one| one.decides).filter_map(pair).collect(),
            args_egress: args(|one| &one.parameters),
            args_only_decide: args(|one| &one.decides),
            order: plan.order.clone(),
        }
    }
}

/// Returns the parts of `args` in an argument, written `args.x` or `args`.
fn parts_of_args(argument: &Argument) -> Vec<String> {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } => Vec::new(),
        Argument::Parameter { path } => {
            let step = |step: &analysis::PathStep| match step {
                analysis::PathStep::Index(index) => format!("[{index}]"),
                analysis::PathStep::Field(name) => format!(".{name}"),
            };
            vec![std::iter::once("args".to_owned()).chain(path.iter().map(step)).collect()]
        }
        Argument::Object { fields } => fields.values().flat_map(parts_of_args).collect(),
        Argument::Array { items } => items.iter().flat_map(parts_of_args).collect(),
        Argument::Expression { from_args, .. } => from_args.clone(),
    }
}

/// Returns the real analysis.
pub(crate) fn real_analysis() -> Analyser {
    analyser(analyze_with_misused_promises)
}

/// Returns the analysis without one of its rules.
pub(crate) fn analysis_without(rule: Rule) -> Analyser {
    analyser(move |source, limits| analyze_forgetting(source, limits, rule))
}

fn analyser(analyze: impl Fn(&str, &Limits) -> Analysis + Send + Sync + 'static) -> Analyser {
    Arc::new(move |source| {
        let analysis = analyze(source, &Limits::default());
        if let Some(error) = analysis.first_error() {
            return Err(format!("{}:{} {}", error.line, error.column, error.message));
        }
        let claims = Claims::of(&plan(&analysis, &RoutingRules::shipped()));
        let implicit_returns = analysis.implicit_returns;
        Ok(Prepared { program: analysis.program, implicit_returns, claims })
    })
}
