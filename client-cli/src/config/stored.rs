//! The file on disk, which is read as a whole, and which `pml` creates and adds to.

use std::io::Read as _;

use execution::files::atomic::{self, Existing};
use protocol::ToolId;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::{ConfigError, FILE, file, unusable};
use crate::consent::trust::TrustStore;
use crate::policy;
use crate::workspace::Workspace;

/// The maximum file size in bytes.
pub(super) const FILE_LIMIT: usize = 1024 * 1024;

/// Returns the file's bytes, or `None` if there is no file.
///
/// # Errors
/// Returns [`ConfigError::Unusable`] for anything except a readable regular file of at most 1 MiB.
pub(crate) fn read(workspace: &Workspace) -> Result<Option<Vec<u8>>, ConfigError> {
    // A link could be pointed elsewhere after the user has trusted the file.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(workspace.directory(), FILE, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(unusable("it is a symbolic link; replace it with a regular file"));
        }
        Err(errno) => return Err(unusable(&errno.to_string())),
    };
    let file = std::fs::File::from(fd);
    // Checked on the open file, so that it cannot be replaced between the check and the read.
    let metadata = file.metadata().map_err(|error| unusable(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(unusable("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(FILE_LIMIT as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| unusable(&error.to_string()))?;
    if content.len() > FILE_LIMIT {
        return Err(unusable("it is larger than 1 MiB"));
    }
    Ok(Some(content))
}

/// Trusts the workspace's file if it still has the content that the user was shown.
///
/// The caller must have asked the user; see [`may_trust`](crate::consent::trust::may_trust).
///
/// # Errors
/// Returns [`ConfigError`] when there is no valid file.
pub(crate) fn trust(
    workspace: &Workspace,
    store: &TrustStore,
    shown: &[u8],
) -> Result<(), ConfigError> {
    store.locked(|store| {
        let content = read(workspace)?.ok_or_else(|| unusable("there is no such file"))?;
        file::parse(&content)?;
        // The file changed after the user was shown it.
        if content != shown {
            return Err(unusable("it changed while you were reviewing it; review it again"));
        }
        Ok(store.trust_locked(workspace.root(), &content)?)
    })?
}

/// Adds exactly one tool to `permissions.allow`; the file stays trusted.
///
/// # Errors
/// Returns [`ConfigError::Untrusted`] for a file that the user has not trusted: one "always" must not trust the rest
/// of it.
pub(crate) fn add_allow(
    workspace: &Workspace,
    store: &TrustStore,
    tool: &ToolId,
) -> Result<(), ConfigError> {
    store.locked(|store| {
        let mut value = match read(workspace)? {
            None => json!({}),
            Some(content) => {
                file::parse(&content)?;
                if !store.is_trusted(workspace.root(), &content)? {
                    return Err(ConfigError::Untrusted { file: FILE.to_owned() });
                }
                // A `Value` keeps the order of the members. It would silently drop duplicate keys,
                // which the strict parse above has excluded.
                serde_json::from_slice(&content).map_err(|error| file::invalid(&error))?
            }
        };
        // The strict parse has excluded this. It is an error all the same, because input must not
        // cause a panic.
        let wrong = || unusable("it is not an object");
        let permissions = value
            .as_object_mut()
            .ok_or_else(wrong)?
            .entry("permissions")
            .or_insert_with(|| json!({}));
        let allow = permissions
            .as_object_mut()
            .ok_or_else(wrong)?
            .entry("allow")
            .or_insert_with(|| json!([]));
        let allow = allow.as_array_mut().ok_or_else(wrong)?;
        // Rules apply to every version of a tool.
        let entry = Value::from(tool.unversioned().as_str());
        if !allow.contains(&entry) {
            allow.push(entry);
        }
        write(workspace, store, &value, Existing::Replaced)
    })?
}

/// Creates the file with the default permissions and trusts it. Returns `false`, and changes nothing, if the file
/// exists.
///
/// # Errors
/// Returns [`ConfigError`] if the existing file is invalid or the new one cannot be written.
pub(crate) fn create(workspace: &Workspace, store: &TrustStore) -> Result<bool, ConfigError> {
    store.locked(|store| {
        if let Some(content) = read(workspace)? {
            file::parse(&content)?;
            return Ok(false);
        }
        // The lock excludes other `pml` processes only; an editor may create the file at this
        // moment.
        write(workspace, store, &default_file(), Existing::Kept)?;
        Ok(true)
    })?
}

/// Returns the default permissions: pure tools and reading in the workspace are allowed, everything else asks.
pub(super) fn default_file() -> Value {
    let pure = ["json", "math", "datetime", "crypto", "string", "collections"];
    let reads = [
        "read_file",
        "read_text_file",
        "read_multiple_files",
        "list_directory",
        "list_directory_with_sizes",
        "directory_tree",
        "search_files",
        "get_file_info",
        "list_allowed_directories",
    ];
    let allow: Vec<String> = pure
        .iter()
        .map(|namespace| format!("{namespace}:*"))
        .chain(reads.iter().map(|action| format!("filesystem:{action}")))
        .chain(policy::GIT_READS.iter().map(|action| format!("git:{action}")))
        .collect();
    json!({ "permissions": { "allow": allow, "ask": ["*"], "deny": [] } })
}

pub(super) fn write(
    workspace: &Workspace,
    store: &TrustStore,
    value: &Value,
    existing: Existing,
) -> Result<(), ConfigError> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| unusable(&error.to_string()))?;
    text.push('\n');
    // Checked before it is written: an invalid file would stop every later command.
    file::parse(text.as_bytes())?;
    // Written before it is trusted: a crash in between leaves an untrusted file, never a trusted hash without its file.
    let mode = read_mode(workspace);
    atomic::write_durably(workspace.directory(), FILE, text.as_bytes(), mode, existing)
        .map_err(|error| unusable(&error.to_string()))?;
    Ok(store.trust_locked(workspace.root(), text.as_bytes())?)
}

fn read_mode(workspace: &Workspace) -> Option<Mode> {
    let stat =
        rustix::fs::statat(workspace.directory(), FILE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    stat.ok().map(|stat| Mode::from_raw_mode(stat.st_mode & 0o777))
}
