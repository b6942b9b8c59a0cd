//! Repeated requests: executed once, answered with the first answer, and expired after a day.

use registry::{
    Caller, Claim, IdempotencyKey, Registry, RegistryError, Right, Role, StoredAnswer, Tenant,
};
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

/// Returns a caller with these rights and this role in the organisation.
fn caller(tenant: &Tenant, rights: &[Right], org_role: Option<Role>) -> Caller {
    Caller {
        key_id: None,
        principal: tenant.principal().unwrap().clone(),
        scope: tenant.scope().unwrap().clone(),
        rights: rights.iter().copied().collect(),
        expires_at: None,
        org_role,
        session: None,
        key_made_by: None,
    }
}

async fn claim(
    registry: &Registry,
    tenant: &Tenant,
    key: IdempotencyKey,
) -> Result<Claim, RegistryError> {
    registry.claim_request(&caller(tenant, &[Right::Admin], None), key).await
}

/// GW-25: of fifty concurrent requests, one is executed; the others wait.
#[tokio::test]
async fn one_of_concurrent_requests_gets_the_claim() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    let tries: Vec<_> = (0..50)
        .map(|_| {
            let (registry, alice) = (registry.clone(), alice.clone());
            tokio::spawn(async move { claim(&registry, &alice, request("a")).await.unwrap() })
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
    let again = claim(&registry, &alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("{}")));
    assert_eq!(claim(&registry, &alice, request("b")).await.unwrap(), Claim::Other);
    // A settled answer does not change.
    registry.settle_request(&alice, request("a"), Some(answer("[]"))).await.unwrap();
    registry.settle_request(&alice, request("a"), None).await.unwrap();
    let again = claim(&registry, &alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("{}")));
}

/// GW-25: the same key of another tenant or of another principal is independent.
#[tokio::test]
async fn keys_of_other_callers_are_independent() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    let shop = Tenant::member("acme.shop".parse().unwrap(), "dave".parse().unwrap());
    assert_eq!(claim(&registry, &alice, request("a")).await.unwrap(), Claim::New);
    registry.settle_request(&alice, request("a"), Some(answer("\"canary\""))).await.unwrap();
    for other in [member("bob"), shop] {
        assert_eq!(claim(&registry, &other, request("a")).await.unwrap(), Claim::New);
        registry.settle_request(&other, request("a"), None).await.unwrap();
        // A released claim can be made again.
        assert_eq!(claim(&registry, &other, request("b")).await.unwrap(), Claim::New);
    }
    let again = claim(&registry, &alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("\"canary\"")));
    // The queries alone also isolate, for example after a mistake in a migration.
    let off = "alter table idempotency_keys disable row level security";
    database.owner().await.execute(off).await.unwrap();
    for other in
        [member("carol"), Tenant::member("acme.shop".parse().unwrap(), "alice".parse().unwrap())]
    {
        assert_eq!(claim(&registry, &other, request("a")).await.unwrap(), Claim::New);
        registry.settle_request(&other, request("a"), Some(answer("1"))).await.unwrap();
    }
    let again = claim(&registry, &alice, request("a")).await.unwrap();
    assert_eq!(again, Claim::Done(answer("\"canary\"")));
}

/// GW-25: an answer is returned only to callers with all rights of the first sender.
#[tokio::test]
async fn callers_with_fewer_rights_are_denied() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    let (all, owner) = ([Right::Read, Right::Admin], Some(Role::Owner));
    let first = caller(&alice, &all, owner);
    assert_eq!(registry.claim_request(&first, request("a")).await.unwrap(), Claim::New);
    let lacks = |lacks| Claim::Denied { lacks };
    let less = [
        (caller(&alice, &[Right::Read], owner), Some(Right::Admin)),
        (caller(&alice, &[Right::Admin, Right::Execute], owner), Some(Right::Read)),
        (caller(&alice, &all, Some(Role::Admin)), None),
        (caller(&alice, &all, None), None),
    ];
    // The same while it runs, after it was settled, and for a different request.
    for is_done in [false, true] {
        if is_done {
            registry.settle_request(&alice, request("a"), Some(answer("1"))).await.unwrap();
        }
        for (now, missing) in &less {
            for body in ["a", "b"] {
                let claim = registry.claim_request(now, request(body)).await.unwrap();
                assert_eq!(claim, lacks(*missing), "{now:?}");
            }
        }
    }
    let more = caller(&alice, &Right::ALL, owner);
    for equal in [first, more] {
        let claim = registry.claim_request(&equal, request("a")).await.unwrap();
        assert_eq!(claim, Claim::Done(answer("1")), "with sufficient rights");
    }
    // Rows of the previous release have no rights: then all rights are required.
    let old = "update idempotency_keys set rights = default, org_role = default";
    database.superuser().await.execute(old).await.unwrap();
    let claim = registry.claim_request(&caller(&alice, &all, owner), request("a")).await.unwrap();
    assert_eq!(claim, lacks(Some(Right::Execute)));
    let claim = registry.claim_request(&caller(&alice, &Right::ALL, owner), request("a")).await;
    assert_eq!(claim.unwrap(), Claim::Done(answer("1")));
}

/// GW-25: after a day, a key can be used again, and its old row is deleted.
#[tokio::test]
async fn a_key_expires_after_a_day() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let alice = member("alice");
    for body in ["a", "b"] {
        let key = IdempotencyKey::new(body.as_bytes(), "POST", "/", b"");
        claim(&registry, &alice, key).await.unwrap();
        registry.settle_request(&alice, key, Some(answer("1"))).await.unwrap();
    }
    let mut superuser = database.superuser().await;
    let age = "update idempotency_keys set claimed_at = now() - interval '25 hours'";
    superuser.execute(age).await.unwrap();
    let key = IdempotencyKey::new(b"a", "POST", "/other", b"");
    assert_eq!(claim(&registry, &alice, key).await.unwrap(), Claim::New);
    let left: i64 = sqlx::query_scalar("select count(*) from idempotency_keys")
        .fetch_one(&mut superuser)
        .await
        .unwrap();
    assert_eq!(left, 1, "other expired rows are deleted");
}

/// Neither the request nor the key is stored, and the policies apply to the table.
#[tokio::test]
async fn only_hashes_are_stored() {
    let database = Database::migrated().await;
    database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    claim(&registry, &member("alice"), request("canary-body")).await.unwrap();
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
