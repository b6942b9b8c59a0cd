//! Sets of tasks.

use std::rc::Rc;

use super::value::SiteId;

/// A set of tasks.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Deps(Option<Rc<Vec<SiteId>>>);

impl Deps {
    pub(super) fn one(site: SiteId) -> Self {
        Self(Some(Rc::new(vec![site])))
    }

    /// From here on, a site is the stand-in of what a function is given.
    pub(super) const STAND_INS: SiteId = 1 << 31;

    /// Returns a set of sites that are sorted.
    pub(super) fn of(sorted: Vec<SiteId>) -> Self {
        Self((!sorted.is_empty()).then(|| Rc::new(sorted)))
    }

    pub(super) fn has_stand_ins(&self) -> bool {
        self.0.as_ref().and_then(|sites| sites.last()).is_some_and(|last| *last >= Self::STAND_INS)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.0.iter().flat_map(|sites| sites.iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn add(&mut self, other: &Self) {
        match (&self.0, &other.0) {
            (_, None) => {}
            (None, Some(_)) => self.0 = other.0.clone(),
            (Some(own), Some(new)) => {
                if !Rc::ptr_eq(own, new) {
                    self.0 = Some(union(own, new));
                }
            }
        }
    }

    pub(super) fn and(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }
}

/// Joins two sorted lists; an unchanged one is shared.
pub(super) fn union<T: Ord + Clone>(left: &Rc<Vec<T>>, right: &Rc<Vec<T>>) -> Rc<Vec<T>> {
    if right.iter().all(|item| left.binary_search(item).is_ok()) {
        return left.clone();
    }
    let mut out: Vec<T> = left.iter().chain(right.iter()).cloned().collect();
    out.sort();
    out.dedup();
    Rc::new(out)
}
