//! `pml runs undo`: puts back what the file tools of a run changed.

use std::process::ExitCode;

use protocol::escape_text;
use serde_json::json;

use super::{display, find};
use crate::commands::terminal::say;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::RunStore;
use crate::undo::{Plan, Step, apply, plan};
use crate::workspace::Workspace;
use crate::workspace::path_error::shown;

/// The maximum number of conflicts that are shown.
const CONFLICTS_LIMIT: usize = 20;

/// The flags of the command.
pub(super) struct Options {
    /// Only show the steps.
    pub(super) dry_run: bool,
    /// Go on although the store has faults.
    pub(super) unverified: bool,
    /// Print JSON.
    pub(super) json: bool,
}

/// Runs the command.
///
/// # Errors
/// Returns that there is no such run, that the store has a fault, that a place was changed since, or which step failed.
pub(super) fn undo(
    workspace: &Workspace,
    run: &str,
    Options { dry_run, unverified, json }: Options,
) -> Result<ExitCode, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = find(&reader, run)?;
    let id = run.began.run.clone();
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    // Somebody who changes records could have any file of the project replaced. A dry run may read them.
    if !unverified && !dry_run {
        verify(workspace, &records)?;
    }
    let plan = plan(workspace, &reader, &run)
        .map_err(|error| CliError::from_code(error.code, error.message))?;
    if !plan.conflicts.is_empty() {
        return Err(conflicts(&plan));
    }
    let undone = match dry_run || plan.steps.is_empty() {
        true => None,
        false => {
            let store = RunStore::open(workspace, records.folder())?;
            Some(apply(workspace, &store, &reader, &id, &plan)?)
        }
    };
    if json {
        say(&format!(
            "{:#}\n",
            json!({
                "run_id": id,
                "undone_by": undone.as_ref().map(|undone| &undone.run),
                "steps": plan.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
                "kept_folders": undone.as_ref().map(|undone| &undone.kept_folders),
                "not_covered": plan.not_covered.iter().map(|(tool, calls)| json!({ "tool": tool, "calls": calls })).collect::<Vec<_>>(),
            })
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for step in &plan.steps {
        out += &format!("{}\n", step.describe());
    }
    if run.ended.is_none() {
        out += "note: the end of this run is not recorded; if it is still running, it may change more.\n";
    }
    for (tool, calls) in &plan.not_covered {
        let word = if *calls == 1 { "call" } else { "calls" };
        out += &format!(
            "note: what {calls} {word} of `{}` changed is not known, and stays.\n",
            escape_text(tool)
        );
    }
    match &undone {
        Some(undone) => {
            for folder in &undone.kept_folders {
                out += &format!(
                    "note: the folder {} stays, because it is not empty.\n",
                    shown(&folder.to_string_lossy())
                );
            }
            out += &format!("Undone. `pml runs undo {}` takes this back.\n", undone.run);
        }
        None if plan.steps.is_empty() => out += "There is nothing to put back.\n",
        None => out += "Nothing was changed: this was a dry run.\n",
    }
    say(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if the store has a fault.
fn verify(workspace: &Workspace, records: &TrustStore) -> Result<(), CliError> {
    let Some(verified) = RunStore::verify(workspace, records.folder())? else { return Ok(()) };
    let Some(fault) = verified.faults.first() else { return Ok(()) };
    let message = format!("nothing was put back: {}", display::fault(fault).trim_end());
    Err(CliError::failed(message).with_hint(
        "If you know the reason, for example a power failure, look at the steps with `--dry-run`, and repeat the command with `--unverified`.",
    ))
}

fn conflicts(plan: &Plan) -> CliError {
    let mut message = "nothing was put back:".to_owned();
    for conflict in plan.conflicts.iter().take(CONFLICTS_LIMIT) {
        message += &format!("\n{conflict}");
    }
    if let Some(more) = plan.conflicts.len().checked_sub(CONFLICTS_LIMIT).filter(|more| *more > 0) {
        message += &format!("\nand {more} more");
    }
    CliError::failed(message)
        .with_hint("Undo later runs that changed these places first; newest first, as `pml runs list` shows them.")
}
