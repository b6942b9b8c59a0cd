//! The folders that a workspace consists of, held open: the project's own, and those that `roots` in `.pml.json` adds.
//!
//! A place in the project's folder has a path relative to it. A place in another folder has its absolute path.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use execution::processes::links::leads_through;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Workspace;

/// The maximum number of retries of a resolution that raced with a rename.
const RACE_RETRIES: usize = 16;

/// Folders of the system that contain no files of a user: what they show depends on the process that reads it.
const PSEUDO: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A folder, held open.
#[derive(Debug)]
pub(super) struct Root {
    /// Its canonical path.
    pub(super) path: PathBuf,
    /// Other paths by which the user knows it.
    aliases: Vec<PathBuf>,
    pub(super) directory: OwnedFd,
}

/// Returns the kernel's path for a descriptor.
pub(super) fn path_of(fd: impl AsFd) -> std::io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Why a folder cannot be one of a workspace.
#[derive(Debug)]
pub(super) enum RootError {
    /// The system does not open it.
    Open(std::io::Error),
    /// It is not usable; the rest of a sentence.
    Unfit(&'static str),
}

impl Root {
    /// Opens a folder.
    pub(super) fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| RootError::Open(errno.into()))?;
        // The path is read back from the descriptor, so that both refer to the same folder.
        let real = path_of(&directory).map_err(RootError::Open)?;
        if real == Path::new("/") {
            return Err(RootError::Unfit("it is the root of the file system"));
        }
        // Tools and arguments of servers get the path as text.
        if real.to_str().is_none() {
            return Err(RootError::Unfit("its name is not UTF-8"));
        }
        // Agents use the path as the user wrote it, possibly through a link, so that path is accepted too.
        let aliases = std::path::absolute(path)
            .ok()
            .filter(|named| *named != real && !named.components().any(|c| c.as_os_str() == ".."))
            .into_iter()
            .collect();
        Ok(Self { path: real, aliases, directory })
    }

    /// Returns whether it contains the user's home folder.
    pub(super) fn contains_home(&self) -> bool {
        // The path has no links, so the home folder is compared without links, too.
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        home.is_some_and(|home| home.starts_with(&self.path))
    }

    /// Returns the rest of an absolute path that begins with this folder, by any of its names.
    pub(super) fn rest_of<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let mut names = std::iter::once(&self.path).chain(&self.aliases);
        names.find_map(|name| path.strip_prefix(name).ok())
    }

    /// Opens a path beneath the folder.
    pub(super) fn resolve(
        &self,
        inner: &Path,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        // `openat2` reports an empty path as missing.
        let target = if inner.as_os_str().is_empty() { Path::new(".") } else { inner };
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..RACE_RETRIES {
            match rustix::fs::openat2(&self.directory, target, flags, Mode::empty(), resolve) {
                // Something was renamed during the resolution.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Joins a path to a canonical one. Each `..` at its beginning removes a name.
fn beside(folder: &Path, path: &Path) -> PathBuf {
    let mut joined = folder.to_owned();
    let mut rest = path.components();
    loop {
        let before = rest.clone();
        match rest.next() {
            Some(Component::ParentDir) => {
                joined.pop();
            }
            Some(Component::CurDir) => {}
            _ => return joined.join(before.as_path()),
        }
    }
}

impl Workspace {
    /// Adds folders, as `roots` in `.pml.json` names them: relative to the project's folder, or to the home folder with
    /// `~/`, or absolute.
    ///
    /// # Errors
    /// Returns why one of them cannot be used. Then none is added.
    pub(crate) fn add_roots(&mut self, names: &[String]) -> Result<(), String> {
        let refused =
            |name: &str, why: &str| format!("`roots`: the folder `{}` {why}", name.escape_debug());
        let mut added: Vec<Root> = Vec::new();
        let mut paths = Vec::new();
        for name in names {
            let refused = |why: &str| refused(name, why);
            let path = match name.strip_prefix("~/") {
                Some(rest) => {
                    let home = std::env::home_dir().filter(|home| home.is_absolute());
                    home.ok_or_else(|| refused("is in your home folder, which is not known"))?
                        .join(rest)
                }
                None => beside(self.root(), Path::new(name)),
            };
            let root = Root::open(&path).map_err(|error| match error {
                RootError::Open(error) => refused(&format!("cannot be opened: {error}")),
                RootError::Unfit(reason) => refused(&format!("cannot be used: {reason}")),
            })?;
            if root.contains_home() {
                return Err(refused("cannot be used: it contains your whole home folder"));
            }
            if PSEUDO.iter().any(|pseudo| root.path.starts_with(pseudo)) {
                return Err(refused("cannot be used: it is not on a disk"));
            }
            // A place must have one path only.
            let overlaps = |other: &&Root| {
                root.path.starts_with(&other.path) || other.path.starts_with(&root.path)
            };
            if let Some(other) = self.folders().chain(added.iter()).find(overlaps) {
                let other = other.path.display();
                return Err(refused(&format!("cannot be used: it overlaps with `{other}`")));
            }
            added.push(root);
            paths.push(path);
        }
        for (place, (name, path)) in names.iter().zip(&paths).enumerate() {
            let others = added.iter().enumerate().filter(|(other, _)| *other != place);
            let others = self.folders().chain(others.map(|(_, root)| root));
            let others: Vec<_> = others.map(|root| root.path.clone()).collect();
            // Otherwise, whoever can change a link in the workspace would choose what is opened at the next start.
            if leads_through(path, &others) {
                let why = "cannot be used: its path leads through the workspace, where programs could change it";
                return Err(refused(name, why));
            }
        }
        self.further.extend(added);
        Ok(())
    }

    /// Returns the canonical paths of its folders, the project's first.
    pub(crate) fn root_paths(&self) -> Vec<PathBuf> {
        self.folders().map(|root| root.path.clone()).collect()
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = &Root> {
        std::iter::once(&self.project).chain(&self.further)
    }

    /// Finds the folder that a place is in; returns it and the place's path in it.
    pub(super) fn folder_of<'a>(&self, place: &'a Path) -> Option<(&Root, &'a Path)> {
        if place.is_relative() {
            return Some((&self.project, place));
        }
        self.folders().find_map(|root| Some((root, place.strip_prefix(&root.path).ok()?)))
    }

    /// Returns the place that has a canonical path.
    pub(super) fn place_at(&self, path: &Path) -> Option<PathBuf> {
        let (root, inner) = self.folder_of(path)?;
        let is_project = root.path == self.project.path;
        Some(if is_project { inner } else { path }.to_owned())
    }

    /// Returns whether a place is one of its folders itself.
    pub(crate) fn is_folder_itself(&self, place: &Path) -> bool {
        self.folder_of(place).is_some_and(|(_, inner)| inner.as_os_str() == OsStr::new(""))
    }

    /// Returns the parts of a way to a place, from the outermost beneath its folder to the place itself.
    pub(crate) fn way_to<'a>(&self, place: &'a Path) -> Vec<&'a Path> {
        let inner = place.ancestors().take_while(|part| !self.is_folder_itself(part));
        let mut way: Vec<_> = inner.collect();
        way.reverse();
        way
    }
}
