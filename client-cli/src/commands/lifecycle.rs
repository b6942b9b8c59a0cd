//! `pml deprecate` and `pml yank`: marks on published versions, whose content never changes.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::unpublish::{name_missing, path};
use crate::app::App;
use crate::args::Deprecate;
use crate::commands::terminal::{interrupted, say};
use crate::error::CliError;

/// Runs `pml deprecate`.
///
/// # Errors
/// Returns why it failed.
pub(crate) async fn deprecate(
    app: Arc<App>,
    deprecate: Deprecate,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let (name, version) = split(&deprecate.name);
    let (path, what) = path(name)?;
    let mut body = json!({ "message": deprecate.message });
    if let Some(version) = version {
        body["version"] = json!(version);
    }
    mark(&app, &format!("{path}/deprecate"), body, &what, stop).await?;
    let which = version.map_or_else(String::new, |version| format!(" {version}"));
    say(&match deprecate.undo {
        true => format!("{what}{which} is no longer deprecated.\n"),
        false => format!("{what}{which} is deprecated.\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `pml yank`.
///
/// # Errors
/// Returns why the version was not yanked.
pub(crate) async fn yank(
    app: Arc<App>,
    name: &str,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let (bare, Some(version)) = split(name) else {
        return Err(CliError::cannot_run(format!("`{name}` has no version"))
            .with_hint("Write `NAME@VERSION`. To delete all versions: `pml unpublish NAME`."));
    };
    let (path, what) = path(bare)?;
    let versioned = format!("{what} {version}");
    mark(&app, &format!("{path}/yank"), json!({ "version": version }), &versioned, stop).await?;
    say(&format!(
        "{what} {version} is yanked: only requests for exactly this version still resolve.\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn mark(
    app: &App,
    path: &str,
    body: Value,
    what: &str,
    stop: &CancellationToken,
) -> Result<(), CliError> {
    tokio::select! {
        marked = app.cloud()?.mark_entry(path, body) => Ok(marked.map_err(|error| name_missing(error, what))?),
        () = stop.cancelled() => Err(interrupted()),
    }
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(name, version)| (name, Some(version)))
}
