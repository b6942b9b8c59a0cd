//! What `pml doctor` checks in a project: its folder, its files, its gateway, its API key and the programs that it
//! needs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use execution::processes::programs::{ProgramError, Programs};
use futures::future::join_all;
use protocol::{ErrorCode, escape_text};
use sandbox::Confinement;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::agents::{Agent, AgentFile};
use crate::args::Settings;
use crate::commands::init::starts_stdio;
use crate::config::{self, Config, Trust};
use crate::consent::trust::TrustStore;
use crate::files::home;
use crate::gateway::cloud::Cloud;
use crate::gateway::keys::{self, Gateway, KeyError, KeyPlace, KeySource, Login, SignIn};
use crate::registries::Registries;
use crate::tool_sync;
use crate::traces;
use crate::workspace::Workspace;

/// The state of a checked item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No problem.
    Good,
    /// Something optional does not work.
    Warning,
    /// A problem, with the exit code for it.
    Failed(u8),
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Failed(_) => "failed",
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A checked item.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    what: String,
    pub(super) state: State,
    detail: String,
}

impl Finding {
    /// Creates a finding.
    pub(super) fn new(what: &str, state: State, detail: impl Into<String>) -> Self {
        Self { what: what.to_owned(), state, detail: detail.into() }
    }

    /// Renders the finding as a line of text.
    pub(super) fn line(&self) -> String {
        format!("{:<8} {:<17} {}\n", self.state.name(), self.what, escape_text(&self.detail))
    }
}

/// Checks everything. An item that cannot be checked is reported as failed.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut workspace = match Workspace::find(settings.workspace.as_deref()) {
        Ok(workspace) => workspace,
        Err(error) => return vec![Finding::new("workspace", State::Failed(2), error.to_string())],
    };
    findings.push(match workspace.warning() {
        Some(warning) => Finding::new("workspace", State::Warning, warning),
        None => Finding::new("workspace", State::Good, workspace.root().display().to_string()),
    });
    let config = TrustStore::of_user()
        .map_err(|error| error.to_string())
        .and_then(|store| Config::open(&mut workspace, &store).map_err(|error| error.to_string()));
    let (mut registries, mut told) = (Vec::new(), BTreeSet::new());
    let url = match config {
        Ok(mut config) => {
            registries = std::mem::take(&mut config.registries);
            told = std::mem::take(&mut config.synced);
            findings.push(trust(&config));
            let further = workspace.root_paths().into_iter().skip(1);
            findings.extend(
                further.map(|root| Finding::new("root", State::Good, root.display().to_string())),
            );
            findings.extend(servers(&config));
            config.cloud_url
        }
        // The other checks continue without the gateway that the file may name.
        Err(error) => {
            findings.push(Finding::new(".pml.json", State::Failed(2), error));
            None
        }
    };
    let roots = workspace.root_paths();
    findings.extend(gateway(settings, url.as_deref(), &roots).await);
    findings.extend(traces(settings, url.as_deref(), &workspace));
    findings.extend(tool_sync(settings, url.as_deref(), &workspace, &told));
    findings.extend(further_registries(settings, url.as_deref(), registries, &roots).await);
    findings.push(match Confinement::check_support() {
        Ok(()) => Finding::new("commands", State::Good, "can be confined to the workspace"),
        Err(reason) => {
            let detail = format!("cannot be confined, so they run unconfined only: {reason}");
            Finding::new("commands", State::Warning, detail)
        }
    });
    let search = std::env::var("PATH").ok();
    let programs = Programs::new(search.as_deref(), &workspace.root_paths());
    for (program, for_what) in [
        ("npm", "MCP servers from npm are not installed"),
        ("python3", "MCP servers from PyPI are not installed"),
    ] {
        findings.push(match programs.find(program, workspace.root()) {
            Ok(found) => Finding::new(program, State::Good, found.file.display().to_string()),
            // The program exists but must not be used, which its own message explains.
            Err(error @ (ProgramError::InWorkspace { .. } | ProgramError::Interpreter { .. })) => {
                Finding::new(program, State::Warning, error.to_string())
            }
            Err(_) => Finding::new(program, State::Warning, format!("not on PATH: {for_what}")),
        });
    }
    let home = home();
    let found = Agent::found(&workspace, home.as_deref());
    findings.extend(found.iter().map(|agent| {
        let file = AgentFile::read(*agent, &workspace, home.as_deref());
        let (state, detail) = match file {
            Ok(file) => agent_file(&file, &workspace, &programs),
            Err(error) => (State::Warning, error.to_string()),
        };
        Finding { what: agent.shown(), state, detail }
    }));
    findings
}

fn trust(config: &Config) -> Finding {
    let (state, detail) = match config.trust {
        Trust::NoFile => {
            (State::Warning, "not found, so every call needs approval; `pml init` creates it")
        }
        Trust::Trusted => (State::Good, "trusted"),
        Trust::Untrusted => (
            State::Warning,
            "not trusted, so its grants have no effect; read it, then run `pml trust`",
        ),
    };
    Finding::new(".pml.json", state, detail)
}

/// Returns which servers run with the user's rights; `None` if there are no servers.
fn servers(config: &Config) -> Option<Finding> {
    let all = || config.private_mcps.iter().chain(&config.mcp_servers);
    let open: Vec<String> = all()
        .filter(|(_, server)| server.is_unsealed())
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    all().next()?;
    Some(match open.is_empty() {
        true => Finding::new(
            "servers",
            State::Good,
            "every server of `.pml.json` that starts here is sealed",
        ),
        false => {
            let detail = format!(
                "`\"sealed\": false`, so they can read your files and reach any host: {}",
                open.join(", ")
            );
            Finding::new("servers", State::Warning, detail)
        }
    })
}

async fn gateway(settings: &Settings, file: Option<&str>, roots: &[PathBuf]) -> Vec<Finding> {
    let failed = |what, error: &dyn std::fmt::Display| {
        vec![Finding::new(what, State::Failed(2), error.to_string())]
    };
    let gateway = match chosen_gateway(settings, file) {
        Ok(gateway) => gateway,
        Err(error) => return failed("gateway", &error),
    };
    // The user did not choose the default gateway, so it is not contacted.
    if gateway.is_default() {
        let detail = "none configured; programs whose tools are all local run without one. To configure one, run `pml login --url URL`";
        return vec![Finding::new("gateway", State::Warning, detail)];
    }
    let keys = match KeySource::of_user(&gateway, roots) {
        Ok(keys) => keys,
        Err(error) => return failed("key", &error),
    };
    // The clone shares the key that is found, so the keyring is asked once.
    let cloud = match Cloud::new(gateway.clone(), keys.clone()) {
        Ok(cloud) => cloud,
        Err(error) => return failed("gateway", &error.message),
    };
    let from = format!("{gateway} (from {})", gateway.place());
    let mut findings = match cloud.version().await {
        Ok(version) => {
            let transport = if gateway.origin().starts_with("https") {
                "TLS"
            } else {
                "this machine, without TLS"
            };
            let detail = format!("{from}: pml-server {version}, {transport}");
            vec![Finding::new("gateway", State::Good, detail)]
        }
        Err(error) => {
            let detail = format!("{} (from {}). {}", error.message, gateway.place(), error.hint);
            return vec![Finding::new("gateway", State::Failed(4), detail)];
        }
    };
    let found = keys.find().await;
    findings.push(match &found.login {
        Some((Login::SignIn(sign_in), place)) => sign_in_finding(&cloud, sign_in, place).await,
        Some((Login::Key(_), place)) => match cloud.own_key().await {
            Ok(own) => {
                let (who, scope, can) = (own.principal, own.scope, own.can.join(", "));
                let detail = format!("of `{who}` in `{scope}`, from {place}; rights: {can}");
                Finding::new("key", State::Good, detail)
            }
            Err(error) => {
                let detail = format!("from {place}: {}. {}", error.message, error.hint);
                Finding::new("key", State::Failed(3), detail)
            }
        },
        None => {
            let detail = format!("none is set; `pml login --url {gateway}` stores one");
            Finding::new("key", State::Warning, detail)
        }
    });
    if let Some(keyring_error) = &found.keyring_error {
        findings.push(Finding::new("keyring", State::Warning, keyring_error.to_string()));
    }
    findings
}

/// Returns how many runs the gateway has not been told of; `None` if there are none.
fn traces(settings: &Settings, file: Option<&str>, workspace: &Workspace) -> Option<Finding> {
    let gateway = chosen_gateway(settings, file).ok()?;
    let store = TrustStore::of_user().ok()?;
    match traces::waiting(workspace, store.folder(), &gateway.origin()) {
        Ok(0) => None,
        Ok(count) => {
            let detail = format!(
                "of {count} runs are still to be sent; the next `pml exec`, `pml stdio` or `pml serve` tries again"
            );
            Some(Finding::new("traces", State::Warning, detail))
        }
        Err(error) => Some(Finding::new("traces", State::Warning, error.message)),
    }
}

/// Returns the servers whose tools the gateway has, or should have.
fn tool_sync(
    settings: &Settings,
    file: Option<&str>,
    workspace: &Workspace,
    told: &BTreeSet<String>,
) -> Vec<Finding> {
    let (Ok(gateway), Ok(store)) = (chosen_gateway(settings, file), TrustStore::of_user()) else {
        return Vec::new();
    };
    let statuses = tool_sync::statuses(told, workspace, store.folder(), &gateway.origin());
    let findings = statuses.into_iter().map(|(name, status)| {
        let state = if status.is_settled() { State::Good } else { State::Warning };
        Finding::new("tool sync", state, format!("`{}`: {}", escape_text(&name), status.text()))
    });
    findings.collect()
}

/// Checks a sign-in, which is refreshed if that is due.
async fn sign_in_finding(cloud: &Cloud, sign_in: &SignIn, place: &KeyPlace) -> Finding {
    match cloud.accepts_token().await {
        Ok(()) => {
            let now = cloud.sign_in().await;
            let sign_in = now.as_ref().unwrap_or(sign_in);
            let end = sign_in.expires_at.map_or_else(String::new, |end| {
                format!("; its access token expires at {}", end.format("%Y-%m-%d %H:%M:%S UTC"))
            });
            let then = match sign_in.is_refreshed() {
                true => "and is refreshed",
                false => "and cannot be refreshed",
            };
            let detail = format!("a sign-in through {}, from {place}{end} {then}", sign_in.issuer);
            Finding::new("key", State::Good, detail)
        }
        Err(error) => {
            let detail = format!(
                "a sign-in through {}, from {place}: {}. {}",
                sign_in.issuer, error.message, error.hint
            );
            let is_refused =
                matches!(error.error_code, ErrorCode::Unauthorized | ErrorCode::Forbidden);
            Finding::new("key", State::Failed(if is_refused { 3 } else { 4 }), detail)
        }
    }
}

/// Returns which registries of `.pml.json` answer.
async fn further_registries(
    settings: &Settings,
    file: Option<&str>,
    list: Vec<config::Registry>,
    roots: &[PathBuf],
) -> Vec<Finding> {
    let chosen = chosen_gateway(settings, file).ok();
    let list = list.into_iter().map(|one| (one.origin, one.optional));
    let registries = match Registries::new(list, chosen.as_ref(), roots) {
        Ok(registries) => registries,
        Err(error) => return vec![Finding::new("registry", State::Failed(2), error.message)],
    };
    let probes = registries.all().map(|registry| async move {
        let origin = registry.origin();
        match (registry.probe().await, registry.is_optional()) {
            (Ok(Some(place)), _) => Finding::new(
                "registry",
                State::Good,
                format!("{origin}: with what is stored in {place}"),
            ),
            (Ok(None), _) => {
                Finding::new("registry", State::Good, format!("{origin}: without an API key"))
            }
            (Err(failure), true) => {
                let detail =
                    format!("{origin} {}; it is optional, so it is skipped", failure.reason);
                Finding::new("registry", State::Warning, detail)
            }
            (Err(failure), false) => {
                let detail = format!("{origin} {}", failure.reason);
                Finding::new("registry", State::Failed(4), detail)
            }
        }
    });
    join_all(probes).await
}

/// Returns the gateway that commands use.
fn chosen_gateway(settings: &Settings, file: Option<&str>) -> Result<Gateway, KeyError> {
    let remembered = keys::remembered_gateway()?;
    let url = std::env::var(keys::URL_VARIABLE).ok();
    Gateway::choose(settings.url.as_deref(), url.as_deref(), file, remembered.as_deref())
}

/// Checks that an agent's file starts `pml stdio`.
fn agent_file(file: &AgentFile, workspace: &Workspace, programs: &Programs) -> (State, String) {
    let name = file.agent().name();
    let Some(entry) = file.servers().get("pml") else {
        let detail = match file.exists() {
            true => format!("has no server `pml`; `pml init` adds it for {name}"),
            false => format!("not found; `pml init` writes it for {name}"),
        };
        return (State::Warning, detail);
    };
    if !starts_stdio(entry) {
        return (State::Warning, "its server `pml` does not run `pml stdio`".to_owned());
    }
    let command = entry.get("command").and_then(Value::as_str).unwrap_or_default();
    match programs.find(command, workspace.root()) {
        Ok(found) => (State::Good, format!("starts {} stdio", found.file.display())),
        Err(error) => (State::Warning, error.to_string()),
    }
}
