//! One run with its place in the chain, for a reader who does not have the store.
//!
//! Records of several runs are interleaved in one chain. Each record of the run comes with its number and the hash before
//! it, so its own hash can be computed without the records of others.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::Integrity;
use serde::{Deserialize, Serialize};

use super::anchor::Head;
use super::chain::{Erased, hash_of, stated};
use super::reader::{Chained, Reader};
use super::record::{Record, Status, ValuesErased, now};
use super::values::{contents, erase, files};
use super::{StoreError, content};

/// The maximum total size of the contents in an export, in bytes. They are encoded twice.
const CONTENTS_LIMIT: usize = 128 * 1024 * 1024;
/// The maximum number of records of a run that is read.
const RECORDS_LIMIT: usize = 100_000;

/// A run, as it is exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunExport {
    /// The run's id.
    pub(crate) run: String,
    /// When it was exported.
    pub(crate) exported_at: String,
    /// The version of the `pml` that exported it.
    pub(crate) pml: String,
    /// Whether the whole store was in order then, and its end known.
    pub(crate) verified: bool,
    /// The store's end.
    pub(crate) end: End,
    /// The run's records, in the order of the chain.
    pub(crate) records: Vec<ExportedRecord>,
    /// The large values and the contents of files that the records name, in the order of their hashes.
    pub(crate) contents: Vec<ExportedContent>,
    /// The hashes of those that were left out, in their order.
    pub(crate) absent: Vec<Integrity>,
}

/// The end of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// The store's id.
    pub(crate) store: String,
    /// The number of its last record.
    pub(crate) seq: i64,
    /// The hash of that record.
    pub(crate) hash: Integrity,
}

/// A record with its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportedRecord {
    /// Its number.
    pub(crate) seq: i64,
    /// The hash of the record before it.
    pub(crate) before: Integrity,
    /// Its hash.
    pub(crate) hash: Integrity,
    /// Its text.
    pub(crate) body: String,
}

/// A large value, or the content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportedContent {
    /// The hash of its bytes.
    pub(crate) hash: Integrity,
    /// Its bytes.
    pub(crate) base64: String,
}

/// What an export says, once it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedExport {
    /// When the run began.
    pub(crate) began_at: String,
    /// When it ended, and how; `None` if the export does not have its end.
    pub(crate) ended: Option<(String, Status)>,
    /// The number of calls that were begun or refused.
    pub(crate) calls: usize,
    /// The erasures of its values.
    pub(crate) erasures: Vec<ValuesErased>,
}

impl RunExport {
    /// Reads a run from a store. `None` if its contents are too large for one file.
    pub(super) fn of(
        reader: &Reader,
        run: &str,
        verified: bool,
        with_contents: bool,
    ) -> Result<Option<Self>, StoreError> {
        let Head { store, seq, hash } = reader.end()?.ok_or(StoreError::Closed)?;
        let end = End { store, seq, hash };
        let mut records = Vec::new();
        let mut needed = BTreeMap::new();
        for (Chained { seq, row, hash }, before) in reader.records_of(run)? {
            let record = serde_json::from_str(&row.body).map_err(|error| {
                StoreError::Unfit(format!("has a record that cannot be read: {error}"))
            })?;
            needed.extend(needs(&record));
            let damaged = || StoreError::Unfit(format!("has no valid hash of record {seq}"));
            let hash = Integrity::from_bytes(hash.try_into().map_err(|_| damaged())?);
            let before = Integrity::from_bytes(before.try_into().map_err(|_| damaged())?);
            records.push(ExportedRecord { seq, before, hash, body: row.body });
        }
        let (mut contents, mut absent, mut total) = (Vec::new(), Vec::new(), 0);
        for hash in needed.into_values() {
            match with_contents.then(|| reader.kept(hash)).flatten() {
                Some(bytes) => {
                    total += bytes.len();
                    if total > CONTENTS_LIMIT {
                        return Ok(None);
                    }
                    contents.push(ExportedContent { hash, base64: STANDARD.encode(bytes) });
                }
                None => absent.push(hash),
            }
        }
        Ok(Some(Self {
            run: run.to_owned(),
            exported_at: now(),
            pml: env!("CARGO_PKG_VERSION").to_owned(),
            verified,
            end,
            records,
            contents,
            absent,
        }))
    }

    /// Returns the hash of the texts of its records, each with a line feed.
    pub(crate) fn digest(&self) -> Integrity {
        let lines = self.records.iter().flat_map(|record| [record.body.as_str(), "\n"]);
        Integrity::of(lines.collect::<String>().as_bytes())
    }

    /// Checks that the records are those of one run at their places in one chain, and that the contents are theirs.
    ///
    /// # Errors
    /// Returns what is wrong, as a sentence without its full stop.
    pub(crate) fn check(&self) -> Result<CheckedExport, String> {
        let mut checked =
            CheckedExport { began_at: String::new(), ended: None, calls: 0, erasures: Vec::new() };
        if self.records.len() > RECORDS_LIMIT {
            return Err(format!("the run has more than {RECORDS_LIMIT} records"));
        }
        let erased = self.erased();
        let mut last: Option<&ExportedRecord> = None;
        let mut needed = BTreeMap::new();
        for exported in &self.records {
            let record = self.check_record(exported, last, &erased)?;
            let fault = |reason: &str| format!("record {} {reason}", exported.seq);
            for value in contents(&record) {
                if value.json.is_some() && content::inline(value).is_none() {
                    return Err(fault("has a value that was changed"));
                }
            }
            needed.extend(needs(&record));
            match record {
                Record::RunBegan(began) if last.is_none() => checked.began_at = began.at,
                Record::RunBegan(_) => return Err(fault("begins the run a second time")),
                _ if last.is_none() => return Err(fault("does not begin the run")),
                Record::CallBegan(_) | Record::CallRefused(_) | Record::CallMocked(_) => {
                    checked.calls += 1
                }
                Record::ValuesErased(erasure) => {
                    if erasure.records.iter().any(|erased| erased.seq >= exported.seq) {
                        return Err(fault("erases a record after it"));
                    }
                    checked.erasures.push(erasure);
                }
                Record::RunEnded(ended) => checked.ended = Some((ended.at, ended.status)),
                _ => {}
            }
            last = Some(exported);
        }
        let last = last.ok_or("the run has no record")?;
        let End { seq, hash, .. } = &self.end;
        if *seq < last.seq || (*seq == last.seq && *hash != last.hash) {
            return Err(format!("record {} is not in the store whose end is stated", last.seq));
        }
        self.check_contents(needed)?;
        Ok(checked)
    }

    /// Returns what the export states of erased records.
    fn erased(&self) -> Erased {
        let of_record = |record: &ExportedRecord| match serde_json::from_str(&record.body) {
            Ok(Record::ValuesErased(erasure)) => Some(erasure),
            _ => None,
        };
        self.records.iter().filter_map(of_record).flat_map(stated).collect()
    }

    fn check_record(
        &self,
        exported: &ExportedRecord,
        last: Option<&ExportedRecord>,
        erased: &Erased,
    ) -> Result<Record, String> {
        let ExportedRecord { seq, before, hash, body } = exported;
        let fault = |reason: &str| format!("record {seq} {reason}");
        // The first record of a store is of no run.
        if *seq < 2 || last.is_some_and(|last| last.seq >= *seq) {
            return Err(fault("is not at its place"));
        }
        if last.is_some_and(|last| last.seq + 1 == *seq && last.hash != *before) {
            return Err(fault("does not follow the record before it"));
        }
        let erased = erased.get(seq);
        hash_of(*before, *seq, body, &hash.into_bytes(), erased).map_err(fault)?;
        let record: Record = serde_json::from_str(body)
            .map_err(|error| fault(&format!("is not a record of a run: {error}")))?;
        let row = record.to_row();
        if row.body != *body {
            return Err(fault("is not in canonical form"));
        }
        if erased.is_some() && erase(&mut record.clone()) {
            return Err(fault("was erased, and still has values"));
        }
        match row.run.as_deref() == Some(self.run.as_str()) {
            true => Ok(record),
            false => Err(fault("is of another run")),
        }
    }

    fn check_contents(&self, mut needed: BTreeMap<String, Integrity>) -> Result<(), String> {
        let mut take = |hash: &Integrity, last: &mut Option<String>| {
            let name = hash.to_string();
            let is_next = last.as_ref().is_none_or(|last| *last < name);
            let is_needed = needed.remove(&name).is_some();
            *last = Some(name);
            match is_next && is_needed {
                true => Ok(()),
                false => Err(format!("the content {hash} is not one that its records name")),
            }
        };
        let mut last = None;
        for content in &self.contents {
            take(&content.hash, &mut last)?;
            let bytes = STANDARD.decode(&content.base64).ok();
            if bytes.is_none_or(|bytes| Integrity::of(&bytes) != content.hash) {
                return Err(format!("the content {} was changed", content.hash));
            }
        }
        let mut last = None;
        for hash in &self.absent {
            take(hash, &mut last)?;
        }
        match needed.into_values().next() {
            Some(hash) => Err(format!("the content {hash} is missing")),
            None => Ok(()),
        }
    }
}

/// Returns the hashes of the files that a record names, by their texts.
fn needs(record: &Record) -> BTreeMap<String, Integrity> {
    files(record).into_iter().map(|hash| (hash.to_string(), hash)).collect()
}
