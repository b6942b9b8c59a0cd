//! Renders a start for the user: the command, and what it grants.

use std::path::PathBuf;

use super::file::Grants;
use crate::local_mcp::{Files, Grant};

/// Variables that contain a credential, or the path of one.
const CREDENTIALS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "CARGO_REGISTRY_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NPM_TOKEN",
    "SSH_AUTH_SOCK",
];

/// Lists what a start grants, one line each. `before` is what the user approved the last time.
pub(super) fn grants_shown(grant: &Grant, before: Option<&Grants>) -> Vec<String> {
    let path = |path: &PathBuf| format!("`{}`", path.display());
    let mut runs = match &grant.package {
        None => format!("It runs {}", path(&grant.program.file)),
        Some(package) => {
            let by = path(&grant.program.file);
            format!("`pml` installs {package}, without running its scripts, by {by}")
        }
    };
    if !grant.program.interpreters.is_empty() {
        let by: Vec<String> = grant.program.interpreters.iter().map(path).collect();
        runs = format!("{runs} with {}", by.join(" with "));
    }
    let mut lines = vec![runs];
    for (name, source) in &grant.variables {
        // Without an earlier approval every variable is new, so a mark would say nothing.
        let new = match before {
            Some(before) if before.variables.get(name) != Some(source) => "NEW: ",
            _ => "",
        };
        let warning = match CREDENTIALS.contains(&name.as_str()) {
            true => ", a credential that lets its holder act as you",
            false => "",
        };
        lines.push(format!("{new}It gets `{name}` from {source}{warning}"));
    }
    lines.push(reach_shown(grant, before));
    lines
}

/// Describes what the server can reach.
fn reach_shown(grant: &Grant, before: Option<&Grants>) -> String {
    let Some(hosts) = &grant.hosts else {
        return "It is not sandboxed: it can access your files and the network as you can"
            .to_owned();
    };
    let new = match before {
        Some(before) if before.hosts.as_ref() != Some(hosts) => "NEW: ",
        _ => "",
    };
    let reached = match hosts.as_slice() {
        [] => "connect to nothing".to_owned(),
        hosts if hosts.iter().any(|host| host == "*") => "connect to every public host".to_owned(),
        hosts => {
            let hosts: Vec<String> = hosts.iter().map(|host| format!("`{host}`")).collect();
            format!("connect to {}", hosts.join(", "))
        }
    };
    format!(
        "{new}It is sealed: it can read and change this project and its own folder, and {reached}"
    )
}

/// Describes the files that differ between two starts; `None` if none does.
pub(super) fn differences(before: &Files, now: &Files) -> Option<String> {
    let mut lines: Vec<String> = now
        .iter()
        .filter(|(path, hash)| before.get(*path) != Some(*hash))
        .map(|(path, hash)| match before.get(path) {
            Some(was) => format!("`{path}`: was {was}, now {hash}"),
            None => format!("new: `{path}`, {hash}"),
        })
        .collect();
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    lines.extend(gone.map(|path| format!("no longer: `{path}`")));
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Renders a command so that its arguments can be distinguished.
pub(super) fn command_line(command: &str, args: &[String]) -> String {
    let words = std::iter::once(command).chain(args.iter().map(String::as_str));
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
}
