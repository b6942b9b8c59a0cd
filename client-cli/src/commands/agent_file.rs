//! Files of a project that others read, too; above all `.mcp.json`, in which agents find the project's MCP servers.

use std::io::Read as _;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use crate::files::atomic::{self, Existing};
use crate::files::strict_json;
use crate::workspace::Workspace;

/// The file in which agents find a project's MCP servers.
pub(super) const AGENT_FILE: &str = ".mcp.json";

/// A copy of it, made before its first change.
const BACKUP: &str = ".mcp.json.backup";

/// The maximum size of a file that is read, in bytes.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{file}`: {reason}; nothing was changed in it")]
pub(crate) struct FileError {
    /// The file.
    file: &'static str,
    /// The obstacle.
    reason: String,
}

/// The content of `.mcp.json`.
pub(super) struct AgentFile {
    /// What was read; `None` if there is no file.
    before: Option<Vec<u8>>,
    value: Value,
}

impl AgentFile {
    /// Reads the file of a workspace; a missing one is empty.
    ///
    /// # Errors
    /// Returns [`FileError`] if it cannot be read and parsed, or has another form.
    pub(super) fn read(workspace: &Workspace) -> Result<Self, FileError> {
        let before = read(workspace, AGENT_FILE)?;
        let mut value: Value = match &before {
            None => json!({}),
            Some(content) => {
                // Duplicate keys would be lost when the file is rewritten.
                strict_json::check_unique(content).map_err(refused)?;
                serde_json::from_slice(content).map_err(|error| refused(error.to_string()))?
            }
        };
        let object =
            value.as_object_mut().ok_or_else(|| refused("it is not an object".to_owned()))?;
        if !object.entry("mcpServers").or_insert_with(|| json!({})).is_object() {
            return Err(refused("`mcpServers` is not an object".to_owned()));
        }
        Ok(Self { before, value })
    }

    /// Returns whether there is a file.
    pub(super) fn exists(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the servers by name.
    pub(super) fn servers(&mut self) -> &mut Map<String, Value> {
        self.value["mcpServers"].as_object_mut().expect("it was checked when the file was read")
    }

    /// Writes the file. A copy of what it was is made before the first change.
    ///
    /// # Errors
    /// Returns [`FileError`] if it cannot be written, and leaves it as it was then.
    pub(super) fn write(&self, workspace: &Workspace) -> Result<(), FileError> {
        if let Some(before) = &self.before
            // Only the first change is backed up: later ones would overwrite the original.
            && read(workspace, BACKUP)?.is_none()
        {
            write(workspace, BACKUP, before)?;
        }
        let mut after =
            serde_json::to_vec_pretty(&self.value).map_err(|error| refused(error.to_string()))?;
        after.push(b'\n');
        write(workspace, AGENT_FILE, &after)
    }
}

fn refused(reason: String) -> FileError {
    FileError { file: AGENT_FILE, reason }
}

/// Reads a file of the workspace; `None` if there is none.
pub(super) fn read(
    workspace: &Workspace,
    file: &'static str,
) -> Result<Option<Vec<u8>>, FileError> {
    let refused = |reason: String| FileError { file, reason };
    // A link in a repository could lead to any file of the user, and a FIFO would block the
    // command.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(workspace.directory(), file, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(refused("it is a symbolic link".to_owned())),
        Err(errno) => return Err(refused(errno.to_string())),
    };
    let opened = std::fs::File::from(fd);
    if !opened.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let mut content = Vec::new();
    opened
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut content)
        .map_err(|error| refused(error.to_string()))?;
    if content.len() as u64 > FILE_LIMIT {
        return Err(refused("it is larger than 4 MiB".to_owned()));
    }
    Ok(Some(content))
}

/// Writes a file of the workspace atomically, with the permissions that it has.
pub(super) fn write(
    workspace: &Workspace,
    file: &'static str,
    content: &[u8],
) -> Result<(), FileError> {
    let folder = workspace.directory();
    let mode = rustix::fs::statat(folder, file, AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .map(|stat| Mode::from_raw_mode(stat.st_mode & 0o777));
    atomic::write_durably(folder, file, content, mode, Existing::Replaced)
        .map_err(|error| FileError { file, reason: error.to_string() })
}
