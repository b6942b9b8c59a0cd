//! The registry in the official MCP registry's API: MCP servers by `name` and `version`, as server.json.
//!
//! The list contains MCP servers that a client can start or reach itself: `stdio` with a package, and `http` through
//! the gateway. A server of this registry is `org.project/namespace`; one approved from another registry keeps its
//! name.

mod approved;
mod cursor;
mod own;
pub(crate) mod server_json;

use chrono::{DateTime, Utc};
use protocol::{Fqdn, Scope, escape_text};
use serde_json::{Value, json};
use sqlx::PgConnection;

use self::approved::{ApprovedQuery, approved_response, approved_servers};
use self::cursor::{After, read_cursor, write_cursor};
pub(crate) use self::own::current_versions;
use self::own::{OwnQuery, Wanted, own_servers, own_versions};
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

/// The most servers on one page.
const PAGE_LIMIT: u32 = 100;
/// The maximum length of a search text; no name is longer.
const SEARCH_LIMIT: usize = 200;
/// The member of an answer with the registry's metadata.
const OFFICIAL_META: &str = "io.modelcontextprotocol.registry/official";
/// The member with PML's own metadata.
const OWN_META: &str = "ai.casys.pml/registry";

/// The filter of the list; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfficialFilter {
    /// A case-insensitive substring of the name.
    pub search: Option<String>,
    /// Changed at or after this.
    pub updated_since: Option<DateTime<Utc>>,
    /// `latest`, or this version.
    pub version: Option<String>,
    /// Whether deleted and yanked versions are included.
    pub include_deleted: bool,
}

/// The reader, and the address under which clients reach the gateway.
#[derive(Debug, Clone)]
pub struct OfficialReader {
    /// On whose behalf the registry is read.
    pub tenant: Tenant,
    /// The gateway's public address without a trailing slash, beneath which HTTP servers are reached. Without it they
    /// are listed with no remote.
    pub gateway: Option<String>,
}

/// A page of servers, as the API answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfficialPage {
    /// `{server, _meta}` each.
    pub servers: Vec<Value>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

impl Registry {
    /// Lists the versions of servers that the reader may see, in a stable order.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor of another list, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn official_servers(
        &self,
        reader: &OfficialReader,
        filter: &OfficialFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<OfficialPage, RegistryError> {
        let (after, search) = match cursor {
            Some(cursor) => {
                let (after, search) = read_cursor(cursor)?;
                // Clients that follow a cursor may omit the search text, so the cursor contains it.
                (Some(after), filter.search.clone().or(search))
            }
            None => (None, filter.search.clone()),
        };
        let search = search.filter(|text| !text.is_empty());
        if search
            .as_ref()
            .is_some_and(|text| text.chars().count() > SEARCH_LIMIT || text.contains('\0'))
        {
            // No name matches such a text, so the page is empty. Postgres would refuse a NUL.
            return Ok(OfficialPage { servers: Vec::new(), next_cursor: None });
        }
        let filter = OfficialFilter { search, ..filter.clone() };
        let limit = limit.clamp(1, PAGE_LIMIT) as usize;
        let own = reader.clone();
        self.in_tenant(&reader.tenant, move |connection| {
            Box::pin(async move { page(connection, &own, &filter, after, limit).await })
        })
        .await
    }

    /// Returns the versions of a server that the reader may see, newest first.
    ///
    /// # Errors
    /// Returns the same [`RegistryError::NotFound`] for servers that do not exist, are hidden, or have only deleted
    /// or yanked versions that were not requested.
    pub async fn official_versions(
        &self,
        reader: &OfficialReader,
        name: &str,
        include_deleted: bool,
    ) -> Result<Vec<Value>, RegistryError> {
        let wanted = Wanted::All { include_yanked: include_deleted };
        self.official_named(reader, name, wanted, include_deleted).await
    }

    /// Returns one version of a server, or its `latest`. A yanked version is found by its number.
    ///
    /// # Errors
    /// As [`Registry::official_versions`].
    pub async fn official_version(
        &self,
        reader: &OfficialReader,
        name: &str,
        version: &str,
        include_deleted: bool,
    ) -> Result<Value, RegistryError> {
        let wanted = match version {
            "latest" => Wanted::Latest,
            version => Wanted::Exactly(version.to_owned()),
        };
        let found = self.official_named(reader, name, wanted.clone(), include_deleted).await?;
        let is_it = |found: &Value| match &wanted {
            Wanted::Exactly(version) => found["server"]["version"] == *version,
            _ => found["_meta"][OFFICIAL_META]["isLatest"] == true,
        };
        found.into_iter().find(is_it).ok_or_else(|| unknown(name))
    }

    async fn official_named(
        &self,
        reader: &OfficialReader,
        name: &str,
        wanted: Wanted,
        include_deleted: bool,
    ) -> Result<Vec<Value>, RegistryError> {
        let is_text = |text: &str| !text.contains('\0');
        let Some((domain, server)) = name.split_once('/').filter(|_| is_text(name)) else {
            return Err(unknown(name));
        };
        if matches!(&wanted, Wanted::Exactly(version) if !is_text(version)) {
            return Err(unknown(name));
        }
        // Not queried if no server of this registry can have the name.
        let ours = domain
            .parse::<Scope>()
            .ok()
            .filter(|scope| Fqdn::server(scope.clone(), server).is_ok())
            .map(|scope| (scope, server.to_owned()));
        let (own, requested) = (reader.clone(), name.to_owned());
        let found = self
            .in_tenant(&reader.tenant, move |connection| {
                Box::pin(async move {
                    let (tenant, gateway) = (&own.tenant, own.gateway.as_deref());
                    let mut found = Vec::new();
                    if let Some((scope, namespace)) = &ours {
                        let name = (scope, namespace.as_str());
                        found = own_versions(connection, tenant, name, &wanted, gateway).await?;
                        if found.is_empty() {
                            // The operator's servers have one version each; a deleted one is a tombstone.
                            let one = OwnQuery {
                                exactly: Some(name),
                                latest_only: true,
                                include_deleted,
                                ..OwnQuery::default()
                            };
                            found = own_servers(connection, tenant, one, gateway, 1).await?.servers;
                        }
                    }
                    let one = ApprovedQuery {
                        name: Some(&requested),
                        include_deleted,
                        ..ApprovedQuery::default()
                    };
                    let mut approved = approved_servers(connection, one, 10_000).await?;
                    approved.sort_by_key(|row| std::cmp::Reverse(row.published_at));
                    for row in &approved {
                        found.push(approved_response(row, gateway)?);
                    }
                    Ok(found)
                })
            })
            .await?;
        if found.is_empty() { Err(unknown(name)) } else { Ok(found) }
    }
}

fn unknown(name: &str) -> RegistryError {
    RegistryError::NotFound(name.chars().take(200).collect())
}

/// Reads a page: first this registry's own servers, then those approved from other registries.
async fn page(
    connection: &mut PgConnection,
    reader: &OfficialReader,
    filter: &OfficialFilter,
    after: Option<After>,
    limit: usize,
) -> Result<OfficialPage, RegistryError> {
    // The best index depends on the given filters.
    sqlx::raw_sql("set local plan_cache_mode = force_custom_plan")
        .execute(&mut *connection)
        .await?;
    let gateway = reader.gateway.as_deref();
    let latest_only = filter.version.as_deref() == Some("latest");
    let exact = filter.version.as_deref().filter(|_| !latest_only);
    // Clients that track changes must learn of deletions.
    let include_deleted = filter.include_deleted || filter.updated_since.is_some();
    let mut servers = Vec::new();
    let approved_after = match after {
        Some(After::Approved(at)) => Some(at),
        own => {
            let mut at = own.and_then(|after| match after {
                After::Own(at) => Some(at),
                After::Approved(_) => None,
            });
            // Rows that server.json cannot describe are skipped, so one read may not fill a page. After eight reads,
            // a shorter page is returned.
            for _ in 0..8 {
                let query = OwnQuery {
                    after: at.as_ref(),
                    search: filter.search.as_deref(),
                    updated_since: filter.updated_since,
                    latest_only,
                    version: exact,
                    exactly: None,
                    include_deleted,
                };
                let wanted = limit - servers.len();
                let found = own_servers(connection, &reader.tenant, query, gateway, wanted).await?;
                servers.extend(found.servers);
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
        include_deleted,
    };
    // Zero if the page is full: then one row is read, only to know whether a next page exists.
    let wanted = limit - servers.len();
    let rows = approved_servers(connection, query, wanted + 1).await?;
    let more = rows.len() > wanted;
    let mut next_cursor = None;
    if more {
        let at = match rows[..wanted].last() {
            Some(last) => [last.name.clone(), last.version.clone()],
            // The page is full of own servers; the next page begins with the first approved one.
            None => [String::new(), String::new()],
        };
        next_cursor = Some(write_cursor(&After::Approved(at), filter.search.as_deref()));
    }
    for row in rows.iter().take(wanted) {
        servers.push(approved_response(row, gateway)?);
    }
    Ok(OfficialPage { servers, next_cursor })
}

/// The status of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Active,
    Deprecated,
    Deleted,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deprecated => "deprecated",
            Self::Deleted => "deleted",
        }
    }
}

/// The registry's metadata of a version, in addition to its server.json.
struct Facts {
    status: Status,
    /// The reason for this status.
    message: Option<String>,
    published_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    /// Whether this is the registry's latest version.
    latest: bool,
}

fn response(server: Value, facts: Facts, own: Value) -> Value {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let mut official = json!({
        "status": facts.status.as_str(),
        "statusChangedAt": time(facts.updated_at),
        "publishedAt": time(facts.published_at),
        "updatedAt": time(facts.updated_at),
        "isLatest": facts.latest,
    });
    if let Some(message) = facts.message {
        official["statusMessage"] = json!(escape_text(&message));
    }
    json!({ "server": server, "_meta": { OFFICIAL_META: official, OWN_META: own } })
}
