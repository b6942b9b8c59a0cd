//! Look-alike names.

use protocol::Visibility;
use sqlx::Executor as _;

use crate::database::Database;
use crate::names::publish;
use crate::publish::capability;
use crate::publish_server::server;

/// Look-alikes of visible names in the same organisation are refused.
#[tokio::test]
async fn a_look_alike_of_an_organisations_name_is_refused() {
    let database = Database::seeded().await;
    let [web, core, shop] = database.tenants(["acme.web", "acme.core", "other.shop"]).await;
    let registry = database.registry().await;
    publish(&registry, &core, "billing:send", Visibility::Org, "return 1").await;
    publish(&registry, &core, "hidden:send", Visibility::Project, "return 1").await;
    let like = capability("bi11ing:send", "return 2");
    let refused = registry.publish(&web, like.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("looks like `billing`"), "{refused}");
    let refused = registry.publish_server(&web, server("bil1ing", "x")).await.unwrap_err();
    assert!(refused.to_string().contains("`billing`"), "{refused}");
    registry.publish(&shop, like).await.expect("accepted in another organisation");
    registry
        .publish(&web, capability("h1dden:send", "return 2"))
        .await
        .expect("a hidden name is not disclosed");
}

/// RG-05: look-alikes of shipped namespaces are refused, even if the catalog lacks the original; names that are older
/// than the rule remain valid.
#[tokio::test]
async fn a_look_alike_of_a_shipped_name_is_refused() {
    let database = Database::seeded().await;
    let [web, _] = database.tenants(["acme.web", "acme.core"]).await;
    let registry = database.registry().await;
    for (name, near) in [
        ("pmI", "pml"),
        ("pm1", "pml"),
        ("Pml", "pml"),
        ("p-m-l", "pml"),
        ("rncp", "mcp"),
        ("memorv", "memory"),
        ("fi1esystem", "filesystem"),
        ("she11", "shell"),
        ("g1thub", "github"),
    ] {
        let refused = registry.publish(&web, capability(&format!("{name}:x"), "return 1")).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(&format!("looks like `{near}`")), "{refused}");
        let refused = registry.publish_server(&web, server(name, "x")).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("`{near}`")), "{refused}");
    }
    for own in ["memories", "sql", "pmls", "gitlab", "files"] {
        publish(&registry, &web, &format!("{own}:x"), Visibility::Project, "return 1").await;
    }
    let moved = "update capabilities set namespace = 'memorv' where namespace = 'memories';
        update capability_versions set namespace = 'memorv' where namespace = 'memories'";
    let mut superuser = database.superuser().await;
    superuser.execute("set session_replication_role = replica").await.unwrap();
    superuser.execute(moved).await.unwrap();
    publish(&registry, &web, "memorv:y", Visibility::Project, "return 1").await;

    let operator = database.operator().await;
    for name in ["pmI.x", "PML.x", "p-m-l.x", "pm1.x"] {
        let refused = operator.create_scope(&name.parse().unwrap()).await.unwrap_err();
        assert!(refused.to_string().contains("looks like `pml`"), "{refused}");
    }
    assert!(operator.create_scope(&"pmls.x".parse().unwrap()).await.unwrap(), "a similar name");
}
