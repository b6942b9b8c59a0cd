//! How the calls of two runs differ.

use std::collections::{BTreeMap, BTreeSet};

use crate::runner::{End, Run};

/// How the calls of one tool differ between two runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Difference {
    /// One was given something else.
    pub(crate) given: bool,
    /// There are more of them in one of the runs.
    pub(crate) made: bool,
}

/// The arguments of a run's calls, by their tool.
type Given<'a> = BTreeMap<&'a str, Vec<String>>;

/// Returns the arguments of a run's calls, by their tool.
pub(crate) fn by_tool(run: &Run) -> Given<'_> {
    let mut calls: Given<'_> = BTreeMap::new();
    for call in &run.calls {
        calls.entry(&call.tool).or_default().push(call.args.to_string());
    }
    calls
}

/// Returns the tools whose calls differ between two runs, and how.
pub(crate) fn differences(a: &Run, b: &Run) -> Vec<(String, Difference)> {
    if matches!(a.end, End::Cut(_)) || matches!(b.end, End::Cut(_)) {
        return Vec::new();
    }
    let (of_a, of_b) = (by_tool(a), by_tool(b));
    let tools: BTreeSet<&str> = of_a.keys().chain(of_b.keys()).copied().collect();
    let mut found = Vec::new();
    for tool in tools {
        let none = Vec::new();
        let (in_a, in_b) = (of_a.get(tool).unwrap_or(&none), of_b.get(tool).unwrap_or(&none));
        let mut difference = Difference::default();
        if a.together || b.together {
            // Which of two calls in flight comes first is a matter of time.
            let sorted = |calls: &Vec<String>| {
                let mut calls = calls.clone();
                calls.sort();
                calls
            };
            difference.given = in_a.len() == in_b.len() && sorted(in_a) != sorted(in_b);
        } else {
            difference.given = in_a.iter().zip(in_b).any(|(one, other)| one != other);
        }
        difference.made =
            in_a.len() > in_b.len() && is_whole(b) || in_b.len() > in_a.len() && is_whole(a);
        if difference.given || difference.made {
            found.push((tool.to_owned(), difference));
        }
    }
    found
}

/// Whether a run made all of its calls: one that ended with an error might have made more, and one that
/// returned early has cut off the others.
fn is_whole(run: &Run) -> bool {
    matches!(run.end, End::Well | End::Early)
}

/// Returns pairs of tools whose calls are the same but for their relative order.
pub(crate) fn reordered(a: &Run, b: &Run) -> Vec<(String, String)> {
    let is_sequence = |run: &Run| run.end == End::Well && !run.together;
    if !is_sequence(a) || !is_sequence(b) {
        return Vec::new();
    }
    let (of_a, of_b) = (by_tool(a), by_tool(b));
    let same: Vec<&str> = of_a
        .iter()
        .filter(|(tool, calls)| of_b.get(*tool) == Some(calls))
        .map(|(t, _)| *t)
        .collect();
    let mut found = Vec::new();
    for (at, one) in same.iter().enumerate() {
        for other in &same[at + 1..] {
            let row = |run: &Run| -> Vec<bool> {
                let calls =
                    run.calls.iter().filter(|call| call.tool == *one || call.tool == *other);
                calls.map(|call| call.tool == *one).collect()
            };
            if row(a) != row(b) {
                found.push(((*one).to_owned(), (*other).to_owned()));
            }
        }
    }
    found
}
