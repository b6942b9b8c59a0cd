//! `pml runs erase`: erases the values of a run, or of one of its calls.

use std::process::ExitCode;

use protocol::{ErrorCode, escape_text};
use serde_json::json;

use super::find;
use crate::args::EraseRun;
use crate::commands::terminal::say;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::live::{Found, LiveRun};
use crate::run_store::reader::Call;
use crate::run_store::{Erasing, RunStore};
use crate::workspace::Workspace;

/// Runs the command.
///
/// # Errors
/// Returns that there is no such run or call, that the run has not ended, or why its values were not erased.
pub(super) fn erase(workspace: &Workspace, options: &EraseRun) -> Result<ExitCode, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let id = {
        let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
        find(&reader, &options.run)?.began.run
    };
    // Held until the end: it cannot be resumed in the meantime.
    let live = LiveRun::find(records.folder(), &id)?;
    let run = {
        let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
        reader.run(&id)?.ok_or_else(none)?
    };
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("nothing was erased: {reason}"))
    };
    match live {
        Found::Running => return Err(refused("the run is still running")),
        _ if run.ended.is_some() || options.give_up => {}
        Found::Stopped(_) => {
            let hint = "Go on with it by `pml runs resume`, or give it up with `--give-up`.";
            return Err(refused("the run was stopped, and can be resumed").with_hint(hint));
        }
        Found::Unknown => {
            let hint = "If it is not, `--give-up` erases it.";
            return Err(refused("the run has no end, so it may still be running").with_hint(hint));
        }
    }
    if let Some(call) = &options.call {
        let is_it = |made: &Call| match made {
            Call::Made(made) => made.began.call == *call,
            Call::Refused(refused) => refused.call == *call,
            Call::Mocked(mocked) => mocked.call == *call,
        };
        if !run.calls.iter().any(is_it) {
            let message = format!("the run has no call {}", escape_text(call));
            return Err(CliError::cannot_run(message).with_hint("`pml runs show` lists its calls."));
        }
    }
    let what = Erasing { run: id, call: options.call.clone() };
    let erased = RunStore::erase(workspace, records.folder(), std::slice::from_ref(&what))?;
    if options.json {
        let shown = json!({
            "run_id": what.run,
            "call": what.call,
            "records": erased.records,
            "deleted_files": erased.files,
            "shared_files": erased.shared,
        });
        say(&format!("{shown:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = match erased.records {
        0 => "Its values had been erased before.\n".to_owned(),
        1 => "The values in 1 record were erased. Their hashes stay.\n".to_owned(),
        count => format!("The values in {count} records were erased. Their hashes stay.\n"),
    };
    if erased.shared > 0 {
        let count = erased.shared;
        let word = if count == 1 { "value stays" } else { "values stay" };
        out += &format!("{count} large {word}, because other records have the same.\n");
    }
    say(&out)?;
    Ok(ExitCode::SUCCESS)
}
