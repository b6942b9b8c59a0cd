//! The closed list of error codes.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Declares the list once: variant, number, name on the wire, hint.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $hint:literal;)*) => {
        /// A stable error code: 1xxx policy and permission, 2xxx tool, 3xxx program
        /// and plan, 4xxx replay and integrity, 5xxx storage and service.
        ///
        /// Numbers and names never change their meaning; a code that is no longer
        /// used leaves a gap. `docs/errors.md` has a line for each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl ErrorCode {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the number, for example `3001`.
            pub fn number(self) -> u16 {
                match self { $(Self::$variant => $number,)* }
            }

            /// Returns the name on the wire, for example `PARSE_ERROR`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns what to do about it, in one sentence.
            pub fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

error_codes! {
    /// A `deny` rule covers the tool.
    PermissionDenied = 1001, "PERMISSION_DENIED",
        "A rule in `.pml.json` denies this tool; only the user can change it.";
    /// The tool is allowed, but the policy refuses this access.
    PolicyDenied = 1002, "POLICY_DENIED",
        "The policy does not allow this access; use a path, command or address that it allows.";
    /// The user refused.
    ApprovalDenied = 1003, "APPROVAL_DENIED",
        "The user refused this call; do not repeat it, ask what they want instead.";
    /// The question was not answered in time.
    ApprovalExpired = 1004, "APPROVAL_EXPIRED",
        "The approval request expired; submit the program again.";
    /// The paused run no longer exists, for example after a restart.
    WorkflowLost = 1005, "WORKFLOW_LOST",
        "The paused run is no longer alive; submit the program again.";
    /// The caller has no such workflow.
    WorkflowNotFound = 1006, "WORKFLOW_NOT_FOUND",
        "Use the `workflow_id` of the latest `approval_required` answer, once.";
    /// The program needs tools of the user's machine, and the caller cannot run them.
    ClientToolsRequirePackage = 1007, "CLIENT_TOOLS_REQUIRE_PACKAGE",
        "Connect through `pml stdio`, which runs such tools on the user's machine.";
    /// A program called a tool that its analysis did not declare.
    ToolNotDeclared = 1008, "TOOL_NOT_DECLARED",
        "Write the call as `mcp.namespace.action(...)` so that the analysis can see it.";
    /// There is no valid credential.
    Unauthorized = 1009, "UNAUTHORIZED",
        "Send a valid API key as `Authorization: Bearer pml_…`; `pml-server keys create` creates one.";
    /// The credential is valid but lacks a right.
    Forbidden = 1010, "FORBIDDEN",
        "Use an API key with the named right; `pml-server keys create --can …` creates one.";
    /// A tool needs a secret that the caller did not supply.
    ApiKeyRequired = 1011, "API_KEY_REQUIRED",
        "For a tool on this machine, set the variable in the environment or `.env`; for a tool on the gateway, run `pml secrets set NAME --cloud`.";
    /// A path leads out of the workspace.
    PathOutsideWorkspace = 1012, "PATH_OUTSIDE_WORKSPACE",
        "Use a path beneath the workspace.";
    /// There were more requests than the limit allows.
    RateLimited = 1013, "RATE_LIMITED",
        "Retry after the time in `Retry-After`; the message names the limit.";
    /// The secret may not be sent to the host that the entry names.
    KeyNotForHost = 1014, "KEY_NOT_FOR_HOST",
        "If that host may receive the secret, allow it: `pml secrets set NAME --cloud --host HOST`, or `X-PML-Host-NAME`.";

    /// The caller's scope has no tool with that id.
    ToolNotFound = 2001, "TOOL_NOT_FOUND",
        "Check the id against the suggestions, or find tools with `pml_discover`.";
    /// The tool ran and returned an error.
    ToolFailed = 2002, "TOOL_FAILED",
        "Read the tool's message; correct the arguments or handle it with try/catch.";
    /// The tool did not answer in time.
    ToolTimeout = 2003, "TOOL_TIMEOUT",
        "Ask for less at once, or raise `timeout_ms` within its limit.";
    /// The arguments do not match the tool's input schema.
    InvalidArguments = 2004, "INVALID_ARGUMENTS",
        "Compare the arguments with the tool's input schema from `pml_discover`.";
    /// The tool's server could not be started, or disconnected.
    ToolUnavailable = 2005, "TOOL_UNAVAILABLE",
        "The message says why the tool's server did not run; `GET /mcp/{name}` shows how to install it.";
    /// A tool's result is over the limit.
    ToolResultTooLarge = 2006, "TOOL_RESULT_TOO_LARGE",
        "Ask the tool for a part: a range, a page or fewer fields.";
    /// A call's arguments are over the limit.
    ArgumentTooLarge = 2007, "ARGUMENT_TOO_LARGE",
        "Pass less in one call; split it into several.";
    /// The tool runs on the gateway, which cannot be reached.
    ServerToolsOffline = 2008, "SERVER_TOOLS_OFFLINE",
        "Only local tools work without the gateway; check its URL and the network.";
    /// The call was started before `pml` was stopped, and whether it took effect is not known.
    CallIndeterminate = 2009, "CALL_INDETERMINATE",
        "Look whether the call took effect, then tell `pml runs resume` to make it again or to let it fail.";

    /// The program is not valid TypeScript.
    ParseError = 3001, "PARSE_ERROR",
        "Correct the program at the shown line and column.";
    /// The source is over the size limit.
    SourceTooLarge = 3002, "SOURCE_TOO_LARGE",
        "Keep the program within 64 KiB; pass data as `args` or read it with a tool.";
    /// The program is nested or chained beyond the limits of the analysis.
    TooComplex = 3003, "TOO_COMPLEX",
        "Simplify the program: less nesting, shorter chains, data in `args`.";
    /// The program uses syntax that PML does not run.
    UnsupportedSyntax = 3004, "UNSUPPORTED_SYNTAX",
        "Rewrite the marked part as the message says.";
    /// The program threw an error that it did not catch.
    ProgramFailed = 3005, "PROGRAM_FAILED",
        "Correct the program at the shown line, or handle the error with try/catch.";
    /// The run exceeded its wall-time limit.
    TimeLimit = 3006, "TIME_LIMIT",
        "Do less in one program, or raise `timeout_ms` within its limit.";
    /// The program exceeded its CPU time limit.
    CpuLimit = 3007, "CPU_LIMIT",
        "Look for an endless loop; move heavy work into a tool.";
    /// The program exceeded its memory limit.
    OutOfMemory = 3008, "OUT_OF_MEMORY",
        "Keep less in memory at once; process data in parts.";
    /// The program recursed too deeply.
    StackOverflow = 3009, "STACK_OVERFLOW",
        "Look for endless recursion, or use a loop.";
    /// The program exceeded its limit of calls.
    TooManyCalls = 3010, "TOO_MANY_CALLS",
        "Make fewer calls; ask tools for more at once.";
    /// The program's result is over the limit.
    ResultTooLarge = 3011, "RESULT_TOO_LARGE",
        "Return a summary, or write the data to a file and return its path.";
    /// The program's result cannot be represented in JSON.
    ResultNotSerializable = 3012, "RESULT_NOT_SERIALIZABLE",
        "Return plain data; the message names the offending part and its replacement.";
    /// The program waits for a promise that can never settle.
    Deadlock = 3013, "DEADLOCK",
        "A promise in the program is never settled; look at the awaited value.";
    /// The caller cancelled the run.
    Cancelled = 3014, "CANCELLED",
        "The run was cancelled; submit it again if it is still wanted.";
    /// The sandbox exited without an answer.
    SandboxCrashed = 3015, "SANDBOX_CRASHED",
        "Simplify the program; if it happens again, report it.";
    /// A field of the request is invalid.
    InvalidRequest = 3016, "INVALID_REQUEST",
        "Correct what the message names; `pml_discover` and `GET /openapi.json` describe what each request takes.";
    /// The program exceeded its limit of active timers.
    TooManyTimers = 3017, "TOO_MANY_TIMERS",
        "Clear timers that are no longer needed, or wait for one before setting the next.";
    /// The caller has no object with that id.
    NotFound = 3018, "NOT_FOUND",
        "Check the name or id, and that your API key belongs to its project.";
    /// The present state does not allow the change.
    Conflict = 3019, "CONFLICT",
        "Read the present state; the message names the conflict.";
    /// The `Idempotency-Key` was already used for a different request.
    IdempotencyKeyReused = 3020, "IDEMPOTENCY_KEY_REUSED",
        "Send the first request unchanged, or a new `Idempotency-Key`.";
    /// The request with this `Idempotency-Key` has started but has no answer yet.
    RequestInProgress = 3021, "REQUEST_IN_PROGRESS",
        "Retry after the time in `Retry-After`; without one, check whether the request took effect.";
    /// The request has completed, and its answer contained a value that is shown only once.
    ShownOnce = 3022, "SHOWN_ONCE",
        "If the first answer is lost, revoke the object that it named and create another one.";
    /// The entry with that name was deleted, and the name is never reused.
    Gone = 3023, "GONE",
        "Use another entry; this one was deleted permanently.";
    /// The program uses a promise where it needs the promise's value.
    PromiseNotAwaited = 3024, "PROMISE_NOT_AWAITED",
        "Add `await` where the message says, and submit the program again.";

    /// The code to run is not the code that was submitted.
    CodeHashMismatch = 4001, "CODE_HASH_MISMATCH",
        "The gateway returned different code than was sent; nothing ran. Check the gateway URL.";
    /// The content does not have the expected hash.
    IntegrityMismatch = 4002, "INTEGRITY_MISMATCH",
        "The content has changed since it was pinned; nothing ran.";
    /// A run that is resumed or replayed deviates from its record.
    ReplayMismatch = 4003, "REPLAY_MISMATCH",
        "The message says where. The run has ended; run the program anew if that is acceptable.";
    /// A stored secret was changed or moved in the database.
    SecretUnreadable = 4008, "SECRET_UNREADABLE",
        "Store the secret again; the event is in the audit log.";

    /// The database does not answer.
    DatabaseUnavailable = 5001, "DATABASE_UNAVAILABLE",
        "Retry shortly; the cause is in the gateway's log.";
    /// An internal error occurred.
    Internal = 5002, "INTERNAL",
        "Report the execution id; the cause is in the log.";
    /// This system cannot sandbox programs.
    PlatformUnsupported = 5003, "PLATFORM_UNSUPPORTED",
        "Run PML on Linux; elsewhere programs cannot be sandboxed.";
    /// The sandbox cannot be enforced on this machine.
    SandboxUnavailable = 5004, "SANDBOX_UNAVAILABLE",
        "The message names the missing sandbox layer.";
    /// The gateway cannot be reached.
    GatewayUnreachable = 5005, "GATEWAY_UNREACHABLE",
        "Start the gateway with `pml-server`, or set its URL with PML_CLOUD_URL.";
    /// The gateway's answer does not follow PML's protocol.
    GatewayBadAnswer = 5006, "GATEWAY_BAD_ANSWER",
        "Check that the URL is that of a PML gateway of a matching version.";
    /// All slots are in use, or the machine is too busy.
    Busy = 5007, "BUSY",
        "Retry in a moment.";
    /// A configuration file or variable is invalid.
    ConfigInvalid = 5008, "CONFIG_INVALID",
        "Correct the file, variable or option that the message names; invalid ones are never skipped.";
    /// The token issuer does not answer, so tokens cannot be verified.
    IdentityUnavailable = 5009, "IDENTITY_UNAVAILABLE",
        "Retry shortly, or use an API key; the cause is in the gateway's log.";
    /// The gateway has no master key, or the wrong one.
    SecretsUnavailable = 5012, "SECRETS_UNAVAILABLE",
        "The operator must set PML_MASTER_KEY; until then, send secrets with the call, as `X-PML-Key-…`.";
    /// The record of runs, or the lock, on the user's machine cannot be written, so nothing runs.
    RunStoreUnavailable = 5013, "RUN_STORE_UNAVAILABLE",
        "The message names the file and the cause; nothing runs that cannot be recorded.";
}

/// A text that is not the name of an error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an error code")]
pub struct UnknownErrorCode;

impl std::str::FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(name: &str) -> Result<Self, UnknownErrorCode> {
        Self::ALL.iter().copied().find(|code| code.name() == name).ok_or(UnknownErrorCode)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error in an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The code's name.
    pub error_code: ErrorCode,
    /// The code's number.
    pub error_number: u16,
    /// What failed, and for which object.
    pub message: String,
    /// The remedy.
    pub hint: String,
    /// Facts for programs: line, column, code frame, unknown tools, …; an object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// With `CLIENT_TOOLS_REQUIRE_PACKAGE`: the tools that need the CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<String>>,
    /// With `CLIENT_TOOLS_REQUIRE_PACKAGE`: how to get the CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_command: Option<String>,
}

impl ErrorBody {
    /// Creates an error with the code's own hint and no details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            error_code: code,
            error_number: code.number(),
            message: message.into(),
            hint: code.hint().to_owned(),
            details: Value::Null,
            client_tools: None,
            install_command: None,
        }
    }

    /// Adds facts for programs.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers and names are a promise: a change must show up in this file.
    #[test]
    fn the_list_equals_its_golden_file() {
        let list: String =
            ErrorCode::ALL.iter().map(|c| format!("{} {}\n", c.number(), c.name())).collect();
        assert_eq!(list, include_str!("../tests/error_codes.txt"));
        assert!(ErrorCode::ALL.windows(2).all(|w| w[0].number() < w[1].number()));
    }

    #[test]
    fn every_code_is_documented() {
        let docs = include_str!("../../docs/errors.md");
        for code in ErrorCode::ALL {
            let row = format!("| {} | `{}` | {} |", code.number(), code.name(), code.hint());
            assert!(docs.contains(&row), "docs/errors.md lacks the row: {row}");
        }
    }
}
