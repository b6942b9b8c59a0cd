//! The operator's classification of a tool applies only to the content that was classified.

use registry::{Effects, RegistryError, Tenant};

use crate::database::{Database, sqlstate};
use crate::published::{Published, change};

/// Reads a tool's classification as a program of the tenant would.
async fn seen(registry: &registry::Registry, tenant: &Tenant, id: &str) -> (bool, bool) {
    let resolved = registry.resolve(tenant, &[id.parse().unwrap()]).await.unwrap();
    (resolved.tools[0].read_only, resolved.tools[0].eager)
}

#[tokio::test]
async fn a_classification_applies_to_one_content() {
    let database = Database::seeded().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    Published::new(&web, "wiki", &[("search", "Searches")]).write(&database).await;
    Published::new(&shop, "wiki", &[("search", "Searches")]).write(&database).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let name = "acme.web.wiki.search".parse().unwrap();
    // No classification yet; the tool's own hints do not count.
    assert_eq!(seen(&registry, &web, "wiki:search").await, (false, false));

    let pinned = operator.set_tool_class(&name, Effects::Read, true).await.unwrap();
    assert_eq!(pinned.unpinned(), name);
    assert_eq!(seen(&registry, &web, "wiki:search").await, (true, true));
    assert_eq!(
        seen(&registry, &shop, "wiki:search").await,
        (false, false),
        "of the same name only"
    );
    let listed = operator.tool_classes(web.scope().unwrap()).await.unwrap();
    assert_eq!((listed.len(), &listed[0].fqdn, listed[0].counts), (1, &pinned, true));
    assert_eq!(operator.tool_classes(shop.scope().unwrap()).await.unwrap(), []);

    // The tool's content changes.
    change(&database, &web, &"wiki:search".parse().unwrap(), "Searches, and deletes").await;
    assert_eq!(seen(&registry, &web, "wiki:search").await, (false, false));
    let listed = operator.tool_classes(web.scope().unwrap()).await.unwrap();
    assert!(!listed[0].counts, "{listed:?}");
    let refused = operator.set_tool_class(&pinned, Effects::Read, false).await.unwrap_err();
    assert!(matches!(refused, RegistryError::HashMismatch { .. }), "{refused}");

    operator.set_tool_class(&name, Effects::Write, false).await.unwrap();
    assert_eq!(seen(&registry, &web, "wiki:search").await, (false, false));
    operator.unset_tool_class(&name).await.unwrap();
    let refused = operator.unset_tool_class(&name).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NotFound(_)), "{refused}");
    let log = registry.audit_log(&web, None, 10).await.unwrap();
    let actions: Vec<&str> = log.events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["tool.class_unset", "tool.class_set", "tool.class_set", "scope.create"]);
    assert!(log.events.iter().all(|event| event.outcome == "allowed"));
    operator.close().await;
}

/// The shipped classification applies until the operator sets another one.
#[tokio::test]
async fn the_operator_overrides_the_shipped_classification() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let name = "pml.mcp.time.convert_time".parse().unwrap();
    let (shipped, _) = seen(&registry, &web, "time:convert_time").await;
    let other = if shipped { Effects::Write } else { Effects::Read };
    operator.set_tool_class(&name, other, false).await.unwrap();
    assert_eq!(seen(&registry, &web, "time:convert_time").await, (!shipped, false));
    // A later seed, as at every start, does not change it.
    operator.seed(&registry::shipped_catalog()).await.unwrap();
    assert_eq!(seen(&registry, &web, "time:convert_time").await, (!shipped, false));
    operator.unset_tool_class(&name).await.unwrap();
    assert_eq!(seen(&registry, &web, "time:convert_time").await, (shipped, false));

    let refused = operator.set_tool_class(&name, Effects::Write, true).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    for missing in ["pml.mcp.time.no_such", "pml.mcp.time", "acme.web.time.convert_time"] {
        let refused =
            operator.set_tool_class(&missing.parse().unwrap(), Effects::Read, false).await;
        assert!(matches!(refused, Err(RegistryError::NotFound(_))), "{missing}");
    }
    operator.close().await;
    // The serving role cannot classify tools.
    let mut app = database.app().await;
    crate::database::act_as(&mut app, "acme.web", "alice").await;
    let write = sqlx::query("update tool_classes set class = 'read'").execute(&mut app).await;
    assert_eq!(sqlstate(write), "42501");
}
