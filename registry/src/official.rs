//! The registry as the official MCP registry's API shows one: MCP servers by `name` and `version`, as server.json.
//!
//! What is listed are MCP servers that a client can start or reach itself: `stdio` with a package, and `http`. One of
//! ours is `org.project/namespace`; one that was approved from another registry keeps its name and server.json.

mod approved;
mod cursor;
pub(crate) mod server_json;

use chrono::{DateTime, Utc};
use protocol::{Fqdn, Scope};
use serde_json::{Value, json};
use sqlx::PgConnection;

use self::approved::{ApprovedQuery, approved_response, approved_servers};
use self::cursor::{After, read_cursor, write_cursor};
use crate::{Registry, RegistryError, Tenant, content};

/// The most servers on one page.
const PAGE_LIMIT: u32 = 100;
/// The longest text that is searched for; no name is longer.
const SEARCH_LIMIT: usize = 200;
/// Where the registry's own facts stand in an answer.
const OFFICIAL_META: &str = "io.modelcontextprotocol.registry/official";
/// Where ours stand.
const OWN_META: &str = "ai.casys.pml/registry";

/// Which servers to list; all of these must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfficialFilter {
    /// A part of the name, in any case.
    pub search: Option<String>,
    /// Changed at or after this.
    pub updated_since: Option<DateTime<Utc>>,
    /// `latest`, or this version.
    pub version: Option<String>,
    /// Those that were taken back as well.
    pub include_deleted: bool,
}

/// A page of servers, as the API answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfficialPage {
    /// `{server, _meta}` each.
    pub servers: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

impl Registry {
    /// Lists the servers that the tenant may see, in a stable order.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor that is not from here, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn official_servers(
        &self,
        tenant: &Tenant,
        filter: &OfficialFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<OfficialPage, RegistryError> {
        let (after, search) = match cursor {
            Some(cursor) => {
                let (after, search) = read_cursor(cursor)?;
                // Clients that follow a cursor may not say again what they searched for.
                (Some(after), filter.search.clone().or(search))
            }
            None => (None, filter.search.clone()),
        };
        let search = search.filter(|text| !text.is_empty());
        if search
            .as_ref()
            .is_some_and(|text| text.chars().count() > SEARCH_LIMIT || text.contains('\0'))
        {
            return Ok(OfficialPage { servers: Vec::new(), next_cursor: None });
        }
        let filter = OfficialFilter { search, ..filter.clone() };
        let limit = limit.clamp(1, PAGE_LIMIT) as usize;
        let own = tenant.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move { page(connection, &own, &filter, after, limit).await })
        })
        .await
    }

    /// Returns the versions of a server that the tenant may see, the newest first.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] alike for what does not exist, is hidden, or was taken back while those
    /// are not asked for.
    pub async fn official_versions(
        &self,
        tenant: &Tenant,
        name: &str,
        include_deleted: bool,
    ) -> Result<Vec<Value>, RegistryError> {
        let unknown = || RegistryError::NotFound(name.chars().take(200).collect());
        let Some((domain, server)) = name.split_once('/').filter(|_| !name.contains('\0')) else {
            return Err(unknown());
        };
        let ours = domain.parse::<Scope>().ok().map(|scope| (scope, server.to_owned()));
        let (own, asked) = (tenant.clone(), name.to_owned());
        let found = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    let mut found = Vec::new();
                    if let Some((scope, namespace)) = ours {
                        let one = OwnQuery {
                            exactly: Some((&scope, &namespace)),
                            include_deleted,
                            ..OwnQuery::default()
                        };
                        found.extend(own_servers(connection, &own, one, 1).await?.servers);
                    }
                    let one = ApprovedQuery {
                        name: Some(&asked),
                        include_deleted,
                        ..ApprovedQuery::default()
                    };
                    let mut approved = approved_servers(connection, one, 10_000).await?;
                    approved.sort_by_key(|row| std::cmp::Reverse(row.published_at));
                    for row in &approved {
                        found.push(approved_response(row)?);
                    }
                    Ok(found)
                })
            })
            .await?;
        if found.is_empty() { Err(unknown()) } else { Ok(found) }
    }
}

/// Whether a page is full, and what comes of own servers.
struct OwnPage {
    servers: Vec<Value>,
    /// The last row that was looked at, and whether there are more.
    last: Option<[String; 3]>,
    more: bool,
}

#[derive(Default, Clone, Copy)]
struct OwnQuery<'a> {
    after: Option<&'a [String; 3]>,
    search: Option<&'a str>,
    updated_since: Option<DateTime<Utc>>,
    exactly: Option<(&'a Scope, &'a str)>,
    include_deleted: bool,
}

async fn page(
    connection: &mut PgConnection,
    tenant: &Tenant,
    filter: &OfficialFilter,
    after: Option<After>,
    limit: usize,
) -> Result<OfficialPage, RegistryError> {
    sqlx::raw_sql("set local plan_cache_mode = force_custom_plan")
        .execute(&mut *connection)
        .await?;
    let latest_only = filter.version.as_deref() == Some("latest");
    let exact = filter.version.as_deref().filter(|_| !latest_only);
    let mut servers = Vec::new();
    let approved_after = match after {
        Some(After::Approved(at)) => Some(at),
        own => {
            let mut at = own.and_then(|after| match after {
                After::Own(at) => Some(at),
                After::Approved(_) => None,
            });
            // Some rows are no servers of this API, so one read may not fill a page; a few do, or the page is short.
            for _ in 0..8 {
                let query = OwnQuery {
                    after: at.as_ref(),
                    search: filter.search.as_deref(),
                    updated_since: filter.updated_since,
                    exactly: None,
                    // Who follows changes must hear of what went away.
                    include_deleted: filter.include_deleted || filter.updated_since.is_some(),
                };
                let wanted = limit - servers.len();
                let found = own_servers(connection, tenant, query, wanted).await?;
                servers.extend(found.servers.into_iter().filter(|found| {
                    exact.is_none_or(|version| found["server"]["version"] == version)
                }));
                at = found.last.or(at);
                if !found.more {
                    at = None;
                    break;
                }
                if servers.len() >= limit {
                    break;
                }
            }
            if let Some(at) = at {
                let cursor = write_cursor(&After::Own(at), filter.search.as_deref());
                return Ok(OfficialPage { servers, next_cursor: Some(cursor) });
            }
            None
        }
    };
    let query = ApprovedQuery {
        after: approved_after.as_ref(),
        search: filter.search.as_deref(),
        updated_since: filter.updated_since,
        latest_only,
        version: exact,
        name: None,
        // Who follows changes must hear of what went away.
        include_deleted: filter.include_deleted || filter.updated_since.is_some(),
    };
    let wanted = limit - servers.len();
    let rows = approved_servers(connection, query, wanted + 1).await?;
    let more = rows.len() > wanted;
    let mut next_cursor = None;
    if more {
        let at = match rows[..wanted].last() {
            Some(last) => [last.name.clone(), last.version.clone()],
            // The page was full already; what comes next begins at the first.
            None => [String::new(), String::new()],
        };
        next_cursor = Some(write_cursor(&After::Approved(at), filter.search.as_deref()));
    }
    for row in rows.iter().take(wanted) {
        servers.push(approved_response(row)?);
    }
    Ok(OfficialPage { servers, next_cursor })
}

/// Reads own servers and says each as server.json; those that cannot be said so are left out.
async fn own_servers(
    connection: &mut PgConnection,
    tenant: &Tenant,
    query: OwnQuery<'_>,
    limit: usize,
) -> Result<OwnPage, RegistryError> {
    let after = query.after.map(|parts| {
        let [org, project, namespace] = parts.clone();
        vec![org, project, namespace]
    });
    let rows = sqlx::query!(
        r#"select org as "org!", project as "project!", namespace as "namespace!", content as "content!",
            integrity as "integrity!", created_at as "created_at!", updated_at as "updated_at!", deprecated, gone
        from (
            (select s.org, s.project, s.namespace, s.content, s.integrity, s.created_at, s.updated_at,
                s.deprecated, null::text as gone
            from public_entries e
            join mcp_servers s on s.org = e.org and s.project = e.project and s.namespace = e.namespace
            where e.official_name is not null and s.upstream is null
                and ($4::text[] is null or (e.org collate "C", e.project collate "C", e.namespace collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C"))
                and ($5::text is null or e.official_name like like_pattern($5))
                and ($6::timestamptz is null or e.updated_at >= $6)
                and ($7::text is null or (e.org = $7 and e.project = $8 and e.namespace = $9))
            order by e.org collate "C", e.project collate "C", e.namespace collate "C" limit $10)
            union all
            (select org, project, namespace, content, integrity, created_at, updated_at, deprecated, null
            from mcp_servers
            where org = $1 and visibility <> 'public' and kind in ('stdio', 'http')
                and (visibility = 'org' or (project = $2 and (visibility = 'project' or owner = $3)))
                and ($4::text[] is null or (org collate "C", project collate "C", namespace collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C"))
                and ($5::text is null or lower(org || '.' || project || '/' || namespace) like like_pattern($5))
                and ($6::timestamptz is null or updated_at >= $6)
                and ($7::text is null or (org = $7 and project = $8 and namespace = $9))
            order by org collate "C", project collate "C", namespace collate "C" limit $10)
            union all
            (select org, project, namespace, '', '', deleted_at, deleted_at, null, version
            from tombstones
            where $11 and name = '' and version is not null
                and (visibility = 'public' or (org = $1 and (visibility = 'org'
                    or (project = $2 and (visibility = 'project' or owner = $3)))))
                and ($4::text[] is null or (org collate "C", project collate "C", namespace collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C"))
                and ($5::text is null or lower(org || '.' || project || '/' || namespace) like like_pattern($5))
                and ($6::timestamptz is null or deleted_at >= $6)
                and ($7::text is null or (org = $7 and project = $8 and namespace = $9))
            order by org collate "C", project collate "C", namespace collate "C" limit $10)
        ) as all_parts
        order by org collate "C", project collate "C", namespace collate "C"
        limit $10"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        after as Option<Vec<String>>,
        query.search,
        query.updated_since,
        query.exactly.map(|(scope, _)| scope.org()),
        query.exactly.map(|(scope, _)| scope.project()),
        query.exactly.map(|(_, namespace)| namespace),
        limit as i64 + 1,
        query.include_deleted,
    )
    .fetch_all(connection)
    .await?;
    let more = rows.len() > limit;
    let mut page = OwnPage { servers: Vec::new(), last: None, more };
    for row in rows.into_iter().take(limit) {
        let scope = Scope::new(&row.org, &row.project)?;
        let fqdn = Fqdn::server(scope, &row.namespace)?;
        if let Some(version) = row.gone {
            let server = json!({
                "name": format!("{}/{}", fqdn.scope(), fqdn.namespace()),
                "title": fqdn.namespace(), "description": "It was deleted.", "version": version,
            });
            let own = json!({ "fqdn": fqdn.to_string() });
            let (at, since) = (row.created_at, row.updated_at);
            page.servers.push(response(server, "deleted", at, since, true, own));
            page.last = Some([row.org, row.project, row.namespace]);
            continue;
        }
        // Where it runs is not told here.
        let (entry, _) = content::from_stored(
            fqdn.clone(),
            &row.content,
            &row.integrity,
            protocol::Routing::Client,
        )?;
        page.last = Some([row.org, row.project, row.namespace]);
        let Some(server) = server_json::of_entry(&fqdn, &entry) else { continue };
        let own = json!({ "fqdn": fqdn.to_string(), "integrity": row.integrity });
        let status = if row.deprecated.is_some() { "deprecated" } else { "active" };
        page.servers.push(response(server, status, row.created_at, row.updated_at, true, own));
    }
    Ok(page)
}

fn response(
    server: Value,
    status: &str,
    published_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    latest: bool,
    own: Value,
) -> Value {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    json!({
        "server": server,
        "_meta": {
            OFFICIAL_META: {
                "status": status,
                "statusChangedAt": time(updated_at),
                "publishedAt": time(published_at),
                "updatedAt": time(updated_at),
                "isLatest": latest,
            },
            OWN_META: own,
        },
    })
}
