//! The run store: what the runs on this machine did, in `.pml/runs.db`.
//!
//! It is a chain of records. Each record is written before its effect: that of a run before the program starts, that of
//! a call before the call is made. A record's hash covers the record before it, so `verify` finds a changed, removed,
//! inserted or moved record. The hash of the last record is also stored among the user's own records (`anchor`), so it
//! finds records that are missing at the end, too.
//!
//! A stored record survives the end of `pml` at any instant. After a power failure the last records may be missing.

mod anchor;
mod chain;
mod content;
mod database;
mod erasure;
mod error;
mod export;
pub(crate) mod live;
pub(crate) mod reader;
pub(crate) mod record;
mod retention;
mod values;
mod verify;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::Integrity;
use protocol::redaction::keys_in_use;
use serde_json::Value;

use self::anchor::{Anchor, Known};
use self::database::{create_folder, open_folder};
pub(crate) use self::erasure::{ErasedValues, Erasing};
pub(crate) use self::error::StoreError;
pub(crate) use self::export::{CheckedExport, RunExport};
use self::reader::Reader;
use self::record::{Change, Content, FileChanging, KeptFile, Record, now};
pub(crate) use self::verify::{Fault, Verified};
pub(crate) use self::writer::Lost;
use self::writer::{DatabaseFile, Store, Writer};
use crate::workspace::Workspace;
use crate::workspace::changes::{self, Before};

/// The database in the project's own folder.
const FILE: &str = "runs.db";

/// Whether a change is made although the content before it cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is: the content is larger than the limits.
    Bounded,
    /// It is not, and the total of all contents has no limit: the change itself puts something back.
    Always,
}

/// The run store of a project.
pub(crate) struct RunStore {
    folder: PathBuf,
    writer: Writer,
    /// The size of what is kept beside the database, once it is known.
    kept: Mutex<Option<u64>>,
}

impl RunStore {
    /// Opens the store of a workspace, or creates it; `records` is the folder of the user's own records.
    ///
    /// # Errors
    /// Returns why it cannot be used. Nothing may run then: its effects would not be recorded.
    pub(crate) fn open(workspace: &Workspace, records: &Path) -> Result<Self, StoreError> {
        let folder = create_folder(workspace)?;
        let anchor = Anchor::create(records, workspace.root())?;
        let database = database::open_for_writing(&folder)?;
        let file = DatabaseFile::of(folder.path.join(FILE))?;
        let writer = Writer::start(database, anchor, file)?;
        Ok(Self { folder: folder.path, writer, kept: Mutex::default() })
    }

    /// Opens the store of a workspace for reading; `None` if there is none.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    pub(crate) fn reader(workspace: &Workspace) -> Result<Option<Reader>, StoreError> {
        let Some((database, folder)) = open(workspace)? else { return Ok(None) };
        database::check(&database)?;
        Ok(Some(Reader::new(database, folder)))
    }

    /// Verifies the store of a workspace; `None` if there is none and never was.
    ///
    /// # Errors
    /// Returns why it cannot be read. A fault in it is not an error.
    pub(crate) fn verify(
        workspace: &Workspace,
        records: &Path,
    ) -> Result<Option<Verified>, StoreError> {
        let anchor = Anchor::find(records, workspace.root())?;
        let known = || anchor.as_ref().map_or_else(|| Ok(Known::default()), Anchor::read);
        let Some((database, folder)) = open(workspace)? else {
            return Ok(known()?.last().map(verify::gone));
        };
        database::check_table(&database)?;
        // The end must be that of the state that is read, although `pml` may append in the meantime.
        let known = database::begin_reading(&database, &folder, known)?;
        verify::verify(&Reader::new(database, folder), &known).map(Some)
    }

    /// Erases values of runs, and what is left of them in the files of the store. Blocks.
    ///
    /// # Errors
    /// Returns why they were not erased, or may still be in the files.
    pub(crate) fn erase(
        workspace: &Workspace,
        records: &Path,
        what: &[Erasing],
    ) -> Result<ErasedValues, StoreError> {
        let folder = create_folder(workspace)?;
        let anchor = Anchor::create(records, workspace.root())?;
        let database = database::open_for_writing(&folder)?;
        let file = DatabaseFile::of(folder.path.join(FILE))?;
        erasure::erase_values(Store::new(database, anchor, file), &folder.path, records, what)
    }

    /// Returns the size of the files of the store in bytes; 0 if there is none.
    ///
    /// # Errors
    /// Returns why they cannot be read.
    pub(crate) fn size(workspace: &Workspace) -> Result<u64, StoreError> {
        let Some(folder) = open_folder(workspace)? else { return Ok(0) };
        let of = |name: String| std::fs::symlink_metadata(folder.path.join(name));
        let files = ["", "-wal"].map(|end| of(format!("{FILE}{end}")));
        let database: u64 = files.into_iter().flatten().map(|found| found.len()).sum();
        Ok(database + content::total(&folder.path))
    }

    /// Reads a run for a reader elsewhere; `verified` says whether the store was verified before. `None` if the contents
    /// are too large for one file.
    ///
    /// # Errors
    /// Returns why the store cannot be read.
    pub(crate) fn export(
        workspace: &Workspace,
        run: &str,
        verified: bool,
        with_contents: bool,
    ) -> Result<Option<RunExport>, StoreError> {
        let reader = Self::reader(workspace)?.ok_or(StoreError::Gone)?;
        reader.begin()?;
        RunExport::of(&reader, run, verified, with_contents)
    }

    /// Returns whether the store is still the one at its place. Somebody may delete it while it is open.
    pub(crate) fn is_there(&self) -> bool {
        self.writer.is_there()
    }

    /// Prepares a value for a record: removes the keys in use, and stores a large value as a file.
    ///
    /// # Errors
    /// Returns why the file cannot be written.
    pub(crate) fn content(&self, value: &Value) -> Result<Content, StoreError> {
        content::store(&self.folder, value)
    }

    /// The same for what a call returned: the order of its members is kept.
    ///
    /// # Errors
    /// Returns why the file cannot be written.
    pub(crate) fn output(&self, value: &Value) -> Result<Content, StoreError> {
        content::store_output(&self.folder, value)
    }

    /// Returns the hash that the record of a value has.
    pub(crate) fn hash(value: &Value) -> Integrity {
        content::hash(value)
    }

    /// Records a change of a file that a call of a run is about to make, and keeps what it replaces. Blocks.
    ///
    /// # Errors
    /// Returns why it was not recorded, or not kept if `keeping` says so. The change must not be made then.
    pub(crate) fn change(
        &self,
        run: &str,
        call: &str,
        change: changes::Change<'_>,
        keeping: Keeping,
    ) -> Result<(), String> {
        // A path that is not recorded as it is would lead to another file when it is put back.
        let text = |path: &Path| {
            let text = path.to_str().ok_or("its path is not UTF-8")?;
            match keys_in_use().text(text) == text {
                true => Ok(text.to_owned()),
                false => Err("its path contains a key in use, which is not recorded"),
            }
        };
        let keep = |before| {
            let kept = self.keep(before, keeping).map_err(|error| error.to_string())?;
            match (&kept.not_kept, keeping) {
                (Some(why), Keeping::Always) => Err(format!("its content cannot be kept: {why}")),
                _ => Ok(kept),
            }
        };
        let change = match change {
            changes::Change::Write { path, before, content, mode } => Change::Write {
                path: text(path)?,
                before: before.map(keep).transpose()?,
                after: Integrity::of(content),
                mode,
            },
            changes::Change::Remove { path, before } => {
                Change::Remove { path: text(path)?, before: keep(before)? }
            }
            changes::Change::CreateFolder { path } => Change::CreateFolder { path: text(path)? },
            changes::Change::RemoveFolder { path, mode } => {
                Change::RemoveFolder { path: text(path)?, mode }
            }
            changes::Change::Move { from, to, moved } => {
                Change::Move { from: text(from)?, to: text(to)?, moved: content::moved(moved) }
            }
        };
        let (run, call) = (run.to_owned(), call.to_owned());
        let record = Record::FileChanging(FileChanging { at: now(), run, call, change });
        self.append_blocking(record).map_err(|error| error.to_string())
    }

    /// Keeps the content of a file that is about to be replaced or removed.
    fn keep(&self, before: Before, keeping: Keeping) -> Result<KeptFile, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        content::keep(&self.folder, before, &mut kept, keeping)
    }

    /// Appends a record on a thread that may block. When this returns, the record is stored.
    ///
    /// # Errors
    /// Returns why it was not stored.
    pub(crate) fn append_blocking(&self, record: Record) -> Result<(), Arc<StoreError>> {
        self.writer.append_blocking(vec![record])
    }

    /// Appends a record. When this returns, the record is stored.
    ///
    /// # Errors
    /// Returns why it was not stored.
    pub(crate) async fn append(&self, record: Record) -> Result<(), Arc<StoreError>> {
        self.append_after(&[], record).await
    }

    /// Appends a record unless one of `after` was lost. When this returns, the record is stored.
    ///
    /// # Errors
    /// Returns why it was not stored, or why the other one was not.
    pub(crate) async fn append_after(
        &self,
        after: &[&Arc<Lost>],
        record: Record,
    ) -> Result<(), Arc<StoreError>> {
        self.writer.append(vec![record], after).await
    }

    /// Appends all records of a run that has ended already, in one commit. When this returns, they are stored.
    ///
    /// # Errors
    /// Returns why none of them was.
    pub(crate) async fn append_run(&self, records: Vec<Record>) -> Result<(), Arc<StoreError>> {
        self.writer.append(records, &[]).await?;
        self.flush().await
    }

    /// Appends a record without waiting; `lost` gets the failure if it is not stored. Records are stored in the order
    /// in which they are appended, this one within milliseconds.
    ///
    /// # Errors
    /// Returns that the store is closed.
    pub(crate) fn queue(&self, record: Record, lost: &Arc<Lost>) -> Result<(), Arc<StoreError>> {
        self.queue_after(&[], record, lost)
    }

    /// The same, unless one of `after` was lost.
    ///
    /// # Errors
    /// Returns that the store is closed.
    pub(crate) fn queue_after(
        &self,
        after: &[&Arc<Lost>],
        record: Record,
        lost: &Arc<Lost>,
    ) -> Result<(), Arc<StoreError>> {
        self.writer.queue(record, lost, after)
    }

    /// Waits until the records that were appended before are stored, and the anchor has the last of them.
    ///
    /// # Errors
    /// Returns why one of them was not.
    pub(crate) async fn flush(&self) -> Result<(), Arc<StoreError>> {
        self.writer.append(Vec::new(), &[]).await
    }

    /// The same on a thread that may block.
    ///
    /// # Errors
    /// Returns why one of them was not.
    pub(crate) fn flush_blocking(&self) -> Result<(), Arc<StoreError>> {
        self.writer.append_blocking(Vec::new())
    }
}

fn open(workspace: &Workspace) -> Result<Option<(rusqlite::Connection, PathBuf)>, StoreError> {
    let Some(folder) = open_folder(workspace)? else { return Ok(None) };
    let database = database::open_for_reading(&folder)?;
    Ok(database.map(|database| (database, folder.path)))
}

#[cfg(test)]
mod tests;
