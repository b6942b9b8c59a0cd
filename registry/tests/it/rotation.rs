//! Rotation of API keys, and the paged list of keys.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use registry::{NewKey, RegistryError};
use sqlx::Executor as _;

use crate::database::{Database, is_not_found};
use crate::keys::new_key;

const NOW: Duration = Duration::ZERO;
const AN_HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_rotated_key_keeps_principal_rights_and_expiry() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let end = Utc::now() + TimeDelta::days(30);
    let new =
        NewKey { principal: Some("alice".parse().unwrap()), expires_at: Some(end), ..new_key() };
    let (old_key, old) = registry.create_key(&web, new).await.unwrap();
    let (key, rotated) = registry.rotate_key(&web, old.id, AN_HOUR).await.unwrap();
    assert_ne!(key, old_key);
    let caller = registry.authenticate(key.expose()).await.unwrap();
    assert_eq!((caller.key_id, caller.principal.as_str()), (Some(rotated.id), "alice"));
    assert_eq!((&caller.rights, caller.expires_at), (&old.rights, rotated.expires_at));
    assert_eq!(rotated.expires_at.map(|at| at.timestamp_millis()), Some(end.timestamp_millis()));
    // The old key works for the grace time, but not beyond its own expiry.
    registry.authenticate(old_key.expose()).await.unwrap();
    let listed = registry.key(&web, old.id).await.unwrap();
    assert_eq!(listed.replaced_by, Some(rotated.id));
    let left = listed.expires_at.unwrap() - Utc::now();
    assert!(left > TimeDelta::minutes(55) && left <= TimeDelta::hours(1), "{left}");
    let (_, short) = registry
        .create_key(
            &web,
            NewKey { expires_at: Some(Utc::now() + TimeDelta::minutes(5)), ..new_key() },
        )
        .await
        .unwrap();
    registry.rotate_key(&web, short.id, AN_HOUR).await.unwrap();
    let left = registry.key(&web, short.id).await.unwrap().expires_at.unwrap() - Utc::now();
    assert!(left <= TimeDelta::minutes(5), "{left}");
}

#[tokio::test]
async fn without_grace_the_old_key_ends_at_once() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (old_key, old) = registry.create_key(&web, new_key()).await.unwrap();
    registry.authenticate(old_key.expose()).await.unwrap();
    let (key, _) = registry.rotate_key(&web, old.id, NOW).await.unwrap();
    let refused = registry.authenticate(old_key.expose()).await;
    assert!(matches!(refused, Err(RegistryError::InvalidCredential)), "{refused:?}");
    registry.authenticate(key.expose()).await.unwrap();
}

/// Concurrent rotations of a key make one successor.
#[tokio::test]
async fn a_key_is_rotated_once() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (_, old) = registry.create_key(&web, new_key()).await.unwrap();
    let tries = (0..8).map(|_| {
        let (registry, web) = (registry.clone(), web.clone());
        tokio::spawn(async move { registry.rotate_key(&web, old.id, AN_HOUR).await })
    });
    let mut made = 0;
    for tried in tries.collect::<Vec<_>>() {
        match tried.await.unwrap() {
            Ok(_) => made += 1,
            Err(refused) => assert!(matches!(refused, RegistryError::Conflict(_)), "{refused}"),
        }
    }
    assert_eq!(made, 1);
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items.len(), 2, "no other is left");
    // Revoked and expired keys cannot be rotated.
    let (_, revoked) = registry.create_key(&web, new_key()).await.unwrap();
    registry.revoke_key(&web, revoked.id).await.unwrap();
    let past = NewKey { expires_at: Some(Utc::now() - TimeDelta::seconds(1)), ..new_key() };
    let (_, expired) = registry.create_key(&web, past).await.unwrap();
    for id in [revoked.id, expired.id] {
        let refused = registry.rotate_key(&web, id, NOW).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Conflict(_)), "{refused}");
    }
}

/// GW-09: the queries alone ensure this, as if a migration had dropped the policies.
#[tokio::test]
async fn foreign_keys_are_not_found() {
    let database = Database::migrated().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let (key, theirs) = registry.create_key(&web, new_key()).await.unwrap();
    for policies in [true, false] {
        if !policies {
            let off = "alter table api_keys disable row level security";
            database.owner().await.execute(off).await.unwrap();
        }
        assert!(is_not_found(registry.key(&shop, theirs.id).await));
        assert!(is_not_found(registry.rotate_key(&shop, theirs.id, NOW).await));
        assert!(is_not_found(registry.revoke_key(&shop, theirs.id).await));
        assert_eq!(registry.keys(&shop, None, 100).await.unwrap().items, []);
    }
    assert_eq!(registry.key(&web, theirs.id).await.unwrap(), theirs, "and nothing changed");
    registry.authenticate(key.expose()).await.unwrap();
}

#[tokio::test]
async fn keys_are_listed_page_by_page() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(registry.create_key(&web, new_key()).await.unwrap().1);
    }
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let page = registry.keys(&web, cursor.as_deref(), 2).await.unwrap();
        assert_eq!(page.total, registry::Total::Total(5));
        listed.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, made);
    for cursor in ["", "x", &"f".repeat(48), &"0".repeat(47), &"é".repeat(24)] {
        let refused = registry.keys(&web, Some(cursor), 2).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Invalid(_)), "{cursor}: {refused}");
    }
}
