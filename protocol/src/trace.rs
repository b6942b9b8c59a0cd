//! Traces: what the CLI tells the gateway about a run after its end (`POST /api/v1/traces`).
//!
//! A trace has no code. By default it has no value either: of arguments and results, only a keyed hash, the size and
//! the shape. Sending a trace twice has the effect of sending it once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Integrity, Routing, ToolId};

/// The largest number of [`RunTrace`]s in a [`TraceBatch`].
pub const TRACE_RUNS: usize = 100;

/// The largest number of [`TraceEvent`]s in all runs of a [`TraceBatch`].
pub const TRACE_EVENTS: usize = 5_000;

/// The largest JSON form of a value in a trace, in bytes.
pub const TRACE_VALUE_BYTES: usize = 10 * 1024;

/// The body of `POST /api/v1/traces`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceBatch {
    /// The runs, or parts of them. A run with many events is sent in parts, which repeat everything but `events`.
    pub runs: Vec<RunTrace>,
}

/// One run, which has ended, with some of its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunTrace {
    /// The run's id, a UUID.
    pub run_id: String,
    /// The `workflowId` with which the gateway delegated it; without one, the gateway was not asked to run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// The hash of the program; without `execution_id`, a hash that says nothing about its text.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub code_hash: Integrity,
    /// How it ended.
    pub status: TraceStatus,
    /// The name of the error's code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Its duration, including the time in which it waited for a human.
    pub duration_ms: u64,
    /// Its `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<TraceValue>,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TraceValue>,
    /// The number of events of the run in all parts.
    pub event_count: u32,
    /// Some of its calls, in the order of `seq`: a call precedes those within it.
    pub events: Vec<TraceEvent>,
}

/// One call of a tool or a capability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceEvent {
    /// Its number in the run, from 1 and without gaps.
    pub seq: u32,
    /// The call within the run, for example `3.1` for the first call of the capability that call 3 started.
    pub trace_id: String,
    /// The call of the capability that made it; none for a call of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_trace_id: Option<String>,
    /// The tool or capability.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tool: ToolId,
    /// Whether it is a tool or a capability.
    pub kind: TraceKind,
    /// Where it ran.
    pub routing: Routing,
    /// How it ended.
    pub status: TraceStatus,
    /// The name of the error's code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Its duration; none if its end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<TraceValue>,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TraceValue>,
}

/// What a [`TraceEvent`] is a call of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TraceKind {
    /// A tool.
    Tool,
    /// A capability: its program ran, and its calls are events of their own.
    Capability,
}

/// How a run or a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TraceStatus {
    /// With a result.
    Success,
    /// With an error.
    Error,
    /// It was refused by a rule, the policy or a human.
    Denied,
    /// It was cancelled.
    Cancelled,
    /// It began, and its end is not known. It may have taken effect.
    Indeterminate,
}

/// What is told of a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceValue {
    /// `hmac-sha256-` and the base64 of the HMAC-SHA-256 (RFC 2104) of its JSON text. The key is secret and differs
    /// from run to run, so the hash says which values of one run are equal, and not what they are.
    pub hash: String,
    /// The size of its JSON text.
    pub bytes: u64,
    /// Its types and lengths, for example `object(2)` or `array(10) of string`.
    pub shape: String,
    /// The value itself, sanitized; only where the user has chosen `traces: "full"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub value: Option<Value>,
}

/// The answer to a [`TraceBatch`]: one receipt for each of its runs, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceReceipts {
    /// The receipts.
    pub runs: Vec<TraceReceipt>,
}

/// What became of one [`RunTrace`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TraceReceipt {
    /// The run.
    pub run_id: String,
    /// What became of it.
    pub outcome: TraceOutcome,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a [`RunTrace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TraceOutcome {
    /// It is stored, by this batch or by an earlier one.
    Stored,
    /// It is not, and sending it again will not change that.
    Refused,
}
