//! Which tools `.pml.json` offers to agents, and when that may have changed.

use std::path::PathBuf;

use protocol::ErrorBody;

use super::{App, config_error};
use crate::config::{Config, ExposeTools};

impl App {
    /// Reads the rules of `.pml.json` again, and which tools it offers to agents.
    ///
    /// # Errors
    /// As [`read_permissions`](Self::read_permissions).
    pub(crate) fn read_exposed(&self) -> Result<ExposeTools, ErrorBody> {
        // Under the lock of the writers: a file that `pml` has written, but not trusted yet, exposes nothing.
        let config = self.store.locked(|store| Config::load(&self.workspace, store));
        let config = config.map_err(config_error)?.map_err(config_error)?;
        Ok(self.set_permissions(config)?.expose_tools)
    }

    /// Returns the file that says which `.pml.json` the user trusts.
    pub(crate) fn trust_record(&self) -> PathBuf {
        self.store.record()
    }

    /// Returns whether `.pml.json` offered tools to agents when the project was opened.
    pub(crate) fn exposes(&self) -> bool {
        self.exposes
    }
}
