//! The part of a plan's text that lists what leaves the machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use analysis::{Argument, Effect, Plan, PlannedTask};
use protocol::{Egress, Side, ToolId, escape_text};

use super::style::{Part, Style};
use crate::diagram::display::{PARAMETER, padded, short, width};

/// The maximum number of targets that are named for one result.
const TARGETS_LIMIT: usize = 20;

/// Writes which data reaches the server or decides about calls there, and which local tools could send data elsewhere.
pub(super) fn leaves_machine(
    plan: &Plan,
    style: Style,
    sends_to: &BTreeMap<ToolId, String>,
    native: &BTreeSet<ToolId>,
    out: &mut String,
) {
    if plan.runs_on == Side::Server {
        return;
    }
    let mut lines = egress_lines(plan);
    lines.extend(args_lines(plan));
    let column = lines.iter().map(|(from, _)| width(from)).max().unwrap_or(0);
    let within: Vec<&PlannedTask> = plan.tasks.iter().filter(|task| task.sends_within).collect();
    if !lines.is_empty() || !within.is_empty() {
        let _ = writeln!(out, "\n{}", style.paint(Part::Warning, "Leaves this machine"));
    } else if plan.complete {
        // Only for a complete plan: otherwise a call that is not listed may send something.
        let nothing = "No result of a tool on this machine reaches the server.";
        let _ = writeln!(out, "\n{}", style.paint(Part::Heading, nothing));
    } else {
        let nothing = "It cannot be determined what leaves this machine: a call that is not listed may send any result.";
        let _ = writeln!(out, "\n{}", style.paint(Part::Warning, nothing));
    }
    for (from, to) in lines {
        let _ = writeln!(out, "  {} → {to}", padded(&from, column));
    }
    let decides = plan.egress.iter().any(|pair| pair.decides)
        || plan.args_egress.iter().any(|flow| !flow.decides.is_empty());
    if decides {
        let note = "(decides): not sent, but whether or how often a call is made depends on it";
        let _ = writeln!(out, "  {}", style.paint(Part::Dim, note));
    }
    for task in within {
        let name = format!("{} {}", task.id, escape_text(task.tool.as_str()));
        let what = match sends_to.get(&task.tool) {
            Some(origin) => format!("sends its arguments to {}", escape_text(origin)),
            None => {
                "may send its arguments, and what it reads here, to tools that it calls elsewhere"
                    .to_owned()
            }
        };
        let _ = writeln!(out, "  {name} {what}");
    }
    let open: Vec<String> = plan
        .tasks
        .iter()
        .filter(|task| task.side == Side::Client && !task.sends_within && reaches_out(task.effect))
        .filter(|task| !(native.contains(&task.tool) && has_no_network(task)))
        .map(|task| format!("{} {}", task.id, escape_text(task.tool.as_str())))
        .collect();
    if !open.is_empty() {
        let _ = writeln!(
            out,
            "  {} {}",
            style.paint(Part::Warning, "may send their arguments, from here:"),
            open.join(", ")
        );
    }
}

/// Returns whether a call of a native tool runs a command that is confined without network.
fn has_no_network(task: &PlannedTask) -> bool {
    let is_default = match task.arguments.get("access") {
        None => !task.arguments.contains_key("*"),
        Some(Argument::Literal { value }) => value == "workspace",
        Some(_) => false,
    };
    task.tool.as_str() == "shell:exec" && is_default
}

/// Returns whether a tool on the user's machine could itself send data over the network.
fn reaches_out(effect: Effect) -> bool {
    matches!(effect, Effect::Runs | Effect::Sends | Effect::Asks | Effect::Calls)
}

fn egress_lines(plan: &Plan) -> Vec<(String, String)> {
    let names: HashMap<&str, String> = plan
        .tasks
        .iter()
        .map(|task| (&*task.id, format!("{} {}", task.id, escape_text(task.tool.as_str()))))
        .collect();
    let unknown =
        |id: &str| plan.tasks.iter().any(|task| task.id == id && task.side == Side::Unknown);
    let name = |id: &str| names.get(id).cloned().unwrap_or_default();
    let target = |id: &str| match unknown(id) {
        true => format!("{} (location unknown)", name(id)),
        false => name(id),
    };
    let shown = |pair: &Egress| {
        let mut notes: Vec<String> = Vec::new();
        notes.extend(pair.decides.then(|| "decides".to_owned()));
        notes.extend((!pair.via.is_empty()).then(|| format!("through {}", pair.via.join(" "))));
        match notes.is_empty() {
            true => target(&pair.to),
            false => format!("{} ({})", target(&pair.to), notes.join(", ")),
        }
    };
    plan.egress
        // The list is sorted by its sources, so equal ones are adjacent.
        .chunk_by(|one, next| one.from == next.from)
        .filter_map(|pairs| {
            let from = name(&pairs.first()?.from);
            // Targets that receive the data come first, in case not all are named.
            let (decided, given): (Vec<&Egress>, Vec<&Egress>) =
                pairs.iter().partition(|pair| pair.decides);
            let all = given.into_iter().chain(decided);
            let mut to: Vec<String> = all.take(TARGETS_LIMIT).map(shown).collect();
            if pairs.len() > TARGETS_LIMIT {
                to.push(format!("and {} more", pairs.len() - TARGETS_LIMIT));
            }
            Some((from, to.join(", ")))
        })
        .collect()
}

/// Combines the parts of `args` that flow to the same tasks in one line, and the parts that decide about the same tasks
/// in another. `args` as a whole, which means any part, has a separate line.
fn args_lines(plan: &Plan) -> Vec<(String, String)> {
    /// A part of `args`, whether it only decides, and the tasks that it decides about or flows to.
    type Reaches<'p> = (&'p str, bool, Vec<&'p str>);
    let mut parts: Vec<Reaches<'_>> = Vec::new();
    for flow in &plan.args_egress {
        let given = flow.parameters.iter().map(|part| (part, false));
        for (part, decides) in given.chain(flow.decides.iter().map(|part| (part, true))) {
            match parts.iter_mut().find(|(known, how, _)| known == part && *how == decides) {
                Some((.., tasks)) => tasks.push(&flow.to),
                None => parts.push((part, decides, vec![&flow.to])),
            }
        }
    }
    parts.sort_by_key(|(part, decides, _)| (*decides, *part == "args"));
    let mut lines: Vec<(String, bool, Vec<&str>)> = Vec::new();
    for (part, decides, tasks) in parts {
        let name = short(part, PARAMETER);
        match lines.last_mut() {
            Some((names, how, known)) if part != "args" && *how == decides && *known == tasks => {
                names.push(' ');
                names.push_str(&name);
            }
            _ => lines.push((name, decides, tasks)),
        }
    }
    let note = |decides| if decides { " (decides)" } else { "" };
    lines
        .into_iter()
        .map(|(from, decides, to)| (from, format!("{}{}", to.join(" "), note(decides))))
        .collect()
}
