//! Reads the lock file strictly and writes it atomically.

use std::collections::BTreeMap;
use std::io::Read as _;

use execution::files::atomic::Existing;
use execution::packages::LockedPackages;
use protocol::{ErrorBody, ErrorCode, Integrity};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::files::strict_json;
use crate::local_mcp::Files;
use crate::origin::Origin;
use crate::processes::environment::Source;
use crate::workspace::Workspace;
use crate::workspace::own_folder::OwnFolder;

/// The version of the file's format. Other versions are refused.
const VERSION: u32 = 1;

/// The file's name in the workspace.
pub(super) const FILE: &str = ".pml/mcp.lock";

/// Its name in the project's own folder.
const NAME: &str = "mcp.lock";

/// The maximum file size in bytes.
const FILE_LIMIT: usize = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    version: u32,
    /// The servers by full name.
    pub(super) servers: BTreeMap<String, Locked>,
    /// The hashes by full name and version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) capabilities: BTreeMap<String, Integrity>,
    /// The tools of servers, by full name or by namespace. Absent in the lock of an older `pml`: they are pinned at the
    /// next start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tools: BTreeMap<String, LockedTools>,
    /// What runs when a server of `.pml.json` starts, by namespace; only files of the workspace. Absent in the lock of an
    /// older `pml`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) files: BTreeMap<String, LockedFiles>,
    /// The packages from which servers start, by full name or by namespace. Absent in the lock of an older `pml`: they are
    /// locked when they are installed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) packages: BTreeMap<String, LockedPackages>,
    /// Who allowed what is above, by its name. It is told, and nothing is decided by it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) approvals: BTreeMap<String, Approved>,
}

/// An approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approved {
    /// The time, RFC 3339.
    pub(crate) at: String,
    /// How it was answered: `agent`, `client`, `terminal`, `page` or `--yes`.
    pub(crate) through: String,
    /// The login name of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
}

impl Approved {
    /// Returns an approval that is given now.
    pub(super) fn now(through: &str) -> Self {
        let user = std::env::var("USER").ok().or_else(|| std::env::var("LOGNAME").ok());
        // The file is for people, and may be of everybody who works on the project.
        let user = user.map(|user| user.chars().take(64).collect::<String>());
        Self {
            at: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            through: through.to_owned(),
            user: user.filter(|user| !user.is_empty() && !user.contains(char::is_control)),
        }
    }
}

/// The files of a server, as they were when it first started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockedFiles {
    /// The hash of how it was started then.
    pub(super) start: Integrity,
    /// The hash of each file, by its path.
    pub(super) hashes: Files,
}

/// The tools of a server, as they were when the user allowed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockedTools {
    /// The hash of how it was started then.
    pub(super) start: Integrity,
    /// The hash of each tool, by name.
    pub(super) pinned: BTreeMap<String, Integrity>,
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
    /// The registry that it came from; absent for the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) registry: Option<Origin>,
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
    /// The files that run, with the hashes of their content. Absent in entries of an older `pml`, which did not look at
    /// them; these need a new approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<Files>,
}

/// Returns the error for a malformed file.
pub(super) fn invalid(what: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::ConfigInvalid, format!("`{FILE}`: {what}"))
}

/// Returns the error for a folder that cannot be used.
fn no_folder(errno: Errno) -> ErrorBody {
    match errno {
        // With `O_DIRECTORY`, Linux reports a symbolic link as `ENOTDIR`.
        Errno::LOOP | Errno::NOTDIR => invalid("`.pml` is not a folder of this workspace"),
        errno => invalid(errno),
    }
}

/// Reads the lock; a missing one is empty.
pub(super) fn read(workspace: &Workspace) -> Result<Content, ErrorBody> {
    let empty = Content {
        version: VERSION,
        servers: BTreeMap::new(),
        capabilities: BTreeMap::new(),
        tools: BTreeMap::new(),
        files: BTreeMap::new(),
        packages: BTreeMap::new(),
        approvals: BTreeMap::new(),
    };
    let Some(folder) = OwnFolder::open(workspace).map_err(no_folder)? else { return Ok(empty) };
    let Some(file) = folder.open_file(NAME).map_err(invalid)? else { return Ok(empty) };
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
    let folder = OwnFolder::create(workspace).map_err(no_folder)?;
    let mut text = serde_json::to_vec_pretty(content).map_err(invalid)?;
    text.push(b'\n');
    // It could be written, but `read` would refuse it from then on.
    if text.len() > FILE_LIMIT {
        return Err(invalid("it would be larger than 1 MiB; `pml remove` takes servers out of it"));
    }
    folder.write(NAME, &text, Existing::Replaced).map_err(|errno| {
        // There is nothing to correct in the file; its place has no space, or is not writable.
        let message = format!("`{FILE}` cannot be written: {errno}");
        ErrorBody::new(ErrorCode::RunStoreUnavailable, message)
    })
}
