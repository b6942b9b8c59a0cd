//! Reads runs from the store.

use std::path::PathBuf;

use protocol::Integrity;
use rusqlite::{Connection, OptionalExtension as _};

use super::anchor::Head;
use super::chain::{Erased, stated};
use super::database::head;
use super::record::{
    ApprovalGiven, CallBegan, CallEnded, CallMocked, CallRefused, CallRepeated, Content,
    FileChanging, ProgramStarted, REPLAY, Record, ReplayCompared, Row, RunBegan, RunEnded,
    RunResumed, Status, UNDO, ValuesErased,
};
use super::{StoreError, content};

/// The store, opened for reading.
pub(crate) struct Reader {
    pub(super) database: Connection,
    folder: PathBuf,
}

/// A record with its place in the chain.
pub(super) struct Chained {
    pub(super) seq: i64,
    pub(super) row: Row,
    pub(super) hash: Vec<u8>,
}

/// A record of a run as it is stored, with its place in the chain.
pub(crate) struct Link {
    /// Its number.
    pub(crate) seq: i64,
    /// The hash of the record before it, which may be of another run.
    pub(crate) before: Integrity,
    /// Its canonical JSON text.
    pub(crate) body: String,
    /// Its hash, over the hash before it, its number in 8 bytes, the highest first, and its text.
    pub(crate) hash: Integrity,
}

/// A run, from its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its start.
    pub(crate) began: RunBegan,
    /// The start of its program; `None` if it did not start.
    pub(crate) started: Option<ProgramStarted>,
    /// Its calls, in the order in which they began.
    pub(crate) calls: Vec<Call>,
    /// The changes of files that its calls began, in their order.
    pub(crate) changes: Vec<FileChanging>,
    /// The questions that were answered.
    pub(crate) approvals: Vec<ApprovalGiven>,
    /// The calls that have answers, in the order of the answers.
    pub(crate) answered: Vec<String>,
    /// Its resumptions.
    pub(crate) resumed: Vec<RunResumed>,
    /// The erasures of its values.
    pub(crate) erasures: Vec<ValuesErased>,
    /// For a replay: how it compares with the run that it replays.
    pub(crate) compared: Option<ReplayCompared>,
    /// Its end; `None` while it runs, and for a run whose `pml` was killed.
    pub(crate) ended: Option<RunEnded>,
    /// Without an end: whether its process is gone; `None` if that is not known. The records do not say.
    pub(crate) is_stopped: Option<bool>,
}

/// A call of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// It was made.
    Made(Box<MadeCall>),
    /// It was not made.
    Refused(Box<CallRefused>),
    /// It was not made, and got the answer of a call of another run.
    Mocked(Box<CallMocked>),
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MadeCall {
    /// Its start.
    pub(crate) began: CallBegan,
    /// Its repetitions, in a run that was resumed.
    pub(crate) repeated: Vec<CallRepeated>,
    /// The number of changes in the run before each repetition.
    pub(crate) attempts: Vec<usize>,
    /// Its end. Without one, the call may have happened or not.
    pub(crate) ended: Option<CallEnded>,
}

impl Run {
    /// Returns a run with only its start.
    pub(crate) fn of(began: RunBegan) -> Self {
        Self {
            began,
            started: None,
            calls: Vec::new(),
            changes: Vec::new(),
            approvals: Vec::new(),
            answered: Vec::new(),
            resumed: Vec::new(),
            erasures: Vec::new(),
            compared: None,
            ended: None,
            is_stopped: None,
        }
    }

    /// Returns a call that was made.
    fn made(&mut self, name: &str) -> Option<&mut MadeCall> {
        self.calls.iter_mut().rev().find_map(|call| match call {
            Call::Made(made) if made.began.call == name => Some(&mut **made),
            _ => None,
        })
    }

    /// Returns the number of changes before each repetition of a call.
    pub(crate) fn attempts(&self, name: &str) -> &[usize] {
        let made = self.calls.iter().rev().find_map(|call| match call {
            Call::Made(made) if made.began.call == name => Some(&*made.attempts),
            _ => None,
        });
        made.unwrap_or_default()
    }

    /// Returns its status, as in the view `runs`, which does not know that a run is stopped.
    pub(crate) fn status(&self) -> &'static str {
        match self.ended.as_ref().map(|ended| ended.status) {
            Some(Status::Success) => "completed",
            Some(Status::Error) => "failed",
            None if self.is_stopped == Some(true) => "stopped",
            None => "running",
        }
    }

    /// Returns the tools that it called or tried to call, each once, in the order of the first calls.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let mut tools = Vec::new();
        for call in &self.calls {
            let tool = match call {
                Call::Made(made) => made.began.tool.as_str(),
                Call::Refused(refused) => refused.tool.as_str(),
                Call::Mocked(mocked) => mocked.tool.as_str(),
            };
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
        tools
    }
}

impl Call {
    /// Returns its status, as in the view `tool_results`. A call without an end may have taken effect or not.
    pub(crate) fn status(&self) -> &'static str {
        let made = match self {
            Self::Made(made) => made,
            Self::Refused(_) => return "denied",
            Self::Mocked(_) => return "mocked",
        };
        match made.ended.as_ref().map(|ended| ended.status) {
            None => "indeterminate",
            Some(Status::Success) => "success",
            Some(Status::Error) => "error",
        }
    }
}

impl Reader {
    pub(super) fn new(database: Connection, folder: PathBuf) -> Self {
        Self { database, folder }
    }

    /// Returns the last runs, the newest first.
    pub(crate) fn last(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT run_id FROM records WHERE type = 'run_began' ORDER BY seq DESC LIMIT ?1",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let ids = statement.query_map([limit], |row| row.get::<_, String>(0))?;
        let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
        ids.iter().filter_map(|id| self.run(id).transpose()).collect()
    }

    /// Returns the last run that is not a replay.
    pub(crate) fn last_run(&self) -> Result<Option<Run>, StoreError> {
        let last = "SELECT run_id FROM records
             WHERE type = 'run_began' AND body ->> '$.mode' <> ?1 ORDER BY seq DESC LIMIT 1";
        let id = self.database.query_row(last, [REPLAY], |row| row.get::<_, String>(0));
        id.optional()?.map_or(Ok(None), |id| self.run(&id))
    }

    /// Returns the ids of the runs whose id begins with a text; at most two.
    pub(crate) fn ids(&self, start: &str) -> Result<Vec<String>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT run_id FROM records
             WHERE type = 'run_began' AND substr(run_id, 1, length(?1)) = ?1
             ORDER BY seq DESC LIMIT 2",
        )?;
        let ids = statement.query_map([start], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Returns the number of a run's first record.
    pub(crate) fn first_record(&self, run: &str) -> Result<Option<i64>, StoreError> {
        let first = "SELECT min(seq) FROM records WHERE run_id = ?1";
        Ok(self.database.query_row(first, [run], |row| row.get(0))?)
    }

    /// Returns the id of the store; `None` if it is empty.
    pub(crate) fn store(&self) -> Result<Option<String>, StoreError> {
        let first = "SELECT body ->> '$.store' FROM records WHERE seq = 1";
        Ok(self.database.query_row(first, [], |row| row.get(0)).optional()?.flatten())
    }

    /// Returns the number of the last record before which some may not be this user's; 0 if all are.
    pub(crate) fn last_foreign(&self) -> Result<i64, StoreError> {
        let last = "SELECT ifnull(max(seq), 0) FROM records
             WHERE type IN ('store_adopted', 'end_differed')";
        Ok(self.database.query_row(last, [], |row| row.get(0))?)
    }

    /// Returns the runs whose ends are behind a record, in the order of their ends, each with the number of that record;
    /// at most `limit`.
    pub(crate) fn ended_after(
        &self,
        seq: i64,
        limit: u32,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let mut statement = self.database.prepare_cached(
            "SELECT seq, run_id FROM records WHERE type = 'run_ended' AND seq > ?1
             ORDER BY seq LIMIT ?2",
        )?;
        let ended = statement.query_map((seq, limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(ended.collect::<Result<_, _>>()?)
    }

    /// Returns the records of a run, in their order.
    pub(crate) fn links(&self, run: &str) -> Result<Vec<Link>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT record.seq, coalesce(prior.hash, zeroblob(32)), record.body, record.hash
             FROM records AS record LEFT JOIN records AS prior ON prior.seq = record.seq - 1
             WHERE record.run_id = ?1 ORDER BY record.seq",
        )?;
        let mut rows = statement.query([run])?;
        let mut links = Vec::new();
        // A hash of another length is not that of the record, which is found out where it is compared.
        let hash = |bytes: Vec<u8>| Integrity::from_bytes(bytes.try_into().unwrap_or([0; 32]));
        while let Some(row) = rows.next()? {
            let (seq, body) = (row.get(0)?, row.get(2)?);
            let (before, hash) = (hash(row.get(1)?), hash(row.get(3)?));
            links.push(Link { seq, before, body, hash });
        }
        Ok(links)
    }

    /// Returns how often each tool was called in the last records, at most `records` of them, by the names in the calls.
    pub(crate) fn calls_by_tool(&self, records: u32) -> Result<Vec<(String, i64)>, StoreError> {
        // The records are not indexed by their type, so a long store is not searched as a whole.
        let mut statement = self.database.prepare(
            "SELECT body ->> '$.tool', count(*) FROM records
             WHERE type = 'call_began' AND seq > (SELECT max(seq) FROM records) - ?1
             GROUP BY 1",
        )?;
        let counted = statement.query_map([records], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(counted.collect::<Result<_, _>>()?)
    }

    /// Returns the runs that put back what other runs changed, in their order, each with the id of the other one.
    pub(crate) fn undo_runs(&self) -> Result<Vec<(String, Run)>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT run_id FROM records
             WHERE type = 'run_began' AND body ->> '$.mode' = ?1 ORDER BY seq",
        )?;
        let ids = statement.query_map([UNDO], |row| row.get::<_, String>(0))?;
        let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
        let mut runs = Vec::new();
        for id in ids {
            let Some(run) = self.run(&id)? else { continue };
            let args = self.content(&run.began.args);
            let args = args.and_then(|args| serde_json::from_str::<serde_json::Value>(&args).ok());
            if let Some(of) = args.as_ref().and_then(|args| args["run"].as_str()) {
                runs.push((of.to_owned(), run));
            }
        }
        Ok(runs)
    }

    /// Returns a run; `None` if there is none with this id.
    pub(crate) fn run(&self, id: &str) -> Result<Option<Run>, StoreError> {
        let mut statement = self
            .database
            .prepare_cached("SELECT body FROM records WHERE run_id = ?1 ORDER BY seq")?;
        let bodies = statement.query_map([id], |row| row.get::<_, String>(0))?;
        let mut run: Option<Run> = None;
        for body in bodies {
            let record = serde_json::from_str(&body?).map_err(|error| {
                StoreError::Unfit(format!("has a record that cannot be read: {error}"))
            })?;
            match (record, &mut run) {
                (Record::RunBegan(began), None) => {
                    run = Some(Run::of(began));
                }
                (Record::CallBegan(began), Some(run)) => {
                    let made =
                        MadeCall { began, repeated: Vec::new(), attempts: Vec::new(), ended: None };
                    run.calls.push(Call::Made(Box::new(made)));
                }
                (Record::CallRefused(refused), Some(run)) => {
                    run.answered.push(refused.call.clone());
                    run.calls.push(Call::Refused(Box::new(refused)));
                }
                (Record::CallMocked(mocked), Some(run)) => {
                    run.answered.push(mocked.call.clone());
                    run.calls.push(Call::Mocked(Box::new(mocked)));
                }
                (Record::CallRepeated(repetition), Some(run)) => {
                    let changes = run.changes.len();
                    if let Some(made) = run.made(&repetition.call) {
                        made.repeated.push(repetition);
                        made.attempts.push(changes);
                    }
                }
                (Record::CallEnded(end), Some(run)) => {
                    if let Some(made) = run.made(&end.call) {
                        made.ended = Some(end.clone());
                        run.answered.push(end.call);
                    }
                }
                (Record::ProgramStarted(started), Some(run)) => run.started = Some(started),
                (Record::RunResumed(resumed), Some(run)) => run.resumed.push(resumed),
                (Record::FileChanging(change), Some(run)) => run.changes.push(change),
                (Record::Approval(approval), Some(run)) => run.approvals.push(approval),
                (Record::ValuesErased(erasure), Some(run)) => run.erasures.push(erasure),
                (Record::ReplayCompared(compared), Some(run)) => run.compared = Some(compared),
                (Record::RunEnded(ended), Some(run)) => run.ended = Some(ended),
                // `verify` reports records that are out of order.
                (_, _) => {}
            }
        }
        Ok(run)
    }

    /// Returns the JSON text of a value, if it is there and has its hash.
    pub(crate) fn content(&self, content: &Content) -> Option<String> {
        content::read(&self.folder, content)
    }

    /// Returns the content of a file that a call replaced or removed, if it is there and has its hash.
    pub(crate) fn kept(&self, hash: Integrity) -> Option<Vec<u8>> {
        content::kept(&self.folder, hash)
    }

    /// Returns the path of such a content.
    pub(super) fn kept_path(&self, hash: Integrity) -> PathBuf {
        content::path(&self.folder, hash)
    }

    /// Returns the file of a large value.
    pub(super) fn content_path(&self, content: &Content) -> Option<PathBuf> {
        content.json.is_none().then(|| content::path(&self.folder, content.hash))
    }

    /// Returns what is wrong with the file itself, as the rest of a sentence: its pages, its indexes, or what is in it
    /// beside the records.
    pub(super) fn fault_of_file(&self) -> Option<String> {
        let checked: Result<String, _> =
            self.database.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
        match checked {
            Ok(result) if result == "ok" => super::database::check(&self.database).err(),
            Ok(result) => return Some(format!("is damaged: {result}")),
            Err(error) => return Some(format!("is damaged: {error}")),
        }
        .map(|error| match error {
            StoreError::Unfit(reason) => reason,
            error => error.to_string(),
        })
    }

    /// Returns the end of the store; `None` if it has no records.
    pub(super) fn end(&self) -> Result<Option<Head>, StoreError> {
        Ok(head(&self.database)?)
    }

    /// Returns the records of a run in their order, each with the hash before it.
    pub(super) fn records_of(&self, run: &str) -> Result<Vec<(Chained, Vec<u8>)>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT seq, body, hash, run_id, type,
                coalesce((SELECT hash FROM records AS before WHERE before.seq = this.seq - 1), x'')
             FROM records AS this WHERE run_id = ?1 ORDER BY seq",
        )?;
        let rows = statement.query_map([run], |row| Ok((chained(row)?, row.get(5)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns what the store states of erased records. Nothing of it is verified.
    pub(super) fn erased(&self) -> Result<Erased, StoreError> {
        let mut statement =
            self.database.prepare("SELECT body FROM records WHERE type = 'values_erased'")?;
        let mut rows = statement.query([])?;
        let mut erased = Erased::new();
        while let Some(row) = rows.next()? {
            // A record that cannot be read is reported when it is verified.
            let body: String = row.get(0)?;
            if let Ok(Record::ValuesErased(erasure)) = serde_json::from_str(&body) {
                erased.extend(stated(erasure));
            }
        }
        Ok(erased)
    }

    /// Begins to read one state of the store, whatever is written from now on.
    pub(super) fn begin(&self) -> Result<(), StoreError> {
        self.database.execute_batch("BEGIN")?;
        Ok(())
    }

    /// Visits all records in the order of their numbers, until `visit` returns `false`.
    pub(super) fn each_record(
        &self,
        mut visit: impl FnMut(Chained) -> bool,
    ) -> Result<(), StoreError> {
        let mut statement = self
            .database
            .prepare("SELECT seq, body, hash, run_id, type FROM records ORDER BY seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if !visit(chained(row)?) {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a record from its columns: the number, the text, the hash, the run and the type.
fn chained(row: &rusqlite::Row<'_>) -> Result<Chained, rusqlite::Error> {
    // The type of a damaged record of the first version can be missing.
    let kind: Option<String> = row.get(4)?;
    let stored = Row { body: row.get(1)?, run: row.get(3)?, kind: kind.unwrap_or_default() };
    Ok(Chained { seq: row.get(0)?, row: stored, hash: row.get(2)? })
}
