//! Reads the traces of clients. Nothing in them is trusted.

use chrono::{DateTime, TimeDelta, Utc};
use data_encoding::BASE64;
use execution::sanitize;
use protocol::{RunTrace, TRACE_VALUE_BYTES, TraceEvent, TraceValue, escape_text};
use registry::{NewTrace, NewTraceEvent};
use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

/// The most events of a run, in all parts.
const RUN_EVENTS: u32 = 100_000;
/// The longest name of a call within its run, in bytes.
const TRACE_ID_LIMIT: usize = 128;
/// The longest shape of a value, in bytes.
const SHAPE_LIMIT: usize = 256;
/// The largest size that a value can have had, in bytes.
const VALUE_SIZE: u64 = 1 << 40;
/// The longest run, in milliseconds: a year.
const LONGEST_MS: u64 = 366 * 24 * 3_600 * 1_000;
/// No run of this program began before, in seconds since 1970: the year 2020.
const FIRST_SECOND: i64 = 1_577_836_800;
/// How far the clock of a client may be ahead.
const AHEAD: TimeDelta = TimeDelta::days(1);
/// The longest reason of a refusal, in characters.
const REASON_LIMIT: usize = 300;
/// The longest name of an error's code, in bytes.
const CODE_LIMIT: usize = 64;

/// Reads a part of a run. `now` is the gateway's time.
///
/// # Errors
/// Returns why it cannot be stored, escaped for display.
pub(crate) fn trace(sent: Value, now: DateTime<Utc>) -> Result<NewTrace, String> {
    let read = RunTrace::deserialize(sent).map_err(|error| error.to_string());
    // The text of the error contains what the client sent.
    read.and_then(|sent| run(sent, now))
        .map_err(|reason| escape_text(&reason).chars().take(REASON_LIMIT).collect())
}

/// Returns the id of a run as it was sent, for its receipt; empty if it has none.
pub(crate) fn sent_id(sent: &Value) -> String {
    let id = sent.get("run_id").and_then(Value::as_str).filter(|id| id.len() <= 64);
    id.map(escape_text).unwrap_or_default()
}

fn run(sent: RunTrace, now: DateTime<Utc>) -> Result<NewTrace, String> {
    if sent.event_count > RUN_EVENTS {
        return Err(format!("`event_count` is {}; the limit is {RUN_EVENTS}", sent.event_count));
    }
    let execution_id = sent.execution_id.as_deref().map(execution_id).transpose()?;
    let mut events = Vec::with_capacity(sent.events.len());
    for event in sent.events {
        let seq = event.seq;
        if !(1..=sent.event_count).contains(&seq) {
            return Err(format!(
                "event {seq}: its `seq` must be 1 to `event_count`, {}",
                sent.event_count
            ));
        }
        events.push(self::event(event, now).map_err(|reason| format!("event {seq}: {reason}"))?);
    }
    // In whatever order they were sent: callers precede the calls that they made.
    events.sort_by_key(|event| event.seq);
    if let Some(twice) = events.windows(2).find(|two| two[0].seq == two[1].seq) {
        return Err(format!("event {}: its `seq` is there twice", twice[0].seq));
    }
    Ok(NewTrace {
        run_id: sent.run_id.parse().map_err(|_| "`run_id` is not a UUID".to_owned())?,
        execution_id,
        code_hash: sent.code_hash,
        status: sent.status,
        error_code: sent.error_code.map(code).transpose()?,
        started_at: time(&sent.started_at, now)?,
        duration_ms: duration(sent.duration_ms)?,
        arguments: sent.arguments.map(|it| value("arguments", it)).transpose()?,
        result: sent.result.map(|it| value("result", it)).transpose()?,
        event_count: i32::try_from(sent.event_count).unwrap_or(i32::MAX),
        events_dropped: 0,
        events,
    })
}

fn event(sent: TraceEvent, now: DateTime<Utc>) -> Result<NewTraceEvent, String> {
    Ok(NewTraceEvent {
        seq: i32::try_from(sent.seq).unwrap_or(i32::MAX),
        trace_id: call_name("trace_id", sent.trace_id)?,
        parent_trace_id: sent
            .parent_trace_id
            .map(|parent| call_name("parent_trace_id", parent))
            .transpose()?,
        tool: sent.tool,
        kind: sent.kind,
        routing: sent.routing,
        status: sent.status,
        error_code: sent.error_code.map(code).transpose()?,
        started_at: time(&sent.started_at, now)?,
        duration_ms: sent.duration_ms.map(duration).transpose()?,
        arguments: sent.arguments.map(|it| value("arguments", it)).transpose()?,
        result: sent.result.map(|it| value("result", it)).transpose()?,
    })
}

/// Reads a `workflowId`, with which the gateway delegated a program.
fn execution_id(text: &str) -> Result<Uuid, String> {
    let id = text.strip_prefix("ws_").filter(|id| id.len() == 32);
    id.and_then(|id| Uuid::try_parse(id).ok())
        .ok_or_else(|| "`execution_id` is not the `workflowId` of a delegated program".to_owned())
}

fn call_name(field: &str, name: String) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > TRACE_ID_LIMIT || !name.bytes().all(is_plain) {
        return Err(format!(
            "`{field}` must have 1 to {TRACE_ID_LIMIT} letters, digits, `.`, `-` or `_`"
        ));
    }
    Ok(name)
}

/// Reads the name of an error's code. A newer client may know codes that this gateway does not.
fn code(name: String) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
    if !begins || name.len() > CODE_LIMIT || !name.bytes().all(is_plain) {
        return Err(format!(
            "`error_code` must have 1 to {CODE_LIMIT} upper-case letters, digits or `_`"
        ));
    }
    Ok(name)
}

fn time(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|_| "`started_at` is not a time of RFC 3339".to_owned())?
        .to_utc();
    if time.timestamp() < FIRST_SECOND || time > now + AHEAD {
        return Err("`started_at` is before 2020 or in the future".to_owned());
    }
    Ok(time)
}

fn duration(millis: u64) -> Result<i64, String> {
    if millis > LONGEST_MS {
        return Err(format!("`duration_ms` is {millis}; the limit is {LONGEST_MS}"));
    }
    Ok(i64::try_from(millis).unwrap_or(i64::MAX))
}

fn value(field: &str, sent: TraceValue) -> Result<TraceValue, String> {
    let hash = sent.hash.strip_prefix("hmac-sha256-");
    let hash = hash.and_then(|hash| BASE64.decode(hash.as_bytes()).ok());
    if hash.is_none_or(|hash| hash.len() != 32) {
        return Err(format!(
            "the `hash` of `{field}` is not `hmac-sha256-` and 32 bytes in base64"
        ));
    }
    if sent.bytes > VALUE_SIZE {
        return Err(format!("the `bytes` of `{field}` are more than {VALUE_SIZE}"));
    }
    let shape = &sent.shape;
    if shape.is_empty() || shape.len() > SHAPE_LIMIT || escape_text(shape) != *shape {
        return Err(format!(
            "the `shape` of `{field}` must have 1 to {SHAPE_LIMIT} bytes, without control characters"
        ));
    }
    let value = match sent.value {
        Some(value) => {
            // `to_string` cannot fail, and the request's body bounds its work.
            if value.to_string().len() > TRACE_VALUE_BYTES {
                return Err(format!(
                    "the `value` of `{field}` has more than {TRACE_VALUE_BYTES} bytes"
                ));
            }
            // Once more, because the client may be older than the newest formats of secrets.
            sanitize(&value, TRACE_VALUE_BYTES)
        }
        None => None,
    };
    Ok(TraceValue { value, ..sent })
}
