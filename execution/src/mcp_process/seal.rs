//! The confinement of a server: its files, its network, and the variables that tell it about both.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use sandbox::{Confinement, Handover, Network, PROXY_PORT};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::relay::{Refusals, Relay};
use super::{Reachable, Seal, Starter};
use crate::packages::InUse;
use crate::processes::confinement::{Machine, confinement};
use crate::processes::programs::Program;
use crate::processes::search_path;
use crate::processes::supervise::{Input, Supervisor};

/// What is executed to start a server.
pub struct Executed {
    /// The program.
    pub program: Program,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub variables: BTreeMap<String, String>,
    /// Its working directory.
    pub folder: PathBuf,
    /// The folders that it can change, besides its own.
    pub writable: Vec<PathBuf>,
    /// The names of programs that it does not find on its `PATH` if it is sealed.
    pub hidden: &'static [&'static str],
    /// Keeps the package that it runs from; `None` for another program.
    pub in_use: Option<Arc<InUse>>,
}

/// A confinement for one start, and what exists as long as the server runs.
pub(super) struct Sealed {
    pub(super) confinement: Confinement,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) kept: Kept,
}

/// What a server needs while it runs. Dropping it removes the folder and stops the proxy.
#[derive(Debug)]
pub struct Kept {
    _temporary: TempDir,
    _programs: Option<TempDir>,
    _proxy: Option<DropGuard>,
    _in_use: Option<Arc<InUse>>,
}

/// Prepares a start: creates the server's folders, and starts its proxy, which reports to `refusals`.
///
/// # Errors
/// Returns why the server cannot be confined.
pub(super) async fn prepare(
    starter: &Starter,
    seal: &Seal,
    executed: &Executed,
    refusals: &Refusals,
) -> Result<Sealed, String> {
    Confinement::check_support().map_err(|reason| {
        format!("this machine cannot confine it: {reason}{}", starter.unconfined)
    })?;
    let home = &seal.home;
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    created.map_err(|error| format!("cannot create its folder {}: {error}", home.display()))?;
    let mut builder = tempfile::Builder::new();
    builder.prefix("pml-");
    let create = || {
        let created = match &starter.temporary {
            Some(folder) => builder.tempdir_in(folder),
            None => builder.tempdir(),
        };
        created.map_err(|error| format!("cannot create a temporary folder: {error}"))
    };
    let temporary = create()?;
    let Executed { program, arguments, variables: given, .. } = executed;
    let mut variables = given.clone();
    let mut confinement = confinement(program, home, &mut variables, seal.machine);
    let path = variables.entry("PATH".to_owned()).or_default();
    if seal.machine == Machine::Shared {
        *path = search_path::within(path, &confinement.read);
    }
    let mut programs = None;
    // Where the workspace has the folder for temporary files, others could change what the links lead to.
    let parent = temporary.path().canonicalize().unwrap_or_default();
    let is_private = !executed.writable.iter().any(|root| parent.starts_with(root));
    if !executed.hidden.is_empty() && is_private {
        let folder = programs.insert(create()?).path();
        *path = search_path::without(path, executed.hidden, folder)
            .map_err(|error| format!("cannot make its `PATH`: {error}"))?;
        confinement.read.push(folder.to_owned());
    }
    confinement.write.push(temporary.path().to_owned());
    confinement.write.extend(executed.writable.iter().cloned());
    let user = given.get("HOME").map(Path::new);
    let named = arguments.iter().filter(|_| seal.reads_named).map(Path::new);
    let named = named.chain([&*program.file]);
    confinement.read.extend(named.filter_map(|path| package(path, user)));
    for (name, folder) in [("HOME", &**home), ("TMPDIR", temporary.path())] {
        variables.insert(name.to_owned(), folder.to_string_lossy().into_owned());
    }
    let (network, proxy) = match &seal.network {
        Reachable::All => (Network::All, None),
        Reachable::Nothing => (Network::None, None),
        Reachable::Hosts(list) if list.hosts.is_empty() && !starter.allows_network().await => {
            (Network::None, None)
        }
        Reachable::Hosts(list) => {
            let handover = Handover::new(temporary.path())
                .map_err(|error| format!("cannot create the socket of its proxy: {error}"))?;
            let network = Network::Proxied(handover.path().to_owned());
            let stop = CancellationToken::new();
            let relay = Relay::new(list.clone(), refusals.clone());
            tokio::spawn(relay.serve(handover, stop.clone()));
            set_proxy(&mut variables);
            (network, Some(stop.drop_guard()))
        }
    };
    confinement.network = network;
    confinement.bounds = seal.bounds;
    let kept = Kept {
        _temporary: temporary,
        _programs: programs,
        _proxy: proxy,
        _in_use: executed.in_use.clone(),
    };
    Ok(Sealed { confinement, variables, kept })
}

/// Starts a process with a network of its own, which ends at once.
pub(super) async fn try_network(supervisor: &Supervisor) -> Option<std::net::TcpListener> {
    let temporary = tempfile::Builder::new().prefix("pml-").tempdir().ok()?;
    let handover = Handover::new(temporary.path()).ok()?;
    let network = Network::Proxied(handover.path().to_owned());
    let confinement = Confinement { network, ..Confinement::default() };
    // It hands over its socket before it fails to execute a file that it cannot reach.
    let file = temporary.path().join("none");
    let mut command = supervisor.command(Input::Passed, Some(&confinement), &file, &[&file]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = tokio::process::Command::from(command).spawn().ok()?;
    // Closing its input would end it early.
    let _input = child.stdin.take();
    tokio::select! {
        biased;
        received = handover.receive() => received.ok(),
        _ = child.wait() => None,
    }
}

/// Sets the variables by which programs find a proxy.
fn set_proxy(variables: &mut BTreeMap<String, String>) {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"]
    {
        variables.insert(name.to_owned(), proxy.clone());
    }
    for name in ["NO_PROXY", "no_proxy"] {
        variables.insert(name.to_owned(), String::new());
    }
    // Node ignores the others without it.
    variables.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
}

/// Returns the folder of the package that a path is in, or the file itself if it is in none: what a server is made of.
/// `None` for what is not an absolute path of a file.
fn package(path: &Path, user: Option<&Path>) -> Option<PathBuf> {
    if !path.is_absolute() || !path.is_file() {
        return None;
    }
    // Without links: what is compared with the user's folder must not have another name.
    let path = path.canonicalize().ok()?;
    let user = user.and_then(|user| user.canonicalize().ok());
    // Where npm installs the packages that this one needs.
    let modules = path.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    let marks = ["package.json", "pyproject.toml", "pyvenv.cfg"];
    let marked = || {
        path.ancestors().skip(1).find(|folder| marks.iter().any(|mark| folder.join(mark).is_file()))
    };
    let folder = modules.or_else(marked);
    // Never what contains the user's folder, nor the data of a program of the user, as `.config`.
    let folder = folder.filter(|folder| {
        let is_hidden = folder.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
        let is_of_user = |user: &PathBuf| {
            user.starts_with(folder) || (folder.parent() == Some(user) && is_hidden)
        };
        folder.parent().is_some() && user.as_ref().is_some_and(|user| !is_of_user(user))
    });
    Some(folder.unwrap_or(&path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_never_the_folder_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        let file = |path: &str| {
            let file = home.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        file("tools/a/package.json");
        file("tools/venv/pyvenv.cfg");
        for (path, expected) in [
            ("tools/a/dist/index.js", "tools/a"),
            ("tools/b/node_modules/@x/y/node_modules/z/index.js", "tools/b/node_modules"),
            ("tools/venv/bin/serve", "tools/venv"),
            ("alone.py", "alone.py"),
        ] {
            let path = file(path);
            assert_eq!(package(&path, Some(&home)), Some(home.join(expected)));
        }
        file(".config/package.json");
        let config = file(".config/server.js");
        assert_eq!(package(&config, Some(&home)), Some(config));
        file("package.json");
        // Also by another name.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&home, &link).unwrap();
        assert_eq!(package(&link.join("alone.py"), Some(&home)), Some(home.join("alone.py")));
        assert_eq!(package(&home.join("alone.py"), Some(&link)), Some(home.join("alone.py")));
        assert_eq!(package(&home.join("alone.py"), None), Some(home.join("alone.py")));
        let alone = home.join("alone.py");
        assert_eq!(package(&alone, Some(&home)), Some(alone));
        for no in ["alone.py", "/", "/nowhere", "--flag"] {
            assert_eq!(package(Path::new(no), Some(&home)), None, "{no}");
        }
    }
}
