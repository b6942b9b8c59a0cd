//! A lock that is frozen: it has all that is used, and nothing is added to it.

use std::sync::atomic::Ordering;

use protocol::{ErrorBody, ErrorCode};

use super::Lockfile;
use super::file::{Content, FILE, read, write};

impl Lockfile {
    /// Has everything refused that the lock does not have.
    pub(crate) fn freeze(&self) {
        self.is_frozen.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::SeqCst)
    }

    /// Replaces the file atomically; `what` names what is new in it. A frozen one is left as it is.
    ///
    /// # Errors
    /// Returns `RUN_STORE_UNAVAILABLE` if it cannot be written, and `CONFIG_INVALID` if it is frozen and does not have that.
    pub(super) fn write(
        &self,
        content: &Content,
        what: impl FnOnce() -> String,
    ) -> Result<(), ErrorBody> {
        if !self.is_frozen() {
            return write(&self.workspace, content);
        }
        let mut present = read(&self.workspace)?;
        // It has what this user allows now; only who allowed it, which decides nothing, is new.
        present.approvals.clone_from(&content.approvals);
        if present == *content { Ok(()) } else { Err(missing(&what())) }
    }

    /// Refuses what would have to be added to a frozen lock. So nobody is asked about what could not be stored.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` unless the lock `has` it, or is not frozen.
    pub(super) fn refuse_if_frozen(
        &self,
        has: bool,
        what: impl FnOnce() -> String,
    ) -> Result<(), ErrorBody> {
        if has || !self.is_frozen() { Ok(()) } else { Err(missing(&what())) }
    }
}

/// Returns that a frozen lock does not have something.
fn missing(what: &str) -> ErrorBody {
    ErrorBody::new(
        ErrorCode::ConfigInvalid,
        format!(
            "`{FILE}` does not have {what}, and `--frozen` was given; run it once without it, and commit `{FILE}`"
        ),
    )
}
