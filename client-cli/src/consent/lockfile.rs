//! `.pml/mcp.lock`: the servers and capabilities from the registry that the user allowed here, and the tools of all
//! local servers.
//!
//! A server from the registry is a command that somebody else wrote, and a capability is a program. Neither starts
//! before the user has approved it, and the approval holds only while it is unchanged. A changed server needs a new
//! approval. A version of a capability is immutable, so different bytes for it are refused.

mod capabilities;
mod file;
mod frozen;
mod list;
mod packages;
mod shown;
mod started;
#[cfg(test)]
mod tests;
mod tools;
mod update;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{ErrorBody, ErrorCode, Fqdn, Install, Integrity, RegistryEntry};

use self::file::{Approved, Content, FILE, Grants, Locked, LockedFiles, invalid, read};
pub(crate) use self::packages::PackagesQuestion;
use self::packages::shown_hash;
use self::shown::{command_line, differences, grants_shown};
use self::tools::Compared;
pub(crate) use self::tools::ToolsOf;
pub(crate) use self::update::PackagesUpdate;
use super::question::Start;
use super::trust::TrustStore;
use crate::capabilities::RegisteredServer;
use crate::files::records::RecordFile;
use crate::local_mcp::Grant;
use crate::origin::Origin;
use crate::workspace::Workspace;

/// The registry content that may start in a workspace.
///
/// The file is in the workspace, so a repository can supply one. Therefore an entry counts only together with the
/// user's own record outside the workspace.
#[derive(Debug)]
pub(crate) struct Lockfile {
    workspace: Arc<Workspace>,
    store: TrustStore,
    /// The entries that this process has verified or approved.
    approved: Mutex<BTreeMap<String, Locked>>,
    /// What was compared of each server, by its name in the lock.
    compared: Mutex<HashMap<String, Compared>>,
    /// The files of servers of `.pml.json` that were compared, by namespace.
    started: Mutex<HashMap<String, LockedFiles>>,
    /// Whether nothing is added to the lock.
    is_frozen: AtomicBool,
}

impl Lockfile {
    /// Reads the lock of a workspace; a missing one is empty.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` for an invalid file: it is never treated as an empty one.
    pub(crate) fn load(workspace: Arc<Workspace>, store: TrustStore) -> Result<Self, ErrorBody> {
        // Only checked here. Each question reads the file again, because other processes write it.
        read(&workspace)?;
        Ok(Self {
            workspace,
            store,
            approved: Mutex::default(),
            compared: Mutex::default(),
            started: Mutex::default(),
            is_frozen: AtomicBool::new(false),
        })
    }

    /// Returns the question to ask before the server may start; `None` if the user has already allowed exactly this
    /// content with these variables.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the file is no longer valid.
    pub(crate) fn question(
        &self,
        entry: &RegisteredServer,
        grant: &Grant,
    ) -> Result<Option<Start>, ErrorBody> {
        let Some(install) = entry.install.as_ref() else { return Ok(None) };
        let wanted = locked(entry, install, grant);
        let name = server_name(entry);
        // Every call of a server gets here, and must not read the lock and the record each time.
        if self.approved().get(&name) == Some(&wanted) {
            return Ok(None);
        }
        let content = read(&self.workspace)?;
        let known = content.servers.get(&name);
        let packages = self.packages_question(&content, &name, grant.request.as_deref())?;
        if packages.is_none()
            && known == Some(&wanted)
            && self.store.is_trusted(&self.key(&name), &record(&wanted)?).map_err(invalid)?
        {
            self.approved().insert(name, wanted);
            return Ok(None);
        }
        self.refuse_if_frozen(known == Some(&wanted), || as_it_starts(&name))?;
        // The gateway's own entries are the usual ones, so only others are said to be of a registry.
        let of =
            entry.registry.as_ref().map(|_| format!(" of {}", source(entry.registry.as_ref())));
        let of = of.unwrap_or_default();
        let changed = match known {
            Some(known) if known.registry != wanted.registry => format!(
                "`{name}`, which CHANGED since you allowed it (was {} of {}, now {} of {})",
                known.integrity,
                source(known.registry.as_ref()),
                wanted.integrity,
                source(wanted.registry.as_ref()),
            ),
            Some(known) if known.integrity != wanted.integrity => format!(
                "`{name}`{of}, which CHANGED since you allowed it (was {}, now {})",
                known.integrity, wanted.integrity
            ),
            Some(known) if *known != wanted => {
                let files = known.grants.as_ref().and_then(|grants| grants.files.as_ref());
                let what = match files.and_then(|files| differences(files, &grant.files)) {
                    Some(files) => format!("program ({files})"),
                    None => "command or variables".to_owned(),
                };
                format!(
                    "`{name}`{of} ({}), whose {what} CHANGED since you allowed it",
                    wanted.integrity
                )
            }
            // Also an equal entry that another user approved: nothing changed, but this user has
            // not seen it.
            _ => format!("`{name}`{of} ({})", wanted.integrity),
        };
        let with = packages.as_ref().map(|packages| packages.shown(changed.contains("CHANGED")));
        let changed = changed + &with.unwrap_or_default();
        let before = known.and_then(|known| known.grants.as_ref());
        Ok(Some(Start {
            what: format!("{changed}: {}", command_line(&install.command, &install.args)),
            grants: grants_shown(grant, before),
            hash: Some(shown_hash(record(&wanted)?, packages.as_ref())),
        }))
    }

    /// Checks, immediately before a server starts, that it is what the user allowed.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if it is not, and `CONFIG_INVALID` if the file is no longer valid.
    pub(crate) fn check_start(
        &self,
        entry: &RegisteredServer,
        grant: &Grant,
    ) -> Result<(), ErrorBody> {
        match self.question(entry, grant)? {
            None => Ok(()),
            Some(start) => Err(started::changed(&server_name(entry), &start.what)),
        }
    }

    /// Records that the server may start with its present content and variables; `shown` is the hash of what the user
    /// was shown, and `by` how they answered.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` if something else would start now, and `CONFIG_INVALID` if the file cannot be
    /// written. In both cases the server must not start.
    pub(crate) fn approve(
        &self,
        entry: &RegisteredServer,
        grant: &Grant,
        shown: Option<Integrity>,
        by: &str,
    ) -> Result<(), ErrorBody> {
        let Some(install) = &entry.install else { return Ok(()) };
        let (name, wanted) = (server_name(entry), locked(entry, install, grant));
        // The grant was determined again after the answer. It differs if, for example, another
        // program of that name was installed while the question was open.
        let of_lock =
            |content: &Content| self.packages_question(content, &name, grant.request.as_deref());
        let packages = of_lock(&read(&self.workspace)?)?;
        if shown != Some(shown_hash(record(&wanted)?, packages.as_ref())) {
            let message = format!(
                "`{name}`, or what it receives, changed while you were asked; run it again"
            );
            return Err(ErrorBody::new(ErrorCode::IntegrityMismatch, message));
        }
        // Read again under the lock: another `pml` process may have added entries.
        let done = self.store.locked(|store| {
            let mut content = read(&self.workspace)?;
            content.servers.insert(name.clone(), wanted.clone());
            content.approvals.insert(name.clone(), Approved::now(by));
            // The lock is written first: after a crash in between, the entry is not trusted, and
            // the user is asked again.
            self.write(&content, || as_it_starts(&name))?;
            if let Some(packages) = &packages {
                self.save_packages(&name, &packages.now)?;
            }
            store.trust_locked(&self.key(&name), &record(&wanted)?).map_err(invalid)
        });
        done.map_err(invalid)??;
        self.approved().insert(name, wanted);
        Ok(())
    }

    /// Returns the name of an entry in the user's record.
    fn key(&self, server: &str) -> PathBuf {
        // The record also has the workspace itself as a key, for `.pml.json`. The suffix keeps the
        // two apart.
        PathBuf::from(format!("{}/{FILE}#{server}", self.workspace.root().display()))
    }

    /// Returns the user's own record of something of a server in this workspace.
    fn record_of(&self, folder: &str, server: &str, limit: usize) -> RecordFile {
        // A path cannot contain NUL, so two pairs of a workspace and a server never share a name.
        let of = format!("{}\0{server}", self.workspace.root().display());
        RecordFile::new(self.store.folder(), folder, &of, limit)
    }

    fn approved(&self) -> MutexGuard<'_, BTreeMap<String, Locked>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bytes that represent an entry in the user's record.
fn record(entry: &Locked) -> Result<Vec<u8>, ErrorBody> {
    // The bytes are hashed, so their order must be stable: a struct is written in the order of its
    // fields, and a `BTreeMap` in the order of its keys.
    serde_json::to_vec(entry).map_err(invalid)
}

fn locked(entry: &RegisteredServer, install: &Install, grant: &Grant) -> Locked {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    Locked {
        integrity: entry.integrity,
        command: install.command.clone(),
        args: install.args.clone(),
        grants: Some(Grants {
            program: text(&grant.program.file),
            interpreters: grant.program.interpreters.iter().map(text).collect(),
            package: grant.package.clone(),
            variables: grant.variables.clone(),
            hosts: grant.hosts.clone(),
            files: Some(grant.files.clone()),
        }),
        registry: entry.registry.clone(),
    }
}

fn as_it_starts(server: &str) -> String {
    format!("the MCP server `{server}` as it would start now")
}

/// Names where an entry comes from.
fn source(registry: Option<&Origin>) -> String {
    registry.map_or_else(|| "the gateway".to_owned(), |origin| format!("the registry {origin}"))
}

/// Returns the server's full name, with its version if it has one: each version is approved and pinned separately.
pub(crate) fn server_name(entry: &RegistryEntry) -> String {
    match (entry.fqdn.parse::<Fqdn>(), &entry.server_version) {
        (Ok(fqdn), Some(version)) => format!("{}.{}@{version}", fqdn.scope(), fqdn.namespace()),
        (Ok(fqdn), None) => format!("{}.{}", fqdn.scope(), fqdn.namespace()),
        (Err(_), _) => entry.fqdn.clone(),
    }
}
