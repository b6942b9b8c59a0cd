//! The files of agents on disk, and other files of a project that others read, too.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use execution::files::atomic::{self, Existing};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::{Agent, Base};
use crate::workspace::Workspace;

/// The maximum size of a file that is read, in bytes.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{file}`: {reason}; nothing was changed in it")]
pub(crate) struct FileError {
    /// The file.
    file: String,
    /// The obstacle.
    reason: String,
}

/// The file in which an agent finds its MCP servers.
#[derive(Debug)]
pub(crate) struct AgentFile {
    agent: Agent,
    /// The project, or the home folder.
    base: OwnedFd,
    /// What was read; `None` if there is no file.
    before: Option<Vec<u8>>,
    text: String,
    servers: Map<String, Value>,
}

impl AgentFile {
    /// Reads the file of an agent; a missing one is empty.
    ///
    /// # Errors
    /// Returns [`FileError`] if it cannot be read and parsed, or has another form.
    pub(crate) fn read(
        agent: Agent,
        workspace: &Workspace,
        home: Option<&Path>,
    ) -> Result<Self, FileError> {
        let refused = |reason: String| FileError { file: agent.shown(), reason };
        let layout = agent.layout();
        let base = match (layout.base, home) {
            (Base::Project, _) => workspace.directory().as_fd().try_clone_to_owned(),
            (Base::Home, Some(home)) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::open(home, flags, Mode::empty()).map_err(Into::into)
            }
            (Base::Home, None) => Err(std::io::Error::other("HOME is not set")),
        };
        let base = base.map_err(|error| refused(error.to_string()))?;
        let before = match folder(&base, layout.folders, false).map_err(refused)? {
            Some(folder) => content(&folder, layout.name).map_err(refused)?,
            None => None,
        };
        let text = match &before {
            Some(bytes) => std::str::from_utf8(bytes)
                .map_err(|_| refused("it is not UTF-8 text".to_owned()))?
                .to_owned(),
            None => String::new(),
        };
        let servers = layout.syntax.servers(&text, layout.member).map_err(refused)?;
        Ok(Self { agent, base, before, text, servers })
    }

    /// Returns that the file is not used, and why.
    pub(crate) fn refused(&self, reason: &str) -> FileError {
        FileError { file: self.agent.shown(), reason: reason.to_owned() }
    }

    /// Returns the agent.
    pub(crate) fn agent(&self) -> Agent {
        self.agent
    }

    /// Returns whether there is a file.
    pub(crate) fn exists(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the servers by name.
    pub(crate) fn servers(&self) -> &Map<String, Value> {
        &self.servers
    }

    /// Adds a server, or replaces the one of this name.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file cannot have it.
    pub(crate) fn insert(&mut self, name: &str, entry: &Value) -> Result<(), FileError> {
        self.remove(name)?;
        let layout = self.agent.layout();
        self.change(layout.syntax.with(&self.text, layout.member, name, entry))
    }

    /// Removes a server, if there is one of this name.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file cannot be changed.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), FileError> {
        if !self.servers.contains_key(name) {
            return Ok(());
        }
        let layout = self.agent.layout();
        self.change(layout.syntax.without(&self.text, layout.member, name))
    }

    fn change(&mut self, changed: Result<String, String>) -> Result<(), FileError> {
        let refused = |reason| FileError { file: self.agent.shown(), reason };
        let layout = self.agent.layout();
        let text = changed.map_err(refused)?;
        // Read again: what is written is known to be readable.
        self.servers = layout.syntax.servers(&text, layout.member).map_err(refused)?;
        self.text = text;
        Ok(())
    }

    /// Returns the copy that is made of the file before its first change, as a path in the project; `None` if there is no
    /// file, or if it is not in the project.
    pub(crate) fn backup(&self) -> Option<String> {
        let in_project = self.agent.layout().base == Base::Project;
        (self.exists() && in_project).then(|| backup(&self.agent.shown()))
    }

    /// Writes the file. A copy of what it was is made before the first change.
    ///
    /// # Errors
    /// Returns [`FileError`] if it cannot be written, and leaves it as it was then.
    pub(crate) fn write(&self) -> Result<(), FileError> {
        let refused = |reason| FileError { file: self.agent.shown(), reason };
        let layout = self.agent.layout();
        let folder = folder(&self.base, layout.folders, true)
            .map_err(refused)?
            .ok_or_else(|| refused("its folder cannot be created".to_owned()))?;
        let now = content(&folder, layout.name).map_err(refused)?;
        if now != self.before {
            return Err(refused("it was changed meanwhile".to_owned()));
        }
        if let Some(before) = &self.before {
            let backup = backup(layout.name);
            // Only the first change is backed up: later ones would overwrite the original.
            if content(&folder, &backup).map_err(refused)?.is_none() {
                replace(&folder, &backup, before).map_err(refused)?;
            }
        }
        replace(&folder, layout.name, self.text.as_bytes()).map_err(refused)
    }
}

fn backup(name: &str) -> String {
    format!("{name}.backup")
}

/// Opens the folder of a file. A link on the way is refused: a repository could lead to any folder of the user.
fn folder(base: &OwnedFd, folders: &[&str], create: bool) -> Result<Option<OwnedFd>, String> {
    let mut opened = base.try_clone().map_err(|error| error.to_string())?;
    for name in folders {
        if create {
            match rustix::fs::mkdirat(&opened, *name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(format!("`{name}`: {errno}")),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        opened = match rustix::fs::openat(&opened, *name, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            // Linux reports a link that is not followed as no folder.
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(format!("`{name}` is a symbolic link, or not a folder"));
            }
            Err(errno) => return Err(format!("`{name}`: {errno}")),
        };
    }
    Ok(Some(opened))
}

/// Reads a file of the workspace; `None` if there is none.
///
/// # Errors
/// Returns [`FileError`] for anything except a readable regular file of at most 4 MiB.
pub(crate) fn read(workspace: &Workspace, file: &str) -> Result<Option<Vec<u8>>, FileError> {
    content(workspace.directory(), file)
        .map_err(|reason| FileError { file: file.to_owned(), reason })
}

fn content(folder: impl AsFd, file: &str) -> Result<Option<Vec<u8>>, String> {
    // A link in a repository could lead to any file of the user, and a FIFO would block the
    // command.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(folder, file, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(errno) => return Err(errno.to_string()),
    };
    let opened = std::fs::File::from(fd);
    if !opened.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut content = Vec::new();
    opened.take(FILE_LIMIT + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if content.len() as u64 > FILE_LIMIT {
        return Err("it is larger than 4 MiB".to_owned());
    }
    Ok(Some(content))
}

/// Writes a file of the workspace atomically, with the permissions that it has.
///
/// # Errors
/// Returns [`FileError`] if it cannot be written, and leaves it as it was then.
pub(crate) fn write(workspace: &Workspace, file: &str, content: &[u8]) -> Result<(), FileError> {
    replace(workspace.directory(), file, content)
        .map_err(|reason| FileError { file: file.to_owned(), reason })
}

fn replace(folder: impl AsFd, file: &str, content: &[u8]) -> Result<(), String> {
    let mode = rustix::fs::statat(folder.as_fd(), file, AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .map(|stat| Mode::from_raw_mode(stat.st_mode & 0o777));
    atomic::write_durably(folder, file, content, mode, Existing::Replaced)
        .map_err(|error| error.to_string())
}
