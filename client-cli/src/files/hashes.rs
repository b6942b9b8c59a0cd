//! The hashes of files that run, computed again only after a file changed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::Integrity;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use execution::files::hash_of;

use super::records::RecordFile;

/// The folder of the records.
const FOLDER: &str = "file-hashes";

/// The maximum size of a record in bytes.
const LIMIT: usize = 4 * 1024;

/// The size from which a hash is also kept for other processes, in bytes. An interpreter may have 100 MB.
const KEPT_FROM: u64 = 1024 * 1024;

/// How long after a change of a file its hash is not kept. Times have the resolution of the system's clock tick, so
/// another change in the same tick would not be seen.
const SETTLED: Duration = Duration::from_secs(2);

/// What changes whenever the content of a file does: nobody but the system sets the time of a change (`st_ctime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_settled(self) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds))
        else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        // A time in the future is that of a clock that was set back.
        SystemTime::now().duration_since(changed).is_ok_and(|age| age > SETTLED)
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Known {
    stamp: Stamp,
    hash: Integrity,
}

/// The hashes of files, as they were last computed.
#[derive(Debug)]
pub(crate) struct FileHashes {
    records: PathBuf,
    known: Mutex<HashMap<PathBuf, Known>>,
}

impl FileHashes {
    /// Keeps the hashes of large files among these records.
    pub(crate) fn new(records: &Path) -> Self {
        Self { records: records.to_owned(), known: Mutex::default() }
    }

    /// Returns the hash of a file's content. Links are followed.
    ///
    /// # Errors
    /// Returns the system's error, also for what is not a regular file, and for a file that changes while it is read.
    pub(crate) fn of(&self, path: &Path) -> io::Result<Integrity> {
        // Opening a FIFO does not block.
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let stamp = Stamp::of(&metadata);
        if let Some(hash) = self.known(path, stamp) {
            return Ok(hash);
        }
        let hash = hash_of(&mut file)?;
        if Stamp::of(&file.metadata()?) != stamp {
            return Err(io::Error::other("it changed while it was read"));
        }
        if stamp.is_settled() {
            self.keep(path, Known { stamp, hash });
        }
        Ok(hash)
    }

    fn known(&self, path: &Path, stamp: Stamp) -> Option<Integrity> {
        let is_same = |known: &Known| known.stamp == stamp;
        let here = self.all().get(path).copied().filter(is_same);
        if let Some(known) = here {
            return Some(known.hash);
        }
        if stamp.size < KEPT_FROM {
            return None;
        }
        let known: Known = serde_json::from_slice(&self.record(path).read()?).ok()?;
        is_same(&known).then(|| {
            self.all().insert(path.to_owned(), known);
            known.hash
        })
    }

    fn keep(&self, path: &Path, known: Known) {
        self.all().insert(path.to_owned(), known);
        if known.stamp.size >= KEPT_FROM
            && let Ok(text) = serde_json::to_vec(&known)
            && let Err(error) = self.record(path).write(&text)
        {
            // It is computed again.
            tracing::debug!(%error, "Could not keep the hash of a file");
        }
    }

    fn record(&self, path: &Path) -> RecordFile {
        RecordFile::new(&self.records, FOLDER, &path.to_string_lossy(), LIMIT)
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(file: &Path) -> Stamp {
        Stamp::of(&file.metadata().unwrap())
    }

    /// Whatever happens to its times, another content has another hash.
    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = FileHashes::new(folder.path());
        let file = folder.path().join("f");
        for text in ["one", "two", "six"] {
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            std::fs::write(&file, text).unwrap();
            if let Ok(modified) = modified {
                File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
            }
            assert_eq!(hashes.of(&file).unwrap(), Integrity::of(text.as_bytes()));
        }
        std::fs::remove_file(&file).unwrap();
        hashes.of(&file).unwrap_err();
        hashes.of(folder.path()).unwrap_err();
    }

    /// A hash that is kept counts only for exactly the file that it is of.
    #[test]
    fn a_kept_hash_is_that_of_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let hash = Integrity::of(b"kept");
        let known = Known { stamp: age(&file), hash };
        FileHashes::new(folder.path()).keep(&file, known);
        // Another process has it from the record.
        assert_eq!(FileHashes::new(folder.path()).of(&file).unwrap(), hash);
        std::fs::write(&file, vec![8; 1 << 20]).unwrap();
        let now = FileHashes::new(folder.path()).of(&file).unwrap();
        assert_eq!(now, Integrity::of(&vec![8; 1 << 20]));
        assert!(!age(&file).is_settled());
    }
}
