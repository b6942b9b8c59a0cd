//! Lists and removes what the user allowed here.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{ErrorBody, ErrorCode, Fqdn, Integrity, Scope, ToolId};

use super::file::{Approved, FILE, Locked, invalid, read};
use super::{Lockfile, record};
use crate::capabilities;
use crate::local_mcp::starts_container;
use crate::origin::Origin;
use crate::processes::environment::Source;

/// A server of the registry that is in the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowedServer {
    /// Its full name, with its version if it has one.
    pub(crate) name: String,
    /// The hash of its entry in the registry.
    pub(crate) integrity: Integrity,
    /// Its command and arguments.
    pub(crate) command: Vec<String>,
    /// The registry that it came from; `None` for the gateway.
    pub(crate) registry: Option<Origin>,
    /// The hosts that it can connect to; `None` if it is not sealed.
    pub(crate) hosts: Option<Vec<String>>,
    /// The user's variables that it gets, with their sources.
    pub(crate) variables: BTreeMap<String, Source>,
    /// Whether this user allowed exactly this. Otherwise `pml` asks again before it starts.
    pub(crate) counts: bool,
    /// Who allowed it, if the lock says so.
    pub(crate) approved: Option<Approved>,
}

/// A server of the registry that may start here, and that can provide a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinnedServer {
    /// The scope of its entry.
    pub(crate) scope: Scope,
    /// Its version, if its entry has one.
    pub(crate) version: Option<String>,
    /// The hash of its entry.
    pub(crate) integrity: Integrity,
    /// The registry that it came from; `None` for the gateway.
    pub(crate) registry: Option<Origin>,
}

impl Lockfile {
    /// Returns the servers that can provide a tool and may start here, the highest version last.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the file is invalid.
    pub(crate) fn servers_of(&self, id: &ToolId) -> Result<Vec<PinnedServer>, ErrorBody> {
        let mut pinned = Vec::new();
        for (name, locked) in read(&self.workspace)?.servers {
            // The names first: a run asks for its tools, and the user's record is a file.
            if let Some(server) = meant(id, &name, &locked)
                && self.counts(&name, &locked)?
            {
                pinned.push(server);
            }
        }
        // Versions of servers are texts; those of three numbers are compared as numbers.
        pinned.sort_by_cached_key(|server| {
            let text = server.version.clone().unwrap_or_default();
            (capabilities::version(&text), text)
        });
        Ok(pinned)
    }

    /// Returns the servers in the lock, by name.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the file is invalid.
    pub(crate) fn servers(&self) -> Result<Vec<AllowedServer>, ErrorBody> {
        let content = read(&self.workspace)?;
        let mut approvals = content.approvals;
        let listed = content.servers.into_iter().map(|(name, locked)| {
            let counts = self.counts(&name, &locked)?;
            let approved = approvals.remove(&name);
            let Locked { integrity, command, args, grants, registry } = locked;
            let (hosts, variables) =
                grants.map(|grants| (grants.hosts, grants.variables)).unwrap_or_default();
            let command = std::iter::once(command).chain(args).collect();
            let registered = AllowedServer {
                name,
                integrity,
                command,
                registry,
                hosts,
                variables,
                counts,
                approved,
            };
            Ok(registered)
        });
        listed.collect()
    }

    /// Returns the servers in the lock that are meant by a name, or all without one.
    ///
    /// # Errors
    /// As [`servers`](Self::servers).
    pub(crate) fn servers_called(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<AllowedServer>, ErrorBody> {
        let mut servers = self.servers()?;
        servers.retain(|server| name.is_none_or(|name| is_called(&server.name, name)));
        Ok(servers)
    }

    /// Returns whether this user allowed exactly this entry.
    fn counts(&self, name: &str, locked: &Locked) -> Result<bool, ErrorBody> {
        // An older `pml` sealed nothing, so what it wrote is asked about again.
        let is_sealed = locked.grants.as_ref().is_some_and(|grants| grants.hosts.is_some());
        if !is_sealed && !starts_container(&locked.command) {
            return Ok(false);
        }
        self.store.is_trusted(&self.key(name), &record(locked)?).map_err(invalid)
    }

    /// Removes servers and capabilities, so that `pml` asks again before they start, and what is pinned of the tools of
    /// servers; returns their names. `name` is
    /// a full name, with a version or without, the namespace of a server, or the `namespace.action` of a capability.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the lock has none of that name, and `CONFIG_INVALID` if the file is invalid or cannot be
    /// written; then nothing is removed.
    pub(crate) fn remove(&self, name: &str) -> Result<Vec<String>, ErrorBody> {
        let done = self.store.locked(|store| {
            let mut content = read(&self.workspace)?;
            let names = content.servers.keys().chain(content.capabilities.keys());
            let names = names.chain(content.tools.keys()).chain(content.files.keys());
            let names = names.chain(content.packages.keys());
            let removed: BTreeSet<String> =
                names.filter(|known| is_called(known, name)).cloned().collect();
            if removed.is_empty() {
                let name = protocol::escape_text(name);
                let message = format!("`{FILE}` has no `{name}`");
                let mut error = ErrorBody::new(ErrorCode::NotFound, message);
                error.hint = "`pml list` shows what it has.".to_owned();
                return Err(error);
            }
            for known in &removed {
                content.servers.remove(known);
                content.capabilities.remove(known);
                content.tools.remove(known);
                content.files.remove(known);
                content.packages.remove(known);
                content.approvals.remove(known);
            }
            self.write(&content, || "its removal".to_owned())?;
            // The user's record, too: whoever puts the entry back into the file has no approval.
            for known in &removed {
                store.trust_locked(&self.key(known), b"").map_err(invalid)?;
                self.forget_tools(known)?;
                self.forget_files(known)?;
                self.forget_packages(known)?;
            }
            self.approved().retain(|known, _| !removed.contains(known));
            Ok(removed.into_iter().collect())
        });
        done.map_err(invalid)?
    }
}

/// Returns the server of an entry, if it can provide a tool.
fn meant(id: &ToolId, name: &str, locked: &Locked) -> Option<PinnedServer> {
    let (integrity, registry) = (locked.integrity, locked.registry.clone());
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version.to_owned())),
        None => (name, None),
    };
    let name: Fqdn = name.parse().ok()?;
    let scope = name.scope().clone();
    let tool = Fqdn::of_tool(scope.clone(), &ToolId::new(name.namespace(), id.action()).ok()?);
    // With its hash, because the id may be pinned to one.
    let is_meant = id.can_be(&tool.pinned(integrity.short()))
        && (id.version().is_none() || id.version() == version.as_deref());
    is_meant.then_some(PinnedServer { scope, version, integrity, registry })
}

/// Returns whether a full name is meant by a name.
pub(super) fn is_called(known: &str, name: &str) -> bool {
    let unversioned = known.split_once('@').map_or(known, |(known, _)| known);
    let parsed = || unversioned.parse::<Fqdn>().ok();
    let short = |fqdn: Fqdn| {
        let scope = fqdn.scope().to_string();
        unversioned.strip_prefix(&scope)?.strip_prefix('.').map(str::to_owned)
    };
    known == name
        || unversioned == name
        || parsed().and_then(short).is_some_and(|short| short == name.replace(':', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_full_and_short_names() {
        for (known, name, expected) in [
            ("pml.mcp.memory", "memory", true),
            ("pml.mcp.memory", "pml.mcp.memory", true),
            ("pml.mcp.memory@1.0.0", "memory", true),
            ("pml.mcp.memory@1.0.0", "pml.mcp.memory@1.0.0", true),
            ("pml.mcp.memory@1.0.0", "pml.mcp.memory@1.1.0", false),
            ("acme.core.text.shout@0.1.0", "text:shout", true),
            ("acme.core.text.shout@0.1.0", "text.shout", true),
            ("acme.core.text.shout@0.1.0", "shout", false),
            ("pml.mcp.memory", "mem", false),
        ] {
            assert_eq!(is_called(known, name), expected, "{known} {name}");
        }
    }
}
