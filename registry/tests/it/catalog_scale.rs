//! The catalog at a scale that needs indexes.

use std::collections::BTreeSet;

use protocol::{EntryType, Routing, ToolId, Visibility};
use registry::{CatalogFilter, EntryName, NewCapability, Tenant, Total};
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::database::Database;
use crate::published::tamper;

/// Scales a count by `PML_TEST_SCALE`; 1 is the full count.
fn scaled(count: usize) -> usize {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok());
    ((count as f64 * scale.unwrap_or(0.1)) as usize).max(1)
}

fn capability(name: &str) -> NewCapability {
    NewCapability {
        id: name.parse().unwrap(),
        version: None,
        visibility: None,
        description: format!("Does {name}."),
        input_schema: json!({ "type": "object" }),
        code: "return 1".to_owned(),
        calls: Vec::<ToolId>::new(),
        mcp_deps: Vec::new(),
        routing: Routing::Server,
    }
}

/// Capabilities are listed among the servers to the callers who may see them.
#[tokio::test]
async fn capabilities_are_listed_by_visibility() {
    let database = Database::seeded().await;
    let [web, shop, other] = database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let registry = database.registry().await;
    let alice = Tenant::member(web.scope().unwrap().clone(), "alice".parse().unwrap());
    for visibility in
        [Visibility::Private, Visibility::Project, Visibility::Org, Visibility::Public]
    {
        let new = NewCapability {
            visibility: Some(visibility),
            ..capability(&format!("maths:{}", visibility.as_str()))
        };
        registry.publish(&alice, new).await.unwrap();
    }
    let filter = CatalogFilter { kind: Some(EntryType::Deno), ..CatalogFilter::default() };
    let anonymous = Tenant::anonymous();
    for (tenant, expected) in [
        (&alice, &["org", "private", "project", "public"][..]),
        (&web, &["org", "project", "public"]),
        (&shop, &["org", "public"]),
        (&other, &["public"]),
        (&anonymous, &["public"]),
    ] {
        let page = registry.catalog(tenant, &filter, None, 100).await.unwrap();
        let names: Vec<&str> = page.items.iter().filter_map(|item| item.fqdn.action()).collect();
        assert_eq!(names, expected);
        assert_eq!(page.total, Total::Total(expected.len() as u64));
        // Together with all other entries, in one order, across page boundaries.
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let any = CatalogFilter::default();
            let page = registry.catalog(tenant, &any, cursor.as_deref(), 2).await.unwrap();
            all.extend(page.items.iter().map(|item| item.fqdn.to_string()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!(all.len(), registry::shipped_catalog().len() + expected.len());
    }
    let search =
        CatalogFilter { search: Some("DOES MATHS:PRO".to_owned()), ..CatalogFilter::default() };
    assert_eq!(registry.catalog(&web, &search, None, 9).await.unwrap().items.len(), 1);
    assert_eq!(registry.catalog(&other, &search, None, 9).await.unwrap().items.len(), 0);
    // A yanked capability disappears at once.
    let id: ToolId = "maths:public".parse().unwrap();
    let yanked = registry::VersionUpdate::Yank;
    registry.update_version(&alice, &id, Some("0.1.0".parse().unwrap()), yanked).await.unwrap();
    assert_eq!(
        registry.catalog(&anonymous, &filter, None, 9).await.unwrap().total,
        Total::Total(0)
    );
}

/// The filter by routing considers both the rules and the rows.
#[tokio::test]
async fn the_routing_filter_agrees_with_the_routing() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    tamper(
        &database,
        "update mcp_servers set routing = null where namespace in ('git', 'time', 'memory')",
    )
    .await;
    for rules in [
        &[][..],
        &["('*', 'server', 'operator')"],
        &["('git:*', 'server', 'operator')", "('time:*', 'client', 'operator')"],
    ] {
        tamper(&database, "delete from routing_rules").await;
        for rule in rules {
            tamper(&database, &format!("insert into routing_rules values {rule}")).await;
        }
        for tenant in [&web, &Tenant::anonymous()] {
            let all = registry.catalog(tenant, &CatalogFilter::default(), None, 100).await.unwrap();
            let mut found = 0;
            for routing in [Routing::Client, Routing::Server] {
                let filter = CatalogFilter { routing: Some(routing), ..CatalogFilter::default() };
                let page = registry.catalog(tenant, &filter, None, 100).await.unwrap();
                let expected: Vec<_> =
                    all.items.iter().filter(|item| item.routing == routing).cloned().collect();
                assert_eq!(page.items, expected, "{rules:?} {routing:?}");
                assert_eq!(page.total, Total::Total(expected.len() as u64));
                found += expected.len();
            }
            assert_eq!(found, all.items.len());
        }
    }
}

/// RG-10: a list of a million hits is paged in a stable order, and counted only up to the limit.
#[tokio::test]
async fn a_list_of_a_million_is_paged_in_stable_order() {
    let database = Database::seeded().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let count = scaled(1_000_000).max(20_000);
    let fill = format!(
        "insert into mcp_servers (org, project, namespace, content, integrity, visibility, owner)
        select 'acme', 'web', 'bulk_' || n, json_build_object('type', 'http', 'tools', json_build_array(),
            'description', 'Serves number ' || n || ' ' || md5(n::text))::text,
            'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=', 'public', 'x'
        from generate_series(1, {count}) n"
    );
    let mut superuser = database.superuser().await;
    superuser.execute(AssertSqlSafe(fill)).await.unwrap();
    superuser.execute("analyze public_entries; analyze mcp_servers").await.unwrap();
    let anonymous = Tenant::anonymous();
    let all =
        CatalogFilter { search: Some("serves number".to_owned()), ..CatalogFilter::default() };
    let mut seen = BTreeSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..5 {
        let page = registry.catalog(&anonymous, &all, cursor.as_deref(), 100).await.unwrap();
        assert_eq!(page.total, Total::TotalAtLeast(10_000));
        assert_eq!(page.items.len(), 100);
        for item in &page.items {
            assert!(seen.last().is_none_or(|last| *last < item.fqdn.to_string()), "{}", item.fqdn);
            seen.insert(item.fqdn.to_string());
        }
        cursor = page.next_cursor;
    }
    assert_eq!(seen.len(), 500);
    let one = CatalogFilter {
        search: Some("c4ca4238a0b923820dcc509a6f75849b".to_owned()),
        ..CatalogFilter::default()
    };
    assert_eq!(registry.catalog(&anonymous, &one, None, 100).await.unwrap().total, Total::Total(1));
    // Row-level security does not prevent the use of an index for any filter.
    let mut app = database.app().await;
    for (filter, index) in [
        ("null, like_pattern('c4ca4238a0b9'), null, null", "public_entries_search"),
        ("null, null, 'stdio', null", "public_entries_kind"),
        ("null, null, null, 'bulk_77'", "public_entries_namespace"),
        ("array['acme', 'web', 'bulk_5', ''], null, null, null", "public_entries_order"),
    ] {
        let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!(
            "explain select * from public_entries_where({filter})
            order by org collate \"C\", project collate \"C\", namespace collate \"C\", name collate \"C\" limit 50"
        )))
        .fetch_all(&mut app)
        .await
        .unwrap();
        assert!(plan.iter().any(|line| line.contains(index)), "{filter}: {plan:#?}");
    }
}

/// RG-10: a capability with ten thousand versions can still be found and published.
#[tokio::test]
async fn a_capability_with_many_versions_still_works() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    registry.publish(&web, capability("maths:many")).await.unwrap();
    let versions = scaled(10_000);
    let copy = format!(
        "insert into capability_versions
            (org, project, namespace, name, version, content, code, integrity, routing, published_by, visibility, owner)
        select org, project, namespace, name, '0.2.' || n, content, code, integrity, routing, published_by,
            visibility, owner
        from capability_versions cross join generate_series(1, {versions}) n"
    );
    assert_eq!(tamper(&database, &copy).await, versions as u64);
    let changed = NewCapability { code: "return 2".to_owned(), ..capability("maths:many") };
    let published = registry.publish(&web, changed).await.unwrap();
    assert_eq!(published.version.to_string(), format!("0.2.{}", versions + 1));
    let name: EntryName = "maths:many".parse().unwrap();
    assert_eq!(registry.entry(&web, &name).await.unwrap().code.as_deref(), Some("return 2"));
    let first = registry.entry_at(&web, &name, Some("0.1.0".parse().unwrap())).await.unwrap();
    assert_eq!(first.code.as_deref(), Some("return 1"));
    let filter = CatalogFilter { namespace: Some("maths".to_owned()), ..CatalogFilter::default() };
    assert_eq!(registry.catalog(&web, &filter, None, 9).await.unwrap().total, Total::Total(1));
}
