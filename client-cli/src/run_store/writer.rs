//! Appends records, on a thread of its own: SQLite blocks, and concurrent records share one commit.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::anchor::{Anchor, Head, Known};
use super::chain::chained;
use super::database::head;
use super::record::{EndDiffered, Record, StoreAdopted, StoreBegan, now};
use super::values::files;
use super::{StoreError, content};

/// The maximum number of records in one commit.
const BATCH: usize = 256;

/// How long a record that nobody waits for may wait for one that somebody waits for, to share its commit.
const SHARING: Duration = Duration::from_millis(5);

/// What the thread does next.
struct Job {
    /// The records to store, in one commit; none to store those before them.
    records: Vec<Record>,
    report: Report,
    /// The record is stored only if none of these was lost.
    after: Vec<Arc<Lost>>,
}

impl Job {
    /// Returns why a record was lost without which this one must not be stored.
    fn obstacle(&self) -> Option<Arc<StoreError>> {
        self.after.iter().find_map(|lost| lost.get().cloned())
    }
}

/// Where to report whether a record is stored.
enum Report {
    /// To somebody who waits.
    To(oneshot::Sender<Result<(), Arc<StoreError>>>),
    /// To somebody who looks later: only a failure.
    Later(Arc<Lost>),
}

/// Why a record was not stored that nobody waited for. Set once, for the first of them.
pub(crate) type Lost = OnceLock<Arc<StoreError>>;

/// The thread that writes.
pub(super) struct Writer {
    jobs: Sender<Job>,
    file: DatabaseFile,
}

/// The file of the database. Somebody may delete or replace it while it is open.
#[derive(Debug, Clone)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    /// Its device and inode.
    identity: (u64, u64),
}

impl DatabaseFile {
    pub(super) fn of(path: PathBuf) -> Result<Self, StoreError> {
        let found = std::fs::symlink_metadata(&path);
        let found = found.map_err(|error| StoreError::system(&path, error))?;
        Ok(Self { path, identity: (found.dev(), found.ino()) })
    }

    /// Returns whether the path still leads to it.
    fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }
}

/// The database and the file with its end.
pub(super) struct Store {
    database: Connection,
    anchor: Anchor,
    file: DatabaseFile,
    /// The end of the last commit, until the anchor says that it was made.
    unsettled: Option<Head>,
}

impl Report {
    fn send(self, written: &Result<(), Arc<StoreError>>) {
        match (self, written) {
            // The call that waits may have been cancelled; its record stays.
            (Self::To(done), written) => drop(done.send(written.clone())),
            (Self::Later(lost), Err(error)) => drop(lost.set(Arc::clone(error))),
            (Self::Later(_), Ok(())) => {}
        }
    }
}

impl Writer {
    /// Starts the thread, after a check that the store ends where `pml` last wrote.
    pub(super) fn start(
        database: Connection,
        anchor: Anchor,
        file: DatabaseFile,
    ) -> Result<Self, StoreError> {
        let mut store = Store::new(database, anchor, file.clone());
        store.commit(&[])?;
        store.settle()?;
        let (jobs, queue) = channel();
        std::thread::Builder::new()
            .name("run-store".to_owned())
            .spawn(move || write_all(&mut store, &queue))
            .map_err(|error| StoreError::system(super::FILE, error))?;
        Ok(Self { jobs, file })
    }

    /// Stores all records that were queued before, and then these in one commit, unless one of `after` was lost.
    pub(super) async fn append(
        &self,
        records: Vec<Record>,
        after: &[&Arc<Lost>],
    ) -> Result<(), Arc<StoreError>> {
        let (done, stored) = oneshot::channel();
        self.send(records, Report::To(done), after)?;
        stored.await.map_err(|_| Arc::new(StoreError::Closed))?
    }

    /// The same on a thread that may block.
    pub(super) fn append_blocking(&self, records: Vec<Record>) -> Result<(), Arc<StoreError>> {
        let (done, stored) = oneshot::channel();
        self.send(records, Report::To(done), &[])?;
        stored.blocking_recv().map_err(|_| Arc::new(StoreError::Closed))?
    }

    /// Appends a record without waiting, unless one of `after` was lost; `lost` gets a later failure.
    pub(super) fn queue(
        &self,
        record: Record,
        lost: &Arc<Lost>,
        after: &[&Arc<Lost>],
    ) -> Result<(), Arc<StoreError>> {
        self.send(vec![record], Report::Later(Arc::clone(lost)), after)
    }

    fn send(
        &self,
        records: Vec<Record>,
        report: Report,
        after: &[&Arc<Lost>],
    ) -> Result<(), Arc<StoreError>> {
        let after = after.iter().map(|lost| Arc::clone(lost)).collect();
        self.jobs.send(Job { records, report, after }).map_err(|_| Arc::new(StoreError::Closed))
    }

    /// Returns whether the store is still the one at its path.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_there()
    }
}

fn write_all(store: &mut Store, queue: &Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let mut jobs = batch(first, queue);
        // In order, and before the rest: what they were to follow was lost in an earlier commit.
        for job in jobs.extract_if(.., |job| job.obstacle().is_some()) {
            if let Some(error) = job.obstacle() {
                job.report.send(&Err(error));
            }
        }
        let records: Vec<&Record> = jobs.iter().flat_map(|job| &job.records).collect();
        let mut written = if records.is_empty() { Ok(()) } else { store.commit(&records) };
        // A record is stored without it: the anchor follows while its caller goes on. It is there when a flush returns.
        if jobs.iter().any(|job| job.records.is_empty()) {
            written = written.and_then(|()| store.settle());
        }
        let written = written.map_err(Arc::new);
        // In order: who waits for a record can rely on what became of those before it.
        for job in jobs {
            job.report.send(&written);
        }
        if let Err(error) = store.settle() {
            // The next commit tries again, and reports the failure.
            tracing::debug!(%error, "The end of the run store was not noted");
        }
    }
}

/// Collects the records of one commit.
fn batch(first: Job, queue: &Receiver<Job>) -> Vec<Job> {
    let latest = Instant::now() + SHARING;
    let mut jobs = vec![first];
    loop {
        jobs.extend(queue.try_iter().take(BATCH - jobs.len()));
        if jobs.len() == BATCH || jobs.iter().any(|job| matches!(job.report, Report::To(_))) {
            return jobs;
        }
        match queue.recv_timeout(latest.saturating_duration_since(Instant::now())) {
            Ok(next) => jobs.push(next),
            Err(_) => return jobs,
        }
    }
}

impl Store {
    pub(super) fn new(database: Connection, anchor: Anchor, file: DatabaseFile) -> Self {
        Self { database, anchor, file, unsettled: None }
    }

    /// Appends records in one commit, after a check that the store ends where `pml` last wrote. [`Store::settle`] has to
    /// follow.
    fn commit(&mut self, records: &[&Record]) -> Result<(), StoreError> {
        let folder = self.file.path.parent().map(std::path::Path::to_owned).unwrap_or_default();
        self.change(|transaction, mut end| {
            for record in records {
                if let Some(of) = source(record)
                    && !is_kept(transaction, of)?
                {
                    return Err(StoreError::SourceErased(of.to_owned()));
                }
                // Another `pml` may have erased it. Nobody erases while this transaction is open.
                if files(record).into_iter().any(|hash| !content::is_there(&folder, hash)) {
                    return Err(StoreError::ValueGone);
                }
                end = add(transaction, end, record)?;
            }
            Ok(end)
        })
    }

    /// Makes a change in one commit, after a check that the store ends where `pml` last wrote. `work` gets the end of the
    /// chain and returns the new one. [`Store::settle`] has to follow.
    pub(super) fn change(
        &mut self,
        work: impl FnOnce(&Connection, Head) -> Result<Head, StoreError>,
    ) -> Result<(), StoreError> {
        self.settle()?;
        // Records in a deleted file would be lost, and nobody would notice.
        if !self.file.is_there() {
            return Err(StoreError::Gone);
        }
        // The lock is taken at once: another `pml` could append between the reading of the end and the write.
        let transaction =
            self.database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known = self.anchor.read()?;
        let found = head(&transaction)?;
        let mut end = found.clone();
        if let Some(record) = correction(found.as_ref(), &known) {
            let end_before = end.unwrap_or_else(|| Head::empty(record.store_of()));
            end = Some(add(&transaction, end_before, &record)?);
        }
        let end = work(&transaction, end.ok_or(StoreError::Closed)?)?;
        if found.as_ref() == Some(&end) {
            return Ok(());
        }
        let before = found.unwrap_or_else(|| Head::empty(end.store.clone()));
        self.anchor.begin(known, &before, &end)?;
        transaction.commit()?;
        self.unsettled = Some(end);
        Ok(())
    }

    /// Returns the database.
    pub(super) fn database(&mut self) -> &mut Connection {
        &mut self.database
    }

    /// Stores in the anchor that the last commit was made. Until then, the end before it would count as right, too.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        if let Some(end) = &self.unsettled {
            self.anchor.end(end)?;
            self.unsettled = None;
        }
        Ok(())
    }
}

/// Returns the run whose values a record has.
fn source(record: &Record) -> Option<&str> {
    match record {
        Record::RunBegan(run) => run.of.as_deref(),
        Record::CallMocked(call) => Some(&call.of),
        _ => None,
    }
}

/// Returns whether a run is recorded with all its values.
fn is_kept(database: &Connection, run: &str) -> Result<bool, StoreError> {
    let mut select = database.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM records WHERE run_id = ?1 AND type = 'run_began')
            AND NOT EXISTS (SELECT 1 FROM records WHERE run_id = ?1 AND type = 'values_erased')",
    )?;
    Ok(select.query_row([run], |row| row.get(0))?)
}

/// Returns the record with which the store goes on if it is new, or if its end is not what `pml` last wrote here.
fn correction(found: Option<&Head>, known: &Known) -> Option<Record> {
    let at = now();
    let last = known.last();
    match (found, last) {
        (None, last) => {
            let last = last.map(|end| format!("{} {}", end.store, end.seq));
            let after: Vec<String> = known.earlier.iter().cloned().chain(last).collect();
            let store = uuid::Uuid::new_v4().simple().to_string();
            Some(Record::StoreBegan(StoreBegan { at, store, after }))
        }
        // First: another `pml` may have created the store and not yet stored that it did.
        (Some(found), _) if known.allows(found) => None,
        // The project was moved or copied here with its store.
        (Some(_), None) => Some(Record::StoreAdopted(StoreAdopted { at })),
        (Some(found), Some(last)) => {
            // The store remains usable, because a power failure can cut off its end, too. The loss stays on record.
            tracing::warn!(
                "the end of the run store `.pml/runs.db` is not what `pml` last wrote; `pml runs verify` shows the difference"
            );
            let store = (last.store != found.store).then(|| last.store.clone());
            Some(Record::EndDiffered(EndDiffered { at, last: last.seq, found: found.seq, store }))
        }
    }
}

/// Adds a record to the chain and returns the new end.
pub(super) fn add(database: &Connection, end: Head, record: &Record) -> Result<Head, StoreError> {
    let (seq, row) = (end.seq + 1, record.to_row());
    let hash = chained(end.hash, seq, &row.body);
    let mut insert = database.prepare_cached(
        "INSERT INTO records (seq, body, hash, run_id, type) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    if insert.execute((seq, row.body, hash.into_bytes(), row.run, row.kind))? != 1 {
        return Err(StoreError::Unfit("did not store a record".to_owned()));
    }
    Ok(Head { store: end.store, seq, hash })
}
