//! Packages of npm and PyPI from which MCP servers start: `pml` installs them itself, instead of starting `npx` or `uvx`.
//!
//! An installed package is kept in a folder of the user's own records and started from there, without its package
//! manager and without the network. Nothing of a package runs while it is installed: scripts are ignored, and Python
//! packages are wheels. It is found out first what would be installed, in exact versions with their hashes, unless a lock
//! has that. Then exactly this is installed, and the package manager compares each download with its hash.

mod cleanup;
mod contents;
mod folder;
mod locked;
mod npm;
mod pins;
mod pypi;
mod reason;
mod request;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

pub use self::cleanup::{Unused, clean};
use self::folder::{Access, Folder};
pub use self::folder::{InUse, forget, remember};
pub use self::locked::{ChangeKind, LockedPackages, PackageChange};
pub use self::pins::{NotInstalled, Pinned, Pins};
use self::reason::reason;
use self::request::Ecosystem;
pub use self::request::Request;
use crate::processes::programs::{Program, ProgramError, Programs};
use crate::processes::supervise::{Input, Supervisor};

/// The time limit of an installation.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// What is done with packages at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Activity {
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
pub struct Installer<'a> {
    /// The folder of all installed packages.
    pub folder: &'a Path,
    /// Finds the package managers.
    pub programs: &'a Programs,
    /// The variables that they get.
    pub variables: BTreeMap<String, String>,
    /// Starts the package managers.
    pub supervisor: &'a Supervisor,
    /// Gets what is done.
    pub activity: &'a watch::Sender<Activity>,
}

impl Installer<'_> {
    /// Returns the program that installs a package, without running it.
    ///
    /// # Errors
    /// Returns which program is missing.
    pub fn program(&self, request: &Request) -> Result<Program, ProgramError> {
        // A name without `/` does not depend on the folder.
        let find = |name| self.programs.find(name, self.folder);
        match request.ecosystem {
            Ecosystem::Npm => find("node").and_then(|_| find("npm")),
            Ecosystem::PyPi => find("python3"),
        }
    }

    /// Returns the program that runs what a package contains.
    ///
    /// # Errors
    /// Returns that it is missing.
    pub fn runtime(&self, request: &Request) -> Result<Program, ProgramError> {
        let name = match request.ecosystem {
            Ecosystem::Npm => "node",
            Ecosystem::PyPi => "python3",
        };
        self.programs.find(name, self.folder)
    }

    /// Returns the version of a package that is installed.
    pub fn installed(&self, request: &Request) -> Option<String> {
        folder::last(self.folder, request)?.version().map(str::to_owned)
    }

    /// Returns the program of a package as a file, which stays while the other value exists. The package is installed if
    /// it is not there: as it is locked, else as it is now, which is locked first.
    ///
    /// # Errors
    /// Returns why it cannot or may not be installed, or has no such program.
    pub async fn install(
        &self,
        request: &Request,
        pinned: Pinned<'_>,
    ) -> Result<(PathBuf, InUse), NotInstalled> {
        let mut shown = None;
        let locked = match pinned.locked(request)? {
            Some(packages) => packages,
            None => self.lock(request, pinned, None, &mut shown).await?,
        };
        let (program, in_use) = match self.installed_folder(request, &locked, &mut shown).await? {
            Some(found) => found,
            None => {
                // It was locked on another platform.
                let locked = self.lock(request, pinned, Some(&locked), &mut shown).await?;
                let found = self.installed_folder(request, &locked, &mut shown).await?;
                found.ok_or_else(|| "its packages are not locked for this platform".to_owned())?
            }
        };
        if let Some(shown) = &mut shown {
            shown.is_complete = true;
        }
        Ok((program, in_use))
    }

    /// Returns the program of exactly these packages as a file, which stays while the other value exists. Nothing is
    /// installed.
    ///
    /// # Errors
    /// Returns that the package is not there, was changed, or has no such program.
    pub async fn open(
        &self,
        request: &Request,
        locked: &LockedPackages,
    ) -> Result<(PathBuf, InUse), String> {
        let folder = Folder::lock(self.folder, &folder::key(locked), Access::Use).await?;
        if !folder.is_complete() {
            return Err(format!("`{}` is not installed", request.shown()));
        }
        unchanged(request, &folder)?;
        used(request, folder)
    }

    /// Returns the program in the folder of exactly these packages, which are installed if they are not there; `None` if
    /// they are not known for this platform.
    async fn installed_folder<'s>(
        &'s self,
        request: &Request,
        locked: &LockedPackages,
        shown: &mut Option<Shown<'s>>,
    ) -> Result<Option<(PathBuf, InUse)>, NotInstalled> {
        let key = folder::key(locked);
        let mut folder = Folder::lock(self.folder, &key, Access::Use).await?;
        if !folder.is_complete() {
            // First released: the lock is held for both only by one.
            drop(folder);
            folder = Folder::lock(self.folder, &key, Access::Change).await?;
        }
        // Another process may have installed it in between.
        if !folder.is_complete() {
            folder.clear()?;
            if request.ecosystem == Ecosystem::PyPi {
                let platform = pypi::platform(self, request, folder.path()).await?;
                if !locked.pypi.contains_key(&platform) {
                    return Ok(None);
                }
            }
            tracing::info!(package = %request.shown(), "Installing a package");
            shown.get_or_insert_with(|| Shown::begin(self.activity, request));
            let install = async {
                match request.ecosystem {
                    Ecosystem::Npm => npm::install(self, request, locked, folder.path()).await,
                    Ecosystem::PyPi => pypi::install(self, request, locked, folder.path()).await,
                }
            };
            let installed = within_limit(install).await;
            installed.map_err(|reason| not_installed(request, &reason))?;
            folder.complete(request)?;
        } else {
            unchanged(request, &folder)?;
        }
        Ok(Some(used(request, folder)?))
    }

    /// Finds out what is installed for a request, and has it locked; `others` are the packages of other platforms.
    async fn lock<'s>(
        &'s self,
        request: &Request,
        pinned: Pinned<'_>,
        others: Option<&LockedPackages>,
        shown: &mut Option<Shown<'s>>,
    ) -> Result<LockedPackages, NotInstalled> {
        let key = folder::resolution_key(request);
        let folder = Folder::lock(self.folder, &key, Access::Change).await?;
        // Another process may have locked it while this one waited.
        let now = pinned.locked(request)?;
        if let Some(now) = now.filter(|now| Some(now) != others) {
            return Ok(now);
        }
        if let Some(last) = folder::last(self.folder, request).filter(|_| others.is_none()) {
            return pinned.keep(last);
        }
        shown.get_or_insert_with(|| Shown::begin(self.activity, request));
        let resolved = self.resolve(request, others, false, &folder).await;
        let resolved = resolved.map_err(|reason| not_installed(request, &reason))?;
        let kept = pinned.keep(resolved.clone())?;
        // Else each project without a lock asks the registry again. Not what a lock has, which may be of somebody else.
        if others.is_none() && kept == resolved {
            let remembered = folder::remember(self.folder, &kept);
            remembered.map_err(|error| format!("cannot store what is installed: {error}"))?;
        }
        Ok(kept)
    }

    /// Finds out what would be installed for a request now, whatever is locked. Nothing is installed or stored.
    ///
    /// # Errors
    /// Returns why that cannot be found out.
    pub async fn newest(&self, request: &Request) -> Result<LockedPackages, String> {
        let key = folder::resolution_key(request);
        let folder = Folder::lock(self.folder, &key, Access::Change).await?;
        let resolved = self.resolve(request, None, true, &folder).await;
        resolved.map_err(|reason| {
            format!("the newest packages of `{}` are not known: {reason}", request.shown())
        })
    }

    /// Finds out in a folder, which is removed, what would be installed for a request now; `others` are the packages of
    /// other platforms.
    async fn resolve(
        &self,
        request: &Request,
        others: Option<&LockedPackages>,
        is_update: bool,
        folder: &Folder,
    ) -> Result<LockedPackages, String> {
        folder.clear()?;
        let resolve = async {
            match request.ecosystem {
                Ecosystem::Npm => npm::resolve(self, request, is_update, folder.path()).await,
                Ecosystem::PyPi => pypi::resolve(self, request, others, folder.path()).await,
            }
        };
        let resolved = within_limit(resolve).await?;
        let removed = folder.remove();
        removed.map_err(|error| format!("cannot remove `{}`: {error}", folder.path().display()))?;
        Ok(resolved)
    }

    /// Runs a package manager in the folder of a package; returns what it prints.
    async fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<Vec<u8>, String> {
        let argv: Vec<&std::ffi::OsStr> = std::iter::once(program.as_os_str())
            .chain(arguments.iter().map(AsRef::as_ref))
            .collect();
        let mut command = self.supervisor.command(Input::Passed, None, program, &argv);
        command
            .envs(&self.variables)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
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
            return Ok(out);
        }
        let said = if err.is_empty() { out } else { err };
        Err(reason(&name, String::from_utf8_lossy(&said).trim()))
    }
}

/// Checks that an installed package is as it was installed.
fn unchanged(request: &Request, folder: &Folder) -> Result<(), String> {
    folder.check().map_err(|reason| {
        let (package, path) = (request.shown(), folder.path().display());
        format!("`{package}` {reason}; to install it again, delete `{path}`")
    })
}

/// Returns the program in the folder of an installed package, which is in use from then on.
fn used(request: &Request, folder: Folder) -> Result<(PathBuf, InUse), String> {
    let program = match request.ecosystem {
        Ecosystem::Npm => npm::program(request, folder.path()),
        Ecosystem::PyPi => pypi::program(request, folder.path()),
    };
    let program = program.map_err(|reason| format!("`{}` {reason}", request.shown()))?;
    Ok((program, folder.into_use()?))
}

/// Waits for a step of an installation, for a limited time.
async fn within_limit<T>(step: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let ended = tokio::time::timeout(LIMIT, step).await;
    ended.unwrap_or_else(|_| Err(format!("it took longer than {} s", LIMIT.as_secs())))
}

fn not_installed(request: &Request, reason: &str) -> String {
    format!("`{}` was not installed: {reason}", request.shown())
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
