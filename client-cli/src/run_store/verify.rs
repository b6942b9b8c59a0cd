//! Verifies the chain of records, the files of large values and the end of the store.

use protocol::Integrity;

use super::StoreError;
use super::anchor::Head;
use super::reader::{Reader, Row};
use super::record::{Content, Record};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The number of records that are in order, from the first one.
    pub(crate) records: i64,
    /// The number of runs among them.
    pub(crate) runs: usize,
    /// Whether the end is known: `pml` remembers the last record that it wrote here.
    pub(crate) is_end_known: bool,
    /// The last record of the store that was at the same place before, as an id and a number.
    pub(crate) after: Option<String>,
    /// The first fault.
    pub(crate) fault: Option<Fault>,
}

/// The first fault of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The number of the record; `None` for a fault of the file, whose records are all in order.
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

/// Verifies a store. `end` is the end that `pml` stored before the store was opened: `pml` may append while its records
/// are read.
pub(super) fn verify(reader: &Reader, end: Option<&Head>) -> Result<Verified, StoreError> {
    let mut state = State::default();
    let mut end_hash = None;
    let mut fault = None;
    let read = reader.each_record(|row| {
        fault = state.add(reader, &row).err();
        if fault.is_none() && end.is_some_and(|end| end.seq == row.seq) {
            end_hash = Some(state.hash);
        }
        fault.is_none()
    });
    let next = state.records + 1;
    let fault = match (fault, read) {
        (Some(fault), _) => Some(fault),
        // SQLite cannot read on.
        (None, Err(StoreError::Database(error))) => {
            Some(Fault::at(next, format!("cannot be read: {error}")))
        }
        (None, Err(error)) => return Err(error),
        (None, Ok(())) => match end {
            Some(end) if end.store != state.store => {
                let reason = "begins another store than the one that `pml` last wrote here";
                Some(Fault::at(1, reason))
            }
            Some(end) if end_hash.is_none() => Some(Fault::at(next, missing(next, end.seq))),
            Some(end) if end_hash != Some(end.hash) => {
                Some(Fault::at(end.seq, "is not the record that `pml` wrote"))
            }
            _ => reader.fault_of_file().map(|reason| Fault { seq: None, reason }),
        },
    };
    Ok(Verified {
        records: state.records,
        runs: state.runs,
        is_end_known: end.is_some(),
        after: state.after,
        fault,
    })
}

/// Returns the result for a store whose file is gone.
pub(super) fn gone(end: &Head) -> Verified {
    let fault = Some(Fault::at(1, missing(1, end.seq)));
    Verified { is_end_known: true, fault, ..Verified::default() }
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
    records: i64,
    runs: usize,
    after: Option<String>,
}

impl State {
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
                self.after.clone_from(&began.after);
            }
            Record::StoreBegan(_) => return Err(fault("begins the store a second time")),
            _ if row.seq == 1 => return Err(fault("does not begin the store")),
            Record::RecordsLost(lost) => {
                return Err(match &lost.store {
                    Some(_) => Fault::at(
                        1,
                        format!(
                            "begins another store than the one that `pml` had written here before {}",
                            lost.at
                        ),
                    ),
                    None if lost.last < row.seq => Fault::at(
                        lost.last,
                        format!("is not the record that `pml` had written here before {}", lost.at),
                    ),
                    None => Fault::at(
                        row.seq,
                        format!("{}; noticed at {}", missing(row.seq, lost.last), lost.at),
                    ),
                });
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
        Ok(())
    }
}

/// Returns the values of a record.
fn contents(record: &Record) -> Vec<&Content> {
    match record {
        Record::StoreBegan(_) | Record::RecordsLost(_) => Vec::new(),
        Record::RunBegan(run) => vec![&run.code, &run.args, &run.plan, &run.policy],
        Record::CallBegan(call) => vec![&call.args],
        Record::CallRefused(call) => vec![&call.args],
        Record::CallEnded(call) => call.output.iter().collect(),
        Record::Approval(approval) => vec![&approval.args],
        Record::RunEnded(run) => run.output.iter().collect(),
    }
}
