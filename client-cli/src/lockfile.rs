//! `.pml/mcp.lock`: the registry's MCP servers that the user let start here.
//!
//! A server of the registry is a command that somebody else wrote. It is started
//! only after the user saw it, and only as long as it is still that command.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::{ErrorBody, ErrorCode, Fqdn, Install, Integrity, RegistryEntry};
use serde::{Deserialize, Serialize};

/// The file's format; another one is refused, never read halfway.
const VERSION: u32 = 1;

/// The file's name in the workspace.
const FILE: &str = ".pml/mcp.lock";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    servers: BTreeMap<String, Locked>,
}

/// A server as the user saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Locked {
    integrity: Integrity,
    command: String,
    args: Vec<String>,
}

/// The servers that may start in a workspace.
#[derive(Debug)]
pub struct Lockfile {
    path: PathBuf,
    content: Mutex<Content>,
}

impl Lockfile {
    /// Reads the lock of a workspace; a missing one is empty.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` when the file is there and is not a lock: it is
    /// never taken for an empty one.
    pub fn load(workspace: &Path) -> Result<Self, ErrorBody> {
        let path = workspace.join(FILE);
        let invalid = |what: String| {
            ErrorBody::new(ErrorCode::ConfigInvalid, format!("`{}`: {what}", path.display()))
        };
        let content = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Content>(&bytes)
                .map_err(|error| invalid(error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Content { version: VERSION, servers: BTreeMap::new() }
            }
            Err(error) => return Err(invalid(error.to_string())),
        };
        if content.version != VERSION {
            return Err(invalid(format!(
                "it has version {}, and this `pml` reads version {VERSION}",
                content.version
            )));
        }
        Ok(Self { path, content: Mutex::new(content) })
    }

    /// Returns what to ask before the server may start, or `None` when the user
    /// has let exactly this content start before.
    pub fn question(&self, entry: &RegistryEntry) -> Option<String> {
        let install = entry.install.as_ref()?;
        let wanted = locked(entry, install);
        let name = server_name(entry);
        let command = command_line(install);
        match self.lock().servers.get(&name) {
            Some(known) if *known == wanted => None,
            Some(known) => Some(format!(
                "`{name}`, which CHANGED since you let it start (was {}, now {}): {command}",
                known.integrity, wanted.integrity
            )),
            None => Some(format!("`{name}` ({}): {command}", wanted.integrity)),
        }
    }

    /// Writes down that the server may start as it is.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` when the file cannot be written; then it must not start.
    pub fn approve(&self, entry: &RegistryEntry) -> Result<(), ErrorBody> {
        let Some(install) = &entry.install else { return Ok(()) };
        let mut content = self.lock();
        content.servers.insert(server_name(entry), locked(entry, install));
        write(&self.path, &content).map_err(|error| {
            ErrorBody::new(
                ErrorCode::ConfigInvalid,
                format!("cannot write `{}`: {error}", self.path.display()),
            )
        })
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn locked(entry: &RegistryEntry, install: &Install) -> Locked {
    Locked {
        integrity: entry.integrity,
        command: install.command.clone(),
        args: install.args.clone(),
    }
}

/// Returns the server's full name, without a tool and without a pin.
fn server_name(entry: &RegistryEntry) -> String {
    match entry.fqdn.parse::<Fqdn>() {
        Ok(fqdn) => format!("{}.{}", fqdn.scope(), fqdn.namespace()),
        Err(_) => entry.fqdn.clone(),
    }
}

/// Shows a command so that each argument can be told from the next.
fn command_line(install: &Install) -> String {
    let words = std::iter::once(&install.command).chain(&install.args);
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
}

/// Writes the whole file or leaves the old one.
fn write(path: &Path, content: &Content) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = path.with_extension(format!("lock.{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(args: &[&str]) -> RegistryEntry {
        let mut entry: RegistryEntry = serde_json::from_value(serde_json::json!({
            "fqdn": "pml.mcp.memory", "type": "stdio", "description": "", "routing": "client",
            "install": { "command": "npx", "args": args }, "integrity": Integrity::of(b""),
        }))
        .unwrap();
        entry.integrity = entry.content_integrity();
        entry
    }

    #[test]
    fn a_server_is_asked_about_once_and_again_when_it_changed() {
        let workspace = tempfile::tempdir().unwrap();
        let lock = Lockfile::load(workspace.path()).unwrap();
        let first = entry(&["-y", "memory@1"]);
        assert!(lock.question(&first).unwrap().contains("\"npx\" \"-y\" \"memory@1\""));
        lock.approve(&first).unwrap();
        let again = Lockfile::load(workspace.path()).unwrap();
        assert_eq!(again.question(&first), None);
        assert!(again.question(&entry(&["-y", "memory@2"])).unwrap().contains("CHANGED"));
    }

    /// LK-03: what is not a lock stops; it is never taken for an empty one.
    #[test]
    fn a_malformed_lock_stops() {
        let good = r#"{"version":1,"servers":{}}"#;
        for (text, ok) in [
            (good, true),
            ("", false),
            ("{}", false),
            (r#"{"version":2,"servers":{}}"#, false),
            (r#"{"version":1,"servers":{}} x"#, false),
            (r#"{"version":1,"servers":{},"more":1}"#, false),
            (r#"{"version":1,"servers":{"a":{"integrity":"","command":"x","args":[]}}}"#, false),
            ("<<<<<<< HEAD\n", false),
        ] {
            let workspace = tempfile::tempdir().unwrap();
            fs::create_dir(workspace.path().join(".pml")).unwrap();
            fs::write(workspace.path().join(FILE), text).unwrap();
            assert_eq!(Lockfile::load(workspace.path()).is_ok(), ok, "{text}");
        }
    }
}
