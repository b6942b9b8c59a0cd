//! `pml man`: the manual pages of all commands.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use super::terminal::say;
use crate::args::Cli;
use crate::error::CliError;

/// Writes a page for `pml` and one for each command.
///
/// # Errors
/// Returns which file cannot be written.
pub(super) fn man(folder: &Path) -> Result<ExitCode, CliError> {
    let refused = |error: std::io::Error| {
        CliError::cannot_run(format!(
            "cannot write manual pages to `{}`: {error}",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(refused)?;
    say(&format!("Wrote the manual pages to {}\n", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
