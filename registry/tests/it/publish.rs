//! Capabilities in the database: immutable, verified before they are served, and isolated.

use protocol::{Routing, Visibility};
use registry::{EntryName, NewCapability, RegistryError, Tenant};
use serde_json::json;
use sqlx::Executor as _;

use crate::database::{Database, is_not_found};
use crate::published::tamper;

pub(crate) fn capability(name: &str, code: &str) -> NewCapability {
    NewCapability {
        id: name.parse().unwrap(),
        version: None,
        visibility: None,
        description: "Adds.".to_owned(),
        input_schema: json!({ "type": "object" }),
        code: code.to_owned(),
        calls: Vec::new(),
        mcp_deps: Vec::new(),
        routing: Routing::Server,
    }
}

/// RG-01: a program that was changed in the database is neither returned nor run.
#[tokio::test]
async fn a_changed_program_is_never_served() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    registry.publish(&web, capability("a:b", "return 1")).await.unwrap();
    let name: EntryName = "a:b".parse().unwrap();
    assert_eq!(registry.entry(&web, &name).await.unwrap().code.as_deref(), Some("return 1"));
    let ids = ["a:b".parse().unwrap()];
    assert_eq!(registry.resolve(&web, &ids).await.unwrap().tools.len(), 1);
    // Even a superuser must disable the trigger first.
    let mut superuser = database.superuser().await;
    for change in [
        "update capability_versions set code = 'return 2'",
        "update capability_versions set content = content || ' '",
        "update capability_versions set version = '9.9.9'",
        "delete from capability_versions",
    ] {
        let refused = superuser.execute(change).await.expect_err(change);
        assert!(refused.to_string().contains("never changes"), "{change}: {refused}");
    }
    tamper(&database, "alter table capability_versions disable trigger user").await;
    assert_eq!(tamper(&database, "update capability_versions set code = 'return 2'").await, 1);
    for refused in [
        registry.entry(&web, &name).await.map(drop).unwrap_err(),
        registry.resolve(&web, &ids).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(refused, RegistryError::IntegrityMismatch(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_private_capability_is_visible_only_to_its_owner() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let scope = web.scope().unwrap().clone();
    let [ann, ben] =
        ["ann", "ben"].map(|name| Tenant::member(scope.clone(), name.parse().unwrap()));
    let private =
        NewCapability { visibility: Some(Visibility::Private), ..capability("a:b", "return 1") };
    registry.publish(&ann, private).await.unwrap();
    let name: EntryName = "a:b".parse().unwrap();
    assert!(registry.entry(&ann, &name).await.is_ok());
    for other in [&ben, &web] {
        assert!(is_not_found(registry.entry(other, &name).await));
    }
    // The conflict shows only that the name is taken.
    let taken = registry.publish(&ben, capability("a:b", "return 2")).await.unwrap_err();
    assert!(matches!(taken, RegistryError::Conflict(_)), "{taken}");
    assert_eq!(registry.entry(&ann, &name).await.unwrap().code.as_deref(), Some("return 1"));
    // Only the operator publishes in the public catalog.
    let public = Tenant::of(protocol::Scope::public());
    let refused = registry.publish(&public, capability("a:b", "return 1")).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Denied(_)), "{refused}");
}

#[tokio::test]
async fn only_the_owner_changes_visibility_and_it_is_audited() {
    let database = Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let scope = web.scope().unwrap().clone();
    let [ann, ben] =
        ["ann", "ben"].map(|name| Tenant::member(scope.clone(), name.parse().unwrap()));
    let shown = |visibility| NewCapability {
        visibility: Some(visibility),
        ..capability("a:b", "return 1")
    };
    registry.publish(&ann, capability("a:b", "return 1")).await.unwrap();
    for visibility in [Visibility::Public, Visibility::Private] {
        let refused = registry.publish(&ben, shown(visibility)).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Conflict(_)), "{refused}");
    }
    // Other members that see it may still publish the next version.
    assert!(registry.publish(&ben, capability("a:b", "return 2")).await.unwrap().new);
    let anonymous = Tenant::anonymous();
    let name: EntryName = "acme.web.a.b".parse().unwrap();
    assert!(is_not_found(registry.entry(&anonymous, &name).await));
    let again =
        NewCapability { version: Some("0.1.0".parse().unwrap()), ..shown(Visibility::Public) };
    assert!(!registry.publish(&ann, again).await.unwrap().new);
    assert_eq!(registry.entry(&anonymous, &name).await.unwrap().code.as_deref(), Some("return 2"));
    let events = registry.audit_log(&web, None, 10).await.unwrap().events;
    let change = events.iter().find(|event| event.action == "capability.show").unwrap();
    assert_eq!(
        (change.principal.as_str(), &change.detail),
        ("ann", &json!({ "from": "project", "to": "public" }))
    );
}
