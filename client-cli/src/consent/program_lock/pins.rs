//! What a resolved program is locked to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use analysis::{Analysis, NORMAL_FORM_VERSION};
use protocol::{
    ErrorBody, ErrorCode, Fqdn, Integrity, Routing, ToolDescriptor, ToolId, ToolUse, ToolUseType,
};
use serde_json::json;

use super::{Kind, LockedCapability, LockedProgram, LockedTool, ProgramLock, VERSION, cannot_lock};
use crate::capabilities::{Capability, Target};
use crate::tools;

/// What is known of a server of `.pml.json`.
pub(crate) struct ConfiguredServer {
    /// The hash of how it is started.
    pub(crate) start: Integrity,
    /// Its tools, if they are known.
    pub(crate) tools: Option<Arc<Vec<ToolDescriptor>>>,
}

impl ProgramLock {
    /// Returns what a program is locked to, from the targets that its calls will have.
    ///
    /// # Errors
    /// Returns `INVALID_REQUEST` for a dynamic program, and `INTEGRITY_MISMATCH` if a capability was resolved in two
    /// ways.
    pub(crate) fn of(
        analysis: &Analysis,
        targets: &HashMap<ToolId, Target>,
        configured: impl Fn(&str) -> Option<ConfiguredServer>,
    ) -> Result<Self, ErrorBody> {
        Self::check_lockable(analysis)?;
        let hash = analysis.normal_hash.ok_or_else(|| cannot_lock("it cannot run"))?;
        let mut pins =
            Pins { configured: &configured, seen: HashSet::new(), capabilities: BTreeMap::new() };
        let tools = pins.tools(targets)?;
        Ok(Self {
            version: VERSION,
            program: LockedProgram { normal_form: NORMAL_FORM_VERSION.to_owned(), hash },
            tools,
            capabilities: pins.capabilities,
        })
    }

    /// Checks that all tools of a program are known before it runs.
    ///
    /// # Errors
    /// Returns `INVALID_REQUEST` for a dynamic program.
    pub(crate) fn check_lockable(analysis: &Analysis) -> Result<(), ErrorBody> {
        match analysis.dynamic {
            true => Err(cannot_lock("some of the tools that it calls are known only when it runs")),
            false => Ok(()),
        }
    }
}

/// Returns the hash of what a model and a program see of a tool: its description and its schemas.
pub(crate) fn schema_hash(tool: &ToolDescriptor) -> Integrity {
    let ToolDescriptor { name, description, input_schema, output_schema, annotations: _ } = tool;
    Integrity::of_json(&json!({
        "name": name, "description": description, "inputSchema": input_schema, "outputSchema": output_schema,
    }))
}

/// Collects what is locked.
struct Pins<'a, F> {
    configured: &'a F,
    /// The capabilities that were visited. Several may share one, so their number of paths can be very large.
    seen: HashSet<*const Capability>,
    capabilities: BTreeMap<String, LockedCapability>,
}

impl<F: Fn(&str) -> Option<ConfiguredServer>> Pins<'_, F> {
    fn tools(
        &mut self,
        targets: &HashMap<ToolId, Target>,
    ) -> Result<BTreeMap<String, LockedTool>, ErrorBody> {
        let mut tools = BTreeMap::new();
        for (id, target) in targets {
            if let Target::Capability(capability) = target {
                self.visit(capability)?;
            }
            tools.insert(id.to_string(), self.tool(id, target));
        }
        Ok(tools)
    }

    fn visit(&mut self, capability: &Arc<Capability>) -> Result<(), ErrorBody> {
        if !self.seen.insert(Arc::as_ptr(capability)) {
            return Ok(());
        }
        // The depth of the recursion is that of capabilities, which the resolver has limited.
        let tools = self.tools(&capability.targets)?;
        let name = capability.module.versioned();
        let locked = LockedCapability { integrity: capability.module.integrity, tools };
        match self.capabilities.get(&name) {
            // It was resolved under two names, and the registry changed in between.
            Some(known) if *known != locked => {
                let message = format!("`{name}` changed while it was looked up; run it again");
                Err(ErrorBody::new(ErrorCode::IntegrityMismatch, message))
            }
            _ => {
                self.capabilities.insert(name, locked);
                Ok(())
            }
        }
    }

    fn tool(&self, id: &ToolId, target: &Target) -> LockedTool {
        let listed = |tools: &[ToolDescriptor]| {
            tools.iter().find(|tool| tool.name == id.action()).map(schema_hash)
        };
        match target {
            Target::Native => LockedTool {
                schema: listed(tools::descriptors(id.namespace())),
                ..LockedTool::new(Kind::Native, Routing::Client)
            },
            Target::Configured => {
                let server = (self.configured)(id.namespace());
                LockedTool {
                    start: server.as_ref().map(|server| server.start),
                    schema: server.and_then(|server| server.tools).and_then(|tools| listed(&tools)),
                    ..LockedTool::new(Kind::Configured, Routing::Client)
                }
            }
            Target::Registered(entry) => LockedTool {
                fqdn: Some(unpinned(&entry.fqdn)),
                version: entry.server_version.clone(),
                integrity: Some(entry.integrity),
                registry: entry.registry.clone(),
                schema: listed(&entry.tools),
                ..LockedTool::new(Kind::Registered, Routing::Client)
            },
            Target::Capability(capability) => {
                // What it reaches is listed by itself.
                LockedTool { reaches: None, ..LockedTool::described(&capability.tool_use(id)) }
            }
            Target::Gateway { described, .. } => {
                LockedTool { runs_on: Routing::Server, ..LockedTool::described(described) }
            }
        }
    }
}

impl LockedTool {
    fn new(kind: Kind, runs_on: Routing) -> Self {
        Self {
            kind,
            runs_on,
            fqdn: None,
            version: None,
            integrity: None,
            registry: None,
            start: None,
            schema: None,
            reaches: None,
        }
    }

    /// Returns what the gateway says of a tool.
    fn described(tool: &ToolUse) -> Self {
        let kind = match tool.kind {
            ToolUseType::Tool => Kind::Registered,
            ToolUseType::Capability => Kind::Capability,
        };
        // Sorted, because the order says nothing.
        let reaches = tool.tools.clone().map(|mut reaches| {
            reaches.sort();
            reaches.dedup();
            reaches
        });
        Self {
            fqdn: tool.fqdn.as_deref().map(unpinned),
            version: tool.version.clone(),
            integrity: tool.integrity,
            reaches,
            ..Self::new(kind, tool.routing)
        }
    }
}

/// Returns a full name without the beginning of its hash, which is locked in full.
fn unpinned(name: &str) -> String {
    name.parse::<Fqdn>().map_or_else(|_| name.to_owned(), |name| name.unpinned().to_string())
}
