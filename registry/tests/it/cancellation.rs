//! A dropped or failed request leaves neither an open transaction nor a tenant's settings on a pooled connection.

use std::time::Duration;

use protocol::ToolId;
use registry::{CatalogFilter, DiscoverQuery, Registry, RegistryError};
use sqlx::Executor as _;

use crate::cluster::eventually;
use crate::database::Database;
use crate::executions::{finished, new_execution};
use crate::keys::new_key;

/// A pseudo-random generator with a fixed seed.
struct Steps(u64);

impl Steps {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's MMIX constants. The high bits are the most random ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_requests_leave_no_settings_or_transaction() {
    let database = Database::seeded().await;
    let tenants = database.tenants(["acme.web", "other.web"]).await;
    let setup = database.registry().await;
    let (key, record) = setup.create_key(&tenants[0], new_key()).await.unwrap();
    setup.revoke_key(&tenants[0], record.id).await.unwrap();
    setup.close().await;
    // `authenticate` is the only call that runs outside of a tenant's transaction, so left-over settings would show
    // there.
    sqlx::raw_sql(
        "create or replace function key_by_hash(presented bytea)
            returns table (id uuid, org text, project text, principal text, rights text[], expires_at timestamptz, org_role text, made_by text)
            volatile language plpgsql as $$
        begin
            if app_org() is not null or app_project() is not null or app_principal() is not null then
                raise exception 'the settings of `%.%` were left behind', app_org(), app_project();
            end if;
        end $$",
    )
    .execute(&mut database.owner().await)
    .await
    .unwrap();
    let mut watcher = database.superuser().await;
    let mut steps = Steps(0x5eed);
    let ids: Vec<ToolId> = vec!["git:git_status".parse().unwrap(), "no:such".parse().unwrap()];
    for connections in [1, 2] {
        let registry = Registry::connect_with(&database.app_url(), connections).await.unwrap();
        for round in 0..400_u64 {
            let tenant = &tenants[round as usize % 2];
            let execution = new_execution();
            let id = execution.id;
            let request = async {
                match round % 6 {
                    0 => drop(registry.resolve(tenant, &ids).await),
                    1 => drop(registry.catalog(tenant, &CatalogFilter::default(), None, 9).await),
                    2 => drop(registry.begin_execution(tenant, execution).await),
                    3 => drop(registry.finish_execution(tenant, id, finished()).await),
                    4 => {
                        let query = DiscoverQuery::Text("status".to_owned());
                        drop(registry.discover(tenant, &query, 3).await);
                    }
                    _ => drop(registry.keys(tenant, None, 100).await),
                }
            };
            // Drops the request at any time from before its first message to after its last.
            let patience = Duration::from_micros(steps.below(2_500));
            let _ = tokio::time::timeout(patience, request).await;
            if steps.below(4) == 0 {
                let answer = registry.authenticate(key.expose()).await.unwrap_err();
                assert!(matches!(answer, RegistryError::InvalidCredential), "{answer:?}");
            }
        }
        // Every connection of the pool, at once.
        for _ in 0..20 {
            let both = tokio::join!(
                registry.authenticate(key.expose()),
                registry.authenticate(key.expose()),
            );
            for answer in [both.0, both.1] {
                assert!(matches!(answer, Err(RegistryError::InvalidCredential)), "{answer:?}");
            }
        }
        eventually("no transaction stays open", async || {
            let open: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity where datname = current_database()
                    and usename = 'pml_app' and state like 'idle in transaction%'",
            )
            .fetch_one(&mut watcher)
            .await
            .unwrap();
            (open == 0).then_some(())
        })
        .await;
        for tenant in &tenants {
            let resolved = registry.resolve(tenant, &ids).await.unwrap();
            assert_eq!((resolved.tools.len(), resolved.missing.len()), (1, 1));
        }
        registry.close().await;
    }
    watcher.execute("select 1").await.unwrap();
}

/// A request that is dropped while it waits for a connection does not take one.
#[tokio::test]
async fn a_dropped_waiting_request_leaks_no_connection() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = Registry::connect_with(&database.app_url(), 1).await.unwrap();
    for _ in 0..50 {
        let waiting = (0..8).map(|_| registry.keys(&web, None, 100));
        let mut waiting: Vec<_> = waiting.map(Box::pin).collect();
        for request in &mut waiting {
            // Polled once, so that it waits in the queue.
            let _ = tokio::time::timeout(Duration::ZERO, request.as_mut()).await;
        }
        drop(waiting);
    }
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items, []);
}

/// If a transaction fails while it begins, its connection does not return to the pool inside of it.
#[tokio::test]
async fn a_failed_begin_leaves_no_transaction() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let mut owner = database.owner().await;
    // Lets a function replace one of Postgres.
    let search_first =
        format!("alter database {} set search_path = public, pg_catalog", database.name());
    owner.execute(sqlx::AssertSqlSafe(search_first)).await.unwrap();
    let registry = Registry::connect_with(&database.app_url(), 1).await.unwrap();
    registry.keys(&web, None, 100).await.unwrap();
    owner
        .execute(
            "create function public.set_config(text, text, boolean) returns text language plpgsql
            as 'begin raise exception ''refused''; end'",
        )
        .await
        .unwrap();
    let refused = registry.keys(&web, None, 100).await.unwrap_err();
    assert!(format!("{refused:?}").contains("refused"), "{refused:?}");
    owner.execute("drop function public.set_config(text, text, boolean)").await.unwrap();
    assert_eq!(registry.keys(&web, None, 100).await.unwrap().items, []);
}
