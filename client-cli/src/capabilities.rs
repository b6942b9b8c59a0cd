//! The targets of a program's calls. One kind of target is a capability: a published program, which is limited to the
//! tools that this `pml` finds in it.

mod registered;
mod store;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use analysis::Analysis;
use protocol::{
    EntryType, ErrorBody, ErrorCode, Fqdn, Integrity, McpDependency, RegistryEntry, Routing,
    ToolDescriptor, ToolId, ToolUse, ToolUseType,
};

pub(crate) use registered::RegisteredServer;
pub(crate) use store::{load_entry, load_module, save_entry, save_module};

/// The maximum size of a module in bytes: a program, its description and its schema, with room for escapes.
pub(crate) const MODULE_LIMIT: usize = 1024 * 1024;

/// The program of a capability, verified against its entry: the hashes of both were computed here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// The id under which programs call it.
    pub(crate) id: ToolId,
    /// Its full name, without a pin.
    pub(crate) name: Fqdn,
    /// Major, minor and patch.
    pub(crate) version: (u64, u64, u64),
    /// The hash of its entry's content, which includes the hash of the program.
    pub(crate) integrity: Integrity,
    /// Its calls at publication, sorted.
    pub(crate) calls: Vec<String>,
    /// The `stdio` servers that it was published against.
    pub(crate) mcp_deps: Vec<McpDependency>,
    /// The program.
    pub(crate) code: String,
    /// The entry and the program, as the gateway sent them.
    text: String,
}

impl Module {
    /// Parses a module and verifies it against its own hashes.
    ///
    /// # Errors
    /// Returns `GATEWAY_BAD_ANSWER` for a text that is not the module of a capability, and `INTEGRITY_MISMATCH` if a
    /// hash does not match.
    pub(crate) fn read(text: String) -> Result<Self, ErrorBody> {
        let bad = |what: &str| {
            let message = format!("the registry's answer is not a capability: {what}");
            ErrorBody::new(ErrorCode::GatewayBadAnswer, message)
        };
        let (entry, code) =
            RegistryEntry::from_module(&text).ok_or_else(|| bad("it has no entry"))?;
        let name: Fqdn = entry.fqdn.parse().map_err(|_| bad("its name is invalid"))?;
        let id = name.tool().ok_or_else(|| bad("its name is a server's"))?;
        let (EntryType::Deno, Some(program)) = (entry.kind, &entry.capability) else {
            return Err(bad("it has a different type"));
        };
        let version = version(&program.version).ok_or_else(|| bad("its version is invalid"))?;
        let changed = |what: &str| {
            let message = format!("capability `{id}`: {what} does not match its hash");
            ErrorBody::new(ErrorCode::IntegrityMismatch, message)
        };
        // The entry first: it contains the hash of the program, which is trusted only after this.
        if entry.integrity != entry.content_integrity() {
            return Err(changed("its entry"));
        }
        if program.code_hash != Integrity::of(code.as_bytes()) {
            return Err(changed("its program"));
        }
        let (calls, mcp_deps) = (program.calls.clone(), program.mcp_deps.clone());
        let (name, integrity, code) = (name.unpinned(), entry.integrity, code.to_owned());
        Ok(Self { id, name, version, integrity, calls, mcp_deps, code, text })
    }

    /// Returns whether an id accepts this version: it names the same version or none.
    pub(crate) fn is_version(&self, id: &ToolId) -> bool {
        id.version().is_none_or(|wanted| version(wanted) == Some(self.version))
    }

    /// Returns its description as a tool.
    pub(crate) fn descriptor(&self) -> Option<ToolDescriptor> {
        let (entry, _) = RegistryEntry::from_module(&self.text)?;
        let described = entry.description;
        entry.tools.into_iter().next().or_else(|| {
            Some(ToolDescriptor {
                name: self.id.action().to_owned(),
                description: described,
                input_schema: serde_json::json!({ "type": "object" }),
                output_schema: None,
                annotations: None,
            })
        })
    }

    /// Describes it as the tool `id` of a program, with what it calls itself.
    pub(crate) fn tool_use(&self, id: &ToolId) -> ToolUse {
        ToolUse {
            id: id.to_string(),
            fqdn: Some(self.name.clone().pinned(self.integrity.short()).to_string()),
            version: Some(version_text(self.version)),
            kind: ToolUseType::Capability,
            routing: Routing::Client,
            integrity: Some(self.integrity),
            tools: Some(self.calls.clone()),
            lacks_key: None,
        }
    }

    /// Returns the full name with the version, `acme.web.maths.double@0.1.0`.
    pub(crate) fn versioned(&self) -> String {
        format!("{}@{}", self.name, version_text(self.version))
    }
}

fn version_text((major, minor, patch): (u64, u64, u64)) -> String {
    format!("{major}.{minor}.{patch}")
}

/// Parses `MAJOR.MINOR.PATCH` without leading zeros.
pub(crate) fn version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split('.').map(|part| {
        // As in semantic versioning: without leading zeros each version has exactly one spelling.
        let plain =
            part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        // The check of the digits is not redundant: `parse` accepts a leading `+`.
        part.parse().ok().filter(|_| plain)
    });
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

/// The location of a program's tool.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A tool built into the CLI.
    Native,
    /// An MCP server on this machine that the user's configuration names.
    Configured,
    /// An MCP server on this machine that the registry describes.
    Registered(Arc<RegisteredServer>),
    /// A capability, whose program runs on this machine.
    Capability(Arc<Capability>),
    /// The gateway executes the call.
    Gateway {
        /// The tool's name on the gateway.
        name: ToolId,
        /// The secret that the call needs and the gateway does not have.
        missing_secret: Option<String>,
        /// The gateway's answer about the tool.
        described: Arc<ToolUse>,
    },
}

impl Target {
    /// Returns where the call is executed.
    pub(crate) fn routing(&self) -> Routing {
        match self {
            Self::Gateway { .. } => Routing::Server,
            Self::Native | Self::Configured | Self::Registered(_) | Self::Capability(_) => {
                Routing::Client
            }
        }
    }
}

/// A capability that can run here.
#[derive(Debug)]
pub(crate) struct Capability {
    /// Its program.
    pub(crate) module: Module,
    /// The analysis of it by this `pml`. It can run and is not dynamic.
    pub(crate) analysis: Arc<Analysis>,
    /// The tools that it declares, and where each runs.
    pub(crate) targets: HashMap<ToolId, Target>,
    /// The full names of the tools that it calls by a short name, if its scope is not the caller's. Rules are applied
    /// to these, because a rule about the caller's tool of the same short name does not cover them.
    pub(crate) rules: HashMap<ToolId, ToolId>,
    /// Everything that it reaches, sorted.
    pub(crate) below: BTreeSet<ToolId>,
    /// The nesting depth of capabilities here, including itself.
    pub(crate) height: usize,
}

impl Capability {
    /// Creates a capability from its resolved parts.
    pub(crate) fn new(
        module: Module,
        analysis: Arc<Analysis>,
        targets: HashMap<ToolId, Target>,
    ) -> Self {
        let mut below: BTreeSet<ToolId> = targets.keys().cloned().collect();
        let mut height = 1;
        for target in targets.values() {
            if let Target::Capability(inner) = target {
                below.extend(inner.below.iter().cloned());
                height = height.max(1 + inner.height);
            }
        }
        Self { module, analysis, targets, rules: HashMap::new(), below, height }
    }

    /// Sets the names that permission rules are applied to.
    pub(crate) fn with_rule_names(mut self, rules: HashMap<ToolId, ToolId>) -> Self {
        self.rules = rules;
        self
    }

    /// Describes it as the tool `id` of a run, with the tools that it reaches.
    pub(crate) fn tool_use(&self, id: &ToolId) -> ToolUse {
        ToolUse {
            tools: Some(self.below.iter().map(ToolId::to_string).collect()),
            ..self.module.tool_use(id)
        }
    }

    /// Returns the servers that changed since the capability was published, by their namespaces.
    pub(crate) fn changed_servers(&self) -> BTreeSet<&str> {
        let servers = self.targets.iter().filter_map(|(id, target)| match target {
            Target::Registered(entry) => Some((id.namespace(), entry.integrity)),
            _ => None,
        });
        servers
            .filter(|(name, integrity)| {
                // Entries that were published before `mcp_deps` existed pin no server, so none
                // counts as changed.
                let pinned = || self.module.mcp_deps.iter().filter(|dep| dep.name == *name);
                // Servers of several scopes may have one namespace.
                pinned().count() > 0 && pinned().all(|dep| dep.integrity != *integrity)
            })
            .map(|(name, _)| name)
            .collect()
    }

    /// Returns an error of this capability, as its caller sees it.
    pub(crate) fn error(&self, code: ErrorCode, what: &str) -> ErrorBody {
        ErrorBody::new(code, format!("capability `{}`: {what}", self.module.id))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a valid module for a program.
    pub(crate) fn module(fqdn: &str, version: &str, code: &str) -> String {
        let mut entry: RegistryEntry = serde_json::from_value(serde_json::json!({
            "fqdn": fqdn, "type": "deno", "description": "d", "routing": "client",
            "version": version, "code_hash": Integrity::of(code.as_bytes()), "calls": [],
            "integrity": Integrity::of(b""),
        }))
        .unwrap();
        entry.integrity = entry.content_integrity();
        entry.module(code)
    }

    #[test]
    fn a_module_is_verified_by_its_hashes() {
        let good = module("a.b.c.d", "0.1.0", "return 1");
        let read = Module::read(good.clone()).unwrap();
        assert_eq!((read.versioned().as_str(), read.code.as_str()), ("a.b.c.d@0.1.0", "return 1"));
        let code_of = |text: String| Module::read(text).unwrap_err().error_code;
        for (from, to) in [("return 1", "return 2"), ("0.1.0", "0.1.1"), ("\"d\"", "\"e\"")] {
            assert_eq!(code_of(good.replace(from, to)), ErrorCode::IntegrityMismatch, "{to}");
        }
        for text in [
            String::new(),
            module("a.b.c", "0.1.0", "return 1"),
            module("a.b.c.d", "latest", "return 1"),
            module("a.b.c.d", "0.01.0", "return 1"),
            module("a.b.c.d", "1.0.0.0", "return 1"),
            module("../../a", "0.1.0", "return 1"),
        ] {
            assert_eq!(code_of(text), ErrorCode::GatewayBadAnswer);
        }
    }
}
