//! The records of the run store.
//!
//! Their JSON form is canonical as in RFC 8785: members are sorted, and there are no numbers but integers below 2^53.
//! Values of programs, which may have any number, are stored as texts.

mod approval;
mod change;
mod mock;
mod replay;
mod store;

use protocol::redaction::keys_in_use;
use protocol::{ErrorBody, Integrity, canonical_json};
use serde::{Deserialize, Serialize};

pub(crate) use self::approval::{Answered, ApprovalGiven, Before, Covered};
pub(crate) use self::change::{Change, FileChanging, KeptFile, MovedItem};
pub(crate) use self::mock::CallMocked;
pub(crate) use self::replay::{CallDiffers, InputChanged, ReplayCompared};
pub(crate) use self::store::{EndDiffered, ErasedRecord, StoreAdopted, StoreBegan, ValuesErased};

/// One record. Times are RFC 3339 in UTC, with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The store begins.
    StoreBegan(StoreBegan),
    /// A program is about to be run.
    RunBegan(RunBegan),
    /// The program starts.
    ProgramStarted(ProgramStarted),
    /// A call is about to be made.
    CallBegan(CallBegan),
    /// A call is about to change a file or folder.
    FileChanging(FileChanging),
    /// A call that was begun before is about to be made again, in a run that was resumed.
    CallRepeated(CallRepeated),
    /// A call was made and has ended.
    CallEnded(CallEnded),
    /// A call was not made.
    CallRefused(CallRefused),
    /// A call was not made, and got the answer of a call of another run.
    CallMocked(CallMocked),
    /// A question to the user was answered, or can no longer be answered.
    Approval(ApprovalGiven),
    /// A run goes on whose `pml` was stopped: its program starts again, and the calls that have ended are not made.
    RunResumed(RunResumed),
    /// A replay was compared with the run that it replays.
    ReplayCompared(ReplayCompared),
    /// A program has ended.
    RunEnded(RunEnded),
    /// The store was not written here before.
    StoreAdopted(StoreAdopted),
    /// The store did not end where `pml` last wrote.
    EndDiffered(EndDiffered),
    /// The values of a run, or of one of its calls, were erased.
    ValuesErased(ValuesErased),
}

/// The start of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBegan {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// `run`, `mock` for `pml exec --mock`, `replay` for `pml replay`, or `undo` for `pml runs undo`. Other modes are
    /// reserved.
    pub(crate) mode: String,
    /// For a replay: the run that it replays. For a mock: the run that has its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<String>,
    /// The version of the `pml` that ran it.
    pub(crate) pml: String,
    /// The program as it was submitted.
    pub(crate) code: Content,
    /// Its `args`.
    pub(crate) args: Content,
    /// The plan: the graph of its calls.
    pub(crate) plan: Content,
    /// The permission rules.
    pub(crate) policy: Content,
    /// The gateway that gets its trace, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceTarget>,
}

/// Where the trace of a run goes, and what it tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceTarget {
    /// The origin of the gateway.
    pub(crate) gateway: String,
    /// The `workflowId` with which it delegated the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) execution: Option<String>,
    /// Whether it gets values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) values: bool,
}

/// The start of a program, after the questions about it: what determines its clock and its random numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramStarted {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// What the clock shows at the start, in milliseconds since 1970.
    pub(crate) epoch_ms: i64,
    /// The seed, in hex digits.
    pub(crate) seed: String,
}

/// The resumption of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunResumed {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The version of the `pml` that resumes it.
    pub(crate) pml: String,
    /// The permission rules from now on.
    pub(crate) policy: Content,
}

/// The intent to make a call again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallRepeated {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
    /// Why it may run.
    pub(crate) decision: String,
}

/// The mode of runs of programs.
pub(crate) const RUN: &str = "run";

/// The mode of a run that has the calls of another run answered from its record. Nothing is called.
pub(crate) const REPLAY: &str = "replay";

/// The mode of a run whose calls are answered from the record of another run, as far as that has them.
pub(crate) const MOCK: &str = "mock";

/// The mode of a run that puts back what another run changed.
pub(crate) const UNDO: &str = "undo";

/// The intent to make a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallBegan {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call: its number in its program, in the order in which the program made its calls, after the numbers of
    /// the calls of the capabilities around it, as in `3.1`.
    pub(crate) call: String,
    /// The tool.
    pub(crate) tool: String,
    /// Where it runs: `client` or `server`.
    pub(crate) routing: String,
    /// Whether `pml` itself is the tool, so that its changes of files are recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) native: bool,
    /// The arguments.
    pub(crate) args: Content,
    /// Why it may run: the rule that allows it, or the user's answer.
    pub(crate) decision: String,
    /// For a capability: what the clock of its program shows at its start, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch_ms: Option<i64>,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallEnded {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
    /// `success` or `error`.
    pub(crate) status: Status,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Content>,
    /// The error that it threw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    /// The connections that its sealed server was refused meanwhile, with the reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused_connections: Option<String>,
    /// When the program got this answer, in milliseconds since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_ms: Option<u64>,
}

/// The refusal of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallRefused {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// The call.
    pub(crate) call: String,
    /// The tool, as the program named it.
    pub(crate) tool: String,
    /// The arguments.
    pub(crate) args: Content,
    /// Why it was refused.
    pub(crate) error: Failure,
    /// When the program got this answer, in milliseconds since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_ms: Option<u64>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunEnded {
    /// The time.
    pub(crate) at: String,
    /// The run's id.
    pub(crate) run: String,
    /// `success` or `error`.
    pub(crate) status: Status,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Content>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    /// The hash of what its program printed, if it printed something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) console: Option<Integrity>,
}

/// How a call or a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// With a result.
    Success,
    /// With an error.
    Error,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    /// The name of its code.
    pub(crate) code: String,
    /// Its message.
    pub(crate) message: String,
    /// Whether a key was removed from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Whether the message was erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) erased: bool,
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Its canonical JSON text.
    pub(super) body: String,
    /// The run that it belongs to.
    pub(super) run: Option<String>,
    /// Its type.
    pub(super) kind: String,
}

/// A value of a program, without the keys in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    /// The SHA-256 of its JSON text.
    pub(crate) hash: Integrity,
    /// The length of that text in bytes.
    pub(crate) bytes: u64,
    /// The text; `None` for a large value, which is a file named after the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) json: Option<String>,
    /// Whether a key was removed from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// Whether it was erased: then there is neither a text nor a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) erased: bool,
}

impl Failure {
    /// Creates it from an error body.
    pub(crate) fn of(error: &ErrorBody) -> Self {
        // Like values: a message can quote what a server returned.
        let message = keys_in_use().text(&error.message).into_owned();
        let redacted = message != error.message;
        Self { code: error.error_code.name().to_owned(), message, redacted, erased: false }
    }
}

impl Record {
    /// Returns the id of the store that it begins; empty for any other record.
    pub(super) fn store_of(&self) -> String {
        match self {
            Self::StoreBegan(began) => began.store.clone(),
            _ => String::new(),
        }
    }

    /// Returns the record as it is stored.
    pub(super) fn to_row(&self) -> Row {
        let value = serde_json::to_value(self).expect("every member has a JSON form");
        let member = |name: &str| value[name].as_str().map(str::to_owned);
        let (run, kind) = (member("run"), member("type").unwrap_or_default());
        Row { body: canonical_json(value), run, kind }
    }
}

/// Returns the present time, as records state it.
pub(crate) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
