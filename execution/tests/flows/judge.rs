//! The oracle: compares the flows between runs, and each run by itself, with the claims of the plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::claims::{Claims, Task};
use crate::compare::{Flows, Reach, by_tool, transitive_closure};
use crate::explore::Exploration;
use crate::inputs::Source;
use crate::miss::{Miss, MissKind, Misses};
use crate::runner::{End, Run};
use crate::{arguments, steps};

/// The result of comparing runs with a plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    /// The first miss of each kind, source and tool.
    pub(crate) misses: Vec<Miss>,
    /// The pairs of tools of which the first was observed to reach the second, directly or through others.
    pub(crate) reached: BTreeSet<(String, String)>,
}

impl Verdict {
    pub(crate) fn kinds(&self) -> BTreeSet<MissKind> {
        self.misses.iter().map(|miss| miss.kind).collect()
    }
}

/// Compares the runs of a program, and the flows that they revealed, with the claims of a plan.
pub(crate) fn judge(claims: &Claims, exploration: &Exploration, flows: &Flows) -> Verdict {
    let mut misses = Misses::default();
    let mut reached = transitive_closure(&[&flows.data, &flows.decisions]);
    // An incomplete plan promises nothing.
    if claims.complete {
        for (source, tools) in &flows.data {
            for (tool, runs) in tools {
                check_data(claims, source, tool, runs, &mut misses);
            }
        }
        for (source, tools) in &flows.decisions {
            for (tool, runs) in tools {
                check_decision(claims, source, tool, runs, &mut misses);
            }
        }
        for (source, tools, runs) in &flows.order {
            check_order(claims, source, tools, runs, &mut misses);
        }
        for (index, run) in exploration.runs.iter().enumerate() {
            check_run(claims, run, index, &mut misses);
        }
        check_transitive_egress(claims, flows, &reached, &mut misses);
    }
    for (source, tools, _) in &flows.order {
        if let Source::Tool(from) = source {
            reached.extend(tools.iter().map(|tool| (from.clone(), tool.clone())));
        }
    }
    Verdict { misses: misses.0, reached }
}

/// Checks that a source that changed a tool's arguments is claimed as data of its calls or as deciding on them.
fn check_data(claims: &Claims, source: &Source, tool: &str, runs: &[usize], misses: &mut Misses) {
    let mut add = |kind| misses.add(kind, Some(source), tool, runs.to_vec());
    match source {
        Source::Tool(from) => {
            let data = claims_flow(claims, from, tool, |task| &task.data_from);
            if !data && !claims_decision(claims, source, tool) {
                add(MissKind::Data);
            }
            if lacks_egress(claims, from, tool, data) {
                add(if data { MissKind::DataEgress } else { MissKind::DecisionEgress });
            }
        }
        Source::Args(field) => {
            let mut tasks = claims.tasks_of(tool).map(|index| &claims.tasks[index]);
            let data = tasks.any(|task| includes_field(&task.from_args, field));
            if !data && !claims_decision(claims, source, tool) {
                add(MissKind::ArgsData);
            }
            if lacks_args_egress(claims, field, tool, data) {
                add(if data { MissKind::ArgsDataEgress } else { MissKind::ArgsDecisionEgress });
            }
        }
    }
}

/// Checks that a source that changed how often a tool was called is claimed as deciding on its calls.
fn check_decision(
    claims: &Claims,
    source: &Source,
    tool: &str,
    runs: &[usize],
    misses: &mut Misses,
) {
    let mut add = |kind| misses.add(kind, Some(source), tool, runs.to_vec());
    match source {
        Source::Tool(from) => {
            if !claims_decision(claims, source, tool) {
                let data = claims_flow(claims, from, tool, |task| &task.data_from);
                add(if data { MissKind::DecisionAsData } else { MissKind::Decision });
            }
            if lacks_egress(claims, from, tool, false) {
                add(MissKind::DecisionEgress);
            }
        }
        Source::Args(field) => {
            if !claims_decision(claims, source, tool) {
                add(MissKind::ArgsDecision);
            }
            if lacks_args_egress(claims, field, tool, false) {
                add(MissKind::ArgsDecisionEgress);
            }
        }
    }
}

/// Checks that a source that changed the order of two tools' calls is claimed as deciding on one of them. If one of the
/// tools is not waited for, the order is a question of time, about which a plan promises nothing.
fn check_order(
    claims: &Claims,
    source: &Source,
    [first, second]: &[String; 2],
    runs: &[usize],
    misses: &mut Misses,
) {
    if steps::has_own_time(claims, first) || steps::has_own_time(claims, second) {
        return;
    }
    let (decision, egress) = match source {
        Source::Tool(_) => (MissKind::Decision, MissKind::DecisionEgress),
        Source::Args(_) => (MissKind::ArgsDecision, MissKind::ArgsDecisionEgress),
    };
    let lacks = |to: &str| match source {
        Source::Tool(from) => lacks_egress(claims, from, to, false),
        Source::Args(field) => lacks_args_egress(claims, field, to, false),
    };
    if !claims_decision(claims, source, first) && !claims_decision(claims, source, second) {
        misses.add(decision, Some(source), first, runs.to_vec());
    }
    if lacks(first) && lacks(second) {
        misses.add(egress, Some(source), first, runs.to_vec());
    }
}

/// Checks what a single run shows: its tools, how often they are called, their arguments and the steps.
fn check_run(claims: &Claims, run: &Run, index: usize, misses: &mut Misses) {
    if matches!(run.end, End::LimitReached(_)) {
        return;
    }
    let calls = by_tool(run);
    for (tool, made) in &calls {
        let tasks: Vec<usize> = claims.tasks_of(tool).collect();
        if tasks.is_empty() {
            misses.add(MissKind::Undeclared, None, tool, vec![index]);
        } else if tasks.iter().all(|task| claims.tasks[*task].once) && made.len() > tasks.len() {
            misses.add(MissKind::Once, None, tool, vec![index]);
        }
    }
    for call in &run.calls {
        let mut tasks = claims.tasks_of(&call.tool).peekable();
        let matches = |task: usize| {
            arguments::matches(claims, &claims.tasks[task].arguments, &call.args, &run.inputs)
        };
        if tasks.peek().is_some() && !tasks.any(matches) {
            misses.add(MissKind::Argument, None, &call.tool, vec![index]);
        }
    }
    if matches!(run.end, End::Completed | End::ReturnedEarly) {
        for task in claims.tasks.iter().filter(|task| task.will) {
            if !calls.contains_key(task.tool.as_str()) {
                misses.add(MissKind::Will, None, &task.tool, vec![index]);
            }
        }
    }
    for tool in steps::out_of_order(claims, run) {
        misses.add(MissKind::Step, None, &tool, vec![index]);
    }
}

/// Checks the egress of results that reach a tool only through the results of others.
fn check_transitive_egress(
    claims: &Claims,
    flows: &Flows,
    reached: &BTreeSet<(String, String)>,
    misses: &mut Misses,
) {
    let with_data = transitive_closure(&[&flows.data]);
    for pair in reached {
        let (from, to) = pair;
        let source = Source::Tool(from.clone());
        let has = |reach: &Reach| reach.get(&source).is_some_and(|tools| tools.contains_key(to));
        let is_direct = has(&flows.data) || has(&flows.decisions);
        if !is_direct && lacks_egress(claims, from, to, false) {
            let kind = if with_data.contains(pair) {
                MissKind::DataEgress
            } else {
                MissKind::DecisionEgress
            };
            misses.add(kind, Some(&source), to, Vec::new());
        }
    }
}

/// Whether some task of `tool` has a task of `from` in a set of sources.
fn claims_flow(
    claims: &Claims,
    from: &str,
    tool: &str,
    sources: impl Fn(&Task) -> &BTreeSet<usize>,
) -> bool {
    claims
        .tasks_of(tool)
        .any(|to| claims.tasks_of(from).any(|from| sources(&claims.tasks[to]).contains(&from)))
}

/// Whether the plan claims that a source decides on the calls of a tool.
fn claims_decision(claims: &Claims, source: &Source, tool: &str) -> bool {
    match source {
        Source::Args(field) => {
            claims.tasks_of(tool).any(|to| includes_field(&claims.tasks[to].decided_by_args, field))
        }
        Source::Tool(from) => claims_flow(claims, from, tool, |task| &task.decided_by),
    }
}

/// Whether parts of `args` include a field or a part of it.
fn includes_field(parts: &[String], field: &str) -> bool {
    let includes = |part: &String| match part.strip_prefix("args") {
        Some("") => true,
        Some(path) => match path.strip_prefix('.').and_then(|path| path.strip_prefix(field)) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        },
        None => false,
    };
    parts.iter().any(includes)
}

/// Whether a field of `args` leaves the machine with a tool and is missing from `args_egress`. With `as_data`, an
/// entry that only decides does not count.
fn lacks_args_egress(claims: &Claims, field: &str, tool: &str, as_data: bool) -> bool {
    let has = |of: &BTreeMap<usize, Vec<String>>, index: &usize| {
        of.get(index).is_some_and(|parts| includes_field(parts, field))
    };
    let mut sending = claims.tasks_of(tool).filter(|index| claims.tasks[*index].sends).peekable();
    let is_listed = |index: usize| {
        has(&claims.args_egress, &index) || !as_data && has(&claims.args_only_decide, &index)
    };
    sending.peek().is_some() && !sending.any(is_listed)
}

/// Whether a result of `from` leaves the machine with `to` and is missing from `egress`. With `as_data`, an entry
/// that only decides does not count.
fn lacks_egress(claims: &Claims, from: &str, to: &str, as_data: bool) -> bool {
    let is_local = claims.tasks_of(from).any(|index| claims.tasks[index].reads_locally);
    let is_sent = claims.tasks_of(to).any(|index| claims.tasks[index].sends);
    let mut pairs =
        claims.tasks_of(to).flat_map(|to| claims.tasks_of(from).map(move |from| (from, to)));
    let is_listed = |pair: (usize, usize)| {
        claims.egress.contains(&pair) && !(as_data && claims.only_decide.contains(&pair))
    };
    from != to && is_local && is_sent && !pairs.any(is_listed)
}
