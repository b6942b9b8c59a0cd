//! What the stand-ins of functions stand for.

use foldhash::HashSet;

use super::Builder;
use super::value::{Deps, SiteId};

/// What each stand-in stands for, once the walk is done.
pub(super) struct StandIns(Vec<Deps>);

impl Builder<'_> {
    pub(super) fn stand_ins(&self) -> StandIns {
        let direct = self.feeds.slots.iter().map(|(func, slot)| self.all_given(*func, *slot));
        StandIns(direct.collect())
    }

    /// Returns whether a task is meant, as far as is known by now.
    pub(super) fn means_tasks(&self, deps: &Deps) -> bool {
        let mut seen = HashSet::default();
        let mut open: Vec<SiteId> = deps.iter().collect();
        while let Some(site) = open.pop() {
            let Some(index) = site.checked_sub(Deps::STAND_INS) else { return true };
            if let (true, Some((func, slot))) =
                (seen.insert(site), self.feeds.slots.get(index as usize))
            {
                open.extend(self.all_given(*func, *slot).iter());
            }
        }
        false
    }
}

impl StandIns {
    /// Returns the tasks that are meant, with the input if it is.
    pub(super) fn resolve(&self, deps: &Deps) -> Deps {
        if !deps.has_stand_ins() {
            return deps.clone();
        }
        let mut seen = HashSet::default();
        let mut open: Vec<SiteId> = deps.iter().collect();
        let mut sites = Vec::new();
        let mut found = deps.without_sites();
        while let Some(site) = open.pop() {
            if !seen.insert(site) {
                continue;
            }
            match site.checked_sub(Deps::STAND_INS) {
                None => sites.push(site),
                Some(index) => {
                    let Some(given) = self.0.get(index as usize) else { continue };
                    found.add(&given.without_sites());
                    open.extend(given.iter());
                }
            }
        }
        sites.sort_unstable();
        found.and(&Deps::of(sites))
    }
}
