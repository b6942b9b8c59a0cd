//! Newer packages in the place of those that are locked.

use std::collections::BTreeSet;

use execution::packages::LockedPackages;
use protocol::{ErrorBody, ErrorCode};

use super::Lockfile;
use super::file::{Approved, FILE, invalid, read};
use super::list::is_called;

/// What the lock gets for a server.
#[derive(Debug, Clone)]
pub(crate) struct PackagesUpdate {
    /// The server's name in the lock.
    pub(crate) server: String,
    /// What the lock had when the user was shown the difference.
    pub(crate) before: Option<LockedPackages>,
    /// What it gets.
    pub(crate) now: LockedPackages,
}

impl Lockfile {
    /// Returns the names of the servers whose packages the lock has, and that are meant by a name if there is one.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn servers_with_packages(
        &self,
        name: Option<&str>,
    ) -> Result<BTreeSet<String>, ErrorBody> {
        let known = read(&self.workspace)?.packages.into_keys();
        Ok(known.filter(|known| name.is_none_or(|name| is_called(known, name))).collect())
    }

    /// Stores the packages of servers that the user was shown, all at once, and that the user allowed them; `by` is how.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock has changed since the user was shown the difference, or cannot be written. Then
    /// nothing of it was changed.
    pub(crate) fn update_packages(
        &self,
        updates: &[PackagesUpdate],
        by: &str,
    ) -> Result<(), ErrorBody> {
        let done = self.store.locked(|_| {
            let mut content = read(&self.workspace)?;
            for PackagesUpdate { server, before, now } in updates {
                if content.packages.get(server) != before.as_ref() {
                    let message = format!("the packages of `{server}` in `{FILE}` changed in the meantime, so nothing was written");
                    let mut error = ErrorBody::new(ErrorCode::ConfigInvalid, message);
                    error.hint = "Run the command again.".to_owned();
                    return Err(error);
                }
                content.packages.insert(server.clone(), now.clone());
                content.approvals.insert(server.clone(), Approved::now(by));
            }
            self.write(&content, || "new packages".to_owned())?;
            // After the lock: after a crash in between, the user is asked about what is new.
            updates.iter().try_for_each(|update| self.save_packages(&update.server, &update.now))
        });
        done.map_err(invalid)?
    }
}
