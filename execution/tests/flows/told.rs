//! What is told of a program before it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use analysis::{
    Analysis, Argument, Certainty, Limits, Plan, Rule, Times, analyze_forgetting,
    analyze_with_misused_promises, plan,
};
use protocol::{ArgsEgress, Egress, RoutingRules, Side, Step};

/// A program that can run, with what is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The JavaScript that runs.
    pub(crate) program: String,
    pub(crate) implicit_returns: Option<Vec<u32>>,
    pub(crate) told: Told,
}

/// Who tells what a program will do: the analysis, or one that forgets a rule.
pub(crate) type Teller = Arc<dyn Fn(&str) -> Result<Prepared, String> + Send + Sync>;

/// What a plan tells, by the numbers of the tasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    /// Whether the plan says that it is the whole truth.
    pub(crate) complete: bool,
    pub(crate) tasks: Vec<Task>,
    pub(crate) egress: BTreeSet<(usize, usize)>,
    /// Those of `egress` between which only a decision leads.
    pub(crate) only_decide: BTreeSet<(usize, usize)>,
    /// The parts of `args` that leave with a task.
    pub(crate) args_egress: BTreeMap<usize, Vec<String>>,
    /// The parts of `args` that only decide on a task that takes data away.
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
    /// Whether its result may be of the user's machine.
    pub(crate) here: bool,
    /// Whether what it is given may leave the machine.
    pub(crate) away: bool,
    pub(crate) data_from: BTreeSet<usize>,
    pub(crate) decided_by: BTreeSet<usize>,
    /// The parts of `args` that decide.
    pub(crate) decided_by_args: Vec<String>,
    /// The parts of `args` in the arguments.
    pub(crate) from_args: Vec<String>,
    /// The arguments as they are shown.
    pub(crate) shown: Argument,
}

impl Told {
    /// Returns the numbers of the tasks that call a tool.
    pub(crate) fn of_tool<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = usize> + 'a {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter(move |(_, task)| task.tool == tool).map(|(place, _)| place)
    }

    /// Returns the pairs of tools of which the plan says that data of the first leaves with the second.
    pub(crate) fn pairs(&self) -> BTreeSet<(String, String)> {
        let tool = |place: &usize| self.tasks[*place].tool.clone();
        self.egress.iter().map(|(from, to)| (tool(from), tool(to))).collect()
    }

    fn of(plan: &Plan) -> Self {
        let place = |id: &String| plan.tasks.iter().position(|task| task.id == *id);
        let places = |ids: &[String]| ids.iter().filter_map(place).collect::<BTreeSet<usize>>();
        let pair = |one: &Egress| Some((place(&one.from)?, place(&one.to)?));
        let args = |parts: fn(&ArgsEgress) -> &Vec<String>| {
            let flows = plan.args_egress.iter();
            let flows = flows.filter_map(|one| Some((place(&one.to)?, parts(one).clone())));
            flows.filter(|(_, parts)| !parts.is_empty()).collect::<BTreeMap<_, _>>()
        };
        let tasks = plan.tasks.iter().map(|task| Task {
            id: task.id.clone(),
            tool: task.tool.to_string(),
            will: task.certainty == Certainty::Will,
            once: task.times == Times::Once,
            here: task.side != Side::Server,
            away: task.side != Side::Client || task.sends_within,
            data_from: places(&task.data_from),
            decided_by: places(&task.decided_by),
            decided_by_args: task.decided_by_args.clone(),
            from_args: task.arguments.values().flat_map(parts_of_args).collect(),
            shown: Argument::Object { fields: task.arguments.clone() },
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

/// Returns the parts of `args` that are in an argument, as `args.x` or `args`.
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

/// Asks the analysis.
pub(crate) fn analysis() -> Teller {
    by(analyze_with_misused_promises)
}

/// Asks the analysis, which forgets a rule.
pub(crate) fn forgetting(rule: Rule) -> Teller {
    by(move |source, limits| analyze_forgetting(source, limits, rule))
}

fn by(analyze: impl Fn(&str, &Limits) -> Analysis + Send + Sync + 'static) -> Teller {
    Arc::new(move |source| {
        let analysis = analyze(source, &Limits::default());
        if let Some(error) = analysis.first_error() {
            return Err(format!("{}:{} {}", error.line, error.column, error.message));
        }
        let told = Told::of(&plan(&analysis, &RoutingRules::shipped()));
        let implicit_returns = analysis.implicit_returns;
        Ok(Prepared { program: analysis.program, implicit_returns, told })
    })
}
