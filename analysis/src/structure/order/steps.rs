//! Collects the steps during the walk.

use std::collections::BTreeSet;

use protocol::{Step, Unawaited};

use super::Use;
use super::names::Awaited;

/// The maximum number of steps that are reported.
const LIMIT: usize = 5_000;

/// A step under construction.
#[derive(Default)]
struct Draft {
    tasks: Vec<usize>,
    together: bool,
    /// Whether the program continues before it has ended.
    later: bool,
    /// The number of names of promises from it that have not been awaited yet.
    open: usize,
    /// Whether no await of it was found.
    forever: bool,
    /// The number of steps that had begun when it was awaited; 0 if it has not been.
    until: usize,
    repeats_from: Vec<usize>,
}

/// Calls whose promise has a name and has not been awaited yet.
struct Open {
    uses: Use,
    /// The blocks that enclose the calls.
    blocks: Vec<u32>,
    /// Their step; `None` for the open region.
    step: Option<usize>,
}

/// Code that becomes one step.
#[derive(Default)]
struct Region {
    tasks: Vec<usize>,
    many: bool,
    /// Whether something in it is not awaited in it.
    forever: bool,
}

/// The steps so far.
#[derive(Default)]
pub(super) struct Steps {
    drafts: Vec<Draft>,
    region: Option<Region>,
    /// Whether the code that is walked can run at any time.
    any: bool,
    any_time: BTreeSet<usize>,
    open: Vec<Open>,
    blocks: Vec<u32>,
    last_block: u32,
    /// The index of the first step that calls may still be added to.
    part: usize,
    lost: bool,
}

impl Steps {
    /// Adds the tasks of one position.
    pub(super) fn add(&mut self, tasks: &[usize], uses: &Use) {
        if self.any {
            self.any_time.extend(tasks);
            return;
        }
        let waits = matches!(uses, Use::Awaited | Use::AllAwaited);
        if let Some(region) = &mut self.region {
            for task in tasks {
                if !region.tasks.contains(task) {
                    region.tasks.push(*task);
                }
            }
            if !waits {
                match uses {
                    Use::Named(_) | Use::Listed(_) => self.open(uses, None),
                    _ => region.forever = true,
                }
            }
            return;
        }
        let draft = Draft { tasks: tasks.to_vec(), ..Draft::default() };
        self.push(draft, uses);
    }

    /// Adds a step. If it is not awaited, it is merged with an unawaited one just before it.
    fn push(&mut self, mut draft: Draft, uses: &Use) {
        if self.drafts.len() >= LIMIT {
            self.lost = true;
            return;
        }
        if matches!(uses, Use::Awaited | Use::AllAwaited) && !draft.forever {
            self.drafts.push(draft);
            return;
        }
        draft.later = true;
        // Calls that are started in sequence without an `await` between them share a step.
        let joins = self.drafts.len() > self.part
            && self
                .drafts
                .last()
                .is_some_and(|last| last.later && last.until == 0 && last.repeats_from.is_empty());
        if !joins {
            self.drafts.push(Draft { later: true, ..Draft::default() });
        }
        let step = self.drafts.len() - 1;
        let Some(last) = self.drafts.last_mut() else { return };
        last.together |= draft.together || joins;
        last.forever |= draft.forever;
        for task in draft.tasks {
            if !last.tasks.contains(&task) {
                last.tasks.push(task);
            }
        }
        match uses {
            Use::Named(_) | Use::Listed(_) => {
                last.open += 1;
                self.open(uses, Some(step));
            }
            Use::Dropped => last.forever = true,
            // The step itself is awaited; something within it is not.
            Use::Awaited | Use::AllAwaited => {}
        }
    }

    fn open(&mut self, uses: &Use, step: Option<usize>) {
        self.open.push(Open { uses: uses.clone(), blocks: self.blocks.clone(), step });
    }

    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Records what the statement that just ended has awaited.
    pub(super) fn close(&mut self, awaited: &Awaited) {
        let here = self.blocks.last().copied();
        let now = self.drafts.len();
        let in_region = self.region.is_some();
        let drafts = &mut self.drafts;
        self.open.retain(|open| {
            let is_named = match &open.uses {
                Use::Named(name) => awaited.promises.contains(name),
                Use::Listed(name) => awaited.lists.contains(name),
                _ => false,
            };
            // The await must run whenever the call did: it must be in a block around the call.
            let is_around = here.is_some_and(|here| open.blocks.contains(&here));
            if !(is_named && is_around) || (open.step.is_none() && !in_region) {
                return true;
            }
            if let Some(draft) = open.step.and_then(|step| drafts.get_mut(step)) {
                draft.open -= 1;
                draft.until = draft.until.max(now);
            }
            false
        });
    }

    pub(super) fn enter_block(&mut self) {
        self.last_block += 1;
        self.blocks.push(self.last_block);
    }

    pub(super) fn leave_block(&mut self) {
        self.blocks.pop();
    }

    /// Starts a new step for the calls that follow.
    pub(super) fn part(&mut self) {
        self.part = self.drafts.len();
    }

    /// Returns the index of the next step.
    pub(super) fn mark(&mut self) -> usize {
        self.part();
        self.drafts.len()
    }

    /// Records that everything since a mark is repeated.
    pub(super) fn repeat_from(&mut self, first: usize) {
        let end = self.drafts.len();
        if first < end
            && let Some(last) = self.drafts.last_mut()
        {
            last.repeats_from.push(first);
        }
        if let Some(region) = &mut self.region {
            // An iteration may begin before the previous one has ended.
            region.many |= region.forever;
        }
        self.part();
    }

    /// Gives up the order of everything since a mark.
    pub(super) fn unorder_from(&mut self, first: usize) {
        if self.region.is_some() || self.any {
            return;
        }
        for draft in self.drafts.iter_mut().skip(first) {
            self.any_time.extend(draft.tasks.drain(..));
        }
    }

    pub(super) fn begin_region(&mut self, many: bool) -> bool {
        if self.any {
            return false;
        }
        match &mut self.region {
            Some(region) => {
                region.many |= many;
                false
            }
            None => {
                self.region = Some(Region { many, ..Region::default() });
                true
            }
        }
    }

    /// Ends a region; `opened` is what `begin_region` returned.
    pub(super) fn end_region(&mut self, opened: bool, uses: &Use) {
        if !opened {
            let waits = matches!(uses, Use::Awaited | Use::AllAwaited);
            if let Some(region) = &mut self.region
                && !waits
            {
                match uses {
                    Use::Named(_) | Use::Listed(_) => self.open(uses, None),
                    _ => region.forever = true,
                }
            }
            return;
        }
        let Some(mut region) = self.region.take() else { return };
        // Promises that the region has not awaited cannot be followed any further.
        let before = self.open.len();
        self.open.retain(|open| open.step.is_some());
        region.forever |= self.open.len() < before;
        if region.tasks.is_empty() {
            return;
        }
        let together = region.many || region.tasks.len() > 1;
        let draft =
            Draft { tasks: region.tasks, together, forever: region.forever, ..Draft::default() };
        self.push(draft, uses);
    }

    pub(super) fn begin_any_time(&mut self) -> bool {
        std::mem::replace(&mut self.any, true)
    }

    pub(super) fn end_any_time(&mut self, before: bool) {
        self.any = before;
    }

    /// Returns the steps in their public form; they contain all `count` tasks.
    pub(super) fn finish(mut self, count: usize, lost: bool) -> Vec<Step> {
        for open in std::mem::take(&mut self.open) {
            if let Some(draft) = open.step.and_then(|step| self.drafts.get_mut(step)) {
                draft.forever = true;
            }
        }
        if lost || self.lost {
            self.any_time.extend(0..count);
        }
        let seen: BTreeSet<usize> =
            self.drafts.iter().flat_map(|draft| draft.tasks.iter().copied()).collect();
        self.any_time.extend((0..count).filter(|task| !seen.contains(task)));
        for draft in &mut self.drafts {
            draft.tasks.retain(|task| !self.any_time.contains(task));
        }
        let name = |task: &usize| format!("t{}", task + 1);
        let mut steps = Vec::new();
        if !self.any_time.is_empty() {
            let tasks = self.any_time.iter().map(name).collect();
            steps.push(Step { tasks, any_time: true, ..Step::default() });
        }
        // Empty steps are omitted, so the others are renumbered.
        let mut numbers: Vec<u32> = Vec::with_capacity(self.drafts.len() + 1);
        let mut number = steps.len() as u32;
        for draft in &self.drafts {
            numbers.push(number + 1);
            number += u32::from(!draft.tasks.is_empty());
        }
        numbers.push(number + 1);
        let mut pending: Vec<usize> = Vec::new();
        for (place, draft) in self.drafts.iter().enumerate() {
            pending.extend(&draft.repeats_from);
            let Some(own) = numbers.get(place).copied() else { continue };
            if draft.tasks.is_empty() {
                // A loop that ends with an omitted step ends with the one before it.
                let first: Vec<u32> =
                    pending.drain(..).filter_map(|first| numbers.get(first).copied()).collect();
                if let Some(last) = steps.last_mut() {
                    let within = first.into_iter().filter(|first| *first < own);
                    last.repeats_from.extend(within);
                }
                continue;
            }
            let mut repeats_from: Vec<u32> =
                pending.drain(..).filter_map(|first| numbers.get(first).copied()).collect();
            repeats_from.dedup();
            // `until` is the number of steps that had begun; the last of them is meant.
            let until = numbers.get(draft.until).map(|next| next - 1);
            let unawaited = match (draft.later || draft.forever, draft.forever) {
                (true, true) => Some(Unawaited { until: None }),
                (true, false) => {
                    until.filter(|until| *until > own).map(|until| Unawaited { until: Some(until) })
                }
                (false, _) => None,
            };
            steps.push(Step {
                tasks: draft.tasks.iter().map(name).collect(),
                together: draft.together,
                unawaited,
                any_time: false,
                repeats_from,
            });
        }
        steps
    }
}
