//! The oracle: what differs between two runs in which only one source differs was told.

use std::collections::{BTreeMap, BTreeSet};

use crate::difference::{by_tool, differences, reordered};
use crate::explore::Observed;
use crate::runner::{End, Run};
use crate::told::Told;
use crate::world::Source;
use crate::{order, shown};

/// What was not told, or was told wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A tool was called of which the plan has no task.
    Undeclared,
    /// A call was given something else, and neither data nor a decision was told.
    Given,
    /// A call was made or not made, or at another place, and nothing was told.
    Made,
    /// Its result decided whether a call was made, and was told as data only.
    Decision,
    /// A result that left the machine in an argument is not in `egress`, or as one that decides.
    Egress,
    /// A result that decided on a call that leaves the machine is not in `egress`.
    Leaves,
    /// A part of `args` was in an argument, and this was not told.
    Args,
    /// A part of `args` decided whether a call was made, and this was not told.
    ArgsDecision,
    /// A part of `args` that left the machine is not in `args_egress`, or as one that decides.
    ArgsEgress,
    /// A part of `args` that decided on a call that leaves the machine is not in `args_egress`.
    ArgsLeave,
    /// A call that every run makes was not made in one that ended without an error.
    Will,
    /// A call that is made once was made again.
    Once,
    /// An argument is shown as something else than what was sent.
    Shown,
    /// A call was made before one that is in an earlier step.
    Step,
}

impl Kind {
    pub(crate) const ALL: [Self; 14] = [
        Self::Undeclared,
        Self::Given,
        Self::Made,
        Self::Decision,
        Self::Egress,
        Self::Leaves,
        Self::Args,
        Self::ArgsDecision,
        Self::ArgsEgress,
        Self::ArgsLeave,
        Self::Will,
        Self::Once,
        Self::Shown,
        Self::Step,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Undeclared => "undeclared",
            Self::Given => "given",
            Self::Made => "made",
            Self::Decision => "decision",
            Self::Egress => "egress",
            Self::Leaves => "leaves",
            Self::Args => "args",
            Self::ArgsDecision => "args-decision",
            Self::ArgsEgress => "args-egress",
            Self::ArgsLeave => "args-leave",
            Self::Will => "will",
            Self::Once => "once",
            Self::Shown => "shown",
            Self::Step => "step",
        }
    }
}

/// One thing that was not told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Miss {
    pub(crate) kind: Kind,
    /// What was changed; none for what one run shows.
    pub(crate) from: Option<Source>,
    /// The tool.
    pub(crate) to: String,
    /// The places of the runs that show it.
    pub(crate) runs: Vec<usize>,
}

/// What the runs showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    /// The first miss of each kind and pair.
    pub(crate) misses: Vec<Miss>,
    /// Pairs of tools of which the first was seen to reach the second, directly or through others.
    pub(crate) reached: BTreeSet<(String, String)>,
}

impl Verdict {
    pub(crate) fn kinds(&self) -> BTreeSet<Kind> {
        self.misses.iter().map(|miss| miss.kind).collect()
    }
}

/// The tools that each source reaches, with runs that show it.
type Reached = BTreeMap<Source, BTreeMap<String, Vec<usize>>>;

/// What the runs of a program showed, whatever was told of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Which calls were given something else.
    given: Reached,
    /// Which calls were made more often.
    made: Reached,
    /// Which two tools were called in another order.
    ordered: Vec<(Source, [String; 2], Vec<usize>)>,
}

/// Compares the runs between which one source differs.
pub(crate) fn see(observed: &Observed) -> Seen {
    let mut seen = Seen::default();
    for (source, group) in &observed.groups {
        for (at, a) in group.iter().enumerate() {
            for b in &group[at + 1..] {
                let (one, other) = (&observed.runs[*a], &observed.runs[*b]);
                let runs = || vec![*a, *b];
                for (tool, difference) in differences(one, other) {
                    if difference.given {
                        let given = seen.given.entry(source.clone()).or_default();
                        given.entry(tool.clone()).or_insert_with(runs);
                    }
                    if difference.made {
                        let made = seen.made.entry(source.clone()).or_default();
                        made.entry(tool).or_insert_with(runs);
                    }
                }
                for (first, second) in reordered(one, other) {
                    seen.ordered.push((source.clone(), [first, second], runs()));
                }
            }
        }
    }
    seen
}

/// Holds the runs of a program, and what they showed, against what was told of it.
pub(crate) fn judge(told: &Told, observed: &Observed, seen: &Seen) -> Verdict {
    let mut misses = Misses::default();
    let mut reached = closure(&[&seen.given, &seen.made]);
    if told.complete {
        for (source, tools) in &seen.given {
            for (tool, runs) in tools {
                flows(told, source, tool, runs, &mut misses);
            }
        }
        for (source, tools) in &seen.made {
            for (tool, runs) in tools {
                decisions(told, source, tool, runs, &mut misses);
            }
        }
        for (source, tools, runs) in &seen.ordered {
            orders(told, source, tools, runs, &mut misses);
        }
        for (place, run) in observed.runs.iter().enumerate() {
            alone(told, run, place, &mut misses);
        }
        through_others(told, seen, &reached, &mut misses);
    }
    for (source, tools, _) in &seen.ordered {
        if let Source::Tool(from) = source {
            reached.extend(tools.iter().map(|tool| (from.clone(), tool.clone())));
        }
    }
    Verdict { misses: misses.0, reached }
}

/// Judges what reaches a tool only through the results of others.
fn through_others(
    told: &Told,
    seen: &Seen,
    reached: &BTreeSet<(String, String)>,
    misses: &mut Misses,
) {
    let with_data = closure(&[&seen.given]);
    for pair in reached {
        let (from, to) = pair;
        let source = Source::Tool(from.clone());
        let is_direct = |of: &Reached| of.get(&source).is_some_and(|tools| tools.contains_key(to));
        if !is_direct(&seen.given) && !is_direct(&seen.made) && leaves(told, from, to, false) {
            let kind = if with_data.contains(pair) { Kind::Egress } else { Kind::Leaves };
            misses.add(kind, Some(&source), to, Vec::new());
        }
    }
}

/// Collects the first miss of each kind and pair.
#[derive(Default)]
struct Misses(Vec<Miss>);

impl Misses {
    fn add(&mut self, kind: Kind, from: Option<&Source>, to: &str, runs: Vec<usize>) {
        let is_known =
            |miss: &Miss| miss.kind == kind && miss.from.as_ref() == from && miss.to == to;
        if !self.0.iter().any(is_known) {
            self.0.push(Miss { kind, from: from.cloned(), to: to.to_owned(), runs });
        }
    }
}

/// Whether `by` is among what is told of some task of `tool`.
fn is_told(
    told: &Told,
    from: &str,
    tool: &str,
    by: impl Fn(&crate::told::Task) -> &BTreeSet<usize>,
) -> bool {
    told.of_tool(tool).any(|to| told.of_tool(from).any(|from| by(&told.tasks[to]).contains(&from)))
}

/// Whether a source is told to decide on the calls of a tool.
fn decides(told: &Told, source: &Source, tool: &str) -> bool {
    match source {
        Source::Args(field) => {
            told.of_tool(tool).any(|to| has_part(&told.tasks[to].decided_by_args, field))
        }
        Source::Tool(from) => is_told(told, from, tool, |task| &task.decided_by),
    }
}

/// Whether parts of `args` include a field, or a part of it.
fn has_part(parts: &[String], field: &str) -> bool {
    let is = |part: &String| match part.strip_prefix("args") {
        Some("") => true,
        Some(path) => match path.strip_prefix('.').and_then(|path| path.strip_prefix(field)) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        },
        None => false,
    };
    parts.iter().any(is)
}

/// Whether a field of `args` leaves the machine with a tool, and `args_egress` does not say so; for `as_data`, it says so
/// only of what is passed.
fn args_leave(told: &Told, field: &str, tool: &str, as_data: bool) -> bool {
    let has = |of: &BTreeMap<usize, Vec<String>>, place: &usize| {
        of.get(place).is_some_and(|parts| has_part(parts, field))
    };
    let mut away = told.of_tool(tool).filter(|place| told.tasks[*place].away).peekable();
    let is_listed = |place: usize| {
        has(&told.args_egress, &place) || !as_data && has(&told.args_only_decide, &place)
    };
    away.peek().is_some() && !away.any(is_listed)
}

/// Whether a result of `from` leaves the machine with `to`, and `egress` does not say so; for `as_data`, it says so only
/// of what does not merely decide.
fn leaves(told: &Told, from: &str, to: &str, as_data: bool) -> bool {
    let is_here = told.of_tool(from).any(|place| told.tasks[place].here);
    let is_away = told.of_tool(to).any(|place| told.tasks[place].away);
    let mut pairs = told.of_tool(to).flat_map(|to| told.of_tool(from).map(move |from| (from, to)));
    let is_listed = |pair: (usize, usize)| {
        told.egress.contains(&pair) && !(as_data && told.only_decide.contains(&pair))
    };
    from != to && is_here && is_away && !pairs.any(is_listed)
}

fn flows(told: &Told, source: &Source, tool: &str, runs: &[usize], misses: &mut Misses) {
    let mut add = |kind| misses.add(kind, Some(source), tool, runs.to_vec());
    match source {
        Source::Tool(from) => {
            let data = is_told(told, from, tool, |task| &task.data_from);
            if !data && !decides(told, source, tool) {
                add(Kind::Given);
            }
            if leaves(told, from, tool, data) {
                add(if data { Kind::Egress } else { Kind::Leaves });
            }
        }
        Source::Args(field) => {
            let mut tasks = told.of_tool(tool).map(|place| &told.tasks[place]);
            let data = tasks.any(|task| has_part(&task.from_args, field));
            if !data && !decides(told, source, tool) {
                add(Kind::Args);
            }
            if args_leave(told, field, tool, data) {
                add(if data { Kind::ArgsEgress } else { Kind::ArgsLeave });
            }
        }
    }
}

fn decisions(told: &Told, source: &Source, tool: &str, runs: &[usize], misses: &mut Misses) {
    let mut add = |kind| misses.add(kind, Some(source), tool, runs.to_vec());
    match source {
        Source::Tool(from) => {
            if !decides(told, source, tool) {
                let data = is_told(told, from, tool, |task| &task.data_from);
                add(if data { Kind::Decision } else { Kind::Made });
            }
            if leaves(told, from, tool, false) {
                add(Kind::Leaves);
            }
        }
        Source::Args(field) => {
            if !decides(told, source, tool) {
                add(Kind::ArgsDecision);
            }
            if args_leave(told, field, tool, false) {
                add(Kind::ArgsLeave);
            }
        }
    }
}

/// Judges a source that decided in which order two tools were called: that is told of one of them.
fn orders(
    told: &Told,
    source: &Source,
    [first, second]: &[String; 2],
    runs: &[usize],
    misses: &mut Misses,
) {
    let (made, left) = match source {
        Source::Tool(_) => (Kind::Made, Kind::Leaves),
        Source::Args(_) => (Kind::ArgsDecision, Kind::ArgsLeave),
    };
    let leaves = |to: &str| match source {
        Source::Tool(from) => leaves(told, from, to, false),
        Source::Args(field) => args_leave(told, field, to, false),
    };
    if !decides(told, source, first) && !decides(told, source, second) {
        misses.add(made, Some(source), first, runs.to_vec());
    }
    if leaves(first) && leaves(second) {
        misses.add(left, Some(source), first, runs.to_vec());
    }
}

/// Judges what one run shows by itself.
fn alone(told: &Told, run: &Run, place: usize, misses: &mut Misses) {
    if matches!(run.end, End::Cut(_)) {
        return;
    }
    let calls = by_tool(run);
    for (tool, made) in &calls {
        let tasks: Vec<usize> = told.of_tool(tool).collect();
        if tasks.is_empty() {
            misses.add(Kind::Undeclared, None, tool, vec![place]);
        } else if tasks.iter().all(|task| told.tasks[*task].once) && made.len() > tasks.len() {
            misses.add(Kind::Once, None, tool, vec![place]);
        }
    }
    for call in &run.calls {
        let mut tasks = told.of_tool(&call.tool).peekable();
        let agrees =
            |task: usize| shown::agrees(told, &told.tasks[task].shown, &call.args, &run.world);
        if tasks.peek().is_some() && !tasks.any(agrees) {
            misses.add(Kind::Shown, None, &call.tool, vec![place]);
        }
    }
    if matches!(run.end, End::Well | End::Early) {
        for task in told.tasks.iter().filter(|task| task.will) {
            if !calls.contains_key(task.tool.as_str()) {
                misses.add(Kind::Will, None, &task.tool, vec![place]);
            }
        }
    }
    for tool in order::out_of_step(told, run) {
        misses.add(Kind::Step, None, &tool, vec![place]);
    }
}

/// Returns the pairs of tools between which ways lead that were seen, directly or through others.
fn closure(ways: &[&Reached]) -> BTreeSet<(String, String)> {
    let steps = |from: &str| -> Vec<&String> {
        let from = Source::Tool(from.to_owned());
        ways.iter().filter_map(|way| way.get(&from)).flat_map(BTreeMap::keys).collect()
    };
    let mut pairs = BTreeSet::new();
    for source in ways.iter().flat_map(|way| way.keys()) {
        let Source::Tool(from) = source else { continue };
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            for to in steps(at) {
                if pairs.insert((from.clone(), to.clone())) {
                    waiting.push(to);
                }
            }
        }
    }
    pairs
}
