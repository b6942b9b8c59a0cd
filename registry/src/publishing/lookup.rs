//! Writes the tables from which servers and tools are resolved.

use protocol::{ResultMode, Routing, Scope};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::entries::server_entry::ServerRow;

/// The metadata of a server that is not part of its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement<'a> {
    pub(crate) visibility: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) deprecated: Option<&'a str>,
}

/// Writes a server's row; returns the number of rows that changed.
pub(crate) async fn write_server(
    connection: &mut PgConnection,
    scope: &Scope,
    row: &ServerRow,
    placement: Placement<'_>,
) -> Result<u64, RegistryError> {
    let result = match row.result {
        ResultMode::Json => "json",
        ResultMode::Text => "text",
        ResultMode::Value => "value",
    };
    // An unchanged row is not written, so it keeps its time and its `xmin`, by which search indexes
    // recognize unchanged entries. `upstream` is cleared, because a shipped server may take over
    // the row of an approved one.
    let done = sqlx::query!(
        "insert into mcp_servers as old
            (org, project, namespace, content, integrity, routing, result, visibility, owner, deprecated)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (org, project, namespace) do update
        set content = excluded.content, integrity = excluded.integrity,
            routing = case when old.routing_is_operators then old.routing else excluded.routing end,
            result = excluded.result, deprecated = excluded.deprecated, upstream = null, updated_at = now()
        where (old.content, old.integrity, old.routing, old.result, old.deprecated, old.upstream)
            is distinct from
            (excluded.content, excluded.integrity,
            case when old.routing_is_operators then old.routing else excluded.routing end,
            excluded.result, excluded.deprecated, excluded.upstream)",
        scope.org(),
        scope.project(),
        row.namespace,
        row.content,
        row.integrity.to_string(),
        row.routing.map(Routing::as_str),
        result,
        placement.visibility,
        placement.owner,
        placement.deprecated,
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Writes the tools of a server whose row exists; returns the number of rows that changed.
pub(crate) async fn write_tools(
    connection: &mut PgConnection,
    scope: &Scope,
    row: ServerRow,
    placement: Placement<'_>,
) -> Result<u64, RegistryError> {
    // All tools in one statement, which costs one round trip and fires the triggers once.
    let names: Vec<String> = row.tools.iter().map(|tool| tool.name.clone()).collect();
    let hashes: Vec<String> = row.tools.iter().map(|tool| tool.integrity.to_string()).collect();
    let read_only: Vec<bool> = row.tools.iter().map(|tool| tool.read_only).collect();
    let deterministic: Vec<bool> = row.tools.iter().map(|tool| tool.deterministic).collect();
    let contents: Vec<String> = row.tools.into_iter().map(|tool| tool.content).collect();
    let gone = sqlx::query!(
        "delete from tools
        where org = $1 and project = $2 and namespace = $3 and name <> all ($4)",
        scope.org(),
        scope.project(),
        row.namespace,
        &names,
    )
    .execute(&mut *connection)
    .await?;
    let done = sqlx::query!(
        "insert into tools as old
            (org, project, namespace, name, content, integrity, read_only, deterministic, visibility, owner)
        select $1, $2, $3, t.name, t.content, t.integrity, t.read_only, t.deterministic, $9, $10
        from unnest($4::text[], $5::text[], $6::text[], $7::bool[], $8::bool[])
            as t (name, content, integrity, read_only, deterministic)
        on conflict (org, project, namespace, name) do update
        set content = excluded.content, integrity = excluded.integrity,
            read_only = excluded.read_only, deterministic = excluded.deterministic
        where (old.content, old.integrity, old.read_only, old.deterministic)
            is distinct from
            (excluded.content, excluded.integrity, excluded.read_only, excluded.deterministic)",
        scope.org(),
        scope.project(),
        row.namespace,
        &names,
        &contents,
        &hashes,
        &read_only,
        &deterministic,
        placement.visibility,
        placement.owner,
    )
    .execute(connection)
    .await?;
    Ok(gone.rows_affected() + done.rows_affected())
}
