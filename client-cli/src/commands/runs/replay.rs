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
use crate::run::replay::{self, Replayed};
use crate::run_store::RunStore;
use crate::run_store::reader::{Reader, Run};
use crate::run_store::record::{Failure, RUN};
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
    let (reader, run, mut journal) = open(&workspace, &options)?;
    let analysis = match &changed {
        Some(program) => {
            journal.replace_program(program.code.clone());
            analyser.analyse(&program.code).await.map_err(|error| located(error, program))?
        }
        None => analyser.analyse(&journal.code).await?,
    };
    let sandboxes = Pool::new(PoolConfig { warm: 1, ..PoolConfig::default() })
        .map_err(|error| CliError::from_code(ErrorCode::SandboxUnavailable, error.to_string()))?;
    let patience = patience(&run);
    let replayed = replay::replay(&analysis, &sandboxes, journal, patience, stop).await;
    let mut replayed = match (replayed, &changed) {
        (Err(error), Some(program)) => return Err(located(error, program)),
        (replayed, _) => replayed?,
    };
    let Some(program) = changed else {
        if let Some(left) = replayed.left {
            return Err(left.error.into());
        }
        let comparison = compare(&run, &replayed.result);
        if options.json {
            say(&format!("{:#}\n", to_json(&run, &replayed, &comparison)))?;
        } else {
            show(&run, &replayed, &comparison)?;
        }
        return end(&run, &replayed, &comparison, options.json);
    };
    if let Err(error) = &mut replayed.result {
        program::locate(&program, error);
    }
    let comparison = match &replayed.left {
        Some(_) => Comparison::Left,
        None => compare(&run, &replayed.result),
    };
    let inputs = inputs::compare(&workspace, &reader, &run, &program.code);
    let calls = calls::report(&reader, &run, &replayed, &analysis, &program);
    if options.json {
        let mut report = to_json(&run, &replayed, &comparison);
        report["changed"] = inputs.iter().map(inputs::Input::to_json).collect();
        report["left"] = calls.departure.as_ref().map_or(Value::Null, calls::Departed::to_json);
        report["not_made"] = calls.not_made.iter().map(calls::Recorded::to_json).collect();
        say(&format!("{report:#}\n"))?;
    } else {
        note(&inputs.iter().map(inputs::Input::line).collect::<String>());
        show(&run, &replayed, &comparison)?;
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

/// Finds the run, and reads its record.
fn open(workspace: &Workspace, options: &Replay) -> Result<(Reader, Run, Journal), CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = find(&reader, &options.run)?;
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("the run cannot be replayed: {reason}"))
    };
    if run.began.mode != RUN {
        return Err(refused("it puts back what another run changed"));
    }
    let doubt = doubt(workspace, &reader, &records, &run.began.run)?;
    if let Some(doubt) = doubt.filter(|_| !options.unverified) {
        let hint = "`--unverified` replays it nevertheless.";
        return Err(refused(&escape_text(&doubt)).with_hint(hint));
    }
    let journal = Journal::read(&reader, &run)?;
    Ok((reader, run, journal))
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

fn compare(run: &Run, result: &Result<Value, ErrorBody>) -> Comparison {
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
        (Ok(value), Some(output), _) => RunStore::hash(value) == output.hash,
        (Err(error), _, Some(recorded)) => {
            let error = Failure::of(error);
            (&error.code, &error.message) == (&recorded.code, &recorded.message)
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

fn differs(run: &Run, replayed: &Replayed) -> String {
    let recorded = run.ended.as_ref().and_then(|ended| ended.error.as_ref());
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
        "matches": match comparison {
            Comparison::Same => Some(true),
            Comparison::Other | Comparison::Left => Some(false),
            Comparison::Unknown(_) => None,
        },
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

fn show(run: &Run, replayed: &Replayed, comparison: &Comparison) -> Result<(), CliError> {
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
        Comparison::Same => "The result is the recorded one.",
        Comparison::Other | Comparison::Left => return Ok(()),
        Comparison::Unknown(why) => why,
    };
    let (id, calls) = (escape_text(&run.began.run), replayed.calls);
    let word = if calls == 1 { "call" } else { "calls" };
    note(&format!("Replayed run {id}: {calls} {word} answered from the record. {what}\n"));
    Ok(())
}
