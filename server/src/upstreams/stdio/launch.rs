//! The start of one server: its package, its variables and its seal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use execution::host_pattern::HostPattern;
use execution::mcp_process::{
    self, Executed, HostList, ListOf, Reachable, Seal, Session, StartFailure, Starter,
};
use execution::packages::{Activity, Installer, Request};
use execution::processes::confinement::Machine;
use execution::processes::programs::Programs;
use execution::processes::supervise::usage;
use execution::processes::variables::{check_variable, is_passed};
use protocol::{ErrorBody, ErrorCode, Fqdn, Install, Integrity};
use sandbox::{Bounds, Confinement};
use tokio::sync::watch;

use super::store::{Hashed, Store, create};
use crate::config::Secret;

/// What is started for a call.
pub(super) struct Launch {
    /// The server's name in the catalog.
    pub(super) server: Fqdn,
    /// What is installed. Shared: most calls find their server running and need nothing of it.
    pub(super) known: Arc<Hashed>,
    /// Where it keeps what it remembers of the tenant.
    pub(super) home: PathBuf,
    /// The secrets that it gets as variables.
    pub(super) secrets: Vec<(String, Secret)>,
    /// What it may use of the machine.
    pub(super) bounds: Bounds,
}

/// Returns the hash of secrets; `None` if there are none.
pub(super) fn secrets_hash(secrets: &[(String, Secret)]) -> Option<[u8; 32]> {
    // Each hashed on its own, so that no two lists have the same text.
    let hashes: Vec<String> = secrets
        .iter()
        .map(|(name, secret)| format!("{name} {}", Integrity::of(secret.expose().as_bytes())))
        .collect();
    (!hashes.is_empty()).then(|| Integrity::of(hashes.join("\n").as_bytes()).into_bytes())
}

/// Reads how a server is started.
///
/// # Errors
/// Returns why this gateway cannot run it, as the rest of a sentence about its entry.
pub(crate) fn request(install: &Install) -> Result<Request, String> {
    let Install { command, args, env, env_required, network } = install;
    let texts = args.iter().chain(env.values());
    if texts.clone().any(|text| text.contains("${workspace}")) {
        return Err("needs a workspace, which only the user's machine has".to_owned());
    }
    if texts.clone().any(|text| text.replace("${home}", "").contains("${")) {
        return Err("uses a variable of the user".to_owned());
    }
    for name in env.keys().chain(env_required) {
        check_variable(name, "").map_err(|error| format!("cannot be used: {error}"))?;
        if is_passed(name) {
            return Err(format!("sets `{}`", protocol::escape_text(name)));
        }
    }
    hosts(network)?;
    if !env_required.is_empty() && network.len() > 1 {
        return Err("needs a secret and connects to several hosts".to_owned());
    }
    Request::of(command, args).ok_or_else(|| {
        format!("starts `{}`, and not a package of npm or PyPI", protocol::escape_text(command))
    })?
}

fn hosts(network: &[String]) -> Result<Vec<HostPattern>, String> {
    let hosts: Result<Vec<_>, _> = network.iter().map(|host| HostPattern::new(host)).collect();
    hosts.map_err(|reason| format!("has an invalid `network`: {reason}"))
}

/// Starts a server.
///
/// # Errors
/// Returns why it did not start; nothing was installed for it.
pub(super) async fn start(
    starter: &Starter,
    store: &Store,
    programs: &Programs,
    launch: Launch,
) -> Result<Session, StartFailure> {
    if let Err(reason) = Confinement::check_support() {
        tracing::error!(reason, "This machine cannot confine a stdio server");
        let message = "this gateway's machine cannot confine a `stdio` server, so none runs on it";
        let refused = ErrorBody::new(ErrorCode::PlatformUnsupported, message);
        return Err(StartFailure { refused: Some(Box::new(refused)), ..failure(reason) });
    }
    let (installed, _) = &*launch.known;
    let request = request(&installed.install)
        .map_err(|reason| failure(format!("its entry in the catalog {reason}")))?;
    let packages = store.packages();
    let (activity, _) = watch::channel(Activity::None);
    let installer = Installer {
        folder: &packages,
        programs,
        variables: BTreeMap::new(),
        supervisor: &starter.supervisor,
        activity: &activity,
    };
    let (file, used) = installer.open(&request, &installed.packages).await.map_err(failure)?;
    // What a server stores that has a secret may be what only the owner of the secret may see.
    let (home, own) = match launch.secrets.is_empty() {
        true => {
            create(&launch.home).map_err(|error| failure(format!("its folder: {error}")))?;
            check_size(&launch.home, launch.bounds.folder).await?;
            (launch.home.clone(), None)
        }
        false => {
            let folder = tempfile::Builder::new().prefix("pml-").tempdir_in(store.running());
            let folder = folder.map_err(|error| failure(format!("its folder: {error}")))?;
            (folder.path().to_owned(), Some(folder))
        }
    };
    let program = programs.find(&file.to_string_lossy(), &home);
    let program = program.map_err(|error| failure(error.to_string()))?;
    let home_text = home.to_string_lossy().into_owned();
    let filled = |text: &String| text.replace("${home}", &home_text);
    let mut variables = BTreeMap::from([
        ("PATH".to_owned(), programs.path()),
        ("HOME".to_owned(), home_text.clone()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    variables
        .extend(installed.install.env.iter().map(|(name, value)| (name.clone(), filled(value))));
    let secrets = launch.secrets.iter();
    variables.extend(secrets.map(|(name, value)| (name.clone(), value.expose().to_owned())));
    let hosts = hosts(&installed.install.network).map_err(failure)?;
    let seal = Seal {
        network: Reachable::Hosts(HostList { hosts, of: ListOf::Catalog }),
        home: home.clone(),
        packages,
        reads_named: false,
        machine: Machine::Shared,
        bounds: Some(launch.bounds),
    };
    let arguments = request.arguments.iter().map(filled).collect();
    let executed = Executed {
        program,
        arguments,
        variables,
        folder: home,
        writable: Vec::new(),
        hidden: request.hidden(),
        in_use: Some(Arc::new(used)),
    };
    let mut session = mcp_process::start(starter, &executed, Some(&seal)).await?;
    session.held = Some(Box::new(own));
    Ok(session)
}

/// Refuses to start a server whose folder is full: it would be ended again, after it has stored even more.
async fn check_size(home: &Path, most: u64) -> Result<(), StartFailure> {
    let folders = [home.to_owned()];
    let size = tokio::task::spawn_blocking(move || usage::of_folders(&folders)).await;
    // Without an answer, the gateway is stopping.
    if size.is_ok_and(|size| size <= most) {
        return Ok(());
    }
    tracing::warn!(folder = %home.display(), "The folder of a stdio server is full or unreadable, so the server is not started");
    let message = format!(
        "what this server has stored for your project exceeds the limit of {} MiB or {} files, or cannot be looked at, so \
        it does not start; the operator of the gateway can remove it, or raise `PML_STDIO_FOLDER_MB`",
        most / (1024 * 1024),
        usage::ENTRIES
    );
    let refused = ErrorBody::new(ErrorCode::ToolUnavailable, message);
    let reason = "its folder is full".to_owned();
    Err(StartFailure { refused: Some(Box::new(refused)), ..failure(reason) })
}

fn failure(reason: String) -> StartFailure {
    StartFailure { reason, stderr: String::new(), refused: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_sealable_package_is_started() {
        let read = |fields: serde_json::Value| {
            let mut install = json!({ "command": "npx", "args": ["-y", "a@1.0.0"] });
            install.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            request(&serde_json::from_value(install).unwrap())
        };
        for good in [
            json!({}),
            json!({ "env": { "FILE": "${home}/f" } }),
            json!({ "network": ["a.test", "*.b.test"] }),
            json!({ "env_required": ["A_KEY", "B_KEY"], "network": ["a.test"] }),
        ] {
            assert_eq!(read(good).unwrap().package, "a");
        }
        for (bad, words) in [
            (json!({ "command": "python3" }), "not a package"),
            (json!({ "command": "docker" }), "not a package"),
            (json!({ "args": ["a@1.0.0", "${workspace}"] }), "needs a workspace"),
            (json!({ "env": { "A": "${workspace}/x" } }), "needs a workspace"),
            (json!({ "env": { "A": "${PML_MASTER_KEY}" } }), "uses a variable"),
            (json!({ "env": { "LD_PRELOAD": "/x" } }), "cannot be used"),
            (json!({ "env": { "HOME": "/x" } }), "sets `HOME`"),
            (json!({ "env_required": ["NODE_OPTIONS"] }), "cannot be used"),
            (json!({ "env_required": ["HTTPS_PROXY"] }), "sets `HTTPS_PROXY`"),
            (json!({ "network": ["https://a.test"] }), "an invalid `network`"),
            (json!({ "env_required": ["K"], "network": ["a.test", "b.test"] }), "several hosts"),
        ] {
            let reason = read(bad.clone()).unwrap_err();
            assert!(reason.contains(words), "{bad}: {reason}");
        }
    }

    #[test]
    fn other_secrets_have_another_hash() {
        let hash = |secrets: &[(&str, &str)]| {
            let of = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new(value));
            secrets_hash(&secrets.iter().map(of).collect::<Vec<_>>())
        };
        assert_eq!(hash(&[]), None);
        assert_eq!(hash(&[("A", "1")]), hash(&[("A", "1")]));
        let all = [
            hash(&[("A", "1")]),
            hash(&[("A", "2")]),
            hash(&[("B", "1")]),
            hash(&[("A", "1"), ("B", "2")]),
            hash(&[("A", "1\nB 2")]),
        ];
        assert_eq!(std::collections::BTreeSet::from(all).len(), 5);
    }
}
