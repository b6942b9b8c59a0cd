//! The list of entries: stable pages, correct totals, hostile filters.

use std::collections::BTreeSet;

use protocol::{EntryType, Routing, Visibility};
use registry::{CatalogFilter, CatalogPage, Registry, RegistryError, Tenant, Total};

use crate::database::Database;
use crate::published::{Published, tamper};

async fn page(registry: &Registry, filter: &CatalogFilter, cursor: Option<&str>) -> CatalogPage {
    registry.catalog(&Tenant::anonymous(), filter, cursor, 3).await.unwrap()
}

fn names(page: &CatalogPage) -> Vec<&str> {
    page.items.iter().map(|item| item.fqdn.namespace()).collect()
}

fn search(text: &str) -> CatalogFilter {
    CatalogFilter { search: Some(text.to_owned()), ..CatalogFilter::default() }
}

/// Entries that are added or deleted between pages neither repeat nor hide others.
#[tokio::test]
async fn pages_are_stable_while_entries_change() {
    let database = Database::seeded().await;
    let [aaa, zzz] = database.tenants(["aaa.aaa", "zzz.zzz"]).await;
    let registry = database.registry().await;
    let shipped: BTreeSet<String> =
        registry::shipped_catalog().into_iter().map(|server| server.namespace).collect();
    let all = CatalogFilter::default();
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    for round in 0.. {
        let listed = page(&registry, &all, cursor.as_deref()).await;
        seen.extend(names(&listed).into_iter().map(str::to_owned));
        // Added before and after the cursor; and the last entry of the page is deleted.
        for tenant in [&aaa, &zzz] {
            Published::new(tenant, &format!("new_{round}"), &[])
                .seen_by(Visibility::Public, "someone")
                .write(&database)
                .await;
        }
        let last = listed.items.last().unwrap().fqdn.namespace();
        tamper(&database, &format!("delete from mcp_servers where namespace = '{last}'")).await;
        cursor = listed.next_cursor;
        if cursor.is_none() || round > 20 {
            break;
        }
    }
    let once: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "{seen:?}");
    assert!(shipped.is_subset(&once), "{seen:?}");
}

#[tokio::test]
async fn totals_and_limits_are_exact() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let count = registry::shipped_catalog().len();
    let anonymous = Tenant::anonymous();
    for limit in [0, 1, 100, u32::MAX] {
        let listed =
            registry.catalog(&anonymous, &CatalogFilter::default(), None, limit).await.unwrap();
        assert_eq!(listed.total, Total::Total(count as u64));
        assert_eq!(listed.items.len(), (limit.max(1) as usize).min(count));
        assert_eq!(listed.next_cursor.is_some(), limit <= 1);
    }
}

/// Totals are exact up to 10,000; further entries are not counted.
#[tokio::test]
async fn totals_are_counted_only_up_to_the_limit() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let shipped = registry::shipped_catalog().len() as u64;
    let copy = |from: u64, to: u64| {
        format!(
            "insert into mcp_servers (org, project, namespace, content, integrity, visibility, owner)
            select org, project, 'bulk_' || n, content, integrity, visibility, owner
            from mcp_servers cross join generate_series({from}, {to}) n where namespace = 'time'"
        )
    };
    tamper(&database, &copy(1, 10_000 - shipped)).await;
    assert_eq!(page(&registry, &search(""), None).await.total, Total::Total(10_000));
    tamper(&database, &copy(10_001, 10_001)).await;
    assert_eq!(page(&registry, &search(""), None).await.total, Total::TotalAtLeast(10_000));
}

#[tokio::test]
async fn filters_narrow_the_list_and_its_total() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let filter = CatalogFilter { namespace: Some("git".to_owned()), ..CatalogFilter::default() };
    let git = page(&registry, &filter, None).await;
    assert_eq!((names(&git), git.total), (vec!["git"], Total::Total(1)));
    for kind in [EntryType::Stdio, EntryType::Http, EntryType::Native] {
        let filter = CatalogFilter { kind: Some(kind), ..CatalogFilter::default() };
        let listed = page(&registry, &filter, None).await;
        assert!(listed.items.iter().all(|item| item.kind == kind));
        let expected =
            registry::shipped_catalog().iter().filter(|server| server.kind == kind).count();
        assert_eq!(listed.total, Total::Total(expected as u64), "{kind:?}");
    }
    for routing in [Routing::Client, Routing::Server] {
        let filter = CatalogFilter { routing: Some(routing), ..CatalogFilter::default() };
        let listed = page(&registry, &filter, None).await;
        assert!(!listed.items.is_empty());
        assert!(listed.items.iter().all(|item| item.routing == routing));
    }
}

/// ASCII letters match in any case, other letters as they are.
#[tokio::test]
async fn a_search_matches_name_and_description() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    assert_eq!(names(&page(&registry, &search("FILESYS"), None).await), ["filesystem"]);
    Published::new(&web, "caf", &[]).seen_by(Visibility::Public, "x").write(&database).await;
    let describe = "update mcp_servers set content = replace(content, 'Serves caf', 'Das ÉTÉ Café')
        where namespace = 'caf'";
    assert_eq!(tamper(&database, describe).await, 1);
    for text in ["ÉTÉ", "CAFé", "das É"] {
        assert_eq!(names(&page(&registry, &search(text), None).await), ["caf"], "{text}");
    }
}

#[tokio::test]
async fn hostile_search_text_is_literal() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let long = "filesystem".repeat(100_000);
    for text in ["%", "_", "\\", "''", "'; drop table tools; --", "\0", "\u{202e}", "$1", &long] {
        assert_eq!(page(&registry, &search(text), None).await.items, [], "{:.30}", text);
        let filter = CatalogFilter { namespace: Some(text.replace('\0', "")), ..search("x") };
        assert_eq!(page(&registry, &filter, None).await.items, [], "{:.30}", text);
    }
    let filter = CatalogFilter { namespace: Some("git\0".to_owned()), ..CatalogFilter::default() };
    assert_eq!(page(&registry, &filter, None).await.items, []);
    assert_eq!(
        page(&registry, &search(""), None).await.total,
        Total::Total(registry::shipped_catalog().len() as u64)
    );
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let all = CatalogFilter::default();
    let real = page(&registry, &all, None).await.next_cursor.unwrap();
    let half = &real[..real.len() / 2];
    for cursor in ["", "0", "git", "-1", "00", &real[1..], half, &format!("{real}00"), "\0", "é"] {
        let refused =
            registry.catalog(&Tenant::anonymous(), &all, Some(cursor), 3).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Invalid(_)), "`{cursor}`: {refused}");
    }
}
