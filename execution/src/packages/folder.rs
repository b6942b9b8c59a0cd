//! The folder of a package. It counts only once its installation is complete.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Request;
use super::contents::Contents;
use super::locked::LockedPackages;
use crate::files;
use crate::files::atomic::{self, Existing};

/// The file that is written last, with what was installed.
const COMPLETE: &str = "installed.json";

/// The folder of a package, locked: while this exists, no other process removes it, and only one changes it.
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

/// Keeps an installed package from being removed while something runs from it.
#[derive(Debug)]
pub struct InUse {
    // The system releases the lock if the process dies.
    _lock: File,
}

/// What a folder is locked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Others may use it at the same time.
    Use,
    /// Nobody else uses it.
    Change,
}

/// The content of [`COMPLETE`].
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The package as it was requested, for display.
    #[serde(default)]
    request: Option<String>,
}

/// Returns the file that has what was installed last for a request that names no version, or a range.
fn last_of(packages: &Path, request: &str) -> PathBuf {
    packages.join(files::name(request)).with_extension("last")
}

/// Returns what was installed last for a request, if it is still there.
pub(super) fn last(packages: &Path, request: &Request) -> Option<LockedPackages> {
    let last: LockedPackages =
        serde_json::from_slice(&std::fs::read(last_of(packages, &request.locked_name())).ok()?)
            .ok()?;
    last.check_fits(request).ok()?;
    let path = packages.join(files::name(&key(&last)));
    (path.join(COMPLETE).is_file() && contents_of(&path).is_file()).then_some(last)
}

/// Stores what was found out for a request last: what a project without a lock gets, once it is installed.
///
/// # Errors
/// Returns the system's error.
pub fn remember(packages: &Path, last: &LockedPackages) -> std::io::Result<()> {
    write(&last_of(packages, last.request()), last)
}

/// Forgets what was installed for a request, by its name in a lock: without a lock, what is the newest then is installed.
///
/// # Errors
/// Returns the system's error.
pub fn forget(packages: &Path, request: &str) -> std::io::Result<()> {
    match std::fs::remove_file(last_of(packages, request)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the name of the folder of exactly these packages, which all who have them locked share.
pub(super) fn key(packages: &LockedPackages) -> String {
    format!("installed {}", packages.hash())
}

/// Returns the name of the folder in which it is found out what would be installed for a request.
pub(super) fn resolution_key(request: &Request) -> String {
    format!("resolved {}", request.locked_name())
}

/// Returns the file that is locked for a package's folder; its time is that of the last use.
fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Returns the file with the contents of a package's folder. It is not in the folder, which servers can read.
fn contents_of(folder: &Path) -> PathBuf {
    folder.with_extension("contents")
}

impl Folder {
    /// Waits until no other process has the folder of a package in a way that excludes this, and creates it if it is
    /// missing. The package counts as used now.
    pub(super) async fn lock(packages: &Path, key: &str, access: Access) -> Result<Self, String> {
        let path = packages.join(files::name(key));
        let failed = |error: std::io::Error| format!("cannot use `{}`: {error}", path.display());
        // Private: whoever could write there would choose what runs.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let operation = match access {
            Access::Use => FlockOperation::NonBlockingLockShared,
            Access::Change => FlockOperation::NonBlockingLockExclusive,
        };
        let lock = File::create(lock_of(&path)).map_err(failed)?;
        loop {
            match rustix::fs::flock(&lock, operation) {
                Ok(()) => break,
                // Another `pml` installs or removes it.
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        lock.set_modified(SystemTime::now()).map_err(failed)?;
        // `pml cleanup` may have removed it between the two steps.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        Ok(Self { path, lock })
    }

    /// Locks the folder at `path`, unless another process uses it.
    pub(super) fn try_lock(path: &Path) -> std::io::Result<Option<Self>> {
        // Not `create`, which would count as a use.
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).open(lock_of(path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), lock })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns when the package was last used.
    pub(super) fn last_use(&self) -> std::io::Result<SystemTime> {
        self.lock.metadata()?.modified()
    }

    /// Lets others use the package, too, and keeps it from being removed.
    pub(super) fn into_use(self) -> Result<InUse, String> {
        rustix::fs::flock(&self.lock, FlockOperation::LockShared)
            .map_err(|errno| format!("cannot use `{}`: {errno}", self.path.display()))?;
        Ok(InUse { _lock: self.lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the package is installed.
    pub(super) fn is_complete(&self) -> bool {
        // An older `pml` did not keep what was installed, so the package is installed again.
        self.path.join(COMPLETE).is_file() && contents_of(&self.path).is_file()
    }

    /// Checks that every file of the package is as it was installed.
    ///
    /// # Errors
    /// Returns what differs, as the rest of a sentence about the package. Nothing of it must run then.
    pub(super) fn check(&self) -> Result<(), String> {
        let file = contents_of(&self.path);
        let failed = |error: std::io::Error| {
            format!("cannot be compared with what was installed: `{}`: {error}", file.display())
        };
        let text = std::fs::read(&file).map_err(failed)?;
        let mut contents: Contents =
            serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if contents.check(&self.path)? {
            write(&file, &contents).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes what an installation left that did not end.
    pub(super) fn clear(&self) -> Result<(), String> {
        let failed =
            |error: std::io::Error| format!("cannot clear `{}`: {error}", self.path.display());
        std::fs::remove_dir_all(&self.path).map_err(failed)?;
        std::fs::DirBuilder::new().mode(0o700).create(&self.path).map_err(failed)
    }

    /// Returns the package that is installed, as it was requested; `None` if the installation did not end.
    pub(super) fn content(&self) -> Option<String> {
        let record: Record =
            serde_json::from_slice(&std::fs::read(self.path.join(COMPLETE)).ok()?).ok()?;
        // An older `pml` did not write it.
        Some(record.request.unwrap_or_else(|| "a package".to_owned()))
    }

    /// Removes the package.
    pub(super) fn remove(&self) -> std::io::Result<()> {
        // First, so that an interrupted removal leaves nothing that counts as installed.
        match std::fs::remove_file(self.path.join(COMPLETE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match std::fs::remove_file(contents_of(&self.path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The lock file stays: another process may wait for it, and a new one would not exclude that.
        std::fs::remove_dir_all(&self.path)
    }

    /// Stores that the installation is complete, with what was installed.
    pub(super) fn complete(&self, request: &Request) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write `{COMPLETE}`: {error}");
        let record = Record { request: Some(request.shown()) };
        write(&self.path.join(COMPLETE), &record).map_err(failed)?;
        let contents = Contents::of(&self.path).and_then(|contents| {
            // Last: without it, the package does not count as installed.
            write(&contents_of(&self.path), &contents)
        });
        contents.map_err(|error| format!("cannot keep what was installed: {error}"))
    }
}

/// Writes a file, so that it is either as before or whole.
fn write(file: &Path, content: &impl Serialize) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(OsStr::to_str))
    else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let text = serde_json::to_vec_pretty(content)?;
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write(File::open(folder)?, name, &text, mode, Existing::Replaced)
}
