//! The workspace: the folders that local tools can access.

pub(crate) mod beneath;
pub(crate) mod changes;
pub(crate) mod dotenv;
pub(crate) mod own_folder;
pub(crate) mod path_error;
pub(crate) mod protected;
pub(crate) mod reach;
mod roots;
pub(crate) mod touched;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use self::roots::{Root, RootError};

/// Files and folders that mark the root of a project.
const MARKERS: &[&str] = &[".git", "deno.json", "package.json", ".pml.json"];

/// The variable that names the workspace.
pub(crate) const VARIABLE: &str = "PML_WORKSPACE";

/// Why there is no workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The folder does not exist, is not a folder, or cannot be opened.
    #[error("cannot open the workspace `{path}`: {source}", path = path.display())]
    Open {
        /// The path that was given.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The folder is not usable as a workspace.
    #[error("`{path}` cannot be the workspace: {reason}; set `PML_WORKSPACE` to the project's folder", path = path.display())]
    Unfit {
        /// The folder.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

/// The folders that local tools are restricted to, held open for the life of the process: the project's, and those that
/// `roots` in a trusted `.pml.json` adds.
///
/// Tools resolve paths against the open descriptors, not against the folders' paths: renaming or replacing a folder
/// does not move the workspace.
#[derive(Debug)]
pub struct Workspace {
    project: Root,
    further: Vec<Root>,
    /// The protected places that depend on this machine.
    special: Vec<protected::MachinePlace>,
    warning: Option<String>,
}

impl Workspace {
    /// Finds the workspace: `explicit` (a flag), `PML_WORKSPACE`, the nearest parent of the current folder with a
    /// project marker, or else the current folder with a warning.
    ///
    /// # Errors
    /// Returns [`WorkspaceError`] if the selected folder cannot be used; it does not fall back to another one.
    pub(crate) fn find(explicit: Option<&Path>) -> Result<Self, WorkspaceError> {
        let named = std::env::var_os(VARIABLE).filter(|value: &OsString| !value.is_empty());
        let current = std::env::current_dir()
            .map_err(|source| WorkspaceError::Open { path: PathBuf::from("."), source })?;
        Self::find_from(explicit.or(named.as_deref().map(Path::new)), &current)
    }

    /// Finds the workspace from the folder `current`.
    ///
    /// # Errors
    /// Returns [`WorkspaceError`] when the chosen folder cannot be used.
    pub(crate) fn find_from(named: Option<&Path>, current: &Path) -> Result<Self, WorkspaceError> {
        if let Some(path) = named {
            // The home folder is accepted here, because the user named it, but with a warning.
            let mut workspace = Self::open(&current.join(path))?;
            if workspace.project.contains_home() {
                workspace.warning = Some(format!(
                    "the workspace `{}` contains all of your home folder; name a project's folder",
                    workspace.root().display()
                ));
            }
            return Ok(workspace);
        }
        let is_marked = |folder: &&Path| {
            // Whatever its type: `.git` is a file in worktrees and submodules.
            MARKERS.iter().any(|marker| folder.join(marker).symlink_metadata().is_ok())
        };
        if let Some(folder) = current.ancestors().find(is_marked) {
            // With a `.git` in the home folder, each folder beneath it that is in no project would
            // make all of it the workspace.
            return Self::open(folder)?.refuse_home();
        }
        let mut workspace = Self::open(current)?.refuse_home()?;
        workspace.warning = Some(format!(
            "no project found in or above `{}`, so this folder is the workspace; set `{VARIABLE}` or run `pml init`",
            workspace.root().display()
        ));
        Ok(workspace)
    }

    /// Refuses the home folder and its parents.
    fn refuse_home(self) -> Result<Self, WorkspaceError> {
        match self.project.contains_home() {
            true => Err(WorkspaceError::Unfit {
                path: self.project.path,
                reason: "it contains your whole home folder; to use it as a workspace, name it",
            }),
            false => Ok(self),
        }
    }

    /// Opens a folder as the workspace.
    ///
    /// # Errors
    /// Returns [`WorkspaceError`] if it is not a readable folder, if it is the root of the file system, or if its
    /// path is not UTF-8.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let project = Root::open(path).map_err(|error| match error {
            RootError::Open(source) => WorkspaceError::Open { path: path.to_owned(), source },
            RootError::Unfit(reason) => WorkspaceError::Unfit { path: path.to_owned(), reason },
        })?;
        let special = protected::of_machine();
        Ok(Self { project, further: Vec::new(), special, warning: None })
    }

    /// Returns the canonical path of the project's folder.
    pub fn root(&self) -> &Path {
        &self.project.path
    }

    /// Returns the project's folder, for `openat2`.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.project.directory.as_fd()
    }

    /// Returns a warning about the selected folder.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_marked_parent_wins() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("outer/inner/deep")).unwrap();
        std::fs::create_dir(root.join("outer/.git")).unwrap();
        std::fs::write(root.join("outer/inner/package.json"), "{}").unwrap();
        let found = |from: &str| Workspace::find_from(None, &root.join(from)).unwrap();
        assert_eq!(found("outer/inner/deep").root(), root.join("outer/inner"));
        assert_eq!(found("outer").root(), root.join("outer"));
        assert_eq!(found("outer").warning(), None);
        let named = Workspace::find_from(Some(Path::new("../..")), &root.join("outer/inner"));
        assert_eq!(named.unwrap().root(), root);
    }

    #[test]
    fn without_a_project_the_current_folder_is_taken_with_a_warning() {
        let tree = tempfile::tempdir().unwrap();
        // Skipped if there is a marker above the temporary folder, which would be found first.
        if tree.path().ancestors().any(|f| MARKERS.iter().any(|m| f.join(m).exists())) {
            return;
        }
        let workspace = Workspace::find_from(None, tree.path()).unwrap();
        assert!(workspace.warning().unwrap().contains("PML_WORKSPACE"));
    }

    #[test]
    fn a_named_workspace_is_never_replaced_by_another() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("package.json"), "{}").unwrap();
        for name in ["missing", "package.json", "/"] {
            Workspace::find_from(Some(Path::new(name)), tree.path()).expect_err(name);
        }
    }

    /// PC-03: the workspace itself may be reached through a link.
    #[test]
    fn a_link_to_the_workspace_is_the_workspace() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let workspace = Workspace::open(&root.join("link")).unwrap();
        assert_eq!(workspace.root(), root.join("real"));
        assert!(workspace.relative("real/../x").unwrap_err().to_string().contains(".."));
        let inside = root.join("link/a.txt");
        assert_eq!(workspace.relative(inside.to_str().unwrap()).unwrap(), Path::new("a.txt"));
    }
}
