//! The end of the store, as `pml` last wrote it, in a file that is not in the workspace.
//!
//! A chain of hashes does not show that its end is missing, or that somebody appended to it. This file does: it has the
//! id of the store, and the number and the hash of its last record. It is written before and after each commit, so a
//! kill between the two leaves both ends in it, and either is right.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::Integrity;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::StoreError;
use crate::files::records;

/// The folder of these files, among the user's records.
const FOLDER: &str = "run-stores";
/// The maximum size of a file in bytes.
const LIMIT: u64 = 64 * 1024;
/// The maximum number of earlier stores that are listed; the oldest are dropped.
const EARLIER: usize = 100;
/// How long to wait for another `pml`.
const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The id of the store.
    pub(super) store: String,
    /// The number of its last record.
    pub(super) seq: i64,
    /// The hash of that record.
    pub(super) hash: Integrity,
}

impl Head {
    /// Returns the end of a store without records.
    pub(super) fn empty(store: String) -> Self {
        Self { store, seq: 0, hash: Integrity::from_bytes([0; 32]) }
    }
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The end before the commit that was last begun, and the end after it. Equal once it is known to be done.
    pub(super) ends: Option<(Head, Head)>,
    /// The ends of the stores that were at the same place before, as an id and a number, the oldest first.
    pub(super) earlier: Vec<String>,
}

impl Known {
    /// Returns the last end of a store that has one: the first commit of a store may not have been made.
    pub(super) fn last(&self) -> Option<&Head> {
        let (before, after) = self.ends.as_ref()?;
        (before.seq > 0 || before == after).then_some(after)
    }

    /// Returns whether a store with this end is as `pml` left it.
    pub(super) fn allows(&self, head: &Head) -> bool {
        self.ends.as_ref().is_some_and(|(before, after)| head == before || head == after)
    }
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

    /// Returns what the file says.
    pub(super) fn read(&self) -> Result<Known, StoreError> {
        let text = self.text().map_err(|error| StoreError::system(&self.path, error))?;
        parse(&text).ok_or_else(|| {
            let error = std::io::Error::other("it is damaged; delete it");
            StoreError::system(&self.path, error)
        })
    }

    fn text(&self) -> std::io::Result<String> {
        // Nearly always the whole file, in one call: this is read for each commit.
        let mut text = vec![0; 1024];
        let read = self.file.read_at(&mut text, 0)?;
        text.truncate(read);
        if read == 1024 {
            let mut file = &self.file;
            file.seek(SeekFrom::Start(read as u64))?;
            file.take(LIMIT - read as u64).read_to_end(&mut text)?;
        }
        String::from_utf8(text).map_err(std::io::Error::other)
    }

    /// Stores the ends before and after a commit that is about to be made. The caller has locked the database, and read
    /// `known` since then.
    pub(super) fn begin(
        &self,
        mut known: Known,
        before: &Head,
        after: &Head,
    ) -> Result<(), StoreError> {
        self.locked(|| {
            if let Some((_, last)) = &known.ends
                && last.store != after.store
            {
                known.earlier.push(format!("{} {}", last.store, last.seq));
                let more = known.earlier.len().saturating_sub(EARLIER);
                known.earlier.drain(..more);
            }
            known.ends = Some((before.clone(), after.clone()));
            self.write(&known)
        })
    }

    /// Stores that a commit was made, unless another `pml` has begun the next one.
    pub(super) fn end(&self, after: &Head) -> Result<(), StoreError> {
        self.locked(|| {
            let mut known = self.read()?;
            match &known.ends {
                Some((_, last)) if last == after => {
                    known.ends = Some((after.clone(), after.clone()));
                    self.write(&known)
                }
                _ => Ok(()),
            }
        })
    }

    fn locked(&self, work: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        lock(&self.file).map_err(|errno| StoreError::system(&self.path, errno))?;
        let done = work();
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        done
    }

    fn write(&self, known: &Known) -> Result<(), StoreError> {
        let Some((before, after)) = &known.ends else { return Ok(()) };
        let mut text = format!("{}\n{}\n", line(before), line(after));
        for earlier in &known.earlier {
            text += earlier;
            text.push('\n');
        }
        let file = &self.file;
        // Never shorter than before, and the first two lines have a fixed length: a single write replaces them.
        file.write_all_at(text.as_bytes(), 0)
            // A file system does much more to cut a file than to compare its length.
            .and_then(|()| match file.metadata()?.len() == text.len() as u64 {
                true => Ok(()),
                false => file.set_len(text.len() as u64),
            })
            .map_err(|error| StoreError::system(&self.path, error))
    }
}

/// Locks a file or folder, at most for [`PATIENCE`].
pub(super) fn lock(file: impl std::os::fd::AsFd) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            done => return done,
        }
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
    format!("{} {:020} {}", head.store, head.seq, head.hash)
}

fn parse(text: &str) -> Option<Known> {
    let mut lines = text.lines();
    let Some(before) = lines.next() else { return Some(Known::default()) };
    let ends = Some((parse_line(before)?, parse_line(lines.next()?)?));
    Some(Known { ends, earlier: lines.map(str::to_owned).collect() })
}

fn parse_line(line: &str) -> Option<Head> {
    let mut words = line.split(' ');
    let (store, seq, hash) = (words.next()?, words.next()?, words.next()?);
    let head = Head { store: store.to_owned(), seq: seq.parse().ok()?, hash: hash.parse().ok()? };
    words.next().is_none().then_some(head)
}
