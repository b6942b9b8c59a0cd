//! `pml trust`: trusts the project's `.pml.json`, so that its grants take effect.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use crate::args::Settings;
use crate::commands::terminal::{confirmed as is_confirmed, note, say};
use crate::config;
use crate::consent::lockfile::{Lockfile, PackagesQuestion};
use crate::consent::trust::{NONINTERACTIVE, TrustStore, may_trust};
use crate::error::CliError;
use crate::workspace::Workspace;

/// Shows the file and trusts exactly these bytes.
///
/// # Errors
/// Returns why the file cannot be trusted, or that the user cannot be asked.
pub(crate) fn trust(settings: &Settings, yes: bool) -> Result<ExitCode, CliError> {
    let invalid = |error: &dyn std::fmt::Display| CliError::cannot_run(error.to_string());
    let workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| invalid(&error))?;
    let store = TrustStore::of_user().map_err(|error| invalid(&error))?;
    let content = config::read(&workspace).map_err(|error| invalid(&error))?.ok_or_else(|| {
        CliError::cannot_run("there is no `.pml.json` to trust").with_hint("`pml init` creates it.")
    })?;
    // An invalid lock allows nothing, and the other commands say so.
    let workspace = Arc::new(workspace);
    let lockfile = Lockfile::load(Arc::clone(&workspace), store.clone()).ok();
    let packages = lockfile.as_ref().map(Lockfile::packages_to_allow).transpose();
    let packages = packages?.unwrap_or_default();
    let is_trusted =
        store.is_trusted(workspace.root(), &content).map_err(|error| invalid(&error))?;
    if is_trusted && packages.is_empty() {
        say("`.pml.json` is already trusted.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let variable = std::env::var(NONINTERACTIVE).ok();
    may_trust(yes, person, variable.as_deref()).map_err(|error| invalid(&error))?;
    if !yes && !confirmed(&content, &packages)? {
        return Err(CliError::cannot_run("nothing was trusted"));
    }
    // Fails if the file has changed since it was shown.
    config::trust(&workspace, &store, &content).map_err(|error| invalid(&error))?;
    if let Some(lockfile) = &lockfile {
        lockfile.allow_packages(&packages)?;
    }
    say(&format!("`{}` is now trusted.\n", workspace.root().join(".pml.json").display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the file, escaped, and asks; anything except a clear yes means no.
fn confirmed(content: &[u8], packages: &[PackagesQuestion]) -> Result<bool, CliError> {
    for line in String::from_utf8_lossy(content).lines() {
        note(&format!("  {}\n", protocol::escape_text(line)));
    }
    for line in packages.iter().map(PackagesQuestion::line) {
        note(&format!("Its server {line}\n"));
    }
    note("Trust this file? [y/N]: ");
    std::io::stderr().flush().map_err(|error| CliError::failed(error.to_string()))?;
    is_confirmed()
}
