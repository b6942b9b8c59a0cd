//! What the user allowed here before, for a run without the gateway.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{ErrorBody, ErrorCode, Fqdn, Scope, ToolId};

use super::Resolver;
use crate::capabilities::{self, Module, RegisteredServer, Target};

/// What is stored here for a run without the gateway.
pub(super) enum Stored {
    Capability(Box<Module>),
    Server(Arc<RegisteredServer>),
}

impl Resolver<'_> {
    /// Returns the highest version of a capability or of a server that the user has allowed here, for a run without the
    /// gateway.
    pub(super) fn stored(&self, id: &ToolId) -> Result<Stored, ErrorBody> {
        let mut pinned = self.app.lockfile.capabilities(id)?;
        // Within a capability, its own scope takes precedence, as on the gateway.
        if let Some(base) = self.base()
            && pinned.iter().any(|known| known.name.scope() == base)
        {
            pinned.retain(|known| known.name.scope() == base);
        }
        let Some(last) = pinned.last() else {
            let mut servers = self.app.stored_servers(id, self.base())?;
            if servers.len() > 1 {
                return Err(ambiguous(id, "servers"));
            }
            if let Some(server) = servers.pop() {
                return Ok(Stored::Server(server));
            }
            let caller = self.stack.last().map(|open| &open.id);
            let by =
                caller.map_or_else(String::new, |by| format!(", which capability `{by}` calls,"));
            let message =
                format!("`{id}`{by} is not on this machine, and there is no gateway to ask");
            return Err(ErrorBody::new(ErrorCode::ServerToolsOffline, message));
        };
        if pinned.iter().any(|other| other.name != last.name) {
            return Err(ambiguous(id, "capabilities"));
        }
        capabilities::load_module(self.app.records(), last.integrity)
            .filter(|module| module.name == last.name && module.version == last.version)
            .map(|module| Stored::Capability(Box::new(module)))
            .ok_or_else(|| {
                let message = format!(
                    "the program of capability `{id}` is no longer on this machine, and there is no gateway to ask"
                );
                ErrorBody::new(ErrorCode::ServerToolsOffline, message)
            })
    }
}

fn ambiguous(id: &ToolId, what: &str) -> ErrorBody {
    let message = format!(
        "{what} of two projects that ran here provide `{id}`; only the gateway can decide which one is meant"
    );
    ErrorBody::new(ErrorCode::ServerToolsOffline, message)
}

/// Returns the full names of stored targets, for the rules. An entry of the catalog is the same in every scope, so rules
/// for its short name apply.
pub(super) fn stored_names(targets: &HashMap<ToolId, Target>) -> HashMap<ToolId, ToolId> {
    let named = targets.iter().filter_map(|(id, target)| {
        let scope = match target {
            Target::Capability(capability) => capability.module.name.scope().clone(),
            Target::Registered(entry) => entry.fqdn.parse::<Fqdn>().ok()?.scope().clone(),
            _ => return None,
        };
        (scope != Scope::public()).then(|| (id.clone(), id.within(&scope)))
    });
    named.collect()
}
