//! `pml replay`: runs the program of a recorded run again, or a changed one, with the recorded answers.

mod calls;
mod inputs;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use analysis::Bundle;
use protocol::{ErrorBody, ErrorCode, escape_text};
use sandbox::{Pool, PoolConfig};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{doubt, find};
use crate::analyser::Analyser;
use crate::args::{Replay, Settings};
use crate::commands::terminal::{note, say};
use crate::commands::{exec, program};
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run::journal::Journal;
use crate::run::replay::record::Recorded;
use crate::run::replay::{self, Replayed};
use crate::run_store::RunStore;
use crate::run_store::reader::{Reader, Run};
use crate::run_store::record::{Failure, MOCK, REPLAY, RUN, RunEnded, now};
use crate::workspace::Workspace;

/// Why a run ends whatever its program does. The record does not say what the program did then.
const ENDED_FROM_OUTSIDE: &[ErrorCode] = &[
    ErrorCode::ApprovalDenied,
    ErrorCode::ApprovalExpired,
    ErrorCode::Cancelled,
    ErrorCode::PermissionDenied,
    ErrorCode::PolicyDenied,
    ErrorCode::RunStoreUnavailable,
    ErrorCode::TimeLimit,
    ErrorCode::TooManyCalls,
];

/// What a program may take longer than when it was recorded.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a replay compares with the record.
enum Comparison {
    /// The end is the recorded one.
    Same,
    /// It is another one.
    Other,
    /// The record has no end of the program to compare with; the reason is a sentence.
    Unknown(&'static str),
    /// A changed program has left the record before its end.
    Left,
}

impl Comparison {
    /// Returns whether the end is the recorded one, if that is known.
    fn matches(&self) -> Option<bool> {
        match self {
            Self::Same => Some(true),
            Self::Other | Self::Left => Some(false),
            Self::Unknown(_) => None,
        }
    }
}

/// Runs the command. `changed` is the program that runs instead of the recorded one.
///
/// # Errors
/// Returns that there is no such run, why it cannot be replayed, or that the replay differs from the record.
pub(crate) async fn replay(
    analyser: Arc<Analyser>,
    settings: &Settings,
    options: Replay,
    changed: Option<Bundle>,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let workspace = Workspace::find(settings.workspace.as_deref())
        .map_err(|error| CliError::cannot_run(error.to_string()))?;
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let Opened { reader, run, mut journal, doubt } = open(&workspace, &records, &options)?;
    let began_at = now();
    let analysis = match &changed {
        Some(program) => {
            journal.replace_program(program.code.clone());
            analyser.analyse(&program.code).await.map_err(|error| located(error, program))?
        }
        None => analyser.analyse(&journal.code).await?,
    };
    let code = journal.code.clone();
    let sandboxes = Pool::new(PoolConfig { warm: 1, ..PoolConfig::default() })
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))?;
    let patience = patience(&run);
    let replayed = replay::replay(&analysis, &sandboxes, journal, patience, stop).await;
    let mut replayed = match (replayed, &changed) {
        (Err(error), Some(program)) => return Err(located(error, program)),
        (replayed, _) => replayed?,
    };
    if let (Err(error), Some(program)) = (&mut replayed.result, &changed) {
        program::locate(program, error);
    }
    let comparison = match &replayed.left {
        Some(_) => Comparison::Left,
        None => compare(&run, &replayed),
    };
    let inputs = inputs::compare(&workspace, &reader, &run, &code);
    let recorded = match &doubt {
        // The record of a replay must not be the first that this user writes to a store that somebody else may have made.
        Some(_) => Err("the store has a fault, or was copied here".to_owned()),
        None => {
            let result = match &replayed.left {
                Some(left) => Err(&left.error),
                None => replayed.result.as_ref(),
            };
            let replay = Recorded {
                of: &run,
                began_at,
                changed_program: changed.as_ref().map(|program| program.code.as_str()),
                analysis: &analysis,
                replayed: &replayed,
                result,
                matches: comparison.matches(),
                inputs: inputs.iter().filter_map(inputs::Input::recorded).collect(),
            };
            let stored = RunStore::open(&workspace, records.folder());
            match stored {
                Ok(store) => replay.write(&store).await.map_err(|error| error.message),
                Err(error) => Err(error.body().message),
            }
        }
    };
    let whole = Bundle::of_one(code);
    let program = changed.as_ref().unwrap_or(&whole);
    let calls = calls::report(&reader, &run, &replayed, &analysis, program);
    if options.json {
        let mut report = to_json(&run, &replayed, &comparison);
        report["replay"] = json!(recorded.as_ref().ok());
        report["not_recorded"] = json!(recorded.as_ref().err());
        report["changed"] = inputs.iter().map(inputs::Input::to_json).collect();
        report["left"] = calls.departure.as_ref().map_or(Value::Null, calls::Departed::to_json);
        report["not_made"] = calls.not_made.iter().map(calls::Recorded::to_json).collect();
        say(&format!("{report:#}\n"))?;
    } else {
        // What is not known of tools matters to somebody who changes the program.
        let shown = inputs.iter().filter(|input| changed.is_some() || input.is_changed());
        note(&shown.map(inputs::Input::line).collect::<String>());
        show(&run, &replayed, &comparison, &recorded)?;
        note(&calls.text());
    }
    end(&run, &replayed, &comparison, options.json)
}

/// Returns an error of a changed program, with the file that it is in.
fn located(mut error: ErrorBody, program: &Bundle) -> CliError {
    program::locate(program, &mut error);
    error.into()
}

/// Returns the exit code of a replay, or the error that it ends with.
fn end(
    run: &Run,
    replayed: &Replayed,
    comparison: &Comparison,
    json: bool,
) -> Result<ExitCode, CliError> {
    let error = match (comparison, &replayed.left) {
        (Comparison::Same | Comparison::Unknown(_), _) => return Ok(ExitCode::SUCCESS),
        (_, Some(left)) => {
            let mut error = left.error.clone();
            error.hint =
                "Nothing was called. If the change is intended, run the program anew.".to_owned();
            CliError::from(error)
        }
        (_, None) => CliError::from_code(ErrorCode::ReplayMismatch, differs(run, replayed)),
    };
    if json { Ok(error.exit_code()) } else { Err(error) }
}

/// A run whose program is run again.
struct Opened {
    reader: Reader,
    run: Run,
    journal: Journal,
    /// Why its record may not be what this user's `pml` wrote.
    doubt: Option<String>,
}

/// Finds the run, and reads its record; `records` are the user's own.
fn open(workspace: &Workspace, records: &TrustStore, options: &Replay) -> Result<Opened, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = find(&reader, &options.run)?;
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("the run cannot be replayed: {reason}"))
    };
    match (run.began.mode.as_str(), &run.began.of) {
        (RUN | MOCK, _) => {}
        (REPLAY, Some(of)) => {
            let hint = format!("`pml replay {}` replays that run again.", escape_text(of));
            return Err(refused("it is the replay of another run").with_hint(hint));
        }
        _ => return Err(refused("it puts back what another run changed")),
    }
    let doubt = doubt(workspace, &reader, records, &run.began.run)?;
    if let Some(doubt) = doubt.as_ref().filter(|_| !options.unverified) {
        let hint = "`--unverified` replays it nevertheless.";
        return Err(refused(&escape_text(doubt)).with_hint(hint));
    }
    let journal = Journal::read(&reader, &run)?;
    Ok(Opened { reader, run, journal, doubt })
}

/// Returns how long the program may take after its last answer: as long as the whole run took, and some more.
fn patience(run: &Run) -> Option<Duration> {
    let ended = run.ended.as_ref()?;
    let time = |at: &str| chrono::DateTime::parse_from_rfc3339(at).ok();
    let took = time(&run.began.at)
        .zip(time(&ended.at))
        .and_then(|(began, ended)| (ended - began).to_std().ok());
    Some(took.unwrap_or_default() + PATIENCE)
}

fn compare(run: &Run, replayed: &Replayed) -> Comparison {
    let result = &replayed.result;
    let Some(ended) = &run.ended else {
        return Comparison::Unknown(
            "The run has not ended, so there is no result to compare with.",
        );
    };
    let is_same = match (result, &ended.output, &ended.error) {
        (_, Some(output), _) if output.redacted => {
            return Comparison::Unknown("The result contained a key, so it is not compared.");
        }
        (_, Some(output), _) if output.erased => {
            return Comparison::Unknown("The result was erased, so it is not compared.");
        }
        (Ok(value), Some(output), _) => {
            RunStore::hash(value) == output.hash && prints_the_same(ended, replayed)
        }
        (Err(error), _, Some(recorded)) => {
            let error = Failure::of(error);
            (&error.code, &error.message) == (&recorded.code, &recorded.message)
                && prints_the_same(ended, replayed)
        }
        _ => false,
    };
    let was_ended = ended.error.as_ref().and_then(|error| error.code.parse().ok());
    match is_same {
        true => Comparison::Same,
        false if was_ended.is_some_and(|code| ENDED_FROM_OUTSIDE.contains(&code)) => {
            Comparison::Unknown(
                "The run was ended before its program, so there is no result to compare with.",
            )
        }
        false => Comparison::Other,
    }
}

/// Returns whether the program has printed the same. Runs of earlier versions of `pml` have no record of it.
fn prints_the_same(ended: &RunEnded, replayed: &Replayed) -> bool {
    ended.console.is_none() || ended.console == replayed.printed
}

fn differs(run: &Run, replayed: &Replayed) -> String {
    let ended = run.ended.as_ref();
    let result = replayed.result.as_ref().ok().map(RunStore::hash);
    let is_result = ended.and_then(|ended| ended.output.as_ref()).map(|output| output.hash);
    if result.is_some() && result == is_result {
        return "the result is the recorded one, but the program printed something else".to_owned();
    }
    let recorded = ended.and_then(|ended| ended.error.as_ref());
    let recorded = recorded.map_or("a result".to_owned(), |error| {
        format!("{} ({})", escape_text(&error.message), error.code)
    });
    let now = match &replayed.result {
        Ok(_) => "another result".to_owned(),
        Err(error) => format!("{} ({})", escape_text(&error.message), error.error_code.name()),
    };
    format!("the replay ended with {now}; the record has {recorded}")
}

fn to_json(run: &Run, replayed: &Replayed, comparison: &Comparison) -> Value {
    let console = replayed.console.iter();
    let console = console.map(|line| json!({ "level": line.level, "text": line.text }));
    let mut report = json!({
        "run": run.began.run,
        "calls": replayed.calls,
        "matches": comparison.matches(),
        "console": console.collect::<Vec<_>>(),
    });
    match &replayed.result {
        // It was ended where it left the record.
        _ if replayed.left.is_some() => {}
        Ok(value) => report["result"] = value.clone(),
        Err(error) => report["error"] = json!(error),
    }
    report
}

/// Prints what the program did, how that compares, and the id of the replay or why it was not `recorded`.
fn show(
    run: &Run,
    replayed: &Replayed,
    comparison: &Comparison,
    recorded: &Result<String, String>,
) -> Result<(), CliError> {
    for line in &replayed.console {
        note(&format!("{}\n", escape_text(&line.text)));
    }
    match &replayed.result {
        _ if replayed.left.is_some() => {}
        Ok(value) => say(&exec::printed(value)?)?,
        Err(error) => {
            note(&format!(
                "The program failed: {} [{}]\n",
                escape_text(&error.message),
                error.error_code.name()
            ));
        }
    }
    let what = match comparison {
        Comparison::Same => " The result is the recorded one.".to_owned(),
        // The error says it.
        Comparison::Other | Comparison::Left => String::new(),
        Comparison::Unknown(why) => format!(" {why}"),
    };
    let (id, calls) = (escape_text(&run.began.run), replayed.calls);
    let word = if calls == 1 { "call" } else { "calls" };
    let recorded = match recorded {
        Ok(replay) => format!("Recorded as run {replay}."),
        Err(why) => format!("The replay was not recorded: {}.", escape_text(why)),
    };
    note(&format!(
        "Replayed run {id}: {calls} {word} answered from the record.{what}\n{recorded}\n"
    ));
    Ok(())
}
