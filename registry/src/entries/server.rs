//! An MCP server as the proxy needs it.

use protocol::{EntryType, Fqdn, Routing, ToolId};

use crate::entries::entry::Entry;
use crate::entries::name::EntryName;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// An MCP server of the registry, as a tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its name.
    pub fqdn: Fqdn,
    /// Its kind.
    pub kind: EntryType,
    /// For `http`: its address.
    pub proxy_to: Option<String>,
    /// Variables that it needs.
    pub env_required: Vec<String>,
    /// Where it runs as a whole: the routing of its row, or else of the rules.
    pub routing: Routing,
    /// Its row contains a routing, so no rule applies.
    pub is_fixed: bool,
}

impl McpServer {
    /// Returns the server that an entry is; `None` for a tool or a capability.
    fn of(entry: &Entry) -> Option<Self> {
        if entry.fqdn.action().is_some() {
            return None;
        }
        Some(Self {
            fqdn: entry.fqdn.clone(),
            kind: entry.entry.kind,
            proxy_to: entry.entry.proxy_to.clone(),
            env_required: entry.entry.env_required.clone(),
            routing: entry.entry.routing,
            is_fixed: entry.is_fixed,
        })
    }
}

impl Registry {
    /// Returns the server to which a name resolves and that the tenant may see.
    ///
    /// # Errors
    /// As [`Registry::served_entry`], and [`RegistryError::NotFound`] if the entry is not a server.
    pub async fn server(
        &self,
        tenant: &Tenant,
        name: &EntryName,
    ) -> Result<McpServer, RegistryError> {
        let served = self.served_entry(tenant, name, None).await?;
        McpServer::of(&served.entry).ok_or_else(|| RegistryError::NotFound(name.to_string()))
    }

    /// Returns where a tool of a server runs, whether it is registered or not.
    pub fn route_at(&self, server: &McpServer, tool: &ToolId) -> Routing {
        // Not simply the routing of the server: a rule can name a single tool.
        match server.is_fixed {
            true => server.routing,
            false => self.routes().rules.route(tool),
        }
    }
}
