//! The tools of registries other than the gateway.
//!
//! They are asked about exact names only. What a person searches for in words goes to the gateway alone.

use std::collections::HashMap;

use protocol::discovery::{FoundTool, Lookup};
use protocol::{ErrorBody, Fqdn, Routing, Scope, ToolDescriptor, ToolId, ToolUseType};
use serde_json::{Value, json};

use super::{REASON_LIMIT, Unknown};
use crate::app::App;
use crate::capabilities::RegisteredServer;
use crate::consent::shortened::shortened;
use crate::origin::Origin;
use crate::registries::ServerName;

/// What they have.
#[derive(Default)]
pub(super) struct FromRegistries {
    pub(super) tools: Vec<FoundTool>,
    /// Where each of these tools comes from.
    pub(super) origins: HashMap<ToolId, Origin>,
}

impl FromRegistries {
    /// Lists the servers that the user has allowed here.
    ///
    /// # Errors
    /// Returns `CONFIG_INVALID` if the lock is invalid.
    pub(super) fn allowed(app: &App) -> Result<Self, ErrorBody> {
        let mut found = Self::default();
        for server in app.allowed_elsewhere()? {
            let Ok(fqdn) = server.fqdn.parse::<Fqdn>() else { continue };
            // By the name that always leads to it: a short one may mean something else to the registry.
            let scope = Some(fqdn.scope()).filter(|scope| **scope != Scope::public());
            found.add(&server, fqdn.namespace(), scope);
        }
        Ok(found)
    }

    /// Looks for the server of a name, before the gateway is asked or after it. What is not known goes to `unknown`.
    pub(super) async fn look(
        &mut self,
        app: &App,
        lookup: &Lookup,
        after_gateway: bool,
        unknown: &mut Unknown,
    ) -> bool {
        let Some((name, ids)) = name_of(lookup) else { return false };
        let mut not_listed = |server: String, reason: &str| {
            let reason = shortened(reason, REASON_LIMIT);
            unknown.not_listed.push(json!({ "server": server, "reason": reason }));
        };
        match app.look_for_server(&name, &ids, after_gateway).await {
            Ok((server, warnings)) => {
                for warning in warnings {
                    not_listed(name.unversioned(), &warning);
                }
                if let Some(server) = &server {
                    self.add(server, &name.namespace, name.scope.as_ref());
                }
                // What is stored of the gateway is still the gateway's.
                server.is_some_and(|server| server.registry.is_some())
            }
            Err(error) => {
                not_listed(name.unversioned(), &error.message);
                // Not known, so it is as if it was found: nobody else is asked about the name.
                true
            }
        }
    }

    /// Drops the tools that the gateway has, if their registries are asked after it.
    pub(super) fn without(&mut self, app: &App, gateway: &[Vec<Value>]) {
        let Ok(registries) = app.registries() else { return };
        let is_after =
            |origin: &Origin| registries.after.iter().any(|known| known.origin() == origin);
        let ids: Vec<&str> =
            gateway.iter().flatten().filter_map(|tool| tool["id"].as_str()).collect();
        self.origins.retain(|id, origin| !is_after(origin) || !ids.contains(&id.as_str()));
        self.tools.retain(|tool| self.origins.contains_key(&tool.id));
    }

    fn add(&mut self, server: &RegisteredServer, namespace: &str, scope: Option<&Scope>) {
        let Some(origin) = &server.registry else { return };
        for descriptor in &server.tools {
            let Some(tool) = found(server, namespace, scope, descriptor.clone()) else { continue };
            // What was looked up just now comes before what was allowed earlier.
            self.tools.retain(|known| known.id != tool.id);
            self.origins.insert(tool.id.clone(), origin.clone());
            self.tools.push(tool);
        }
    }
}

fn found(
    server: &RegisteredServer,
    namespace: &str,
    scope: Option<&Scope>,
    descriptor: ToolDescriptor,
) -> Option<FoundTool> {
    // A tool whose name is not a valid id cannot be called from a program.
    let id = ToolId::new(namespace, &descriptor.name).ok()?;
    Some(FoundTool {
        id: scope.map_or_else(|| id.clone(), |scope| id.within(scope)),
        fqdn: Some(server.fqdn.clone()),
        kind: ToolUseType::Tool,
        routing: Routing::Client,
        read_only: false,
        wraps_value: false,
        score: 1.0,
        version: server.server_version.clone(),
        hides: Vec::new(),
        own_machine: false,
        descriptor,
    })
}

/// Returns the server that a search names, and the tool of it, if there is one.
fn name_of(lookup: &Lookup) -> Option<(ServerName, Vec<ToolId>)> {
    let Lookup::Name(name) = lookup else { return None };
    if name.contains(':') {
        let id: ToolId = name.parse().ok()?;
        return Some((ServerName::of(&id), vec![id]));
    }
    if name.contains('.') {
        let fqdn: Fqdn = name.parse().ok()?;
        let (scope, namespace) = (Some(fqdn.scope().clone()), fqdn.namespace().to_owned());
        return Some((ServerName { scope, namespace, version: None }, Vec::new()));
    }
    // Only the namespace is checked, but an id needs an action.
    Some((ServerName::of(&ToolId::new(name, "x").ok()?), Vec::new()))
}
