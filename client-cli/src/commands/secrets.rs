//! `pml secrets`: the user's secrets for tools, in the workspace's `.env` or stored on the gateway.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::hidden;
use super::init;
use super::terminal::{blocking, note, say, unless_stopped};
use crate::app::App;
use crate::args::{SecretsCommand, Settings};
use crate::error::CliError;
use crate::workspace::Workspace;
use crate::workspace::dotenv;

/// The maximum length of a value in bytes; the gateway has the same limit.
const VALUE_LIMIT: usize = 8 * 1024;

/// Runs the command.
///
/// # Errors
/// Returns why the command failed; the message never contains a value.
pub(crate) async fn secrets(
    settings: &Settings,
    command: SecretsCommand,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    match command {
        SecretsCommand::Set { name, value, cloud, project, host } => {
            check_name(&name)?;
            if value.is_some() {
                return Err(CliError::cannot_run("a value cannot be passed on the command line")
                    .with_hint(
                        "Pass it on stdin. Other users may have seen it, and your shell may have saved it: revoke it and use a new one.",
                    ));
            }
            let value = read_value(&name, stop).await?;
            if cloud {
                let app = App::open(settings)?;
                let gateway = app.cloud()?;
                let stored = gateway.put_secret(&name, &value, owner(project), &host);
                let stored = unless_stopped(stop, stored).await?;
                let places = match stored.hosts.as_slice() {
                    [] => "the hosts of catalog entries".to_owned(),
                    hosts => protocol::escape_text(&hosts.join(", ")),
                };
                say(&format!(
                    "`{name}` is stored on {}. It is sent to {places} only.\n",
                    gateway.gateway()
                ))?;
            } else {
                set_locally(settings, &name, &value)?;
            }
        }
        SecretsCommand::List { cloud: true, json } => {
            let app = App::open(settings)?;
            let stored = unless_stopped(stop, app.cloud()?.secrets()).await?;
            if json {
                say(&format!("{:#}\n", json!(stored)))?;
            } else {
                let rows = stored.iter().map(|secret| {
                    let hosts = match secret.hosts.as_slice() {
                        [] => "catalog".to_owned(),
                        hosts => hosts.join(","),
                    };
                    [secret.name.clone(), secret.owner.clone(), when(&secret.updated_at), hosts]
                });
                let rows: Vec<[String; 4]> = rows.collect();
                if rows.is_empty() {
                    note("No secret is stored on the gateway for you or your project.\n");
                } else {
                    say(&table(["NAME", "FOR", "CHANGED", "GOES TO"], &rows))?;
                }
            }
        }
        SecretsCommand::List { cloud: false, json } => {
            let text = dotenv::read(&workspace(settings)?).map_err(|error| unusable(&error))?;
            for line in dotenv::broken_lines(&text) {
                note(&format!("`.env` line {line} cannot be parsed and is ignored\n"));
            }
            let names: Vec<String> = dotenv::parse(&text).into_keys().collect();
            if json {
                let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
                say(&format!("{:#}\n", json!(names)))?;
            } else {
                let lines = names.iter().map(|name| format!("{}\n", protocol::escape_text(name)));
                say(&lines.collect::<String>())?;
            }
        }
        SecretsCommand::Unset { name, cloud, project } => {
            check_name(&name)?;
            if cloud {
                let app = App::open(settings)?;
                unless_stopped(stop, app.cloud()?.delete_secret(&name, owner(project))).await?;
            } else {
                let workspace = workspace(settings)?;
                let text = dotenv::read(&workspace).map_err(|error| unusable(&error))?;
                let text = dotenv::unset(&text, &name).ok_or_else(|| {
                    CliError::cannot_run(format!("`{name}` is not set in the workspace's `.env`"))
                })?;
                dotenv::write(&workspace, &text).map_err(|error| unusable(&error))?;
            }
            say(&format!("`{name}` is no longer set.\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders a table; the first line has the column names.
pub(super) fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let shown = rows.iter().map(|row| row.each_ref().map(|cell| protocol::escape_text(cell)));
    let lines: Vec<[String; N]> = std::iter::once(names.map(str::to_owned)).chain(shown).collect();
    let widths: Vec<usize> = (0..N)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// Formats an RFC 3339 time in UTC for display, to the minute.
fn when(time: &str) -> String {
    // `get` instead of an index: the text comes from the gateway and need not be a time.
    match (time.get(..10), time.get(11..16), time.ends_with('Z')) {
        (Some(day), Some(minute), true) => format!("{day} {minute} UTC"),
        _ => time.to_owned(),
    }
}

fn set_locally(settings: &Settings, name: &str, value: &str) -> Result<(), CliError> {
    let workspace = workspace(settings)?;
    let text = dotenv::read(&workspace).map_err(|error| unusable(&error))?;
    let text = dotenv::set(&text, name, value).ok_or_else(|| {
        CliError::cannot_run("a `.env` file cannot contain this value")
            .with_hint("`pml secrets set --cloud` accepts any value.")
    })?;
    dotenv::write(&workspace, &text).map_err(|error| unusable(&error))?;
    // Only for a reminder, so a file that cannot be read counts as one without the entry.
    if !init::ignores(&workspace, ".env").unwrap_or(false) {
        note("`.env` is not in `.gitignore`: do not commit it.\n");
    }
    say(&format!("`{name}` is set in `{}`.\n", workspace.root().join(".env").display()))
}

fn owner(project: bool) -> &'static str {
    if project { "project" } else { "me" }
}

fn workspace(settings: &Settings) -> Result<Workspace, CliError> {
    Workspace::find(settings.workspace.as_deref())
        .map_err(|error| CliError::cannot_run(error.to_string()))
}

fn unusable(error: &std::io::Error) -> CliError {
    CliError::cannot_run(format!("the workspace's `.env` cannot be used: {error}"))
}

fn check_name(name: &str) -> Result<(), CliError> {
    // The rule of the gateway for the names of secrets, applied to `.env` as well.
    let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let is_name = name.len() <= 128
        && name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.bytes().all(allowed);
    if is_name {
        return Ok(());
    }
    // The input may be the secret's value, in the wrong argument, so it is not repeated.
    Err(CliError::cannot_run("not the name of a variable: capital letters, digits and `_`")
        .with_hint(
            "`pml secrets set TAVILY_API_KEY` prompts for the value, or reads it from stdin.",
        ))
}

/// Reads a value from stdin, or prompts a person for it without echo.
async fn read_value(name: &str, stop: &CancellationToken) -> Result<String, CliError> {
    let text = if std::io::stdin().is_terminal() {
        hidden::ask(&format!("{name}: "), stop).await?
    } else {
        // One byte beyond the limit, plus a line end, distinguishes too large from just small enough.
        let limit = VALUE_LIMIT as u64 + 3;
        let read = blocking(stop, move || {
            let mut text = String::new();
            std::io::stdin().lock().take(limit).read_to_string(&mut text).map(|_| text)
        });
        read.await?.map_err(|error| CliError::failed(format!("cannot read the value: {error}")))?
    };
    // Only the line end is removed: other white space may be a part of the secret.
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() || value.len() > VALUE_LIMIT {
        return Err(CliError::cannot_run("a value must have 1 to 8192 bytes"));
    }
    Ok(value.to_owned())
}
