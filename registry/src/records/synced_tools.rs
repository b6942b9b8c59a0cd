//! Tools of users' own MCP servers, each found by the principal who sent it.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use protocol::{Integrity, SyncedTool, ToolId, canonical_json};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::database::transaction::lock;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The most servers of a principal, in all workspaces.
const SERVERS_OF_PRINCIPAL: i64 = 64;
/// The maximum size of all tools of a principal, in bytes.
const BYTES_OF_PRINCIPAL: i64 = 4 * 1024 * 1024;
/// The maximum size of all tools of a project, in bytes.
const BYTES_OF_PROJECT: i64 = 64 * 1024 * 1024;

/// All tools of one server of one workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSyncedServer {
    /// The workspace.
    pub client: Uuid,
    /// The namespace of the tools.
    pub namespace: String,
    /// The tools. Each makes a plain id with the namespace, and no two have one name.
    pub tools: Vec<SyncedTool>,
}

/// A server whose tools are stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SyncedServer {
    /// The workspace that has it.
    pub client: Uuid,
    /// The namespace of its tools.
    pub namespace: String,
    /// The hash of what is stored.
    pub hash: String,
    /// When it was sent last.
    pub received_at: DateTime<Utc>,
    /// Its tools.
    pub tools: Vec<SyncedTool>,
}

impl Registry {
    /// Replaces the tools of one server of the caller; without tools, removes it. Returns the hash of what is stored.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] when the caller or the project would have more than it can.
    pub async fn sync_tools(
        &self,
        tenant: &Tenant,
        server: NewSyncedServer,
    ) -> Result<Option<Integrity>, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = own_principal(tenant)?;
        let actions: Vec<String> = server.tools.iter().map(|tool| tool.name.clone()).collect();
        let tools = serde_json::to_value(&server.tools)
            .map_err(|error| RegistryError::Invalid(error.to_string()))?;
        let text = tools.to_string();
        let hash = Integrity::of(canonical_json(tools).as_bytes());
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let (org, project) = (scope.org(), scope.project());
                if actions.is_empty() {
                    sqlx::query!(
                        "delete from synced_servers
                        where org = $1 and project = $2 and principal = $3 and client = $4 and namespace = $5",
                        org,
                        project,
                        principal,
                        server.client,
                        server.namespace,
                    )
                    .execute(connection)
                    .await?;
                    return Ok(None);
                }
                // So that no two requests pass the limits together.
                lock(connection, &format!("pml synced tools {scope}")).await?;
                sqlx::query!(
                    "insert into synced_servers (org, project, principal, client, namespace, actions, tools, hash)
                    values ($1, $2, $3, $4, $5, $6, $7::text::json, $8)
                    on conflict (org, project, principal, client, namespace) do update
                        set actions = excluded.actions, tools = excluded.tools, hash = excluded.hash,
                            received_at = now()",
                    org,
                    project,
                    principal,
                    server.client,
                    server.namespace,
                    &actions,
                    text,
                    hash.to_string(),
                )
                .execute(&mut *connection)
                .await?;
                // The transaction that fails here is rolled back.
                sqlx::query!("select set_config('app.counting', 'on', true) as counting")
                    .fetch_one(&mut *connection)
                    .await?;
                let used = sqlx::query!(
                    r#"select coalesce(sum(bytes), 0)::bigint as "all!",
                        coalesce(sum(bytes) filter (where principal = $3), 0)::bigint as "own!",
                        count(*) filter (where principal = $3) as "servers!"
                    from synced_servers where org = $1 and project = $2"#,
                    org,
                    project,
                    principal,
                )
                .fetch_one(connection)
                .await?;
                let refuse = |what: String| Err(RegistryError::Invalid(what));
                if used.servers > SERVERS_OF_PRINCIPAL {
                    return refuse(format!(
                        "you have the tools of {SERVERS_OF_PRINCIPAL} servers here, which is the limit; remove some"
                    ));
                }
                if used.own > BYTES_OF_PRINCIPAL {
                    return refuse(format!(
                        "your tools would have more than {} MiB in all; remove some servers",
                        BYTES_OF_PRINCIPAL / 1024 / 1024
                    ));
                }
                if used.all > BYTES_OF_PROJECT {
                    return refuse(format!(
                        "the tools of this project would have more than {} MiB in all",
                        BYTES_OF_PROJECT / 1024 / 1024
                    ));
                }
                Ok(Some(hash))
            })
        })
        .await
    }

    /// Returns the servers whose tools the caller has sent, the newest first; of one workspace, if `client` is given.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn synced_servers(
        &self,
        tenant: &Tenant,
        client: Option<Uuid>,
    ) -> Result<Vec<SyncedServer>, RegistryError> {
        // Who has no principal has sent nothing.
        let (Some(scope), Some(principal)) = (tenant.scope().cloned(), tenant.principal()) else {
            return Ok(Vec::new());
        };
        let principal = principal.as_str().to_owned();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "select client, namespace, hash, received_at, tools
                    from synced_servers
                    where org = $1 and project = $2 and principal = $3 and ($4::uuid is null or client = $4)
                    order by received_at desc, client, namespace",
                    scope.org(),
                    scope.project(),
                    principal,
                    client,
                )
                .fetch_all(connection)
                .await?;
                let servers = rows.into_iter().map(|row| {
                    Ok(SyncedServer {
                        client: row.client,
                        namespace: row.namespace,
                        hash: row.hash,
                        received_at: row.received_at,
                        tools: parsed(row.tools)?,
                    })
                });
                servers.collect()
            })
        })
        .await
    }

    /// Returns which of these ids are tools that the caller has sent.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn synced_ids(
        &self,
        tenant: &Tenant,
        ids: &[ToolId],
    ) -> Result<HashSet<ToolId>, RegistryError> {
        let asked: Vec<ToolId> = ids.iter().filter(|id| id.is_plain()).cloned().collect();
        let (Some(scope), Some(principal)) = (tenant.scope().cloned(), tenant.principal()) else {
            return Ok(HashSet::new());
        };
        if asked.is_empty() {
            return Ok(HashSet::new());
        }
        let principal = principal.as_str().to_owned();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let namespaces: Vec<String> =
                    asked.iter().map(|id| id.namespace().to_owned()).collect();
                let rows = sqlx::query!(
                    "select namespace, actions from synced_servers
                    where org = $1 and project = $2 and principal = $3 and namespace = any ($4)",
                    scope.org(),
                    scope.project(),
                    principal,
                    &namespaces,
                )
                .fetch_all(connection)
                .await?;
                let is_known = |id: &ToolId| {
                    let mut of = rows.iter().filter(|row| row.namespace == id.namespace());
                    of.any(|row| row.actions.iter().any(|action| action == id.action()))
                };
                Ok(asked.iter().filter(|id| is_known(id)).cloned().collect())
            })
        })
        .await
    }

    /// Removes what the caller has sent from a workspace; of one server, if `namespace` is given.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when there was nothing.
    pub async fn forget_synced_tools(
        &self,
        tenant: &Tenant,
        client: Uuid,
        namespace: Option<String>,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = own_principal(tenant)?;
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let gone = sqlx::query!(
                    "delete from synced_servers
                    where org = $1 and project = $2 and principal = $3 and client = $4
                        and ($5::text is null or namespace = $5)",
                    scope.org(),
                    scope.project(),
                    principal,
                    client,
                    namespace,
                )
                .execute(connection)
                .await?;
                match gone.rows_affected() {
                    0 => Err(RegistryError::NotFound(client.to_string())),
                    _ => Ok(()),
                }
            })
        })
        .await
    }
}

fn own_principal(tenant: &Tenant) -> Result<String, RegistryError> {
    let principal = tenant.principal();
    let principal =
        principal.ok_or_else(|| RegistryError::Invalid("this needs a principal".to_owned()))?;
    Ok(principal.as_str().to_owned())
}

fn parsed(tools: Value) -> Result<Vec<SyncedTool>, RegistryError> {
    serde_json::from_value(tools)
        .map_err(|error| RegistryError::Database(sqlx::Error::Decode(Box::new(error))))
}
