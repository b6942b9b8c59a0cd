//! A database that becomes unreachable is reported quickly, and used again when it is back.

use std::time::{Duration, Instant};

use registry::{Operator, Registry, RegistryError, RuleChange, Tenant};

use crate::cluster::{self, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_database_is_unavailable_and_then_works_again() {
    let data_dir = cluster::fresh_data_dir("outage");
    let postgres = cluster::start(&data_dir).unwrap();
    let url = postgres.app_url();
    let operator = Operator::connect(&postgres.owner_url()).await.unwrap();
    operator.migrate().await.unwrap();
    operator.seed(&registry::shipped_catalog()).await.unwrap();
    operator.create_scope(&"acme.web".parse().unwrap()).await.unwrap();
    operator.close().await;
    let web = Tenant::of("acme.web".parse().unwrap());
    let registry = Registry::connect_with(&url, 4).await.unwrap();
    let (key, _) = registry.create_key(&web, crate::keys::new_key()).await.unwrap();
    // Opens several connections, all of which go stale.
    let busy = futures_of(&registry, &web, 8).await;
    assert!(busy.iter().all(Result::is_ok), "{busy:?}");
    let routes = registry.routes();

    postgres.stop().unwrap();
    let started = Instant::now();
    for answer in futures_of(&registry, &web, 8).await {
        assert!(matches!(answer, Err(RegistryError::Unavailable(_))), "{answer:?}");
    }
    let refused = registry.authenticate(key.expose()).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Unavailable(_)), "{refused}");
    let refused = registry.check_ready().await.unwrap_err();
    assert!(matches!(refused, RegistryError::Unavailable(_)), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(10), "failed after {:?}", started.elapsed());
    // The message does not reveal the database server; only a failed start names it.
    assert_eq!(refused.to_string(), "the database is unavailable");
    let refused = Registry::connect(&url).await.unwrap_err();
    assert!(matches!(refused, RegistryError::NoConnection { .. }), "{refused}");
    // The cached routes stay available.
    assert_eq!(registry.routes(), routes);

    let postgres = cluster::start(&data_dir).unwrap();
    assert_eq!(postgres.app_url(), url);
    // While the database is down, the registry probes it four times a second.
    eventually("the database answers", async || {
        futures_of(&registry, &web, 8).await.iter().all(Result::is_ok).then_some(())
    })
    .await;
    registry.authenticate(key.expose()).await.unwrap();
    registry.check_ready().await.unwrap();
    // The listener is back as well.
    let operator = Operator::connect(&postgres.owner_url()).await.unwrap();
    let set = RuleChange::Set(protocol::Routing::Server);
    operator.change_rule(&"acmetool:*".parse().unwrap(), set).await.unwrap();
    eventually("the listener is back", async || {
        (registry.routes().etag != routes.etag).then_some(())
    })
    .await;
    operator.close().await;
    registry.close().await;
    postgres.stop().unwrap();
}

/// A restart between two requests: connections that died idle are not handed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_on_a_connection_that_died_idle() {
    let database = crate::database::Database::seeded().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (key, _) = registry.create_key(&web, crate::keys::new_key()).await.unwrap();
    let mut superuser = database.superuser().await;
    for _ in 0..5 {
        let busy = futures_of(&registry, &web, 8).await;
        assert!(busy.iter().all(Result::is_ok), "{busy:?}");
        let killed: i64 = sqlx::query_scalar(
            "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity
            where datname = current_database() and usename = 'pml_app'",
        )
        .fetch_one(&mut superuser)
        .await
        .unwrap();
        assert!(killed > 0);
        registry.authenticate(key.expose()).await.unwrap();
        registry.check_ready().await.unwrap();
        for answer in futures_of(&registry, &web, 8).await {
            answer.expect("a fresh connection");
        }
    }
}

async fn futures_of(
    registry: &Registry,
    tenant: &Tenant,
    count: usize,
) -> Vec<Result<registry::Resolved, RegistryError>> {
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (registry, tenant) = (registry.clone(), tenant.clone());
        requests.spawn(async move {
            registry.resolve(&tenant, &["time:convert_time".parse().unwrap()]).await
        });
    }
    requests.join_all().await
}

/// A slow statement is not mistaken for an unresponsive database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_statement_does_not_count_as_silence() {
    let database = crate::database::Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    sqlx::raw_sql(
        "create function sleep_on() returns trigger language plpgsql as $$
            begin perform pg_sleep(3); return new; end $$;
        create trigger sleep_on before insert on api_keys for each row execute function sleep_on()",
    )
    .execute(&mut database.owner().await)
    .await
    .unwrap();
    registry.create_key(&web, crate::keys::new_key()).await.unwrap();
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items.len(), 1);
}

/// waiting for a lock fails before the statement timeout of five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_lock_is_limited() {
    let database = crate::database::Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let mut holder = database.superuser().await;
    sqlx::raw_sql("begin; lock table api_keys in exclusive mode")
        .execute(&mut holder)
        .await
        .unwrap();
    let started = Instant::now();
    let refused = registry.create_key(&web, crate::keys::new_key()).await.unwrap_err();
    let took = started.elapsed();
    assert!(matches!(refused, RegistryError::Unavailable(_)), "{refused}");
    assert!(took < Duration::from_millis(4_500), "failed after {took:?}");
    // Other requests still find the database available.
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items, []);
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    registry.create_key(&web, crate::keys::new_key()).await.unwrap();
}
