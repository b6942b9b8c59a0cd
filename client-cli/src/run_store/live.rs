//! Which runs are alive: a lock for each, which ends with its process.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::StoreError;
use crate::files::records;

/// The folder of the locks, among the user's own records.
const FOLDER: &str = "running";

/// The lock of a run. If it is dropped, its file stays: the end of the run was not recorded.
#[derive(Debug)]
pub(crate) struct LiveRun {
    path: PathBuf,
    _lock: File,
}

/// The state of a run that has no recorded end.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its process is alive.
    Running,
    /// Its process is gone, and the run is now this process'.
    Stopped(LiveRun),
    /// There is no lock: it was not begun by this user on this machine.
    Unknown,
}

impl LiveRun {
    /// Locks a run that is about to begin.
    ///
    /// # Errors
    /// Returns why it cannot be locked. The run must not begin then: it could be resumed while it runs.
    pub(crate) fn begin(records: &Path, run: &str) -> Result<Self, StoreError> {
        let (folder, path) = (records.join(FOLDER), path(records, run));
        let create = || options().create_new(true).open(&path);
        let file = match create() {
            // The first run of this user.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&folder)
                    .map_err(|error| StoreError::system(&folder, error))?;
                create()
            }
            created => created,
        };
        let file = file.map_err(|error| StoreError::system(&path, error))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| StoreError::system(&path, errno))?;
        Ok(Self { path, _lock: file })
    }

    /// Finds out whether a run is alive, and locks it if it is not.
    ///
    /// # Errors
    /// Returns why that cannot be found out.
    pub(crate) fn find(records: &Path, run: &str) -> Result<Found, StoreError> {
        let path = path(records, run);
        let file = match options().open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Unknown),
            Err(error) => return Err(StoreError::system(&path, error)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Found::Stopped(Self { path, _lock: file })),
            Err(Errno::WOULDBLOCK) => Ok(Found::Running),
            Err(errno) => Err(StoreError::system(&path, errno)),
        }
    }

    /// Removes the lock, once the end of the run is recorded.
    pub(crate) fn end(self) {
        // If it stays, it does no harm: the run has an end.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn path(records: &Path, run: &str) -> PathBuf {
    records.join(FOLDER).join(records::name(run))
}

fn options() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    // A link is not followed, and opening a FIFO does not block.
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}
