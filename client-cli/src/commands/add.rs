//! `pml add`: makes a capability an MCP server of its own.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Integrity, ToolId, escape_text};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::exec::show_installations;
use super::terminal::{ask_line, for_terminal, interrupted, note, say};
use crate::added::{Added, AddedCapability};
use crate::agents::{Agent, AgentFile, FileError};
use crate::app::App;
use crate::args::Add;
use crate::capabilities::{self, Capability, RegisteredServer, Target};
use crate::consent::question::Channel;
use crate::consent::trust::{NONINTERACTIVE, may_trust};
use crate::error::CliError;
use crate::run::resolver::Resolver;

/// Adds a capability.
///
/// # Errors
/// Returns why it was not added.
pub(crate) async fn add(
    app: Arc<App>,
    options: Add,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let added = tokio::select! {
        added = add_to(&app, &options, stop) => added,
        () = stop.cancelled() => Err(interrupted()),
    };
    app.shut_down().await;
    added
}

async fn add_to(
    app: &Arc<App>,
    options: &Add,
    stop: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let id = named(&options.name)?;
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let variable = std::env::var(NONINTERACTIVE).ok();
    // Before the gateway is asked: there is no use in an answer that cannot be confirmed.
    if may_trust(options.yes, person, variable.as_deref()).is_err() {
        let message = "adding a capability needs a person at a terminal";
        return Err(CliError::from_code(ErrorCode::ApprovalDenied, message)
            .with_hint(format!("Or `--yes`, with {NONINTERACTIVE}=1 in the environment.")));
    }
    let server = options.server.clone().unwrap_or_else(|| id.action().to_owned());
    check_server(&server)?;
    let file = |error: FileError| CliError::from_code(ErrorCode::ConfigInvalid, error.to_string());
    let entry = json!({ "type": "stdio", "command": "pml", "args": ["run", server] });
    let taken = AgentFile::read(Agent::ClaudeCode, app.project(), None)
        .map_err(file)?
        .servers()
        .get(&server)
        .cloned();
    if taken.is_some_and(|taken| taken != entry) {
        let message = format!("`{}` has another server `{server}`", Agent::ClaudeCode.shown());
        return Err(CliError::cannot_run(message).with_hint("`--as` chooses another name."));
    }

    let target = Resolver::keeping(app, stop).find_called(&id).await?;
    let Target::Capability(capability) = target else {
        let message = format!("`{id}` is a tool, not a capability");
        return Err(CliError::cannot_run(message)
            .with_hint("Programs can call it as it is; `pml search` finds capabilities."));
    };
    let module = &capability.module;
    let name = module.name.to_string();
    let before = Added::read(app.project())?;
    if before.0.get(&server).is_some_and(|known| known.name != name) {
        let message = format!("`{server}` is the name of another capability that was added here");
        return Err(CliError::cannot_run(message).with_hint("`--as` chooses another name."));
    }
    let mut consent = Consent::default();
    consent.collect(app, &capability)?;
    let version = module.versioned();
    note(&consent.text(&format!(
        "`{}` as the MCP server `{server}`, which this project's agents start",
        escape_text(&version)
    )));
    if !options.yes {
        let answer = ask_line("Add it? [y/N]: ".to_owned(), stop).await?;
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Err(CliError::from_code(ErrorCode::ApprovalDenied, "nothing was added")
                .with_hint("Only `y` or `yes` adds it."));
        }
    }
    if std::io::stderr().is_terminal() {
        tokio::spawn(show_installations(app.package_activity()));
    }
    let by = if options.yes { "--yes" } else { Channel::Terminal.as_str() };
    consent.approve(app, by, stop).await?;
    let mut added = Added::read(app.project())?;
    let (major, minor, patch) = module.version;
    let known = AddedCapability {
        name,
        version: format!("{major}.{minor}.{patch}"),
        integrity: module.integrity,
    };
    added.0.insert(server.clone(), known);
    added.write(app.project())?;
    let mut agents = AgentFile::read(Agent::ClaudeCode, app.project(), None).map_err(file)?;
    agents.insert(&server, &entry).map_err(file)?;
    agents.write().map_err(file)?;
    // The user has just read what it does. The calls that it makes are asked about as before.
    let allowed = app.allow_always(&id.plain().within(module.name.scope()));
    let mut text =
        format!("✓ {} added. Restart your agent to use `{server}`.\n", escape_text(&version));
    for missing in &consent.missing {
        text += &format!("⚠ {}\n", escape_text(missing));
    }
    if let Err(error) = allowed {
        text += &format!("⚠ Each call is asked about: {}\n", escape_text(&error.message));
    }
    if consent.needs_gateway {
        text += "⚠ It calls tools of the gateway, so it needs the gateway and an API key.\n";
    }
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the name of a capability: `text:shout` or `text.shout`, in full or not, with a version or not.
pub(super) fn named(name: &str) -> Result<ToolId, CliError> {
    let (path, version) = match name.split_once('@') {
        Some((path, version)) => (path, Some(version)),
        None => (name, None),
    };
    let written = match (path.contains(':'), path.rsplit_once('.')) {
        (false, Some((namespace, action))) => format!("{namespace}:{action}"),
        _ => path.to_owned(),
    };
    let id = written.parse::<ToolId>().and_then(|id| match version {
        None => Ok(id),
        Some(version) => id.at(version),
    });
    id.map_err(|error| {
        CliError::cannot_run(format!("`{}`: {error}", escape_text(name))).with_hint(
            "Write a capability as `text:shout` or `acme.core.text:shout@0.1.0`; `pml search` finds them.",
        )
    })
}

/// Checks the name of a server in the agents' file.
fn check_server(server: &str) -> Result<(), CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_valid = !server.is_empty() && server.len() <= 64 && server.chars().all(is_plain);
    if is_valid && server != "pml" {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of the server", escape_text(server));
    Err(CliError::cannot_run(message)
        .with_hint("`--as` takes up to 64 letters, digits, `-` and `_`, and not `pml`."))
}

/// What the user is asked about: the capability, those that it calls, and the servers that they start.
#[derive(Default)]
struct Consent {
    lines: Vec<String>,
    capabilities: Vec<Arc<Capability>>,
    servers: Vec<(ToolId, Arc<RegisteredServer>, Option<Integrity>)>,
    /// What has to be set before the servers can start.
    missing: Vec<String>,
    needs_gateway: bool,
    seen: BTreeSet<String>,
}

impl Consent {
    fn collect(&mut self, app: &App, capability: &Arc<Capability>) -> Result<(), ErrorBody> {
        if !self.seen.insert(capability.module.versioned()) {
            return Ok(());
        }
        if let Some(question) = app.lockfile.capability_question(capability)? {
            // The program is shown below, line by line.
            let what = question.split("; its program: ").next().unwrap_or_default();
            self.lines.push(format!("Runs {}", escape_text(what)));
            self.lines.push("  its program:".to_owned());
            let program = for_terminal(&capability.module.code);
            self.lines.extend(program.lines().map(|line| format!("  | {line}")));
        } else {
            let name = escape_text(&capability.module.versioned());
            self.lines.push(format!("Runs `{name}`, which you allowed before"));
        }
        self.capabilities.push(Arc::clone(capability));
        let mut targets: Vec<_> = capability.targets.iter().collect();
        targets.sort_by_key(|(id, _)| *id);
        for (tool, target) in targets {
            match target {
                Target::Capability(inner) => self.collect(app, inner)?,
                Target::Gateway { .. } => self.needs_gateway = true,
                Target::Registered(entry) if self.seen.insert(entry.fqdn.clone()) => {
                    self.collect_server(app, tool, entry)?;
                }
                Target::Registered(_) | Target::Native | Target::Configured => {}
            }
        }
        Ok(())
    }

    fn collect_server(
        &mut self,
        app: &App,
        tool: &ToolId,
        entry: &Arc<RegisteredServer>,
    ) -> Result<(), ErrorBody> {
        let name = escape_text(&entry.fqdn);
        let grant = match app.grant(entry, tool) {
            Ok(Some(grant)) => grant,
            Ok(None) => return Ok(()),
            Err(error) if error.error_code == ErrorCode::ApiKeyRequired => {
                self.lines.push(format!("Needs `{name}`, which lacks a secret"));
                self.missing
                    .push(format!("{}; you are asked about it at the first call", error.message));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let start = app.lockfile.question(entry, &grant)?;
        match &start {
            Some(start) => {
                self.lines.push(format!("Starts {}", escape_text(&start.what)));
                self.lines
                    .extend(start.grants.iter().map(|line| format!("  {}", escape_text(line))));
            }
            None => self.lines.push(format!("Starts `{name}`, which you allowed before")),
        }
        let shown = start.and_then(|start| start.hash);
        self.servers.push((tool.clone(), Arc::clone(entry), shown));
        Ok(())
    }

    fn text(&self, what: &str) -> String {
        let mut text = format!("{what}\n");
        for line in &self.lines {
            text += &format!("  {line}\n");
        }
        text
    }

    /// Records what the user allowed, and `by` what, and stores, installs and tries it.
    async fn approve(&self, app: &App, by: &str, stop: &CancellationToken) -> Result<(), CliError> {
        let stored = |name: &str, saved: Result<(), std::io::Error>| {
            saved.map_err(|error| {
                CliError::failed(format!("cannot store `{}`: {error}", escape_text(name)))
            })
        };
        for (tool, entry, shown) in &self.servers {
            if shown.is_some()
                && let Some(grant) = app.grant(entry, tool)?
            {
                app.lockfile.approve(entry, &grant, *shown, by)?;
            }
            stored(&entry.fqdn, capabilities::save_entry(app.records(), entry))?;
            let has_tool = app.try_registered(entry, tool, stop).await?;
            if !has_tool {
                let name = escape_text(&entry.fqdn);
                let message = format!("`{name}` was started, but has no tool `{}`", tool.action());
                return Err(CliError::from_code(ErrorCode::ToolNotFound, message));
            }
        }
        for capability in &self.capabilities {
            let module = &capability.module;
            app.lockfile.approve_capability(module, by)?;
            stored(&module.versioned(), capabilities::save_module(app.records(), module))?;
        }
        Ok(())
    }
}

/// Returns what `config` says of a capability.
pub(super) fn config_of(capability: &Capability, entry: &AddedCapability) -> Value {
    let servers = capability.targets.values().filter_map(|target| match target {
        Target::Registered(entry) => Some((
            entry.fqdn.clone(),
            json!({
                "install": entry.install,
                "integrity": entry.integrity,
            }),
        )),
        _ => None,
    });
    let servers: serde_json::Map<String, Value> = servers.collect();
    json!({
        "name": entry.name,
        "version": entry.version,
        "integrity": entry.integrity,
        "calls": capability.below.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "servers": servers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_capabilities() {
        for (name, id) in [
            ("text:shout", "text:shout"),
            ("text.shout", "text:shout"),
            ("text.shout@0.1.0", "text:shout@0.1.0"),
            ("acme.core.text:shout", "acme.core.text:shout"),
            ("acme.core.text.shout@1.2.3", "acme.core.text:shout@1.2.3"),
        ] {
            assert_eq!(named(name).unwrap().as_str(), id);
        }
        for name in ["", "shout", "text:shout@x", "text:shout@1", "../x", "a b:c", "text:"] {
            named(name).unwrap_err();
        }
    }

    #[test]
    fn names_of_servers() {
        for name in ["shout", "shout-2", "S_1"] {
            check_server(name).unwrap();
        }
        for name in ["", "pml", "a b", "a.b", "ä", &"x".repeat(65), "$(x)"] {
            check_server(name).unwrap_err();
        }
    }
}
