//! What a call touches, and what of it the user has allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use url::Url;

use super::path_error::{PathError, shown};
use super::protected::Protected;
use crate::policy::{Command, Judged, Policy, PolicyOfRun};

/// A path of a call, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    /// The path as the call has it.
    pub given: String,
    /// Its place in the workspace with all links resolved.
    pub real: PathBuf,
    /// Whether a link leads there.
    pub by_link: bool,
}

/// The places that a call touches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// The protected places.
    pub protected: Vec<Protected>,
    /// The paths in its arguments.
    pub paths: Vec<Led>,
    /// The command that it runs.
    pub(crate) command: Option<Command>,
    /// The web address that it opens.
    pub(crate) url: Option<Url>,
}

impl Touched {
    /// Returns whether a rule could allow the call.
    pub(crate) fn can_be_allowed(&self, policy: &PolicyOfRun) -> bool {
        self.protected.is_empty() && !matches!(self.judged(policy.policy()), Judged::Beyond(_))
    }

    /// Returns what a policy says about the command or the web address. Places are judged when they are found.
    pub(crate) fn judged(&self, policy: &Policy) -> Judged {
        match self {
            Self { command: Some(command), .. } => policy.command(command),
            Self { url: Some(url), .. } => policy.url(url),
            _ => Judged::Within,
        }
    }
}

/// What one call may touch: what the user allowed, under the policy of its run.
#[derive(Debug, Clone, Default)]
pub struct Granted {
    /// The protected places.
    protected: BTreeSet<PathBuf>,
    /// The real paths that the paths of the call had when the user was asked; `None` if the user was not asked.
    paths: Option<BTreeMap<String, PathBuf>>,
    /// The policy of the run; by default the built-in one.
    policy: Arc<PolicyOfRun>,
}

impl Granted {
    /// Creates a grant for the places that the user was shown.
    pub fn of(shown: &Touched) -> Self {
        let paths = shown.paths.iter().map(|led| (led.given.clone(), led.real.clone()));
        Self {
            protected: shown.protected.iter().map(|place| place.real.clone()).collect(),
            paths: Some(paths.collect()),
            policy: Arc::default(),
        }
    }

    /// Creates a grant for a call that the user was not asked about.
    pub(crate) fn by_rule(policy: Arc<PolicyOfRun>) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Sets the policy of the run.
    #[must_use]
    pub(crate) fn under(self, policy: Arc<PolicyOfRun>) -> Self {
        Self { policy, ..self }
    }

    /// Returns the policy of the run.
    pub(crate) fn policy(&self) -> &PolicyOfRun {
        &self.policy
    }

    /// Returns whether the user was asked about the call.
    pub(crate) fn was_asked(&self) -> bool {
        self.paths.is_some()
    }

    /// Returns whether the grant covers a place: it was shown, or is a parent folder of one that was.
    pub(super) fn covers(&self, real: &Path) -> bool {
        self.protected.iter().any(|shown| shown.starts_with(real))
    }

    /// Refuses a path that leads elsewhere than when the user was asked. `is_same` compares where it led with where it
    /// leads now.
    pub(super) fn follow(
        &self,
        given: &str,
        real: &Path,
        is_same: impl FnOnce(&Path, &Path) -> bool,
    ) -> Result<(), PathError> {
        let Some(paths) = &self.paths else { return Ok(()) };
        match paths.get(given) {
            Some(shown) if is_same(shown, real) => Ok(()),
            _ => Err(PathError::Diverted { path: shown(given) }),
        }
    }

    /// Refuses a path that leads elsewhere than when the user was asked.
    ///
    /// # Errors
    /// Returns [`PathError::Diverted`].
    pub(crate) fn leads_to(&self, given: &str, real: &Path) -> Result<(), PathError> {
        self.follow(given, real, |shown, real| shown == real)
    }
}
