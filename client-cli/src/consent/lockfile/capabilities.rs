//! The capabilities that the user allowed here. Each version is pinned to its hash.

use protocol::{ErrorBody, ErrorCode, Fqdn, Integrity, ToolId};

use super::Lockfile;
use super::file::{Approved, FILE, invalid, read};
use crate::capabilities::{self, Capability, Module};

/// A version of a capability that may run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Its full name, without a pin.
    pub(crate) name: Fqdn,
    /// Major, minor and patch.
    pub(crate) version: (u64, u64, u64),
    /// Its permanent hash.
    pub(crate) integrity: Integrity,
}

impl Lockfile {
    /// Refuses a version whose hash differs from the one in the lock.
    ///
    /// # Errors
    /// Returns `INTEGRITY_MISMATCH` for a different hash, and `CONFIG_INVALID` if the file is invalid.
    pub(crate) fn check(&self, module: &Module) -> Result<(), ErrorBody> {
        let name = module.versioned();
        match read(&self.workspace)?.capabilities.get(&name) {
            Some(known) if *known != module.integrity => {
                let message = format!(
                    "capability `{name}` has changed since you allowed this version ({known}, now {}), but a version is immutable",
                    module.integrity
                );
                let mut error = ErrorBody::new(ErrorCode::IntegrityMismatch, message);
                error.hint = format!(
                    "Ask the gateway's operator. If the gateway was reinstalled, remove this name from `{FILE}`."
                );
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the lock has exactly this version.
    fn is_locked(&self, module: &Module) -> Result<bool, ErrorBody> {
        let capabilities = read(&self.workspace)?.capabilities;
        Ok(capabilities.get(&module.versioned()) == Some(&module.integrity))
    }

    /// Returns the question to ask before a capability runs here; `None` if the user has already allowed exactly this
    /// version.
    ///
    /// # Errors
    /// As [`Lockfile::check`].
    pub(crate) fn capability_question(
        &self,
        capability: &Capability,
    ) -> Result<Option<String>, ErrorBody> {
        let module = &capability.module;
        self.check(module)?;
        let pinned = self.capabilities(&module.id)?;
        // The id is a short name, which another project can use too. The approval of its capability
        // does not count for this one.
        let same_name = || pinned.iter().filter(|known| known.name == module.name);
        if same_name().any(|known| known.integrity == module.integrity) {
            return Ok(None);
        }
        let name = module.versioned();
        let is_locked = self.is_locked(module)?;
        self.refuse_if_frozen(is_locked, || format!("the capability `{name}`"))?;
        let before = match same_name().next_back() {
            Some(known) => {
                let (major, minor, patch) = known.version;
                format!("; you allowed {major}.{minor}.{patch}")
            }
            None => String::new(),
        };
        let below: Vec<String> = capability.below.iter().map(|id| format!("`{id}`")).collect();
        let reaches = if below.is_empty() {
            "calls no tool".to_owned()
        } else {
            format!("may call {}", below.join(", "))
        };
        let changed: Vec<String> =
            capability.changed_servers().iter().map(|name| format!("`{name}`")).collect();
        let changed = match changed.is_empty() {
            true => String::new(),
            false => format!("; since it was published {} CHANGED", changed.join(", ")),
        };
        Ok(Some(format!(
            "capability `{}` ({}), which is new here{before}; it {reaches}{changed}; its program: {}",
            module.versioned(),
            module.integrity,
            // As a JSON string: line breaks and quotes in it are escaped, so the program cannot imitate the text
            // around it.
            serde_json::Value::from(module.code.as_str())
        )))
    }

    /// Records that this version may run here.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written; then the capability must not run.
    pub(crate) fn approve_capability(&self, module: &Module, by: &str) -> Result<(), ErrorBody> {
        let name = module.versioned();
        // Read again under the lock: another `pml` process may have added entries.
        let done = self.store.locked(|store| {
            // Another process may have pinned different bytes for this version since the question.
            self.check(module)?;
            let mut content = read(&self.workspace)?;
            content.capabilities.insert(name.clone(), module.integrity);
            content.approvals.insert(name.clone(), Approved::now(by));
            self.write(&content, || format!("the capability `{name}`"))?;
            store.trust_locked(&self.key(&name), &record(module.integrity)).map_err(invalid)
        });
        done.map_err(invalid)?
    }

    /// Returns the versions that an id can resolve to and that the user allowed here, the highest last.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the file is invalid.
    pub(crate) fn capabilities(&self, id: &ToolId) -> Result<Vec<Pinned>, ErrorBody> {
        let mut pinned = self.all_capabilities()?;
        pinned.retain(|known| {
            // With its hash, because the id may be pinned to one.
            id.can_be(&known.name.clone().pinned(known.integrity.short()))
                && id
                    .version()
                    .is_none_or(|wanted| capabilities::version(wanted) == Some(known.version))
        });
        Ok(pinned)
    }

    /// Returns the versions of all capabilities that the user allowed here, the highest last.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the file is invalid.
    pub(crate) fn all_capabilities(&self) -> Result<Vec<Pinned>, ErrorBody> {
        let mut pinned = Vec::new();
        for (key, integrity) in read(&self.workspace)?.capabilities {
            let Some((name, version)) = key.split_once('@') else { continue };
            let (Ok(name), Some(version)) = (name.parse::<Fqdn>(), capabilities::version(version))
            else {
                continue;
            };
            // The entry of another user pins the hash in `check`, but allows nothing.
            let trusted = || self.store.is_trusted(&self.key(&key), &record(integrity));
            if trusted().map_err(invalid)? {
                pinned.push(Pinned { name, version, integrity });
            }
        }
        pinned.sort_by_key(|known| known.version);
        Ok(pinned)
    }
}

/// Returns the bytes that represent a version in the user's record.
fn record(integrity: Integrity) -> Vec<u8> {
    integrity.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::capabilities::tests::module;
    use crate::consent::trust::TrustStore;
    use crate::workspace::Workspace;

    fn capability(version: &str, code: &str) -> Capability {
        let module = Module::read(module("a.b.c.d", version, code)).unwrap();
        let analysis = analysis::analyze(code, &analysis::Limits::default());
        Capability::new(module, Arc::new(analysis), HashMap::new())
    }

    /// RG-02: a version needs one approval, and a different program under the same version is refused.
    #[test]
    fn a_version_is_pinned_to_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        let open = |user: &str| {
            let workspace = Arc::new(Workspace::open(&workspace).unwrap());
            Lockfile::load(workspace, TrustStore::in_folder(folder.path().join(user))).unwrap()
        };
        let mine = open("me");
        let first = capability("0.1.0", "return \"one\"");
        let question = mine.capability_question(&first).unwrap().unwrap();
        assert!(question.contains("a.b.c.d@0.1.0"), "{question}");
        assert!(question.ends_with("its program: \"return \\\"one\\\"\""), "{question}");
        mine.approve_capability(&first.module, "terminal").unwrap();
        assert_eq!(mine.capability_question(&first).unwrap(), None);

        let other = capability("0.1.0", "return 'two'");
        let refused = |error: ErrorBody| error.error_code;
        assert_eq!(
            mine.capability_question(&other).map_err(refused),
            Err(ErrorCode::IntegrityMismatch)
        );
        assert_eq!(
            mine.approve_capability(&other.module, "terminal").map_err(refused),
            Err(ErrorCode::IntegrityMismatch)
        );
        let later = mine.capability_question(&capability("0.10.0", "return 3")).unwrap().unwrap();
        assert!(later.contains("you allowed 0.1.0"), "{later}");
        for version in ["0.10.0", "0.9.0"] {
            mine.approve_capability(&capability(version, "return 3").module, "terminal").unwrap();
        }
        let known = mine.capabilities(&first.module.id).unwrap();
        assert_eq!(known.last().unwrap().version, (0, 10, 0));

        // Entries of another user's lock allow nothing, but still pin the hash.
        let theirs = open("them");
        assert!(theirs.capability_question(&first).unwrap().is_some());
        assert_eq!(theirs.check(&other.module).map_err(refused), Err(ErrorCode::IntegrityMismatch));
        assert_eq!(theirs.capabilities(&first.module.id).unwrap(), []);
    }

    /// The question lists servers that changed since the capability was published.
    #[test]
    fn the_question_names_changed_servers() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let lock =
            Lockfile::load(workspace, TrustStore::in_folder(folder.path().join("me"))).unwrap();
        let server = |description: &str| -> protocol::RegistryEntry {
            let mut server: protocol::RegistryEntry = serde_json::from_value(serde_json::json!({
                "fqdn": "pml.mcp.memory", "type": "stdio", "description": description,
                "install": { "command": "memory", "args": [] }, "routing": "client",
                "integrity": Integrity::of(b""),
            }))
            .unwrap();
            server.integrity = server.content_integrity();
            server
        };
        let asked = |now: &str| {
            let mut module =
                Module::read(module("a.b.c.d", "0.1.0", "return await mcp.memory.read_graph({})"))
                    .unwrap();
            module.mcp_deps = vec![protocol::McpDependency {
                name: "memory".to_owned(),
                fqdn: "pml.mcp.memory".to_owned(),
                kind: protocol::EntryType::Stdio,
                version: None,
                integrity: server("as it was").integrity,
            }];
            let analysis = analysis::analyze(&module.code, &analysis::Limits::default());
            let target = crate::capabilities::Target::Registered(Arc::new(
                crate::capabilities::RegisteredServer::of_gateway(server(now)),
            ));
            let targets = HashMap::from([("memory:read_graph".parse().unwrap(), target)]);
            let capability = Capability::new(module, Arc::new(analysis), targets);
            lock.capability_question(&capability).unwrap().unwrap()
        };
        let question = asked("otherwise");
        assert!(
            question.contains("; since it was published `memory` CHANGED; its program:"),
            "{question}"
        );
        assert!(!asked("as it was").contains("CHANGED"));
    }
}
