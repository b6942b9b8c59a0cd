//! Verifies the chain of records, the files of large values and the end of the store.

use protocol::Integrity;

use super::StoreError;
use super::anchor::{Anchor, Head, Known};
use super::reader::{Reader, Row};
use super::record::{Content, EndDiffered, Record};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The number of records whose chain is intact, from the first one.
    pub(crate) records: i64,
    /// The number of runs among them.
    pub(crate) runs: usize,
    /// Whether the end is known: `pml` remembers the last record that it wrote here.
    pub(crate) is_end_known: bool,
    /// The stores that were at the same place before, as an id and the number of the last record.
    pub(crate) earlier: Vec<String>,
    /// The faults, in the order of their records. A broken chain is the last one: what follows it proves nothing.
    pub(crate) faults: Vec<Fault>,
}

/// A fault of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The number of the record; `None` for a fault of the file.
    pub(crate) seq: Option<i64>,
    /// The fault, as the rest of a sentence about the record or the file.
    pub(crate) reason: String,
}

impl Fault {
    fn at(seq: i64, reason: impl Into<String>) -> Self {
        Self { seq: Some(seq), reason: reason.into() }
    }
}

/// Returns the hash of a record: it covers the hash before it, the record's number and its text.
pub(super) fn chained(before: &[u8; 32], seq: i64, body: &str) -> [u8; 32] {
    let mut bytes = Vec::with_capacity(40 + body.len());
    bytes.extend_from_slice(before);
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(body.as_bytes());
    Integrity::of(&bytes).into_bytes()
}

/// Verifies a store. `anchor` is read again after the records: `pml` may append while they are read.
pub(super) fn verify(reader: &Reader, anchor: Option<&Anchor>) -> Result<Verified, StoreError> {
    let known = || anchor.map_or_else(|| Ok(Known::default()), Anchor::read);
    let before = known()?;
    let mut state = State::default();
    let read = reader.each_record(|row| match state.add(reader, &row) {
        Ok(()) => true,
        Err(fault) => {
            state.faults.push(fault);
            state.is_broken = true;
            false
        }
    });
    let next = state.records + 1;
    match read {
        // SQLite cannot read on.
        Err(StoreError::Database(error)) if !state.is_broken => {
            state.faults.push(Fault::at(next, format!("cannot be read: {error}")));
            state.is_broken = true;
        }
        Err(error) if !state.is_broken => return Err(error),
        _ => {}
    }
    let after = known()?;
    if !state.is_broken {
        let end = Head { store: state.store.clone(), seq: state.records, hash: state.hash };
        // The reading saw a state of the database between the two readings of the file.
        let is_empty = state.records == 0 && before.last().is_none();
        let is_right = is_empty
            || before.ends.is_none() && after.ends.is_none()
            || before.allows(&end)
            || after.allows(&end)
            || is_between(&state, &before, &after);
        if !is_right && let Some((_, last)) = &before.ends {
            state.faults.push(end_fault(&state, last));
        }
        if let Some(reason) = reader.fault_of_file() {
            state.faults.push(Fault { seq: None, reason });
        }
    }
    Ok(Verified {
        records: state.records,
        runs: state.runs,
        is_end_known: after.ends.is_some(),
        earlier: state.earlier,
        faults: state.faults,
    })
}

/// Returns whether `pml` has appended so much while the records were read that their end is neither of the two known
/// ones.
fn is_between(state: &State, before: &Known, after: &Known) -> bool {
    let (Some((first, _)), Some((_, last))) = (&before.ends, &after.ends) else { return false };
    before != after
        && first.store == state.store
        && last.store == state.store
        && (first.seq..=last.seq).contains(&state.records)
        && (first.seq == 0 || state.hash_of(first.seq) == Some(first.hash))
}

/// Returns the fault of a store that does not end with the record that `pml` last wrote.
fn end_fault(state: &State, last: &Head) -> Fault {
    let next = state.records + 1;
    if last.store != state.store {
        Fault::at(1, "begins another store than the one that `pml` last wrote here")
    } else if state.records < last.seq {
        Fault::at(next, missing(next, last.seq))
    } else if state.hash_of(last.seq) == Some(last.hash) {
        Fault::at(last.seq + 1, "was not written by `pml`")
    } else {
        Fault::at(last.seq, "is not the record that `pml` wrote")
    }
}

/// Returns the result for a store whose file is gone.
pub(super) fn gone(end: &Head) -> Verified {
    let faults = vec![Fault::at(1, missing(1, end.seq))];
    Verified { is_end_known: true, faults, ..Verified::default() }
}

fn missing(from: i64, last: i64) -> String {
    match last > from {
        true => format!("is missing, like all records up to {last}"),
        false => "is missing".to_owned(),
    }
}

/// What the records so far say.
#[derive(Default)]
struct State {
    store: String,
    hash: [u8; 32],
    /// The hashes of all records so far.
    hashes: Vec<[u8; 32]>,
    records: i64,
    runs: usize,
    earlier: Vec<String>,
    faults: Vec<Fault>,
    is_broken: bool,
}

impl State {
    fn hash_of(&self, seq: i64) -> Option<[u8; 32]> {
        let at = usize::try_from(seq - 1).ok()?;
        self.hashes.get(at).copied()
    }

    fn add(&mut self, reader: &Reader, row: &Row) -> Result<(), Fault> {
        let next = self.records + 1;
        if row.seq != next {
            return Err(match row.seq > next {
                true => Fault::at(next, missing(next, row.seq - 1)),
                false => Fault::at(row.seq, "has an invalid number"),
            });
        }
        let fault = |reason: &str| Fault::at(row.seq, reason);
        let hash = chained(&self.hash, row.seq, &row.body);
        if row.hash != hash {
            return Err(fault("was changed, inserted or moved: its hash does not match"));
        }
        let record: Record = serde_json::from_str(&row.body)
            .map_err(|error| fault(&format!("is not a record of a run: {error}")))?;
        if record.to_text() != row.body {
            return Err(fault("is not in canonical form"));
        }
        match &record {
            Record::StoreBegan(began) if row.seq == 1 => {
                self.store.clone_from(&began.store);
                self.earlier.clone_from(&began.after);
            }
            Record::StoreBegan(_) => return Err(fault("begins the store a second time")),
            _ if row.seq == 1 => return Err(fault("does not begin the store")),
            Record::EndDiffered(differed) => {
                let fault = end_differed(differed);
                self.faults.push(fault);
            }
            Record::RunBegan(_) => self.runs += 1,
            _ => {}
        }
        for content in contents(&record) {
            if reader.content(content).is_none() {
                let path = reader.content_path(content);
                let path = path.map_or_else(String::new, |path| format!(": `{}`", path.display()));
                return Err(fault(&format!("has a value that is missing or was changed{path}")));
            }
        }
        (self.hash, self.records) = (hash, row.seq);
        self.hashes.push(hash);
        Ok(())
    }
}

/// Returns the fault that was noticed when the store was used.
fn end_differed(differed: &EndDiffered) -> Fault {
    let EndDiffered { at, last, found, store } = differed;
    match store {
        Some(_) => {
            let what = "begins another store than the one that `pml` had written here";
            Fault::at(1, format!("{what}; noticed at {at}"))
        }
        None if found < last => {
            Fault::at(found + 1, format!("{}; noticed at {at}", missing(found + 1, *last)))
        }
        None if found > last => {
            Fault::at(last + 1, format!("was not written by `pml`; noticed at {at}"))
        }
        None => Fault::at(*last, format!("was not the record that `pml` wrote; noticed at {at}")),
    }
}

/// Returns the values of a record.
fn contents(record: &Record) -> Vec<&Content> {
    match record {
        Record::StoreBegan(_) | Record::StoreAdopted(_) | Record::EndDiffered(_) => Vec::new(),
        Record::RunBegan(run) => vec![&run.code, &run.args, &run.plan, &run.policy],
        Record::CallBegan(call) => vec![&call.args],
        Record::CallRefused(call) => vec![&call.args],
        Record::CallEnded(call) => call.output.iter().collect(),
        Record::Approval(approval) => vec![&approval.args],
        Record::RunEnded(run) => run.output.iter().collect(),
    }
}
