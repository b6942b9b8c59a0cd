//! Verifies the chain of records, the files of large values and the end of the store.

use protocol::Integrity;

use super::StoreError;
use super::anchor::{Head, Known};
use super::chain::{Erased, hash_of};
use super::reader::{Chained, Reader};
use super::record::{EndDiffered, FileChanging, Record, ValuesErased};
use super::values::{contents, erase};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The number of records whose chain is intact, from the first one.
    pub(crate) records: i64,
    /// The number of runs among them.
    pub(crate) runs: usize,
    /// Whether the end is known: `pml` remembers the last record that it wrote here.
    pub(crate) is_end_known: bool,
    /// The number of the last record before which the records are not this user's: the store was copied here.
    pub(crate) adopted: Option<i64>,
    /// The stores that were at the same place before, as an id and the number of the last record.
    pub(crate) earlier: Vec<String>,
    /// The erasures, in their order.
    pub(crate) erasures: Vec<ValuesErased>,
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

/// Verifies a store; `known` is what its end was when the reader's view of it began.
pub(super) fn verify(reader: &Reader, known: &Known) -> Result<Verified, StoreError> {
    let mut state = State { erased: reader.erased()?, ..State::default() };
    let mut broken = None;
    let read = reader.each_record(|next| {
        broken = state.add(reader, &next).err();
        broken.is_none()
    });
    match read {
        // SQLite cannot read on.
        Err(StoreError::Database(error)) => {
            broken = Some(Fault::at(state.records() + 1, format!("cannot be read: {error}")));
        }
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    let (records, mut faults) = (state.records(), std::mem::take(&mut state.faults));
    match broken {
        Some(fault) => faults.push(fault),
        None => {
            faults.extend(end_fault(&state, known));
            let reason = reader.fault_of_file();
            faults.extend(reason.map(|reason| Fault { seq: None, reason }));
        }
    }
    let State { runs, adopted, earlier, erasures, .. } = state;
    let is_end_known = known.ends.is_some();
    Ok(Verified { records, runs, is_end_known, adopted, earlier, erasures, faults })
}

/// Returns the fault of a store that does not end with the record that `pml` last wrote.
fn end_fault(state: &State, known: &Known) -> Option<Fault> {
    // Without a last record, `pml` has not written here, or not yet.
    let last = known.last()?;
    let (records, store) = (state.records(), state.store.clone());
    if known.allows(&Head { store, seq: records, hash: state.hash() }) {
        return None;
    }
    Some(if last.store != state.store {
        Fault::at(1, "begins another store than the one that `pml` last wrote here")
    } else if records < last.seq {
        Fault::at(records + 1, missing(records + 1, last.seq))
    } else if state.hash_of(last.seq) == Some(last.hash) {
        Fault::at(last.seq + 1, "was not written by `pml`")
    } else {
        Fault::at(last.seq, "is not the record that `pml` wrote")
    })
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
    /// Their hashes.
    hashes: Vec<Integrity>,
    runs: usize,
    adopted: Option<i64>,
    earlier: Vec<String>,
    /// The records that were erased, by number, as later records say. Each of these is verified in its turn.
    erased: Erased,
    erasures: Vec<ValuesErased>,
    /// What was noticed when the store was used.
    faults: Vec<Fault>,
}

impl State {
    fn records(&self) -> i64 {
        i64::try_from(self.hashes.len()).unwrap_or(i64::MAX)
    }

    /// Returns the hash of the last record.
    fn hash(&self) -> Integrity {
        self.hashes.last().copied().unwrap_or_else(|| Integrity::from_bytes([0; 32]))
    }

    fn hash_of(&self, seq: i64) -> Option<Integrity> {
        self.hashes.get(usize::try_from(seq - 1).ok()?).copied()
    }

    fn add(&mut self, reader: &Reader, found: &Chained) -> Result<(), Fault> {
        let Chained { seq, row, hash: its_hash } = found;
        let (seq, next) = (*seq, self.records() + 1);
        if seq != next {
            return Err(match seq > next {
                true => Fault::at(next, missing(next, seq - 1)),
                false => Fault::at(seq, "has an invalid number"),
            });
        }
        let fault = |reason: &str| Fault::at(seq, reason);
        let erased = self.erased.get(&seq);
        let hash = hash_of(self.hash(), seq, &row.body, its_hash, erased).map_err(fault)?;
        let record: Record = serde_json::from_str(&row.body)
            .map_err(|error| fault(&format!("is not a record of a run: {error}")))?;
        if erased.is_some_and(|(run, _)| row.run.as_ref() != Some(run))
            || (erased.is_some() && erase(&mut record.clone()))
        {
            return Err(fault("was erased, and still has values"));
        }
        let expected = record.to_row();
        if expected.body != row.body {
            return Err(fault("is not in canonical form"));
        }
        // They decide where the record is found.
        if expected != *row {
            return Err(fault("was changed: its run or its type is not that of its text"));
        }
        match &record {
            Record::StoreBegan(began) if seq == 1 => {
                self.store.clone_from(&began.store);
                self.earlier.clone_from(&began.after);
            }
            Record::StoreBegan(_) => return Err(fault("begins the store a second time")),
            _ if seq == 1 => return Err(fault("does not begin the store")),
            Record::EndDiffered(differed) => self.faults.push(end_differed(differed)),
            Record::StoreAdopted(_) => self.adopted = Some(seq),
            Record::RunBegan(_) => self.runs += 1,
            Record::ValuesErased(erasure) => {
                if erasure.records.iter().any(|erased| erased.seq >= seq) {
                    return Err(fault("erases a record after it"));
                }
                self.erasures.push(erasure.clone());
            }
            _ => {}
        }
        for content in contents(&record).into_iter().filter(|content| !content.erased) {
            if reader.content(content).is_none() {
                let path = reader.content_path(content);
                let path = path.map_or_else(String::new, |path| format!(": `{}`", path.display()));
                return Err(fault(&format!("has a value that is missing or was changed{path}")));
            }
        }
        if let Record::FileChanging(FileChanging { change, .. }) = &record
            && let Some(kept) = change.before()
            && let Some(hash) = kept.hash
            && reader.kept(hash).is_none()
        {
            let path = reader.kept_path(hash);
            let what = "has a file content that is missing or was changed";
            return Err(fault(&format!("{what}: `{}`", path.display())));
        }
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
