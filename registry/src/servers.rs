//! MCP servers that tenants publish: once, in versions that never change.
//!
//! Names and versions are in tables of their own. The present version of each is written to `mcp_servers` and
//! `tools`, where the operator's servers are as well, so whoever looks something up knows one place.

use protocol::{EntryType, Fqdn, Integrity, RegistryEntry, Routing, Scope, Visibility};
use sqlx::PgConnection;

use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::official::server_json;
use crate::publish::RESERVED;
use crate::seed::{self, Placement};
use crate::{CatalogServer, Registry, RegistryError, Remark, Tenant, Version, content};

/// The largest entry of a server, in bytes, as it is stored.
const CONTENT_LIMIT: usize = 1024 * 1024;

/// A server that is about to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct NewServer {
    /// What it is; `stdio` or `http`, with nothing in it that only the operator says.
    pub server: CatalogServer,
    /// Its version; without one, the next patch.
    pub version: Option<Version>,
    /// Who may know of it; without it, as before, and first its project.
    pub visibility: Option<Visibility>,
}

/// What was published.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedServer {
    /// Its full name.
    pub fqdn: Fqdn,
    /// Its version.
    pub version: Version,
    /// The hash of its content.
    pub integrity: Integrity,
    /// Where its tools run.
    pub routing: Routing,
    /// Whether this made it; false when the very same was published before.
    pub new: bool,
}

impl Registry {
    /// Publishes a version of an MCP server in the tenant's scope.
    ///
    /// Publishing the same once more changes nothing and is no error. Where its tools run follows from its kind, and
    /// nothing that its author says of a tool counts as the operator's word.
    ///
    /// # Errors
    /// Returns [`RegistryError::Conflict`] when the version has other bytes, the name is taken or was deleted, or
    /// another principal's server is to be shown to others, [`RegistryError::Invalid`] for a name that is reserved or
    /// could be taken for another one, and [`RegistryError::Denied`] for a tenant that may not write its scope.
    pub async fn publish_server(
        &self,
        tenant: &Tenant,
        mut new: NewServer,
    ) -> Result<PublishedServer, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let namespace = new.server.namespace.as_str();
        Fqdn::server(scope.clone(), namespace)?;
        if RESERVED.contains(&namespace) {
            return Err(RegistryError::Invalid(format!("namespace `{namespace}` is reserved")));
        }
        let routing = match new.server.kind {
            EntryType::Http => Routing::Server,
            EntryType::Stdio => Routing::Client,
            other => {
                let message = format!("a server is `stdio` or `http`, not `{}`", other.as_str());
                return Err(RegistryError::Invalid(message));
            }
        };
        // Both are the operator's to say.
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
        self.forget_entries();
        published
    }

    /// Forgets what this process remembers of entries: it need not wait for its own notification.
    pub(crate) fn forget_entries(&self) {
        self.entries.forget();
        self.servers.forget();
    }

    /// Says something of one version of a published server of the tenant's scope, or of all.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant's scope has no such version that the tenant may see.
    pub async fn remark_server(
        &self,
        tenant: &Tenant,
        namespace: &str,
        version: Option<Version>,
        remark: Remark,
    ) -> Result<(), RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let (actor, namespace) = (tenant.clone(), namespace.to_owned());
        let missing = || RegistryError::NotFound(namespace.clone());
        let fqdn = Fqdn::server(scope.clone(), &namespace).map_err(|_| missing())?;
        let remarked = self
            .in_tenant(tenant, move |connection| {
                Box::pin(async move {
                    lock(connection, &scope, &namespace).await?;
                    let name = match version {
                        Some(version) => format!("{fqdn}@{version}"),
                        None => fqdn.to_string(),
                    };
                    let (action, deprecated, yank) = match &remark {
                        Remark::Deprecated(why) => ("server.deprecate", Some(why.as_str()), false),
                        Remark::NotDeprecated => ("server.undeprecate", None, false),
                        Remark::Yanked => ("server.yank", None, true),
                    };
                    let event = AuditEvent::new(action, name.as_str(), AuditOutcome::Allowed);
                    let changed = sqlx::query!(
                        "update server_versions
                    set deprecated = case when $5 then deprecated else $6 end,
                        yanked_at = case when $5 then coalesce(yanked_at, now()) else yanked_at end
                    where org = $1 and project = $2 and namespace = $3
                        and ($4::text is null or version = $4)",
                        scope.org(),
                        scope.project(),
                        namespace,
                        version.map(|version| version.to_string()),
                        yank,
                        deprecated,
                    )
                    .execute(&mut *connection)
                    .await?;
                    if changed.rows_affected() == 0 {
                        return Err(RegistryError::NotFound(name));
                    }
                    show_latest(connection, &scope, &namespace).await?;
                    audit::record(connection, &actor, event).await
                })
            })
            .await;
        self.forget_entries();
        remarked
    }
}

/// Lets one at a time publish under a name, until the transaction ends.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    scope: &Scope,
    namespace: &str,
) -> Result<(), RegistryError> {
    let key = format!("pml publish server {scope}.{namespace}");
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", key)
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns the version of a server in the official API, if it is one there.
pub(crate) async fn official_version(
    connection: &mut PgConnection,
    scope: &Scope,
    namespace: &str,
) -> Result<Option<String>, RegistryError> {
    let row = sqlx::query!(
        "select content, integrity from mcp_servers
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        namespace,
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let fqdn = Fqdn::server(scope.clone(), namespace)?;
    let read = content::from_stored(fqdn.clone(), &row.content, &row.integrity, Routing::Client);
    // One that was tampered with can still be deleted.
    let Ok((entry, _)) = read else { return Ok(None) };
    let server = server_json::of_entry(&fqdn, &entry);
    Ok(server.and_then(|server| server["version"].as_str().map(str::to_owned)))
}

/// A version that is there already.
struct Existing {
    version: Version,
    content: String,
    integrity: Integrity,
}

async fn publish(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    new: NewServer,
    routing: Routing,
) -> Result<PublishedServer, RegistryError> {
    let namespace = new.server.namespace.clone();
    lock(connection, scope, &namespace).await?;
    check_name(connection, scope, &new.server, routing).await?;
    let visibility = claim(connection, actor, scope, &namespace, new.visibility).await?;
    let existing = existing(connection, scope, &namespace).await?;
    let fqdn = Fqdn::server(scope.clone(), &namespace)?;
    let told = |version, integrity, new| PublishedServer {
        fqdn: fqdn.clone(),
        version,
        integrity,
        routing,
        new,
    };
    let stored = |version: Version| {
        let row = seed::row(scope, &new.server, Some(&version))?;
        if row.content.len() > CONTENT_LIMIT {
            let message =
                format!("the entry has {} bytes; at most {CONTENT_LIMIT}", row.content.len());
            return Err(RegistryError::Invalid(message));
        }
        Ok(row)
    };
    let version = match new.version {
        Some(version) => version,
        None => match existing.first() {
            None => Version::FIRST,
            // The same once more is what is there.
            Some(last) if stored(last.version)?.content == last.content => {
                return Ok(told(last.version, last.integrity, false));
            }
            Some(last) => last.version.next_patch(),
        },
    };
    let row = stored(version)?;
    if let Some(same) = existing.iter().find(|existing| existing.version == version) {
        if same.content == row.content {
            return Ok(told(version, same.integrity, false));
        }
        return Err(RegistryError::Conflict(format!(
            "version {version} of server `{namespace}` is published with another content"
        )));
    }
    let detail = serde_json::json!({
        "version": version.to_string(),
        "integrity": row.integrity.to_string(),
        "visibility": visibility.as_str(),
        "type": new.server.kind.as_str(),
        "proxy_to": new.server.proxy_to,
    });
    let event = AuditEvent::new("server.publish", namespace.as_str(), AuditOutcome::Allowed);
    audit::record(connection, actor, event.with_detail(detail)).await?;
    sqlx::query!(
        "insert into server_versions
            (org, project, namespace, version, content, integrity, published_by, visibility, owner)
        select org, project, namespace, $4, $5, $6, $7, visibility, owner from published_servers
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        namespace,
        version.to_string(),
        row.content,
        row.integrity.to_string(),
        actor.principal_name(),
    )
    .execute(&mut *connection)
    .await?;
    show_latest(connection, scope, &namespace).await?;
    Ok(told(version, row.integrity, true))
}

/// Refuses a name that is another's, could be taken for another's, or would take tools away from somebody.
async fn check_name(
    connection: &mut PgConnection,
    scope: &Scope,
    server: &CatalogServer,
    routing: Routing,
) -> Result<(), RegistryError> {
    let public = Scope::public();
    let namespace = server.namespace.as_str();
    let names: Vec<String> = server.tools.iter().map(|tool| tool.descriptor.name.clone()).collect();
    let seen = sqlx::query!(
        r#"select
            exists (select from mcp_servers s where s.org = $1 and s.project = $2 and s.namespace = $3
                and not exists (select from published_servers p
                    where p.org = $1 and p.project = $2 and p.namespace = $3)) as "is_operators!",
            exists (select from mcp_servers where org = $4 and project = $5 and namespace = $3) as "is_public!",
            exists (select from tombstones where org = $1 and project = $2 and namespace = $3 and name = '')
                as "is_gone!",
            (select min(name) from (
                select name from capabilities
                where org = $1 and project = $2 and namespace = $3 and name = any ($6)
                union
                select name from tombstones
                where org = $1 and project = $2 and namespace = $3 and name = any ($6)
            ) taken) as taken,
            exists (select from routing_rules
                where routing = 'client' and split_part(pattern, ':', 1) = $3) as "is_clients!",
            (select min(near.namespace) from (
                select namespace from mcp_servers
                where name_skeleton(namespace) = name_skeleton($3)
                    and ((org = $1 and project = $2) or (org = $4 and project = $5))
                union
                select namespace from capabilities
                where name_skeleton(namespace) = name_skeleton($3)
                    and ((org = $1 and project = $2) or (org = $4 and project = $5))
            ) near where near.namespace <> $3) as look_alike"#,
        scope.org(),
        scope.project(),
        namespace,
        public.org(),
        public.project(),
        &names,
    )
    .fetch_one(connection)
    .await?;
    let conflict = |what: String| Err(RegistryError::Conflict(what));
    if seen.is_gone {
        return conflict(format!("`{namespace}` was deleted; a name is never given again"));
    }
    if seen.is_public {
        return conflict(format!(
            "`{namespace}` is a server of the public catalog; whoever calls it means that one"
        ));
    }
    if seen.is_operators {
        return conflict(format!("`{namespace}` is a server that the operator keeps here"));
    }
    if let Some(name) = seen.taken {
        return conflict(format!("`{namespace}:{name}` is or was a capability here"));
    }
    if seen.is_clients && routing == Routing::Server {
        return Err(RegistryError::Invalid(format!(
            "the operator's rules say that tools of `{namespace}` run on the user's machine; an `http` server needs another name"
        )));
    }
    match seen.look_alike {
        Some(near) => Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` could be taken for `{near}`; use a name of its own"
        ))),
        None => Ok(()),
    }
}

/// Makes the server where it is missing, and changes who may know of it where that was asked for.
async fn claim(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    namespace: &str,
    wanted: Option<Visibility>,
) -> Result<Visibility, RegistryError> {
    let owner = actor.principal_name();
    sqlx::query!(
        "insert into published_servers (org, project, namespace, visibility, owner)
        values ($1, $2, $3, $4, $5) on conflict do nothing",
        scope.org(),
        scope.project(),
        namespace,
        wanted.unwrap_or(Visibility::Project).as_str(),
        owner,
    )
    .execute(&mut *connection)
    .await?;
    let found = sqlx::query!(
        "select visibility, owner from published_servers
        where org = $1 and project = $2 and namespace = $3
            and visibility <> 'deleted' and (visibility <> 'private' or owner = $4)",
        scope.org(),
        scope.project(),
        namespace,
        owner,
    )
    .fetch_optional(&mut *connection)
    .await?;
    // Another principal's private one, or one that was. That it is taken can be seen; what it is cannot.
    let found = found
        .ok_or_else(|| RegistryError::Conflict(format!("`{namespace}` is taken in this scope")))?;
    let before = content::visibility(&found.visibility);
    let Some(wanted) = wanted.filter(|wanted| *wanted != before) else { return Ok(before) };
    if found.owner != owner {
        let message =
            format!("`{namespace}` is another principal's, who alone says who may know of it");
        return Err(RegistryError::Conflict(message));
    }
    let detail = serde_json::json!({ "from": before.as_str(), "to": wanted.as_str() });
    let event = AuditEvent::new("server.show", namespace, AuditOutcome::Allowed);
    audit::record(connection, actor, event.with_detail(detail)).await?;
    sqlx::query!(
        "update published_servers set visibility = $4
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        namespace,
        wanted.as_str(),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update mcp_servers set visibility = $4, updated_at = now()
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        namespace,
        wanted.as_str(),
    )
    .execute(connection)
    .await?;
    Ok(wanted)
}

/// Returns the versions that are there, the highest first.
async fn existing(
    connection: &mut PgConnection,
    scope: &Scope,
    namespace: &str,
) -> Result<Vec<Existing>, RegistryError> {
    let rows = sqlx::query!(
        "select version, content, integrity from server_versions
        where org = $1 and project = $2 and namespace = $3
        order by rank desc",
        scope.org(),
        scope.project(),
        namespace,
    )
    .fetch_all(connection)
    .await?;
    let name = Fqdn::server(scope.clone(), namespace)?;
    rows.into_iter()
        .map(|row| {
            let integrity = row.integrity.parse();
            let integrity =
                integrity.map_err(|_| RegistryError::IntegrityMismatch(name.clone()))?;
            Ok(Existing { version: row.version.parse()?, content: row.content, integrity })
        })
        .collect()
}

/// Brings what everybody looks up to the highest version that is not yanked.
async fn show_latest(
    connection: &mut PgConnection,
    scope: &Scope,
    namespace: &str,
) -> Result<(), RegistryError> {
    let latest = sqlx::query!(
        "select version, content, integrity, deprecated, visibility, owner from server_versions
        where org = $1 and project = $2 and namespace = $3 and yanked_at is null
        order by rank desc limit 1",
        scope.org(),
        scope.project(),
        namespace,
    )
    .fetch_optional(&mut *connection)
    .await?;
    sqlx::query!(
        "update published_servers set latest = $4
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        namespace,
        latest.as_ref().map(|latest| latest.version.as_str()),
    )
    .execute(&mut *connection)
    .await?;
    let Some(latest) = latest else {
        sqlx::query!(
            "delete from mcp_servers where org = $1 and project = $2 and namespace = $3",
            scope.org(),
            scope.project(),
            namespace,
        )
        .execute(connection)
        .await?;
        return Ok(());
    };
    let fqdn = Fqdn::server(scope.clone(), namespace)?;
    let (entry, _) =
        content::from_stored(fqdn.clone(), &latest.content, &latest.integrity, Routing::Client)?;
    let version: Version = latest.version.parse()?;
    // The tools' own entries are made of the stored one, whichever version it is.
    let row = seed::row(scope, &server_of(namespace, entry), Some(&version))?;
    if row.integrity.to_string() != latest.integrity {
        return Err(RegistryError::IntegrityMismatch(fqdn));
    }
    let placement = Placement {
        visibility: &latest.visibility,
        owner: &latest.owner,
        deprecated: latest.deprecated.as_deref(),
    };
    seed::write_server(connection, scope, &row, placement).await?;
    seed::write_tools(connection, scope, row, placement).await?;
    Ok(())
}

fn server_of(namespace: &str, entry: RegistryEntry) -> CatalogServer {
    let routing = match entry.kind {
        EntryType::Http => Routing::Server,
        _ => Routing::Client,
    };
    CatalogServer {
        namespace: namespace.to_owned(),
        kind: entry.kind,
        description: entry.description,
        install: entry.install,
        proxy_to: entry.proxy_to,
        env_required: entry.env_required,
        routing: Some(routing),
        warnings: entry.warnings,
        result: protocol::ResultMode::default(),
        tools: entry
            .tools
            .into_iter()
            .map(|descriptor| crate::CatalogTool {
                descriptor,
                read_only: false,
                deterministic: false,
            })
            .collect(),
    }
}
