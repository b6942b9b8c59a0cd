//! Servers of other registries that the operator approved, as the approved server.json.

use chrono::{DateTime, Utc};
use protocol::{Fqdn, Integrity, Scope};
use serde_json::{Value, json};
use sqlx::PgConnection;

use protocol::server_json::{ServerPlace, place_of};

use super::{Facts, Status, response, server_json};
use crate::RegistryError;

/// The filter for approved servers; all conditions must hold.
#[derive(Default, Clone, Copy)]
pub(super) struct ApprovedQuery<'a> {
    pub(super) after: Option<&'a [String; 2]>,
    pub(super) search: Option<&'a str>,
    pub(super) updated_since: Option<DateTime<Utc>>,
    pub(super) latest_only: bool,
    pub(super) version: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) include_deleted: bool,
}

/// An approved server.
pub(super) struct ApprovedRow {
    org: String,
    project: String,
    namespace: String,
    pub(super) name: String,
    pub(super) version: String,
    content: String,
    integrity: String,
    pub(super) status: String,
    pub(super) latest: bool,
    pub(super) published_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// Reads approved servers of other registries; they are public.
pub(super) async fn approved_servers(
    connection: &mut PgConnection,
    query: ApprovedQuery<'_>,
    limit: usize,
) -> Result<Vec<ApprovedRow>, RegistryError> {
    let rows = sqlx::query_as!(
        ApprovedRow,
        r#"select org, project, namespace, name, version, content, integrity, status, latest, published_at, updated_at
        from official_versions
        where ($1::text is null or (name collate "C", version collate "C") > ($1 collate "C", $2 collate "C"))
            and ($3::text is null or lower(name) like like_pattern($3))
            and ($4::timestamptz is null or updated_at >= $4)
            and (not $5 or latest)
            and ($6::text is null or version = $6)
            and ($7::text is null or name = $7)
            and ($8 or status <> 'deleted')
        order by name collate "C", version collate "C"
        limit $9"#,
        query.after.map(|at| at[0].as_str()),
        query.after.map(|at| at[1].as_str()),
        query.search,
        query.updated_since,
        query.latest_only,
        query.version,
        query.name,
        query.include_deleted,
        limit as i64,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// Renders an approved server as exactly the server.json that was approved, if it still matches its hash.
///
/// An HTTP server is reached through the gateway like every other one: the gateway has its secret, its rules and its
/// audit log.
pub(super) fn approved_response(
    row: &ApprovedRow,
    gateway: Option<&str>,
) -> Result<Value, RegistryError> {
    let fqdn = Fqdn::server(Scope::new(&row.org, &row.project)?, &row.namespace)?;
    // The name and the version are compared as well: a content that was moved to another row has
    // the right hash.
    let server: Option<Value> = serde_json::from_str(&row.content).ok();
    let mut server = server
        .filter(|server| row.integrity == Integrity::of_json(server).to_string())
        .filter(|server| server["name"] == row.name && server["version"] == row.version)
        .ok_or_else(|| RegistryError::IntegrityMismatch(fqdn.clone()))?;
    if let Ok(ServerPlace::Http { env_required, .. }) = place_of(&server) {
        server["remotes"] = server_json::remotes(&fqdn, &env_required, gateway);
    }
    let status = match row.status.as_str() {
        "active" => Status::Active,
        "deprecated" => Status::Deprecated,
        // A constraint allows only `deleted` besides these.
        _ => Status::Deleted,
    };
    let facts = Facts {
        status,
        message: None,
        published_at: row.published_at,
        updated_at: row.updated_at,
        latest: row.latest,
    };
    let own = json!({ "fqdn": fqdn.to_string(), "integrity": row.integrity });
    Ok(response(server, facts, own))
}
