//! `pml init`: sets up a project for agents.

mod key;
mod servers;
mod setup;
mod tool_sync;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

pub(super) use setup::{ignores, starts_stdio};

use super::terminal::{ask_line, say};
use crate::agents::Agent;
use crate::args::{self, Settings};
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::files::home;
use crate::workspace::Workspace;
use setup::Agents;

/// A project that is set up, and how the command was called.
struct Setup<'a> {
    settings: &'a Settings,
    options: &'a args::Init,
    workspace: Workspace,
    store: TrustStore,
    agents: Agents,
    stop: &'a CancellationToken,
}

impl Setup<'_> {
    /// Returns whether a person can be asked. Questions go to stderr, because stdout may be piped, so both ends must be
    /// terminals.
    fn asks(&self) -> bool {
        !self.options.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks a question whose default is no.
    async fn is_confirmed(&self, question: String) -> Result<bool, CliError> {
        let answer = ask_line(question, self.stop).await?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }
}

/// Shows the planned changes, asks, and makes them; then offers what a project can have besides.
///
/// # Errors
/// Returns why the project was not set up.
pub(super) async fn init(
    settings: &Settings,
    options: &args::Init,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let refused = |error: &dyn std::fmt::Display| CliError::cannot_run(error.to_string());
    let workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| refused(&error))?;
    let store = TrustStore::of_user().map_err(|error| refused(&error))?;
    let home = home();
    let chosen = match options.agents.is_empty() {
        true => Agent::found(&workspace, home.as_deref()),
        false => options.agents.clone(),
    };
    let agents = Agents { chosen, home };
    let setup = Setup { settings, options, workspace, store, agents, stop };
    let plan = setup::plan(&setup.workspace, &setup.agents).map_err(|error| {
        let hint = "`pml init --agent NAME` sets up this agent only.";
        CliError::cannot_run(error.to_string()).with_hint(hint)
    })?;
    let root = setup.workspace.root().display();
    if !plan.changes {
        say(&format!("`{root}` is already set up for agents; nothing was changed.\n{plan}\n"))?;
        offer(&setup).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if !options.yes {
        if !setup.asks() {
            return Err(CliError::cannot_run("there is no terminal to ask on")
                .with_hint("`pml init --yes` uses the defaults."));
        }
        let answer = ask_line(format!("In `{root}`:\n{plan}\nContinue? [Y/n]: "), stop).await?;
        // End of input counts as no.
        if !matches!(answer.to_ascii_lowercase().as_str(), "\n" | "y\n" | "yes\n") {
            return Err(CliError::cannot_run("nothing was written"));
        }
    }
    let report = setup::init(&setup.workspace, &setup.store, &setup.agents);
    say(&format!("{}\n", report.map_err(|error| refused(&error))?))?;
    offer(&setup).await?;
    say("\nNext: restart your agent in this project, or run `pml exec program.ts`.\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Offers what is not done without being asked for.
async fn offer(setup: &Setup<'_>) -> Result<(), CliError> {
    servers::offer(setup).await?;
    key::offer(setup).await?;
    tool_sync::offer(setup).await
}
