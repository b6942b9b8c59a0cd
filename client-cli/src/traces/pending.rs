//! The traces that have not been acknowledged yet.

use std::io;
use std::path::Path;

use protocol::{ErrorBody, RunTrace, TRACE_EVENTS, TRACE_RUNS, TraceBatch, TraceEvent};
use serde::{Deserialize, Serialize};

use super::projection::trace_of;
use crate::files::records::RecordFile;
use crate::run_store::RunStore;
use crate::run_store::reader::Reader;
use crate::workspace::Workspace;

/// The folder of the files that say what was sent, among the user's records.
const FOLDER: &str = "traces";
/// The runs that are read at once.
const RUNS: u32 = 50;
/// The JSON text of the runs of one batch, in bytes; a single event may have more.
const BATCH_BYTES: usize = 512 * 1024;

/// Up to where one gateway has acknowledged the traces of a project.
pub(super) struct Sent {
    file: RecordFile,
    origin: String,
}

/// A place in a run store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The store.
    store: String,
    /// The number of a record.
    seq: i64,
}

/// Some traces, in the order in which their runs ended.
pub(super) struct Pending {
    /// What is to be sent, in this order. Empty if the runs before `end` have no traces for this gateway.
    pub(super) batches: Vec<TraceBatch>,
    /// The end of the last of these runs.
    pub(super) end: Place,
}

impl Sent {
    /// Returns the place for a gateway's origin; `records` is the folder of the user's own records.
    pub(super) fn of(records: &Path, root: &Path, origin: &str) -> Self {
        // Neither a path nor an origin contains NUL.
        let of = format!("{}\0{origin}", root.display());
        Self { file: RecordFile::new(records, FOLDER, &of, 1024), origin: origin.to_owned() }
    }

    /// Stores that everything up to a place was acknowledged.
    ///
    /// # Errors
    /// Returns why it was not stored: then it is sent again.
    pub(super) fn write(&self, place: &Place) -> Result<(), io::Error> {
        self.file.write(&serde_json::to_vec(place)?)
    }

    fn read(&self) -> Option<Place> {
        serde_json::from_slice(&self.file.read()?).ok()
    }

    /// Returns the store of a workspace with the place up to which nothing is to be sent; `None` without a store.
    fn open(&self, workspace: &Workspace) -> Result<Option<(Reader, Place)>, ErrorBody> {
        let Some(reader) = RunStore::reader(workspace).map_err(|error| error.body())? else {
            return Ok(None);
        };
        let Some(store) = reader.store().map_err(|error| error.body())? else { return Ok(None) };
        let sent = self.read().filter(|place| place.store == store).map_or(0, |place| place.seq);
        // A repository may contain a store: its records are not this user's.
        let foreign = reader.last_foreign().map_err(|error| error.body())?;
        Ok(Some((reader, Place { store, seq: sent.max(foreign) })))
    }
}

impl Pending {
    /// Returns the next traces to send; `None` if there are none.
    ///
    /// # Errors
    /// Returns why the record of runs cannot be read.
    pub(super) fn read(workspace: &Workspace, sent: &Sent) -> Result<Option<Self>, ErrorBody> {
        let Some((reader, mut end)) = sent.open(workspace)? else { return Ok(None) };
        let ended = reader.ended_after(end.seq, RUNS).map_err(|error| error.body())?;
        if ended.is_empty() {
            return Ok(None);
        }
        let mut batches = Batches::default();
        for (seq, run) in ended {
            end.seq = seq;
            if let Some(trace) = trace_for(&reader, &run, &sent.origin)? {
                batches.add(trace);
            }
            // A run may have megabytes of values.
            if batches.full.len() > 1 {
                break;
            }
        }
        Ok(Some(Self { batches: batches.finish(), end }))
    }

    /// Returns the number of runs whose traces are to be sent.
    ///
    /// # Errors
    /// Returns why the record of runs cannot be read.
    pub(super) fn count(workspace: &Workspace, sent: &Sent) -> Result<usize, ErrorBody> {
        let Some((reader, place)) = sent.open(workspace)? else { return Ok(0) };
        let ended = reader.ended_after(place.seq, 10_000).map_err(|error| error.body())?;
        let mut count = 0;
        for (_, run) in ended {
            let run = reader.run(&run).map_err(|error| error.body())?;
            let target = run.as_ref().and_then(|run| run.began.trace.as_ref());
            count += usize::from(target.is_some_and(|target| target.gateway == sent.origin));
        }
        Ok(count)
    }
}

/// Returns the trace of a run if it is for this gateway.
fn trace_for(reader: &Reader, run: &str, origin: &str) -> Result<Option<RunTrace>, ErrorBody> {
    let run = reader.run(run).map_err(|error| error.body())?;
    let Some(run) = run else { return Ok(None) };
    let Some(target) = run.began.trace.as_ref().filter(|target| target.gateway == origin) else {
        return Ok(None);
    };
    Ok(trace_of(&run, target, reader))
}

/// Batches within the limits of the gateway.
#[derive(Default)]
struct Batches {
    full: Vec<TraceBatch>,
    runs: Vec<RunTrace>,
    events: usize,
    bytes: usize,
}

impl Batches {
    /// Adds a run, in parts if it is large.
    fn add(&mut self, mut run: RunTrace) {
        let events = std::mem::take(&mut run.events);
        self.begin_part(&run);
        for event in events {
            let bytes = size(&event);
            if self.events == TRACE_EVENTS || self.bytes + bytes > BATCH_BYTES {
                self.close();
                self.begin_part(&run);
            }
            self.add_event(event, bytes);
        }
    }

    fn begin_part(&mut self, run: &RunTrace) {
        let bytes = size(run);
        if self.runs.len() == TRACE_RUNS || self.bytes + bytes > BATCH_BYTES {
            self.close();
        }
        self.bytes += bytes;
        self.runs.push(run.clone());
    }

    fn add_event(&mut self, event: TraceEvent, bytes: usize) {
        self.events += 1;
        self.bytes += bytes;
        if let Some(run) = self.runs.last_mut() {
            run.events.push(event);
        }
    }

    fn close(&mut self) {
        if !self.runs.is_empty() {
            self.full.push(TraceBatch { runs: std::mem::take(&mut self.runs) });
        }
        (self.events, self.bytes) = (0, 0);
    }

    fn finish(mut self) -> Vec<TraceBatch> {
        self.close();
        self.full
    }
}

fn size(part: &impl Serialize) -> usize {
    serde_json::to_vec(part).map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests {
    use protocol::{Integrity, Routing, TraceKind, TraceStatus, TraceValue};

    use super::*;

    fn run(id: &str, events: u32, value_bytes: usize) -> RunTrace {
        let value = TraceValue {
            hash: "hmac-sha256-x".to_owned(),
            bytes: 1,
            shape: "string(1)".to_owned(),
            value: Some("x".repeat(value_bytes).into()),
        };
        let event = |seq| TraceEvent {
            seq,
            trace_id: seq.to_string(),
            parent_trace_id: None,
            tool: "json:parse".parse().unwrap(),
            kind: TraceKind::Tool,
            routing: Routing::Server,
            status: TraceStatus::Success,
            error_code: None,
            started_at: String::new(),
            duration_ms: Some(1),
            arguments: Some(value.clone()),
            result: None,
        };
        RunTrace {
            run_id: id.to_owned(),
            execution_id: None,
            code_hash: Integrity::of(b""),
            status: TraceStatus::Success,
            error_code: None,
            started_at: String::new(),
            duration_ms: 1,
            arguments: None,
            result: None,
            event_count: events,
            events: (1..=events).map(event).collect(),
        }
    }

    #[test]
    fn batches_keep_the_order_and_the_limits() {
        let mut batches = Batches::default();
        let mut expected = Vec::new();
        for (id, events, bytes) in [("a", 3, 10), ("b", 0, 0), ("c", 1000, 2000), ("d", 12_000, 0)]
            .into_iter()
            .chain((0..250).map(|_| ("e", 1, 1)))
        {
            batches.add(run(id, events, bytes));
            expected.extend((1..=events).map(|seq| (id.to_owned(), seq)));
        }
        let batches = batches.finish();
        let mut found = Vec::new();
        for batch in &batches {
            let events: usize = batch.runs.iter().map(|run| run.events.len()).sum();
            assert!(batch.runs.len() <= TRACE_RUNS && events <= TRACE_EVENTS);
            assert!(size(batch) <= BATCH_BYTES + 64 * 1024, "{}", size(batch));
            for run in &batch.runs {
                found.extend(run.events.iter().map(|event| (run.run_id.clone(), event.seq)));
            }
        }
        assert_eq!(found, expected);
        assert!(batches.iter().flat_map(|batch| &batch.runs).any(|run| run.run_id == "b"));
    }
}
