//! Erases values from the store, and leaves its chain verifiable. The only place that changes a record.
//!
//! The text of a record is replaced by what is left of it: its kind, its times, its tool, and the hashes of its values. Its
//! own hash stays, and can no longer be computed. So a further record of the chain, which is written in the same
//! transaction, states it, together with the hash before it and that of the text that is left.
//!
//! Afterwards the database is written anew and its log is emptied, because SQLite leaves old texts in free space.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use protocol::Integrity;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::chain::chained;
use super::live::{Found, LiveRun};
use super::record::{ErasedRecord, Record, ValuesErased, now};
use super::values::{erase, erased_files, files};
use super::writer::{Store, add};
use super::{StoreError, content};

/// Values to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Erasing {
    /// The run.
    pub(crate) run: String,
    /// The call, with the calls of its program if it is a capability; `None` for the whole run.
    pub(crate) call: Option<String>,
}

/// What was erased.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErasedValues {
    /// The number of records whose values were erased.
    pub(crate) records: usize,
    /// The number of files that were deleted.
    pub(crate) files: usize,
    /// The number of files that stay, because other records name them.
    pub(crate) shared: usize,
}

/// Erases values, and deletes the files that only they need. `records` is the folder of the user's own records.
pub(super) fn erase_values(
    mut store: Store,
    folder: &Path,
    records: &Path,
    what: &[Erasing],
) -> Result<ErasedValues, StoreError> {
    // What an update or a rebuild frees is overwritten.
    store.database().pragma_update(None, "secure_delete", true)?;
    let mut erased = ErasedValues::default();
    let mut all = Vec::new();
    store.change(|transaction, mut end| {
        // Nobody records a copy in the meantime.
        all = with_copies(transaction, what)?;
        // One that runs would go on to record what it has of them.
        for copy in all.iter().skip(what.len()) {
            check_ended(transaction, records, &copy.run)?;
        }
        for erasing in &all {
            let records = erase_records(transaction, erasing)?;
            if records.is_empty() {
                continue;
            }
            erased.records += records.len();
            let Erasing { run, call } = erasing.clone();
            let erasure = ValuesErased { at: now(), run, call, records };
            end = add(transaction, end, &Record::ValuesErased(erasure))?;
        }
        Ok(end)
    })?;
    store.settle()?;
    // Again for what an interrupted erasure has left.
    delete_files(store.database(), folder, &all, &mut erased)?;
    sweep(store.database())?;
    Ok(erased)
}

/// Adds the replays and mocks of runs that are erased as a whole, and theirs: they have the same values.
fn with_copies(database: &Connection, what: &[Erasing]) -> Result<Vec<Erasing>, StoreError> {
    let mut select = database.prepare(
        "SELECT run_id FROM records
         WHERE type = 'run_began' AND body ->> '$.of' = ?1",
    )?;
    let mut all = what.to_vec();
    let mut next = 0;
    while let Some(erasing) = all.get(next).cloned() {
        next += 1;
        if erasing.call.is_some() {
            continue;
        }
        let copies = select.query_map([&erasing.run], |row| row.get(0))?;
        for run in copies {
            let copy = Erasing { run: run?, call: None };
            if !all.contains(&copy) {
                all.push(copy);
            }
        }
    }
    Ok(all)
}

/// Checks that nobody records anything of a run any more.
fn check_ended(database: &Connection, records: &Path, run: &str) -> Result<(), StoreError> {
    let has_ended: bool = database.query_row(
        "SELECT EXISTS (SELECT 1 FROM records WHERE type = 'run_ended' AND run_id = ?1)",
        [run],
        |row| row.get(0),
    )?;
    if !has_ended && matches!(LiveRun::find(records, run)?, Found::Running) {
        return Err(StoreError::CopyRuns(run.to_owned()));
    }
    Ok(())
}

/// Replaces the texts of records; returns what is to be stated of them.
fn erase_records(
    transaction: &Connection,
    erasing: &Erasing,
) -> Result<Vec<ErasedRecord>, StoreError> {
    let mut erased = Vec::new();
    for (seq, mut record, body) in records(transaction, erasing)? {
        if !erase(&mut record) {
            continue;
        }
        let of = |seq: i64| hash(transaction, seq)?.ok_or(StoreError::Changed(seq));
        let (before, hash) = (of(seq - 1)?, of(seq)?);
        // An erasure must not hide that somebody changed the record before.
        if chained(before, seq, &body) != hash {
            return Err(StoreError::Changed(seq));
        }
        let left = record.to_row().body;
        let mut update =
            transaction.prepare_cached("UPDATE records SET body = ?1 WHERE seq = ?2")?;
        if update.execute((&left, seq))? != 1 {
            return Err(StoreError::Changed(seq));
        }
        erased.push(ErasedRecord { seq, before, hash, left: Integrity::of(left.as_bytes()) });
    }
    Ok(erased)
}

/// Returns the records that have the values: their numbers, the records, and their texts.
fn records(
    database: &Connection,
    erasing: &Erasing,
) -> Result<Vec<(i64, Record, String)>, StoreError> {
    let mut select =
        database.prepare_cached("SELECT seq, body FROM records WHERE run_id = ?1 ORDER BY seq")?;
    let rows = select.query_map([&erasing.run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut records = Vec::new();
    for row in rows {
        let (seq, body): (i64, String) = row?;
        let record = serde_json::from_str(&body).map_err(|_| StoreError::Changed(seq))?;
        records.push((seq, record, body));
    }
    if let Some(call) = &erasing.call {
        let is_within = |name: &str| {
            name.strip_prefix(call.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let arguments: HashSet<Integrity> = records
            .iter()
            .filter(|(_, record, _)| call_of(record).is_some_and(is_within))
            .flat_map(|(_, record, _)| arguments(record))
            .collect();
        records.retain(|(_, record, _)| match record {
            // A question names no call.
            Record::Approval(approval) => arguments.contains(&approval.args.hash),
            record => call_of(record).is_some_and(is_within),
        });
    }
    Ok(records)
}

/// Returns the call that a record is about.
fn call_of(record: &Record) -> Option<&str> {
    match record {
        Record::CallBegan(call) => Some(&call.call),
        Record::CallRefused(call) => Some(&call.call),
        Record::CallMocked(call) => Some(&call.call),
        Record::CallEnded(call) => Some(&call.call),
        Record::FileChanging(change) => Some(&change.call),
        _ => None,
    }
}

fn arguments(record: &Record) -> Option<Integrity> {
    match record {
        Record::CallBegan(call) => Some(call.args.hash),
        Record::CallRefused(call) => Some(call.args.hash),
        Record::CallMocked(call) => Some(call.args.hash),
        _ => None,
    }
}

fn hash(database: &Connection, seq: i64) -> Result<Option<Integrity>, StoreError> {
    let mut select = database.prepare_cached("SELECT hash FROM records WHERE seq = ?1")?;
    let hash: Option<[u8; 32]> = select.query_row([seq], |row| row.get(0)).optional()?;
    Ok(hash.map(Integrity::from_bytes))
}

/// Deletes the files of erased values that no other record needs.
fn delete_files(
    database: &mut Connection,
    folder: &Path,
    what: &[Erasing],
    erased: &mut ErasedValues,
) -> Result<(), StoreError> {
    // Nobody can record a value in the meantime, and whoever has written its file before looks for it then.
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut candidates: BTreeMap<String, Integrity> = BTreeMap::new();
    for erasing in what {
        for (_, record, _) in records(&transaction, erasing)? {
            let hashes = erased_files(&record).unwrap_or_default();
            candidates.extend(hashes.into_iter().map(|hash| (hash.to_string(), hash)));
        }
    }
    candidates.retain(|_, hash| content::is_there(folder, *hash));
    if candidates.is_empty() {
        return Ok(());
    }
    let mut shared: HashSet<Integrity> = HashSet::new();
    {
        let mut select = transaction.prepare("SELECT seq, body FROM records")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (seq, body): (i64, String) = (row.get(0)?, row.get(1)?);
            let record: Record =
                serde_json::from_str(&body).map_err(|_| StoreError::Changed(seq))?;
            shared.extend(files(&record));
        }
    }
    for hash in candidates.into_values() {
        if shared.contains(&hash) {
            erased.shared += 1;
        } else if content::delete(folder, hash)?.is_some() {
            erased.files += 1;
        }
    }
    Ok(transaction.rollback()?)
}

/// Removes what the files of the database have besides its records.
fn sweep(database: &Connection) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| StoreError::NotSwept(error.to_string());
    database.execute_batch("VACUUM").map_err(failed)?;
    // The log has the texts from before as well.
    let busy = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    match busy.map_err(failed)? {
        0_i64 => Ok(()),
        _ => Err(StoreError::NotSwept("another `pml` is reading it".to_owned())),
    }
}
