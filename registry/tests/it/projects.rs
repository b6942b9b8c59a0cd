//! Projects and organisations: creation, and deletion for good.

use std::collections::BTreeMap;

use protocol::Visibility;
use registry::{
    CatalogFilter, EntryName, NewCapability, NewServer, OfficialFilter, OfficialReader,
    RegistryError, Role, SecretName, SecretOwner, SecretValue, Tenant, VersionUpdate,
};
use sqlx::Executor as _;

use crate::database::{Database, act_as, is_not_found};
use crate::keys::new_key;
use crate::members::{caller, of, principal, scope};
use crate::publish::capability;
use crate::publish_server::server;

#[track_caller]
fn is_gone<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> bool {
    assert!(matches!(result, Err(RegistryError::Gone(_))), "{result:?}");
    true
}

fn is_conflict<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::Conflict(_)))
}

#[tokio::test]
async fn only_managers_create_and_delete_projects() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "other.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    operator.set_member("acme", None, &principal("ann"), Role::Admin).await.unwrap();
    let ann = caller(&registry, "acme.web", of("ann")).await;
    let service = caller(&registry, "acme.web", of("robot")).await;
    for refused in [
        registry.create_project(&service, "shop").await.map(drop),
        registry.projects(&service, None, 10).await.map(drop),
        registry.delete_project(&service, "web").await,
        // Only an owner may delete.
        registry.delete_project(&ann, "web").await,
    ] {
        assert!(matches!(refused, Err(RegistryError::NotAllowed(_))), "{refused:?}");
    }
    let made = registry.create_project(&ann, "shop").await.unwrap();
    assert_eq!((made.name.as_str(), &made.scope), ("shop", &scope("acme.shop")));
    assert!(is_conflict(registry.create_project(&ann, "shop").await));
    registry.create_project(&ann, "a b").await.unwrap_err();
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = registry.projects(&ann, cursor.as_deref(), 1).await.unwrap();
        names.extend(page.items.into_iter().map(|project| project.scope.to_string()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["acme.shop", "acme.web"]);
    for cursor in ["", "x", "zz", "2e", "éé"] {
        registry.projects(&ann, Some(cursor), 1).await.unwrap_err();
    }
    // The new project works: keys can be created for it.
    registry.create_key(&Tenant::of(scope("acme.shop")), new_key()).await.unwrap();
}

/// RG-04: a deleted entry is "gone" for callers that could see it, "not found" for others, and never recreated.
#[tokio::test]
async fn a_deleted_project_stays_closed() {
    let database = Database::seeded().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let registry = database.registry().await;
    let registry = registry
        .with_master_keys(registry::MasterKeys::new(vec![registry::MasterKey::generate().unwrap()]))
        .await
        .unwrap();
    let operator = database.operator().await;
    operator.set_member("acme", None, &principal("boss"), Role::Owner).await.unwrap();
    let boss = caller(&registry, "acme.shop", of("boss")).await;
    let ann = Tenant::member(scope("acme.web"), principal("ann"));
    for (name, visibility) in [
        ("a:private", Visibility::Private),
        ("a:project", Visibility::Project),
        ("a:org", Visibility::Org),
        ("a:public", Visibility::Public),
    ] {
        let new = NewCapability { visibility: Some(visibility), ..capability(name, "return 1") };
        registry.publish(&ann, new).await.unwrap();
    }
    let made = database
        .superuser()
        .await
        .execute(
            "insert into mcp_servers (org, project, namespace, content, integrity, visibility, owner)
            select 'acme', 'web', 'srv', content, integrity, 'public', 'ann' from mcp_servers
            order by namespace limit 1",
        )
        .await
        .unwrap();
    assert_eq!(made.rows_affected(), 1);
    let secret: SecretName = "TAVILY_API_KEY".parse().unwrap();
    let value = || SecretValue::new("v".to_owned().into()).unwrap();
    registry.put_secret(&ann, SecretOwner::Me, &secret, value(), vec![]).await.unwrap();
    let (key, _) = registry.create_key(&Tenant::of(scope("acme.web")), of("ann")).await.unwrap();
    registry.authenticate(key.expose()).await.unwrap();

    let ours = boss.tenant();
    let [foreign, anonymous] = [Tenant::of(scope("other.web")), Tenant::anonymous()];
    let name = |action: &str| format!("acme.web.a.{action}").parse::<EntryName>().unwrap();
    let server: EntryName = "acme.web.srv".parse().unwrap();
    assert!(registry.entry(&anonymous, &name("public")).await.is_ok());

    let (slug, _) = registry.create_link(&ann, "editors").await.unwrap();
    assert_eq!(registry.scope_of_link(slug.expose()).await.unwrap(), scope("acme.web"));
    let listed = async || {
        let filter = CatalogFilter { namespace: Some("a".to_owned()), ..Default::default() };
        registry.catalog(&anonymous, &filter, None, 10).await.unwrap().items.len()
    };
    assert_eq!(listed().await, 1);

    registry.delete_project(&boss, "web").await.unwrap();

    assert!(is_not_found(registry.scope_of_link(slug.expose()).await), "its link ends with it");
    assert_eq!(listed().await, 0);
    // Its keys are invalid, and no new ones can be created.
    registry.authenticate(key.expose()).await.unwrap_err();
    assert!(is_not_found(registry.create_key(&Tenant::of(scope("acme.web")), new_key()).await));
    assert!(is_not_found(registry.publish(&ann, capability("a:new", "return 1")).await));
    assert!(is_not_found(
        registry.put_secret(&ann, SecretOwner::Me, &secret, value(), vec![]).await
    ));
    // Gone for callers that could see it, not found for all others.
    for tenant in [&ours, &foreign, &anonymous] {
        for pinned in ["public", "public.0000"] {
            assert!(is_gone(registry.entry(tenant, &name(pinned)).await), "{tenant:?}");
        }
        let first = Some("0.1.0".parse().unwrap());
        assert!(is_gone(registry.entry_at(tenant, &name("public"), first).await), "{tenant:?}");
        assert!(is_gone(registry.entry(tenant, &server).await), "{tenant:?}");
        for hidden in ["private", "project", "never"] {
            assert!(is_not_found(registry.entry(tenant, &name(hidden)).await), "{hidden}");
        }
    }
    assert!(is_gone(registry.entry(&ours, &name("org")).await));
    for tenant in [&foreign, &anonymous] {
        assert!(is_not_found(registry.entry(tenant, &name("org")).await));
    }
    // The row-level policies alone ensure this: the queries have no filter.
    let mut app = database.app().await;
    for (place, expected) in [("acme.shop", 3_i64), ("other.web", 2), ("", 2)] {
        act_as(&mut app, place, "ann").await;
        let seen: i64 = sqlx::query_scalar("select count(*) from tombstones")
            .fetch_one(&mut app)
            .await
            .unwrap();
        let open: i64 = sqlx::query_scalar("select count(*) from capability_versions")
            .fetch_one(&mut app)
            .await
            .unwrap();
        assert_eq!((seen, open), (expected, 0), "{place}");
        app.execute("rollback").await.unwrap();
    }
    // Even the owner cannot read the rows that are kept.
    assert!(is_gone(registry.entry(&ann, &name("private")).await));
    let resolved = registry.resolve(&ann, &["a:private".parse().unwrap()]).await.unwrap();
    assert_eq!(resolved.tools.len(), 0);
    // The name cannot be reused.
    assert!(is_conflict(registry.create_project(&boss, "web").await));
    assert!(is_conflict(operator.create_scope(&scope("acme.web")).await));
    assert!(is_not_found(registry.delete_project(&boss, "web").await));
    assert!(is_not_found(operator.delete_project(&scope("acme.web")).await));
    assert!(is_not_found(registry.delete_project(&boss, "nothing").await));
    let left: i64 = sqlx::query_scalar(
        "select (select count(*) from secrets) + (select count(*) from mcp_servers where org = 'acme')
            + (select count(*) from capabilities where visibility <> 'deleted')
            + (select count(*) from api_keys where project = 'web' and revoked_at is null)",
    )
    .fetch_one(&mut database.superuser().await)
    .await
    .unwrap();
    assert_eq!(left, 0);
    // Control: the other project still works.
    registry.publish(&ours, capability("a:b", "return 1")).await.unwrap();
    let log = registry.audit_log(&ours, None, 10).await.unwrap().events;
    assert!(log.iter().any(|e| e.action == "project.delete" && e.target == "acme.web"));
}

/// RG-13: the official API shows the servers of a deleted project as deleted, to everyone who could see them.
#[tokio::test]
async fn servers_of_a_deleted_project_are_listed_as_deleted() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let publish = async |place: &str, name: &str, args: &[&str], visibility| {
        let NewServer { mut server, version, .. } = server(name, "npx");
        server.install.as_mut().unwrap().args = args.iter().map(ToString::to_string).collect();
        let new = NewServer { server, version, visibility: Some(visibility) };
        registry.publish_server(&Tenant::of(scope(place)), new).await.unwrap();
    };
    let package = ["-y", "notes@3.0.0"];
    publish("acme.web", "diary", &package, Visibility::Public).await;
    publish("acme.web", "yanked", &package, Visibility::Public).await;
    publish("acme.web", "internal", &package, Visibility::Org).await;
    publish("acme.web", "hidden", &package, Visibility::Project).await;
    // Not in the official API, because it has no package.
    publish("acme.web", "unlisted", &[], Visibility::Public).await;
    publish("acme.shop", "basket", &package, Visibility::Public).await;
    let web = Tenant::of(scope("acme.web"));
    registry.update_server_version(&web, "yanked", None, VersionUpdate::Yank).await.unwrap();
    let listed = async |place: &str| {
        let reader = OfficialReader { tenant: Tenant::of(scope(place)), gateway: None };
        let filter = OfficialFilter { include_deleted: true, ..OfficialFilter::default() };
        let page = registry.official_servers(&reader, &filter, None, 100).await.unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let facts = page.servers.iter().map(|listed| {
            let status = &listed["_meta"]["io.modelcontextprotocol.registry/official"]["status"];
            assert_eq!(listed["server"]["version"], "1.0.0");
            (text(&listed["server"]["name"]), text(status))
        });
        facts.collect::<BTreeMap<String, String>>()
    };
    let expected = |listed: &[(&str, &str)]| {
        listed.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect()
    };
    assert_eq!(
        listed("other.web").await,
        expected(&[
            ("acme.shop/basket", "active"),
            ("acme.web/diary", "active"),
            ("acme.web/yanked", "deleted"),
        ])
    );
    operator.delete_project(&scope("acme.web")).await.unwrap();
    let public = [
        ("acme.shop/basket", "active"),
        ("acme.web/diary", "deleted"),
        ("acme.web/yanked", "deleted"),
    ];
    assert_eq!(listed("other.web").await, expected(&public));
    let [basket, diary, yanked] = public;
    let of_org = [basket, diary, ("acme.web/internal", "deleted"), yanked];
    assert_eq!(listed("acme.shop").await, expected(&of_org));
    let name: EntryName = "acme.web.yanked".parse().unwrap();
    assert!(is_gone(registry.entry(&Tenant::anonymous(), &name).await));
    operator.delete_org("acme").await.unwrap();
    let public = [("acme.shop/basket", "deleted"), diary, yanked];
    assert_eq!(listed("other.web").await, expected(&public));
}

/// Writes that started before the deletion either finish before it or fail.
#[tokio::test]
async fn concurrent_writes_do_not_survive_a_deletion() {
    let database = Database::migrated().await;
    let registry = database.registry().await;
    let operator = database.operator().await;
    for round in 0..15 {
        let place = scope(&format!("acme.p{round}"));
        operator.create_scope(&place).await.unwrap();
        let tenant = Tenant::of(place.clone());
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..4 {
            let (registry, tenant) = (registry.clone(), tenant.clone());
            writers.spawn(async move {
                let _ = registry.create_key(&tenant, new_key()).await;
                let name = format!("a:c{number}");
                let _ = registry.publish(&tenant, capability(&name, "return 1")).await;
            });
        }
        operator.delete_project(&place).await.unwrap();
        writers.join_all().await;
    }
    let open: i64 = sqlx::query_scalar(
        "select (select count(*) from api_keys where revoked_at is null)
            + (select count(*) from capabilities where visibility <> 'deleted')
            + (select count(*) from capability_versions where visibility <> 'deleted')",
    )
    .fetch_one(&mut database.superuser().await)
    .await
    .unwrap();
    assert_eq!(open, 0);
}

/// RG-04: an organisation is deleted with everything in it.
#[tokio::test]
async fn a_deleted_organisation_stays_closed() {
    let database = Database::seeded().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let [web, other] = ["acme.web", "other.web"].map(|text| Tenant::of(scope(text)));
    let public =
        NewCapability { visibility: Some(Visibility::Public), ..capability("a:b", "return 1") };
    registry.publish(&web, public).await.unwrap();
    let (key, _) = registry.create_key(&web, of("ann")).await.unwrap();
    for name in ["ann", "ben"] {
        operator.set_member("acme", None, &principal(name), Role::Owner).await.unwrap();
    }
    operator.remove_member("acme", None, &principal("ben")).await.unwrap();
    let removed = async |name: &str| -> (bool, chrono::DateTime<chrono::Utc>) {
        sqlx::query_as("select role is null, updated_at from memberships where principal = $1")
            .bind(name)
            .fetch_one(&mut database.superuser().await)
            .await
            .unwrap()
    };
    let before = [removed("ann").await, removed("ben").await];
    operator.delete_org("acme").await.unwrap();
    // Only a role that ends with the organisation is changed.
    let [ann, ben] = [removed("ann").await, removed("ben").await];
    assert!(!before[0].0 && ann.0 && ann.1 > before[0].1, "{before:?} {ann:?}");
    assert_eq!(ben, before[1]);
    registry.authenticate(key.expose()).await.unwrap_err();
    let name: EntryName = "acme.web.a.b".parse().unwrap();
    assert!(is_gone(registry.entry(&other, &name).await));
    for place in ["acme.web", "acme.shop", "acme.new"] {
        assert!(is_conflict(operator.create_scope(&scope(place)).await), "{place}");
    }
    assert!(is_not_found(operator.delete_org("acme").await));
    assert!(is_not_found(operator.delete_org("none").await));
    assert!(is_not_found(operator.set_member("acme", None, &principal("eve"), Role::Owner).await));
    let refused = operator.delete_org("pml").await.unwrap_err();
    assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    operator.delete_project(&protocol::Scope::public()).await.unwrap_err();
    let orgs = operator.orgs().await.unwrap();
    let gone = |name: &str| orgs.iter().find(|org| org.name == name).unwrap().deleted_at.is_some();
    assert_eq!((gone("acme"), gone("other"), gone("pml")), (true, false, false));
    // Control: the other organisation still works.
    registry.publish(&other, capability("a:b", "return 1")).await.unwrap();
}
