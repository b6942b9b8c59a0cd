//! A workspace as one call may access it: within what the user allowed, and under the policy of its run.

use std::path::Path;

use super::Workspace;
use super::changes::{Change, Watch};
use super::path_error::PathError;
use super::touched::Granted;
use crate::policy::{Judged, Operation, PolicyOfRun};

impl Workspace {
    /// Returns the workspace as a call with these grants may access it.
    pub fn reach<'a>(&'a self, granted: &'a Granted) -> Reach<'a> {
        Reach { workspace: self, granted, watch: None }
    }
}

/// A workspace as one call may access it.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    workspace: &'a Workspace,
    granted: &'a Granted,
    /// Is told about each change before it is made.
    watch: Option<&'a Watch<'a>>,
}

impl std::ops::Deref for Reach<'_> {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        self.workspace
    }
}

impl<'a> Reach<'a> {
    /// Sets who is told about each change before it is made.
    pub(crate) fn watched_by(self, watch: &'a Watch<'a>) -> Self {
        Self { watch: Some(watch), ..self }
    }
}

impl Reach<'_> {
    /// Announces a change. It must not be made if this fails.
    ///
    /// # Errors
    /// Returns why, as a sentence for the user.
    pub(crate) fn announce(&self, change: Change<'_>) -> Result<(), String> {
        self.watch.map_or(Ok(()), |watch| watch(change))
    }

    /// Refuses an operation on a protected place that was not granted, and on a place that the path led to only after
    /// the user was asked.
    ///
    /// # Errors
    /// Returns [`PathError::Protected`] or [`PathError::Diverted`].
    pub(crate) fn allow(
        &self,
        given: &str,
        real: &Path,
        operation: Operation,
    ) -> Result<(), PathError> {
        // Determined again: since the user was asked, a link may have been pointed elsewhere.
        self.granted.leads_to(given, real)?;
        self.allow_place(given, real, operation)
    }

    /// The same for a folder on the way to the given path, which is created first.
    ///
    /// # Errors
    /// As [`Reach::allow`].
    pub(crate) fn allow_parent(&self, given: &str, real: &Path) -> Result<(), PathError> {
        self.granted.follow(given, real, |shown, real| shown.starts_with(real))?;
        self.allow_place(given, real, Operation::Change)
    }

    /// Refuses a folder that a walk has reached from the given path, if its names may not be shown.
    ///
    /// # Errors
    /// Returns [`PathError::Protected`] or [`PathError::Denied`].
    pub(crate) fn allow_inner(&self, given: &str, real: &Path) -> Result<(), PathError> {
        self.allow_place(given, real, Operation::List)
    }

    /// Returns whether the policy lets a listing show a name.
    pub(crate) fn shows(&self, real: &Path) -> bool {
        !matches!(self.policy().policy().place(real, Operation::List), Judged::Denied(_))
    }

    /// Returns the policy of the run.
    pub(crate) fn policy(&self) -> &PolicyOfRun {
        self.granted.policy()
    }

    /// Checks a place, without following the given path.
    ///
    /// # Errors
    /// Returns [`PathError::Protected`] or [`PathError::Denied`].
    pub(crate) fn allow_place(
        &self,
        given: &str,
        real: &Path,
        operation: Operation,
    ) -> Result<(), PathError> {
        match self.workspace.guarded(self.policy().policy(), given, real, operation)? {
            Some(place) if !self.granted.covers(real) => Err(place.refused(given)),
            _ => Ok(()),
        }
    }
}
