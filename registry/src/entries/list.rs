//! The list of entries, page by page.

use protocol::{EntryType, Fqdn, Integrity, Routing, Scope, ToolId, Visibility};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::entries::content;
use crate::identity::tenant::Tenant;
use crate::paging::{EXACT_TOTAL, Total, cut, hex, unhex};
use crate::{Registry, RegistryError};

/// The most entries on one page.
const PAGE_LIMIT: u32 = 100;
/// Separates the parts of a cursor; no name contains it.
const CURSOR_MARK: char = '/';

/// The filter of the list; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogFilter {
    /// A case-insensitive substring of the name or of the first 1,000 characters of the description.
    pub search: Option<String>,
    /// The kind of entry.
    pub kind: Option<EntryType>,
    /// Where it runs.
    pub routing: Option<Routing>,
    /// The namespace.
    pub namespace: Option<String>,
}

/// One item of the list of entries.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CatalogItem {
    /// The canonical name.
    #[schema(value_type = String)]
    pub fqdn: Fqdn,
    /// The kind of entry.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// The first 1,000 characters of the description; the entry has the full text.
    pub description: String,
    /// Where it runs.
    pub routing: Routing,
    /// The visibility.
    pub visibility: Visibility,
    /// The number of its tools.
    pub tool_count: u32,
    /// The hash of its content.
    #[schema(value_type = String)]
    pub integrity: Integrity,
}

/// A page of the list of entries.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CatalogPage {
    /// The entries, sorted by name.
    pub items: Vec<CatalogItem>,
    /// The cursor of the next page; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number of entries that match the filter.
    #[serde(flatten)]
    pub total: Total,
}

impl Registry {
    /// Lists the entries that the tenant may see, in a stable order.
    ///
    /// The cursor names the last entry of a page, so an entry that is added or deleted between two pages neither
    /// repeats nor hides others.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor of another list, and
    /// [`RegistryError::Unavailable`] when the database does not answer.
    pub async fn catalog(
        &self,
        tenant: &Tenant,
        filter: &CatalogFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<CatalogPage, RegistryError> {
        let after = cursor.map(read_cursor).transpose()?;
        let limit = limit.clamp(1, PAGE_LIMIT) as usize;
        let filter = filter.clone();
        let own = tenant.clone();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move { page(connection, &own, &filter, after, limit).await })
        })
        .await
    }
}

async fn page(
    connection: &mut PgConnection,
    tenant: &Tenant,
    filter: &CatalogFilter,
    after: Option<[String; 4]>,
    limit: usize,
) -> Result<CatalogPage, RegistryError> {
    // The best index depends on the given filters.
    sqlx::raw_sql("set local plan_cache_mode = force_custom_plan")
        .execute(&mut *connection)
        .await?;
    // Postgres does not accept a NUL in a query, and no entry contains one.
    let storable = |text: &String| text.replace('\0', "\u{fffd}");
    let search = filter.search.as_ref().map(storable).filter(|text| !text.is_empty());
    let namespace = filter.namespace.as_ref().map(storable);
    let kind = filter.kind.map(EntryType::as_str);
    let runs = match filter.routing {
        Some(routing) => Some(runs(connection, routing).await?),
        None => None,
    };
    let runs = runs.as_ref();
    let side = filter.routing.map(Routing::as_str);
    let empty: Vec<String> = Vec::new();
    let (named, by_default, not) =
        runs.map_or((&empty, false, &empty), |r| (&r.named, r.by_default, &r.elsewhere));
    // One branch per index, each sorted and no longer than the page: all public entries, those whose row has a
    // routing, those that a rule covers, and the other entries that the tenant can see. Entries that are not public
    // are selected by the tenant argument in addition to the policy; each holds without the other.
    let rows = sqlx::query!(
        r#"with listed as (
            (select e.* from public_entries_where($4, like_pattern($5), $6, $7) e where $8::text is null
            order by org collate "C", project collate "C", namespace collate "C", name collate "C" limit $12)
            union all
            (select e.* from public_entries_where($4, like_pattern($5), $6, $7) e
            where coalesce(e.routing, '') = $8
            order by org collate "C", project collate "C", namespace collate "C", name collate "C" limit $12)
            union all
            (select e.* from public_entries_where($4, like_pattern($5), $6, $7) e
            where coalesce(e.routing, '') = '' and $8::text is not null
                and (e.namespace = any ($9) or ($10 and e.namespace <> all ($11)))
            order by org collate "C", project collate "C", namespace collate "C", name collate "C" limit $12)
        ),
        own as (
            (select org, project, namespace, '' as name, kind, routing, left(description, 1000) as description,
                tool_count, integrity, visibility
            from mcp_servers
            where org = $1 and visibility <> 'public'
                and visible_to($1, $2, $3, org, project, visibility, owner)
                and ($4::text[] is null
                    or (org collate "C", project collate "C", namespace collate "C", ''::text collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or position(lower($5) in lower(namespace || ' ' || left(description, 1000))) > 0)
                and ($6::text is null or kind = $6)
                and ($7::text is null or namespace = $7)
                and ($8::text is null or effective_routing(routing, namespace, namespace || ':*') = $8)
            order by org collate "C", project collate "C", namespace collate "C" limit $12)
            union all
            (select c.org, c.project, c.namespace, c.name, 'deno', v.routing, left(v.description, 1000), 1,
                v.integrity, c.visibility
            from capabilities c
            join capability_versions v on v.org = c.org and v.project = c.project and v.namespace = c.namespace
                and v.name = c.name and v.version = c.latest
            where c.org = $1 and c.visibility <> 'public'
                and visible_to($1, $2, $3, c.org, c.project, c.visibility, c.owner)
                and ($4::text[] is null
                    or (c.org collate "C", c.project collate "C", c.namespace collate "C", c.name collate "C")
                    > ($4[1] collate "C", $4[2] collate "C", $4[3] collate "C", $4[4] collate "C"))
                and ($5::text is null or position(lower($5) in
                    lower(c.namespace || ' ' || c.name || ' ' || left(v.description, 1000))) > 0)
                and ($6::text is null or $6 = 'deno')
                and ($7::text is null or c.namespace = $7)
                and ($8::text is null or v.routing = $8)
            order by c.org collate "C", c.project collate "C", c.namespace collate "C", c.name collate "C" limit $12)
        )
        select org as "org!", project as "project!", namespace as "namespace!", name as "name!", kind as "kind!",
            description as "description!", visibility as "visibility!", tool_count as "tool_count!",
            integrity as "integrity!", effective_routing(routing, namespace, namespace || ':*') as "routing!"
        from (
            select org, project, namespace, name, kind, routing, description, tool_count, integrity,
                'public' as visibility
            from listed
            union all
            select * from own
        ) as both_parts
        order by org collate "C", project collate "C", namespace collate "C", name collate "C"
        limit $12"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        after.as_ref().map(|parts| parts.as_slice()) as Option<&[String]>,
        search,
        kind,
        namespace,
        side,
        named,
        by_default,
        not,
        limit as i64 + 1,
    )
    .fetch_all(&mut *connection)
    .await?;
    let counted = sqlx::query_scalar!(
        r#"select count(*) as "count!" from (
            (select from public_entries_where(null, like_pattern($4), $5, $6) e
            where $7::text is null limit $11)
            union all
            (select from public_entries_where(null, like_pattern($4), $5, $6) e
            where coalesce(e.routing, '') = $7 limit $11)
            union all
            (select from public_entries_where(null, like_pattern($4), $5, $6) e
            where coalesce(e.routing, '') = '' and $7::text is not null
                and (e.namespace = any ($8) or ($9 and e.namespace <> all ($10))) limit $11)
            union all
            (select from mcp_servers
            where org = $1 and visibility <> 'public'
                and visible_to($1, $2, $3, org, project, visibility, owner)
                and ($4::text is null or position(lower($4) in lower(namespace || ' ' || left(description, 1000))) > 0)
                and ($5::text is null or kind = $5)
                and ($6::text is null or namespace = $6)
                and ($7::text is null or effective_routing(routing, namespace, namespace || ':*') = $7)
            limit $11)
            union all
            (select from capabilities c
            join capability_versions v on v.org = c.org and v.project = c.project and v.namespace = c.namespace
                and v.name = c.name and v.version = c.latest
            where c.org = $1 and c.visibility <> 'public'
                and visible_to($1, $2, $3, c.org, c.project, c.visibility, c.owner)
                and ($4::text is null or position(lower($4) in
                    lower(c.namespace || ' ' || c.name || ' ' || left(v.description, 1000))) > 0)
                and ($5::text is null or $5 = 'deno')
                and ($6::text is null or c.namespace = $6)
                and ($7::text is null or v.routing = $7)
            limit $11)
        ) as counted"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        search,
        kind,
        namespace,
        side,
        named,
        by_default,
        not,
        EXACT_TOTAL + 1,
    )
    .fetch_one(connection)
    .await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let scope = Scope::new(&row.org, &row.project)?;
        let fqdn = match row.name.as_str() {
            "" => Fqdn::server(scope, &row.namespace)?,
            name => Fqdn::of_tool(scope, &ToolId::new(&row.namespace, name)?),
        };
        let integrity =
            row.integrity.parse().map_err(|_| RegistryError::IntegrityMismatch(fqdn.clone()))?;
        items.push(CatalogItem {
            kind: kind_of(&row.kind),
            description: row.description,
            routing: content::routing(&row.routing),
            visibility: content::visibility(&row.visibility),
            tool_count: row.tool_count.unsigned_abs(),
            integrity,
            fqdn,
        });
    }
    let next_cursor = cut(&mut items, limit, |item| write_cursor(&item.fqdn));
    Ok(CatalogPage { items, next_cursor, total: Total::of(counted) })
}

fn kind_of(word: &str) -> EntryType {
    match word {
        "http" => EntryType::Http,
        "native" => EntryType::Native,
        "deno" => EntryType::Deno,
        _ => EntryType::Stdio,
    }
}

/// The namespaces that the rules route to one side.
struct Runs {
    /// Namespaces with a rule that routes them there.
    named: Vec<String>,
    /// Whether namespaces without a rule are routed there.
    by_default: bool,
    /// Namespaces with a rule that routes them to the other side.
    elsewhere: Vec<String>,
}

/// Evaluates the rules once for all entries, so that an index can be used instead of a check per entry.
async fn runs(connection: &mut PgConnection, side: Routing) -> Result<Runs, RegistryError> {
    let rules =
        sqlx::query!("select pattern, routing from routing_rules").fetch_all(connection).await?;
    let mut runs =
        // Without any rule, `effective_routing` returns `client` as well.
        Runs { named: Vec::new(), by_default: side == Routing::Client, elsewhere: Vec::new() };
    for rule in rules {
        let there = content::routing(&rule.routing) == side;
        match rule.pattern.strip_suffix(":*") {
            Some(namespace) if there => runs.named.push(namespace.to_owned()),
            Some(namespace) => runs.elsewhere.push(namespace.to_owned()),
            None if rule.pattern == "*" => runs.by_default = there,
            // A rule for a single tool does not route its server.
            None => {}
        }
    }
    Ok(runs)
}

fn write_cursor(last: &Fqdn) -> String {
    let action = last.action().unwrap_or_default();
    hex(&format!("{}{CURSOR_MARK}{}{CURSOR_MARK}{action}", last.scope(), last.namespace()))
}

fn read_cursor(cursor: &str) -> Result<[String; 4], RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor does not belong to this list".to_owned());
    let text = unhex(cursor).ok_or_else(invalid)?;
    let parts: Vec<&str> = text.split(CURSOR_MARK).collect();
    let [scope, namespace, name] = parts[..] else { return Err(invalid()) };
    let scope: Scope = scope.parse().map_err(|_| invalid())?;
    let fqdn = Fqdn::server(scope.clone(), namespace).map_err(|_| invalid())?;
    // Both names are parsed, because other text, such as a NUL, would make the query fail.
    if !name.is_empty() {
        ToolId::new(namespace, name).map_err(|_| invalid())?;
    }
    let [org, project] = [scope.org(), scope.project()].map(str::to_owned);
    Ok([org, project, fqdn.namespace().to_owned(), name.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_others_are_refused() {
        let fqdn: Fqdn = "acme.web.db".parse().unwrap();
        assert_eq!(read_cursor(&write_cursor(&fqdn)).unwrap(), ["acme", "web", "db", ""]);
        let fqdn: Fqdn = "acme.web.db.ask".parse().unwrap();
        assert_eq!(read_cursor(&write_cursor(&fqdn)).unwrap(), ["acme", "web", "db", "ask"]);
        for cursor in ["", "x", "zz", "00", "é", "6162", &"61".repeat(2_600)] {
            read_cursor(cursor).expect_err(cursor);
        }
    }
}
