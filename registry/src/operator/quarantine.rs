//! Servers of another registry: imported into quarantine, reviewed by the operator, and pinned when approved.
//!
//! Imported servers are not in the catalog: tenants can neither see nor resolve them. Approving copies exactly the
//! reviewed bytes; later imports never change them.

mod approve;
mod read;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use protocol::server_json::namespace_of;
use protocol::{Fqdn, Scope};
use serde::Serialize;
use sqlx::PgConnection;

pub use read::{ReadPage, ReadServer, read_page};

use crate::RegistryError;
use crate::accounts::scopes::ensure_scope;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::entries::server_entry::CatalogTool;
use crate::identity::tenant::Tenant;
use crate::records::audit::{self, AuditEvent, AuditOutcome};

/// A server in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuarantinedServer {
    /// Its name in the other registry.
    pub name: String,
    /// Its version there.
    pub version: String,
    /// The hash of its server.json.
    pub integrity: String,
    /// Its status in the other registry: `active`, `deprecated` or `deleted`.
    pub status: String,
    /// The flags to review before approval.
    pub flags: Vec<String>,
    /// The source of the import.
    pub source: String,
    /// When it was last read.
    pub seen_at: DateTime<Utc>,
    /// `approved` or `rejected`; `None` while undecided.
    pub decision: Option<String>,
    /// The namespace that it was approved as.
    pub approved_as: Option<String>,
}

/// The result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IngestReport {
    /// Servers and versions that were read.
    pub read: u64,
    /// Those that were not in quarantine yet.
    pub new: u64,
    /// Those of the new ones whose version is in quarantine with different bytes.
    pub changed: u64,
}

/// A server that was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovedServer {
    /// Its name in the catalog.
    pub fqdn: Fqdn,
    /// Its version in the other registry.
    pub version: String,
    /// The hash of the server.json that was approved.
    pub integrity: String,
}

/// Selects the server to approve or reject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineSelector {
    /// The name in the other registry.
    pub name: String,
    /// The version; optional if there is only one.
    pub version: Option<String>,
    /// The hash; optional if there is only one.
    pub integrity: Option<String>,
}

impl Operator {
    /// Writes imported servers into quarantine, in one transaction. A repeated import updates status, source, flags and
    /// time, but never a decision.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn quarantine(
        &self,
        servers: Vec<ReadServer>,
        source: &str,
    ) -> Result<IngestReport, RegistryError> {
        let source = source.to_owned();
        self.as_catalog(move |connection, actor| {
            Box::pin(async move {
                let mut report = IngestReport { read: servers.len() as u64, ..Default::default() };
                let event =
                    AuditEvent::new("catalog.ingest", source.as_str(), AuditOutcome::Allowed)
                        .with_detail(serde_json::json!({ "servers": servers.len() }));
                audit::record(connection, actor, event).await?;
                // If one import has two contents for a version, neither is chosen automatically.
                let mut contents: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
                for server in &servers {
                    let seen = contents.entry((&server.name, &server.version)).or_default();
                    if !seen.contains(&server.integrity.as_str()) {
                        seen.push(&server.integrity);
                    }
                }
                for server in &servers {
                    let twice = contents
                        .get(&(server.name.as_str(), server.version.as_str()))
                        .is_some_and(|seen| seen.len() > 1);
                    write(connection, server, twice, &source, &mut report).await?;
                }
                Ok(report)
            })
        })
        .await
    }

    /// Lists undecided servers, or `all`, by name and version.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn quarantined(&self, all: bool) -> Result<Vec<QuarantinedServer>, RegistryError> {
        self.as_catalog(move |connection, _| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    QuarantinedServer,
                    r#"select name, version, integrity, status, flags, source, seen_at, decision, approved_as
                    from quarantined_servers
                    where $1 or decision is null
                    order by name collate "C", version collate "C", integrity collate "C""#,
                    all,
                )
                .fetch_all(connection)
                .await?;
                Ok(rows)
            })
        })
        .await
    }

    /// Publishes a quarantined server in the catalog, with exactly its quarantined content and the tools that the
    /// operator supplies: a server.json does not list any.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when it is not in quarantine, [`RegistryError::Invalid`] when the choice
    /// is ambiguous, or the server cannot be started or reached as described, or looks like another, and
    /// [`RegistryError::Conflict`] when the namespace or the version is taken.
    pub async fn approve(
        &self,
        selector: QuarantineSelector,
        namespace: String,
        tools: Vec<CatalogTool>,
    ) -> Result<ApprovedServer, RegistryError> {
        self.as_catalog(move |connection, actor| {
            Box::pin(async move {
                let candidate = approve::only_one(connection, &selector).await?;
                if candidate.status == "deleted" {
                    let message = format!(
                        "`{}` {} was deleted in its registry",
                        selector.name, candidate.version
                    );
                    return Err(RegistryError::Invalid(message));
                }
                approve::publish(connection, actor, &selector.name, candidate, &namespace, tools)
                    .await
            })
        })
        .await
    }

    /// Rejects a quarantined server. An approved one is removed from the catalog, and the official API reports it as
    /// deleted.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when it is not in quarantine.
    pub async fn reject(&self, selector: QuarantineSelector) -> Result<u64, RegistryError> {
        self.as_catalog(move |connection, actor| {
            Box::pin(async move {
                let done = sqlx::query!(
                    "update quarantined_servers
                    set decision = 'rejected', decided_at = now(), approved_as = null
                    where name = $1 and ($2::text is null or version = $2)
                        and ($3::text is null or integrity = $3)",
                    selector.name,
                    selector.version,
                    selector.integrity,
                )
                .execute(&mut *connection)
                .await?;
                if done.rows_affected() == 0 {
                    return Err(RegistryError::NotFound(selector.name));
                }
                let event = AuditEvent::new(
                    "catalog.reject",
                    selector.name.as_str(),
                    AuditOutcome::Allowed,
                )
                .with_detail(serde_json::json!({ "version": selector.version }));
                audit::record(connection, actor, event).await?;
                let gone = sqlx::query!(
                    "update official_versions v
                    set status = 'deleted', updated_at = clock_timestamp()
                    where name = $1 and ($2::text is null or version = $2)
                        and ($3::text is null or integrity = $3) and status <> 'deleted'
                    returning namespace, latest",
                    selector.name,
                    selector.version,
                    selector.integrity,
                )
                .fetch_all(&mut *connection)
                .await?;
                // Only the latest approved version is in the catalog: rejecting an older one leaves
                // it there. The condition on `upstream` protects a shipped server that has taken
                // the namespace since.
                let scope = Scope::public();
                for version in gone.iter().filter(|version| version.latest) {
                    sqlx::query!(
                        "delete from mcp_servers
                        where org = $1 and project = $2 and namespace = $3 and upstream = $4",
                        scope.org(),
                        scope.project(),
                        version.namespace,
                        selector.name,
                    )
                    .execute(&mut *connection)
                    .await?;
                }
                Ok(done.rows_affected())
            })
        })
        .await
    }

    /// Runs work in the catalog's scope, which it creates if necessary, serialized with other writers of the catalog.
    async fn as_catalog<T, F>(&self, work: F) -> Result<T, RegistryError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(
                &'c mut PgConnection,
                &'c Tenant,
            ) -> crate::database::transaction::Work<'c, T>
            + Send
            + 'static,
    {
        let actor = Tenant::of(Scope::public());
        in_tenant(self.pool.clone(), &actor.clone(), move |connection| {
            Box::pin(async move {
                // The same lock as the seed's, which writes the same rows.
                sqlx::query!("select pg_advisory_xact_lock(hashtext('pml seed'))")
                    .execute(&mut *connection)
                    .await?;
                ensure_scope(connection, &Scope::public()).await?;
                work(connection, &actor).await
            })
        })
        .await
    }
}

async fn write(
    connection: &mut PgConnection,
    server: &ReadServer,
    twice: bool,
    source: &str,
    report: &mut IngestReport,
) -> Result<(), RegistryError> {
    let mut flags = server.flags.clone();
    if twice {
        flags.push("duplicate".to_owned());
    }
    // `xmax` is zero in a row that was just inserted. On a conflict, Postgres locks the existing
    // row first, which sets it. Earlier approvals of the same server are not its look-alikes.
    let done = sqlx::query!(
        r#"with known as (
            select exists (select from quarantined_servers
                where name = $1 and version = $2 and integrity <> $3) as differs
        ),
        near as (
            select min(namespace) as namespace from mcp_servers
            where org = 'pml' and project = 'mcp' and name_skeleton(namespace) = name_skeleton($8)
                and upstream is distinct from $1
        )
        insert into quarantined_servers as old (name, version, integrity, content, status, flags, source)
        select $1, $2, $3, $4, $5,
            $6::text[]
                || case when known.differs then array['changed'] else '{}' end
                || case when near.namespace is not null then array['look_alike:' || near.namespace] else '{}' end,
            $7
        from known, near
        on conflict (name, version, integrity) do update
        set status = excluded.status, source = excluded.source, flags = excluded.flags, seen_at = now()
        returning (xmax = 0) as "new!", 'changed' = any (flags) as "changed!""#,
        server.name,
        server.version,
        server.integrity,
        server.content,
        server.status,
        &flags,
        source,
        namespace_of(&server.name),
    )
    .fetch_one(connection)
    .await?;
    if done.new {
        report.new += 1;
        report.changed += u64::from(done.changed);
    }
    Ok(())
}
