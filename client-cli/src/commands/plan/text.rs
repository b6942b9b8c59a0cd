//! A plan as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use analysis::{Argument, Certainty, Condition, Effect, Plan, PlannedTask, Times};
use protocol::{Side, Step, ToolId, escape_text};

use super::egress::leaves_machine;
use super::style::{Part, Style};
use crate::diagram::display::{Limit, PARAMETER, code, named, padded, short, width};

/// The maximum length of an argument that is shown in full.
const ARGUMENT: Limit = Limit::counted(60);
/// The same for tools that run programs or are unknown, whose arguments must be visible.
const COMMAND: Limit = Limit::counted(400);
/// The maximum length of a condition that is shown in full.
const CONDITION: Limit = Limit::marked(60);

/// The maximum number of parts of `args` that are named for one call.
const PARTS_LIMIT: usize = 6;

/// How reliable the locations in a plan are, and what else depends on them.
#[derive(Debug, Default)]
pub(crate) struct Basis {
    /// A note on the side of the program; `None` if the side is certain.
    pub(crate) opening: Option<String>,
    /// The tools whose location was not confirmed by the gateway.
    pub(crate) doubtful: BTreeSet<ToolId>,
    /// The tools of remote servers that are called from this machine, with the address of the server.
    pub(crate) sends_to: BTreeMap<ToolId, String>,
    /// The tools that are built into `pml`.
    pub(crate) native: BTreeSet<ToolId>,
    /// The gateway that gets the text of the program when it runs.
    pub(crate) text_goes_to: Option<String>,
    /// Why the program is refused before it starts.
    pub(crate) refusals: Vec<String>,
}

/// Renders a plan as text. Text from the program is escaped.
pub fn text(plan: &Plan, style: &Style) -> String {
    text_on(plan, style, &Basis::default())
}

/// Renders a plan as text, and marks unconfirmed locations.
pub(crate) fn text_on(plan: &Plan, style: &Style, basis: &Basis) -> String {
    if !plan.can_run {
        return "The program cannot run.\n".to_owned();
    }
    let mut out = String::new();
    opening(plan, *style, basis, &mut out);
    text_of_program(plan, basis, &mut out);
    gaps(plan, *style, &mut out);
    groups(plan, *style, basis, &mut out);
    order(plan, *style, &mut out);
    leaves_machine(plan, *style, &basis.sends_to, &basis.native, &mut out);
    out
}

fn opening(plan: &Plan, style: Style, basis: &Basis, out: &mut String) {
    let side = match plan.runs_on {
        _ if !basis.refusals.is_empty() => "Is refused before it starts",
        Side::Client => "Runs on this machine",
        Side::Server => "Runs on the server, which gets its text and its args",
        Side::Unknown => {
            "Runs on this machine, or on the server, which then gets its text and its args"
        }
    };
    let opening = basis.opening.iter().filter(|_| basis.refusals.is_empty());
    let opening = opening.map(|note| format!(" ({note})")).collect::<String>();
    let mut tools: Vec<&str> = plan.tasks.iter().map(|task| task.tool.as_str()).collect();
    tools.sort_unstable();
    tools.dedup();
    let counts = match plan.tasks.len() {
        0 => "no tool calls found".to_owned(),
        calls => format!(
            "{}, {}, {}",
            count(calls, "call"),
            count(tools.len(), "tool"),
            count(plan.order.len(), "step")
        ),
    };
    let _ = writeln!(out, "{}", style.paint(Part::Heading, &format!("{side}{opening}: {counts}.")));
    for why in &basis.refusals {
        let _ = writeln!(out, "  {}", style.paint(Part::Warning, why));
    }
}

/// States that the gateway gets the program's text. The opening line says so for a program that runs on the server.
fn text_of_program(plan: &Plan, basis: &Basis, out: &mut String) {
    let is_said = plan.runs_on == Side::Server && basis.refusals.is_empty();
    if let Some(gateway) = basis.text_goes_to.as_ref().filter(|_| !is_said) {
        let gateway = escape_text(gateway);
        let _ = writeln!(out, "Its text goes to the gateway {gateway} for analysis.");
    }
}

fn gaps(plan: &Plan, style: Style, out: &mut String) {
    if plan.complete {
        return;
    }
    let heading =
        "INCOMPLETE: it chooses tools as it runs, and may call and send more than is listed here.";
    let _ = writeln!(out, "\n{}", style.paint(Part::Warning, heading));
    for gap in &plan.gaps {
        let _ = writeln!(
            out,
            "  line {}, column {}: {} [{}]",
            gap.line,
            gap.column,
            escape_text(&gap.message),
            gap.code.as_str()
        );
    }
}

/// Lists the tasks, grouped by effect.
fn groups(plan: &Plan, style: Style, basis: &Basis, out: &mut String) {
    let rows: Vec<Row> = plan.tasks.iter().map(|task| Row::of(task, basis)).collect();
    let most = |cell: fn(&Row) -> &str| rows.iter().map(|row| width(cell(row))).max().unwrap_or(0);
    let (id, mode) = (most(|row| &row.id), most(|row| &row.mode));
    let (tool, side) = (most(|row| &row.tool), most(|row| &row.side));
    for group in &plan.groups {
        let _ =
            writeln!(out, "\n{}", style.paint(heading_part(group.effect), heading(group.effect)));
        for row in rows.iter().filter(|row| group.tasks.contains(&row.id)) {
            let name = style.paint(row.part, &padded(&row.tool, tool));
            let line = format!(
                "  {}  {}  {name}  {}  {}",
                padded(&row.id, id),
                padded(&row.mode, mode),
                style.paint(Part::Dim, &padded(&row.side, side)),
                row.arguments
            );
            let _ = writeln!(out, "{}", line.trim_end());
            if !row.why.is_empty() {
                // Aligned with the tools: the two columns before them, and three gaps of two
                // spaces.
                let margin = " ".repeat(id + mode + 6);
                let _ = writeln!(out, "{margin}{}", style.paint(Part::Dim, &row.why));
            }
        }
    }
}

/// The columns of a task.
struct Row {
    id: String,
    mode: String,
    tool: String,
    part: Part,
    side: String,
    arguments: String,
    why: String,
}

impl Row {
    fn of(task: &PlannedTask, basis: &Basis) -> Self {
        let must_be_seen = matches!(task.effect, Effect::Runs | Effect::Calls);
        let limit = if must_be_seen { COMMAND } else { ARGUMENT };
        let arguments: Vec<String> =
            task.arguments.iter().map(|(name, value)| named(name, value, limit)).collect();
        let doubt = if basis.doubtful.contains(&task.tool) { "?" } else { "" };
        let (part, side) = match task.side {
            Side::Client if basis.sends_to.contains_key(&task.tool) => (Part::Warning, "sent out"),
            Side::Client => (Part::Client, "here"),
            Side::Server => (Part::Server, "server"),
            Side::Unknown => (Part::Warning, "unknown"),
        };
        Self {
            id: task.id.clone(),
            mode: mode(task).to_owned(),
            tool: escape_text(task.tool.as_str()),
            part,
            side: format!("{side}{doubt}"),
            arguments: arguments.join("  "),
            why: why(task),
        }
    }
}

/// Describes whether a call is made, and whether repeatedly.
pub(super) fn mode(task: &PlannedTask) -> &'static str {
    match (task.certainty, task.times) {
        (Certainty::Will, Times::Once) => "will",
        (Certainty::May, Times::Once) => "may",
        (Certainty::Will, Times::Many) => "will, many",
        (Certainty::May, Times::Many) => "may, many",
    }
}

/// Describes where a task's data comes from and what decides whether it runs.
fn why(task: &PlannedTask) -> String {
    let mut parts = vec![format!("line {}", task.line)];
    let mut uses = Vec::new();
    for argument in task.arguments.values() {
        made_from_args(argument, &mut uses);
    }
    parts.extend(sources("uses", uses, &task.data_from));
    parts.extend(task.conditions.iter().filter_map(condition));
    let deciders = task.decided_by_args.iter().map(|part| short(part, PARAMETER)).collect();
    parts.extend(sources("decided by", deciders, &task.decided_by));
    parts.join(" · ")
}

/// Lists parts of `args` and tasks after a word; `None` if there are none.
fn sources(word: &str, mut parts: Vec<String>, tasks: &[String]) -> Option<String> {
    // `args` alone means any part of it, which is still true.
    if parts.len() > PARTS_LIMIT {
        parts = vec!["args".to_owned()];
    }
    parts.extend(tasks.iter().cloned());
    (!parts.is_empty()).then(|| format!("{word} {}", parts.join(" ")))
}

/// Collects the parts of `args` that flow into the computed values of an argument.
fn made_from_args(argument: &Argument, out: &mut Vec<String>) {
    match argument {
        Argument::Literal { .. } | Argument::Reference { .. } | Argument::Parameter { .. } => {}
        Argument::Object { fields } => fields.values().for_each(|field| made_from_args(field, out)),
        Argument::Array { items } => items.iter().for_each(|item| made_from_args(item, out)),
        Argument::Expression { from_args, .. } => {
            for part in from_args.iter().map(|part| short(part, PARAMETER)) {
                if !out.contains(&part) {
                    out.push(part);
                }
            }
        }
    }
}

fn condition(condition: &Condition) -> Option<String> {
    let text = code(&condition.text, CONDITION);
    let branch = condition.branch.as_deref().unwrap_or_default();
    Some(match (condition.repeats, branch) {
        (true, _) => format!("loop {text}"),
        (false, "then") => format!("if {text}"),
        (false, "else") => format!("unless {text}"),
        (false, "catch") => "if it fails".to_owned(),
        // The body of a `try` is not conditional.
        (false, _) if condition.text == "try" => return None,
        (false, branch) => format!("{} of {text}", escape_text(branch)),
    })
}

/// Lists the steps in the order in which they run.
fn order(plan: &Plan, style: Style, out: &mut String) {
    let steps = &plan.order;
    if steps.len() < 2 && steps.iter().all(|step| !step.together && step.tasks.len() < 2) {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Part::Heading, "Order"));
    let digits = steps.len().to_string().len();
    for (place, step) in steps.iter().enumerate() {
        let notes = step_notes(step, place + 1);
        // The tasks are alternatives unless they run together or at any time.
        let between = if step.together || step.any_time { " " } else { " or " };
        let tasks = step.tasks.join(between);
        let notes: String = notes.iter().map(|note| format!("  ({note})")).collect();
        let _ =
            writeln!(out, "  {:>digits$}  {tasks}{}", place + 1, style.paint(Part::Dim, &notes));
    }
}

/// Returns the notes on a step.
fn step_notes(step: &Step, own: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if step.any_time {
        notes.push("at any time: the analysis cannot determine when".to_owned());
    }
    if step.together {
        let many = if step.tasks.len() == 1 { "many at once" } else { "together" };
        notes.push(many.to_owned());
    }
    match step.unawaited.map(|unawaited| unawaited.until) {
        Some(Some(until)) => {
            notes.push(format!("not awaited, and may still run during the steps up to {until}"));
        }
        Some(None) => {
            notes.push("not awaited, and may still run during all later steps".to_owned());
        }
        None => {}
    }
    for from in &step.repeats_from {
        notes.push(match *from as usize {
            from if from == own => "repeats".to_owned(),
            from => format!("then repeats from {from}"),
        });
    }
    notes
}

fn heading(effect: Effect) -> &'static str {
    match effect {
        Effect::Reads => "Reads",
        Effect::Writes => "Writes",
        Effect::Runs => "Runs programs",
        Effect::Sends => "Sends to others",
        Effect::Asks => "Asks others",
        Effect::Calls => "Calls tools that PML does not know",
        Effect::Computes => "Computes",
    }
}

fn heading_part(effect: Effect) -> Part {
    match effect {
        Effect::Writes | Effect::Runs | Effect::Sends | Effect::Calls => Part::Warning,
        Effect::Reads | Effect::Asks | Effect::Computes => Part::Heading,
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
