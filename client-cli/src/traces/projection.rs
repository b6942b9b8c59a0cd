//! The trace of a run, from its record. Code, messages and console output are never part of it.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use execution::{sanitize, trace_value};
use protocol::{
    ErrorCode, Integrity, Routing, RunTrace, TRACE_VALUE_BYTES, ToolId, TraceEvent, TraceKind,
    TraceStatus, TraceValue,
};
use serde_json::{Value, json};

use crate::run_store::reader::{Call, Reader, Run};
use crate::run_store::record::{Content, Failure, Status, TraceTarget};

/// Returns the trace of a run; `None` if it has not ended, or its record cannot be read.
pub(super) fn trace_of(run: &Run, target: &TraceTarget, reader: &Reader) -> Option<RunTrace> {
    let (began, ended) = (&run.began, run.ended.as_ref()?);
    let values = Values { reader, key: key(run), full: target.values };
    let code = reader.content(&began.code)?;
    let code: String = serde_json::from_str(&code).ok()?;
    let events = events(run, &values);
    Some(RunTrace {
        run_id: began.run.clone(),
        execution_id: target.execution.clone(),
        code_hash: code_hash(&code, target, key(run)),
        status: status(ended.status, ended.error.as_ref()),
        error_code: ended.error.as_ref().map(|error| error.code.clone()),
        started_at: began.at.clone(),
        duration_ms: duration(&began.at, &ended.at)?,
        arguments: values.of(&began.args),
        result: ended.output.as_ref().and_then(|output| values.of(output)),
        event_count: u32::try_from(events.len()).ok()?,
        events,
    })
}

/// Returns the hash of the program by which the gateway knows it. If it has not delegated the program, it may not have got
/// its text, whose hash would confirm a guess: then the hash is keyed like those of values.
fn code_hash(code: &str, target: &TraceTarget, key: Option<[u8; 32]>) -> Integrity {
    match (&target.execution, key) {
        (Some(_), _) => Integrity::of(code.as_bytes()),
        (None, Some(key)) => Integrity::of(trace_value(&key, &json!(code)).hash.as_bytes()),
        // It did not start, so there is no key.
        (None, None) => Integrity::of(b""),
    }
}

fn events(run: &Run, values: &Values<'_>) -> Vec<TraceEvent> {
    let mut events: Vec<TraceEvent> = Vec::new();
    let mut known = HashSet::new();
    for call in &run.calls {
        // What the program called may be no name of a tool.
        let Some(mut event) = event(call, values) else { continue };
        event.parent_trace_id = event
            .trace_id
            .rsplit_once('.')
            .map(|(parent, _)| parent.to_owned())
            .filter(|parent| known.contains(parent));
        event.seq = u32::try_from(events.len() + 1).unwrap_or(u32::MAX);
        known.insert(event.trace_id.clone());
        events.push(event);
    }
    events
}

fn event(call: &Call, values: &Values<'_>) -> Option<TraceEvent> {
    match call {
        Call::Made(made) => {
            let (began, ended) = (&made.began, made.ended.as_ref());
            let tool: ToolId = began.tool.parse().ok()?;
            let error = ended.and_then(|ended| ended.error.as_ref());
            let output = ended.and_then(|ended| ended.output.as_ref());
            Some(TraceEvent {
                seq: 0,
                trace_id: began.call.clone(),
                parent_trace_id: None,
                kind: match began.epoch_ms {
                    Some(_) => TraceKind::Capability,
                    None => TraceKind::Tool,
                },
                routing: match began.routing.as_str() {
                    "server" => Routing::Server,
                    _ => Routing::Client,
                },
                status: ended.map_or(TraceStatus::Indeterminate, |ended| {
                    status(ended.status, ended.error.as_ref())
                }),
                error_code: error.map(|error| error.code.clone()),
                started_at: began.at.clone(),
                duration_ms: ended.and_then(|ended| duration(&began.at, &ended.at)),
                arguments: values.of_call(&tool, &began.args),
                result: output.and_then(|output| values.of_call(&tool, output)),
                tool,
            })
        }
        // It was not made. No run with such a call has a trace.
        Call::Mocked(_) => None,
        Call::Refused(refused) => {
            let tool: ToolId = refused.tool.parse().ok()?;
            Some(TraceEvent {
                seq: 0,
                trace_id: refused.call.clone(),
                parent_trace_id: None,
                kind: TraceKind::Tool,
                routing: Routing::Client,
                status: TraceStatus::Denied,
                error_code: Some(refused.error.code.clone()),
                started_at: refused.at.clone(),
                duration_ms: Some(0),
                arguments: values.of_call(&tool, &refused.args),
                result: None,
                tool,
            })
        }
    }
}

fn status(status: Status, error: Option<&Failure>) -> TraceStatus {
    let code = error.and_then(|error| error.code.parse::<ErrorCode>().ok());
    match (status, code) {
        (Status::Success, _) => TraceStatus::Success,
        (Status::Error, Some(ErrorCode::Cancelled)) => TraceStatus::Cancelled,
        (Status::Error, Some(ErrorCode::CallIndeterminate)) => TraceStatus::Indeterminate,
        (Status::Error, Some(code)) if code.number() / 1000 == 1 => TraceStatus::Denied,
        (Status::Error, _) => TraceStatus::Error,
    }
}

/// Returns the time between two times of records, in milliseconds. A clock that was set back gives 0.
fn duration(from: &str, to: &str) -> Option<u64> {
    let time =
        |text: &str| DateTime::parse_from_rfc3339(text).ok().map(|at| at.with_timezone(&Utc));
    u64::try_from((time(to)? - time(from)?).num_milliseconds().max(0)).ok()
}

/// Returns the key of a run's hashes: it is derived from the seed, which never leaves this machine.
fn key(run: &Run) -> Option<[u8; 32]> {
    let seed = &run.started.as_ref()?.seed;
    let bytes = format!("pml trace key\0{}\0{seed}", run.began.run);
    Some(Integrity::of(bytes.as_bytes()).into_bytes())
}

/// Reads the values of a run.
struct Values<'a> {
    reader: &'a Reader,
    /// `None` if the program did not start: then nothing is told of values.
    key: Option<[u8; 32]>,
    full: bool,
}

impl Values<'_> {
    fn of(&self, content: &Content) -> Option<TraceValue> {
        self.told(content, |value| value)
    }

    /// The same for arguments or the result of a call.
    fn of_call(&self, tool: &ToolId, content: &Content) -> Option<TraceValue> {
        let reads_files = tool.namespace() == "filesystem";
        self.told(content, |value| if reads_files { without_contents(value) } else { value })
    }

    fn told(&self, content: &Content, shown: impl Fn(Value) -> Value) -> Option<TraceValue> {
        let key = self.key?;
        let text = self.reader.content(content)?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let mut told = trace_value(&key, &value);
        if self.full {
            told.value = sanitize(&shown(value), TRACE_VALUE_BYTES);
        }
        Some(told)
    }
}

/// Describes the contents of files in the arguments or the result of a file tool.
fn without_contents(value: Value) -> Value {
    let described = |text: &str| json!(format!("[text of {} bytes]", text.len()));
    match value {
        Value::String(text) => described(&text),
        Value::Object(mut members) => {
            for (name, member) in &mut members {
                let is_content = matches!(
                    name.as_str(),
                    "content" | "contents" | "text" | "data" | "oldText" | "newText"
                );
                *member = match member.take() {
                    Value::String(text) if is_content => described(&text),
                    nested @ (Value::Object(_) | Value::Array(_)) => without_contents(nested),
                    other => other,
                };
            }
            Value::Object(members)
        }
        Value::Array(items) => {
            let items = items.into_iter().map(|item| match item {
                nested @ (Value::Object(_) | Value::Array(_)) => without_contents(nested),
                other => other,
            });
            Value::Array(items.collect())
        }
        other => other,
    }
}
