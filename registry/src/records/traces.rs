//! Traces: what the calls of a run were. A client tells them after the run, and the gateway about its own executions.

mod read;
mod store;

use chrono::{DateTime, Utc};
use protocol::{Integrity, Routing, ToolId, TraceEvent, TraceKind, TraceStatus, TraceValue};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::RegistryError;
use crate::identity::principal::Principal;

/// A run that has ended, with some of its calls.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTrace {
    /// The run's id.
    pub run_id: Uuid,
    /// The execution that the gateway delegated to it.
    pub execution_id: Option<Uuid>,
    /// The hash of the program.
    pub code_hash: Integrity,
    /// How it ended.
    pub status: TraceStatus,
    /// The name of the error's code: upper-case letters, digits and `_`, at most 64.
    pub error_code: Option<String>,
    /// When it began. Microseconds are stored.
    pub started_at: DateTime<Utc>,
    /// Its duration.
    pub duration_ms: i64,
    /// Its arguments.
    pub arguments: Option<TraceValue>,
    /// Its result.
    pub result: Option<TraceValue>,
    /// The number of its events in all parts.
    pub event_count: i32,
    /// The number of its calls that have no event.
    pub events_dropped: i32,
    /// Some of its calls; a call precedes those within it.
    pub events: Vec<NewTraceEvent>,
}

/// One call of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTraceEvent {
    /// Its number in the run, from 1.
    pub seq: i32,
    /// The call within the run.
    pub trace_id: String,
    /// The call of the capability that made it.
    pub parent_trace_id: Option<String>,
    /// The tool or capability.
    pub tool: ToolId,
    /// Whether it is a tool or a capability.
    pub kind: TraceKind,
    /// Where it ran.
    pub routing: Routing,
    /// How it ended.
    pub status: TraceStatus,
    /// The name of the error's code.
    pub error_code: Option<String>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// Its duration; `None` if its end is not known.
    pub duration_ms: Option<i64>,
    /// Its arguments.
    pub arguments: Option<TraceValue>,
    /// Its result.
    pub result: Option<TraceValue>,
}

/// The trace of an execution on the gateway.
#[derive(Debug, Clone)]
pub struct OwnTrace {
    /// Who asked for it.
    pub principal: Principal,
    /// Its trace; `run_id` is the id of the execution.
    pub trace: NewTrace,
}

/// What became of a client's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredTrace {
    /// All of it is stored, by this call or by earlier ones.
    Stored,
    /// It contradicts itself or what is stored; the reason.
    Refused(String),
}

/// Who told a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceOrigin {
    /// The client that ran it.
    Client,
    /// The gateway itself.
    Gateway,
}

impl TraceOrigin {
    fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

/// A stored run, with a page of its calls.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TraceRecord {
    /// The run's id.
    pub run_id: Uuid,
    /// Who tells it.
    pub origin: TraceOrigin,
    /// Who ran it.
    pub principal: String,
    /// The execution that the client says was delegated to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<Uuid>,
    /// The hash of the program.
    pub code_hash: String,
    /// How it ended.
    pub status: TraceStatus,
    /// The name of the error's code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When the gateway received the first part of it.
    pub received_at: DateTime<Utc>,
    /// Its duration, including the time in which it waited for a human.
    pub duration_ms: i64,
    /// Its `args`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<TraceValue>,
    /// Its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TraceValue>,
    /// The number of its events, of which some may not have arrived.
    pub event_count: i32,
    /// The number of its calls that have no event, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub events_dropped: i32,
    /// A page of its events, in the order of `seq`.
    pub events: Vec<TraceEvent>,
    /// The `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Returns the word of an enum, as on the wire.
fn word(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        // The column's constraint refuses it.
        _ => String::new(),
    }
}

/// Parses the output of [`word`], or a stored [`TraceValue`].
fn parsed<T: serde::de::DeserializeOwned>(stored: Value) -> Result<T, RegistryError> {
    serde_json::from_value(stored)
        .map_err(|error| RegistryError::Database(sqlx::Error::Decode(Box::new(error))))
}

/// Returns the JSON text of a summary. As a parameter of the type `jsonb`, it could not contain U+0000.
fn text(of: Option<&TraceValue>) -> Option<String> {
    of.and_then(|value| serde_json::to_string(value).ok())
}
