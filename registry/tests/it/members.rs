//! Members: how roles bound keys and tokens, and who may change roles.

use std::sync::Arc;
use std::time::Instant;

use protocol::Scope;
use registry::{
    Caller, NewKey, Principal, Registry, RegistryError, Right, Rights, Role, Session, Tenant,
};
use sqlx::{Executor as _, Row as _};

use crate::cluster::DEADLINE;
use crate::database::{Database, act_as, is_not_found, sqlstate};
use crate::keys::{HOUR, listening, new_key};

pub(crate) fn principal(name: &str) -> Principal {
    name.parse().unwrap()
}

pub(crate) fn scope(text: &str) -> Scope {
    text.parse().unwrap()
}

/// Returns a key with all rights for a principal, as the operator creates it.
pub(crate) fn of(name: &str) -> NewKey {
    NewKey {
        principal: Some(principal(name)),
        rights: Right::ALL.into_iter().collect(),
        org_role: Some(Role::Owner),
        ..new_key()
    }
}

/// Creates a key in a scope and returns its caller.
pub(crate) async fn caller(registry: &Registry, of_scope: &str, new: NewKey) -> Arc<Caller> {
    let (key, _) = registry.create_key(&Tenant::of(scope(of_scope)), new).await.unwrap();
    registry.authenticate(key.expose()).await.unwrap()
}

fn is_denied<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::NotAllowed(_)))
}

fn token(of_scope: &str, name: &str, session: Option<Session>) -> Caller {
    Caller {
        key_id: None,
        principal: principal(name),
        scope: scope(of_scope),
        rights: Right::ALL.into_iter().collect(),
        expires_at: None,
        org_role: Some(Role::Owner),
        session,
        key_made_by: None,
    }
}

fn rights(words: &str) -> Rights {
    words.parse().unwrap()
}

#[tokio::test]
async fn roles_equal_those_in_the_database() {
    let database = Database::migrated().await;
    let mut owner = database.owner().await;
    for role in Role::ALL {
        let row = sqlx::query("select role_rank($1) as rank, role_rights($1) as rights")
            .bind(role.as_str())
            .fetch_one(&mut owner)
            .await
            .unwrap();
        let words: Vec<String> = row.get("rights");
        assert_eq!(words.join(",").parse::<Rights>().unwrap(), role.rights(), "{role}");
        let rank = Role::ALL.iter().position(|other| *other == role).unwrap() + 1;
        assert_eq!(row.get::<i32, _>("rank"), i32::try_from(rank).unwrap(), "{role}");
        assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
    }
    "Owner".parse::<Role>().unwrap_err();
}

/// RG-14: a reduced or removed membership reduces the rights of keys, tokens and sessions.
#[tokio::test]
async fn a_membership_bounds_every_credential() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let web = Tenant::of(scope("acme.web"));
    let (key, record) = registry.create_key(&web, of("alice")).await.unwrap();
    let session = Session { id: record.id, key_id: Some(record.id) };
    let claims = [token("acme.web", "alice", None), token("acme.web", "alice", Some(session))];
    let all: Rights = Right::ALL.into_iter().collect();
    let may = async |expected: Option<&Rights>| {
        // A new registry, because this test is not about the cache.
        let fresh = database.registry().await;
        let found = fresh.authenticate(key.expose()).await;
        assert_eq!(found.ok().map(|caller| caller.rights.clone()).as_ref(), expected);
        for claimed in claims.clone() {
            let found = fresh.admit(claimed).await;
            assert_eq!(found.ok().map(|caller| caller.rights.clone()).as_ref(), expected);
        }
        fresh.close().await;
    };
    may(Some(&all)).await;
    let alice = principal("alice");
    // Memberships in other organisations and projects do not count here.
    operator.set_member("other", None, &alice, Role::Viewer).await.unwrap();
    operator.set_member("acme", Some(&scope("acme.shop")), &alice, Role::Viewer).await.unwrap();
    may(Some(&all)).await;
    let here = scope("acme.web");
    operator.set_member("acme", Some(&here), &alice, Role::Member).await.unwrap();
    may(Some(&rights("execute,read,publish"))).await;
    operator.set_member("acme", Some(&here), &alice, Role::Viewer).await.unwrap();
    may(Some(&rights("read"))).await;
    // The higher of two roles counts.
    operator.set_member("acme", None, &alice, Role::Admin).await.unwrap();
    may(Some(&all)).await;
    operator.remove_member("acme", Some(&here), &alice).await.unwrap();
    may(Some(&all)).await;
    operator.remove_member("acme", None, &alice).await.unwrap();
    may(None).await;
    assert!(is_not_found(operator.remove_member("acme", None, &alice).await));
    assert!(is_not_found(operator.remove_member("acme", Some(&here), &alice).await));
    operator.set_member("acme", Some(&here), &alice, Role::Viewer).await.unwrap();
    may(Some(&rights("read"))).await;
}

#[tokio::test]
async fn a_session_ends_with_its_key() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let web = Tenant::of(scope("acme.web"));
    for end in ["revoke", "rotate", "expire", "another principal"] {
        let new = NewKey { rights: rights("execute,read"), ..of("alice") };
        let (_, record) = registry.create_key(&web, new).await.unwrap();
        let session = Some(Session { id: record.id, key_id: Some(record.id) });
        let admit = async || registry.admit(token("acme.web", "alice", session)).await;
        // At most the rights of the key.
        assert_eq!(admit().await.unwrap().rights, rights("execute,read"), "{end}");
        match end {
            "revoke" => registry.revoke_key(&web, record.id).await.unwrap(),
            "rotate" => {
                // The key stays valid for its grace time; its sessions do not.
                let grace = std::time::Duration::from_secs(600);
                registry.rotate_key(&web, record.id, grace).await.map(drop).unwrap();
            }
            "expire" => {
                let expire = "update api_keys set expires_at = now() where revoked_at is null";
                database.superuser().await.execute(expire).await.unwrap();
                crate::cluster::eventually("the session to end", async || {
                    admit().await.is_err().then_some(())
                })
                .await;
            }
            _ => {
                let claimed = token("acme.web", "bob", session);
                registry.admit(claimed).await.unwrap_err();
                continue;
            }
        }
        let refused = admit().await.unwrap_err();
        assert!(matches!(refused, RegistryError::InvalidCredential), "{end}: {refused}");
    }
}

#[tokio::test]
async fn a_removal_reaches_other_gateways_at_once() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let here = database.registry().await;
    let there = database.registry().await.with_key_cache_ttl(HOUR);
    listening(&database, 2).await;
    let operator = database.operator().await;
    operator.set_member("acme", None, &principal("boss"), Role::Owner).await.unwrap();
    let boss = caller(&here, "acme.web", of("boss")).await;
    let alice = principal("alice");
    for _ in 0..8 {
        here.set_member(&boss, None, &alice, Role::Member).await.unwrap();
        let (key, _) = here.create_key(&Tenant::of(scope("acme.web")), of("alice")).await.unwrap();
        let claimed = token("acme.web", "alice", None);
        // The previous round's removal is cached until the new membership is notified.
        crate::cluster::eventually("the member to be let in", async || {
            let admitted = there.admit(claimed.clone()).await.is_ok();
            (there.authenticate(key.expose()).await.is_ok() && admitted).then_some(())
        })
        .await;
        let remembered = Instant::now();
        here.remove_member(&boss, None, &alice).await.unwrap();
        here.authenticate(key.expose()).await.unwrap_err();
        while there.authenticate(key.expose()).await.is_ok()
            || there.admit(claimed.clone()).await.is_ok()
        {
            assert!(remembered.elapsed() < DEADLINE, "a removed member still calls");
            tokio::task::yield_now().await;
        }
    }
}

/// GW-31: who may manage what; no caller can raise its own rights.
#[tokio::test]
async fn a_role_above_the_callers_own_cannot_be_assigned() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let [web, shop] = ["acme.web", "acme.shop"].map(scope);
    for (name, role) in [("boss", Role::Owner), ("adam", Role::Admin), ("mia", Role::Member)] {
        operator.set_member("acme", None, &principal(name), role).await.unwrap();
    }
    let [boss, adam] = [
        caller(&registry, "acme.web", of("boss")).await,
        caller(&registry, "acme.web", of("adam")).await,
    ];
    let service = caller(&registry, "acme.web", NewKey { principal: None, ..of("x") }).await;
    let eve = principal("eve");
    let set = async |caller: &Caller, project: Option<&Scope>, role| {
        registry.set_member(caller, project, &eve, role).await
    };
    // A key without a membership manages only its own project; other projects are not found.
    assert!(is_denied(set(&service, None, Role::Viewer).await));
    assert!(is_not_found(set(&service, Some(&shop), Role::Viewer).await));
    assert!(is_not_found(set(&service, Some(&scope("acme.none")), Role::Viewer).await));
    assert!(set(&service, Some(&web), Role::Admin).await.unwrap().1);
    assert!(is_denied(registry.members(&service, None, None, 10).await));
    assert!(is_not_found(registry.members(&service, Some(&shop), None, 10).await));
    assert_eq!(registry.members(&service, Some(&web), None, 10).await.unwrap().items.len(), 1);
    // An admin of the organisation assigns roles up to its own, in all projects.
    assert!(set(&adam, Some(&shop), Role::Viewer).await.unwrap().1);
    assert!(set(&adam, None, Role::Admin).await.unwrap().1);
    assert!(is_denied(set(&adam, None, Role::Owner).await));
    let boss_name = principal("boss");
    assert!(is_denied(registry.set_member(&adam, None, &boss_name, Role::Viewer).await));
    assert!(is_denied(registry.remove_member(&adam, None, &boss_name).await));
    let owner_of_project = set(&boss, Some(&web), Role::Owner).await.unwrap_err();
    assert!(matches!(owner_of_project, RegistryError::Invalid(_)), "{owner_of_project}");
    // A key cannot assign a role with a right that the key lacks.
    let weak = NewKey { rights: rights("read,admin"), ..of("boss") };
    let weak = caller(&registry, "acme.web", weak).await;
    assert!(is_denied(set(&weak, None, Role::Member).await));
    assert!(!set(&weak, None, Role::Viewer).await.unwrap().1);
    let reader = NewKey { rights: rights("read"), ..of("boss") };
    let reader = caller(&registry, "acme.web", reader).await;
    assert!(is_denied(set(&reader, None, Role::Viewer).await));
    // A project cannot create itself a key of the owner: the role of the key's creator counts.
    let made = NewKey { org_role: service.org_role, ..of("boss") };
    let made = caller(&registry, "acme.web", made).await;
    assert_eq!((service.org_role, made.org_role), (None, None));
    assert!(is_denied(set(&made, None, Role::Viewer).await));
    assert_eq!(boss.org_role, Some(Role::Owner), "the owner keeps the role");
    // Both refusals and changes are recorded.
    let log = registry.audit_log(&boss.tenant(), None, 200).await.unwrap().events;
    let count = |outcome: &str| {
        log.iter().filter(|e| e.action == "member.set" && e.outcome == outcome).count()
    };
    assert_eq!((count("refused"), count("allowed")), (6, 4), "{log:#?}");
    assert_eq!(registry.first_bad_event(&boss.tenant()).await.unwrap(), None);
}

#[tokio::test]
async fn the_last_owner_cannot_be_removed() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    let [ann, ben] = ["ann", "ben"].map(principal);
    operator.set_member("acme", None, &ann, Role::Owner).await.unwrap();
    let conflict = |result: Result<(), RegistryError>| matches!(result, Err(RegistryError::Conflict(reason)) if reason.contains("last owner"));
    assert!(conflict(operator.remove_member("acme", None, &ann).await));
    assert!(conflict(operator.set_member("acme", None, &ann, Role::Admin).await.map(drop)));
    operator.set_member("acme", None, &ben, Role::Owner).await.unwrap();
    let callers = [
        caller(&registry, "acme.web", of("ann")).await,
        caller(&registry, "acme.web", of("ben")).await,
    ];
    // Both remove each other's role concurrently: one of them remains.
    for _ in 0..10 {
        let [first, second] = [
            registry.remove_member(&callers[0], None, &ben),
            registry.remove_member(&callers[1], None, &ann),
        ];
        let (first, second) = tokio::join!(first, second);
        assert_eq!(usize::from(first.is_ok()) + usize::from(second.is_ok()), 1);
        let gone = if first.is_ok() { &ben } else { &ann };
        operator.set_member("acme", None, gone, Role::Owner).await.unwrap();
    }
    operator.remove_member("acme", None, &ann).await.unwrap();
}

/// By the policies alone, and page by page.
#[tokio::test]
async fn members_are_isolated_by_organisation() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop", "other.web"]).await;
    let (registry, operator) = (database.registry().await, database.operator().await);
    for (org, project, name) in [
        ("acme", None, "ann"),
        ("acme", Some("acme.web"), "ben"),
        ("acme", Some("acme.shop"), "cid"),
        ("other", None, "dan"),
    ] {
        let project = project.map(scope);
        let role = if project.is_some() { Role::Admin } else { Role::Owner };
        operator.set_member(org, project.as_ref(), &principal(name), role).await.unwrap();
    }
    let mut app = database.app().await;
    for (place, expected) in [
        ("acme.web", vec!["ann", "ben"]),
        ("acme.shop", vec!["ann", "cid"]),
        ("acme.", vec!["ann", "ben", "cid"]),
        ("other.web", vec!["dan"]),
        ("nobody.here", vec![]),
        ("", vec![]),
    ] {
        act_as(&mut app, place, "").await;
        let seen: Vec<String> = sqlx::query_scalar("select principal from memberships order by 1")
            .fetch_all(&mut app)
            .await
            .unwrap();
        assert_eq!(seen, expected, "{place}");
        let users: i64 =
            sqlx::query_scalar("select count(*) from users").fetch_one(&mut app).await.unwrap();
        assert_eq!(users, if place == "acme." { 3 } else { 0 }, "{place}");
        app.execute("rollback").await.unwrap();
    }
    // A project cannot write roles of the organisation or of another project.
    for (place, allowed) in [("''", false), ("'shop'", false), ("'web'", true)] {
        act_as(&mut app, "acme.web", "ben").await;
        let insert = format!(
            "insert into memberships (org, project, principal, role)
            values ('acme', {place}, 'ann', 'admin') on conflict (org, project, principal)
            do update set role = 'admin'"
        );
        let done = app.execute(sqlx::AssertSqlSafe(insert)).await;
        match allowed {
            true => assert_eq!(done.unwrap().rows_affected(), 1),
            false => assert_eq!(sqlstate(done), "42501", "{place}"),
        }
        app.execute("rollback").await.unwrap();
    }
    let ann = caller(&registry, "acme.web", of("ann")).await;
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = registry.members(&ann, None, cursor.as_deref(), 2).await.unwrap();
        names.extend(page.items.into_iter().map(|member| member.principal));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["ann", "ben", "cid"]);
    for cursor in ["", "x", "zz", "61", "612f2e", "éé"] {
        let refused = registry.members(&ann, None, Some(cursor), 2).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Invalid(_)), "{cursor}: {refused}");
    }
}
