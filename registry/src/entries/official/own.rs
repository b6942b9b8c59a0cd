//! This registry's own servers, each version as server.json: those that tenants published, and the operator's.

use chrono::{DateTime, Utc};
use protocol::{Fqdn, RegistryEntry, Routing, Scope};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{Facts, Status, response, server_json};
use crate::RegistryError;
use crate::entries::content;
use crate::identity::tenant::Tenant;

/// The status message of a yanked version.
const YANKED: &str = "yanked: only requests for exactly this version still resolve";
/// The most versions of one server that are listed.
const VERSIONS_LIMIT: usize = 1_000;
/// The number of versions read at once: an entry has up to 1 MiB, most of it schemas that are not returned here.
const VERSIONS_BATCH: usize = 50;

/// The filter for own servers; all conditions must hold.
#[derive(Default, Clone, Copy)]
pub(super) struct OwnQuery<'a> {
    pub(super) after: Option<&'a [String; 4]>,
    pub(super) search: Option<&'a str>,
    pub(super) updated_since: Option<DateTime<Utc>>,
    /// Only the current version of each server.
    pub(super) latest_only: bool,
    /// Only this version.
    pub(super) version: Option<&'a str>,
    pub(super) exactly: Option<(&'a Scope, &'a str)>,
    pub(super) include_deleted: bool,
}

/// A part of a page.
pub(super) struct OwnPage {
    pub(super) servers: Vec<Value>,
    /// The last row that was read, whether it is on the page or not.
    pub(super) last: Option<[String; 4]>,
    /// Whether more rows follow.
    pub(super) more: bool,
}

/// Reads own servers in the order of their names; those that server.json cannot describe are omitted.
///
/// The current version of a server sorts before its other versions: its sort key `at` is empty.
pub(super) async fn own_servers(
    connection: &mut PgConnection,
    tenant: &Tenant,
    query: OwnQuery<'_>,
    gateway: Option<&str>,
    limit: usize,
) -> Result<OwnPage, RegistryError> {
    let rows = sqlx::query!(
        r#"select org as "org!", project as "project!", namespace as "namespace!", at as "at!",
            content as "content!", integrity as "integrity!",
            coalesce((
                select v.published_at from published_servers p
                join server_versions v on v.org = p.org and v.project = p.project
                    and v.namespace = p.namespace and v.version = p.latest
                where at = '' and p.org = all_parts.org and p.project = all_parts.project
                    and p.namespace = all_parts.namespace
            ), created_at) as "created_at!",
            updated_at as "updated_at!", deprecated, is_yanked as "is_yanked!", gone
        from (
            (select s.org, s.project, s.namespace, '' as at, s.content, s.integrity, s.created_at, s.updated_at,
                s.deprecated, false as is_yanked, null::text as gone
            from public_entries e
            join mcp_servers s on s.org = e.org and s.project = e.project and s.namespace = e.namespace
            where e.official_name is not null and s.upstream is null
                and ($4::text[] is null
                    or (e.org collate "C", e.project collate "C", e.namespace collate "C", '' collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or e.official_name like like_pattern($5))
                and ($6::timestamptz is null or e.updated_at >= $6)
                and ($7::text is null or (e.org = $7 and e.project = $8 and e.namespace = $9))
            order by e.org collate "C", e.project collate "C", e.namespace collate "C" limit $10)
            union all
            (select org, project, namespace, '', content, integrity, created_at, updated_at, deprecated, false, null
            from mcp_servers
            where org = $1 and visibility <> 'public' and kind in ('stdio', 'http')
                and visible_to($1, $2, $3, org, project, visibility, owner)
                and ($4::text[] is null
                    or (org collate "C", project collate "C", namespace collate "C", '' collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or lower(org || '.' || project || '/' || namespace) like like_pattern($5))
                and ($6::timestamptz is null or updated_at >= $6)
                and ($7::text is null or (org = $7 and project = $8 and namespace = $9))
            order by org collate "C", project collate "C", namespace collate "C" limit $10)
            union all
            (select v.org, v.project, v.namespace, v.version, v.content, v.integrity, v.published_at,
                coalesce(v.changed_at, v.published_at), v.deprecated, v.yanked_at is not null, null
            from server_versions v
            join published_servers p on p.org = v.org and p.project = v.project and p.namespace = v.namespace
            where not $12 and v.version is distinct from p.latest and (v.yanked_at is null or $11)
                and visible_to($1, $2, $3, v.org, v.project, v.visibility, v.owner)
                and ($4::text[] is null
                    or (v.org collate "C", v.project collate "C", v.namespace collate "C", v.version collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or lower(v.org || '.' || v.project || '/' || v.namespace) like like_pattern($5))
                and ($6::timestamptz is null or coalesce(v.changed_at, v.published_at) >= $6)
                and ($7::text is null or (v.org = $7 and v.project = $8 and v.namespace = $9))
                and ($13::text is null or v.version = $13)
            order by v.org collate "C", v.project collate "C", v.namespace collate "C", v.version collate "C"
            limit $10)
            union all
            (select org, project, namespace, '', '', '', deleted_at, deleted_at, null, false, version
            from tombstones
            where $11 and name = '' and version is not null
                and visible_to($1, $2, $3, org, project, visibility, owner)
                and ($4::text[] is null
                    or (org collate "C", project collate "C", namespace collate "C", '' collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or lower(org || '.' || project || '/' || namespace) like like_pattern($5))
                and ($6::timestamptz is null or deleted_at >= $6)
                and ($7::text is null or (org = $7 and project = $8 and namespace = $9))
            order by org collate "C", project collate "C", namespace collate "C" limit $10)
        ) as all_parts
        order by org collate "C", project collate "C", namespace collate "C", at collate "C"
        limit $10"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        query.after.map(|parts| parts.to_vec()) as Option<Vec<String>>,
        query.search,
        query.updated_since,
        query.exactly.map(|(scope, _)| scope.org()),
        query.exactly.map(|(scope, _)| scope.project()),
        query.exactly.map(|(_, namespace)| namespace),
        limit as i64 + 1,
        query.include_deleted,
        query.latest_only,
        query.version,
    )
    .fetch_all(connection)
    .await?;
    let more = rows.len() > limit;
    let mut page = OwnPage { servers: Vec::new(), last: None, more };
    for row in rows.into_iter().take(limit) {
        let fqdn = Fqdn::server(Scope::new(&row.org, &row.project)?, &row.namespace)?;
        let rendered = match row.gone {
            Some(version) => Some(deleted(&fqdn, &version, row.updated_at)),
            None => {
                let latest = row.at.is_empty();
                let facts = Facts::of(
                    row.deprecated,
                    row.is_yanked,
                    row.created_at,
                    row.updated_at,
                    latest,
                );
                described(&fqdn, &row.content, &row.integrity, facts, gateway)?
            }
        };
        page.last = Some([row.org, row.project, row.namespace, row.at]);
        // Compared after the rendering: a version may be derived from the content, and then no
        // column has it.
        let wanted =
            |server: &Value| query.version.is_none_or(|it| server["server"]["version"] == it);
        page.servers.extend(rendered.filter(wanted));
    }
    Ok(page)
}

/// Which versions of a published server to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All versions; yanked ones only with the flag.
    All { include_yanked: bool },
    /// The current version.
    Latest,
    /// Exactly this version, even if it is yanked.
    Exactly(String),
}

/// Reads versions of a server that a tenant published, newest first; for other servers, the list is empty.
pub(super) async fn own_versions(
    connection: &mut PgConnection,
    tenant: &Tenant,
    (scope, namespace): (&Scope, &str),
    wanted: &Wanted,
    gateway: Option<&str>,
) -> Result<Vec<Value>, RegistryError> {
    let fqdn = Fqdn::server(scope.clone(), namespace)?;
    let version = match wanted {
        Wanted::Exactly(version) => Some(version.as_str()),
        _ => None,
    };
    let include_yanked =
        matches!(wanted, Wanted::All { include_yanked: true } | Wanted::Exactly(_));
    let mut found = Vec::new();
    for begin in (0..VERSIONS_LIMIT).step_by(VERSIONS_BATCH) {
        let rows = sqlx::query!(
            r#"select v.content, v.integrity, v.published_at, v.deprecated, v.yanked_at is not null as "is_yanked!",
                coalesce(v.changed_at, v.published_at) as "changed_at!",
                v.version is not distinct from p.latest as "is_latest!"
            from server_versions v
            join published_servers p on p.org = v.org and p.project = v.project and p.namespace = v.namespace
            where v.org = $4 and v.project = $5 and v.namespace = $6
                and visible_to($1, $2, $3, v.org, v.project, v.visibility, v.owner)
                and (v.yanked_at is null or $7)
                and (not $8 or v.version is not distinct from p.latest)
                and ($9::text is null or v.version = $9)
            order by v.published_at desc, v.rank desc
            limit $10 offset $11"#,
            tenant.org(),
            tenant.project(),
            tenant.principal_name(),
            scope.org(),
            scope.project(),
            namespace,
            include_yanked,
            *wanted == Wanted::Latest,
            version,
            VERSIONS_BATCH as i64,
            begin as i64,
        )
        .fetch_all(&mut *connection)
        .await?;
        let is_last = rows.len() < VERSIONS_BATCH;
        for row in rows {
            let (published_at, changed_at) = (row.published_at, row.changed_at);
            let facts =
                Facts::of(row.deprecated, row.is_yanked, published_at, changed_at, row.is_latest);
            found.extend(described(&fqdn, &row.content, &row.integrity, facts, gateway)?);
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// Returns the namespaces and current versions of a scope's servers, or of one of them, as the official API shows them.
/// If all versions of a server are yanked, its highest one counts. Servers that the API does not list are omitted.
pub(crate) async fn current_versions(
    connection: &mut PgConnection,
    scope: &Scope,
    namespace: Option<&str>,
) -> Result<Vec<(String, String)>, RegistryError> {
    let versions = sqlx::query!(
        r#"select distinct on (namespace) namespace as "namespace!", content as "content!", integrity as "integrity!"
        from (
            select namespace, content, integrity, '{}'::int[] as rank, true as is_shown from mcp_servers
            where org = $1 and project = $2 and ($3::text is null or namespace = $3)
            union all
            select namespace, content, integrity, rank, false from server_versions
            where org = $1 and project = $2 and ($3::text is null or namespace = $3)
        ) known
        order by namespace, is_shown desc, rank desc"#,
        scope.org(),
        scope.project(),
        namespace,
    )
    // While the rows arrive, because all contents together may be large.
    .map(|row| {
        let fqdn = Fqdn::server(scope.clone(), &row.namespace).ok()?;
        // The routing does not matter: only the version is read from the entry.
        let read = content::from_stored(fqdn, &row.content, &row.integrity, Routing::Client);
        // A server whose content was tampered with can still be deleted.
        let (entry, _) = read.ok()?;
        Some((row.namespace, server_json::version_of(&entry)?))
    })
    .fetch_all(connection)
    .await?;
    Ok(versions.into_iter().flatten().collect())
}

impl Facts {
    fn of(
        deprecated: Option<String>,
        is_yanked: bool,
        published_at: DateTime<Utc>,
        updated_at: DateTime<Utc>,
        latest: bool,
    ) -> Self {
        let (status, message) = match (deprecated, is_yanked) {
            // Yanking outweighs a deprecation: the API has one status for each version.
            (_, true) => (Status::Deleted, Some(YANKED.to_owned())),
            (Some(why), false) => (Status::Deprecated, Some(why)),
            (None, false) => (Status::Active, None),
        };
        Self { status, message, published_at, updated_at, latest }
    }
}

/// Renders a stored entry; `None` if server.json cannot describe it.
fn described(
    fqdn: &Fqdn,
    stored: &str,
    integrity: &str,
    facts: Facts,
    gateway: Option<&str>,
) -> Result<Option<Value>, RegistryError> {
    // The routing does not matter: server.json has no field for it.
    let (entry, _) = content::from_stored(fqdn.clone(), stored, integrity, Routing::Client)?;
    let server = server_json::of_entry(fqdn, &entry, gateway);
    Ok(server.map(|server| response(server, facts, registry_facts(fqdn, &entry, integrity))))
}

/// Returns PML's own metadata of an entry.
fn registry_facts(fqdn: &Fqdn, entry: &RegistryEntry, integrity: &str) -> Value {
    let mut facts = json!({ "fqdn": fqdn.to_string(), "integrity": integrity });
    let written = entry.server_json.as_ref().and_then(|server| server["name"].as_str());
    if let Some(name) = written.filter(|name| *name != server_json::name_of(fqdn)) {
        facts["publishedAs"] = json!(name);
    }
    facts
}

fn deleted(fqdn: &Fqdn, version: &str, at: DateTime<Utc>) -> Value {
    let server = json!({
        "name": server_json::name_of(fqdn),
        "title": fqdn.namespace(),
        "description": "This server was deleted.",
        "version": version,
    });
    let facts = Facts {
        status: Status::Deleted,
        message: None,
        published_at: at,
        updated_at: at,
        // No version follows a deletion.
        latest: true,
    };
    response(server, facts, json!({ "fqdn": fqdn.to_string() }))
}
