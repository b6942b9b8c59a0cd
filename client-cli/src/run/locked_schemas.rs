//! The schemas that the tools of a locked program have to have.
//!
//! What a server of `.pml.json` says of its tools is known for certain only while it runs, and a run must not start it
//! before a call of it is permitted. So it is asked just before the first call of each tool.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use protocol::{ErrorBody, ErrorCode, Integrity, ToolId};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::consent::program_lock::{ProgramLock, schema_hash};

/// The schemas of the tools of one run; none if its program is not locked.
#[derive(Debug, Default)]
pub(super) struct LockedSchemas {
    locked: HashMap<ToolId, Integrity>,
    /// The tools that have theirs.
    checked: Mutex<HashSet<ToolId>>,
}

impl LockedSchemas {
    /// Returns the schemas that a lock has.
    pub(super) fn new(lock: &ProgramLock) -> Self {
        Self { locked: lock.configured_schemas(), checked: Mutex::default() }
    }

    /// Checks the description and the schemas of a tool of a server of `.pml.json`, before its first call.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if they are not what was locked, and otherwise why the server did not list its tools.
    /// The call must not be made then.
    pub(super) async fn check(
        &self,
        app: &App,
        id: &ToolId,
        cancel: &CancellationToken,
    ) -> Result<(), ErrorBody> {
        let Some(locked) = self.locked.get(id).filter(|_| !self.is_checked(id)) else {
            return Ok(());
        };
        let tools = app.current_tools(id.namespace(), cancel).await?;
        let found = tools.iter().find(|tool| tool.name == id.action()).map(schema_hash);
        if found == Some(*locked) {
            self.checked.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
            return Ok(());
        }
        let found =
            found.map_or_else(|| "its server does not list it".to_owned(), |hash| hash.to_string());
        let message = format!(
            "the program's lock has another description or schema of `{id}`, so it was not called: {locked} → {found}"
        );
        let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
        error.hint = "Review what the server says of its tools; if it is intended, run `pml lock` for the program."
            .to_owned();
        Err(error)
    }

    fn is_checked(&self, id: &ToolId) -> bool {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}
