//! Appends records, on a thread of its own: SQLite blocks, and concurrent records share one commit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use tokio::sync::oneshot;

use super::StoreError;
use super::anchor::{Anchor, Head};
use super::record::{Record, RecordsLost, StoreBegan, now};
use super::verify::chained;

/// The maximum number of records in one commit.
const BATCH: usize = 256;

/// A record, and where to report that it is stored.
struct Job {
    record: Record,
    done: oneshot::Sender<Result<(), Arc<StoreError>>>,
}

/// The thread that writes.
pub(super) struct Writer {
    jobs: Sender<Job>,
}

impl Writer {
    /// Starts the thread, after a check that the store ends where `pml` last wrote.
    pub(super) fn start(mut database: Connection, anchor: Anchor) -> Result<Self, StoreError> {
        begin(&mut database, &anchor)?;
        let (jobs, queue) = channel();
        std::thread::Builder::new()
            .name("run-store".to_owned())
            .spawn(move || write_all(&mut database, &anchor, &queue))
            .map_err(|error| StoreError::system(super::FILE, error))?;
        Ok(Self { jobs })
    }

    /// Appends a record.
    pub(super) async fn append(&self, record: Record) -> Result<(), Arc<StoreError>> {
        let (done, stored) = oneshot::channel();
        let closed = || Arc::new(StoreError::Closed);
        self.jobs.send(Job { record, done }).map_err(|_| closed())?;
        stored.await.map_err(|_| closed())?
    }
}

fn write_all(database: &mut Connection, anchor: &Anchor, queue: &Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let jobs: Vec<Job> =
            std::iter::once(first).chain(queue.try_iter().take(BATCH - 1)).collect();
        let records = jobs.iter().map(|job| &job.record);
        let written =
            append(database, records).and_then(|head| anchor.advance(&head)).map_err(Arc::new);
        for job in jobs {
            // The call that waits may have been cancelled; its record stays.
            let _ = job.done.send(written.clone());
        }
    }
}

/// Appends records in one commit and returns the new end.
fn append<'a>(
    database: &mut Connection,
    records: impl Iterator<Item = &'a Record>,
) -> Result<Head, StoreError> {
    // The lock is taken at once: another `pml` could append between the reading of the end and the write.
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut head = head(&transaction)?.ok_or(StoreError::Closed)?;
    for record in records {
        head = add(&transaction, head, record)?;
    }
    transaction.commit()?;
    Ok(head)
}

/// Adds a record to the chain and returns the new end.
fn add(database: &Connection, end: Head, record: &Record) -> Result<Head, rusqlite::Error> {
    let (seq, body) = (end.seq + 1, record.to_text());
    let hash = chained(&end.hash, seq, &body);
    let mut insert =
        database.prepare_cached("INSERT INTO records (seq, body, hash) VALUES (?1, ?2, ?3)")?;
    insert.execute((seq, body, hash))?;
    Ok(Head { store: end.store, seq, hash })
}

/// Returns the end of the chain; `None` if the store is empty.
fn head(database: &Connection) -> Result<Option<Head>, rusqlite::Error> {
    let mut last = database.prepare_cached(
        "SELECT seq, hash, (SELECT body ->> '$.store' FROM records WHERE seq = 1)
         FROM records ORDER BY seq DESC LIMIT 1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let store: Option<String> = row.get(2)?;
        Ok(Head { seq: row.get(0)?, hash: row.get(1)?, store: store.unwrap_or_default() })
    };
    last.query_row([], read).optional()
}

/// Writes the first record of an empty store. Into another one, writes a record if its end is not what `pml` last wrote
/// here.
fn begin(database: &mut Connection, anchor: &Anchor) -> Result<(), StoreError> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let stored = anchor.read()?;
    let Some(head) = head(&transaction)? else {
        let store = uuid::Uuid::new_v4().simple().to_string();
        let after = stored.map(|end| format!("{} {}", end.store, end.seq));
        let began = StoreBegan { at: now(), store: store.clone(), after };
        let empty = Head { store, seq: 0, hash: [0; 32] };
        let head = add(&transaction, empty, &Record::StoreBegan(began))?;
        transaction.commit()?;
        return anchor.replace(&head);
    };
    // Without a stored end, the project was moved or copied here with its store.
    let Some(stored) = stored else {
        transaction.commit()?;
        return anchor.replace(&head);
    };
    let is_same = stored.store == head.store;
    if is_same && hash_of(&transaction, stored.seq)? == Some(stored.hash) {
        return Ok(transaction.commit()?);
    }
    // The store remains usable, because a power failure can cut off its end, too. The loss stays on record.
    tracing::warn!(
        "the end of the run store `.pml/runs.db` is not what `pml` last wrote; `pml runs verify` shows what is missing"
    );
    let store = (!is_same).then_some(stored.store);
    let lost = RecordsLost { at: now(), last: stored.seq, store };
    let head = add(&transaction, head, &Record::RecordsLost(lost))?;
    transaction.commit()?;
    anchor.replace(&head)
}

fn hash_of(database: &Connection, seq: i64) -> Result<Option<[u8; 32]>, rusqlite::Error> {
    database
        .query_row("SELECT hash FROM records WHERE seq = ?1", [seq], |row| row.get(0))
        .optional()
}
