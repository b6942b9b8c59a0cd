//! Data that `pml` stores between runs: small files among the user's own records, which a repository cannot supply.
//!
//! They are only a cache. An unreadable record counts as absent, and if a record cannot be written, the gateway is
//! queried again.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use execution::files::atomic::{self, Existing};
pub(crate) use execution::files::{name, name_of_hash};

/// A record file, which only the user can read.
#[derive(Debug, Clone)]
pub(crate) struct RecordFile {
    folder: PathBuf,
    name: String,
    limit: usize,
}

impl RecordFile {
    /// Returns the record file for the identifier `of`, with at most `limit` bytes.
    pub(crate) fn new(records: &Path, folder: &str, of: &str, limit: usize) -> Self {
        Self::named(records, folder, name(of), limit)
    }

    /// Returns the record file with this name, with at most `limit` bytes.
    pub(crate) fn named(records: &Path, folder: &str, name: String, limit: usize) -> Self {
        Self { folder: records.join(folder), name, limit }
    }

    /// Reads the file; `None` if it is missing, not a regular file or too large.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        // A link is not followed, and opening a FIFO does not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Relative to the opened folder, which is not a link either.
        let file = rustix::fs::openat(self.open().ok()?, &self.name, flags, Mode::empty());
        let file = File::from(file.ok()?);
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut text = Vec::new();
        file.take(self.limit as u64 + 1).read_to_end(&mut text).ok()?;
        (text.len() <= self.limit).then_some(text)
    }

    /// Replaces the file.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), io::Error> {
        if text.len() > self.limit {
            // It could be written, but `read` would treat it as missing.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mode = Some(Mode::from_raw_mode(0o600));
        atomic::write(self.open()?, &self.name, text, mode, Existing::Replaced)
    }

    /// Deletes the file, if there is one.
    pub(crate) fn delete(&self) -> Result<(), io::Error> {
        match std::fs::remove_file(self.folder.join(&self.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Excludes other processes from what this file is about, until the result is dropped; `None` if another one does.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, io::Error> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // A file of its own, because each write replaces the other one.
        let name = format!("{}.lock", self.name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(rustix::fs::openat(self.open()?, &name, flags, mode)?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self) -> Result<OwnedFd, io::Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.folder, flags, Mode::empty())?)
    }
}

/// Returns the seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Formats an age for display.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => "less than a minute".to_owned(),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_private_and_within_its_limit() {
        use std::os::unix::fs::PermissionsExt as _;
        let records = tempfile::tempdir().unwrap();
        let file = RecordFile::new(records.path(), "x", "one", 10);
        assert_eq!(file.read(), None);
        file.write(b"0123456789").unwrap();
        assert_eq!(file.read().as_deref(), Some(&b"0123456789"[..]));
        let path = file.folder.join(&file.name);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&file.folder)), (0o600, 0o700));
        file.write(b"0123456789a").unwrap_err();
        std::fs::write(&path, "0123456789a").unwrap();
        assert_eq!(file.read(), None);
        assert_eq!(RecordFile::new(records.path(), "x", "two", 10).read(), None);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(file.read(), None);
    }

    #[test]
    fn ages_are_for_people() {
        for (seconds, shown) in
            [(59, "less than a minute"), (60, "1 min"), (10_900, "3 h"), (200_000, "2 days")]
        {
            assert_eq!(age(seconds), shown);
        }
    }
}
