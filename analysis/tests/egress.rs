//! Compares what leaves the machine in the programs of `cases/agent/` with the
//! lines beside them, which were written by hand: data with those that start with
//! `egress`, and what decides with all that a call depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use analysis::{Limits, Plan, PlannedTask, analyze, plan};
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
    /// `flow` or `decide`.
    how: &'static str,
    reason: &'static str,
}

const FLOW: &str = "flow";
const DECIDE: &str = "decide";
const AFTER_A_WAY_OUT: &str =
    "what is collected after a way out counts as decided by it, and so as made from it";
const COUNTED: &str = "how many pages are asked for is decided by that result";

const BEYOND: &[Beyond] = &[
    Beyond {
        program: "release_pipeline",
        from: "t14",
        to: "t17",
        how: FLOW,
        reason: AFTER_A_WAY_OUT,
    },
    Beyond { program: "release_pipeline", from: "t2", to: "t5", how: FLOW, reason: COUNTED },
    Beyond { program: "release_pipeline", from: "t3", to: "t5", how: FLOW, reason: COUNTED },
    Beyond {
        program: "memoised_lookups",
        from: "t2",
        to: "t1",
        how: DECIDE,
        reason: "two functions that one helper makes share what is known of its map",
    },
];

/// From one call to another, by their names.
type Pairs = BTreeSet<(String, String)>;

/// What a file or a plan says.
#[derive(Default)]
struct Leaving {
    /// Whose result reaches the other as data.
    data: Pairs,
    /// Whose result reaches it, but only by a decision.
    decides: Pairs,
}

/// Returns the calls of an `.edges` file and their tools, what each depends on, and what leaves as data.
fn read(edges: &str) -> (Vec<(&str, &str)>, Pairs, Pairs) {
    let (mut calls, mut depends, mut data) = (Vec::new(), Pairs::new(), Pairs::new());
    for line in edges.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pair) = line.strip_prefix("egress ") {
            let (from, to) = pair.split_once(" => ").unwrap_or_else(|| panic!("{line}"));
            data.insert((from.to_owned(), to.to_owned()));
        } else if !line.is_empty() {
            let (head, after) = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}"));
            let mut words = head.split(' ');
            let to = words.next().unwrap_or_default();
            calls.push((to, words.next().unwrap_or_default()));
            let after = after.split(' ').filter(|id| *id != "-");
            depends.extend(after.map(|from| (from.to_owned(), to.to_owned())));
        }
    }
    (calls, depends, data)
}

/// Returns all pairs between which a way leads.
fn closure(steps: &Pairs) -> Pairs {
    let mut all = steps.clone();
    loop {
        let further: Pairs = all
            .iter()
            .flat_map(|(from, by)| {
                let next = steps.iter().filter(move |(start, _)| start == by);
                next.map(move |(_, to)| (from.clone(), to.clone()))
            })
            .collect();
        let before = all.len();
        all.extend(further);
        if all.len() == before {
            return all;
        }
    }
}

/// Returns the names that the `.edges` file gives the tasks of a plan: calls are counted there by where they end.
fn names<'p>(source: &str, plan: &'p Plan, calls: &[(&str, &str)]) -> BTreeMap<&'p str, String> {
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
        names.insert(task.id.as_str(), name.to_owned());
    }
    names
}

/// Returns what the `.edges` file and the plan say.
fn both(source: &str, edges: &str, plan: &Plan) -> (Leaving, Leaving) {
    let (calls, depends, data) = read(edges);
    let names = names(source, plan, &calls);
    let is_of = |name: &String, is: fn(&PlannedTask) -> bool| {
        plan.tasks.iter().any(|task| names[task.id.as_str()] == *name && is(task))
    };
    let mut decides = closure(&depends.union(&data).cloned().collect());
    decides.retain(|pair @ (from, to)| {
        from != to
            && is_of(from, PlannedTask::may_be_here)
            && is_of(to, PlannedTask::takes_away)
            && !data.contains(pair)
    });
    let mut found = Leaving::default();
    for pair in &plan.egress {
        let of = if pair.decides { &mut found.decides } else { &mut found.data };
        of.insert((names[&*pair.from].clone(), names[&*pair.to].clone()));
    }
    (Leaving { data, decides }, found)
}

#[test]
fn what_leaves_the_machine_is_what_was_written_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/agent");
    let rules = rules();
    let mut used = [false; BEYOND.len()];
    let (mut programs, mut given, mut decided, mut wrong) = (0, 0, 0, String::new());
    let entries = std::fs::read_dir(&folder).expect("the folder is readable");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "ts")) {
        let source = std::fs::read_to_string(path).expect("a program is readable");
        let edges = std::fs::read_to_string(path.with_extension("edges")).expect("readable");
        let plan = plan(&analyze(&source, &Limits::default()), &rules);
        let (expected, found) = both(&source, &edges, &plan);
        programs += 1;
        given += expected.data.len();
        decided += expected.decides.len();
        let name = path.file_stem().expect("a name").to_string_lossy();
        for (from, to) in expected.data.difference(&found.data) {
            let _ = writeln!(wrong, "{name}: {from} => {to} is missing");
        }
        for pair @ (from, to) in &expected.decides {
            if !found.decides.contains(pair) && !found.data.contains(pair) {
                let _ = writeln!(wrong, "{name}: that {from} decides on {to} is missing");
            }
        }
        let data = found.data.difference(&expected.data).map(|pair| ("flow", pair));
        let known = |pair: &&(String, String)| {
            !expected.decides.contains(*pair) && !expected.data.contains(*pair)
        };
        let decides = found.decides.iter().filter(known).map(|pair| ("decide", pair));
        for (how, (from, to)) in data.chain(decides) {
            let known = BEYOND.iter().position(|known| {
                (known.program, known.from, known.to, known.how) == (&*name, from, to, how)
            });
            match known {
                Some(at) => used[at] = true,
                None => {
                    let _ = writeln!(wrong, "{name}: {from} does not {how} to {to}");
                }
            }
        }
    }
    for (known, used) in BEYOND.iter().zip(used) {
        assert!(!known.reason.is_empty());
        if !used {
            let Beyond { program, from, to, .. } = known;
            let _ = writeln!(wrong, "{program}: {from} => {to} needs no exception");
        }
    }
    assert!(programs >= 50 && given >= 100 && decided >= 30, "{programs} {given} {decided}");
    assert!(wrong.is_empty(), "of {given} and {decided} pairs:\n{wrong}");
}
