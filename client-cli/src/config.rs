//! `.pml.json`: parsed strictly. Its grants take effect only while the user trusts its content.

mod adopted;
mod entry;
mod file;
mod given;
mod offered;
mod registries;
mod settings;
mod stored;
mod synced;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use protocol::{ToolPattern, escape_text};

pub(crate) use adopted::Adopting;
pub(crate) use entry::McpServer;
pub(crate) use given::{given_named, given_policy};
pub(crate) use registries::Registry;
pub(crate) use settings::ExposeTools;
pub(crate) use stored::{add_allow, create, read, trust};
pub(crate) use synced::{sync, undecided};

use crate::consent::permissions::{Permissions, TraceLevel};
use crate::consent::trust::{TrustError, TrustStore};
use crate::policy::{self, GivenPolicy, Policy};
use crate::processes::environment::Environment;
use crate::workspace::Workspace;
use file::{AnalysedBy, ConfigFile};

/// The file's name, in the workspace's folder.
pub(crate) const FILE: &str = ".pml.json";

/// The variable with which a user requires approval by a person in all projects.
const APPROVALS_VARIABLE: &str = "PML_APPROVALS";

/// With `local`, the text of programs stays on this machine.
const ANALYSIS_VARIABLE: &str = "PML_ANALYSIS";

/// What traces tell, in all projects.
const TRACES_VARIABLE: &str = "PML_TRACES";

/// Why `.pml.json` cannot be used. The program stops; an unreadable file is never treated as one without rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It is not valid.
    #[error("`{file}` line {line} column {column}: {reason}")]
    Invalid {
        /// The file.
        file: String,
        /// The line, from 1; 0 for the file as a whole.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The error there.
        reason: String,
    },
    /// It cannot be read or written.
    #[error("cannot use `{file}`: {reason}")]
    Unusable {
        /// The file.
        file: String,
        /// The problem.
        reason: String,
    },
    /// PML does not add to an untrusted file: a file that PML writes is trusted.
    #[error("`{file}` is not trusted, so nothing was added to it; review it, then run `pml trust`")]
    Untrusted {
        /// The file.
        file: String,
    },
    /// The trust store cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// The trust in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// There is no file.
    NoFile,
    /// The user has trusted this content.
    Trusted,
    /// Only its restrictions apply.
    Untrusted,
}

/// The settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The trust in the file.
    pub(crate) trust: Trust,
    /// The names of an untrusted file's settings that are ignored.
    pub(crate) ignored_untrusted: Vec<String>,
    /// The workspace, if it is not the file's folder.
    pub(crate) workspace: Option<String>,
    /// Further folders of the workspace.
    pub(crate) roots: Vec<String>,
    /// The gateway.
    pub(crate) cloud_url: Option<String>,
    /// The port of `pml serve`.
    pub(crate) serve_port: Option<u16>,
    /// What the tools may touch.
    pub(crate) policy: Policy,
    /// The permissions, under that policy.
    pub(crate) permissions: Permissions,
    /// The rules of `allow` that name the entry of a server instead of its namespace, and so allow nothing; each with the
    /// rule that was meant.
    misnamed: Vec<(ToolPattern, String)>,
    /// MCP servers of this project, by namespace.
    pub(crate) mcp_servers: BTreeMap<String, McpServer>,
    /// MCP servers that hide those of the registry, by namespace.
    pub(crate) private_mcps: BTreeMap<String, McpServer>,
    /// The namespaces of servers whose tools the gateway is told. In an untrusted file they are named, and there are no
    /// such servers: what the gateway has stays as it is.
    pub(crate) synced: BTreeSet<String>,
    /// The registries that have MCP servers, in the order in which they are asked.
    pub(crate) registries: Vec<Registry>,
    /// Tools that are listed next to the meta-tools.
    pub(crate) expose_tools: ExposeTools,
}

impl Config {
    /// Reads a workspace's file as far as it is trusted, and adds the `roots` in it to the workspace.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the file exists but cannot be read and parsed completely, or if a root cannot be used.
    pub(crate) fn open(workspace: &mut Workspace, store: &TrustStore) -> Result<Self, ConfigError> {
        let config = Self::load_file(workspace, store)?;
        workspace.add_roots(&config.roots).map_err(|reason| unusable(&reason))?;
        config.complete(workspace)
    }

    /// Reads the file again. The `roots` of the workspace stay as they are.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the file exists but cannot be read and parsed completely.
    pub(crate) fn load(workspace: &Workspace, store: &TrustStore) -> Result<Self, ConfigError> {
        Self::load_file(workspace, store)?.complete(workspace)
    }

    /// Prepares the policy, and applies it and the user's own settings.
    fn complete(self, workspace: &Workspace) -> Result<Self, ConfigError> {
        let mut config = self;
        // Without trust, the folders that the file names were not added, and its policy only restricts.
        if !config.policy.is_untrusted() {
            check_places(&config.policy, workspace).map_err(|reason| unusable(&reason))?;
        }
        if config.policy.is_of_file() {
            prepare(&mut config.policy, workspace).map_err(|reason| unusable(&reason))?;
        }
        let policy = Arc::new(config.policy.clone());
        config.permissions = config.permissions.under(policy);
        // The user's own settings, for all projects.
        config.permissions = config
            .permissions
            .approved_by_person_only(is_set(APPROVALS_VARIABLE, "human")?)
            .analysed_here(is_set(ANALYSIS_VARIABLE, "local")?);
        if let Some(traces) = traces_of_user()? {
            config.permissions = config.permissions.traced(traces);
        }
        Ok(config)
    }

    /// Adds the policy that a command was given; it only restricts.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if an example of it does not hold, or a place in it is outside the workspace.
    pub(crate) fn under(
        mut self,
        given: &GivenPolicy,
        workspace: &Workspace,
    ) -> Result<Self, ConfigError> {
        // As above: without trust, folders may be missing.
        let checks = self.trust != Trust::Untrusted;
        let restricted = self.policy.restrict(given, |policy| {
            if checks {
                check_places(policy, workspace)?;
            }
            prepare(policy, workspace)
        });
        restricted
            .map_err(|reason| ConfigError::Unusable { file: escape_text(given.name()), reason })?;
        self.permissions = self.permissions.under(Arc::new(self.policy.clone()));
        Ok(self)
    }

    fn load_file(workspace: &Workspace, store: &TrustStore) -> Result<Self, ConfigError> {
        let Some(content) = read(workspace)? else {
            return Ok(Self::of(ConfigFile::default(), Trust::NoFile));
        };
        // Parsed before the trust is looked up: an invalid file is an error even if it would grant
        // nothing.
        let file = file::parse(&content)?;
        let trusted = store.is_trusted(workspace.root(), &content)?;
        Ok(Self::of(file, if trusted { Trust::Trusted } else { Trust::Untrusted }))
    }

    fn of(mut file: ConfigFile, trust: Trust) -> Self {
        let mut ignored = Vec::new();
        let servers = file.servers.private_mcps.iter().chain(&file.servers.mcp_servers);
        let synced = servers.filter(|(_, server)| server.syncs_tools);
        let synced = synced.map(|(namespace, _)| namespace.clone()).collect();
        // `ask` and `deny` remain: restrictions apply without trust. Everything that grants something is dropped.
        if trust == Trust::Untrusted {
            let mut drop_if = |is_set: bool, name: &str| {
                if is_set {
                    ignored.push(name.to_owned());
                }
            };
            drop_if(file.workspace.take().is_some(), "workspace");
            drop_if(!std::mem::take(&mut file.roots).is_empty(), "roots");
            drop_if(file.cloud.take().is_some(), "cloud");
            // Grants little, but a repository must not choose where the user's programs listen.
            drop_if(file.server.take().is_some(), "server");
            drop_if(!std::mem::take(&mut file.permissions.0.allow).is_empty(), "permissions.allow");
            let servers = std::mem::take(&mut file.servers);
            drop_if(!servers.private_mcps.is_empty(), "private_mcps");
            drop_if(!std::mem::take(&mut file.registries).0.is_empty(), "registries");
            drop_if(!servers.mcp_servers.is_empty(), "mcpServers");
            drop_if(std::mem::take(&mut file.expose_tools).is_set(), "expose_tools");
            let sends_values = file.traces == Some(TraceLevel::Full);
            drop_if(sends_values && file.traces.take().is_some(), "traces");
        }
        // An untrusted server does not replace the built-in tools.
        let file::Servers { mcp_servers, private_mcps } = file.servers;
        let servers = || mcp_servers.iter().chain(&private_mcps);
        let is_inspected = |name: &&String| policy::INSPECTED.contains(&name.as_str());
        let replaced = servers().map(|(namespace, _)| namespace);
        let replaced = replaced.filter(is_inspected).cloned().collect();
        let allow = &file.permissions.0.allow;
        let misnamed =
            servers().flat_map(|(_, server)| allow.iter().filter_map(|rule| server.meant_by(rule)));
        let misnamed = misnamed.collect();
        // Also without trust: then it only restricts.
        let policy = Policy::new(file.policy, trust != Trust::Untrusted, replaced);
        Self {
            trust,
            policy,
            ignored_untrusted: ignored,
            workspace: file.workspace,
            roots: file.roots,
            cloud_url: file.cloud.map(|cloud| cloud.0.url),
            serve_port: file.server.map(|server| server.0.port.0),
            // Also without trust: it only restricts.
            permissions: Permissions::new(file.permissions.0, FILE)
                .approved_by_person_only(file.approvals.is_some())
                .analysed_here(file.analysis == Some(AnalysedBy::Local))
                .traced(file.traces.unwrap_or_default()),
            misnamed,
            mcp_servers,
            private_mcps,
            synced,
            registries: file.registries.0,
            expose_tools: file.expose_tools,
        }
    }

    /// Returns warnings about settings that have no effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.ignored_untrusted.is_empty() {
            let names = self.ignored_untrusted.join("`, `");
            warnings.push(format!("`{FILE}` is not trusted, so `{names}` in it are ignored; review it, then run `pml trust`"));
        }
        for (rule, meant) in &self.misnamed {
            warnings.push(format!(
                "`{rule}` in `permissions.allow` of `{FILE}` allows nothing: the tools of that server are in another namespace; write `{meant}`"
            ));
        }
        if self.workspace.is_some() {
            warnings.push(format!("`workspace` in `{FILE}` has no effect in this version"));
        }
        warnings
    }
}

/// Checks that each absolute pattern of a policy is for places in a folder of the workspace.
fn check_places(policy: &Policy, workspace: &Workspace) -> Result<(), String> {
    let roots = workspace.root_paths();
    for pattern in policy.absolute_places() {
        let path = Path::new(pattern);
        if path.starts_with(workspace.root()) {
            return Err(format!(
                "the pattern `{pattern}` must be relative to the project's folder"
            ));
        }
        if !roots.iter().any(|root| path.starts_with(root)) {
            let roots: Vec<_> = roots[1..].iter().map(|root| root.to_string_lossy()).collect();
            let known = match roots.is_empty() {
                true => "`roots` names no folder".to_owned(),
                false => format!("these are `{}`", roots.join("`, `")),
            };
            return Err(format!("the pattern `{pattern}` is in no folder of `roots`: {known}"));
        }
    }
    Ok(())
}

/// Finds the programs of a policy on this machine, and tests its examples.
fn prepare(policy: &mut Policy, workspace: &Workspace) -> Result<(), String> {
    let environment = Environment::load(workspace);
    policy.prepare(|name| program(&environment, workspace, name))
}

/// Returns the policy of a file's content, as if the user trusted it.
///
/// # Errors
/// Returns [`ConfigError`] if the content is invalid, or an example of the policy does not hold.
pub(crate) fn policy_of(mut workspace: Workspace, content: &[u8]) -> Result<Policy, ConfigError> {
    let config = Config::of(file::parse(content)?, Trust::Trusted);
    workspace.add_roots(&config.roots).map_err(|reason| unusable(&reason))?;
    let mut policy = config.policy;
    let prepared =
        check_places(&policy, &workspace).and_then(|()| prepare(&mut policy, &workspace));
    prepared.map_err(|reason| unusable(&reason))?;
    Ok(policy)
}

/// Returns the policy of a file of its own, as if there were no other.
///
/// # Errors
/// As [`policy_of`]; also if `.pml.json` is invalid, whose folders and servers it depends on.
pub(crate) fn policy_alone(
    mut workspace: Workspace,
    given: &GivenPolicy,
) -> Result<Policy, ConfigError> {
    let content = read(&workspace)?.unwrap_or_else(|| b"{}".to_vec());
    let config = Config::of(file::parse(&content)?, Trust::Trusted);
    workspace.add_roots(&config.roots).map_err(|reason| unusable(&reason))?;
    let mut policy = given.alone(config.policy.replaced().to_vec());
    let prepared =
        check_places(&policy, &workspace).and_then(|()| prepare(&mut policy, &workspace));
    prepared.map_err(|reason| ConfigError::Unusable { file: escape_text(given.name()), reason })?;
    Ok(policy)
}

/// Returns whether a variable that has only one value is set.
fn is_set(variable: &str, only: &str) -> Result<bool, ConfigError> {
    match std::env::var_os(variable) {
        Some(value) if value == only => Ok(true),
        Some(value) if !value.is_empty() => Err(ConfigError::Unusable {
            file: variable.to_owned(),
            reason: format!("its only value is `{only}`"),
        }),
        _ => Ok(false),
    }
}

/// Returns what the user's own setting says of traces.
fn traces_of_user() -> Result<Option<TraceLevel>, ConfigError> {
    let Some(value) = std::env::var_os(TRACES_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str() {
        Some("off") => Ok(Some(TraceLevel::Off)),
        Some("summary") => Ok(Some(TraceLevel::Summary)),
        Some("full") => Ok(Some(TraceLevel::Full)),
        _ => Err(ConfigError::Unusable {
            file: TRACES_VARIABLE.to_owned(),
            reason: "its values are `off`, `summary` and `full`".to_owned(),
        }),
    }
}

/// Finds a program by its name on the `PATH` or its absolute path.
fn program(
    environment: &Environment,
    workspace: &Workspace,
    name: &str,
) -> Option<policy::Command> {
    let found = environment.programs().find(name, workspace.root()).ok()?;
    let (file, is_of_workspace) = (found.file, found.is_of_workspace);
    let access = policy::CommandAccess::default();
    Some(policy::Command { argv: vec![name.to_owned()], file, is_of_workspace, access })
}

/// Checks that bytes are a valid file, without applying it.
///
/// # Errors
/// Returns [`ConfigError`] if they are not.
pub(crate) fn check(content: &[u8]) -> Result<(), ConfigError> {
    file::parse(content).map(drop)
}

fn unusable(reason: &str) -> ConfigError {
    ConfigError::Unusable { file: FILE.to_owned(), reason: reason.to_owned() }
}

/// Returns the rules in the file, for tests.
#[cfg(test)]
fn rules(workspace: &Workspace) -> crate::consent::permissions::PermissionRules {
    file::parse(&read(workspace).unwrap().unwrap()).unwrap().permissions.0
}

#[cfg(test)]
mod tests;
