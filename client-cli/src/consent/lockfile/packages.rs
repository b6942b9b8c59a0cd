//! The packages from which servers start, in exact versions with their hashes.
//!
//! As with tools, the user's own record decides: it has what this user installed first, or allowed. A lock that has other
//! packages is asked about, and what differs is named. Nothing is installed before that.

use execution::packages::{LockedPackages, Pins};
use protocol::{ErrorBody, ErrorCode, Integrity};

use super::Lockfile;
use super::file::{Content, FILE, invalid, read};
use super::list::is_called;
use crate::files::records::RecordFile;

/// The folder of the records.
const FOLDER: &str = "pinned-packages";

/// The maximum size of a record in bytes.
const LIMIT: usize = 1024 * 1024;

/// Packages of the lock that this user has not allowed.
pub(crate) struct PackagesQuestion {
    /// The server.
    server: String,
    /// What the lock has.
    pub(super) now: LockedPackages,
    /// What the user allowed before.
    before: Option<LockedPackages>,
}

impl PackagesQuestion {
    /// Describes them by themselves.
    pub(crate) fn line(&self) -> String {
        format!("`{}`{}", protocol::escape_text(&self.server), self.shown(false))
    }

    /// Describes them, as a part of a sentence about the server, which `goes_on` if it says that something changed.
    pub(super) fn shown(&self, goes_on: bool) -> String {
        match &self.before {
            Some(before) => {
                let and = if goes_on { " and" } else { ", whose" };
                let changes = self.now.changes_since(before).unwrap_or_default();
                format!("{and} packages CHANGED since you allowed them ({changes})")
            }
            None => {
                let version = self.now.version().unwrap_or_default();
                let more = match self.now.count() {
                    1 => "the package".to_owned(),
                    count => format!("the {count} packages"),
                };
                format!(", with {more} of `{FILE}` (version {version})")
            }
        }
    }
}

/// Returns the hash of what the user is shown about a start.
pub(super) fn shown_hash(mut start: Vec<u8>, packages: Option<&PackagesQuestion>) -> Integrity {
    if let Some(packages) = packages {
        start.extend_from_slice(packages.now.hash().to_string().as_bytes());
    }
    Integrity::of(&start)
}

impl Lockfile {
    /// Returns the locked packages of a server.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn packages_of(&self, server: &str) -> Result<Option<LockedPackages>, ErrorBody> {
        Ok(read(&self.workspace)?.packages.remove(server))
    }

    /// Returns what was requested of the servers that [`remove`](Self::remove) removes by this name.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(crate) fn requests_of(&self, name: &str) -> Result<Vec<String>, ErrorBody> {
        let packages = read(&self.workspace)?.packages;
        let meant = packages.iter().filter(|(server, _)| is_called(server, name));
        Ok(meant.map(|(_, packages)| packages.request().to_owned()).collect())
    }

    /// Returns the packages of the lock for this request, if the user has not allowed exactly them.
    pub(super) fn packages_question(
        &self,
        content: &Content,
        server: &str,
        request: Option<&str>,
    ) -> Result<Option<PackagesQuestion>, ErrorBody> {
        let Some(request) = request else { return Ok(None) };
        let locked = content.packages.get(server).filter(|locked| locked.is_for(request));
        let Some(now) = locked.cloned() else { return Ok(None) };
        let before = self.record_of_packages(server)?.filter(|record| record.is_for(request));
        let server = server.to_owned();
        Ok((before.as_ref() != Some(&now)).then_some(PackagesQuestion { server, now, before }))
    }

    /// Returns the packages of the lock for servers of `.pml.json` that the user has not allowed.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock or the user's record is invalid.
    pub(crate) fn packages_to_allow(&self) -> Result<Vec<PackagesQuestion>, ErrorBody> {
        let content = read(&self.workspace)?;
        // The question before the first start of a server of the registry shows its packages, and a full name has a dot.
        let configured = content.packages.iter().filter(|(server, _)| !server.contains('.'));
        let questions = configured.filter_map(|(server, packages)| {
            self.packages_question(&content, server, Some(packages.request())).transpose()
        });
        questions.collect()
    }

    /// Records that servers may start with the packages that the user was shown.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if that cannot be stored.
    pub(crate) fn allow_packages(&self, shown: &[PackagesQuestion]) -> Result<(), ErrorBody> {
        // If the lock has others by now, they are asked about before the start.
        let save = |one: &PackagesQuestion| self.save_packages(&one.server, &one.now);
        self.store.locked(|_| shown.iter().try_for_each(save)).map_err(invalid)?
    }

    /// Stores what the user allowed of a server.
    pub(super) fn save_packages(
        &self,
        server: &str,
        packages: &LockedPackages,
    ) -> Result<(), ErrorBody> {
        let saved = serde_json::to_vec(packages).map_err(std::io::Error::other);
        let saved = saved.and_then(|text| self.packages_file(server).write(&text));
        saved.map_err(|error| {
            let message = format!("cannot store the packages of `{server}`: {error}");
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    /// Removes the user's record of the packages of a server.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if it cannot be deleted.
    pub(super) fn forget_packages(&self, server: &str) -> Result<(), ErrorBody> {
        self.packages_file(server).delete().map_err(|error| {
            let message =
                format!("cannot delete the record of the packages of `{server}`: {error}");
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    fn record_of_packages(&self, server: &str) -> Result<Option<LockedPackages>, ErrorBody> {
        let Some(text) = self.packages_file(server).read() else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let message = format!(
                "the record of the packages of `{server}` is invalid: {error}; `pml remove {server}` deletes it, and everything about the server is asked about again"
            );
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    fn packages_file(&self, server: &str) -> RecordFile {
        self.record_of(FOLDER, server, LIMIT)
    }

    /// Returns that the packages of a server are not what the user allowed; the next call asks about them.
    fn other_packages(&self, server: &str, question: &PackagesQuestion) -> ErrorBody {
        // Else they would count as they were when they were compared last.
        self.approved().remove(server);
        self.started().remove(server);
        let message = format!(
            "the MCP server `{server}`{} was not started: you have not allowed that",
            question.shown(false)
        );
        let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
        error.hint =
            "Run a program that calls one of its tools: `pml` asks whether it may start with them."
                .to_owned();
        error
    }

    /// Stores packages in the lock, then in the user's record: after a crash in between, the user is asked about them.
    fn lock_packages(
        &self,
        mut content: Content,
        server: &str,
        packages: &LockedPackages,
    ) -> Result<(), ErrorBody> {
        content.packages.insert(server.to_owned(), packages.clone());
        self.write(&content, || packages_of(server, packages.request()))?;
        self.save_packages(server, packages)
    }
}

fn packages_of(server: &str, request: &str) -> String {
    let request = protocol::escape_text(request);
    format!("the packages of the MCP server `{server}` (`{request}`) for this platform")
}

impl Pins for Lockfile {
    fn locked(&self, server: &str, request: &str) -> Result<Option<LockedPackages>, ErrorBody> {
        let locked = self.store.locked(|_| {
            let content = read(&self.workspace)?;
            if let Some(question) = self.packages_question(&content, server, Some(request))? {
                return Err(self.other_packages(server, &question));
            }
            let locked = content.packages.get(server).filter(|locked| locked.is_for(request));
            if let Some(locked) = locked.cloned() {
                return Ok(Some(locked));
            }
            self.refuse_if_frozen(false, || packages_of(server, request))?;
            // The lock was deleted, or is that of another request.
            let record = self.record_of_packages(server)?.filter(|record| record.is_for(request));
            if let Some(record) = &record {
                self.lock_packages(content, server, record)?;
            }
            Ok(record)
        });
        locked.map_err(invalid)?
    }

    fn keep(&self, server: &str, packages: LockedPackages) -> Result<LockedPackages, ErrorBody> {
        let kept = self.store.locked(|_| {
            self.refuse_if_frozen(false, || packages_of(server, packages.request()))?;
            let content = read(&self.workspace)?;
            let question = self.packages_question(&content, server, Some(packages.request()))?;
            if let Some(question) = question {
                return Err(self.other_packages(server, &question));
            }
            // What this user has already, in another process. Another platform adds to it.
            let known = content.packages.get(server);
            let known = known.filter(|known| known.is_for(packages.request()));
            if let Some(known) = known.filter(|known| !packages.extends(known)) {
                return Ok(known.clone());
            }
            self.lock_packages(content, server, &packages)?;
            Ok(packages)
        });
        kept.map_err(invalid)?
    }
}
