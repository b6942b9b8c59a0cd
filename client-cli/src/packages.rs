//! Packages of npm and PyPI from which MCP servers start: `pml` installs them itself, instead of starting `npx` or `uvx`.
//!
//! An installed package is kept in a folder of the user's own records and started from there, without its package
//! manager and without the network. Nothing of a package runs while it is installed: scripts are ignored, and Python
//! packages are wheels. Each download has a hash, which the package manager compares with the one that the registry lists.

mod cleanup;
mod contents;
mod folder;
mod npm;
mod pypi;
mod request;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

pub(crate) use self::cleanup::{Unused, clean};
pub(crate) use self::folder::InUse;
use self::folder::{Access, Folder};
use self::request::Ecosystem;
pub(crate) use self::request::Request;
use crate::processes::environment::Environment;
use crate::processes::programs::{Program, ProgramError};
use crate::processes::supervise::{Input, Supervisor};

/// The time limit of an installation.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// The number of bytes at the end of a package manager's output that an error quotes.
const QUOTED: usize = 1_500;

/// What is done with packages at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Nothing so far.
    #[default]
    None,
    /// This package is being installed.
    Installs(String),
    /// The installation of this package has ended.
    Installed {
        /// The package.
        package: String,
        /// How long it took.
        took: Duration,
        /// Whether it is there now.
        is_complete: bool,
    },
}

/// Installs packages for one user.
#[derive(Debug)]
pub(crate) struct Installer<'a> {
    /// The folder of all installed packages.
    pub(crate) folder: &'a Path,
    /// The user's variables and programs.
    pub(crate) environment: &'a Environment,
    /// Starts the package managers.
    pub(crate) supervisor: &'a Supervisor,
    /// Gets what is done.
    pub(crate) activity: &'a watch::Sender<Activity>,
}

impl Installer<'_> {
    /// Returns the program that installs a package, without running it.
    ///
    /// # Errors
    /// Returns which program is missing.
    pub(crate) fn program(&self, request: &Request) -> Result<Program, ProgramError> {
        // A name without `/` does not depend on the folder.
        let find = |name| self.environment.programs().find(name, self.folder);
        match request.ecosystem {
            Ecosystem::Npm => find("node").and_then(|_| find("npm")),
            Ecosystem::PyPi => find("python3"),
        }
    }

    /// Returns the program that runs what a package contains.
    ///
    /// # Errors
    /// Returns that it is missing.
    pub(crate) fn runtime(&self, request: &Request) -> Result<Program, ProgramError> {
        let name = match request.ecosystem {
            Ecosystem::Npm => "node",
            Ecosystem::PyPi => "python3",
        };
        self.environment.programs().find(name, self.folder)
    }

    /// Returns the version of a package that is installed.
    pub(crate) fn installed(&self, request: &Request) -> Option<String> {
        folder::installed(self.folder, request)
    }

    /// Returns the program of a package as a file, which stays while the other value exists. The package is installed if
    /// it is not there.
    ///
    /// # Errors
    /// Returns why it cannot be installed or has no such program, as the rest of a sentence about the server.
    pub(crate) async fn install(&self, request: &Request) -> Result<(PathBuf, InUse), String> {
        let mut folder = Folder::lock(self.folder, request, Access::Use).await?;
        if !folder.is_complete() {
            // First released: the lock is held for both only by one.
            drop(folder);
            folder = Folder::lock(self.folder, request, Access::Change).await?;
        }
        // Another process may have installed it in between.
        if !folder.is_complete() {
            tracing::info!(package = %request.shown(), "Installing a package");
            let mut shown = Shown::begin(self.activity, request);
            folder.clear()?;
            let install = async {
                match request.ecosystem {
                    Ecosystem::Npm => npm::install(self, request, folder.path()).await,
                    Ecosystem::PyPi => pypi::install(self, request, folder.path()).await,
                }
            };
            let installed = tokio::time::timeout(LIMIT, install).await;
            let installed = installed.unwrap_or_else(|_| {
                Err(format!("its installation took longer than {} s", LIMIT.as_secs()))
            });
            let packages = installed
                .map_err(|reason| format!("`{}` was not installed: {reason}", request.shown()))?;
            folder.complete(request, packages)?;
            shown.is_complete = true;
        } else if let Err(reason) = folder.check() {
            let (package, path) = (request.shown(), folder.path().display());
            return Err(format!("`{package}` {reason}; to install it again, delete `{path}`"));
        }
        let program = match request.ecosystem {
            Ecosystem::Npm => npm::program(request, folder.path()),
            Ecosystem::PyPi => pypi::program(request, folder.path()),
        };
        let program = program.map_err(|reason| format!("`{}` {reason}", request.shown()))?;
        Ok((program, folder.into_use()?))
    }

    /// Runs a package manager in the folder of a package.
    async fn run(&self, program: &Path, arguments: &[&str], folder: &Path) -> Result<(), String> {
        let argv: Vec<&std::ffi::OsStr> = std::iter::once(program.as_os_str())
            .chain(arguments.iter().map(AsRef::as_ref))
            .collect();
        let mut command = self.supervisor.command(Input::Passed, None, program, &argv);
        let variables: BTreeMap<String, String> = self.environment.base();
        command.envs(variables).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = tokio::process::Command::from(command).spawn();
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut child = started.map_err(|error| format!("cannot start `{name}`: {error}"))?;
        // Closing it, also when this future is dropped, ends the package manager.
        let input = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (out, err) = tokio::join!(printed(stdout), printed(stderr));
        let status = child.wait().await.map_err(|error| format!("`{name}` was lost: {error}"))?;
        drop(input);
        if status.success() {
            return Ok(());
        }
        let said = if err.is_empty() { out } else { err };
        Err(reason(&name, String::from_utf8_lossy(&said).trim()))
    }
}

/// An installation, as others see it. It has ended when this is dropped, also if the call that needs it is cancelled.
struct Shown<'a> {
    activity: &'a watch::Sender<Activity>,
    package: String,
    since: Instant,
    is_complete: bool,
}

impl<'a> Shown<'a> {
    fn begin(activity: &'a watch::Sender<Activity>, request: &Request) -> Self {
        let package = request.shown_with_place();
        activity.send_replace(Activity::Installs(package.clone()));
        Self { activity, package, since: Instant::now(), is_complete: false }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let package = std::mem::take(&mut self.package);
        let (took, is_complete) = (self.since.elapsed(), self.is_complete);
        self.activity.send_replace(Activity::Installed { package, took, is_complete });
    }
}

/// Reads what a package manager prints, until it has ended. Returns the first MiB.
async fn printed(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return kept };
    // A failure here only makes an error message shorter.
    let _ = (&mut pipe).take(1 << 20).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    kept
}

/// Returns what to say of a package that does not have the requested program.
fn no_program<'a>(request: &Request, others: impl Iterator<Item = &'a String>) -> String {
    let others: Vec<String> =
        others.take(20).map(|name| format!("`{}`", protocol::escape_text(name))).collect();
    let wanted = match &request.program {
        Some(name) => format!("has no program `{name}`"),
        None => "does not say which of its programs is meant".to_owned(),
    };
    match others.is_empty() {
        true => format!("{wanted}; it has none"),
        false => format!("{wanted}; it has: {}", others.join(", ")),
    }
}

/// What package managers print if their registry cannot be reached.
const UNREACHABLE: &[&str] = &[
    "ECONNREFUSED",
    "ECONNRESET",
    "EAI_AGAIN",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
    "Failed to establish a new connection",
    "Connection refused",
    "Temporary failure in name resolution",
    "ConnectTimeoutError",
];

/// What they print if it has no such package or version, or none that can be installed here.
const UNKNOWN: &[&str] =
    &["code E404", "code ETARGET", "No matching distribution found", "is not in this registry"];

/// What they print if a download does not have the hash that the registry lists.
const CHANGED: &[&str] = &["EINTEGRITY", "DO NOT MATCH THE HASHES"];

/// Returns why a package manager failed, from what it printed.
fn reason(program: &str, said: &str) -> String {
    let contains = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if contains(CHANGED) {
        return "what its registry sent does not have the hash that it lists".to_owned();
    }
    if contains(UNREACHABLE) {
        return "its registry cannot be reached; check the network, and the registry and proxy in your settings of npm or pip".to_owned();
    }
    if contains(UNKNOWN) {
        return "its registry has no such package or version for this machine".to_owned();
    }
    let from = said.len().saturating_sub(QUOTED);
    let from = (from..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(said.len());
    format!("`{program}` failed: {}", &said[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_the_package_manager_printed() {
        let npm = "npm error code ENOTFOUND\nnpm error network request to https://r.test failed";
        assert!(reason("npm", npm).contains("registry cannot be reached"));
        let pip = "ERROR: No matching distribution found for none-such==9";
        assert!(reason("python3", pip).contains("no such package or version"));
        let long = format!("{}é the end", "é".repeat(2_000));
        let quoted = reason("npm", &long);
        assert!(quoted.ends_with("the end") && quoted.len() < 2_000, "{quoted}");
        assert_eq!(reason("npm", ""), "`npm` failed: ");
    }
}
