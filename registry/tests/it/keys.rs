//! API keys: shown once, verified, expired, and revoked on all gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use protocol::Scope;
use registry::{Caller, NewKey, Principal, Registry, RegistryError, Right, Rights, Tenant};
use sqlx::{Executor as _, Row as _};

use crate::cluster::DEADLINE;
use crate::database::{Database, is_not_found};

/// Longer than any test takes.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn new_key() -> NewKey {
    NewKey {
        principal: None,
        name: "laptop".to_owned(),
        rights: "execute,read".parse().unwrap(),
        expires_at: None,
        org_role: None,
    }
}

fn is_invalid(result: &Result<Arc<Caller>, RegistryError>) -> bool {
    matches!(result, Err(RegistryError::InvalidCredential))
}

#[tokio::test]
async fn a_key_authenticates_its_principal_scope_and_rights() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice: Principal = "alice@acme.example".parse().unwrap();
    let (key, record) = registry
        .create_key(&web, NewKey { principal: Some(alice.clone()), ..new_key() })
        .await
        .unwrap();
    let caller = registry.authenticate(key.expose()).await.unwrap();
    assert_eq!((caller.key_id, &caller.principal), (Some(record.id), &alice));
    assert_eq!(caller.scope, "acme.web".parse::<Scope>().unwrap());
    assert!(caller.rights.contains(Right::Execute) && !caller.rights.contains(Right::Admin));
    assert_eq!(caller.tenant(), Tenant::member("acme.web".parse().unwrap(), alice));
    // Without a principal, the key is its own principal.
    let (key, record) = registry.create_key(&web, new_key()).await.unwrap();
    let caller = registry.authenticate(key.expose()).await.unwrap();
    assert_eq!(caller.principal.as_str(), format!("key:{}", record.id));
    let listed = registry.keys(&web, None, 100).await.unwrap().items;
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1], record);
}

#[tokio::test]
async fn a_key_needs_a_right_and_a_scope() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let none = NewKey { rights: Rights::default(), ..new_key() };
    let refused = registry.create_key(&web, none).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    let refused = registry.create_key(&Tenant::anonymous(), new_key()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    let nowhere = Tenant::of("acme.nowhere".parse().unwrap());
    assert!(is_not_found(registry.create_key(&nowhere, new_key()).await));
    let named = NewKey { name: "x".repeat(201), ..new_key() };
    let refused = registry.create_key(&web, named).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items, []);
}

/// SE-10: only the hash of a key is stored.
#[tokio::test]
async fn the_database_never_contains_the_key() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (key, _) = registry.create_key(&web, new_key()).await.unwrap();
    let secret = &key.expose()["pml_key_".len()..];
    let rows = database
        .superuser()
        .await
        .fetch_all(
            "select to_jsonb(k)::text as row from api_keys k
            union all select to_jsonb(a)::text from audit_log a",
        )
        .await
        .unwrap();
    assert!(rows.len() >= 2);
    for row in rows {
        let row: String = row.get("row");
        assert!(!row.contains(secret) && !row.contains(&secret[..12]), "{row}");
    }
}

/// SE-10: an invalid key is refused by its text alone, without a query.
#[tokio::test]
async fn a_wrong_checksum_never_reaches_the_database() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (key, _) = registry.create_key(&web, new_key()).await.unwrap();
    registry.close().await;
    let real = key.expose();
    let last = if real.ends_with('0') { '1' } else { '0' };
    let changed = format!("{}{last}", &real[..real.len() - 1]);
    for presented in ["", "nonsense", "Bearer", &changed, &real[1..], &format!("{real}\0")] {
        let refused = registry.authenticate(presented).await;
        assert!(is_invalid(&refused), "{presented:?}: {refused:?}");
    }
    // A well-formed key does query the database.
    let refused = registry.authenticate(real).await;
    assert!(matches!(refused, Err(RegistryError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn unknown_expired_and_revoked_keys_get_the_same_answer() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let other = Database::migrated().await;
    let [theirs] = other.tenants(["acme.web"]).await;
    let (unknown, _) = other.registry().await.create_key(&theirs, new_key()).await.unwrap();

    let past = Some(Utc::now() - Duration::from_millis(1));
    let (expired, _) =
        registry.create_key(&web, NewKey { expires_at: past, ..new_key() }).await.unwrap();
    let (revoked, record) = registry.create_key(&web, new_key()).await.unwrap();
    registry.authenticate(revoked.expose()).await.unwrap();
    registry.revoke_key(&web, record.id).await.unwrap();
    for key in [unknown, expired, revoked] {
        let refused = registry.authenticate(key.expose()).await;
        assert!(is_invalid(&refused), "{refused:?}");
    }
    // Revoking again succeeds and keeps the first time.
    let first = registry.keys(&web, None, 100).await.unwrap().items[1].revoked_at;
    registry.revoke_key(&web, record.id).await.unwrap();
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items[1].revoked_at, first);
    assert!(first.is_some());
}

/// A cached key is refused after its expiry.
#[tokio::test]
async fn a_cached_key_expires() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    // On a busy machine, the first request may take longer than the first lifetime.
    for lifetime in [300, 3_000, 20_000].map(Duration::from_millis) {
        let soon = Utc::now() + lifetime;
        let new = NewKey { expires_at: Some(soon), ..new_key() };
        let (key, _) = registry.create_key(&web, new).await.unwrap();
        let mut accepted = 0;
        loop {
            let requested = Utc::now();
            let answer = registry.authenticate(key.expose()).await;
            if is_invalid(&answer) {
                break;
            }
            answer.unwrap();
            accepted += 1;
            assert!(requested < soon, "accepted after its end");
            tokio::task::yield_now().await;
        }
        assert!(Utc::now() >= soon, "refused before its end");
        if accepted > 1 {
            return;
        }
    }
    panic!("the key was never accepted");
}

/// A revocation is notified: without that, the other gateway would cache the key for an hour.
#[tokio::test]
async fn a_revocation_reaches_other_gateways() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let here = database.registry().await;
    let there = database.registry().await.with_key_cache_ttl(HOUR);
    listening(&database, 2).await;
    for _ in 0..8 {
        let (key, record) = here.create_key(&web, new_key()).await.unwrap();
        there.authenticate(key.expose()).await.unwrap();
        let remembered = Instant::now();
        here.revoke_key(&web, record.id).await.unwrap();
        while there.authenticate(key.expose()).await.is_ok() {
            assert!(remembered.elapsed() < DEADLINE, "a revoked key is still accepted");
            tokio::task::yield_now().await;
        }
    }
}

/// A cached key is not looked up again unless a change is notified.
#[tokio::test]
async fn a_key_is_cached_until_its_ttl_or_a_notification() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let (patient, hasty) = (database.registry().await, database.registry().await);
    let patient = patient.with_key_cache_ttl(HOUR);
    let hasty = hasty.with_key_cache_ttl(Duration::ZERO);
    listening(&database, 2).await;
    let (key, _) = patient.create_key(&web, new_key()).await.unwrap();
    for registry in [&patient, &hasty] {
        registry.authenticate(key.expose()).await.unwrap();
    }
    // This change is not notified, because triggers are disabled.
    let mut superuser = database.superuser().await;
    superuser.execute("set session_replication_role = replica").await.unwrap();
    superuser.execute("update api_keys set revoked_at = now()").await.unwrap();
    patient.authenticate(key.expose()).await.unwrap();
    let refused = hasty.authenticate(key.expose()).await;
    assert!(is_invalid(&refused), "{refused:?}");
}

/// Waits until this number of gateways listens for changes.
pub(crate) async fn listening(database: &Database, gateways: i64) {
    let mut superuser = database.superuser().await;
    crate::cluster::eventually("every gateway listens", async || {
        let now: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity
            where datname = current_database() and query ilike 'listen%'",
        )
        .fetch_one(&mut superuser)
        .await
        .unwrap();
        (now == gateways).then_some(())
    })
    .await;
}

#[tokio::test]
async fn key_changes_are_audited() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = Tenant::member("acme.web".parse().unwrap(), "alice".parse().unwrap());
    let (_, record) = registry.create_key(&alice, new_key()).await.unwrap();
    registry.revoke_key(&alice, record.id).await.unwrap();
    let trail: Vec<(String, String, String)> = sqlx::query_as(
        "select principal, action, target from audit_log where action like 'key.%' order by id",
    )
    .fetch_all(&mut database.superuser().await)
    .await
    .unwrap();
    let expected = ["key.create", "key.revoke"]
        .map(|action| ("alice".to_owned(), action.to_owned(), record.id.to_string()));
    assert_eq!(trail, expected);
    // Failed changes are not recorded: the event and its effect are one transaction.
    registry.revoke_key(&web, uuid::Uuid::now_v7()).await.unwrap_err();
    let count: i64 = sqlx::query_scalar("select count(*) from audit_log where action like 'key.%'")
        .fetch_one(&mut database.superuser().await)
        .await
        .unwrap();
    assert_eq!(count, 2);
}

/// Each of many concurrent callers gets its own answer.
#[tokio::test]
async fn concurrent_callers_are_not_mixed_up() {
    let database = Database::migrated().await;
    let tenants = database.tenants(["a.a", "b.b", "c.c"]).await;
    let registry = Registry::connect_with(&database.app_url(), 2).await.unwrap();
    let mut keys = Vec::new();
    for tenant in &tenants {
        keys.push((registry.create_key(tenant, new_key()).await.unwrap().0, tenant.clone()));
    }
    let mut calls = tokio::task::JoinSet::new();
    for round in 0..60 {
        let (key, tenant) = keys[round % 3].clone();
        let registry = registry.clone();
        calls.spawn(async move {
            let caller = registry.authenticate(key.expose()).await.unwrap();
            assert_eq!(Some(&caller.scope), tenant.scope());
            assert_eq!(registry.keys(&tenant, None, 100).await.unwrap().items.len(), 1);
        });
    }
    calls.join_all().await;
}
