//! Reads the lock file strictly and writes it atomically.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use protocol::{ErrorBody, ErrorCode, Integrity};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::files::atomic::{self, Existing};
use crate::files::strict_json;
use crate::processes::environment::Source;
use crate::workspace::Workspace;

/// The version of the file's format. Other versions are refused.
const VERSION: u32 = 1;

/// The file's name in the workspace.
pub(super) const FILE: &str = ".pml/mcp.lock";

/// Its folder, and its name in the folder.
const PLACE: (&str, &str) = (".pml", "mcp.lock");

/// The maximum file size in bytes.
const FILE_LIMIT: usize = 1024 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    version: u32,
    /// The servers by full name.
    pub(super) servers: BTreeMap<String, Locked>,
    /// The hashes by full name and version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) capabilities: BTreeMap<String, Integrity>,
}

/// A server as the user approved it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Locked {
    pub(super) integrity: Integrity,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// Absent in entries of an older `pml` that did not show them; these need a new approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grants: Option<Grants>,
}

/// What starting a server grants it, as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grants {
    /// The program's file.
    pub(super) program: String,
    /// The files that run it, if it is a script.
    pub(super) interpreters: Vec<String>,
    /// The package that the program installs, if the server starts from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<String>,
    /// The user's variables that it gets, and where they come from.
    pub(super) variables: BTreeMap<String, Source>,
    /// The hosts that it can connect to; absent if it is not sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hosts: Option<Vec<String>>,
}

/// Returns the error for a malformed file.
pub(super) fn invalid(what: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::ConfigInvalid, format!("`{FILE}`: {what}"))
}

/// Opens the folder of the file; `None` if there is none.
fn folder(workspace: &Workspace) -> Result<Option<OwnedFd>, ErrorBody> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Relative to the open workspace: a folder that replaces it under its path is not used.
    match rustix::fs::openat(workspace.directory(), PLACE.0, flags, Mode::empty()) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        // With `O_DIRECTORY`, Linux reports a symbolic link as `ENOTDIR`.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            Err(invalid(format!("`{}` is not a folder of this workspace", PLACE.0)))
        }
        Err(errno) => Err(invalid(errno)),
    }
}

/// Reads the lock; a missing one is empty.
pub(super) fn read(workspace: &Workspace) -> Result<Content, ErrorBody> {
    let empty =
        Content { version: VERSION, servers: BTreeMap::new(), capabilities: BTreeMap::new() };
    let Some(folder) = folder(workspace)? else { return Ok(empty) };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A link could lead out of the workspace, and opening a FIFO could block.
    let file = match rustix::fs::openat(folder, PLACE.1, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(empty),
        Err(Errno::LOOP) => return Err(invalid("it is a symbolic link")),
        Err(errno) => return Err(invalid(errno)),
    };
    if !file.metadata().map_err(invalid)?.is_file() {
        return Err(invalid("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT as u64 + 1).read_to_end(&mut bytes).map_err(invalid)?;
    if bytes.len() > FILE_LIMIT {
        return Err(invalid("it is larger than 1 MiB"));
    }
    // For a map, serde silently keeps the last of two equal keys; another reader of the file may
    // use the first.
    strict_json::check_unique(&bytes).map_err(invalid)?;
    let content: Content = serde_json::from_slice(&bytes).map_err(invalid)?;
    if content.version != VERSION {
        return Err(invalid(format!(
            "it has version {}, and this `pml` reads version {VERSION}",
            content.version
        )));
    }
    Ok(content)
}

/// Replaces the file atomically.
pub(super) fn write(workspace: &Workspace, content: &Content) -> Result<(), ErrorBody> {
    match rustix::fs::mkdirat(workspace.directory(), PLACE.0, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(invalid(errno)),
    }
    // `folder` refuses a `.pml` that is a symbolic link, so nothing is written through one.
    let folder = folder(workspace)?.ok_or_else(|| invalid("its folder no longer exists"))?;
    let mut text = serde_json::to_vec_pretty(content).map_err(invalid)?;
    text.push(b'\n');
    let mode = Some(Mode::from_raw_mode(0o600));
    atomic::write(folder, PLACE.1, &text, mode, Existing::Replaced).map_err(invalid)
}
