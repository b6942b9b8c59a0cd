//! The list of entries, page by page.

use protocol::{EntryType, Fqdn, Integrity, Routing, Scope};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::entry::Visibility;
use crate::{Registry, RegistryError, Tenant, content};

/// The most entries on one page.
const PAGE_LIMIT: u32 = 100;
/// Up to here totals are counted exactly.
pub(crate) const EXACT_TOTAL: i64 = 10_000;
/// Divides the parts of a cursor; no name has it.
const CURSOR_MARK: char = '/';

/// Which entries to list; all of these must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogFilter {
    /// A word in the name or description, in any case.
    pub search: Option<String>,
    /// The kind of entry.
    pub kind: Option<EntryType>,
    /// Where it runs.
    pub routing: Option<Routing>,
    /// The namespace.
    pub namespace: Option<String>,
}

/// One line of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CatalogItem {
    /// The canonical name.
    #[schema(value_type = String)]
    pub fqdn: Fqdn,
    /// The kind of entry.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// What it does.
    pub description: String,
    /// Where it runs.
    pub routing: Routing,
    /// Who may know of it.
    pub visibility: Visibility,
    /// How many tools it offers.
    pub tool_count: u32,
    /// The hash of its content.
    #[schema(value_type = String)]
    pub integrity: Integrity,
}

/// How many entries there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Total {
    /// Exactly so many.
    Total(u64),
    /// At least so many.
    TotalAtLeast(u64),
}

impl Total {
    /// Says what a count means that stopped one above [`EXACT_TOTAL`].
    pub(crate) fn of(counted: i64) -> Self {
        match counted {
            counted if counted > EXACT_TOTAL => Self::TotalAtLeast(EXACT_TOTAL.unsigned_abs()),
            counted => Self::Total(counted.unsigned_abs()),
        }
    }
}

/// A page of the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CatalogPage {
    /// The entries, sorted by name.
    pub items: Vec<CatalogItem>,
    /// Where the next page begins; `None` on the last.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How many entries pass the filter.
    #[serde(flatten)]
    pub total: Total,
}

impl Registry {
    /// Lists the entries that the tenant may see, in a stable order.
    ///
    /// The cursor names the last entry of a page, so entries that come and go
    /// meanwhile neither repeat nor hide others.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] for a cursor that is not from here, and
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
    after: Option<[String; 3]>,
    limit: usize,
) -> Result<CatalogPage, RegistryError> {
    // Which index fits depends on the filters that are given.
    sqlx::raw_sql("set local plan_cache_mode = force_custom_plan")
        .execute(&mut *connection)
        .await?;
    // Postgres cannot be asked about a NUL; nothing contains one.
    let storable = |text: &String| text.replace('\0', "\u{fffd}");
    let search = filter.search.as_ref().map(storable);
    let namespace_filter = filter.namespace.as_ref().map(storable);
    let [org, project, namespace] = match after {
        Some(parts) => parts.map(Some),
        None => [None, None, None],
    };
    let kind = filter.kind.map(EntryType::as_str);
    let routing = filter.routing.map(Routing::as_str);
    // `is_visible` is the policy's own condition, said again with the tenant as
    // an argument: the query must not depend on the policy, nor the policy on it.
    let rows = sqlx::query!(
        r#"select org, project, namespace, kind, description, visibility, tool_count, integrity,
            effective_routing(routing, namespace, namespace || ':*') as "routing!"
        from mcp_servers
        where (visibility = 'public' or (org = $1 and (visibility = 'org' or (project = $2
                and (visibility = 'project' or owner = $3)))))
            and ($4::text is null or (org collate "C", project collate "C", namespace collate "C")
                > ($4 collate "C", $5 collate "C", $6 collate "C"))
            and ($7::text is null or position(lower($7) in lower(namespace || ' ' || description)) > 0)
            and ($8::text is null or kind = $8)
            and ($9::text is null or effective_routing(routing, namespace, namespace || ':*') = $9)
            and ($10::text is null or namespace = $10)
        order by org collate "C", project collate "C", namespace collate "C"
        limit $11"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        org,
        project,
        namespace,
        search,
        kind,
        routing,
        namespace_filter,
        limit as i64 + 1,
    )
    .fetch_all(&mut *connection)
    .await?;
    let counted = sqlx::query_scalar!(
        r#"select count(*) as "count!" from (
            select from mcp_servers
            where (visibility = 'public' or (org = $1 and (visibility = 'org' or (project = $2
                    and (visibility = 'project' or owner = $3)))))
                and ($4::text is null or position(lower($4) in lower(namespace || ' ' || description)) > 0)
                and ($5::text is null or kind = $5)
                and ($6::text is null or effective_routing(routing, namespace, namespace || ':*') = $6)
                and ($7::text is null or namespace = $7)
            limit $8
        ) as counted"#,
        tenant.org(),
        tenant.project(),
        tenant.principal_name(),
        search,
        kind,
        routing,
        namespace_filter,
        EXACT_TOTAL + 1,
    )
    .fetch_one(connection)
    .await?;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let scope = Scope::new(&row.org, &row.project)?;
        let fqdn = Fqdn::server(scope, &row.namespace)?;
        let integrity =
            row.integrity.parse().map_err(|_| RegistryError::IntegrityMismatch(fqdn.clone()))?;
        items.push(CatalogItem {
            kind: kind_of(&row.kind),
            description: row.description,
            routing: content::routing(&row.routing),
            visibility: Visibility::from_word(&row.visibility),
            tool_count: row.tool_count.unsigned_abs(),
            integrity,
            fqdn,
        });
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|item| write_cursor(&item.fqdn));
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

/// Hides the form of a cursor, so that nobody comes to depend on it.
fn write_cursor(last: &Fqdn) -> String {
    let text = format!("{}{CURSOR_MARK}{}", last.scope(), last.namespace());
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_cursor(cursor: &str) -> Result<[String; 3], RegistryError> {
    let invalid = || RegistryError::Invalid("the cursor is not one of this catalog".to_owned());
    if !cursor.is_ascii() || !cursor.len().is_multiple_of(2) || cursor.len() > 1_024 {
        return Err(invalid());
    }
    let bytes: Result<Vec<u8>, _> = (0..cursor.len() / 2)
        .map(|index| u8::from_str_radix(&cursor[2 * index..2 * index + 2], 16))
        .collect();
    let text = String::from_utf8(bytes.map_err(|_| invalid())?).map_err(|_| invalid())?;
    let (scope, namespace) = text.split_once(CURSOR_MARK).ok_or_else(invalid)?;
    let scope: Scope = scope.parse().map_err(|_| invalid())?;
    let fqdn = Fqdn::server(scope.clone(), namespace).map_err(|_| invalid())?;
    Ok([scope.org().to_owned(), scope.project().to_owned(), fqdn.namespace().to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_others_are_refused() {
        let fqdn: Fqdn = "acme.web.db".parse().unwrap();
        assert_eq!(read_cursor(&write_cursor(&fqdn)).unwrap(), ["acme", "web", "db"]);
        for cursor in ["", "x", "zz", "00", "é", "6162", &"61".repeat(600)] {
            read_cursor(cursor).expect_err(cursor);
        }
    }
}
