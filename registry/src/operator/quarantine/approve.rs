//! Approval of one server: finds it, verifies it again, and pins its content.

use protocol::server_json::{ServerPlace, place_of};
use protocol::{EntryType, Fqdn, Integrity, ResultMode, Routing, Scope};
use serde_json::Value;
use sqlx::PgConnection;

use super::{ApprovedServer, QuarantineSelector};
use crate::RegistryError;
use crate::entries::server_entry::{CatalogServer, CatalogTool};
use crate::identity::tenant::Tenant;
use crate::operator::seed;
use crate::records::audit::{self, AuditEvent, AuditOutcome};
use protocol::look_alike::{self, RESERVED_NAMESPACES};

/// The server under review.
pub(super) struct Candidate {
    pub(super) version: String,
    integrity: String,
    content: String,
    /// Its status in the other registry.
    pub(super) status: String,
}

/// Finds the only undecided server that matches.
pub(super) async fn only_one(
    connection: &mut PgConnection,
    selector: &QuarantineSelector,
) -> Result<Candidate, RegistryError> {
    let mut found = sqlx::query_as!(
        Candidate,
        r#"select version, integrity, content, status from quarantined_servers
        where name = $1 and ($2::text is null or version = $2) and ($3::text is null or integrity = $3)
            and decision is null
        order by version collate "C", integrity collate "C" limit 20"#,
        selector.name,
        selector.version,
        selector.integrity,
    )
    .fetch_all(connection)
    .await?;
    let Some(last) = found.pop() else {
        return Err(RegistryError::NotFound(selector.name.clone()));
    };
    if found.is_empty() {
        return Ok(last);
    }
    found.push(last);
    // The operator must choose: one of them may be the changed content that was flagged.
    let names: Vec<String> = found
        .iter()
        .map(|one| format!("{}@{} ({})", selector.name, one.version, one.integrity))
        .collect();
    Err(RegistryError::Invalid(format!("specify a version or an integrity: {}", names.join(", "))))
}

/// Writes it to the catalog, and records the decision.
pub(super) async fn publish(
    connection: &mut PgConnection,
    actor: &Tenant,
    name: &str,
    candidate: Candidate,
    namespace: &str,
    tools: Vec<CatalogTool>,
) -> Result<ApprovedServer, RegistryError> {
    let scope = Scope::public();
    let fqdn = Fqdn::server(scope.clone(), namespace)?;
    // The stored content is verified again, because it is what will run.
    let server: Value = serde_json::from_str(&candidate.content)
        .ok()
        .filter(|server| Integrity::of_json(server).to_string() == candidate.integrity)
        .ok_or_else(|| RegistryError::IntegrityMismatch(fqdn.clone()))?;
    if RESERVED_NAMESPACES.contains(&namespace) {
        return Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` is reserved; choose another one with `--as`"
        )));
    }
    if let Some(near) = look_alike::of_shipped(namespace) {
        return Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` looks like `{near}`; choose another one with `--as`"
        )));
    }
    // Names are compared by their skeletons, not by equality: `rnemory` must not be approved beside
    // `memory`.
    let taken = sqlx::query!(
        r#"select namespace, upstream from mcp_servers
        where org = $1 and project = $2 and name_skeleton(namespace) = name_skeleton($3)"#,
        scope.org(),
        scope.project(),
        namespace,
    )
    .fetch_all(&mut *connection)
    .await?;
    for other in taken {
        if other.namespace != namespace {
            let message = format!(
                "namespace `{namespace}` looks like `{}`; choose another one with `--as`",
                other.namespace
            );
            return Err(RegistryError::Invalid(message));
        }
        // The same server may have its namespace again: this is its next version.
        if other.upstream.as_deref() != Some(name) {
            let message =
                format!("namespace `{namespace}` is taken; choose another one with `--as`");
            return Err(RegistryError::Conflict(message));
        }
    }
    let known = sqlx::query!(
        "select namespace, version from official_versions where name = $1 and (version = $2 or latest)",
        name,
        candidate.version,
    )
    .fetch_all(&mut *connection)
    .await?;
    if known.iter().any(|known| known.version == candidate.version) {
        let message =
            format!("`{name}` {} was approved before, with different content", candidate.version);
        return Err(RegistryError::Conflict(message));
    }
    // All versions of a server share one namespace, because only the latest is in the catalog.
    if let Some(other) = known.iter().find(|known| known.namespace != namespace) {
        let message =
            format!("`{name}` was approved as `{}`; use that namespace again", other.namespace);
        return Err(RegistryError::Conflict(message));
    }
    let entry = to_catalog(&server, namespace).map_err(RegistryError::Invalid)?;
    // The gateway starts no servers. A routing in the row overrides all rules, so none can send
    // these tools to the gateway.
    let routing = (entry.kind == EntryType::Stdio).then_some(Routing::Client);
    let detail = serde_json::json!({
        "name": name, "version": candidate.version, "integrity": candidate.integrity, "tools": tools.len(),
    });
    let rows = seed::rows(&[CatalogServer { routing, tools, ..entry }])?;
    let event = AuditEvent::new("catalog.approve", fqdn.to_string(), AuditOutcome::Allowed);
    audit::record(connection, actor, event.with_detail(detail)).await?;
    for row in rows {
        seed::write_approved(connection, &scope, row, name).await?;
    }
    // Before the insert: a unique index allows one latest version for each name.
    sqlx::query!(
        "update official_versions set latest = false, updated_at = clock_timestamp() where name = $1 and latest",
        name,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into official_versions (org, project, namespace, name, version, content, integrity, status, latest)
        values ($1, $2, $3, $4, $5, $6, $7, $8, true)",
        scope.org(),
        scope.project(),
        namespace,
        name,
        candidate.version,
        candidate.content,
        candidate.integrity,
        candidate.status,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update quarantined_servers set decision = 'approved', decided_at = now(), approved_as = $4
        where name = $1 and version = $2 and integrity = $3",
        name,
        candidate.version,
        candidate.integrity,
        namespace,
    )
    .execute(connection)
    .await?;
    Ok(ApprovedServer { fqdn, version: candidate.version, integrity: candidate.integrity })
}

/// Converts a server.json to a catalog entry.
///
/// # Errors
/// As [`place_of`].
fn to_catalog(server: &Value, namespace: &str) -> Result<CatalogServer, String> {
    let (kind, install, proxy_to, env_required) = match place_of(server)? {
        ServerPlace::Stdio(install) => (EntryType::Stdio, Some(install), None, Vec::new()),
        ServerPlace::Http { url, env_required } => (EntryType::Http, None, Some(url), env_required),
    };
    Ok(CatalogServer {
        namespace: namespace.to_owned(),
        kind,
        description: server["description"].as_str().unwrap_or_default().to_owned(),
        install,
        proxy_to,
        env_required,
        routing: None,
        warnings: Vec::new(),
        result: ResultMode::Text,
        // The approved server.json is stored in `official_versions`.
        server_json: None,
        tools: Vec::new(),
    })
}
