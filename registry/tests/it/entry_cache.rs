//! The cache of entries and tools: invalidated by every change, separate per tenant, off without a listener.

use std::sync::Arc;

use protocol::{Scope, Visibility};
use registry::{
    Effects, EntryName, Registry, RegistryError, ResolvedTool, Role, ServedEntry, Tenant,
};
use sqlx::Executor as _;

use crate::cluster::eventually;
use crate::database::{Database, is_not_found};
use crate::members::{caller, of, principal};
use crate::published::{Published, tamper};

async fn wait_for_cache(registry: &Registry) {
    eventually("changes are heard of", async || registry.caches_entries().then_some(())).await;
}

async fn served(
    registry: &Registry,
    tenant: &Tenant,
    name: &str,
) -> Result<Arc<ServedEntry>, RegistryError> {
    let name: EntryName = name.parse().unwrap();
    registry.served_entry(tenant, &name, None).await
}

/// The same entry is read from the database once, and again after each change, on every gateway.
#[tokio::test]
async fn an_entry_is_cached_until_it_changes() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let [here, there] = [database.registry().await, database.registry().await];
    wait_for_cache(&here).await;
    wait_for_cache(&there).await;
    let anonymous = Tenant::anonymous();
    let first = served(&here, &anonymous, "pml.mcp.git").await.unwrap();
    let again = served(&here, &anonymous, "pml.mcp.git").await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "it is served from the cache");
    let json: serde_json::Value = serde_json::from_slice(&first.json).unwrap();
    assert_eq!(json, serde_json::to_value(&first.entry.entry).unwrap());
    for registry in [&here, &there] {
        served(registry, &web, "pml.mcp.git").await.unwrap();
    }
    let operator = database.operator().await;
    let (pattern, change) =
        ("git:*".parse().unwrap(), registry::RuleChange::Set(protocol::Routing::Server));
    tamper(&database, "update mcp_servers set routing = null where namespace = 'git'").await;
    operator.change_rule(&pattern, change).await.unwrap();
    for registry in [&here, &there] {
        eventually("the new routing is served", async || {
            let now = served(registry, &web, "pml.mcp.git").await.unwrap();
            (now.entry.entry.routing == protocol::Routing::Server).then_some(())
        })
        .await;
    }
}

/// RG-06: a cached entry is not served to other tenants, and a hidden one is no longer served.
#[tokio::test]
async fn cached_entries_are_per_tenant() {
    let database = Database::seeded().await;
    let [web, other] = database.tenants(["acme.web", "other.web"]).await;
    let registry = database.registry().await;
    wait_for_cache(&registry).await;
    Published::new(&web, "db", &[]).write(&database).await;
    let alice = Tenant::member(web.scope().unwrap().clone(), "alice".parse().unwrap());
    for _ in 0..3 {
        served(&registry, &alice, "acme.web.db").await.unwrap();
        for outsider in [&other, &Tenant::anonymous()] {
            assert!(is_not_found(served(&registry, outsider, "acme.web.db").await));
        }
    }
    let hide = format!(
        "update mcp_servers set visibility = '{}' where namespace = 'db'",
        Visibility::Private.as_str()
    );
    tamper(&database, &hide).await;
    eventually("the hidden entry is gone", async || {
        is_not_found(served(&registry, &alice, "acme.web.db").await).then_some(())
    })
    .await;
    // Failed look-ups are not cached.
    tamper(&database, "update mcp_servers set visibility = 'public' where namespace = 'db'").await;
    for outsider in [&other, &Tenant::anonymous()] {
        served(&registry, outsider, "acme.web.db").await.unwrap();
    }
}

/// RG-01: a byte that is flipped in the database is never served, whether the entry was cached or not.
#[tokio::test]
async fn a_flipped_byte_is_never_served() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    wait_for_cache(&registry).await;
    let anonymous = Tenant::anonymous();
    let right = served(&registry, &anonymous, "pml.mcp.git").await.unwrap();
    // Bypasses all triggers, as disk damage would, so no notification is sent.
    let mut superuser = database.superuser().await;
    let flip = "set session_replication_role = replica;
        update mcp_servers set content = replace(content, '\"description\":\"', '\"description\":\"!')
        where namespace in ('git', 'time')";
    superuser.execute(sqlx::raw_sql(flip)).await.unwrap();
    // A cached entry was verified before the change.
    if let Ok(still) = served(&registry, &anonymous, "pml.mcp.git").await {
        assert_eq!(still.json, right.json);
    }
    let refused = served(&registry, &anonymous, "pml.mcp.time").await.unwrap_err();
    assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{refused}");
    // Any change of an entry invalidates the cache.
    tamper(&database, "update mcp_servers set updated_at = now() where namespace = 'memory'").await;
    eventually("the flipped entry is refused", async || {
        matches!(
            served(&registry, &anonymous, "pml.mcp.git").await,
            Err(RegistryError::IntegrityMismatch(_))
        )
        .then_some(())
    })
    .await;
}

async fn tool(registry: &Registry, tenant: &Tenant, id: &str) -> Option<Arc<ResolvedTool>> {
    let base = tenant.scope().cloned().unwrap_or_else(Scope::public);
    let ids = [id.parse().unwrap()];
    let found = registry.resolve_cached(tenant, &base, &ids).await.unwrap();
    found.tools.into_iter().next()
}

/// A tool is read once, and again after each change, including a change of the operator's class of it. The results
/// are the same as without a cache.
#[tokio::test]
async fn a_tool_is_cached_until_it_changes() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    wait_for_cache(&registry).await;
    let first = tool(&registry, &web, "git:git_status").await.unwrap();
    let again = tool(&registry, &web, "git:git_status").await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "it is served from the cache");
    // Cached and uncached ids, a duplicate and an unknown one, in any order.
    let ids = ["time:convert_time", "git:git_status", "no:such", "git:git_log", "git:git_status"]
        .map(|id| id.parse().unwrap());
    let plain = registry.resolve(&web, &ids).await.unwrap();
    for _ in 0..2 {
        assert_eq!(registry.resolve_cached(&web, web.scope().unwrap(), &ids).await.unwrap(), plain);
    }
    assert_eq!((plain.tools.len(), plain.missing.len()), (3, 1));
    let operator = database.operator().await;
    let name = "pml.mcp.git.git_status".parse().unwrap();
    for effects in [Effects::Read, Effects::Write] {
        operator.set_tool_class(&name, effects, false).await.unwrap();
        eventually("the operator's class applies", async || {
            let now = tool(&registry, &web, "git:git_status").await.unwrap();
            (now.read_only == (effects == Effects::Read)).then_some(())
        })
        .await;
    }
    tamper(
        &database,
        "update tools set content = replace(content, 'mcp-server-git', 'mcp-server-gti')
        where tool_id = 'git:git_status'",
    )
    .await;
    eventually("the changed tool is refused", async || {
        let refused = registry.resolve_cached(&web, web.scope().unwrap(), &ids).await;
        matches!(refused, Err(RegistryError::IntegrityMismatch(_))).then_some(())
    })
    .await;
}

/// RG-06: a tool that is cached for one tenant is not found for others, nor for that tenant once it is hidden.
#[tokio::test]
async fn cached_tools_are_per_tenant() {
    let database = Database::seeded().await;
    let [web, other] = database.tenants(["acme.web", "other.web"]).await;
    let registry = database.registry().await;
    wait_for_cache(&registry).await;
    Published::new(&web, "db", &[("ask", "Asks")]).write(&database).await;
    let alice = Tenant::member(web.scope().unwrap().clone(), "alice".parse().unwrap());
    for _ in 0..3 {
        assert!(tool(&registry, &alice, "db:ask").await.is_some());
        for outsider in [&other, &Tenant::anonymous()] {
            assert!(tool(&registry, outsider, "db:ask").await.is_none());
        }
    }
    let hide = "update mcp_servers set visibility = 'private' where namespace = 'db'";
    tamper(&database, hide).await;
    eventually("the hidden tool is gone", async || {
        tool(&registry, &alice, "db:ask").await.is_none().then_some(())
    })
    .await;
}

/// The gateway that deletes a project serves none of its entries afterwards, without waiting for its own notification.
#[tokio::test]
async fn a_deletion_clears_the_own_cache_at_once() {
    let database = Database::seeded().await;
    let [_, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let operator = database.operator().await;
    operator.set_member("acme", None, &principal("boss"), Role::Owner).await.unwrap();
    let boss = caller(&registry, "acme.shop", of("boss")).await;
    Published::new(&shop, "db", &[("ask", "Asks")]).write(&database).await;
    wait_for_cache(&registry).await;
    for function in ["notify_entries", "notify_routes"] {
        let silent = format!(
            "create or replace function {function}() returns trigger language plpgsql
            as 'begin return null; end'"
        );
        tamper(&database, &silent).await;
    }
    served(&registry, &boss.tenant(), "acme.shop.db").await.unwrap();
    assert!(tool(&registry, &boss.tenant(), "db:ask").await.is_some());
    registry.delete_project(&boss, "shop").await.unwrap();
    let gone = served(&registry, &boss.tenant(), "acme.shop.db").await;
    assert!(matches!(gone, Err(RegistryError::Gone(_))), "{gone:?}");
    assert!(tool(&registry, &boss.tenant(), "db:ask").await.is_none());
}

/// Without the listener nothing is cached, and changes in the meantime are served.
#[tokio::test]
async fn nothing_is_cached_without_a_listener() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    for round in 0..3 {
        wait_for_cache(&registry).await;
        served(&registry, &anonymous, "pml.mcp.git").await.unwrap();
        // Blocks new connections of the listener until the change is written.
        let limit =
            |limit: i32| format!("alter database {} connection limit {limit}", database.name());
        let mut superuser = database.superuser().await;
        let side = if round % 2 == 0 { "server" } else { "client" };
        superuser.execute(sqlx::AssertSqlSafe(limit(0))).await.unwrap();
        superuser
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and query ilike 'listen%'",
            )
            .await
            .unwrap();
        eventually("the loss is noticed", async || (!registry.caches_entries()).then_some(()))
            .await;
        tamper(
            &database,
            &format!("update mcp_servers set routing = '{side}' where namespace = 'git'"),
        )
        .await;
        let now = served(&registry, &anonymous, "pml.mcp.git").await.unwrap();
        assert_eq!(now.entry.entry.routing.as_str(), side);
        superuser.execute(sqlx::AssertSqlSafe(limit(-1))).await.unwrap();
    }
}
