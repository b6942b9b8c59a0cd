//! `pml list` and `pml remove`: the servers and capabilities of this project.

use std::process::ExitCode;
use std::sync::Arc;

use execution::packages::LockedPackages;
use protocol::{ErrorCode, Fqdn, escape_text};
use serde_json::{Value, json};

use super::add::named;
use super::terminal::say;
use crate::added::{Added, AddedCapability};
use crate::agents::{Agent, AgentFile, FileError};
use crate::app::{App, ListedServer};
use crate::args::{List, Remove};
use crate::error::CliError;
use crate::tool_sync::Status;

/// Prints the servers and capabilities that programs can use here without the gateway's catalog.
///
/// # Errors
/// Returns that the project's files are invalid.
pub(crate) fn list(app: &Arc<App>, options: &List) -> Result<ExitCode, CliError> {
    let configured = app.configured_servers();
    let syncs = app.tool_syncs();
    let allowed = app.lockfile.servers()?;
    let capabilities = app.lockfile.all_capabilities()?;
    let added = Added::read(app.project())?.0;
    if options.json {
        let answer = json!({
            "configured": configured
                .iter()
                .map(|server| json_of(server, locked(app, &server.name), syncs.get(&server.name)))
                .collect::<Vec<_>>(),
            "allowed": allowed.iter().map(|server| json!({
                "name": server.name,
                "registry": server.registry,
                "command": server.command,
                "hosts": server.hosts,
                "variables": server.variables,
                "counts": server.counts,
                "packages": locked(app, &server.name),
                "approved": server.approved,
            })).collect::<Vec<_>>(),
            "capabilities": capabilities.iter().map(|pinned| json!({
                "name": pinned.name.to_string(),
                "version": version(pinned.version),
                "integrity": pinned.integrity,
            })).collect::<Vec<_>>(),
            "added": added,
        });
        say(&format!("{answer:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut sections = Vec::new();
    let lines = configured
        .iter()
        .map(|server| text_of(server, locked(app, &server.name), syncs.get(&server.name)));
    let lines = lines.collect::<String>();
    sections.push(("Servers of .pml.json", lines));
    let lines = allowed.iter().map(|server| {
        // What it will reach is not known before the question.
        let reach = match server.counts {
            true => reach(server.hosts.as_deref()),
            false => "`pml` asks again before it starts".to_owned(),
        };
        let of = server.registry.as_ref();
        let of = of.map_or_else(String::new, |origin| format!(" of the registry {origin}"));
        // In a lock that came with a repository, it is somebody else's approval.
        let approved = server.approved.as_ref().filter(|_| server.counts);
        let approved = approved.map_or_else(String::new, |approved| {
            let user = approved.user.as_deref();
            let user = user.map_or_else(String::new, |user| format!(" by {}", escape_text(user)));
            let (at, through) = (escape_text(&approved.at), escape_text(&approved.through));
            format!("    allowed{user} at {at}, through: {through}\n")
        });
        let packages = locked(app, &server.name);
        let packages = packages.map(|packages| format!("    {}\n", summary(&packages)));
        format!(
            "  {}{of}\n    {}\n    {reach}\n{}{approved}",
            escape_text(&server.name),
            words(&server.command),
            packages.unwrap_or_default(),
        )
    });
    sections.push(("Servers of the registry that may start here", lines.collect()));
    let lines = capabilities.iter().map(|pinned| {
        format!("  {}@{}\n    {}\n", pinned.name, version(pinned.version), pinned.integrity)
    });
    sections.push(("Capabilities that may run here", lines.collect()));
    let lines = added.iter().map(|(server, added)| {
        let (server, name) = (escape_text(server), escape_text(&added.name));
        format!(
            "  {server}\n    {name}@{}; agents start `pml run {server}`\n",
            escape_text(&added.version)
        )
    });
    sections.push(("Capabilities that are MCP servers of their own", lines.collect()));
    let shown: Vec<String> = sections
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(title, lines)| format!("{title}:\n{lines}"))
        .collect();
    let text = match shown.is_empty() {
        true => {
            "No server is defined in .pml.json, and nothing of the registry may start here yet.\n"
                .to_owned()
        }
        false => shown.join("\n"),
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes what the user allowed.
///
/// # Errors
/// Returns that there is no such server or capability, or that the project's files are invalid.
pub(crate) fn remove(app: &Arc<App>, options: &Remove) -> Result<ExitCode, CliError> {
    let mut text = String::new();
    let added = remove_added(app, &options.name)?;
    if let Some((_, from)) = &added {
        text += from;
    }
    let capability = added.as_ref().map(|(added, _)| format!("{}@{}", added.name, added.version));
    let configured = app.namespace_of(&options.name);
    let name = capability.as_deref().or(configured).unwrap_or(&options.name);
    let packages = app.lockfile.requests_of(name)?;
    let removed = match app.lockfile.remove(name) {
        Ok(names) => {
            for name in &names {
                text += &match app.is_configured_namespace(name) {
                    true => format!(
                        "Forgot the tools and packages of `{name}`: they are pinned as they are at its next start\n\
                         `{name}` is still defined in .pml.json\n"
                    ),
                    false => format!(
                        "Removed {}; `pml` asks before it starts again\n",
                        escape_text(name)
                    ),
                };
            }
            names
        }
        // Somebody else's, in a project that was copied.
        Err(_) if added.is_some() => Vec::new(),
        Err(error) => {
            let Some(namespace) = configured else { return Err(error.into()) };
            if !options.clean {
                let message = format!("`{}` is defined in .pml.json", options.name);
                let hint = "Delete its entry there. `--clean` deletes the files that it stored.";
                return Err(CliError::from_code(error.error_code, message).with_hint(hint));
            }
            // A server of `.pml.json` has no approval, but it may have files.
            text += &format!("`{}` is still defined in .pml.json\n", options.name);
            vec![namespace.to_owned()]
        }
    };
    for request in packages {
        app.forget_package(&request)?;
    }
    if options.clean {
        let deleted = removed.iter().map(|name| app.delete_files_of(name));
        text += match deleted.sum::<Result<usize, _>>()? {
            0 => "It has stored no files\n",
            _ => "Deleted the files that it stored\n",
        };
    }
    text += "A `pml stdio` that runs keeps what it started until it ends\n";
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes a capability that was added, by the name of its server or by its own; returns it, and what was done.
fn remove_added(app: &App, name: &str) -> Result<Option<(AddedCapability, String)>, CliError> {
    let mut added = Added::read(app.project())?;
    let called = |known: &AddedCapability| {
        let full = known.name.parse::<Fqdn>();
        named(name).is_ok_and(|id| full.is_ok_and(|full| id.can_be(&full)))
    };
    let known = added.0.iter().find(|(server, known)| *server == name || called(known));
    let Some(server) = known.map(|(server, _)| server.clone()) else { return Ok(None) };
    let Some(removed) = added.0.remove(&server) else { return Ok(None) };
    let file = |error: FileError| CliError::from_code(ErrorCode::ConfigInvalid, error.to_string());
    let mut agents = AgentFile::read(Agent::ClaudeCode, app.project(), None).map_err(file)?;
    let is_ours = agents
        .servers()
        .get(&server)
        .is_some_and(|entry| entry["command"] == "pml" && entry["args"] == json!(["run", server]));
    if is_ours {
        agents.remove(&server).map_err(file)?;
        agents.write().map_err(file)?;
    }
    added.write(app.project())?;
    let shown = escape_text(&server);
    let done = match is_ours {
        true => format!("Removed the MCP server `{shown}` from .mcp.json\n"),
        false => format!("`{shown}` was added here, but .mcp.json has no such entry of `pml`\n"),
    };
    Ok(Some((removed, done)))
}

/// Returns the packages that the lock has of a server. That it is valid was found out before.
fn locked(app: &App, server: &str) -> Option<LockedPackages> {
    app.lockfile.packages_of(server).ok().flatten()
}

fn summary(packages: &LockedPackages) -> String {
    let version = packages.version().unwrap_or_default();
    match packages.count() {
        1 => format!("locked: {version}"),
        2 => format!("locked: {version} and 1 other package"),
        count => format!("locked: {version} and {} other packages", count - 1),
    }
}

fn json_of(
    server: &ListedServer,
    packages: Option<LockedPackages>,
    sync: Option<&Status>,
) -> Value {
    json!({
        "packages": packages,
        "name": server.name,
        "command": server.command,
        "url": server.url,
        "hosts": server.hosts,
        "package": server.package,
        "installed": server.installed,
        "tool_sync": sync.map(Status::json),
    })
}

fn text_of(
    server: &ListedServer,
    packages: Option<LockedPackages>,
    sync: Option<&Status>,
) -> String {
    let name = escape_text(&server.name);
    let sync = sync.map_or_else(String::new, |status| format!("    {}\n", status.text()));
    if let Some(url) = &server.url {
        return format!("  {name}\n    {}\n{sync}", escape_text(url));
    }
    let packages = packages.as_ref().map(|packages| format!("; {}", summary(packages)));
    let installed = packages.unwrap_or_else(|| match (&server.package, &server.installed) {
        (None, _) => String::new(),
        (Some(_), Some(version)) => format!("; {} is installed", escape_text(version)),
        (Some(_), None) => "; installed at the first call".to_owned(),
    });
    let reach = reach(server.hosts.as_deref());
    format!("  {name}\n    {}\n    {reach}{installed}\n{sync}", words(&server.command))
}

fn reach(hosts: Option<&[String]>) -> String {
    match hosts {
        None => "not sealed: it runs with your rights".to_owned(),
        Some([]) => "sealed; connects to nothing".to_owned(),
        Some([all]) if all == "all" => "sealed; connects to everything".to_owned(),
        Some(hosts) => format!("sealed; connects to {}", escape_text(&hosts.join(", "))),
    }
}

/// Renders a command so that its arguments can be distinguished.
fn words(command: &[String]) -> String {
    let quoted = command.iter().map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic() && c != '"');
        if is_plain { word.clone() } else { format!("{word:?}") }
    });
    escape_text(&quoted.collect::<Vec<_>>().join(" "))
}

fn version((major, minor, patch): (u64, u64, u64)) -> String {
    format!("{major}.{minor}.{patch}")
}
