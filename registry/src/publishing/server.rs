//! Publishing of MCP servers, in immutable versions.
//!
//! Names and versions have separate tables. The current version of each server is also written to `mcp_servers` and
//! `tools`, which contain the operator's servers as well, so that look-ups read only these two.

mod write;

pub(super) use write::update_latest;

use protocol::{EntryType, Fqdn, Integrity, Routing, Visibility};

use self::write::publish;
use crate::entries::server_entry::CatalogServer;
use crate::entries::version::Version;
use crate::identity::tenant::Tenant;
use crate::publishing::names::check_reserved;
use crate::{Registry, RegistryError};

/// A server that is about to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct NewServer {
    /// The content: `stdio` or `http`, without the fields that only the operator sets.
    pub server: CatalogServer,
    /// Its version. Default: the next patch version.
    pub version: Option<Version>,
    /// Visibility. Default: unchanged; `project` on first publish.
    pub visibility: Option<Visibility>,
}

/// The published server.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedServer {
    /// Its full name.
    pub fqdn: Fqdn,
    /// Its version.
    pub version: Version,
    /// The hash of its content.
    pub integrity: Integrity,
    /// The routing of its tools.
    pub routing: Routing,
    /// Whether this call created it; false if the identical version already existed.
    pub new: bool,
}

impl Registry {
    /// Publishes a version of an MCP server in the tenant's scope.
    ///
    /// Publishing the identical content again changes nothing and succeeds. The type of the server determines the
    /// routing of its tools, and the author cannot set the marks that only the operator may set.
    ///
    /// # Errors
    /// Returns [`RegistryError::Conflict`] when the version has different bytes, the name is taken or was deleted, or
    /// the visibility of another principal's server would change, [`RegistryError::Invalid`] for a name that is
    /// reserved or looks like another one, and [`RegistryError::Denied`] for a tenant that may not write its scope.
    pub async fn publish_server(
        &self,
        tenant: &Tenant,
        mut new: NewServer,
    ) -> Result<PublishedServer, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        // Only what needs no database is checked here; the other checks run under the lock.
        let namespace = new.server.namespace.as_str();
        Fqdn::server(scope.clone(), namespace)?;
        check_reserved(namespace)?;
        let routing = match new.server.kind {
            EntryType::Http => Routing::Server,
            EntryType::Stdio => Routing::Client,
            other => {
                let message =
                    format!("a server must be `stdio` or `http`, not `{}`", other.as_str());
                return Err(RegistryError::Invalid(message));
            }
        };
        // Only the operator may mark tools as read-only or deterministic.
        new.server.routing = Some(routing);
        for tool in &mut new.server.tools {
            (tool.read_only, tool.deterministic) = (false, false);
        }
        let actor = tenant.clone();
        let published = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move { publish(connection, &actor, &scope, new, routing).await })
            })
            .await;
        self.entries.clear();
        published
    }
}
