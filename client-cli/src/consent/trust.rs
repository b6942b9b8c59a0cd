//! The record of the `.pml.json` files that the user has trusted, by workspace and hash of the content.
//!
//! The record is outside every workspace, so a repository cannot supply it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use execution::files::atomic::{self, Existing};
use protocol::Integrity;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::files;

/// The variable that allows `pml trust` without a terminal.
pub(crate) const NONINTERACTIVE: &str = "PML_TRUST_NONINTERACTIVE";

/// The record's name in the state folder.
const RECORD: &str = "trusted";

/// The maximum size of the record in bytes.
const RECORD_LIMIT: u64 = 4 * 1024 * 1024;

/// Why the record of trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// There is no folder for it.
    #[error("there is no folder for the record of trusted files; set `HOME` or `XDG_STATE_HOME`")]
    NoHome,
    /// The system reported an error.
    #[error("cannot use the record of trusted files `{path}`: {source}", path = path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It does not belong to the user, or others can change it.
    #[error("the record of trusted files `{path}` cannot be used: {reason}; inspect it, then remove it and run `pml trust` again", path = path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The user cannot be asked.
    #[error("trusting a file needs a human at a terminal, or `--yes` with `{NONINTERACTIVE}=1`")]
    NotInteractive,
}

/// The record of trusted files.
#[derive(Debug, Clone)]
pub(crate) struct TrustStore {
    folder: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    workspaces: BTreeMap<PathBuf, Integrity>,
}

/// Checks that a person decides about the trust: at a terminal, or with `--yes` and the variable.
///
/// # Errors
/// Returns [`TrustError::NotInteractive`] without a terminal, unless the caller passed `--yes` and the variable is
/// exactly `1`.
pub(crate) fn may_trust(
    yes: bool,
    has_terminal: bool,
    variable: Option<&str>,
) -> Result<(), TrustError> {
    if has_terminal || (yes && variable == Some("1")) {
        Ok(())
    } else {
        Err(TrustError::NotInteractive)
    }
}

impl TrustStore {
    /// Opens the store in the user's state folder: `$XDG_STATE_HOME/pml`, else `~/.local/state/pml`.
    ///
    /// # Errors
    /// Returns [`TrustError::NoHome`] when neither is set.
    pub(crate) fn of_user() -> Result<Self, TrustError> {
        files::records_folder().map(Self::in_folder).ok_or(TrustError::NoHome)
    }

    /// Opens the store in another folder.
    pub(crate) fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder that the record is in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file of the record, which may not exist yet.
    pub(crate) fn record(&self) -> PathBuf {
        self.folder.join(RECORD)
    }

    /// Returns whether this content of a workspace's file is trusted.
    ///
    /// # Errors
    /// Returns [`TrustError`] if the record cannot be read or is not valid.
    pub(crate) fn is_trusted(&self, workspace: &Path, content: &[u8]) -> Result<bool, TrustError> {
        match self.read()? {
            Some(record) => Ok(record.workspaces.get(workspace) == Some(&Integrity::of(content))),
            None => Ok(false),
        }
    }

    /// Runs a change of a file and of its trust under a lock against other `pml` processes.
    ///
    /// # Errors
    /// Returns [`TrustError`] if the lock cannot be acquired.
    pub(crate) fn locked<T>(&self, change: impl FnOnce(&Self) -> T) -> Result<T, TrustError> {
        // The lock is released when the descriptor is closed at the end of this function.
        let folder = self.open_folder()?;
        // On the folder, because each write replaces the record by a new file, for which a lock on
        // the old one has no effect.
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)
            .map_err(|errno| self.system(errno.into()))?;
        Ok(change(self))
    }

    /// Trusts exactly this content as the workspace's file. Must be called within [`TrustStore::locked`].
    ///
    /// # Errors
    /// Returns [`TrustError`] when the record cannot be read or written.
    pub(crate) fn trust_locked(&self, workspace: &Path, content: &[u8]) -> Result<(), TrustError> {
        // An invalid record is an error and is not replaced: everything else that the user has
        // trusted would be lost.
        let mut record = self.read()?.unwrap_or_default();
        record.version = 1;
        record.workspaces.insert(workspace.to_owned(), Integrity::of(content));
        let text =
            serde_json::to_vec_pretty(&record).map_err(|error| self.unfit(error.to_string()))?;
        let mode = Some(Mode::from_raw_mode(0o600));
        atomic::write_durably(self.open_folder()?, RECORD, &text, mode, Existing::Replaced)
            .map_err(|source| self.system(source))
    }

    fn open_folder(&self) -> Result<OwnedFd, TrustError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| self.system(source))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.folder, flags, Mode::empty())
            .map_err(|errno| self.system(errno.into()))
    }

    fn read(&self) -> Result<Option<Record>, TrustError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(self.folder.join(RECORD), flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.system(errno.into())),
        };
        let metadata = file.metadata().map_err(|source| self.system(source))?;
        // A record that another user can write could grant trust that this user never gave.
        if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.unfit("you do not own it".to_owned()));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(self.unfit("others can write it".to_owned()));
        }
        let mut text = Vec::new();
        // A larger record is cut here. It then does not parse, so it is refused as a whole.
        file.take(RECORD_LIMIT).read_to_end(&mut text).map_err(|source| self.system(source))?;
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| self.unfit(error.to_string()))?;
        match record.version {
            1 => Ok(Some(record)),
            other => Err(self.unfit(format!("its version {other} is unknown"))),
        }
    }

    fn system(&self, source: std::io::Error) -> TrustError {
        TrustError::System { path: self.folder.join(RECORD), source }
    }

    fn unfit(&self, reason: String) -> TrustError {
        TrustError::Unfit { path: self.folder.join(RECORD), reason }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn trust(store: &TrustStore, workspace: &Path, content: &[u8]) -> Result<(), TrustError> {
        store.locked(|store| store.trust_locked(workspace, content))?
    }

    #[test]
    fn trust_is_for_one_content_in_one_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::in_folder(folder.path().join("state/pml"));
        let (a, b) = (Path::new("/w/a"), Path::new("/w/b"));
        assert!(!store.is_trusted(a, b"{}").unwrap());
        trust(&store, a, b"{}").unwrap();
        assert!(store.is_trusted(a, b"{}").unwrap());
        assert!(!store.is_trusted(a, b"{ }").unwrap());
        assert!(!store.is_trusted(b, b"{}").unwrap());
        let mode = folder.path().join("state/pml/trusted").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_invalid_record_is_an_error_and_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::in_folder(folder.path());
        let file = folder.path().join("trusted");
        for content in [
            "",
            "{",
            "{\"version\":2,\"workspaces\":{}}",
            "{\"version\":1,\"workspaces\":{\"/w\":\"\"}}",
        ] {
            std::fs::write(&file, content).unwrap();
            store.is_trusted(Path::new("/w"), b"").expect_err(content);
            trust(&store, Path::new("/w"), b"").expect_err(content);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), content, "it must not be emptied");
        }
        std::fs::write(&file, "{\"version\":1,\"workspaces\":{}}").unwrap();
        assert!(!store.is_trusted(Path::new("/w"), b"").unwrap());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        store.is_trusted(Path::new("/w"), b"").unwrap_err();
    }

    /// CL-14: concurrent writers lose nothing.
    #[test]
    fn concurrent_writers_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::in_folder(folder.path());
        let name = |n: u32| PathBuf::from(format!("/w/{n}"));
        std::thread::scope(|scope| {
            for n in 0..16 {
                let store = &store;
                scope.spawn(move || trust(store, &name(n), b"x").unwrap());
            }
        });
        assert!((0..16).all(|n| store.is_trusted(&name(n), b"x").unwrap()));
    }

    #[test]
    fn without_a_terminal_the_variable_is_needed() {
        may_trust(false, true, None).unwrap();
        may_trust(true, false, Some("1")).unwrap();
        for (yes, variable) in
            [(true, None), (true, Some("")), (true, Some("true")), (false, Some("1"))]
        {
            may_trust(yes, false, variable).unwrap_err();
        }
    }
}
