//! Where a program's tools are, and the capabilities among them: programs of others, limited to what this `pml` finds
//! in them.

mod kept;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use analysis::Analysis;
use protocol::{
    EntryType, ErrorBody, ErrorCode, Fqdn, Integrity, McpDependency, RegistryEntry, Routing,
    ToolDescriptor, ToolId, ToolUse, ToolUseType,
};

pub(crate) use kept::{keep, kept};

/// The largest module that is read, in bytes: a program, its description and its schema, with room for escapes.
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
    /// The hash of its entry's content, which has the hash of the program.
    pub(crate) integrity: Integrity,
    /// Its calls at publication, sorted.
    pub(crate) calls: Vec<String>,
    /// The `stdio` servers that it was published against.
    pub(crate) mcp_deps: Vec<McpDependency>,
    /// The program.
    pub(crate) code: String,
    /// Both, as they were served.
    text: String,
}

impl Module {
    /// Reads a module and holds it against its own hashes.
    ///
    /// # Errors
    /// Returns `GATEWAY_BAD_ANSWER` for what is no module of a capability, `INTEGRITY_MISMATCH` when a hash is not
    /// that of the bytes.
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

    /// Returns whether it is the version that an id names, if it names one.
    pub(crate) fn is_version(&self, id: &ToolId) -> bool {
        id.version().is_none_or(|wanted| version(wanted) == Some(self.version))
    }

    /// Returns its own description, as a tool.
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

    /// Returns the name of this very version, `acme.web.maths.double@0.1.0`.
    pub(crate) fn versioned(&self) -> String {
        format!("{}@{}", self.name, version_text(self.version))
    }
}

fn version_text((major, minor, patch): (u64, u64, u64)) -> String {
    format!("{major}.{minor}.{patch}")
}

/// Reads three numbers with dots between them.
pub(crate) fn version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split('.').map(|part| {
        let plain =
            part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
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
    Registered(Arc<RegistryEntry>),
    /// A capability, whose program runs on this machine.
    Capability(Arc<Capability>),
    /// The gateway.
    Gateway {
        /// The gateway's name of the tool.
        name: ToolId,
        /// The key that a call needs and the gateway does not have.
        lacks_key: Option<String>,
    },
}

impl Target {
    /// Returns the side that it is on.
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
    /// The result of our own analysis of it; it can run, and is not dynamic.
    pub(crate) analysis: Arc<Analysis>,
    /// The tools that it declares, and where each runs.
    pub(crate) targets: HashMap<ToolId, Target>,
    /// The full names that its short names resolve to in its own scope, if that is not the caller's: a rule about the
    /// caller's tool of that name does not allow them.
    pub(crate) rules: HashMap<ToolId, ToolId>,
    /// Everything that it reaches, sorted.
    pub(crate) below: BTreeSet<ToolId>,
    /// The nesting depth of capabilities here, including itself.
    pub(crate) height: usize,
}

impl Capability {
    /// Puts together what was found about a capability.
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

    /// Returns the names under which the rules see the tools that it calls.
    pub(crate) fn seen_as(mut self, rules: HashMap<ToolId, ToolId>) -> Self {
        self.rules = rules;
        self
    }

    /// Describes it as the tool `id` of a run, with what this `pml` found that it reaches.
    pub(crate) fn tool_use(&self, id: &ToolId) -> ToolUse {
        let Module { name, integrity, .. } = &self.module;
        ToolUse {
            id: id.to_string(),
            fqdn: Some(name.clone().pinned(integrity.short()).to_string()),
            version: Some(version_text(self.module.version)),
            kind: ToolUseType::Capability,
            routing: Routing::Client,
            integrity: Some(*integrity),
            tools: Some(self.below.iter().map(ToolId::to_string).collect()),
            lacks_key: None,
        }
    }

    /// Returns the servers that are not what it was published against, by the names of their tools.
    pub(crate) fn changed_servers(&self) -> BTreeSet<&str> {
        let servers = self.targets.iter().filter_map(|(id, target)| match target {
            Target::Registered(entry) => Some((id.namespace(), entry.integrity)),
            _ => None,
        });
        servers
            .filter(|(name, integrity)| {
                let mut pinned = self.module.mcp_deps.iter().filter(|dep| dep.name == *name);
                pinned.any(|dep| dep.integrity != *integrity)
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

    /// Creates the module that an honest gateway serves for a program.
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
    fn a_module_is_what_its_hashes_say() {
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
