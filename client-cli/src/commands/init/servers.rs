//! The offer of `pml init`: MCP servers that agents start themselves become servers of `.pml.json`, so that they are
//! sealed, and their calls are judged and recorded.

use protocol::escape_text;
use serde_json::Value;

use super::Setup;
use super::setup::parsed;
use crate::agents::{Agent, AgentFile, FileError, converted};
use crate::commands::terminal::{note, say};
use crate::config::{Adopting, FILE};
use crate::error::CliError;

/// A server in the file of an agent that is not PML's.
struct Found {
    agent: Agent,
    name: String,
    /// Its entry for `.pml.json`, or why there is none.
    entry: Result<Value, String>,
}

/// Offers to move the servers of the project's agents to `.pml.json`. Without a clear yes, nothing is moved.
///
/// # Errors
/// Returns that a file cannot be used.
pub(super) async fn offer(setup: &Setup<'_>) -> Result<(), CliError> {
    let refused = |error: &dyn std::fmt::Display| CliError::cannot_run(error.to_string());
    let mut files = files(setup).map_err(|error| refused(&error))?;
    let mut config = Adopting::read(&setup.workspace).map_err(|error| refused(&error))?;
    let found: Vec<Found> = files.iter().flat_map(|file| servers(file, &mut config)).collect();
    if found.is_empty() {
        return Ok(());
    }
    let staying = |one: &Found| {
        let reason = one.entry.as_ref().err()?;
        Some(format!("- {}: {}\n", shown(one), escape_text(reason)))
    };
    let stay: String = found.iter().filter_map(staying).collect();
    let moved: Vec<&Found> = found.iter().filter(|one| one.entry.is_ok()).collect();
    if moved.is_empty() {
        return say(&format!(
            "\nMCP servers that your agents start without `pml`, and that stay:\n{stay}"
        ));
    }
    // The same server may be in the files of several agents.
    let mut names: Vec<String> =
        moved.iter().map(|one| format!("`{}`", escape_text(&one.name))).collect();
    names.sort();
    names.dedup();
    let names = names.join(", ");
    if !setup.options.import_servers {
        if !setup.asks() {
            return say(&format!(
                "\nYour agents start MCP servers without `pml`: {names}. `pml init --import-servers` moves them to `{FILE}`.\n"
            ));
        }
        let is_trusted = config.is_trusted(&setup.workspace, &setup.store);
        if !is_trusted.map_err(|error| refused(&error))? {
            note(&format!(
                "\nYour agents start MCP servers without `pml`: {names}. To move them to `{FILE}`, read that file, run `pml trust`, and then `pml init` again.\n"
            ));
            return Ok(());
        }
        if !setup.is_confirmed(question(&moved, &stay)).await? {
            return Ok(());
        }
    }
    // First: after a crash, a server is in both files and not in none.
    config.write(&setup.workspace, &setup.store).map_err(|error| refused(&error))?;
    for file in &mut files {
        let agent = file.agent();
        let mut of_file = moved.iter().filter(|one| one.agent == agent).peekable();
        if of_file.peek().is_none() {
            continue;
        }
        of_file
            .try_for_each(|one| file.remove(&one.name))
            .and_then(|()| file.write())
            .map_err(|error| refused(&error))?;
    }
    let lines: String = moved.iter().copied().map(line).collect();
    say(&format!("\nMoved to `{FILE}`, so agents reach them through `pml` now:\n{lines}"))?;
    match stay.is_empty() {
        true => Ok(()),
        false => say(&format!("These stay with your agents:\n{stay}")),
    }
}

/// Reads the files of the project. One file for all projects is left alone: others use its servers.
fn files(setup: &Setup<'_>) -> Result<Vec<AgentFile>, FileError> {
    let of_project = setup.agents.chosen.iter().filter(|agent| !agent.has_one_file_for_all());
    let files = of_project
        .map(|agent| AgentFile::read(*agent, &setup.workspace, setup.agents.home.as_deref()));
    files.collect()
}

/// Returns the servers of a file apart from those that `pml` itself is, and adds those to `.pml.json` that it can have.
fn servers(file: &AgentFile, config: &mut Adopting) -> Vec<Found> {
    let others = file.servers().iter().filter(|(name, entry)| {
        // One named `pml` that is not PML was reported with the file.
        *name != "pml" && parsed(entry).is_none()
    });
    let found = others.map(|(name, entry)| {
        let entry = converted(file.agent(), entry)
            .and_then(|entry| config.add(name, &entry).map(|()| entry));
        Found { agent: file.agent(), name: name.clone(), entry }
    });
    found.collect()
}

fn shown(one: &Found) -> String {
    format!("`{}` in {}", escape_text(&one.name), one.agent.shown())
}

/// Returns the line that says what a server starts or connects to.
fn line(one: &Found) -> String {
    let starts = one.entry.as_ref().map(started).unwrap_or_default();
    format!("- {}: {}\n", shown(one), escape_text(&starts))
}

fn question(moved: &[&Found], stay: &str) -> String {
    let mut text = "\nYour agents start these MCP servers without `pml`:\n".to_owned();
    text.extend(moved.iter().copied().map(line));
    if !stay.is_empty() {
        text += &format!("These would stay as they are:\n{stay}");
    }
    text + &format!(
        "In `{FILE}`, a server is sealed (the workspace's files, no network unless its entry lists hosts), its calls follow\n\
         your permissions, and they are recorded. It starts without a question, because you listed it.\n\
         Move them from the agents' files to `{FILE}`? [y/N]: "
    )
}

/// Returns what an entry starts or connects to.
fn started(entry: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match entry.get("url") {
        Some(url) => text(url),
        None => {
            let args = entry.get("args").and_then(Value::as_array).into_iter().flatten();
            let words = entry.get("command").into_iter().chain(args).map(text);
            let variables = entry.get("env").and_then(Value::as_object);
            let names: Vec<&str> =
                variables.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let with = match names.is_empty() {
                true => String::new(),
                false => format!(" (variables: {})", names.join(", ")),
            };
            words.collect::<Vec<_>>().join(" ") + &with
        }
    }
}
