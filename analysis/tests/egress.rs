//! Compares what leaves the machine in the programs of `cases/agent/` with the
//! `egress` lines beside them, which were written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use analysis::{Limits, Plan, analyze, plan};
use protocol::{Routing, RoutingRules, ToolPattern};

#[path = "agent/call_ends.rs"]
mod call_ends;

use call_ends::call_ends;

/// Namespaces that the seeded registry routes to the client, beside the shipped rules.
const SEEDED: &[&str] = &["memory", "fetch", "sequential-thinking", "time", "everything"];

fn rules() -> RoutingRules {
    let shipped: Vec<(ToolPattern, Routing)> = RoutingRules::shipped().into();
    let seeded = SEEDED
        .iter()
        .map(|namespace| (ToolPattern::Namespace((*namespace).to_owned()), Routing::Client));
    shipped.into_iter().chain(seeded).collect()
}

/// A pair that is told though no run has it: more than there is, never less.
struct Beyond {
    program: &'static str,
    from: &'static str,
    to: &'static str,
    reason: &'static str,
}

const AFTER_A_WAY_OUT: &str =
    "what is collected after a way out counts as decided by it, and so as made from it";
const COUNTED: &str = "how many pages are asked for is decided by that result";

const BEYOND: &[Beyond] = &[
    Beyond { program: "release_pipeline", from: "t1", to: "t8", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t1", to: "t16", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t1", to: "t17", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t6", to: "t8", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t6", to: "t16", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t6", to: "t17", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t14", to: "t17", reason: AFTER_A_WAY_OUT },
    Beyond { program: "release_pipeline", from: "t2", to: "t5", reason: COUNTED },
    Beyond { program: "release_pipeline", from: "t3", to: "t5", reason: COUNTED },
];

/// From one call to another, by their names.
type Pairs = BTreeSet<(String, String)>;

/// Returns the pairs of an `.edges` file, with the names and tools of its calls.
fn expected(edges: &str) -> (Vec<(&str, &str)>, Pairs) {
    let mut calls = Vec::new();
    let mut pairs = BTreeSet::new();
    for line in edges.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pair) = line.strip_prefix("egress ") {
            let (from, to) = pair.split_once(" => ").unwrap_or_else(|| panic!("{line}"));
            pairs.insert((from.to_owned(), to.to_owned()));
        } else if !line.is_empty() {
            let mut words = line.split(' ');
            calls.push((words.next().unwrap_or_default(), words.next().unwrap_or_default()));
        }
    }
    (calls, pairs)
}

/// Returns the pairs of a plan under the names of the `.edges` file: calls are
/// counted there by where they end.
fn found(source: &str, plan: &Plan, calls: &[(&str, &str)]) -> Pairs {
    let ends = call_ends(source);
    let mut ordered: Vec<_> = plan.tasks.iter().collect();
    ordered.sort_by_key(|task| {
        let place = (task.line, task.column);
        *ends.get(&place).unwrap_or_else(|| panic!("no call begins at {place:?}"))
    });
    let mut names = BTreeMap::new();
    let mut waiting = calls.to_vec();
    for task in ordered {
        // The next call of this tool, so that one missing call does not move all others.
        let next = waiting.iter().position(|(_, tool)| *tool == task.tool.as_str());
        let name = next.map_or("unexpected", |at| waiting.remove(at).0);
        names.insert(task.id.as_str(), name);
    }
    let named = |id: &str| names[id].to_owned();
    plan.egress.iter().map(|pair| (named(&pair.from), named(&pair.to))).collect()
}

#[test]
fn what_leaves_the_machine_is_what_was_written_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/agent");
    let rules = rules();
    let mut used = [false; BEYOND.len()];
    let (mut programs, mut pairs, mut wrong) = (0, 0, String::new());
    let entries = std::fs::read_dir(&folder).expect("the folder is readable");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "ts")) {
        let source = std::fs::read_to_string(path).expect("a program is readable");
        let edges = std::fs::read_to_string(path.with_extension("edges")).expect("readable");
        let plan = plan(&analyze(&source, &Limits::default()), &rules);
        let (calls, expected) = expected(&edges);
        let found = found(&source, &plan, &calls);
        programs += 1;
        pairs += expected.len();
        let name = path.file_stem().expect("a name").to_string_lossy();
        for (from, to) in expected.difference(&found) {
            let _ = writeln!(wrong, "{name}: {from} => {to} is missing");
        }
        for (from, to) in found.difference(&expected) {
            let known = BEYOND
                .iter()
                .position(|known| (known.program, known.from, known.to) == (&*name, from, to));
            match known {
                Some(at) => used[at] = true,
                None => {
                    let _ = writeln!(wrong, "{name}: {from} => {to} does not happen");
                }
            }
        }
    }
    for (known, used) in BEYOND.iter().zip(used) {
        assert!(!known.reason.is_empty());
        if !used {
            let _ = writeln!(
                wrong,
                "{}: {} => {} needs no exception",
                known.program, known.from, known.to
            );
        }
    }
    assert!(programs >= 50 && pairs >= 100, "{programs} programs, {pairs} pairs");
    assert!(wrong.is_empty(), "of {pairs} pairs:\n{wrong}");
}
