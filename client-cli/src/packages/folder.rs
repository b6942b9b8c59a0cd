//! The folder of a package. It counts only once its installation is complete.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Request;
use crate::files::records;

/// The file that is written last, with what was installed.
const COMPLETE: &str = "installed.json";

/// The folder of a package, which no other process changes while this exists.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// A package that was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    /// Its name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// The hash of what was downloaded.
    pub(super) integrity: String,
}

/// The content of [`COMPLETE`].
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    packages: Vec<Package>,
}

/// Returns the version of a package that is installed.
pub(super) fn installed(packages: &Path, request: &Request) -> Option<String> {
    let file = packages.join(records::name(&request.key())).join(COMPLETE);
    let record: Record = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let is_it = |package: &Package| package.name == request.bare_name();
    record.packages.into_iter().find(is_it).map(|package| package.version)
}

impl Folder {
    /// Waits until no other process uses the folder of a package, and creates it if it is missing.
    pub(super) async fn lock(packages: &Path, request: &Request) -> Result<Self, String> {
        let path = packages.join(records::name(&request.key()));
        let failed = |error: std::io::Error| format!("cannot use `{}`: {error}", path.display());
        // Private: whoever could write there would choose what runs.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let lock = File::create(path.with_extension("lock")).map_err(failed)?;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path, _lock: lock }),
                // Another `pml` installs it. The lock ends with its process.
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the package is installed.
    pub(super) fn is_complete(&self) -> bool {
        self.path.join(COMPLETE).is_file()
    }

    /// Removes what an installation left that did not end.
    pub(super) fn clear(&self) -> Result<(), String> {
        let failed =
            |error: std::io::Error| format!("cannot clear `{}`: {error}", self.path.display());
        std::fs::remove_dir_all(&self.path).map_err(failed)?;
        std::fs::DirBuilder::new().mode(0o700).create(&self.path).map_err(failed)
    }

    /// Stores that the installation is complete, with what was installed.
    pub(super) fn complete(&self, packages: Vec<Package>) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write `{COMPLETE}`: {error}");
        let text = serde_json::to_vec_pretty(&Record { packages })
            .map_err(|error| failed(error.into()))?;
        // Renamed, so that it is either missing or whole.
        let new = self.path.join("installed.new");
        std::fs::write(&new, text).map_err(failed)?;
        std::fs::rename(new, self.path.join(COMPLETE)).map_err(failed)
    }
}
