//! The submission of a program, and its answer.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::{ErrorBody, FailedCalls, Include, Integrity, Routing, RunMeta};

/// The largest `code` that is accepted, in bytes.
pub const CODE_FIELD_LIMIT: usize = 64 * 1024;

/// The arguments of `pml_execute`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// The TypeScript program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the program is for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// The value of `args` inside the program; an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// Options of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<ExecuteOptions>,
    /// With `dry_run`, for the program of a capability: the scope that published it, in which its short names resolve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<crate::Scope>,
    /// Tools that only the user's machine has. They are client tools, and are not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_tools: Vec<String>,
    /// Instead of `code`: the answer to an `approval_required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_workflow: Option<ContinueWorkflow>,
}

/// Options of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecuteOptions {
    /// Wall time in milliseconds; can only shorten the limit of the side that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<NonZeroU64>,
    /// Only analyse and route the program; run nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Start read-only calls before the program reaches them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eager: Option<bool>,
    /// Additional fields of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<Include>,
}

/// The answer to an `approval_required`, inside `pml_execute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinueWorkflow {
    /// The `workflow_id` of the paused run.
    #[serde(alias = "workflowId")]
    pub workflow_id: String,
    /// Whether the user allows it.
    pub approved: bool,
    /// Whether to allow the tool from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// For a list of calls: the numbers, from 1, of those that are not allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u32>,
}

/// The arguments of `pml_create`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// The id by which programs will call it.
    pub name: String,
    /// The program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A successful run of exactly this program.
    #[serde(default, alias = "workflow_id", skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Three numbers. Default: the next patch version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Visibility. Default: unchanged; `project` on first publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<crate::Visibility>,
    /// The description. Default: the program's doc comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its `args`. Default: derived from the program's use of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<serde_json::Map<String, Value>>,
}

/// The arguments of `pml_continue`.
pub type ContinueRequest = ContinueWorkflow;

/// The answer to a submission, tagged by `status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Envelope {
    /// The program ran to its end.
    Success(Box<Success>),
    /// The caller's machine has to run it.
    ExecuteLocally(Box<Delegation>),
    /// It failed, or could not run.
    Error(Box<RunError>),
    /// A human has to decide first.
    ApprovalRequired(Box<Approval>),
}

/// A failure, with the fields of the run that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunError {
    /// The error message.
    #[serde(flatten)]
    pub error: ErrorBody,
    /// The run, if one was begun.
    #[serde(flatten)]
    pub run: Option<RunNote>,
}

/// Facts about an ended run, common to success and failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunNote {
    /// The run's id in logs and traces.
    pub execution_id: String,
    /// The side that ran it.
    pub executed: ExecutedOn,
    /// Wall time in milliseconds.
    #[serde(serialize_with = "rounded")]
    pub duration_ms: f64,
    /// The program's output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<ConsoleLine>,
    /// Whether console lines are missing because of the limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub console_truncated: bool,
    /// Warnings of a successful run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The calls, in the order of their start; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<CallNote>>,
    /// The failed calls, if `calls` is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_calls: Vec<FailedCalls>,
    /// The content of `_meta` about the run; it is not part of the answer itself.
    #[serde(skip)]
    pub meta: Option<Box<RunMeta>>,
}

/// One call of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallNote {
    /// The tool id.
    pub tool: String,
    /// Where the call ran.
    pub routing: Routing,
    /// Whether it succeeded.
    pub ok: bool,
    /// Wall time in milliseconds, without waiting for a human.
    #[serde(serialize_with = "rounded")]
    pub duration_ms: f64,
    /// The capabilities that made it, outermost first; empty for a call of the program itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
}

/// A program that ran to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// The program's return value; `null` if there is none.
    pub result: Value,
    /// The run.
    #[serde(flatten)]
    pub run: RunNote,
    /// The tools that the program declares; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_used: Option<Vec<ToolUse>>,
    /// The analysed plan, in the form of `dag` in `pml analyze --json`; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<Value>,
}

/// Writes milliseconds with two decimals: further digits are noise that costs the model tokens.
fn rounded<S: Serializer>(milliseconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((milliseconds * 100.0).round() / 100.0)
}

/// The side that ran a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutedOn {
    /// The gateway.
    Server,
    /// The user's machine.
    Client,
}

/// One captured line of `console`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleLine {
    /// `log`, `info`, `warn`, `error` or `debug`.
    pub level: String,
    /// The text, without a line end.
    pub text: String,
}

/// A tool that a program declares; the same shape in every answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The tool id.
    pub id: String,
    /// The registry's name for it; absent for a tool that only the user's machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// The version of a capability or of a published server; absent for other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Tool or capability.
    #[serde(rename = "type")]
    pub kind: ToolUseType,
    /// Where it runs.
    pub routing: Routing,
    /// The hash of the registry entry; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<Integrity>,
    /// For a capability: the ids of all tools it may call, transitively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// For a server tool: the secret that a call needs and the gateway does not have, so that a call would fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks_key: Option<String>,
}

/// The type of a [`ToolUse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolUseType {
    /// A tool of an MCP server or of PML itself.
    Tool,
    /// A published program.
    Capability,
}

/// The gateway's answer that the caller's machine has to run the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delegation {
    /// The submitted program, unchanged.
    pub code: String,
    /// The hash of `code`; the CLI compares it with what it submitted.
    pub code_hash: Integrity,
    /// The plan.
    pub dag: Value,
    /// The tools, resolved in the caller's scope.
    pub tools_used: Vec<ToolUse>,
    /// The ids among them that run on the client.
    pub client_tools: Vec<String>,
    /// Warnings for the user before it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The program's structure.
    #[serde(default)]
    pub static_structure: Value,
    /// The id of the delegated run.
    #[serde(rename = "workflowId", alias = "workflow_id")]
    pub workflow_id: String,
}

/// A paused run that waits for a human.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Always true; read by clients that ignore `status`.
    pub approval_required: bool,
    /// The type of the question.
    pub approval_type: ApprovalType,
    /// The id of the paused run: `wl_…` on the CLI, `ws_…` on the gateway.
    pub workflow_id: String,
    /// The question, for a human; escaped.
    pub description: String,
    /// The context of the question.
    #[serde(default)]
    pub context: Value,
    /// The possible answers.
    pub options: Vec<String>,
    /// When the question ends, RFC 3339.
    pub expires_at: String,
}

/// The type of an [`Approval`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalType {
    /// The whole plan of a program.
    Plan,
    /// One tool.
    ToolPermission,
    /// Installing a dependency.
    Dependency,
    /// A missing API key.
    ApiKeyRequired,
    /// A content that differs from the pinned one.
    Integrity,
}

impl Envelope {
    /// Creates an error answer.
    pub fn error(error: ErrorBody) -> Self {
        Self::Error(Box::new(RunError { error, run: None }))
    }

    /// Returns its `status`.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Success(_) => "success",
            Self::ExecuteLocally(_) => "execute_locally",
            Self::ApprovalRequired(_) => "approval_required",
            Self::Error(_) => "error",
        }
    }

    /// Returns whether the MCP result that carries it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}
