//! `pml runs undo`: puts back what the file tools of a run changed.

use std::process::ExitCode;

use protocol::{ErrorCode, escape_text};
use serde_json::json;

use super::{doubt, find};
use crate::commands::terminal::say;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::RunStore;
use crate::run_store::live::{Found, LiveRun};
use crate::run_store::record::{REPLAY, UNDO};
use crate::undo::{Plan, apply, plan};
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
    let id = find(&reader, run)?.began.run;
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    // Held until the end: it cannot be resumed in the meantime.
    let live = LiveRun::find(records.folder(), &id)?;
    let is_running = matches!(live, Found::Running);
    if is_running && !dry_run {
        let message = "the run cannot be undone: it is still running";
        return Err(CliError::from_code(ErrorCode::Conflict, message));
    }
    let run = reader.run(&id)?.ok_or_else(none)?;
    if run.began.mode == REPLAY {
        let message = "the run cannot be undone: it is a replay, which changed nothing";
        return Err(CliError::from_code(ErrorCode::Conflict, message));
    }
    // Somebody who changes records could have any file of the project replaced. A dry run may read them.
    let doubt = doubt(workspace, &reader, &records, &id)?;
    if let Some(doubt) = doubt.as_ref().filter(|_| !unverified && !dry_run) {
        return Err(doubted(doubt));
    }
    let plan = plan(workspace, &reader, &run, doubt.is_none())
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
                "undone_by": undone.as_ref().or(plan.undone_by.as_ref()),
                "steps": plan.to_json(),
                "kept_folders": plan.kept_folders,
                "not_covered": plan.not_covered.iter().map(|(tool, calls)| json!({ "tool": tool, "calls": calls })).collect::<Vec<_>>(),
            })
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for planned in &plan.steps {
        out += &format!("{}\n", planned.step.describe());
    }
    for folder in &plan.kept_folders {
        out += &format!(
            "note: the folder {} stays, because it is not empty.\n",
            shown(&folder.to_string_lossy())
        );
    }
    if let Some(doubt) = doubt.filter(|_| dry_run) {
        out += &format!("note: {doubt}.\n");
    }
    if is_running {
        out += "note: this run is still running and may change more.\n";
    } else if run.ended.is_none() && matches!(live, Found::Unknown) && run.began.mode != UNDO {
        out += "note: the end of this run is not recorded; if it is still running, it may change more.\n";
    }
    for (tool, calls) in &plan.not_covered {
        let word = if *calls == 1 { "call" } else { "calls" };
        out += &format!(
            "note: what {calls} {word} of `{}` changed is not known, and stays.\n",
            escape_text(tool)
        );
    }
    match (&undone, &plan.undone_by) {
        (Some(undone), _) => {
            out += &format!("Undone. `pml runs undo {undone}` takes this back.\n");
        }
        (None, Some(by)) => {
            out += &format!("It was undone already; `pml runs undo {by}` takes that back.\n");
        }
        (None, None) if plan.steps.is_empty() => out += "There is nothing to put back.\n",
        (None, None) => out += "Nothing was changed: this was a dry run.\n",
    }
    say(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn doubted(doubt: &str) -> CliError {
    CliError::from_code(ErrorCode::Conflict, format!("nothing was put back. {doubt}")).with_hint(
        "If you know the reason, for example a power failure or a copied project, look at the steps with `--dry-run`, and repeat the command with `--unverified`.",
    )
}

fn conflicts(plan: &Plan) -> CliError {
    let mut message = "nothing was put back:".to_owned();
    for conflict in plan.conflicts.iter().take(CONFLICTS_LIMIT) {
        message += &format!("\n{conflict}");
    }
    if let Some(more) = plan.conflicts.len().checked_sub(CONFLICTS_LIMIT).filter(|more| *more > 0) {
        message += &format!("\nand {more} more");
    }
    let hint = match plan.not_covered.is_empty() {
        true => {
            "A later run may have changed these places: undo it first. `pml runs list` shows the runs."
        }
        false => {
            "A later run, or a command or server that this run called, may have changed these places. `pml runs show` lists the calls."
        }
    };
    CliError::from_code(ErrorCode::Conflict, message).with_hint(hint)
}
