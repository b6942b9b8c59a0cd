//! The shipped catalog: valid, seeded idempotently, and removed when it is left out.

use protocol::{EntryType, Routing, ToolId};
use registry::{CatalogServer, RegistryError, RuleChange, Tenant, shipped_catalog};
use tokio::task::JoinSet;

use crate::database::{Database, is_not_found};
use crate::published::Published;

#[test]
fn the_shipped_catalog_is_valid() {
    let catalog = shipped_catalog();
    let names: Vec<&str> = catalog.iter().map(|server| server.namespace.as_str()).collect();
    for expected in
        ["filesystem", "memory", "sequential-thinking", "everything", "git", "time", "fetch"]
    {
        assert!(names.contains(&expected), "{expected}");
    }
    assert!(catalog.iter().any(|server| server.kind == EntryType::Http));
    for server in &catalog {
        assert!(!server.description.is_empty(), "{}", server.namespace);
        assert!(!server.tools.is_empty(), "{}", server.namespace);
        for tool in &server.tools {
            let id = ToolId::new(&server.namespace, &tool.descriptor.name).unwrap();
            assert!(!tool.descriptor.description.is_empty(), "{id}");
            assert_eq!(tool.descriptor.input_schema["type"], "object", "{id}");
        }
        // A package without a version may change at any time.
        if let Some(install) = server.install.as_ref()
            && ["npx", "uvx"].contains(&install.command.as_str())
        {
            let pinned = |arg: &String| {
                arg.rsplit_once('@').or_else(|| arg.rsplit_once("==")).is_some_and(
                    |(name, version)| {
                        !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit())
                    },
                )
            };
            assert!(install.args.iter().any(pinned), "{}: {:?}", server.namespace, install.args);
        }
        if let Some(url) = &server.proxy_to {
            assert!(url.starts_with("https://"), "{url}");
        }
    }
}

#[tokio::test]
async fn a_second_seed_changes_nothing() {
    let database = Database::migrated().await;
    let operator = database.operator().await;
    let catalog = shipped_catalog();
    let first = operator.seed(&catalog).await.unwrap();
    assert_eq!(first.servers, catalog.len() as u64);
    assert_eq!(first.tools, catalog.iter().map(|server| server.tools.len() as u64).sum::<u64>());
    assert!(first.changed >= first.servers + first.tools);
    let mut reversed = catalog;
    reversed.reverse();
    let second = operator.seed(&reversed).await.unwrap();
    assert_eq!((second.changed, second.tools), (0, first.tools));
}

/// Gateways of two releases that start concurrently do not deadlock, and one catalog wins.
#[tokio::test]
async fn different_catalogs_can_be_seeded_concurrently() {
    let database = Database::migrated().await;
    let mut seeds = JoinSet::new();
    for round in 0..8 {
        let operator = database.operator().await;
        let mut catalog = shipped_catalog();
        for server in &mut catalog {
            server.description = format!("{} {}", server.description, round % 2);
        }
        if round % 2 == 1 {
            catalog.reverse();
        }
        seeds.spawn(async move { operator.seed(&catalog).await });
    }
    for report in seeds.join_all().await {
        report.expect("every seed works");
    }
    let endings: i64 =
        sqlx::query_scalar("select count(distinct right(description, 1)) from mcp_servers")
            .fetch_one(&mut database.superuser().await)
            .await
            .unwrap();
    assert_eq!(endings, 1);
}

#[tokio::test]
async fn servers_that_left_the_catalog_are_removed() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    Published::new(&web, "git", &[("git_status", "Ours")]).write(&database).await;
    let operator = database.operator().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    let rule = "memory:*".parse().unwrap();
    operator.change_rule(&rule, RuleChange::Set(Routing::Client)).await.unwrap();

    let mut catalog = shipped_catalog();
    catalog.retain(|server| server.namespace != "git");
    let time = catalog.iter_mut().find(|server| server.namespace == "time").unwrap();
    let gone = time.tools.pop().unwrap().descriptor.name;
    let left = time.tools[0].descriptor.name.clone();
    operator.seed(&catalog).await.unwrap();

    for name in ["git", "git:git_status", &format!("time:{gone}")] {
        assert!(is_not_found(registry.entry(&anonymous, &name.parse().unwrap()).await), "{name}");
    }
    registry.entry(&anonymous, &format!("time:{left}").parse().unwrap()).await.unwrap();
    // Entries of tenants with that name stay, and so do the operator's rules.
    let ours = registry.entry(&web, &"git:git_status".parse().unwrap()).await.unwrap();
    assert_eq!(ours.fqdn.scope().as_str(), "acme.web");
    let routes = registry.reload_routes().await.unwrap();
    let kept: String =
        sqlx::query_scalar("select origin from routing_rules where pattern = 'memory:*'")
            .fetch_one(&mut database.superuser().await)
            .await
            .unwrap();
    assert_eq!(kept, "operator");
    assert_eq!(routes.rules.route(&"brave_search:x".parse().unwrap()), Routing::Server);
}

#[tokio::test]
async fn an_invalid_catalog_changes_nothing() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    let registry = database.registry().await;
    let anonymous = Tenant::anonymous();
    let before = registry.entry(&anonymous, &"git".parse().unwrap()).await.unwrap();
    let broken: [fn(&mut CatalogServer); 5] = [
        |server| server.namespace = "git".to_owned(),
        |server| server.namespace = "a.b".to_owned(),
        |server| server.install = None,
        |server| server.kind = EntryType::Deno,
        |server| server.tools[0].descriptor.name = "a:b".to_owned(),
    ];
    for (index, spoil) in broken.into_iter().enumerate() {
        let mut catalog = shipped_catalog();
        catalog.retain(|server| ["git", "time"].contains(&server.namespace.as_str()));
        catalog[0].description = "changed".to_owned();
        spoil(catalog.iter_mut().find(|server| server.namespace == "time").unwrap());
        let refused = operator.seed(&catalog).await.unwrap_err();
        let kind = match refused {
            RegistryError::Conflict(_) => "conflict",
            RegistryError::Name(_) => "name",
            RegistryError::Invalid(_) => "invalid",
            _ => "other",
        };
        let expected = ["conflict", "name", "invalid", "invalid", "name"][index];
        assert_eq!(kind, expected, "{index}: {refused}");
    }
    assert_eq!(registry.entry(&anonymous, &"git".parse().unwrap()).await.unwrap(), before);
    assert!(registry.entry(&anonymous, &"memory".parse().unwrap()).await.is_ok());
}

#[tokio::test]
async fn the_public_scope_cannot_be_created_or_used() {
    let database = Database::seeded().await;
    let operator = database.operator().await;
    for scope in ["pml.mcp", "pml.mine"] {
        let refused = operator.create_scope(&scope.parse().unwrap()).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    }
    let scope = "acme.web".parse().unwrap();
    assert!(operator.create_scope(&scope).await.unwrap());
    assert!(!operator.create_scope(&scope).await.unwrap());
}
