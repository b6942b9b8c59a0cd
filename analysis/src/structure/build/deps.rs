//! Sets of tasks, and of parts of the input of the program.

use std::rc::Rc;

use super::few::{Few, one, union};
use super::input::Input;
use super::value::SiteId;

/// What flows into a value: results of tasks, and parts of the input of the program.
///
/// The input is no task: it is there before any of them, and nothing waits for it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Deps {
    sites: Option<Few<SiteId>>,
    input: Input,
}

impl Deps {
    pub(super) fn one(site: SiteId) -> Self {
        Self { sites: Some(one(site)), ..Self::default() }
    }

    pub(super) fn of_input(input: Input) -> Self {
        Self { sites: None, input }
    }

    /// From here on, a site is the stand-in of what a function is given.
    pub(super) const STAND_INS: SiteId = 1 << 31;

    /// Returns a set of sites that are sorted.
    pub(super) fn of(sorted: Vec<SiteId>) -> Self {
        Self { sites: (!sorted.is_empty()).then(|| Rc::new(sorted.into())), ..Self::default() }
    }

    /// Returns the part of it that is no task.
    pub(super) fn without_sites(&self) -> Self {
        Self::of_input(self.input)
    }

    /// Returns the tasks alone.
    pub(super) fn without_input(mut self) -> Self {
        self.input = Input::default();
        self
    }

    pub(super) fn input(&self) -> Input {
        self.input
    }

    pub(super) fn with_input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    pub(super) fn has_stand_ins(&self) -> bool {
        self.sites
            .as_ref()
            .and_then(|sites| sites.last())
            .is_some_and(|last| *last >= Self::STAND_INS)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.sites.iter().flat_map(|sites| sites.iter().copied())
    }

    /// Returns whether nothing flows in, neither a task nor the input.
    pub(super) fn is_nothing(&self) -> bool {
        self.has_no_sites() && self.input.is_nothing()
    }

    /// Returns whether there is neither a task nor a stand-in in it.
    pub(super) fn has_no_sites(&self) -> bool {
        self.sites.is_none()
    }

    /// Returns what is in it and not in another.
    pub(super) fn beyond(&self, other: &Self) -> Self {
        let known = |site: &SiteId| {
            other.sites.as_ref().is_some_and(|sites| sites.binary_search(site).is_ok())
        };
        let sites = self.iter().filter(|site| !known(site)).collect();
        Self::of(sites).with_input(self.input.beyond(other.input))
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.input.add(other.input);
        match (&self.sites, &other.sites) {
            (_, None) => {}
            (None, Some(_)) => self.sites = other.sites.clone(),
            (Some(own), Some(new)) => {
                if !Rc::ptr_eq(own, new) {
                    self.sites = Some(union(own, new));
                }
            }
        }
    }

    pub(super) fn and(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }
}
