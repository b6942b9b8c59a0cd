//! The steps of a plan, held against the order of a run's calls.

use protocol::Step;

use crate::runner::Run;
use crate::told::Told;

/// Returns tools that a run called before a tool of an earlier step, although no loop leads back.
pub(crate) fn out_of_step(told: &Told, run: &Run) -> Vec<String> {
    let steps = &told.order;
    let places = |tool: &str| -> Vec<usize> {
        let ids: Vec<&str> = told.of_tool(tool).map(|task| told.tasks[task].id.as_str()).collect();
        let has = |step: &Step| step.tasks.iter().any(|id| ids.contains(&id.as_str()));
        (0..steps.len()).filter(|place| has(&steps[*place])).collect()
    };
    let mut firsts: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut found = Vec::new();
    for call in &run.calls {
        if told.of_tool(&call.tool).next().is_none() {
            continue;
        }
        let here = places(&call.tool);
        let follows = |before: &Vec<usize>| {
            before.iter().any(|a| here.iter().any(|b| may_follow(steps, *a, *b)))
        };
        let is_new = !firsts.iter().any(|(tool, _)| *tool == call.tool);
        let breaks = |(tool, before): &(&str, Vec<usize>)| *tool != call.tool && !follows(before);
        if (here.is_empty() || firsts.iter().any(breaks)) && !found.contains(&call.tool) {
            found.push(call.tool.clone());
        }
        if is_new {
            firsts.push((&call.tool, here));
        }
    }
    found
}

/// Whether a call of step `b` may be made after one of step `a`.
fn may_follow(steps: &[Step], a: usize, b: usize) -> bool {
    let (Some(before), Some(after)) = (steps.get(a), steps.get(b)) else { return false };
    if before.any_time || after.any_time || a < b {
        return true;
    }
    if a == b && after.together {
        return true;
    }
    // A step that is not awaited may still make its calls beside later ones.
    let lasts = |step: &Step| {
        step.unawaited.as_ref().is_some_and(|one| one.until.is_none_or(|until| a < until as usize))
    };
    let goes_back = |later: &Step| later.repeats_from.iter().any(|from| (*from as usize) <= b + 1);
    lasts(after) || steps[a..].iter().any(goes_back)
}
