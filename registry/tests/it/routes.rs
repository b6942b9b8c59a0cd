//! The routing snapshot follows the database.

use protocol::{Routing, ToolId};
use registry::{Registry, RegistryError, RuleChange, RuleOrigin, Tenant};
use sqlx::Executor as _;

use crate::cluster::eventually;
use crate::database::{Database, is_not_found};
use crate::keys::listening;
use crate::published::tamper;

fn id(text: &str) -> ToolId {
    text.parse().unwrap()
}

async fn becomes(registry: &Registry, tool: &str, routing: Routing) {
    let tool = id(tool);
    eventually("the changed rule is seen", async || {
        (registry.routes().rules.route(&tool) == routing).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_changed_rule_reaches_every_gateway() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let (here, there) = (database.registry().await, database.registry().await);
    let tool = "acmetool:run";
    let before = there.routes();
    assert_eq!((before.version, before.rules.route(&id(tool))), (1, Routing::Client));
    assert_eq!(before.etag, here.routes().etag);

    let pattern = "acmetool:*".parse().unwrap();
    operator.change_rule(&pattern, RuleChange::Set(Routing::Server)).await.unwrap();
    for registry in [&here, &there] {
        becomes(registry, tool, Routing::Server).await;
    }
    let after = there.routes();
    assert!(after.version > before.version);
    assert_ne!(after.etag, before.etag);
    // Old snapshots stay valid for those that hold them.
    assert_eq!(before.rules.route(&id(tool)), Routing::Client);

    operator.change_rule(&pattern, RuleChange::Unset).await.unwrap();
    becomes(&there, tool, Routing::Client).await;
    assert_eq!(there.routes().etag, before.etag, "the same rules have the same name");
    assert!(is_not_found(operator.change_rule(&pattern, RuleChange::Unset).await));
}

/// A shipped rule cannot be unset, and applies again when the operator's rule is unset. Each change is audited.
#[tokio::test]
async fn an_unset_rule_falls_back_to_the_shipped_one() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let pattern = "math:*".parse().unwrap();
    let of_math = async || {
        let rules = operator.rules().await.unwrap();
        rules.into_iter().find(|rule| rule.pattern == pattern).unwrap()
    };
    assert!(is_not_found(operator.change_rule(&pattern, RuleChange::Unset).await));
    let shipped = of_math().await;
    assert_eq!((shipped.routing, shipped.origin), (Routing::Server, RuleOrigin::Shipped));
    operator.change_rule(&pattern, RuleChange::Set(Routing::Client)).await.unwrap();
    assert_eq!(of_math().await.origin, RuleOrigin::Operator);
    operator.change_rule(&pattern, RuleChange::Unset).await.unwrap();
    assert_eq!(of_math().await, shipped);
    let recorded: Vec<(String, String)> = sqlx::query_as(
        "select action, detail ->> 'origin' from audit_log where target = 'math:*' order by id",
    )
    .fetch_all(&mut database.superuser().await)
    .await
    .unwrap();
    let events: Vec<(&str, &str)> =
        recorded.iter().map(|(action, origin)| (action.as_str(), origin.as_str())).collect();
    assert_eq!(events, [("routing.set", "operator"), ("routing.unset", "shipped")]);
}

/// The snapshot and the database view agree on the routing.
#[tokio::test]
async fn the_database_applies_the_same_rules() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    let mut catalog = registry::shipped_catalog();
    for server in &mut catalog {
        // The routing of the other servers is set in their rows, which have precedence over all rules.
        if ["git", "time"].contains(&server.namespace.as_str()) {
            server.routing = None;
        }
    }
    operator.seed(&catalog).await.unwrap();
    for (pattern, routing) in [
        ("git:*", Routing::Server),
        ("git:git_log", Routing::Client),
        ("*", Routing::Server),
        ("memory:read_graph", Routing::Server),
        ("time:*", Routing::Client),
    ] {
        let change = RuleChange::Set(routing);
        operator.change_rule(&pattern.parse().unwrap(), change).await.unwrap();
    }
    let routes = registry.reload_routes().await.unwrap();
    let all: Vec<ToolId> = registry::shipped_catalog()
        .iter()
        .flat_map(|server| server.tools.iter().map(|t| (server.namespace.clone(), t.clone())))
        .map(|(namespace, tool)| ToolId::new(&namespace, &tool.descriptor.name).unwrap())
        .collect();
    let resolved = registry.resolve(&anonymous, &all).await.unwrap();
    assert_eq!(resolved.tools.len(), all.len());
    for tool in &resolved.tools {
        assert_eq!(tool.routing, routes.rules.route(&tool.id), "{}", tool.id);
    }
    assert_eq!(resolved.get(&id("git:git_status")).unwrap().routing, Routing::Server);
    assert_eq!(resolved.get(&id("git:git_log")).unwrap().routing, Routing::Client);
    let fixed = catalog.iter().find(|server| server.namespace == "memory").unwrap().routing;
    assert_eq!(Some(resolved.get(&id("memory:read_graph")).unwrap().routing), fixed);
}

/// Postgres inlines the rules into a look-up. As a function call they would be planned anew in each one.
#[tokio::test]
async fn the_routing_of_an_entry_is_inlined() {
    let database = Database::seeded().await;
    let mut app = database.app().await;
    for query in [
        "select routing from pml_registry",
        "select (select o.routing from routing_of(routing, namespace, namespace || ':*') o) from mcp_servers",
    ] {
        let explain = sqlx::AssertSqlSafe(format!("explain (verbose) {query}"));
        let plan: Vec<String> = sqlx::query_scalar(explain).fetch_all(&mut app).await.unwrap();
        let plan = plan.join("\n");
        assert!(plan.contains("routing_rules"), "{plan}");
        for function in ["routing_of", "effective_routing"] {
            assert!(!plan.contains(function), "{plan}");
        }
    }
}

/// Changes that are made while the listener is disconnected are read when it reconnects.
#[tokio::test]
async fn a_lost_listener_reconnects_without_missing_changes() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let registry = database.registry().await;
    listening(&database, 1).await;
    for round in 0..5 {
        let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where datname = current_database() and query ilike 'listen%'";
        let killed: i64 =
            sqlx::query_scalar(kill).fetch_one(&mut database.superuser().await).await.unwrap();
        assert_eq!(killed, 1);
        let routing = if round % 2 == 0 { Routing::Server } else { Routing::Client };
        let pattern = "acmetool:*".parse().unwrap();
        operator.change_rule(&pattern, RuleChange::Set(routing)).await.unwrap();
        becomes(&registry, "acmetool:run", routing).await;
        listening(&database, 1).await;
    }
}

/// A malformed rule does not replace the valid ones.
#[tokio::test]
async fn unreadable_rules_keep_the_previous_ones() {
    let database = Database::seeded().await;
    let registry = database.registry().await;
    let before = registry.routes();
    tamper(&database, "alter table routing_rules drop constraint routing_rules_pattern_check")
        .await;
    tamper(&database, "insert into routing_rules values ('no pattern', 'server', 'operator')")
        .await;
    let refused = registry.reload_routes().await.unwrap_err();
    assert!(matches!(refused, RegistryError::Name(_)), "{refused}");
    assert_eq!(registry.routes(), before);
}

/// One notification per statement, so that a bulk write does not flood the listeners.
#[tokio::test]
async fn a_bulk_write_sends_one_notification() {
    let database = Database::seeded().await;
    let mut listener = sqlx::postgres::PgListener::connect(&database.app_url()).await.unwrap();
    listener.listen_all(["pml_routes", "pml_keys"]).await.unwrap();
    database.operator().await.seed(&[]).await.unwrap();
    database.owner().await.execute("notify pml_keys, 'end'").await.unwrap();
    let mut received = Vec::new();
    loop {
        let notification = listener.recv().await.unwrap();
        if notification.payload() == "end" {
            break;
        }
        received.push(notification.payload().to_owned());
    }
    received.sort();
    // Postgres sends equal notifications of one transaction once.
    assert_eq!(received, ["mcp_servers", "routing_rules", "tools"]);
}
