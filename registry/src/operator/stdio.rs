//! The `stdio` servers of the catalog, which the operator may run on the gateway.

use protocol::{EntryType, Fqdn, Install, Routing, Scope};
use serde::Serialize;

use crate::RegistryError;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::entries::content;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// A `stdio` server of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StdioServer {
    /// Its name.
    pub fqdn: Fqdn,
    /// How it is started.
    pub install: Install,
    /// Where its tools run; `None` means that the rules decide.
    pub routing: Option<Routing>,
}

impl Operator {
    /// Returns the `stdio` servers of the catalog, sorted by name.
    ///
    /// # Errors
    /// Returns [`RegistryError::IntegrityMismatch`] when a stored server was tampered with, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn stdio_servers(&self) -> Result<Vec<StdioServer>, RegistryError> {
        let public = Scope::public();
        in_tenant(self.pool.clone(), &Tenant::of(public.clone()), move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"select namespace, content, integrity, routing from mcp_servers
                    where org = $1 and project = $2 order by namespace collate "C""#,
                    public.org(),
                    public.project(),
                )
                .fetch_all(connection)
                .await?;
                let mut servers = Vec::new();
                for row in rows {
                    let fqdn = Fqdn::server(public.clone(), &row.namespace)?;
                    let routing = row.routing.as_deref().map(content::routing);
                    let read = content::from_stored(
                        fqdn.clone(),
                        &row.content,
                        &row.integrity,
                        routing.unwrap_or(Routing::Client),
                    );
                    let (entry, _) = read?;
                    if let (EntryType::Stdio, Some(install)) = (entry.kind, entry.install) {
                        servers.push(StdioServer { fqdn, install, routing });
                    }
                }
                Ok(servers)
            })
        })
        .await
    }

    /// Sets where the tools of a `stdio` server of the catalog run. `None` restores what ships, the user's machine.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] if the catalog has no such server.
    pub async fn route_stdio_server(
        &self,
        fqdn: &Fqdn,
        routing: Option<Routing>,
    ) -> Result<(), RegistryError> {
        let known = self.stdio_servers().await?;
        if !known.iter().any(|server| server.fqdn == *fqdn) {
            return Err(RegistryError::NotFound(fqdn.to_string()));
        }
        let actor = Tenant::of(Scope::public());
        let fqdn = fqdn.clone();
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                let action = if routing.is_some() { "routing.set" } else { "routing.unset" };
                let now = routing.unwrap_or(Routing::Client);
                let event = AuditEvent::new(action, fqdn.to_string(), AuditOutcome::Allowed)
                    .with_detail(serde_json::json!({ "routing": now, "origin": "operator" }));
                audit::record(connection, &actor, event).await?;
                let done = sqlx::query!(
                    "update mcp_servers set routing = $4, routing_is_operators = $5, updated_at = now()
                    where org = $1 and project = $2 and namespace = $3",
                    fqdn.scope().org(),
                    fqdn.scope().project(),
                    fqdn.namespace(),
                    now.as_str(),
                    routing.is_some(),
                )
                .execute(connection)
                .await?;
                match done.rows_affected() {
                    0 => Err(RegistryError::NotFound(fqdn.to_string())),
                    _ => Ok(()),
                }
            })
        })
        .await
    }
}
