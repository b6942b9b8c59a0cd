//! `.pml/mcp.lock`: what of the registry the user let start here, servers and capabilities.
//!
//! A server of the registry is a command that somebody else wrote, a capability a program. Neither starts before the
//! user saw it, and only as long as it is still what they saw. A server may change, and is asked about again; a
//! version of a capability never does, so other bytes for it are refused.

mod capabilities;
mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{ErrorBody, Fqdn, Install, RegistryEntry};

use self::file::{FILE, Locked, invalid, read, write};
use crate::consent::trust::TrustStore;
use crate::workspace::Workspace;

/// What of the registry may start in a workspace.
///
/// The file lies in the workspace, where a repository can ship one. So what it
/// says counts only together with the user's own record, outside of it.
#[derive(Debug)]
pub struct Lockfile {
    workspace: Arc<Workspace>,
    store: TrustStore,
    /// What may start, as this process has seen it.
    approved: Mutex<BTreeMap<String, Locked>>,
}

impl Lockfile {
    /// Reads the lock of a workspace; a missing one is empty.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` when the file is there and is not a lock: it is
    /// never taken for an empty one.
    pub fn load(workspace: Arc<Workspace>, store: TrustStore) -> Result<Self, ErrorBody> {
        read(&workspace)?;
        Ok(Self { workspace, store, approved: Mutex::default() })
    }

    /// Returns what to ask before the server may start, or `None` when the user
    /// has let exactly this content start before.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` when the file is not a lock any more.
    pub fn question(&self, entry: &RegistryEntry) -> Result<Option<String>, ErrorBody> {
        let Some(install) = entry.install.as_ref() else { return Ok(None) };
        let wanted = locked(entry, install);
        let name = server_name(entry);
        if self.approved().get(&name) == Some(&wanted) {
            return Ok(None);
        }
        let command = command_line(install);
        let content = read(&self.workspace)?;
        Ok(match content.servers.get(&name) {
            Some(known) if *known == wanted => {
                let record = record(&wanted)?;
                if self.store.is_trusted(&self.key(&name), &record).map_err(invalid)? {
                    self.approved().insert(name, wanted);
                    None
                } else {
                    Some(format!("`{name}` ({}): {command}", wanted.integrity))
                }
            }
            Some(known) => Some(format!(
                "`{name}`, which CHANGED since you let it start (was {}, now {}): {command}",
                known.integrity, wanted.integrity
            )),
            None => Some(format!("`{name}` ({}): {command}", wanted.integrity)),
        })
    }

    /// Writes down that the server may start as it is.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` when the file cannot be written; then it must not start.
    pub fn approve(&self, entry: &RegistryEntry) -> Result<(), ErrorBody> {
        let Some(install) = &entry.install else { return Ok(()) };
        let (name, wanted) = (server_name(entry), locked(entry, install));
        // Read again under the lock: another `pml` may have added its own.
        let done = self.store.locked(|store| {
            let mut content = read(&self.workspace)?;
            content.servers.insert(name.clone(), wanted.clone());
            write(&self.workspace, &content)?;
            store.trust_locked(&self.key(&name), &record(&wanted)?).map_err(invalid)
        });
        done.map_err(invalid)??;
        self.approved().insert(name, wanted);
        Ok(())
    }

    /// Returns the name of an entry in the user's record.
    fn key(&self, server: &str) -> PathBuf {
        PathBuf::from(format!("{}/{FILE}#{server}", self.workspace.root().display()))
    }

    fn approved(&self) -> MutexGuard<'_, BTreeMap<String, Locked>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bytes that stand for an entry in the user's record.
fn record(entry: &Locked) -> Result<Vec<u8>, ErrorBody> {
    serde_json::to_vec(entry).map_err(invalid)
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

#[cfg(test)]
mod tests {
    use protocol::Integrity;
    use rustix::fs::Mode;

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

    struct Project {
        folder: tempfile::TempDir,
        workspace: Arc<Workspace>,
    }

    impl Project {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("w");
            std::fs::create_dir(&root).unwrap();
            let workspace = Arc::new(Workspace::open(&root).unwrap());
            Self { folder, workspace }
        }

        /// Opens the lock as the user named so would.
        fn open(&self, user: &str) -> Result<Lockfile, ErrorBody> {
            let store = TrustStore::in_folder(self.folder.path().join(user));
            Lockfile::load(Arc::clone(&self.workspace), store)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.workspace.root().join(name)
        }
    }

    #[test]
    fn a_server_is_asked_about_once_and_again_when_it_changed() {
        let project = Project::new();
        let lock = project.open("me").unwrap();
        let first = entry(&["-y", "memory@1"]);
        let question = lock.question(&first).unwrap().unwrap();
        assert!(question.contains("\"npx\" \"-y\" \"memory@1\""), "{question}");
        lock.approve(&first).unwrap();
        assert_eq!(lock.question(&first).unwrap(), None);
        let again = project.open("me").unwrap();
        assert_eq!(again.question(&first).unwrap(), None);
        let changed = again.question(&entry(&["-y", "memory@2"])).unwrap().unwrap();
        assert!(changed.contains("CHANGED"), "{changed}");
    }

    /// CL-04: a lock that came with the repository lets nothing start.
    #[test]
    fn a_lock_of_somebody_else_lets_nothing_start() {
        let project = Project::new();
        let entry = entry(&["-y", "memory@1"]);
        project.open("them").unwrap().approve(&entry).unwrap();
        let mine = project.open("me").unwrap();
        assert!(mine.question(&entry).unwrap().is_some());
        mine.approve(&entry).unwrap();
        assert_eq!(project.open("me").unwrap().question(&entry).unwrap(), None);
    }

    /// CL-14: what two processes approve at the same time is kept, both.
    #[test]
    fn concurrent_approvals_lose_nothing() {
        let project = Project::new();
        let named = |n: usize| {
            let mut entry = entry(&["-y", "memory@1"]);
            entry.fqdn = format!("pml.mcp.memory{n}");
            entry
        };
        let locks: Vec<Lockfile> = (0..8).map(|_| project.open("me").unwrap()).collect();
        std::thread::scope(|scope| {
            for (n, lock) in locks.iter().enumerate() {
                scope.spawn(move || lock.approve(&named(n)).unwrap());
            }
        });
        let again = project.open("me").unwrap();
        assert!((0..8).all(|n| again.question(&named(n)).unwrap().is_none()));
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
            (r#"{"version":1,"servers":{},"servers":{}}"#, false),
            (r#"{"version":1,"servers":{},"more":1}"#, false),
            (r#"{"version":1,"servers":{"a":{"integrity":"","command":"x","args":[]}}}"#, false),
            (r#"{"version":1,"servers":{},"capabilities":{"a.b.c.d@0.1.0":""}}"#, false),
            ("<<<<<<< HEAD\n", false),
        ] {
            let project = Project::new();
            std::fs::create_dir(project.path(".pml")).unwrap();
            std::fs::write(project.path(FILE), text).unwrap();
            assert_eq!(project.open("me").is_ok(), ok, "{text}");
        }
    }

    /// LK-03: neither a FIFO nor a link is a lock, and nothing is written through one.
    #[test]
    fn a_lock_of_another_kind_stops() {
        let fifo = Project::new();
        std::fs::create_dir(fifo.path(".pml")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, fifo.path(FILE), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        fifo.open("me").unwrap_err();

        let file = Project::new();
        std::fs::create_dir(file.path(".pml")).unwrap();
        std::os::unix::fs::symlink("/dev/null", file.path(FILE)).unwrap();
        file.open("me").unwrap_err();

        let folder = Project::new();
        let lock = folder.open("me").unwrap();
        let outside = folder.folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, folder.path(".pml")).unwrap();
        folder.open("me").unwrap_err();
        lock.approve(&entry(&[])).unwrap_err();
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }
}
