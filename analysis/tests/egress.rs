//! Compares the egress of the programs of `cases/agent/` with their hand-written
//! `.edges` files: data with the lines that start with `egress`, and decisions with
//! everything that a call depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use analysis::{Limits, Plan, PlannedTask, analyze, plan};
use protocol::{Routing, RoutingRules, ToolPattern};

#[path = "agent/call_ends.rs"]
mod call_ends;

use call_ends::call_ends;

/// Namespaces that the seeded registry routes to the client, in addition to the shipped rules.
const SEEDED: &[&str] = &["memory", "fetch", "sequential-thinking", "time", "everything"];

fn rules() -> RoutingRules {
    let shipped: Vec<(ToolPattern, Routing)> = RoutingRules::shipped().into();
    let seeded = SEEDED
        .iter()
        .map(|namespace| (ToolPattern::Namespace((*namespace).to_owned()), Routing::Client));
    shipped.into_iter().chain(seeded).collect()
}

/// A pair that the plan lists although no run has it. The plan may list too much, never too little.
struct FalsePositive {
    program: &'static str,
    from: &'static str,
    to: &'static str,
    /// `flow` or `decide`.
    how: &'static str,
    reason: &'static str,
}

const FLOW: &str = "flow";
const DECIDE: &str = "decide";
const AFTER_AN_EXIT: &str =
    "values collected after an early exit count as decided by it, and so as computed from it";
const COUNTED: &str = "the number of requested pages is decided by that result";

const FALSE_POSITIVES: &[FalsePositive] = &[
    FalsePositive {
        program: "release_pipeline",
        from: "t14",
        to: "t17",
        how: FLOW,
        reason: AFTER_AN_EXIT,
    },
    FalsePositive { program: "release_pipeline", from: "t2", to: "t5", how: FLOW, reason: COUNTED },
    FalsePositive { program: "release_pipeline", from: "t3", to: "t5", how: FLOW, reason: COUNTED },
    FalsePositive {
        program: "memoised_lookups",
        from: "t2",
        to: "t1",
        how: DECIDE,
        reason: "two functions that one helper creates share the abstract value of its map",
    },
];

/// Pairs of calls, by their ids.
type Pairs = BTreeSet<(String, String)>;

/// The egress according to a file or a plan.
#[derive(Default)]
struct Leaving {
    /// The result of the first reaches the second as data.
    data: Pairs,
    /// The result of the first reaches the second only through a decision.
    decides: Pairs,
}

/// Returns the calls of an `.edges` file with their tools, their dependencies, and the data egress.
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

/// Returns the transitive closure.
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

/// Returns the ids of the `.edges` file for the tasks of a plan. There, calls are numbered by their ends.
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

/// Returns the egress according to the `.edges` file and to the plan.
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
fn egress_matches_the_edges_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/agent");
    let rules = rules();
    let mut used = [false; FALSE_POSITIVES.len()];
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
            let known = FALSE_POSITIVES.iter().position(|known| {
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
    for (known, used) in FALSE_POSITIVES.iter().zip(used) {
        assert!(!known.reason.is_empty());
        if !used {
            let FalsePositive { program, from, to, .. } = known;
            let _ = writeln!(wrong, "{program}: {from} => {to} needs no exception");
        }
    }
    assert!(programs >= 50 && given >= 100 && decided >= 30, "{programs} {given} {decided}");
    assert!(wrong.is_empty(), "of {given} and {decided} pairs:\n{wrong}");
}
