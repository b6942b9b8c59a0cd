//! `pml runs`: reads and verifies the record of this project's runs, and undoes them.

pub(super) mod cloud;
pub(super) mod display;
mod erase;
pub(super) mod export;
pub(super) mod json;
pub(super) mod mock;
pub(super) mod replay;
pub(super) mod report;
pub(super) mod resume;
mod undo;

use std::process::ExitCode;

use serde_json::json;

use super::terminal::say;
use crate::args::{ListRuns, RunsCommand, Settings, ShowRun};
use crate::config::Config;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::live::{Found, LiveRun};
use crate::run_store::reader::{Reader, Run};
use crate::run_store::{RunStore, StoreError, Verified};
use crate::workspace::Workspace;

/// Names the last run that is not a replay. Ids have other letters.
const LAST: &str = "last";

/// Runs the command.
///
/// # Errors
/// Returns why the store cannot be read, or that there is no such run.
pub(crate) fn runs(settings: &Settings, command: RunsCommand) -> Result<ExitCode, CliError> {
    let workspace = Workspace::find(settings.workspace.as_deref())
        .map_err(|error| CliError::cannot_run(error.to_string()))?;
    match command {
        RunsCommand::List(ListRuns { limit, json, .. }) => list(&workspace, limit, json),
        RunsCommand::Show(ShowRun { run, json, .. }) => show(&workspace, run.as_deref(), json),
        RunsCommand::Undo { run, dry_run, unverified, json } => {
            let mut workspace = workspace;
            let store =
                TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
            Config::open(&mut workspace, &store)
                .map_err(|error| CliError::cannot_run(error.to_string()))?;
            undo::undo(&workspace, &run, undo::Options { dry_run, unverified, json })
        }
        RunsCommand::Resume(_) => unreachable!("it needs a runtime"),
        RunsCommand::Erase(options) => erase::erase(&workspace, &options),
        RunsCommand::Export(options) => export::export(&workspace, &options),
        RunsCommand::Key => export::key(),
        RunsCommand::Verify { json } => verify(&workspace, json),
    }
}

fn list(workspace: &Workspace, limit: usize, json: bool) -> Result<ExitCode, CliError> {
    let runs = match RunStore::reader(workspace)? {
        Some(reader) => with_stopped(reader.last(limit)?)?,
        None => Vec::new(),
    };
    if json {
        let runs: Vec<_> = runs.iter().map(json::summary).collect();
        say(&format!("{:#}\n", json!({ "runs": runs })))?;
    } else if runs.is_empty() {
        say(&format!("No run is recorded in `{}`.\n", workspace.root().display()))?;
    } else {
        say(&display::list(&runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(workspace: &Workspace, run: Option<&str>, json: bool) -> Result<ExitCode, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let runs = with_stopped(vec![find(&reader, run.unwrap_or(LAST))?])?;
    let run = runs.into_iter().next().ok_or_else(none)?;
    say(&match json {
        true => format!("{:#}\n", json::run(&reader, &run)),
        false => display::run(&reader, &run),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Finds out which of the runs without an end were stopped.
fn with_stopped(mut runs: Vec<Run>) -> Result<Vec<Run>, CliError> {
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    for run in runs.iter_mut().filter(|run| run.ended.is_none()) {
        run.is_stopped = match LiveRun::find(records.folder(), &run.began.run)? {
            Found::Stopped(_) => Some(true),
            Found::Running => Some(false),
            Found::Unknown => None,
        };
    }
    Ok(runs)
}

/// Returns why the records of a run may not be what this user's `pml` wrote, so that somebody else may have chosen what
/// is done with them.
fn doubt(
    workspace: &Workspace,
    reader: &Reader,
    records: &TrustStore,
    run: &str,
) -> Result<Option<String>, CliError> {
    let Some(verified) = RunStore::verify(workspace, records.folder())? else { return Ok(None) };
    if let Some(fault) = verified.faults.first() {
        return Ok(Some(display::fault(fault).trim_end_matches(['.', '\n']).to_owned()));
    }
    let first = reader.first_record(run)?;
    let is_adopted = verified.adopted.is_some_and(|adopted| first.is_none_or(|seq| seq < adopted));
    Ok((is_adopted || !verified.is_end_known).then(|| {
        "The run was not recorded by this user's `pml` at this place: the store was copied here"
            .to_owned()
    }))
}

/// Finds the run whose id begins with a text, or the last one that is not a replay: `last` names the same run before and
/// after `pml replay last`.
fn find(reader: &Reader, start: &str) -> Result<Run, CliError> {
    if start == LAST {
        let none = || CliError::cannot_run("no run is recorded in this project");
        return reader.last_run()?.ok_or_else(none);
    }
    let ids = reader.ids(start)?;
    let list = "`pml runs list` lists the runs.";
    match &ids[..] {
        [id] => {
            let run = reader.run(id)?;
            run.ok_or_else(|| CliError::failed(format!("the run `{id}` has no start")))
        }
        [] => Err(CliError::cannot_run(format!("no run is recorded as `{start}`")).with_hint(list)),
        _ => {
            let message = format!("several runs begin with `{start}`");
            Err(CliError::cannot_run(message).with_hint("Write more of the id."))
        }
    }
}

fn verify(workspace: &Workspace, json: bool) -> Result<ExitCode, CliError> {
    let store = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let verified = RunStore::verify(workspace, store.folder())?;
    if json {
        say(&format!("{:#}\n", json::verified(verified.as_ref())))?;
    } else {
        let text = match &verified {
            Some(verified) => display::verified(verified),
            None => format!("No run is recorded in `{}`.\n", workspace.root().display()),
        };
        say(&text)?;
    }
    let is_sound = verified.is_none_or(|Verified { faults, .. }| faults.is_empty());
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        error.body().into()
    }
}
