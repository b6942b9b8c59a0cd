//! Requests that are sent again: claimed once, answered alike, forgotten after a day.

use registry::{Claim, IdempotencyKey, StoredAnswer, Tenant};
use sqlx::{Executor as _, Row as _};

use crate::database::Database;

fn request(body: &str) -> IdempotencyKey {
    IdempotencyKey::new(b"canary-key", "POST", "/api/v1/keys", body.as_bytes())
}

fn answer(body: &str) -> StoredAnswer {
    StoredAnswer { status: 201, body: body.to_owned() }
}

fn member(name: &str) -> Tenant {
    Tenant::member("acme.web".parse().unwrap(), name.parse().unwrap())
}

/// GW-25: one of fifty that come at once may do it; the others wait.
#[tokio::test]
async fn one_of_many_claims_a_request() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    let tries: Vec<_> = (0..50)
        .map(|_| {
            let (registry, alice) = (registry.clone(), alice.clone());
            tokio::spawn(async move { registry.claim_request(&alice, request("a")).await.unwrap() })
        })
        .collect();
    let mut claimed = 0;
    for tried in tries {
        match tried.await.unwrap() {
            Claim::New => claimed += 1,
            Claim::Running { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(claimed, 1);
    registry.settle_request(&alice, request("a"), Some(answer("{}"))).await.unwrap();
    let again = registry.claim_request(&alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("{}")));
    assert_eq!(registry.claim_request(&alice, request("b")).await.unwrap(), Claim::Other);
    // What was answered is not answered otherwise later.
    registry.settle_request(&alice, request("a"), Some(answer("[]"))).await.unwrap();
    registry.settle_request(&alice, request("a"), None).await.unwrap();
    let again = registry.claim_request(&alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("{}")));
}

/// GW-25: the same key of another tenant, or of another principal, is another key.
#[tokio::test]
async fn others_are_independent() {
    let database = Database::migrated().await;
    let [_, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    assert_eq!(registry.claim_request(&alice, request("a")).await.unwrap(), Claim::New);
    registry.settle_request(&alice, request("a"), Some(answer("\"canary\""))).await.unwrap();
    for other in [member("bob"), shop] {
        assert_eq!(registry.claim_request(&other, request("a")).await.unwrap(), Claim::New);
        registry.settle_request(&other, request("a"), None).await.unwrap();
        // One that was given up is free again.
        assert_eq!(registry.claim_request(&other, request("b")).await.unwrap(), Claim::New);
    }
    let again = registry.claim_request(&alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("\"canary\"")));
    // By the queries alone, as after a mistake in a migration.
    let off = "alter table idempotency_keys disable row level security";
    database.owner().await.execute(off).await.unwrap();
    for other in
        [member("carol"), Tenant::member("acme.shop".parse().unwrap(), "alice".parse().unwrap())]
    {
        assert_eq!(registry.claim_request(&other, request("a")).await.unwrap(), Claim::New);
        registry.settle_request(&other, request("a"), Some(answer("1"))).await.unwrap();
    }
    let again = registry.claim_request(&alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("\"canary\"")));
}

/// GW-25: after a day a key is new, and what was kept for it is gone.
#[tokio::test]
async fn a_day_later_a_key_is_new() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    for body in ["a", "b"] {
        let key = IdempotencyKey::new(body.as_bytes(), "POST", "/", b"");
        registry.claim_request(&alice, key).await.unwrap();
        registry.settle_request(&alice, key, Some(answer("1"))).await.unwrap();
    }
    let mut superuser = database.superuser().await;
    let age = "update idempotency_keys set claimed_at = now() - interval '25 hours'";
    superuser.execute(age).await.unwrap();
    let key = IdempotencyKey::new(b"a", "POST", "/other", b"");
    assert_eq!(registry.claim_request(&alice, key).await.unwrap(), Claim::New);
    let left: i64 = sqlx::query_scalar("select count(*) from idempotency_keys")
        .fetch_one(&mut superuser)
        .await
        .unwrap();
    assert_eq!(left, 1, "the others of that age are gone");
}

/// What was asked and the key itself are not stored, and the policies hold for the table.
#[tokio::test]
async fn only_hashes_are_stored() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    registry.claim_request(&member("alice"), request("canary-body")).await.unwrap();
    let row = database
        .superuser()
        .await
        .fetch_one(
            "select to_jsonb(k)::text || encode(key_hash, 'escape') as row from idempotency_keys k",
        )
        .await
        .unwrap();
    assert!(!row.get::<String, _>("row").contains("canary"));
    let mut app = database.app().await;
    crate::database::act_as(&mut app, "acme.shop", "alice").await;
    let seen: i64 = sqlx::query_scalar("select count(*) from idempotency_keys")
        .fetch_one(&mut app)
        .await
        .unwrap();
    assert_eq!(seen, 0);
    let changed = app.execute("delete from idempotency_keys").await.unwrap().rows_affected();
    assert_eq!(changed, 0);
}
