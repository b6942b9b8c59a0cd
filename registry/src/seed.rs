//! Brings the catalog to the state that a release ships.

use std::collections::HashSet;

use protocol::{
    EntryType, Fqdn, Install, Integrity, RegistryEntry, ResultMode, Routing, RoutingRules, Scope,
    ToolDescriptor, ToolId, ToolPattern,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;

use crate::{RegistryError, Version, content};

/// An MCP server of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogServer {
    /// The name before the colon in its tools' ids.
    pub namespace: String,
    /// Its transport.
    pub kind: EntryType,
    /// The description.
    pub description: String,
    /// For `stdio`: how to start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// For `http`: the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_to: Option<String>,
    /// Variables that the upstream needs; those of a `stdio` server are in `install`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_required: Vec<String>,
    /// Where its tools run; `None` means that the rules decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Warnings for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How a text result is interpreted.
    #[serde(default)]
    pub result: ResultMode,
    /// The server.json of the official registry that describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_json: Option<Value>,
    /// Its tools.
    pub tools: Vec<CatalogTool>,
}

/// A tool of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogTool {
    /// As MCP describes it.
    #[serde(flatten)]
    pub descriptor: ToolDescriptor,
    /// It changes nothing and may run early.
    #[serde(default)]
    pub read_only: bool,
    /// Equal arguments give equal results.
    #[serde(default)]
    pub deterministic: bool,
}

/// The result of a seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedReport {
    /// Servers in the catalog now.
    pub servers: u64,
    /// Tools in the catalog now.
    pub tools: u64,
    /// Rows that were added, changed or removed.
    pub changed: u64,
}

/// A server as it is stored, with its tools.
pub(crate) struct ServerRow {
    namespace: String,
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
    routing: Option<Routing>,
    result: ResultMode,
    pub(crate) tools: Vec<ToolRow>,
}

/// The visibility of a server, and its metadata besides the content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement<'a> {
    pub(crate) visibility: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) deprecated: Option<&'a str>,
}

/// The scope of the operator's servers.
const OPERATORS: Placement<'static> =
    Placement { visibility: "public", owner: "operator", deprecated: None };

/// A tool as it is stored.
pub(crate) struct ToolRow {
    pub(crate) name: String,
    pub(crate) content: String,
    pub(crate) integrity: Integrity,
    read_only: bool,
    deterministic: bool,
}

/// Checks a catalog and returns its rows, sorted, so that two gateways that
/// seed at once lock them in the same order.
pub(crate) fn rows(catalog: &[CatalogServer]) -> Result<Vec<ServerRow>, RegistryError> {
    let mut rows = catalog
        .iter()
        .map(|server| row(&Scope::public(), server, None))
        .collect::<Result<Vec<_>, _>>()?;
    rows.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].namespace == pair[1].namespace) {
        let message = format!("the catalog has server `{}` twice", pair[0].namespace);
        return Err(RegistryError::Conflict(message));
    }
    Ok(rows)
}

/// Builds the stored form of a server of a scope. Its tools are identical in every version that does not change them,
/// so only the server itself contains the version.
pub(crate) fn row(
    scope: &Scope,
    server: &CatalogServer,
    version: Option<&Version>,
) -> Result<ServerRow, RegistryError> {
    let fqdn = Fqdn::server(scope.clone(), &server.namespace)?;
    let lacking = match server.kind {
        EntryType::Stdio if server.install.is_none() => Some("`install`"),
        EntryType::Http if server.proxy_to.is_none() => Some("`proxy_to`"),
        EntryType::Deno => Some("another kind: a capability is published, not seeded"),
        _ => None,
    };
    if let Some(lacking) = lacking {
        let message = format!("server `{}` needs {lacking}", server.namespace);
        return Err(RegistryError::Invalid(message));
    }
    let entry = |fqdn: Fqdn, description: &str, tools: Vec<ToolDescriptor>| RegistryEntry {
        fqdn: fqdn.to_string(),
        kind: server.kind,
        description: description.to_owned(),
        install: server.install.clone(),
        proxy_to: server.proxy_to.clone(),
        env_required: server.env_required.clone(),
        tools,
        warnings: server.warnings.clone(),
        server_version: None,
        server_json: None,
        capability: None,
        deprecated: None,
        // Neither is content; `to_stored` leaves both out.
        routing: Routing::Client,
        integrity: Integrity::of(b""),
    };
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(server.tools.len());
    for tool in &server.tools {
        let id = ToolId::new(&server.namespace, &tool.descriptor.name)?;
        if !names.insert(tool.descriptor.name.as_str()) {
            return Err(RegistryError::Conflict(format!(
                "server `{}` has tool `{id}` twice",
                server.namespace
            )));
        }
        let name = Fqdn::of_tool(scope.clone(), &id);
        let entry = entry(name, &tool.descriptor.description, vec![tool.descriptor.clone()]);
        let (content, integrity) = content::to_stored(&entry)?;
        tools.push(ToolRow {
            name: tool.descriptor.name.clone(),
            content,
            integrity,
            read_only: tool.read_only,
            deterministic: tool.deterministic,
        });
    }
    let descriptors = server.tools.iter().map(|tool| tool.descriptor.clone()).collect();
    let mut whole = entry(fqdn, &server.description, descriptors);
    whole.server_version = version.map(ToString::to_string);
    whole.server_json = server.server_json.clone();
    let (content, integrity) = content::to_stored(&whole)?;
    Ok(ServerRow {
        namespace: server.namespace.clone(),
        content,
        integrity,
        routing: server.routing,
        result: server.result,
        tools,
    })
}

/// Writes the catalog and the shipped rules in the running transaction.
pub(crate) async fn write(
    connection: &mut PgConnection,
    rows: Vec<ServerRow>,
) -> Result<SeedReport, RegistryError> {
    // One seed at a time, whichever gateway it comes from.
    sqlx::query!("select pg_advisory_xact_lock(hashtext('pml seed'))")
        .execute(&mut *connection)
        .await?;
    let public = Scope::public();
    sqlx::query!("insert into orgs (name) values ($1) on conflict do nothing", public.org())
        .execute(&mut *connection)
        .await?;
    sqlx::query!(
        "insert into projects (org, name) values ($1, $2) on conflict do nothing",
        public.org(),
        public.project(),
    )
    .execute(&mut *connection)
    .await?;
    let mut report = SeedReport { changed: write_rules(connection).await?, ..Default::default() };
    let namespaces: Vec<String> = rows.iter().map(|row| row.namespace.clone()).collect();
    let gone = sqlx::query!(
        "delete from mcp_servers
        where org = $1 and project = $2 and namespace <> all ($3) and upstream is null",
        public.org(),
        public.project(),
        &namespaces,
    )
    .execute(&mut *connection)
    .await?;
    report.changed += gone.rows_affected();
    for row in rows {
        report.servers += 1;
        report.tools += row.tools.len() as u64;
        report.changed += write_server(connection, &public, &row, OPERATORS).await?;
        report.changed += write_tools(connection, &public, row, OPERATORS).await?;
    }
    Ok(report)
}

/// Writes a server where everybody looks it up.
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
    let done = sqlx::query!(
        "insert into mcp_servers as old
            (org, project, namespace, content, integrity, routing, result, visibility, owner, deprecated)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (org, project, namespace) do update
        set content = excluded.content, integrity = excluded.integrity, routing = excluded.routing,
            result = excluded.result, deprecated = excluded.deprecated, upstream = null, updated_at = now()
        where (old.content, old.integrity, old.routing, old.result, old.deprecated, old.upstream)
            is distinct from
            (excluded.content, excluded.integrity, excluded.routing, excluded.result, excluded.deprecated,
            excluded.upstream)",
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

/// Writes a server that was approved from another registry, with the tools that the operator knows of it.
pub(crate) async fn write_approved(
    connection: &mut PgConnection,
    scope: &Scope,
    row: ServerRow,
    upstream: &str,
) -> Result<(), RegistryError> {
    write_server(connection, scope, &row, OPERATORS).await?;
    sqlx::query!(
        "update mcp_servers set upstream = $4, updated_at = now()
        where org = $1 and project = $2 and namespace = $3",
        scope.org(),
        scope.project(),
        row.namespace,
        upstream,
    )
    .execute(&mut *connection)
    .await?;
    write_tools(connection, scope, row, OPERATORS).await?;
    Ok(())
}

/// Writes the tools of a server, which is there already.
pub(crate) async fn write_tools(
    connection: &mut PgConnection,
    scope: &Scope,
    row: ServerRow,
    placement: Placement<'_>,
) -> Result<u64, RegistryError> {
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

/// Brings the shipped rules up to date and leaves the operator's alone.
async fn write_rules(connection: &mut PgConnection) -> Result<u64, RegistryError> {
    let rules: Vec<(ToolPattern, Routing)> = RoutingRules::shipped().into();
    let patterns: Vec<String> = rules.iter().map(|(pattern, _)| pattern.to_string()).collect();
    let routings: Vec<String> =
        rules.iter().map(|(_, routing)| routing.as_str().to_owned()).collect();
    let gone = sqlx::query!(
        "delete from routing_rules where origin = 'shipped' and pattern <> all ($1)",
        &patterns,
    )
    .execute(&mut *connection)
    .await?;
    let done = sqlx::query!(
        "insert into routing_rules as old (pattern, routing, origin)
        select pattern, routing, 'shipped' from unnest($1::text[], $2::text[]) as t (pattern, routing)
        on conflict (pattern) do update set routing = excluded.routing, updated_at = now()
        where old.origin = 'shipped' and old.routing <> excluded.routing",
        &patterns,
        &routings,
    )
    .execute(connection)
    .await?;
    Ok(gone.rows_affected() + done.rows_affected())
}
