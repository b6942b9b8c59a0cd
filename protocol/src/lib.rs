//! The wire types and vocabulary of both PML programs.
//!
//! `protocol` holds what crosses a process boundary or must be decided identically on both sides: identifiers
//! ([`ToolId`], [`Fqdn`], [`Scope`]), the routing rules ([`RoutingRules`]), the answer envelope ([`Envelope`]), the
//! closed list of error codes ([`ErrorCode`]), registry entries ([`RegistryEntry`]) and the conversion of a tool's
//! MCP result to a value ([`unwrap_tool_result`]).
//!
//! It never does I/O and never depends on an async runtime, a database or HTTP. Fields may be added to the wire
//! types; none is renamed or removed within a major version. `tests/wire/` preserves the original form of data that
//! is written to files.
//!
//! ```
//! use protocol::{Routing, RoutingRules, ToolId};
//!
//! let id: ToolId = "filesystem:read_file".parse()?;
//! assert_eq!(id.wire_name(), "filesystem__read_file");
//! assert_eq!(RoutingRules::shipped().route(&id), Routing::Client);
//! # Ok::<(), protocol::NameError>(())
//! ```

mod call_log;
pub mod discovery;
mod dry_run;
mod entry;
mod envelope;
mod error_code;
mod fqdn;
mod include;
mod integrity;
pub mod json;
pub mod look_alike;
pub mod meta_tools;
pub mod model_text;
mod outcome;
mod pattern;
mod program_error;
pub mod ranking;
pub mod redaction;
mod routing;
pub mod server_json;
pub mod signature;
mod synced_tools;
mod trace;
mod visibility;

pub use call_log::{CallLog, NO_VALUE, unanswered_calls};
pub use dry_run::{ArgsEgress, DryRun, DryTask, Egress, Side, Step, Unawaited};
pub use entry::{
    CAPABILITY_DEPTH, CAPABILITY_REACH, CapabilityProgram, EntryType, Install, McpDependency,
    RegistryEntry, ToolDescriptor,
};
pub use envelope::{
    Approval, ApprovalType, CODE_FIELD_LIMIT, CallNote, ConsoleLine, ContinueRequest,
    ContinueWorkflow, CreateRequest, Delegation, Envelope, ExecuteOptions, ExecuteRequest,
    ExecutedOn, RunError, RunNote, Success, ToolUse, ToolUseType,
};
pub use error_code::{ErrorBody, ErrorCode, UnknownErrorCode};
pub use fqdn::{Fqdn, NameError, Scope, ShortHash, ToolId, is_version};
pub use include::{FailedCalls, Include, RunMeta};
pub use integrity::{Integrity, IntegrityError, canonical_json};
pub use outcome::{ResultMode, ToolError, unwrap_tool_result, wrap_value};
pub use pattern::ToolPattern;
pub use program_error::{ProgramFailure, code_frame, escape_text, program_error};
pub use routing::{Routing, RoutingRules};
pub use synced_tools::{
    SYNCED_SERVER_BYTES, SYNCED_TOOL_BYTES, SYNCED_TOOLS, SyncedTool, ToolHints, ToolSync,
    ToolSyncReceipt,
};
pub use trace::{
    RunTrace, TRACE_EVENTS, TRACE_RUNS, TRACE_VALUE_BYTES, TraceBatch, TraceEvent, TraceKind,
    TraceOutcome, TraceReceipt, TraceReceipts, TraceStatus, TraceValue,
};
pub use visibility::{UnknownVisibility, Visibility};
