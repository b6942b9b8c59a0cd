//! The arguments of the commands about recorded runs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `pml runs list`
#[derive(Debug, Args)]
pub(crate) struct ListRuns {
    /// The maximum number of runs.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) limit: usize,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// List the executions that the gateway has recorded.
    #[arg(long)]
    pub(crate) cloud: bool,
    /// Only those in this state.
    #[arg(long, requires = "cloud")]
    pub(crate) status: Option<ExecutionStatus>,
    /// Only those of programs that declared this tool, for example `json:parse`.
    #[arg(long, requires = "cloud")]
    pub(crate) tool: Option<String>,
    /// Only those of this principal; another one than you needs a key that may administrate.
    #[arg(long, requires = "cloud")]
    pub(crate) principal: Option<String>,
    /// Only those since this time, as `2026-01-31T12:00:00Z`.
    #[arg(long, requires = "cloud", value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<String>,
    /// Only those before this time.
    #[arg(long, requires = "cloud", value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<String>,
}

/// `pml runs show`
#[derive(Debug, Args)]
pub(crate) struct ShowRun {
    /// The run's id, the beginning of it, or `last`, which is the default. With --cloud, the whole id.
    pub(crate) run: Option<String>,
    /// Print JSON, with all values in full.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show an execution that the gateway has recorded.
    #[arg(long)]
    pub(crate) cloud: bool,
}

/// The state of an execution on the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExecutionStatus {
    /// It runs on the gateway.
    Running,
    /// It was delegated to the caller's machine, and its end is not known.
    Delegated,
    /// It ended with a result.
    Success,
    /// It ended with an error.
    Error,
    /// It was cancelled.
    Cancelled,
    /// It never began.
    Refused,
    /// Its end was not recorded in time.
    Indeterminate,
}

impl ExecutionStatus {
    /// Returns its name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Delegated => "delegated",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Indeterminate => "indeterminate",
        }
    }
}

/// Parses a time; returns it in UTC.
fn time(text: &str) -> Result<String, String> {
    let parsed = chrono::DateTime::parse_from_rfc3339(text)
        .map_err(|error| format!("{error}; write it as 2026-01-31T12:00:00Z"))?;
    Ok(parsed.to_utc().to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
}

/// `pml runs …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the last runs, the newest first.
    #[command(after_help = "\
Examples:
  pml runs list
  pml runs list --cloud --status error --since 2026-01-31T00:00:00Z

With --cloud: the executions that the gateway has recorded, yours or, with a key that may administrate, those of the
project. The gateway has the programs that were submitted to it, without their text and values.

Exit codes: 0 listed, also if there is none; 2 an argument or a file is invalid; 3 the gateway needs a key, or does not accept
it; 4 the gateway or the store cannot be read.")]
    List(ListRuns),
    /// Show a run: its program, its calls and why each was allowed, and its result.
    Show(ShowRun),
    /// Go on with a run whose `pml` was stopped. Calls that have ended are not made again.
    #[command(after_help = "\
The program runs again from its beginning, and gets the recorded answers in their order and at their times. The calls after
them are made, and asked about as usual.

A call that was begun and has no end may have taken effect. You are asked about each on a terminal; elsewhere name it with
--repeat or --fail. A file tool that had not begun to change anything is simply called again.

Examples:
  pml runs resume last
  pml runs resume last --repeat 3 --fail 5.1

Exit codes: those of `pml exec`; 1 also if the run has ended, is still running, or deviates from its record; 2 no such run.")]
    Resume(ResumeRun),
    /// Put back what the file tools of a run changed: contents, new files and folders, moves.
    #[command(after_help = "\
Nothing is changed if somebody has changed one of the places since. What commands and MCP servers changed is not known, and
not put back. The undo is recorded as a run of its own, and can be undone as well.

Exit codes: 0 put back, or there was nothing to do; 1 a place was changed since, the store has a fault, or a step failed;
2 no such run; 4 the store cannot be used.")]
    Undo {
        /// The run's id, the beginning of it, or `last`; see `pml runs list`.
        run: String,
        /// Show what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Go on although `pml runs verify` finds a fault. Look at the steps of `--dry-run` first.
        #[arg(long)]
        unverified: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Erase the values of a run, or of one of its calls; the chain of records stays verifiable.
    #[command(after_help = "\
Erased are the program, its args and plan, arguments, results, messages of errors, questions, paths of changed files, and the
contents that they had. The calls with their tools and times stay, and so do the hashes of the values. The erasure is a record
itself. It cannot be taken back, and an erased run cannot be undone, replayed or resumed.

A value of a call can also be in the program, in other calls and in the result, which --call does not erase.

Examples:
  pml runs erase last
  pml runs erase last --call 3

Exit codes: 0 erased, also if it was before; 1 the run has not ended, or a record of it was changed; 2 no such run or call;
4 the store cannot be used.")]
    Erase(EraseRun),
    /// Write a run into one file, signed with this machine's key, for a reader elsewhere.
    #[command(after_help = "\
The file has the run's records, large values and the contents of files that it replaced. It is signed with an Ed25519 key,
which is made on first use. `pml verify FILE` checks it on another machine; its user trusts the key with
`pml verify --trust-key KEYFILE`, and `pml runs key` prints it.

The file can contain private data: what tools returned, and kept contents of files with any keys in them.

Examples:
  pml runs export last --output run.json
  pml runs export last --without-contents > run.json

Exit codes: 0 written; 1 the store has a fault, or the run is too large; 2 no such run, or the file cannot be written; 4 the
store or the key cannot be used.")]
    Export(ExportRun),
    /// Print the public part of the key that signs exported runs, for their readers.
    Key,
    /// Verify that the records are those that `pml` wrote, in their order, and complete.
    #[command(after_help = "\
Exit codes: 0 all records are in order; 1 one is not, and the first such record is named; 4 the store cannot be read.")]
    Verify {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The arguments of `pml replay`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The run's id, the beginning of it, or `last`; see `pml runs list`.
    pub(crate) run: String,
    /// Run this program instead of the recorded one, and say where it leaves the record.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Go on although `pml runs verify` finds a fault.
    #[arg(long)]
    pub(crate) unverified: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml report`
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The run's id, the beginning of it, or `last`, which is the default; see `pml runs list`.
    pub(crate) run: Option<String>,
    /// The form of the report.
    #[arg(long, value_name = "FORMAT", default_value = "console")]
    pub(crate) format: ReportFormat,
    /// Write the report to a file that only you can read. An existing file is replaced.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// A timeline and a summary, as text.
    Console,
    /// Everything that is recorded, as JSON.
    Json,
    /// A page of less than 1 MB that needs no network and verifies its own records.
    Html,
}

/// `pml runs erase`
#[derive(Debug, Args)]
pub(crate) struct EraseRun {
    /// The run's id, the beginning of it, or `last`; see `pml runs list`.
    pub(crate) run: String,
    /// Only this call; for a capability, with the calls of its program.
    #[arg(long, value_name = "CALL")]
    pub(crate) call: Option<String>,
    /// Erase it although its `pml` was stopped and it could be resumed.
    #[arg(long)]
    pub(crate) give_up: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml runs export`
#[derive(Debug, Args)]
pub(crate) struct ExportRun {
    /// The run's id, the beginning of it, or `last`; see `pml runs list`.
    pub(crate) run: String,
    /// The file. Default: stdout.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out large values and the contents of files; their hashes stay.
    #[arg(long)]
    pub(crate) without_contents: bool,
    /// Go on although `pml runs verify` finds a fault. The file says so.
    #[arg(long)]
    pub(crate) unverified: bool,
}

/// `pml verify`
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The exported run.
    #[arg(required_unless_present = "trust_key")]
    pub(crate) file: Option<PathBuf>,
    /// Accept only this key: the file with its public part, or the id of a trusted one. Can be repeated.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<String>,
    /// Trust the key in this file from now on, instead of verifying something.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "key"])]
    pub(crate) trust_key: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pml runs resume`
#[derive(Debug, Args)]
pub(crate) struct ResumeRun {
    /// The run's id, the beginning of it, or `last`; see `pml runs list`.
    pub(crate) run: String,
    /// Make this call again, although it may have taken effect. Can be repeated.
    #[arg(long, value_name = "CALL")]
    pub(crate) repeat: Vec<String>,
    /// Let this call fail with CALL_INDETERMINATE, which the program can catch. Can be repeated.
    #[arg(long, value_name = "CALL")]
    pub(crate) fail: Vec<String>,
    /// Refuse a run whose program had no lock, and add nothing to .pml/mcp.lock.
    #[arg(long)]
    pub(crate) frozen: bool,
    /// Go on although `pml runs verify` finds a fault.
    #[arg(long)]
    pub(crate) unverified: bool,
    /// Print the envelope as JSON, and ask nothing.
    #[arg(long)]
    pub(crate) json: bool,
}
