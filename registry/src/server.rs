//! An MCP server as those who pass messages on to it need it, remembered for a moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::{EntryType, Fqdn, Routing, Scope, ToolId};

use crate::{EntryName, Registry, RegistryError, Tenant, content};

/// How long a server is believed to be as it was. A change is told at once; this is for the case that the telling
/// fails.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many are remembered at most.
const REMEMBERED: usize = 10_000;

/// An MCP server of the registry, as a tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its name.
    pub fqdn: Fqdn,
    /// Its kind.
    pub kind: EntryType,
    /// For `http`: where it is.
    pub proxy_to: Option<String>,
    /// Variables that it needs.
    pub env_required: Vec<String>,
    /// Where it runs as a whole: by its own row, else by the rules.
    pub routing: Routing,
    /// Its row says itself where it runs, so no rule does.
    pub is_fixed: bool,
}

/// By tenant and name: the server, and since when it is known.
type Known = HashMap<(Tenant, EntryName), (Arc<McpServer>, Instant)>;

/// Remembers servers for a moment.
#[derive(Default)]
pub(crate) struct ServerCache {
    known: Mutex<Known>,
    /// Rises when everything is forgotten, so that a look-up from before does not remember its answer after.
    generation: AtomicU64,
}

impl ServerCache {
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.lock().clear();
    }

    fn get(&self, key: &(Tenant, EntryName)) -> Option<Arc<McpServer>> {
        let known = self.lock();
        let (server, since) = known.get(key)?;
        (since.elapsed() < BELIEVED).then(|| Arc::clone(server))
    }

    fn remember(&self, key: (Tenant, EntryName), server: Arc<McpServer>, generation: u64) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, since)| since.elapsed() < BELIEVED);
        }
        // Within the lock: `forget` raises the number before it clears.
        if known.len() < REMEMBERED && self.generation.load(Ordering::SeqCst) == generation {
            known.insert(key, (server, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Returns a server that the tenant may see: of its own scope, else of the public catalog.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] alike for what does not exist, what is hidden and what is no server, and
    /// [`RegistryError::IntegrityMismatch`] when the stored entry was tampered with.
    pub async fn server(
        &self,
        tenant: &Tenant,
        name: &EntryName,
    ) -> Result<Arc<McpServer>, RegistryError> {
        let key = (tenant.clone(), name.clone());
        if let Some(server) = self.servers.get(&key) {
            return Ok(server);
        }
        let generation = self.servers.generation.load(Ordering::SeqCst);
        let server = Arc::new(self.read_server(tenant, name).await?);
        self.servers.remember(key, Arc::clone(&server), generation);
        Ok(server)
    }

    /// Returns where a tool of a server runs, whether it is registered or not.
    pub fn route_at(&self, server: &McpServer, tool: &ToolId) -> Routing {
        match server.is_fixed {
            true => server.routing,
            false => self.routes().rules.route(tool),
        }
    }

    async fn read_server(
        &self,
        tenant: &Tenant,
        name: &EntryName,
    ) -> Result<McpServer, RegistryError> {
        let (first, second, namespace, action) = name.parts(tenant);
        let missing = || RegistryError::NotFound(name.to_string());
        if action.is_some() {
            return Err(missing());
        }
        let wanted = namespace.to_owned();
        // Said again beside the policy, with the tenant as an argument.
        let own = tenant.clone();
        let row = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"select org, project, content, integrity, routing is not null as "is_fixed!",
                            effective_routing(routing, namespace, namespace || ':*') as "routing!"
                        from mcp_servers
                        where ((org = $1 and project = $2) or (org = $3 and project = $4))
                            and namespace = $5
                            and (visibility = 'public' or (org = $6 and (visibility = 'org'
                                or (project = $7 and (visibility = 'project' or owner = $8)))))
                        order by (org = $1 and project = $2) desc
                        limit 1"#,
                        first.org(),
                        first.project(),
                        second.org(),
                        second.project(),
                        wanted,
                        own.org(),
                        own.project(),
                        own.principal_name(),
                    )
                    .fetch_optional(connection)
                    .await?;
                    Ok(row)
                })
            })
            .await?
            .ok_or_else(missing)?;
        let fqdn = Fqdn::server(Scope::new(&row.org, &row.project)?, namespace)?;
        let routing = content::routing(&row.routing);
        let (entry, fqdn) = content::from_stored(fqdn, &row.content, &row.integrity, routing)?;
        Ok(McpServer {
            fqdn,
            kind: entry.kind,
            proxy_to: entry.proxy_to,
            env_required: entry.env_required,
            routing,
            is_fixed: row.is_fixed,
        })
    }
}
