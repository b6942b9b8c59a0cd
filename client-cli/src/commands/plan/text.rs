//! A plan as text.

use std::collections::HashMap;
use std::fmt::Write as _;

use analysis::{ArgsEgress, Argument, Certainty, Condition, Effect, Plan, PlannedTask, Times};
use protocol::{Routing, escape_text};

use super::shown::{Limit, code, named, padded, short, width};
use super::style::{Part, Style};

/// The longest text of an argument that is shown in full.
const ARGUMENT: Limit = Limit::counted(60);
/// The same for what starts programs, or may do anything: that must be seen.
const COMMAND: Limit = Limit::counted(400);
/// The longest condition that is shown in full.
const CONDITION: Limit = Limit::marked(60);
/// The longest way to a part of `args` that is shown in full.
const PARAMETER: Limit = Limit::marked(80);

/// The most parts of `args` that are named for one call.
const PARTS: usize = 6;
/// The most tools on the server that are named for one result.
const TARGETS: usize = 20;

/// Renders a plan for a human; what comes from the program is escaped.
pub fn text(plan: &Plan, style: &Style) -> String {
    if !plan.can_run {
        return "It cannot run as it is.\n".to_owned();
    }
    let mut out = String::new();
    opening(plan, *style, &mut out);
    gaps(plan, *style, &mut out);
    groups(plan, *style, &mut out);
    order(plan, *style, &mut out);
    leaving(plan, *style, &mut out);
    out
}

fn opening(plan: &Plan, style: Style, out: &mut String) {
    let side = match plan.runs_on {
        Routing::Client => "Runs on this machine",
        Routing::Server => "Runs on the server, which gets its text and its args",
    };
    let mut tools: Vec<&str> = plan.tasks.iter().map(|task| task.tool.as_str()).collect();
    tools.sort_unstable();
    tools.dedup();
    let layers = plan.tasks.iter().map(|task| task.layer + 1).max().unwrap_or(0);
    let facts = match plan.tasks.len() {
        0 => "no call of a tool is seen in it".to_owned(),
        calls => format!(
            "{}, {}, {}",
            count(calls, "call"),
            count(tools.len(), "tool"),
            count(layers as usize, "step")
        ),
    };
    let _ = writeln!(out, "{}", style.paint(Part::Heading, &format!("{side}: {facts}.")));
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

/// One line for each task, under what it does.
fn groups(plan: &Plan, style: Style, out: &mut String) {
    let rows: Vec<Row> = plan.tasks.iter().map(Row::of).collect();
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
                let margin = " ".repeat(id + mode + 6);
                let _ = writeln!(out, "{margin}{}", style.paint(Part::Dim, &row.why));
            }
        }
    }
}

/// A task as it is shown.
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
    fn of(task: &PlannedTask) -> Self {
        let must_be_seen = matches!(task.effect, Effect::Runs | Effect::Calls);
        let limit = if must_be_seen { COMMAND } else { ARGUMENT };
        let arguments: Vec<String> =
            task.arguments.iter().map(|(name, value)| named(name, value, limit)).collect();
        let (part, side) = match task.side {
            Routing::Client => (Part::Client, "here"),
            Routing::Server => (Part::Server, "server"),
        };
        Self {
            id: task.id.clone(),
            mode: mode(task).to_owned(),
            tool: escape_text(task.tool.as_str()),
            part,
            side: side.to_owned(),
            arguments: arguments.join("  "),
            why: why(task),
        }
    }
}

/// Returns the words for whether and how often a call is made.
pub(super) fn mode(task: &PlannedTask) -> &'static str {
    match (task.certainty, task.times) {
        (Certainty::Will, Times::Once) => "will",
        (Certainty::May, Times::Once) => "may",
        (Certainty::Will, Times::Many) => "will, many",
        (Certainty::May, Times::Many) => "may, many",
    }
}

/// Returns where a task's data is from and what decides on it.
fn why(task: &PlannedTask) -> String {
    let mut parts = vec![format!("line {}", task.line)];
    let mut uses = Vec::new();
    for argument in task.arguments.values() {
        made_from_args(argument, &mut uses);
    }
    if uses.len() > PARTS {
        uses = vec!["args".to_owned()];
    }
    uses.extend(task.data_from.iter().cloned());
    if !uses.is_empty() {
        parts.push(format!("uses {}", uses.join(" ")));
    }
    parts.extend(task.conditions.iter().filter_map(condition));
    if !task.decided_by.is_empty() {
        parts.push(format!("decided by {}", task.decided_by.join(" ")));
    }
    parts.join(" · ")
}

/// Collects the parts of `args` that flow into what is computed in an argument.
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
        // The body of a `try` is no condition.
        (false, _) if condition.text == "try" => return None,
        (false, branch) => format!("{} of {text}", escape_text(branch)),
    })
}

/// The tasks that do not wait for each other, step by step.
fn order(plan: &Plan, style: Style, out: &mut String) {
    let layers = plan.tasks.iter().map(|task| task.layer + 1).max().unwrap_or(0);
    if layers < 2 {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Part::Heading, "Order"));
    let digits = layers.to_string().len();
    for layer in 0..layers {
        let tasks: Vec<&str> = plan
            .tasks
            .iter()
            .filter(|task| task.layer == layer)
            .map(|task| task.id.as_str())
            .collect();
        let together = if tasks.len() > 1 { "  (together)" } else { "" };
        let _ = writeln!(
            out,
            "  {:>digits$}  {}{}",
            layer + 1,
            tasks.join(" "),
            style.paint(Part::Dim, together)
        );
    }
}

/// What reaches the server, and what could leave by the tools here.
fn leaving(plan: &Plan, style: Style, out: &mut String) {
    if plan.runs_on == Routing::Server {
        return;
    }
    let mut lines = egress_lines(plan);
    lines.extend(args_lines(plan));
    let column = lines.iter().map(|(from, _)| width(from)).max().unwrap_or(0);
    if lines.is_empty() {
        let what = if plan.complete { "No result" } else { "No result that is seen here" };
        let part = if plan.complete { Part::Heading } else { Part::Warning };
        let nothing = format!("{what} of a tool on this machine reaches the server.");
        let _ = writeln!(out, "\n{}", style.paint(part, &nothing));
    } else {
        let _ = writeln!(out, "\n{}", style.paint(Part::Warning, "Leaves this machine"));
    }
    for (from, to) in lines {
        let _ = writeln!(out, "  {} → {to}", padded(&from, column));
    }
    let open: Vec<String> = plan
        .tasks
        .iter()
        .filter(|task| task.side == Routing::Client && reaches_out(task.effect))
        .map(|task| format!("{} {}", task.id, escape_text(task.tool.as_str())))
        .collect();
    if !open.is_empty() {
        let _ = writeln!(
            out,
            "  {} {}",
            style.paint(Part::Warning, "may send what they are given, from here:"),
            open.join(", ")
        );
    }
}

/// Whether a tool on the user's machine could reach the network by itself.
fn reaches_out(effect: Effect) -> bool {
    matches!(effect, Effect::Runs | Effect::Sends | Effect::Asks | Effect::Calls)
}

fn egress_lines(plan: &Plan) -> Vec<(String, String)> {
    let names: HashMap<&str, String> = plan
        .tasks
        .iter()
        .map(|task| (&*task.id, format!("{} {}", task.id, escape_text(task.tool.as_str()))))
        .collect();
    let name = |id: &str| names.get(id).cloned().unwrap_or_default();
    let mut lines: Vec<(&str, Vec<String>, usize)> = Vec::new();
    for pair in &plan.egress {
        if lines.last().is_none_or(|(from, ..)| *from != pair.from) {
            lines.push((&pair.from, Vec::new(), 0));
        }
        let Some((_, to, more)) = lines.last_mut() else { continue };
        if to.len() == TARGETS {
            *more += 1;
        } else if pair.via.is_empty() {
            to.push(name(&pair.to));
        } else {
            to.push(format!("{} (through {})", name(&pair.to), pair.via.join(" ")));
        }
    }
    lines
        .into_iter()
        .map(|(from, mut to, more)| {
            if more > 0 {
                to.push(format!("and {more} more"));
            }
            (name(from), to.join(", "))
        })
        .collect()
}

/// One line for parts of `args` that go to the same tasks; `args` itself, which
/// stands for any part, has its own.
fn args_lines(plan: &Plan) -> Vec<(String, String)> {
    let mut parts: Vec<(&str, Vec<&str>)> = Vec::new();
    for ArgsEgress { to, parameters } in &plan.args_egress {
        for part in parameters {
            match parts.iter_mut().find(|(known, _)| known == part) {
                Some((_, tasks)) => tasks.push(to),
                None => parts.push((part, vec![to])),
            }
        }
    }
    parts.sort_by_key(|(part, _)| *part == "args");
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (part, tasks) in parts {
        let name = short(part, PARAMETER);
        match lines.last_mut() {
            Some((names, known)) if part != "args" && *known == tasks => {
                names.push(' ');
                names.push_str(&name);
            }
            _ => lines.push((name, tasks)),
        }
    }
    lines.into_iter().map(|(from, to)| (from, to.join(" "))).collect()
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
