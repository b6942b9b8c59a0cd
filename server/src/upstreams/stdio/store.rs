//! What the operator has installed on this gateway, and the folders of its servers.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{collections::HashMap, sync::Arc};

use execution::files::atomic::{self, Existing};
use execution::files::name;
use execution::packages::LockedPackages;
use protocol::{Fqdn, Install, Integrity, Scope};
use rustix::fs::{FlockOperation, Mode};
use serde::{Deserialize, Serialize};

/// The folder of a gateway's `stdio` servers.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folder: PathBuf,
}

/// A server that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledServer {
    /// Its name in the catalog.
    pub server: Fqdn,
    /// How it was started according to the catalog when it was installed.
    pub install: Install,
    /// The exact packages.
    pub packages: LockedPackages,
}

impl InstalledServer {
    /// Returns a hash of what runs.
    pub(super) fn hash(&self) -> Integrity {
        // Serialized without an error: a map with names as keys.
        Integrity::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

impl Store {
    /// Uses a folder, which may not exist yet.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns whether anything was installed.
    pub(super) fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Returns the folder of all packages.
    pub(crate) fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    /// Returns the folder in which running servers have their temporary folders.
    pub(super) fn running(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Returns the folder in which a server keeps what it remembers of a tenant.
    pub(super) fn home(&self, scope: &Scope, server: &Fqdn) -> PathBuf {
        // A hash, so that the names of tenants are in no path that a server sees.
        self.folder.join("state").join(name(&format!("{scope}\0{server}")))
    }

    /// Returns a server that is installed.
    ///
    /// # Errors
    /// Returns the system's error, also for a file that cannot be read as one of a server.
    pub(crate) fn find(&self, server: &Fqdn) -> io::Result<Option<InstalledServer>> {
        match std::fs::read(self.record(server)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all servers that are installed, sorted by name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn list(&self) -> io::Result<Vec<InstalledServer>> {
        let entries = match std::fs::read_dir(self.folder.join("installed")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut servers = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                servers.push(serde_json::from_slice::<InstalledServer>(&std::fs::read(path)?)?);
            }
        }
        servers.sort_by_key(|server| server.server.to_string());
        Ok(servers)
    }

    /// Stores that a server is installed. Gateways use it from then on.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn add(&self, server: &InstalledServer) -> io::Result<()> {
        let record = self.record(&server.server);
        let (Some(folder), Some(name)) = (record.parent(), record.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        create(folder)?;
        let (text, mode) = (serde_json::to_vec_pretty(server)?, Mode::from_raw_mode(0o600));
        let name = name.to_string_lossy();
        atomic::write_durably(File::open(folder)?, &name, &text, Some(mode), Existing::Replaced)
    }

    /// Stores that a server is no longer installed; returns whether it was.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn remove(&self, server: &Fqdn) -> io::Result<bool> {
        match std::fs::remove_file(self.record(server)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn record(&self, server: &Fqdn) -> PathBuf {
        // A namespace of the catalog has letters, digits, `-` and `_` only.
        self.folder.join("installed").join(server.namespace()).with_extension("json")
    }

    /// Removes the temporary folders that a gateway has left that was killed. Its servers have ended with it. Returns the
    /// lock by which other gateways know that these folders are in use; without it, another one uses them.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn clear_running(&self) -> io::Result<Option<File>> {
        let running = self.running();
        create(&running)?;
        let lock = File::create(self.folder.join("run.lock"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        for entry in std::fs::read_dir(&running)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Some(lock))
    }
}

/// Creates a folder that only the gateway can use.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// What is installed, read again only after a change.
#[derive(Debug)]
pub(super) struct Known {
    store: Store,
    read: Mutex<HashMap<Fqdn, (Stamp, Arc<Hashed>)>>,
}

/// A server that is installed, and the hash of what runs.
pub(super) type Hashed = (InstalledServer, Integrity);

/// What changes whenever a record is replaced.
type Stamp = (u64, i64, i64, u64);

impl Known {
    pub(super) fn new(store: Store) -> Self {
        Self { store, read: Mutex::default() }
    }

    /// Returns a server that is installed, with the hash of what runs.
    pub(super) fn find(&self, server: &Fqdn) -> io::Result<Option<Arc<Hashed>>> {
        let metadata = match std::fs::metadata(self.store.record(server)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let stamp = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.len());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, known)) = read.get(server)
            && *at == stamp
        {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(found) = self.store.find(server)? else { return Ok(None) };
        let hash = found.hash();
        let known = Arc::new((found, hash));
        read.insert(server.clone(), (stamp, Arc::clone(&known)));
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_folder_of_its_own_for_each_server() {
        let store = Store::new("/s".into());
        let home = |scope: &str, server: &str| {
            store.home(&scope.parse().unwrap(), &server.parse().unwrap())
        };
        let all = [
            home("a.b", "pml.mcp.memory"),
            home("a.c", "pml.mcp.memory"),
            home("a.b", "pml.mcp.time"),
        ];
        assert_eq!(all[0], home("a.b", "pml.mcp.memory"));
        assert_eq!(std::collections::BTreeSet::from(all.clone()).len(), 3);
        for path in all {
            assert!(path.starts_with("/s/state") && !path.to_string_lossy().contains("memory"));
        }
    }

    #[test]
    fn what_a_killed_gateway_left_is_removed_by_the_only_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("s"));
        let left = store.running().join("left");
        create(&left).unwrap();
        let lock = store.clear_running().unwrap().unwrap();
        assert!(!left.exists());
        create(&left).unwrap();
        assert!(store.clear_running().unwrap().is_none() && left.exists());
        drop(lock);
        assert!(store.clear_running().unwrap().is_some() && !left.exists());
    }
}
