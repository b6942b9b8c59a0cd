//! The writes of publishing a server, and the checks before them.

use protocol::{EntryType, Fqdn, RegistryEntry, Routing, Scope, Visibility};
use sqlx::PgConnection;

use super::{NewServer, PublishedServer, lock};
use crate::audit::{self, AuditEvent, AuditOutcome};
use crate::publish::check_shipped;
use crate::seed::{self, Placement};
use crate::version::{Chosen, Existing, choose};
use crate::{CatalogServer, RegistryError, Tenant, Version, content};

/// The largest entry of a server, in bytes, as it is stored.
const CONTENT_LIMIT: usize = 1024 * 1024;

/// Publishes a version, in a transaction of the tenant that publishes.
pub(super) async fn publish(
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
                format!("the entry has {} bytes; the limit is {CONTENT_LIMIT}", row.content.len());
            return Err(RegistryError::Invalid(message));
        }
        Ok(row)
    };
    let what = format!("server `{namespace}`");
    let (version, row) =
        match choose(&existing, new.version, &what, stored, |row| row.content.as_str())? {
            Chosen::Known(known) => return Ok(told(known.version, known.integrity, false)),
            Chosen::New(version, row) => (version, row),
        };
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

/// Refuses a name that belongs to somebody else, looks like another one, or would take over somebody's tools.
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
            exists (select from mcp_servers where org = $1 and project = $2 and namespace = $3) as "is_known!",
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
                    and ((org = $1 and (project = $2 or visibility in ('org', 'public')))
                        or (org = $4 and project = $5))
                union
                select namespace from capabilities
                where name_skeleton(namespace) = name_skeleton($3)
                    and ((org = $1 and (project = $2 or visibility in ('org', 'public')))
                        or (org = $4 and project = $5))
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
        return conflict(format!("`{namespace}` was deleted; names are never reused"));
    }
    if seen.is_public {
        return conflict(format!(
            "`{namespace}` is a server of the catalog; calls of that name mean that one"
        ));
    }
    if seen.is_operators {
        return conflict(format!("`{namespace}` is a server that the operator maintains here"));
    }
    if let Some(name) = seen.taken {
        return conflict(format!("`{namespace}:{name}` is or was a capability here"));
    }
    if seen.is_clients && routing == Routing::Server {
        return Err(RegistryError::Invalid(format!(
            "the operator's rules route tools of `{namespace}` to the user's machine; an `http` server needs a different name"
        )));
    }
    check_shipped(namespace, seen.is_known)?;
    match seen.look_alike {
        Some(near) => Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` looks like `{near}`; choose a different name"
        ))),
        None => Ok(()),
    }
}

/// Creates the server if it does not exist, and changes its visibility if requested.
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
        let message = format!(
            "`{namespace}` belongs to another principal, who alone can change its visibility"
        );
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
pub(super) async fn show_latest(
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
    // The tools' own entries are derived from the stored one, whichever version it is.
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

/// Reads a stored entry as what a catalog has of a server.
pub(crate) fn server_of(namespace: &str, entry: RegistryEntry) -> CatalogServer {
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
        server_json: entry.server_json,
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
