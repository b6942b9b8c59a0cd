//! The end of the store, as `pml` last wrote it, in a file that is not in the workspace.
//!
//! A chain of hashes does not show that its end is missing. This file does: it has the id of the store, and the number
//! and the hash of its last record.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::StoreError;
use crate::files::records;

/// The folder of these files, among the user's records.
const FOLDER: &str = "run-stores";

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The id of the store.
    pub(super) store: String,
    /// The number of its last record.
    pub(super) seq: i64,
    /// The hash of that record.
    pub(super) hash: [u8; 32],
}

/// The file of a workspace.
pub(super) struct Anchor {
    path: PathBuf,
    file: File,
}

impl Anchor {
    /// Opens the file of a workspace, and creates it if it is missing; `records` is the folder of the user's records.
    pub(super) fn create(records: &Path, root: &Path) -> Result<Self, StoreError> {
        let path = path(records, root);
        let folder = records.join(FOLDER);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| options().create(true).mode(0o600).open(&path))
            .map(|file| Self { path: path.clone(), file })
            .map_err(|error| StoreError::system(path, error))
    }

    /// Opens the file of a workspace; `None` if there is none.
    pub(super) fn find(records: &Path, root: &Path) -> Result<Option<Self>, StoreError> {
        let path = path(records, root);
        match options().open(&path) {
            Ok(file) => Ok(Some(Self { path, file })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::system(path, error)),
        }
    }

    /// Returns the stored end; `None` if there is none.
    pub(super) fn read(&self) -> Result<Option<Head>, StoreError> {
        let mut text = String::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.take(1_024).read_to_string(&mut text))
            .map_err(|error| StoreError::system(&self.path, error))?;
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = parse(&text);
        parsed.map(Some).ok_or_else(|| {
            let error = std::io::Error::other("it is damaged; delete it");
            StoreError::system(&self.path, error)
        })
    }

    /// Stores an end, unless a later one of the same store is stored already: several `pml` write to one store.
    pub(super) fn advance(&self, head: &Head) -> Result<(), StoreError> {
        self.locked(|| match self.read()? {
            Some(stored) if stored.store == head.store && stored.seq >= head.seq => Ok(()),
            _ => self.write(head),
        })
    }

    /// Stores an end, whatever is stored.
    pub(super) fn replace(&self, head: &Head) -> Result<(), StoreError> {
        self.locked(|| self.write(head))
    }

    fn locked(&self, work: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        rustix::fs::flock(&self.file, FlockOperation::LockExclusive)
            .map_err(|errno| StoreError::system(&self.path, errno))?;
        let done = work();
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        done
    }

    fn write(&self, head: &Head) -> Result<(), StoreError> {
        let mut file = &self.file;
        // Every line has the same length and replaces the old one in a single write.
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(line(head).as_bytes()))
            .map_err(|error| StoreError::system(&self.path, error))
    }
}

fn path(records: &Path, root: &Path) -> PathBuf {
    records.join(FOLDER).join(records::name(&root.to_string_lossy()))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // A link is not followed, and opening a FIFO does not block.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

fn line(head: &Head) -> String {
    let hash: String = head.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {:020} {hash}\n", head.store, head.seq)
}

fn parse(text: &str) -> Option<Head> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let (store, seq, hash) = (words.next()?, words.next()?, words.next()?);
    let mut bytes = [0; 32];
    if words.next().is_some() || hash.len() != 64 || !hash.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Head { store: store.to_owned(), seq: seq.parse().ok()?, hash: bytes })
}
