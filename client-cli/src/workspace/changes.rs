//! Changes of files and folders that a call is about to make.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat};

/// A change that is about to be made. Paths are real ones, in the workspace.
pub(crate) enum Change<'a> {
    /// A file is created, or its content is replaced.
    Write {
        /// The file.
        path: &'a Path,
        /// What is there now; `None` if nothing is.
        before: Option<Before>,
        /// The new content.
        content: &'a [u8],
        /// The permissions that it gets; `None` for those of a new file.
        mode: Option<u32>,
    },
    /// A file is removed.
    Remove {
        /// The file.
        path: &'a Path,
        /// What is there now.
        before: Before,
    },
    /// A folder is created.
    CreateFolder {
        /// The folder.
        path: &'a Path,
    },
    /// An empty folder is removed.
    RemoveFolder {
        /// The folder.
        path: &'a Path,
        /// Its mode.
        mode: u32,
    },
    /// A file, folder or link is moved.
    Move {
        /// Its present path.
        from: &'a Path,
        /// Its new path.
        to: &'a Path,
        /// What it is.
        moved: Moved,
    },
}

/// What is moved.
pub(crate) enum Moved {
    /// A file.
    File(Before),
    /// A folder.
    Folder,
    /// A link, with its target.
    Link(Vec<u8>),
}

impl Change<'_> {
    /// Returns the paths that it is about.
    fn paths(&self) -> [&Path; 2] {
        match *self {
            Self::Move { from, to, .. } => [from, to],
            Self::Write { path, .. }
            | Self::Remove { path, .. }
            | Self::CreateFolder { path }
            | Self::RemoveFolder { path, .. } => [path, path],
        }
    }

    /// Returns whether its paths can be recorded exactly.
    pub(crate) fn has_text_paths(&self) -> bool {
        self.paths().iter().all(|path| path.to_str().is_some())
    }
}

/// A file that will be replaced, removed or moved.
pub(crate) struct Before {
    /// The file, opened for reading; `None` if it cannot be read.
    pub(crate) file: Option<File>,
    /// Its permissions.
    pub(crate) mode: u32,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

impl Before {
    /// Opens a regular file for reading, given any descriptor of it.
    pub(crate) fn of(opened: &OwnedFd, stat: &Stat) -> Self {
        // Reopened through its descriptor, so that it is this file whatever its path leads to by now.
        let same = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(same, flags, Mode::empty()).ok().map(File::from);
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Self { file, mode: stat.st_mode & 0o7777, bytes }
    }
}

/// Is told about each change before it is made. An error, a sentence for the user, prevents the change.
pub(crate) type Watch<'a> = dyn Fn(Change<'_>) -> Result<(), String> + Send + Sync + 'a;
