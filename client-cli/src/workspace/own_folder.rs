//! `.pml`, the folder of a project's own records.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use execution::files::atomic::{self, Existing};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Workspace;

/// Its name in the workspace.
const NAME: &str = ".pml";

/// What its `.gitignore` lists from the beginning: the records contain what tools returned.
const IGNORED: &str = "runs.db*\ncontents/\nserve-token\n.gitignore\n";

/// The maximum size of a file in it that is read as a whole, in bytes.
const FILE_LIMIT: u64 = 64 * 1024;

/// The folder, opened.
pub(crate) struct OwnFolder {
    /// Its path, for messages and for SQLite.
    pub(crate) path: PathBuf,
    /// The folder itself, which a path could miss: it may have been replaced.
    pub(crate) directory: OwnedFd,
}

impl OwnFolder {
    /// Opens it; `None` if there is none.
    ///
    /// # Errors
    /// Returns the system's error; `ENOTDIR` for a symbolic link.
    pub(crate) fn open(workspace: &Workspace) -> Result<Option<Self>, Errno> {
        // A repository can contain a link of that name, which would lead out of the workspace.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Relative to the open workspace: a folder that replaces it under its path is not used.
        match rustix::fs::openat(workspace.directory(), NAME, flags, Mode::empty()) {
            Ok(directory) => Ok(Some(Self { path: Self::path(workspace), directory })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens it, and creates it if it is missing.
    ///
    /// # Errors
    /// As [`OwnFolder::open`].
    pub(crate) fn create(workspace: &Workspace) -> Result<Self, Errno> {
        match rustix::fs::mkdirat(workspace.directory(), NAME, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        Self::open(workspace)?.ok_or(Errno::NOENT)
    }

    /// Returns its path, whether or not it exists.
    pub(crate) fn path(workspace: &Workspace) -> PathBuf {
        workspace.root().join(NAME)
    }

    /// Makes its `.gitignore` list a file. A missing `.gitignore` is created: a project that was not set up by
    /// `pml init` may have no entry for the folder in its own.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn ignore(&self, name: &str) -> Result<(), Error> {
        let before = self.read(".gitignore")?;
        let is_listed =
            |text: &[u8]| text.split(|byte| *byte == b'\n').any(|it| it == name.as_bytes());
        let (text, existing) = match before {
            Some(text) if is_listed(&text) => return Ok(()),
            Some(mut text) => {
                if !text.is_empty() && !text.ends_with(b"\n") {
                    text.push(b'\n');
                }
                text.extend_from_slice(format!("{name}\n").as_bytes());
                (text, Existing::Replaced)
            }
            None => (IGNORED.as_bytes().to_vec(), Existing::Kept),
        };
        match self.write(".gitignore", &text, existing) {
            // Another `pml` has written it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// Reads a small file in it; `None` if there is none. A link is not followed.
    ///
    /// # Errors
    /// Returns the system's error, or `InvalidData` for a file that is not regular or too large.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LIMIT {
            return Err(Error::new(ErrorKind::InvalidData, "it is larger than 64 KiB"));
        }
        Ok(Some(bytes))
    }

    /// Opens a regular file in it for reading; `None` if there is none. A link is not followed.
    ///
    /// # Errors
    /// Returns the system's error, or `InvalidData` for a file that is not regular.
    pub(crate) fn open_file(&self, name: &str) -> Result<Option<File>, Error> {
        // A link could lead out of the workspace, and opening a FIFO could block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(Error::new(ErrorKind::InvalidData, "it is a symbolic link"));
            }
            Err(errno) => return Err(errno.into()),
        };
        match file.metadata()?.is_file() {
            true => Ok(Some(file)),
            false => Err(Error::new(ErrorKind::InvalidData, "it is not a regular file")),
        }
    }

    /// Writes a file in it atomically, for its owner only.
    ///
    /// # Errors
    /// Returns the system's error, also if the file exists and is to be kept.
    pub(crate) fn write(
        &self,
        name: &str,
        content: &[u8],
        existing: Existing,
    ) -> Result<(), Error> {
        let mode = Some(Mode::from_raw_mode(0o600));
        atomic::write_durably(&self.directory, name, content, mode, existing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, OwnFolder) {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::find(Some(root.path())).unwrap();
        assert!(OwnFolder::open(&workspace).unwrap().is_none());
        let folder = OwnFolder::create(&workspace).unwrap();
        (root, folder)
    }

    #[test]
    fn its_files_are_kept_out_of_git() {
        let (_root, folder) = folder();
        let text = || String::from_utf8(folder.read(".gitignore").unwrap().unwrap()).unwrap();
        folder.ignore("runs.db*").unwrap();
        assert_eq!(text(), IGNORED);
        folder.ignore("serve-token").unwrap();
        assert_eq!(text(), IGNORED);
        // Of an older `pml`, changed by the user.
        folder.write(".gitignore", b"mine\nserve-token.old", Existing::Replaced).unwrap();
        folder.ignore("serve-token").unwrap();
        assert_eq!(text(), "mine\nserve-token.old\nserve-token\n");
    }

    #[test]
    fn only_small_regular_files_are_read() {
        let (root, folder) = folder();
        let path = folder.path.join("x");
        let refused = || folder.read("x").unwrap_err().to_string();
        assert!(folder.read("x").unwrap().is_none());
        std::os::unix::fs::symlink(root.path(), &path).unwrap();
        assert_eq!(refused(), "it is a symbolic link");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(refused(), "it is not a regular file");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, vec![b' '; 65 * 1024]).unwrap();
        assert_eq!(refused(), "it is larger than 64 KiB");
        std::fs::write(&path, "a").unwrap();
        assert!(folder.write("x", b"b", Existing::Kept).is_err());
        assert_eq!(folder.read("x").unwrap().unwrap(), b"a");
    }
}
