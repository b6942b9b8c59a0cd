//! Renders a miss as text: the program, its plan, its runs, and the claim that is missing.

use std::fmt::Write as _;

use crate::check::{Checked, Checker};
use crate::claims::Claims;
use crate::inputs::{Inputs, Source};
use crate::miss::Miss;
use crate::runner::Run;
use crate::shrink::shrink;

/// Renders a miss with the smallest program found that shows it.
pub(crate) fn report(checker: &Checker, checked: &Checked, miss: &Miss) -> String {
    let runs: Vec<Run> = miss
        .runs
        .iter()
        .filter_map(|index| checked.exploration.runs.get(*index))
        .cloned()
        .collect();
    let mut out = format!("{}: {}\n", checked.program.name, line(miss));
    match shrink(checker, &checked.program, miss, &runs) {
        Some(reduced) => {
            let _ = write!(out, "{}", reduced.program.source());
            out += &plan(&reduced.prepared.claims);
            reduced.runs.iter().for_each(|found| out += &run(found, miss.from.as_ref()));
        }
        None => {
            let _ = write!(out, "{}", checked.program.source());
            out += &checked.prepared.as_ref().map(|one| plan(&one.claims)).unwrap_or_default();
            runs.iter().for_each(|found| out += &run(found, miss.from.as_ref()));
        }
    }
    out
}

/// Renders a miss as one line.
pub(crate) fn line(miss: &Miss) -> String {
    match &miss.from {
        Some(from) => format!("{} {from} → {}", miss.kind.name(), miss.to),
        None => format!("{} {}", miss.kind.name(), miss.to),
    }
}

/// Renders the claims of a plan.
pub(crate) fn plan(claims: &Claims) -> String {
    let mut out = String::new();
    if !claims.complete {
        out += "  incomplete\n";
    }
    for task in &claims.tasks {
        let certainty = if task.will { "will" } else { "may" };
        let times = if task.once { "once" } else { "many" };
        let _ = write!(out, "  {} {} {certainty} {times}", task.id, task.tool);
        for (word, parts, tasks) in [
            ("data", &task.from_args, &task.data_from),
            ("by", &task.decided_by_args, &task.decided_by),
        ] {
            let parts = parts.iter().map(String::as_str);
            let names = parts.chain(tasks.iter().map(|index| &*claims.tasks[*index].id));
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                let _ = write!(out, " {word} {}", names.join(" "));
            }
        }
        let arguments = serde_json::to_string(&task.arguments).unwrap_or_default();
        let _ = writeln!(out, "\n    arguments {arguments}");
    }
    let id = |index: &usize| &claims.tasks[*index].id;
    let suffix = |only_decides| if only_decides { " (decides)" } else { "" };
    let pairs = claims.egress.iter().map(|pair| {
        format!("{}→{}{}", id(&pair.0), id(&pair.1), suffix(claims.only_decide.contains(pair)))
    });
    let args = [&claims.args_egress, &claims.args_only_decide].into_iter().enumerate();
    let args = args.flat_map(|(decides, flows)| {
        let flow = move |(to, parts): (&usize, &Vec<String>)| {
            format!("{}→{}{}", parts.join(","), id(to), suffix(decides == 1))
        };
        flows.iter().map(flow)
    });
    let _ = writeln!(out, "  egress {}", pairs.chain(args).collect::<Vec<_>>().join(" "));
    out
}

fn run(run: &Run, from: Option<&Source>) -> String {
    let variant = |source: &Source| format!("{source} {:?}", run.inputs.variant(source));
    let change = from.map(variant).unwrap_or_else(|| inputs(&run.inputs));
    let mut out = format!("  run with {change}: {:?}\n", run.end);
    for call in &run.calls {
        let _ = writeln!(out, "    {} {}", call.tool, call.args);
    }
    out
}

fn inputs(inputs: &Inputs) -> String {
    let text = inputs.to_string();
    if text.is_empty() { "nothing changed".to_owned() } else { text }
}
