//! Checks and writes a version of a server.

use protocol::{Routing, Scope};
use sqlx::PgConnection;

use super::{NewServer, PublishedServer};
use crate::RegistryError;
use crate::entries::content;
use crate::entries::server_entry::{self, CatalogServer, server_of};
use crate::entries::version::Version;
use crate::identity::tenant::Tenant;
use crate::publishing::lookup::{Placement, write_server, write_tools};
use crate::publishing::names::{check_shipped, look_alike};
use crate::publishing::publication::Publication;
use crate::publishing::versions::{Chosen, choose};
use crate::records::audit;

/// The largest stored entry of a server, in bytes.
const CONTENT_LIMIT: usize = 1024 * 1024;

/// Publishes a version, in a transaction of the publishing tenant.
pub(super) async fn publish(
    connection: &mut PgConnection,
    actor: &Tenant,
    scope: &Scope,
    new: NewServer,
    routing: Routing,
) -> Result<PublishedServer, RegistryError> {
    let namespace = new.server.namespace.clone();
    let server = Publication::server(scope.clone(), namespace.clone());
    // Locked before anything is read: otherwise two publishers could choose the same next version.
    server.lock(connection).await?;
    // Checked before `claim` creates the row: afterwards, a server that the operator wrote by hand
    // would look like the tenant's own.
    check_name(connection, actor, scope, &new.server, routing).await?;
    let visibility = server.claim(connection, actor, new.visibility).await?;
    let existing = server.versions(connection).await?;
    let fqdn = server.fqdn()?;
    let published = |version, integrity, new| PublishedServer {
        fqdn: fqdn.clone(),
        version,
        integrity,
        routing,
        new,
    };
    let stored = |version: Version| {
        let row = server_entry::row(scope, &new.server, Some(&version))?;
        // A constraint of the table has the same limit, but its error would not name it.
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
            Chosen::Known(known) => return Ok(published(known.version, known.integrity, false)),
            Chosen::New(version, row) => (version, row),
        };
    let detail = serde_json::json!({
        "version": version.to_string(),
        "integrity": row.integrity.to_string(),
        "visibility": visibility.as_str(),
        "type": new.server.kind.as_str(),
        "proxy_to": new.server.proxy_to,
    });
    audit::record(connection, actor, server.event("publish").with_detail(detail)).await?;
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
    // Not simply this version: a lower one can be published after a higher one.
    update_latest(connection, &server).await?;
    Ok(published(version, row.integrity, true))
}

/// Refuses a name that is deleted, taken, reserved by the operator's rules, or looks like another one.
async fn check_name(
    connection: &mut PgConnection,
    actor: &Tenant,
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
                where routing = 'client' and split_part(pattern, ':', 1) = $3) as "is_clients!""#,
        scope.org(),
        scope.project(),
        namespace,
        public.org(),
        public.project(),
        &names,
    )
    .fetch_one(&mut *connection)
    .await?;
    let conflict = |what: String| Err(RegistryError::Conflict(what));
    if seen.is_gone {
        return conflict(format!("`{namespace}` was deleted; names are never reused"));
    }
    if seen.is_public {
        return conflict(format!(
            "`{namespace}` is a server of the catalog; choose a different name"
        ));
    }
    if seen.is_operators {
        return conflict(format!("`{namespace}` is a server that the operator maintains here"));
    }
    if let Some(name) = seen.taken {
        return conflict(format!("`{namespace}:{name}` is or was a capability here"));
    }
    // Such a rule means that calls of this namespace stay on the user's machine. An `http` server
    // of that name would receive their arguments.
    if seen.is_clients && routing == Routing::Server {
        return Err(RegistryError::Invalid(format!(
            "the operator's rules route tools of `{namespace}` to the user's machine; an `http` server needs a different name"
        )));
    }
    check_shipped(namespace, seen.is_known)?;
    match look_alike(connection, actor, namespace).await? {
        Some(near) => Err(RegistryError::Invalid(format!(
            "namespace `{namespace}` looks like `{near}`; choose a different name"
        ))),
        None => Ok(()),
    }
}

/// Updates the tables for look-ups to the highest version that is not yanked.
pub(in crate::publishing) async fn update_latest(
    connection: &mut PgConnection,
    server: &Publication,
) -> Result<(), RegistryError> {
    let (scope, namespace) = (&server.scope, server.namespace());
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
    // If all versions are yanked, only requests for an exact version resolve, and those read
    // `server_versions`.
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
    let fqdn = server.fqdn()?;
    let (entry, _) =
        content::from_stored(fqdn.clone(), &latest.content, &latest.integrity, Routing::Client)?;
    let version: Version = latest.version.parse()?;
    // The entries of the tools are derived from the version's stored entry.
    let row = server_entry::row(scope, &server_of(namespace, entry), Some(&version))?;
    // Deriving the row must give the published content back. Otherwise the tools would get hashes
    // of contents that nobody published.
    if row.integrity.to_string() != latest.integrity {
        return Err(RegistryError::IntegrityMismatch(fqdn));
    }
    let placement = Placement {
        visibility: &latest.visibility,
        owner: &latest.owner,
        deprecated: latest.deprecated.as_deref(),
    };
    // The server first: its tools refer to its row.
    write_server(connection, scope, &row, placement).await?;
    write_tools(connection, scope, row, placement).await?;
    Ok(())
}
