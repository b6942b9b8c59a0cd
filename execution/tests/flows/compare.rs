//! Compares runs between which one source differs: each difference in their calls is a flow from that source.

use std::collections::{BTreeMap, BTreeSet};

use crate::explore::Exploration;
use crate::inputs::Source;
use crate::runner::{End, Run};

/// The tools that each source reaches, with the indices of two runs that show it.
pub(crate) type Reach = BTreeMap<Source, BTreeMap<String, Vec<usize>>>;

/// The flows that the runs of a program revealed, regardless of its plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flows {
    /// The tools whose arguments changed.
    pub(crate) data: Reach,
    /// The tools whose number of calls changed.
    pub(crate) decisions: Reach,
    /// The pairs of tools whose calls changed their order.
    pub(crate) order: Vec<(Source, [String; 2], Vec<usize>)>,
}

/// Returns the flows that differences between runs reveal.
pub(crate) fn observed_flows(exploration: &Exploration) -> Flows {
    let mut flows = Flows::default();
    for (source, group) in &exploration.groups {
        for (at, a) in group.iter().enumerate() {
            for b in &group[at + 1..] {
                let (one, other) = (&exploration.runs[*a], &exploration.runs[*b]);
                let runs = || vec![*a, *b];
                for (tool, difference) in differences(one, other) {
                    if difference.arguments {
                        let data = flows.data.entry(source.clone()).or_default();
                        data.entry(tool.clone()).or_insert_with(runs);
                    }
                    if difference.count {
                        let decisions = flows.decisions.entry(source.clone()).or_default();
                        decisions.entry(tool).or_insert_with(runs);
                    }
                }
                for (first, second) in reordered(one, other) {
                    flows.order.push((source.clone(), [first, second], runs()));
                }
            }
        }
    }
    flows
}

/// How the calls of one tool differ between two runs.
#[derive(Debug, Clone, Copy, Default)]
struct Difference {
    /// Calls have other arguments.
    arguments: bool,
    /// One of the runs makes more calls.
    count: bool,
}

/// The arguments of a run's calls, by tool.
type Calls<'a> = BTreeMap<&'a str, Vec<String>>;

/// Returns the arguments of a run's calls, by tool.
pub(crate) fn by_tool(run: &Run) -> Calls<'_> {
    let mut calls: Calls<'_> = BTreeMap::new();
    for call in &run.calls {
        calls.entry(&call.tool).or_default().push(call.args.to_string());
    }
    calls
}

/// Returns the tools whose calls differ between two runs.
fn differences(a: &Run, b: &Run) -> Vec<(String, Difference)> {
    if matches!(a.end, End::LimitReached(_)) || matches!(b.end, End::LimitReached(_)) {
        return Vec::new();
    }
    let (of_a, of_b) = (by_tool(a), by_tool(b));
    let tools: BTreeSet<&str> = of_a.keys().chain(of_b.keys()).copied().collect();
    let mut found = Vec::new();
    for tool in tools {
        let none = Vec::new();
        let (in_a, in_b) = (of_a.get(tool).unwrap_or(&none), of_b.get(tool).unwrap_or(&none));
        let mut difference = Difference::default();
        if a.concurrent || b.concurrent {
            // The order of calls in flight is a race, so their arguments are compared as multisets. With different
            // numbers of calls it is unknown which ones correspond.
            let sorted = |calls: &Vec<String>| {
                let mut calls = calls.clone();
                calls.sort();
                calls
            };
            difference.arguments = in_a.len() == in_b.len() && sorted(in_a) != sorted(in_b);
        } else {
            difference.arguments = in_a.iter().zip(in_b).any(|(one, other)| one != other);
        }
        difference.count = in_a.len() > in_b.len() && made_all_calls(b)
            || in_b.len() > in_a.len() && made_all_calls(a);
        if difference.arguments || difference.count {
            found.push((tool.to_owned(), difference));
        }
    }
    found
}

/// Whether a run made all of its calls. One that failed might have made more. A run that returned early made all:
/// returning cancels the others, and the plan must state what decides on that.
fn made_all_calls(run: &Run) -> bool {
    matches!(run.end, End::Completed | End::ReturnedEarly)
}

/// Returns the pairs of tools whose calls are the same in both runs except for their relative order.
fn reordered(a: &Run, b: &Run) -> Vec<(String, String)> {
    let is_sequential = |run: &Run| run.end == End::Completed && !run.concurrent;
    if !is_sequential(a) || !is_sequential(b) {
        return Vec::new();
    }
    let (of_a, of_b) = (by_tool(a), by_tool(b));
    let same: Vec<&str> = of_a
        .iter()
        .filter(|(tool, calls)| of_b.get(*tool) == Some(calls))
        .map(|(tool, _)| *tool)
        .collect();
    let mut found = Vec::new();
    for (at, one) in same.iter().enumerate() {
        for other in &same[at + 1..] {
            let sequence = |run: &Run| -> Vec<bool> {
                let calls =
                    run.calls.iter().filter(|call| call.tool == *one || call.tool == *other);
                calls.map(|call| call.tool == *one).collect()
            };
            if sequence(a) != sequence(b) {
                found.push(((*one).to_owned(), (*other).to_owned()));
            }
        }
    }
    found
}

/// Returns the pairs of tools of which the first reaches the second, directly or through the results of others.
pub(crate) fn transitive_closure(reaches: &[&Reach]) -> BTreeSet<(String, String)> {
    let reached_from = |from: &str| -> Vec<&String> {
        let from = Source::Tool(from.to_owned());
        reaches.iter().filter_map(|reach| reach.get(&from)).flat_map(BTreeMap::keys).collect()
    };
    let mut pairs = BTreeSet::new();
    for source in reaches.iter().flat_map(|reach| reach.keys()) {
        let Source::Tool(from) = source else { continue };
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            for to in reached_from(at) {
                if pairs.insert((from.clone(), to.clone())) {
                    waiting.push(to);
                }
            }
        }
    }
    pairs
}
