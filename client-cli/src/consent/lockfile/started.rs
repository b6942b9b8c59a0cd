//! The files that run when a server of `.pml.json` starts, pinned as they were at its first start.
//!
//! Trusting `.pml.json` approves a command, and says nothing about what the files that it names become. As with tools,
//! the user's own record decides, and the lock, which has the files of the workspace, can only make it stricter.

use std::path::Path;
use std::sync::PoisonError;

use protocol::{ErrorBody, ErrorCode, Integrity};

use super::file::{Approved, FILE, LockedFiles, invalid, read};
use super::packages::shown_hash;
use super::shown::{command_line, differences};
use super::tools::ToolsOf;
use super::{Lockfile, Start};
use crate::files::records::RecordFile;
use crate::local_mcp::{Files, ServerSpec};

/// The folder of the records.
const FOLDER: &str = "pinned-files";

/// The maximum size of a record in bytes.
const LIMIT: usize = 1024 * 1024;

impl Lockfile {
    /// Returns the question to ask before a call of a server of `.pml.json` with these files; `None` if they are as pinned,
    /// or if it never started.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock or the user's record is invalid.
    pub(crate) fn files_question(
        &self,
        of: &ToolsOf,
        files: &Files,
        request: Option<&str>,
        spec: impl FnOnce() -> ServerSpec,
    ) -> Result<Option<Start>, ErrorBody> {
        let now = LockedFiles { start: of.start, hashes: files.clone() };
        // Every call of a server gets here.
        if self.started().get(&of.server) == Some(&now) {
            return Ok(None);
        }
        let changed = self.changed_files(of, &now)?;
        let content = read(&self.workspace)?;
        let packages = self.packages_question(&content, &of.server, request)?;
        if changed.is_none() && packages.is_none() {
            return Ok(None);
        }
        let is_locked = content.files.get(&of.server) == now.in_workspace().as_ref();
        self.refuse_if_frozen(is_locked, || as_they_are(&of.server))?;
        let is_changed = changed.is_some();
        let changed = changed.map_or_else(String::new, |reason| {
            format!(", whose program CHANGED since you allowed it ({reason})")
        });
        let with = packages.as_ref().map(|packages| packages.shown(is_changed)).unwrap_or_default();
        let ServerSpec { command, args, .. } = spec();
        let command = command_line(&command, &args);
        Ok(Some(Start {
            what: format!("`{}` of `.pml.json`{changed}{with}: {command}", of.server),
            grants: Vec::new(),
            hash: Some(shown_hash(bytes(&now)?, packages.as_ref())),
        }))
    }

    /// Pins the files of a server as they are now, after the user has approved them; `shown` is the hash of what the user
    /// was shown.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if the files are others now, and `CONFIG_INVALID` if they cannot be pinned. In both
    /// cases the server must not start.
    pub(crate) fn approve_files(
        &self,
        of: &ToolsOf,
        files: &Files,
        request: Option<&str>,
        shown: Option<Integrity>,
        by: &str,
    ) -> Result<(), ErrorBody> {
        let now = LockedFiles { start: of.start, hashes: files.clone() };
        let packages = self.packages_question(&read(&self.workspace)?, &of.server, request)?;
        if shown != Some(shown_hash(bytes(&now)?, packages.as_ref())) {
            return Err(changed(&of.server, "it changed while you were asked"));
        }
        let saved = self.store.locked(|_| {
            self.save_files(of, &now, Some(by))?;
            packages.map_or(Ok(()), |packages| self.save_packages(&of.server, &packages.now))
        });
        saved.map_err(invalid)??;
        self.started().insert(of.server.clone(), now);
        Ok(())
    }

    /// Checks the files of a server immediately before it starts, and pins them at its first start.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if they are not as the user allowed them, and `CONFIG_INVALID` if they cannot be
    /// pinned. In both cases the server must not start.
    pub(crate) fn check_files(&self, of: &ToolsOf, files: &Files) -> Result<(), ErrorBody> {
        let now = LockedFiles { start: of.start, hashes: files.clone() };
        if self.started().get(&of.server) == Some(&now) {
            return Ok(());
        }
        let checked = self.store.locked(|_| {
            if let Some(reason) = self.changed_files(of, &now)? {
                return Err(changed(&of.server, &reason));
            }
            self.save_files(of, &now, None)
        });
        checked.map_err(invalid)??;
        self.started().insert(of.server.clone(), now);
        Ok(())
    }

    /// Removes the user's record of the files of a server.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if it cannot be deleted.
    pub(super) fn forget_files(&self, server: &str) -> Result<(), ErrorBody> {
        self.started().remove(server);
        self.file_of(server).delete().map_err(|error| {
            let message = format!("cannot delete the record of the files of `{server}`: {error}");
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    /// Returns what differs between a start and what is pinned; `None` if nothing does, or if nothing is pinned for this
    /// start.
    fn changed_files(&self, of: &ToolsOf, now: &LockedFiles) -> Result<Option<String>, ErrorBody> {
        // The user has trusted each entry, so one that starts in another way is pinned anew.
        let is_of_start = |pinned: &LockedFiles| pinned.start == of.start;
        if let Some(record) = self.record_of_files(&of.server)?.filter(is_of_start)
            && let Some(reason) = differences(&record.hashes, &now.hashes)
        {
            return Ok(Some(reason));
        }
        let content = read(&self.workspace)?;
        let Some(locked) = content.files.get(&of.server).filter(|locked| is_of_start(locked))
        else {
            return Ok(None);
        };
        let here = in_workspace(&now.hashes);
        Ok(differences(&locked.hashes, &here)
            .map(|reason| format!("`{FILE}` has other hashes: {reason}")))
    }

    /// Stores the files of a server in the lock, with the answer `by` which the user allowed them, then in the user's
    /// record.
    fn save_files(
        &self,
        of: &ToolsOf,
        now: &LockedFiles,
        by: Option<&str>,
    ) -> Result<(), ErrorBody> {
        let mut content = read(&self.workspace)?;
        let locked = now.in_workspace();
        if content.files.get(&of.server) != locked.as_ref() {
            content.files.remove(&of.server);
            content.files.extend(locked.map(|locked| (of.server.clone(), locked)));
            content.approvals.extend(by.map(|by| (of.server.clone(), Approved::now(by))));
            // First: after a crash in between, the record has the earlier files, and the user is asked again.
            self.write(&content, || as_they_are(&of.server))?;
        }
        if self.record_of_files(&of.server)?.as_ref() == Some(now) {
            return Ok(());
        }
        let saved = serde_json::to_vec(now).map_err(std::io::Error::other);
        let saved = saved.and_then(|text| self.file_of(&of.server).write(&text));
        saved.map_err(|error| {
            let message = format!("cannot store the files of `{}`: {error}", of.server);
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    /// Returns the user's record of the files of a server.
    fn record_of_files(&self, server: &str) -> Result<Option<LockedFiles>, ErrorBody> {
        let Some(text) = self.file_of(server).read() else { return Ok(None) };
        // It never counts as absent, because the files would be pinned as they are now.
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let message = format!(
                "the record of the files of `{server}` is invalid: {error}; `pml remove {server}` deletes it, and everything about the server is asked about again"
            );
            ErrorBody::new(ErrorCode::ConfigInvalid, message)
        })
    }

    fn file_of(&self, server: &str) -> RecordFile {
        self.record_of(FOLDER, server, LIMIT)
    }

    pub(super) fn started(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::HashMap<String, LockedFiles>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedFiles {
    /// Returns what the lock has of them.
    fn in_workspace(&self) -> Option<Self> {
        let locked = Self { start: self.start, hashes: in_workspace(&self.hashes) };
        // Most servers run no file of the workspace, and an entry for them would say nothing.
        (!locked.hashes.is_empty()).then_some(locked)
    }
}

fn as_they_are(server: &str) -> String {
    format!("the files of the MCP server `{server}` as they are now")
}

/// Returns the files that are in the workspace: their paths are the same for everybody who works on it.
fn in_workspace(files: &Files) -> Files {
    let files = files.iter().filter(|(path, _)| Path::new(path).is_relative());
    files.map(|(path, hash)| (path.clone(), *hash)).collect()
}

fn bytes(files: &LockedFiles) -> Result<Vec<u8>, ErrorBody> {
    serde_json::to_vec(files).map_err(invalid)
}

/// Returns that a server does not start, because its program is not what the user allowed.
pub(super) fn changed(server: &str, reason: &str) -> ErrorBody {
    let message = format!(
        "the program of the MCP server `{server}` is not what you allowed ({reason}), so it was not started"
    );
    let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
    error.hint =
        "Run a program that calls one of its tools: `pml` asks whether it may start as it is now."
            .to_owned();
    error
}
