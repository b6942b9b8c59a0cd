//! `pml policy check`: tests a policy, and shows what it allows and what about it may surprise its author.

use std::path::Path;
use std::process::ExitCode;

use protocol::escape_text;
use serde_json::json;

use super::terminal::say;
use crate::args::{PolicyCommand, Settings};
use crate::config;
use crate::consent::trust::TrustStore;
use crate::error::CliError;
use crate::policy::{Finding, Policy, findings, hash_of, summary};
use crate::workspace::Workspace;

/// The maximum size of a file, in bytes, as for `.pml.json`.
const FILE_LIMIT: u64 = 1024 * 1024;

/// Runs the command.
///
/// # Errors
/// Returns that the file is invalid or cannot be read, or which example does not hold.
pub(crate) fn policy(settings: &Settings, command: PolicyCommand) -> Result<ExitCode, CliError> {
    let PolicyCommand::Check { file, json } = command;
    let refused = |error: &dyn std::fmt::Display| CliError::cannot_run(error.to_string());
    let workspace =
        Workspace::find(settings.workspace.as_deref()).map_err(|error| refused(&error))?;
    let (content, is_trusted) = match &file {
        Some(file) if is_yaml(file) => {
            let given = config::given_policy(&workspace, file).map_err(|error| refused(&error))?;
            let policy =
                config::policy_alone(workspace, &given).map_err(|error| refused(&error))?;
            return show(&policy, Some(file), None, json);
        }
        Some(file) => (Some(read(file)?), None),
        None => {
            let content = config::read(&workspace).map_err(|error| refused(&error))?;
            let store = TrustStore::of_user().map_err(|error| refused(&error))?;
            let is_trusted = match &content {
                Some(content) => store.is_trusted(workspace.root(), content),
                None => Ok(true),
            };
            (content, Some(is_trusted.map_err(|error| refused(&error))?))
        }
    };
    let content = content.unwrap_or_else(|| b"{}".to_vec());
    let policy = config::policy_of(workspace, &content).map_err(|error| refused(&error))?;
    show(&policy, file.as_deref(), is_trusted, json)
}

/// Shows a valid policy.
fn show(
    policy: &Policy,
    file: Option<&Path>,
    is_trusted: Option<bool>,
    json: bool,
) -> Result<ExitCode, CliError> {
    let hash = policy.written().map(hash_of);
    let (lines, found) = (summary(policy), findings(policy));
    if json {
        let findings: Vec<_> = found
            .iter()
            .map(|Finding { part, message }| json!({ "part": part, "message": message }))
            .collect();
        say(&format!(
            "{:#}\n",
            json!({
                "source": if policy.is_of_file() { "file" } else { "built_in" },
                "hash": hash,
                "trusted": is_trusted,
                "policy": policy.written(),
                "findings": findings,
            })
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = file.map_or(config::FILE.into(), |file| file.to_string_lossy());
    let name = escape_text(&name);
    let mut out = match hash {
        Some(hash) => format!("The policy in `{name}` is valid ({hash}).\n"),
        None => format!("`{name}` has no `policy`, so the built-in one applies.\n"),
    };
    if policy.is_of_file() && is_trusted == Some(false) {
        out += "The file is not trusted: until `pml trust`, the policy denies what it does not allow, and allows nothing.\n";
    }
    let width = lines.iter().map(|(part, _)| part.len()).max().unwrap_or(0) + 1;
    for (part, value) in lines {
        out += &format!("  {:<width$} {value}\n", format!("{part}:"));
    }
    for Finding { part, message } in found {
        out += &format!("note: `{part}`: {message}\n");
    }
    say(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a file is a policy of its own, by its name, and not like `.pml.json`.
fn is_yaml(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Reads a file that the user names.
fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| {
        let name = file.to_string_lossy();
        CliError::cannot_run(format!("cannot read `{}`: {error}", escape_text(&name)))
    };
    let mut content = Vec::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    opened.take(FILE_LIMIT + 1).read_to_end(&mut content).map_err(failed)?;
    match content.len() as u64 > FILE_LIMIT {
        true => Err(CliError::cannot_run("the file is larger than 1 MiB")),
        false => Ok(content),
    }
}
