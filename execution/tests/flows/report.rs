//! Misses as text: the program, what was told of it, what its runs did, and what was not told.

use std::fmt::Write as _;

use crate::check::{Checked, Checker};
use crate::judge::Miss;
use crate::runner::Run;
use crate::shrink::shrink;
use crate::told::Told;
use crate::world::{Source, World};

/// Returns a miss in the smallest program that shows it.
pub(crate) fn of(checker: &Checker, checked: &Checked, miss: &Miss) -> String {
    let runs: Vec<Run> =
        miss.runs.iter().filter_map(|place| checked.observed.runs.get(*place)).cloned().collect();
    let mut out = format!("{}: {}\n", checked.program.name, line(miss));
    match shrink(checker, &checked.program, miss, &runs) {
        Some(small) => {
            let _ = write!(out, "{}", small.program.source());
            out += &plan(&small.prepared.told);
            small.runs.iter().for_each(|found| out += &run(found, miss.from.as_ref()));
        }
        None => {
            let _ = write!(out, "{}", checked.program.source());
            out += &checked.prepared.as_ref().map(|one| plan(&one.told)).unwrap_or_default();
            runs.iter().for_each(|found| out += &run(found, miss.from.as_ref()));
        }
    }
    out
}

/// Returns a miss as one line.
pub(crate) fn line(miss: &Miss) -> String {
    match &miss.from {
        Some(from) => format!("{} {from} → {}", miss.kind.name(), miss.to),
        None => format!("{} {}", miss.kind.name(), miss.to),
    }
}

/// Returns what was told, a line for each task.
pub(crate) fn plan(told: &Told) -> String {
    let mut out = String::new();
    if !told.complete {
        out += "  incomplete\n";
    }
    for task in &told.tasks {
        let certainty = if task.will { "will" } else { "may" };
        let times = if task.once { "once" } else { "many" };
        let _ = write!(out, "  {} {} {certainty} {times}", task.id, task.tool);
        for (word, parts, places) in [
            ("data", &task.from_args, &task.data_from),
            ("by", &task.decided_by_args, &task.decided_by),
        ] {
            let parts = parts.iter().map(String::as_str);
            let names = parts.chain(places.iter().map(|place| &*told.tasks[*place].id));
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                let _ = write!(out, " {word} {}", names.join(" "));
            }
        }
        let shown = serde_json::to_string(&task.shown).unwrap_or_default();
        let _ = writeln!(out, "\n    shown {shown}");
    }
    let id = |place: &usize| &told.tasks[*place].id;
    let how = |only_decides| if only_decides { " (decides)" } else { "" };
    let pairs = told.egress.iter().map(|pair| {
        format!("{}→{}{}", id(&pair.0), id(&pair.1), how(told.only_decide.contains(pair)))
    });
    let args = [&told.args_egress, &told.args_only_decide].into_iter().enumerate();
    let args = args.flat_map(|(decides, flows)| {
        let way = move |(to, parts): (&usize, &Vec<String>)| {
            format!("{}→{}{}", parts.join(","), id(to), how(decides == 1))
        };
        flows.iter().map(way)
    });
    let _ = writeln!(out, "  leaves {}", pairs.chain(args).collect::<Vec<_>>().join(" "));
    out
}

fn run(run: &Run, from: Option<&Source>) -> String {
    let variant = |source: &Source| format!("{source} {:?}", run.world.variant(source));
    let what = from.map(variant).unwrap_or_else(|| world(&run.world));
    let mut out = format!("  run with {what}: {:?}\n", run.end);
    for call in &run.calls {
        let _ = writeln!(out, "    {} {}", call.tool, call.args);
    }
    out
}

fn world(world: &World) -> String {
    let text = world.to_string();
    if text.is_empty() { "nothing changed".to_owned() } else { text }
}
