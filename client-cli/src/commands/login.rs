//! `pml login` and `pml logout`: the key for a gateway, kept for this user.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use protocol::{ErrorCode, escape_text};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio_util::sync::CancellationToken;

use super::{interrupted, note, say};
use crate::args::Settings;
use crate::cloud::Cloud;
use crate::config::Config;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::keys::{self, ApiKey, Gateway};
use crate::workspace::Workspace;

/// The most of stdin that is read for a key, in bytes.
const INPUT_LIMIT: u64 = 8 * 1024;

/// Asks for a key or reads it from stdin, tries it at the gateway and keeps it.
pub(super) async fn login(
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let gateway = gateway(settings)?;
    let path = file()?;
    let text = ask(&gateway, stop).await?;
    let key = ApiKey::new(&text, "stdin").map_err(|error| invalid(&error))?.ok_or_else(|| {
        CliError::cannot_run("no key was given; nothing was kept")
            .with_hint("Type it, or send it to stdin: `pml login < key.txt`.")
    })?;
    let cloud = Cloud::new(gateway.clone(), Some(key.clone()))?;
    // One that the gateway does not take must not replace one that it does.
    let own = tokio::select! {
        own = cloud.own_key() => own?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    keys::keep(&path, &gateway, &key).map_err(|error| invalid(&error))?;
    say(&format!(
        "Logged in to {gateway} as `{}` in `{}`. The key may: {}.\nIt is kept in `{}`.\n",
        escape_text(&own.principal),
        escape_text(&own.scope),
        escape_text(&own.can.join(", ")),
        path.display()
    ))?;
    if std::env::var(keys::KEY_VARIABLE).is_ok_and(|value| !value.trim().is_empty()) {
        note("warning: `PML_API_KEY` is set and counts before the key that was kept\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// Forgets the key for the gateway.
pub(super) fn logout(settings: &Settings) -> Result<ExitCode, CliError> {
    let gateway = gateway(settings)?;
    let was_there = keys::forget(&file()?, &gateway).map_err(|error| invalid(&error))?;
    say(&if was_there {
        format!(
            "The key for {gateway} is no longer kept here. It still counts until it is revoked.\n"
        )
    } else {
        format!("No key was kept for {gateway}.\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the gateway as every command does.
fn gateway(settings: &Settings) -> Result<Gateway, CliError> {
    let workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| invalid(&error))?;
    let store = TrustStore::of_user().map_err(|error| invalid(&error))?;
    let config = Config::load(&workspace, &store).map_err(|error| invalid(&error))?;
    let variable = std::env::var(keys::URL_VARIABLE).ok();
    Gateway::choose(settings.url.as_deref(), variable.as_deref(), config.cloud_url.as_deref())
        .map_err(|error| invalid(&error))
}

fn file() -> Result<PathBuf, CliError> {
    keys::user_file().ok_or_else(|| {
        CliError::cannot_run("there is no home to keep a key in").with_hint("Set HOME.")
    })
}

/// Reads a line: from a person without showing it, from anything else as it comes.
async fn ask(gateway: &Gateway, stop: &CancellationToken) -> Result<String, CliError> {
    let silence = if std::io::stdin().is_terminal() {
        note(&format!("API key for {gateway} (it is not shown): "));
        Some(Silence::begin().map_err(|error| {
            CliError::failed(format!("the terminal cannot be silenced: {error}"))
        })?)
    } else {
        None
    };
    // A terminal may never give an end; a signal must end us, and bring the echo back, all the same.
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().take(INPUT_LIMIT).read_line(&mut line).map(|_| line)
    });
    let line = tokio::select! {
        read = read => read.map_err(|error| CliError::failed(error.to_string()))?,
        () = stop.cancelled() => {
            drop(silence);
            note("\n");
            return Err(interrupted());
        }
    };
    if silence.is_some() {
        // The line end that was typed was not shown either.
        note("\n");
    }
    line.map_err(|error| CliError::cannot_run(format!("cannot read the key: {error}")))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Silence(Termios);

impl Silence {
    fn begin() -> Result<Self, rustix::io::Errno> {
        let before = tcgetattr(std::io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn invalid(error: &dyn std::fmt::Display) -> CliError {
    CliError::from_code(ErrorCode::ConfigInvalid, error.to_string())
}
