//! The keys that secrets are sealed with: data keys, and the master keys that wrap them.

use std::sync::Arc;

use registry::{MasterKeys, Registry, RegistryError, SecretOwner};
use sqlx::Executor as _;
use tokio::task::JoinSet;

use super::{CANARY, master_key, name, purpose, used, value, with};
use crate::database::{Database, act_as, sqlstate};
use crate::published::tamper;

/// SE-05: uses are counted, a used-up key is replaced, and a table constraint stops well before 2^32 uses.
#[tokio::test]
async fn a_data_key_is_replaced_long_before_nonces_can_collide() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = with(&database, vec![master_key()()]).await;
    let mut puts = JoinSet::new();
    for number in 0..12 {
        let (registry, web) = (registry.clone(), web.clone());
        puts.spawn(async move {
            let key = name(&format!("K{}", number % 4));
            registry
                .put_secret(&web, SecretOwner::Project, &key, value(CANARY), vec![])
                .await
                .unwrap()
        });
    }
    puts.join_all().await;
    let mut owner = database.superuser().await;
    let uses: Vec<(i32, i64)> =
        sqlx::query_as("select version, uses from data_keys").fetch_all(&mut owner).await.unwrap();
    assert_eq!(uses, [(1, 12)]);
    tamper(&database, "update data_keys set uses = 1073741824").await;
    registry
        .put_secret(&web, SecretOwner::Project, &name("K0"), value("new"), vec![])
        .await
        .unwrap();
    let uses: Vec<(i32, i64)> =
        sqlx::query_as("select version, uses from data_keys order by version")
            .fetch_all(&mut owner)
            .await
            .unwrap();
    assert_eq!(uses, [(1, 1 << 30), (2, 1)]);
    // Values that the old key sealed still open.
    assert_eq!(used(&registry, &web, "K1").await.as_deref(), Some(CANARY));
    assert_eq!(used(&registry, &web, "K0").await.as_deref(), Some("new"));
    let mut app = database.app().await;
    act_as(&mut app, "acme.web", "alice").await;
    let beyond = app.execute("update data_keys set uses = uses + 1 where version = 1").await;
    assert_eq!(sqlstate(beyond), "23514");
}

#[tokio::test]
async fn a_wrong_master_key_is_detected_at_start() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let bare = database.registry().await;
    let key = name("K");
    assert!(!bare.has_master_key().await.unwrap());
    let refused =
        bare.put_secret(&web, SecretOwner::Project, &key, value("x"), vec![]).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NoMasterKey), "{refused}");
    assert_eq!(bare.use_secret(&web, &key, purpose()).await.unwrap(), None);
    let right = master_key();
    let registry = with(&database, vec![right()]).await;
    registry.put_secret(&web, SecretOwner::Project, &key, value("x"), vec![]).await.unwrap();
    assert!(bare.has_master_key().await.unwrap());
    let refused = bare.use_secret(&web, &key, purpose()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NoMasterKey), "{refused}");
    let wrong = MasterKeys::new(vec![master_key()()]);
    let refused = database.registry().await.with_master_keys(wrong).await.unwrap_err();
    assert!(matches!(&refused, RegistryError::WrongMasterKey { id } if id == right().id()));
    // Additional wrong keys do no harm.
    let registry = with(&database, vec![master_key()(), right()]).await;
    assert_eq!(used(&registry, &web, "K").await.as_deref(), Some("x"));
    // A changed check value is detected.
    tamper(&database, "update master_keys set check_value = '\\x00'").await;
    let same = MasterKeys::new(vec![right()]);
    database.registry().await.with_master_keys(same).await.unwrap_err();
}

/// SE-07: at every point of a rotation, gateways with both keys can read everything.
#[tokio::test]
async fn a_rotation_can_be_interrupted_anywhere() {
    let database = Database::migrated().await;
    let orgs: Vec<String> = (0..6).map(|number| format!("org{number}.web")).collect();
    let tenants: [&str; 6] = std::array::from_fn(|index| orgs[index].as_str());
    let tenants = database.tenants(tenants).await;
    let (old, new) = (master_key(), master_key());
    let registry = with(&database, vec![old(), new()]).await;
    for tenant in &tenants[..5] {
        registry
            .put_secret(tenant, SecretOwner::Project, &name("K"), value(CANARY), vec![])
            .await
            .unwrap();
    }
    let reads_all = async |registry: &Registry| {
        for tenant in &tenants[..5] {
            assert_eq!(used(registry, tenant, "K").await.as_deref(), Some(CANARY));
        }
    };
    let keys = Arc::new(MasterKeys::new(vec![old(), new()]));
    let operator = database.operator().await;
    // A rotation does not start without the old key.
    let only_new = Arc::new(MasterKeys::new(vec![new()]));
    operator.begin_rotation(&only_new, new().id()).await.unwrap_err();
    let mut done = 0;
    loop {
        // Each iteration is a run that was killed after one batch.
        operator.begin_rotation(&keys, new().id()).await.unwrap();
        reads_all(&registry).await;
        reads_all(&with(&database, vec![new(), old()]).await).await;
        let one = MasterKeys::new(vec![new()]);
        database.registry().await.with_master_keys(one).await.unwrap_err();
        let report = operator.rewrap(&keys, None, 2).await.unwrap();
        done += report.done;
        assert_eq!(operator.retire_master_keys().await.unwrap().is_empty(), done < 5);
        if report.next.is_none() {
            break;
        }
    }
    assert_eq!(done, 5);
    // Now the old key is no longer needed, and new organisations use the new one.
    let registry = with(&database, vec![new()]).await;
    reads_all(&registry).await;
    registry
        .put_secret(&tenants[5], SecretOwner::Project, &name("K"), value("x"), vec![])
        .await
        .unwrap();
    let status = operator.master_keys().await.unwrap();
    assert_eq!(status.len(), 1);
    assert_eq!((status[0].id.as_str(), status[0].data_keys), (new().id(), 6));
    let refused = MasterKeys::new(vec![old()]);
    database.registry().await.with_master_keys(refused).await.unwrap_err();
}
