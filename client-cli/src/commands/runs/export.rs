//! `pml runs export`: writes a run into one signed file. `pml runs key` prints the key that readers trust.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use execution::files::atomic::{self, Existing};
use protocol::{ErrorCode, escape_text};
use rustix::fs::Mode;

use super::{display, doubt, find};
use crate::args::ExportRun;
use crate::attestation::{FILE_LIMIT, KeyError, SigningKey, Statement, seal};
use crate::commands::terminal::{note, say};
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::run_store::{RunExport, RunStore};
use crate::workspace::Workspace;

/// The type of the predicate of an exported run.
pub(in crate::commands) const PREDICATE: &str = "https://pml.casys.ai/attestations/run-record/v1";

/// Returns the name of the subject of an exported run.
pub(in crate::commands) fn subject(run: &str) -> String {
    format!("run/{run}")
}

/// Runs the command.
///
/// # Errors
/// Returns that there is no such run, why its record is not signed, or why the file cannot be written.
pub(super) fn export(workspace: &Workspace, options: &ExportRun) -> Result<ExitCode, CliError> {
    let none = || CliError::cannot_run("no run is recorded in this project");
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let reader = RunStore::reader(workspace)?.ok_or_else(none)?;
    let run = find(&reader, &options.run)?.began.run;
    let refused = |reason: &str| {
        CliError::from_code(ErrorCode::Conflict, format!("the run was not exported: {reason}"))
    };
    let doubt = doubt(workspace, &reader, &records, &run)?;
    let is_verified = doubt.is_none();
    if let Some(doubt) = doubt.filter(|_| !options.unverified) {
        let hint = "If you know the reason, for example a power failure, repeat the command with `--unverified`. The file says so.";
        return Err(refused(&escape_text(&doubt)).with_hint(hint));
    }
    let exported = RunStore::export(workspace, &run, is_verified, !options.without_contents)?;
    let too_large = || {
        refused("it is too large for one file")
            .with_hint("`--without-contents` leaves large values and contents of files out.")
    };
    let exported = exported.ok_or_else(too_large)?;
    // Nothing is signed that its reader would refuse.
    let checked = exported.check().map_err(|reason| refused(&escape_text(&reason)))?;
    if is_verified && !options.without_contents && !exported.absent.is_empty() {
        return Err(refused("a large value or the content of a file is missing or was changed"));
    }
    let key = SigningKey::of_user(records.folder()).map_err(unusable)?;
    let text = sealed(exported, &key);
    if text.len() as u64 > FILE_LIMIT {
        return Err(too_large());
    }
    match &options.output {
        Some(path) => write(path, text.as_bytes())?,
        None => say(&text)?,
    }
    for erasure in &checked.erasures {
        note(&format!("Not in it, because they were erased: {}.\n", display::erasure(erasure)));
    }
    let id = key.public().id();
    note(&format!(
        "Signed with the key {id}. `pml runs key` prints its public part for your readers.\n"
    ));
    Ok(ExitCode::SUCCESS)
}

fn sealed(exported: RunExport, key: &SigningKey) -> String {
    let (name, digest) = (subject(&exported.run), exported.digest());
    let statement = Statement::new(&name, digest, PREDICATE, exported);
    seal(&statement.to_bytes(), key)
}

/// Prints the public part of this machine's key.
///
/// # Errors
/// Returns why the key cannot be read or made.
pub(super) fn key() -> Result<ExitCode, CliError> {
    let records = TrustStore::of_user().map_err(|error| CliError::cannot_run(error.to_string()))?;
    let key = SigningKey::of_user(records.folder()).map_err(unusable)?.public();
    say(&key.to_pem())?;
    note(&format!("The key's id is {}.\n", key.id()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the file. Only the user can read it: it has what the tools returned.
fn write(path: &Path, text: &[u8]) -> Result<(), CliError> {
    let shown = escape_text(&path.to_string_lossy());
    let failed =
        |error: std::io::Error| CliError::cannot_run(format!("cannot write `{shown}`: {error}"));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed(std::io::ErrorKind::InvalidFilename.into()))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder).map_err(failed)?;
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write_durably(folder, name, text, mode, Existing::Replaced).map_err(failed)
}

fn unusable(error: KeyError) -> CliError {
    CliError::unavailable(format!("cannot use this machine's signing key: {error}"))
}
