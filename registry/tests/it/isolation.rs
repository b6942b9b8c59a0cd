//! Isolation of tenants: by the policies alone, by the queries alone, and by both together.

use std::collections::BTreeSet;

use protocol::{ToolId, Visibility};
use registry::{
    Absence, CatalogFilter, DiscoverQuery, NewCapability, Reader, Registry, RegistryError, Tenant,
    Total,
};
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;

use crate::database::{Database, act_as, is_not_found, sqlstate};
use crate::executions::new_execution;
use crate::members::{caller, of};
use crate::publish::capability;
use crate::published::{Published, canaries, tamper};

/// Returns the entries of [`canaries`] that a caller may see.
pub(crate) fn visible(tenant: &str, principal: &str) -> BTreeSet<String> {
    let all = [("web", "acme.web"), ("shop", "acme.shop"), ("foreign", "other.web")];
    let org = |scope: &str| scope.split('.').next().unwrap().to_owned();
    let mut names = BTreeSet::new();
    for (name, scope) in all {
        names.insert(format!("canary_{name}_public"));
        if org(scope) == org(tenant) {
            names.insert(format!("canary_{name}_org"));
        }
        if scope == tenant {
            names.insert(format!("canary_{name}_project"));
            if principal == "alice" {
                names.insert(format!("canary_{name}_private"));
            }
        }
    }
    names
}

/// The callers: scopes and principals, empty for anonymous ones.
pub(crate) const CALLERS: [(&str, &str); 7] = [
    ("acme.web", "alice"),
    ("acme.web", "bob"),
    ("acme.web", ""),
    ("acme.shop", "alice"),
    ("other.web", "alice"),
    ("nobody.here", "alice"),
    ("", ""),
];

pub(crate) fn tenant(scope: &str, principal: &str) -> Tenant {
    match (scope, principal) {
        ("", _) => Tenant::anonymous(),
        (scope, "") => Tenant::of(scope.parse().unwrap()),
        _ => Tenant::member(scope.parse().unwrap(), principal.parse().unwrap()),
    }
}

/// By the policies alone: the queries have no tenant.
#[tokio::test]
async fn raw_sql_sees_no_foreign_row() {
    let database = Database::migrated().await;
    canaries(&database).await;
    // One connection for all callers, as in a pool.
    let mut app = database.app().await;
    for (scope, principal) in CALLERS {
        act_as(&mut app, scope, principal).await;
        for (table, column) in
            [("mcp_servers", "namespace"), ("tools", "namespace"), ("pml_registry", "namespace")]
        {
            let names: Vec<String> =
                sqlx::query_scalar(AssertSqlSafe(format!("select {column} from {table}")))
                    .fetch_all(&mut app)
                    .await
                    .unwrap();
            let names: BTreeSet<String> = names.into_iter().collect();
            assert_eq!(names, visible(scope, principal), "{table} as `{scope}` `{principal}`");
        }
        app.execute("commit").await.unwrap();
    }
    // Outside of a tenant's transaction, only public rows are visible.
    let open: i64 = sqlx::query_scalar("select count(*) from tools where visibility <> 'public'")
        .fetch_one(&mut app)
        .await
        .unwrap();
    assert_eq!(open, 0);
}

/// By the policies alone: other tables, and writes.
#[tokio::test]
async fn raw_sql_changes_no_foreign_row() {
    let database = Database::migrated().await;
    let [web, shop, other] = canaries(&database).await;
    let registry = database.registry().await;
    for tenant in [&web, &shop, &other] {
        registry.begin_execution(tenant, new_execution()).await.unwrap();
        registry.create_key(tenant, crate::keys::new_key()).await.unwrap();
    }
    let mut app = database.app().await;
    act_as(&mut app, "other.web", "bob").await;
    for table in ["api_keys", "audit_log", "executions", "projects"] {
        let count = format!("select count(*) from {table} where org <> 'other'");
        let foreign: i64 =
            sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut app).await.unwrap();
        assert_eq!(foreign, 0, "{table}");
        let count = format!("select count(*) from {table}");
        let own: i64 = sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut app).await.unwrap();
        assert!(own > 0, "{table}");
    }
    for statement in [
        "update mcp_servers set result = 'json' where org = 'acme'",
        "update mcp_servers set result = 'json' where namespace = 'canary_foreign_private'",
        "delete from mcp_servers where org = 'acme'",
        "delete from mcp_servers where namespace = 'canary_foreign_private'",
        "update tools set read_only = true where org = 'acme'",
        "delete from tools where org = 'acme'",
        "update api_keys set revoked_at = now() where org = 'acme'",
        "update executions set status = 'success', finished_at = now() where org = 'acme'",
    ] {
        let changed = app.execute(statement).await.expect(statement).rows_affected();
        assert_eq!(changed, 0, "{statement}");
    }
    app.execute("commit").await.unwrap();
    // Without a condition, no policy for reading applies, only those for writing.
    act_as(&mut app, "other.web", "bob").await;
    app.execute("update mcp_servers set result = 'json'").await.unwrap();
    app.execute("delete from tools").await.unwrap();
    app.execute("commit").await.unwrap();
    let mut all = database.superuser().await;
    let changed: Vec<String> = sqlx::query_scalar(
        "select namespace from mcp_servers where result = 'json' order by namespace",
    )
    .fetch_all(&mut all)
    .await
    .unwrap();
    assert_eq!(changed, ["canary_foreign_org", "canary_foreign_project", "canary_foreign_public"]);
    let left: i64 = sqlx::query_scalar("select count(*) from tools where owner = 'alice'")
        .fetch_one(&mut all)
        .await
        .unwrap();
    assert_eq!(left, 9, "four of each project of `acme`, and alice's own of `other`");
}

#[tokio::test]
async fn rows_of_other_scopes_and_the_catalog_cannot_be_written() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let mut app = database.app().await;
    let tools = [("tool", "")];
    let planted = Published::new(&web, "planted", &tools).seen_by(Visibility::Public, "eve");
    for scope in [shop.scope().unwrap().clone(), "pml.mcp".parse().unwrap()] {
        for claimed in ["acme.web", "pml.mcp"] {
            if claimed == scope.as_str() && scope.org() != "pml" {
                continue;
            }
            act_as(&mut app, claimed, "eve").await;
            assert_eq!(sqlstate(planted.insert(&mut app, &scope).await), "42501", "as {claimed}");
            app.execute("rollback").await.unwrap();
        }
    }
    // Claiming the catalog's scope does not allow changes of its rows.
    act_as(&mut app, "pml.mcp", "operator").await;
    for statement in [
        "update tools set read_only = true",
        "update mcp_servers set routing = 'server'",
        "delete from tools",
        "delete from mcp_servers",
    ] {
        assert_eq!(app.execute(statement).await.unwrap().rows_affected(), 0, "{statement}");
    }
    // A row cannot be moved to another scope either.
    app.execute("rollback").await.unwrap();
    planted_in(&database, &web).await;
    act_as(&mut app, "acme.web", "eve").await;
    let moved = app.execute("update mcp_servers set org = 'pml', project = 'mcp'").await;
    assert_eq!(sqlstate(moved), "42501");
}

async fn planted_in(database: &Database, tenant: &Tenant) {
    Published::new(tenant, "planted", &[("tool", "")]).write(database).await;
}

#[tokio::test]
async fn the_registry_shows_no_foreign_entries() {
    let database = Database::migrated().await;
    canaries(&database).await;
    assert_shows_no_foreign_entries(&database.registry().await).await;
}

/// By the queries alone: with the policies disabled, as after a mistake in a migration.
#[tokio::test]
async fn the_queries_isolate_without_the_policies() {
    let database = Database::migrated().await;
    let [web, _, other] = canaries(&database).await;
    let registry = database.registry().await;
    let execution = new_execution();
    let id = execution.id;
    registry.begin_execution(&web, execution).await.unwrap();
    let (_, key) = registry.create_key(&web, crate::keys::new_key()).await.unwrap();
    for table in ["mcp_servers", "tools", "api_keys", "audit_log", "executions"] {
        tamper(&database, &format!("alter table {table} disable row level security")).await;
    }
    assert_shows_no_foreign_entries(&registry).await;
    assert!(is_not_found(registry.execution(&other, Reader::Project, id).await));
    assert_eq!(registry.keys(&other, None, 100).await.unwrap().items, []);
    assert!(is_not_found(registry.revoke_key(&other, key.id).await));
}

async fn assert_shows_no_foreign_entries(registry: &Registry) {
    for (scope, principal) in CALLERS {
        let caller = tenant(scope, principal);
        let seen = visible(scope, principal);
        let who = format!("`{scope}` `{principal}`");
        // The catalog, page by page, and its total.
        let mut listed = BTreeSet::new();
        let mut cursor = None;
        loop {
            let page = registry
                .catalog(&caller, &CatalogFilter::default(), cursor.as_deref(), 2)
                .await
                .unwrap();
            assert_eq!(page.total, Total::Total(seen.len() as u64), "{who}");
            listed.extend(page.items.iter().map(|item| item.fqdn.namespace().to_owned()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(listed, seen, "{who}");
        for (name, owner) in [("web", "acme.web"), ("shop", "acme.shop"), ("foreign", "other.web")]
        {
            for visibility in ["private", "project", "org", "public"] {
                let namespace = format!("canary_{name}_{visibility}");
                // By its full name.
                for full in
                    [format!("{owner}.{namespace}"), format!("{owner}.{namespace}.find_canary")]
                {
                    let found = registry.entry(&caller, &full.parse().unwrap()).await;
                    assert_eq!(found.is_ok(), seen.contains(&namespace), "{full} as {who}");
                    assert!(found.is_ok() || is_not_found(found));
                }
                // By its id: short names resolve within the organisation, other public tools by full names.
                let callable = is_of_org(scope, &namespace) && seen.contains(&namespace);
                let id: ToolId = format!("{namespace}:find_canary").parse().unwrap();
                let resolved = registry.resolve(&caller, std::slice::from_ref(&id)).await.unwrap();
                assert_eq!(resolved.tools.len(), usize::from(callable), "{namespace} as {who}");
                for missing in resolved.missing {
                    let suggested =
                        !missing.suggestions.is_empty() && missing.why == Absence::Elsewhere;
                    assert!(!suggested || seen.contains(&namespace), "{missing:?} as {who}");
                }
                let full = id.within(&owner.parse().unwrap());
                let resolved = registry.resolve(&caller, &[full]).await.unwrap();
                let callable = seen.contains(&namespace);
                assert_eq!(resolved.tools.len(), usize::from(callable), "{namespace} as {who}");
                // Suggestions for a similar name that does not exist.
                let near = format!("{namespace}x:find_canary").parse().unwrap();
                let missing = registry.resolve(&caller, &[near]).await.unwrap().missing;
                for suggested in &missing[0].suggestions {
                    assert!(
                        is_of_org(scope, suggested.namespace())
                            && seen.contains(suggested.namespace()),
                        "{suggested} as {who}"
                    );
                }
            }
        }
        for query in [
            DiscoverQuery::Text("find the canary that sings".to_owned()),
            DiscoverQuery::Pattern("*canary*".to_owned()),
            DiscoverQuery::Pattern("*".to_owned()),
        ] {
            let found: BTreeSet<String> = registry
                .discover(&caller, &query, 100)
                .await
                .unwrap()
                .into_iter()
                .map(|tool| tool.id.namespace().to_owned())
                .collect();
            // Public tools of other organisations are found by words, but not by patterns.
            let by_words = matches!(query, DiscoverQuery::Text(_));
            let expected: BTreeSet<String> =
                seen.iter().filter(|name| by_words || is_of_org(scope, name)).cloned().collect();
            assert_eq!(found, expected, "{query:?} as {who}");
        }
        for name in ["canary_foreign_private", "canary_foreign_project"] {
            let found = registry
                .discover(&caller, &DiscoverQuery::Name(name.to_owned()), 100)
                .await
                .unwrap();
            assert_eq!(!found.is_empty(), seen.contains(name), "{name} {who}");
        }
    }
}

/// By the queries alone: a deleted entry is unknown to those who could not see it.
#[tokio::test]
async fn a_hidden_tombstone_is_not_told() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let ann = caller(&registry, "acme.web", of("ann")).await;
    let bob = caller(&registry, "acme.web", of("bob")).await;
    let id: ToolId = "diary:read".parse().unwrap();
    let private = NewCapability {
        visibility: Some(Visibility::Private),
        ..capability(id.as_str(), "return 1")
    };
    registry.publish(&ann.tenant(), private).await.unwrap();
    registry.delete_capability(&ann, &id).await.unwrap();
    tamper(&database, "alter table tombstones disable row level security").await;
    let again = registry.delete_capability(&ann, &id).await.unwrap_err();
    assert!(matches!(again, RegistryError::Gone(_)), "{again}");
    assert!(is_not_found(registry.delete_capability(&bob, &id).await));
}

/// Returns whether a canary belongs to the scope's organisation.
pub(crate) fn is_of_org(scope: &str, namespace: &str) -> bool {
    let names: &[&str] = match scope {
        "acme.web" | "acme.shop" => &["canary_web_", "canary_shop_"],
        "other.web" => &["canary_foreign_"],
        _ => &[],
    };
    names.iter().any(|name| namespace.starts_with(name))
}

/// GW-09: foreign and nonexistent ids get the same answer, and nothing changes.
#[tokio::test]
async fn foreign_ids_are_answered_like_unknown_ones() {
    let database = Database::migrated().await;
    let [web, _, other] = canaries(&database).await;
    let registry = database.registry().await;
    let execution = new_execution();
    let id = execution.id;
    registry.begin_execution(&web, execution).await.unwrap();
    let (shown, key) = registry.create_key(&web, crate::keys::new_key()).await.unwrap();
    for unknown_id in [id, key.id, Uuid::now_v7()] {
        let message = |error: registry::RegistryError| {
            error.to_string().replace(&unknown_id.to_string(), "ID")
        };
        let unknown = "`ID` is not in the registry";
        assert_eq!(
            message(registry.execution(&other, Reader::Project, unknown_id).await.unwrap_err()),
            unknown
        );
        let finished = crate::executions::finished();
        let refused = registry.finish_execution(&other, unknown_id, finished).await.unwrap_err();
        assert_eq!(message(refused), unknown);
        assert_eq!(message(registry.revoke_key(&other, unknown_id).await.unwrap_err()), unknown);
    }
    registry.authenticate(shown.expose()).await.unwrap();
    assert_eq!(registry.execution(&web, Reader::Project, id).await.unwrap().finished_at, None);
}
