//! Compares the steps of a plan with the order of a run's calls.

use protocol::Step;

use crate::claims::Claims;
use crate::runner::Run;

/// Returns the tools that a run called after a tool of a later step, although no loop leads back to theirs.
pub(crate) fn out_of_order(claims: &Claims, run: &Run) -> Vec<String> {
    let steps = &claims.order;
    let steps_of = |tool: &str| -> Vec<usize> {
        let ids: Vec<&str> =
            claims.tasks_of(tool).map(|task| claims.tasks[task].id.as_str()).collect();
        let has = |step: &Step| step.tasks.iter().any(|id| ids.contains(&id.as_str()));
        (0..steps.len()).filter(|index| has(&steps[*index])).collect()
    };
    // Each tool's steps, in the order of the tools' first calls.
    let mut called: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut found = Vec::new();
    for call in &run.calls {
        if claims.tasks_of(&call.tool).next().is_none() {
            continue;
        }
        let own_steps = steps_of(&call.tool);
        let may_come_after = |before: &Vec<usize>| {
            before.iter().any(|a| own_steps.iter().any(|b| may_follow(steps, *a, *b)))
        };
        let is_first = !called.iter().any(|(tool, _)| *tool == call.tool);
        let contradicts =
            |(tool, before): &(&str, Vec<usize>)| *tool != call.tool && !may_come_after(before);
        if (own_steps.is_empty() || called.iter().any(contradicts)) && !found.contains(&call.tool) {
            found.push(call.tool.clone());
        }
        if is_first {
            called.push((&call.tool, own_steps));
        }
    }
    found
}

/// Returns whether the program does not wait for the calls of a tool, or makes them at an unknown time.
pub(crate) fn has_own_time(claims: &Claims, tool: &str) -> bool {
    let is_of_tool =
        |id: &String| claims.tasks.iter().any(|task| task.tool == tool && task.id == *id);
    let mut steps = claims.order.iter().filter(|step| step.tasks.iter().any(is_of_tool));
    steps.any(|step| step.any_time || step.unawaited.is_some())
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
    // A step that is not awaited may make its calls during later steps.
    let overlaps = |step: &Step| {
        step.unawaited.as_ref().is_some_and(|one| one.until.is_none_or(|until| a < until as usize))
    };
    // `repeats_from` counts from 1.
    let goes_back = |later: &Step| later.repeats_from.iter().any(|from| (*from as usize) <= b + 1);
    overlaps(after) || steps[a..].iter().any(goes_back)
}
