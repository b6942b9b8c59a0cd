//! `FILE.lock`: the program in `FILE`, and every tool that it reaches, as they were when the user locked them.
//!
//! The file is beside the program and meant to be committed. It grants nothing: it can only refuse a run. So it needs no
//! trust, and whoever can change it can change the program as well.

mod difference;
mod file;
mod pins;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use protocol::{ErrorBody, ErrorCode, Integrity, Routing, ToolId, escape_text};
use serde::{Deserialize, Serialize};

use crate::origin::Origin;

pub(crate) use self::difference::Difference;
pub(crate) use self::file::LockFile;
pub(crate) use self::pins::{ConfiguredServer, schema_hash};

/// The version of the file's format. Other versions are refused.
const VERSION: u32 = 1;

/// What a program was locked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramLock {
    version: u32,
    program: LockedProgram,
    /// The tools that the program calls, by id.
    tools: BTreeMap<String, LockedTool>,
    /// The capabilities that run on this machine, by full name and version, each with its own tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    capabilities: BTreeMap<String, LockedCapability>,
}

/// The program itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedProgram {
    /// The version of the rules for normal forms. Hashes of different versions say nothing about each other.
    normal_form: String,
    /// The hash of its normal form.
    hash: Integrity,
}

/// The program of a capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedCapability {
    /// The hash of its entry, which covers its code.
    integrity: Integrity,
    /// The tools that it calls, by id.
    tools: BTreeMap<String, LockedTool>,
}

/// One tool. What is not known is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedTool {
    kind: Kind,
    runs_on: Routing,
    /// The full name of the tool, or of its server, in the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fqdn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The hash of its entry in the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    integrity: Option<Integrity>,
    /// The registry that has the entry; absent for the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    registry: Option<Origin>,
    /// For a server of `.pml.json`: the hash of how it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<Integrity>,
    /// The hash of its description and schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Integrity>,
    /// For a capability that runs on the gateway: the tools that it reaches there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reaches: Option<Vec<String>>,
}

/// Who provides a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// `pml` itself.
    Native,
    /// A server of `.pml.json`.
    Configured,
    /// A server of the registry, or the gateway itself.
    Registered,
    /// A published program.
    Capability,
}

/// The place of a tool in a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// Its id.
    pub(crate) tool: String,
    /// The full name of the capability that calls it; absent if the program does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<String>,
}

/// How the description and the schemas of a locked tool compare with those of the tool that is built into this `pml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    /// They are the same.
    Same,
    /// They are others.
    Other {
        /// The hash in the lock.
        locked: Integrity,
        /// The present hash; `None` if there is no such tool any more.
        now: Option<Integrity>,
    },
    /// It is not built in, or the lock does not have its schemas.
    Unknown,
}

/// A fact about a tool that is not locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Unknown {
    /// The tool.
    #[serde(flatten)]
    pub(crate) place: Place,
    /// The field of the lock.
    pub(crate) field: &'static str,
    /// Why it is not known.
    pub(crate) reason: &'static str,
}

impl ProgramLock {
    /// Returns the number of tools that the program reaches.
    pub(crate) fn count(&self) -> usize {
        self.all_tools().count()
    }

    /// Returns the hash of the program.
    pub(crate) fn program_hash(&self) -> Integrity {
        self.program.hash
    }

    /// Returns what is not known of the tools, and so not locked.
    pub(crate) fn unknown(&self) -> Vec<Unknown> {
        let of_tool = |(place, tool): (Place, &LockedTool)| {
            let unknown = |field, reason| Unknown { place: place.clone(), field, reason };
            let schema = (tool.kind == Kind::Configured && tool.schema.is_none())
                .then(|| unknown("schema", "its server has not listed its tools on this machine"));
            let is_of_gateway = tool.runs_on == Routing::Server;
            let integrity = (is_of_gateway && tool.integrity.is_none())
                .then(|| unknown("integrity", "the gateway does not say its hash"));
            let reaches = tool.reaches.iter().any(|reached| !reached.is_empty()).then(|| {
                unknown("reaches", "the gateway says only the names of the tools that it reaches")
            });
            schema.into_iter().chain(integrity).chain(reaches)
        };
        self.all_tools().flat_map(of_tool).collect()
    }

    /// Returns the locked schemas of tools of servers of `.pml.json`.
    pub(crate) fn configured_schemas(&self) -> HashMap<ToolId, Integrity> {
        let configured = self.all_tools().filter(|(_, tool)| tool.kind == Kind::Configured);
        configured
            .filter_map(|(place, tool)| Some((place.tool.parse().ok()?, tool.schema?)))
            .collect()
    }

    /// Compares the tools of a lock with those of this `pml`, as far as that is possible without asking anybody: those
    /// that are built into it.
    pub(crate) fn compare_built_in(&self) -> BTreeMap<String, BuiltIn> {
        let compare = |(place, tool): (Place, &LockedTool)| {
            let id: ToolId = place.tool.parse().ok()?;
            let compared = match (tool.kind, tool.schema) {
                (Kind::Native, Some(locked)) => {
                    let tools = crate::tools::descriptors(id.namespace());
                    let now = tools.iter().find(|tool| tool.name == id.action()).map(schema_hash);
                    match now == Some(locked) {
                        true => BuiltIn::Same,
                        false => BuiltIn::Other { locked, now },
                    }
                }
                _ => BuiltIn::Unknown,
            };
            Some((place.tool, compared))
        };
        self.all_tools().filter_map(compare).collect()
    }

    /// Returns a line for each tool that the program calls itself: what it is and where it runs.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(id, tool): (&String, &LockedTool)| format!("{id}: {}", tool.describe());
        self.tools.iter().map(line).collect()
    }

    fn all_tools(&self) -> impl Iterator<Item = (Place, &LockedTool)> {
        let own = self.tools.iter().map(|(id, tool)| (None, id, tool));
        let inner = self.capabilities.iter().flat_map(|(name, capability)| {
            capability.tools.iter().map(move |(id, tool)| (Some(name), id, tool))
        });
        own.chain(inner)
            .map(|(within, id, tool)| (Place { tool: id.clone(), within: within.cloned() }, tool))
    }
}

impl LockedTool {
    /// Describes it in a few words.
    fn describe(&self) -> String {
        let name = self.fqdn.as_deref().map_or_else(String::new, |name| match &self.version {
            Some(version) => format!("`{}` {}", escape_text(name), escape_text(version)),
            None => format!("`{}`", escape_text(name)),
        });
        let what = match self.kind {
            Kind::Native => "built into `pml`".to_owned(),
            Kind::Configured => "a server of `.pml.json`".to_owned(),
            Kind::Registered => format!("{name} of the registry"),
            Kind::Capability => format!("capability {name}"),
        };
        let place = match self.runs_on {
            Routing::Client => "on this machine",
            Routing::Server => "on the gateway",
        };
        format!("{what}, {place}")
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", escape_text(&self.tool))?;
        match &self.within {
            Some(within) => write!(f, " in `{}`", escape_text(within)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, field, reason } = self;
        let field = match *field {
            "reaches" => "what it reaches",
            field => field,
        };
        write!(f, "{place}: {field}: {reason}")
    }
}

/// Returns the error for a program that cannot be locked.
fn cannot_lock(what: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, format!("the program cannot be locked: {what}"))
}
