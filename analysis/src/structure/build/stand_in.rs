//! What the stand-ins of functions stand for.

use std::collections::HashSet;

use super::Builder;
use super::value::{Deps, SiteId};

/// What each stand-in stands for, once the walk is done.
pub(super) struct StandIns(Vec<Deps>);

impl Builder<'_> {
    pub(super) fn stand_ins(&self) -> StandIns {
        let direct = self.feeds.slots.iter().map(|(func, slot)| self.all_given(*func, *slot));
        StandIns(direct.collect())
    }
}

impl StandIns {
    /// Returns the tasks that are meant.
    pub(super) fn resolve(&self, deps: &Deps) -> Deps {
        if !deps.has_stand_ins() {
            return deps.clone();
        }
        let mut seen = HashSet::new();
        let mut open: Vec<SiteId> = deps.iter().collect();
        let mut sites = Vec::new();
        while let Some(site) = open.pop() {
            if !seen.insert(site) {
                continue;
            }
            match site.checked_sub(Deps::STAND_INS) {
                None => sites.push(site),
                Some(index) => {
                    open.extend(self.0.get(index as usize).iter().flat_map(|d| d.iter()))
                }
            }
        }
        sites.sort_unstable();
        Deps::of(sites)
    }
}
