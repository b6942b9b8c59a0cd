//! `pml exec --mock RUN`: the run whose record answers the calls of another one.

use std::path::Path;

use protocol::{ErrorCode, escape_text};

use super::{doubt, find};
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run::mock::Mock;
use crate::run_store::RunStore;
use crate::run_store::record::{MOCK, REPLAY, RUN};
use crate::workspace::Workspace;

/// Reads the answers of a run of the project at `root`.
///
/// # Errors
/// Returns that there is no such run, or why it cannot answer anything.
pub(in crate::commands) fn open(root: &Path, run: &str) -> Result<Mock, CliError> {
    let workspace =
        &Workspace::open(root).map_err(|error| CliError::cannot_run(error.to_string()))?;
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = find(&reader, run)?;
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("the run cannot answer calls: {reason}"))
    };
    match (run.began.mode.as_str(), &run.began.of) {
        (RUN | MOCK, _) => {}
        (REPLAY, Some(of)) => {
            let hint = format!("`--mock {}` takes the answers of that run.", escape_text(of));
            return Err(refused("it is the replay of another run").with_hint(hint));
        }
        _ => return Err(refused("it puts back what another run changed")),
    }
    // The calls that are made get what somebody else may have chosen.
    if let Some(doubt) = doubt(workspace, &reader, &records, &run.began.run)? {
        let hint = "`pml runs verify` shows what is wrong. Run the program without `--mock`.";
        return Err(refused(&escape_text(&doubt)).with_hint(hint));
    }
    if !run.erasures.is_empty() {
        return Err(refused("values of it were erased"));
    }
    Ok(Mock::read(&reader, &run))
}
