//! Updates the catalog to the state that a release ships.

use protocol::{Routing, RoutingRules, Scope, ToolPattern};
use sqlx::PgConnection;

use crate::RegistryError;
use crate::database::operator::Operator;
use crate::database::transaction::in_tenant;
use crate::entries::server_entry::{CatalogServer, ServerRow, row};
use crate::identity::tenant::Tenant;
use crate::publishing::lookup::{Placement, write_server, write_tools};

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

/// The visibility and owner of the operator's servers.
const OPERATOR_PLACEMENT: Placement<'static> =
    Placement { visibility: "public", owner: "operator", deprecated: None };

impl Operator {
    /// Updates the catalog and the shipped routing rules to the given state; unchanged rows are not written.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] or [`RegistryError::Name`] for an invalid catalog, and then changes nothing.
    pub async fn seed(&self, catalog: &[CatalogServer]) -> Result<SeedReport, RegistryError> {
        let rows = rows(catalog)?;
        in_tenant(self.pool.clone(), &Tenant::of(Scope::public()), move |connection| {
            Box::pin(async move { write(connection, rows).await })
        })
        .await
    }
}

/// Checks a catalog and returns its rows, sorted, so that two gateways that seed concurrently lock them in the same
/// order.
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

/// Writes the catalog and the shipped rules in the running transaction.
async fn write(
    connection: &mut PgConnection,
    rows: Vec<ServerRow>,
) -> Result<SeedReport, RegistryError> {
    // One seed at a time, across all gateways.
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
    // Servers that were approved from another registry have an `upstream`; they are not part of the shipped catalog.
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
        report.changed += write_server(connection, &public, &row, OPERATOR_PLACEMENT).await?;
        report.changed += write_tools(connection, &public, row, OPERATOR_PLACEMENT).await?;
    }
    Ok(report)
}

/// Writes a server that was approved from another registry, with the tools that the operator supplied.
pub(crate) async fn write_approved(
    connection: &mut PgConnection,
    scope: &Scope,
    row: ServerRow,
    upstream: &str,
) -> Result<(), RegistryError> {
    write_server(connection, scope, &row, OPERATOR_PLACEMENT).await?;
    // After `write_server`, which clears `upstream`: a shipped server that takes over the namespace
    // of an approved one must not keep it.
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
    write_tools(connection, scope, row, OPERATOR_PLACEMENT).await?;
    Ok(())
}

/// Updates the shipped rules; the operator's are unchanged.
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
