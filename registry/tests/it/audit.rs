//! The audit log is a hash chain: changed, deleted and inserted events are detected.

use registry::{AuditEvent, AuditOutcome, MIGRATOR, Registry, Tenant};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::database::{Database, act_as};

fn event(target: &str) -> AuditEvent {
    AuditEvent::new("tool.call", target, AuditOutcome::Refused)
}

async fn record(registry: &Registry, tenant: &Tenant, events: usize) {
    for number in 0..events {
        registry.audit(tenant, event(&format!("t{number}"))).await.unwrap();
    }
}

/// Changes the log in a way that no role of the product may.
async fn tamper(database: &Database, sql: &str) {
    let mut superuser = database.superuser().await;
    superuser.execute("alter table audit_log disable trigger all").await.unwrap();
    superuser.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    superuser.execute("alter table audit_log enable trigger all").await.unwrap();
}

/// Events of two tenants that are sent to two gateways concurrently form two chains without gaps.
#[tokio::test]
async fn concurrent_events_form_one_chain() {
    let database = Database::migrated().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let gateways = [database.registry().await, database.registry().await];
    let before = gateways[0].audit_log(&web, None, 200).await.unwrap().events.len();
    let mut writers = JoinSet::new();
    for number in 0..60 {
        let registry = gateways[number % 2].clone();
        let tenant = if number % 3 == 0 { shop.clone() } else { web.clone() };
        writers.spawn(async move { registry.audit(&tenant, event(&format!("t{number}"))).await });
    }
    writers.join_all().await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    for (tenant, count) in [(&web, 40), (&shop, 20)] {
        let page = gateways[1].audit_log(tenant, None, 200).await.unwrap();
        let places: Vec<i64> = page.events.iter().map(|event| event.seq).collect();
        let last = i64::try_from(count + before).unwrap();
        assert_eq!(places, (1..=last).rev().collect::<Vec<_>>());
        assert!(page.events.is_sorted_by(|newer, older| newer.at >= older.at));
        assert_eq!(gateways[0].first_bad_event(tenant).await.unwrap(), None);
    }
}

#[tokio::test]
async fn pages_contain_every_event_once() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    record(&registry, &web, 7).await;
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = registry.audit_log(&web, before, 3).await.unwrap();
        seen.extend(page.events.iter().map(|event| event.seq));
        before = page.next_before;
        if before.is_none() {
            break;
        }
    }
    assert!(seen.len() >= 7 && seen.is_sorted_by(|a, b| a == &(b + 1)), "{seen:?}");
    assert!(registry.audit_log(&Tenant::anonymous(), None, 3).await.is_err());
}

#[tokio::test]
async fn tampering_with_the_log_is_detected() {
    let change = "update audit_log set outcome = 'allowed' where seq = 4";
    let gap = "delete from audit_log where seq = 4";
    let swap = "with a as (select target from audit_log where seq = 4)
        update audit_log set target = (select target from a) where seq = 5";
    let hidden = "update audit_log set at = at - interval '1 microsecond' where seq = 4";
    let forged = "update audit_log set hash = sha256('x') where seq = 4";
    let first = "delete from audit_log where seq = 1";
    let between = "update audit_log set seq = seq + 1 where seq > 4;
        insert into audit_log (org, project, seq, principal, action, target, outcome, hash)
        select org, project, 5, principal, action, 'forged', outcome, hash from audit_log where seq = 4";
    for (sql, place) in
        [(change, 4), (gap, 4), (swap, 5), (hidden, 4), (forged, 4), (first, 1), (between, 5)]
    {
        let database = Database::migrated().await;
        let [web, other] = database.tenants(["acme.web", "other.web"]).await;
        let registry = database.registry().await;
        record(&registry, &web, 10).await;
        assert_eq!(registry.first_bad_event(&web).await.unwrap(), None);
        // Without the unique index, because shifting positions would violate it row by row.
        tamper(&database, "drop index audit_log_chain").await;
        tamper(&database, sql).await;
        assert_eq!(registry.first_bad_event(&web).await.unwrap(), Some(place), "{sql}");
        assert_eq!(registry.first_bad_event(&other).await.unwrap(), None, "{sql}");
    }
}

/// The writer of an event cannot choose its position, its time or its hash.
#[tokio::test]
async fn a_writer_cannot_choose_position_time_or_hash() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    record(&registry, &web, 2).await;
    let mut app = database.app().await;
    act_as(&mut app, "acme.web", "").await;
    app.execute(
        "insert into audit_log (org, project, seq, at, principal, action, target, outcome, hash)
        values ('acme', 'web', 1, '1999-01-01', 'mallory', 'key.create', 'k', 'allowed', sha256('x'))",
    )
    .await
    .unwrap();
    app.execute("commit").await.unwrap();
    let newest = &registry.audit_log(&web, None, 1).await.unwrap().events[0];
    assert_eq!(newest.principal, "mallory");
    assert!(newest.seq >= 3 && !newest.at.starts_with("1999"), "{newest:?}");
    assert_eq!(registry.first_bad_event(&web).await.unwrap(), None);
}

/// The chain includes events that were recorded before it existed.
#[tokio::test]
async fn the_migration_chains_older_events() {
    let database = Database::empty().await;
    let mut owner = database.owner().await;
    for migration in MIGRATOR.iter().filter(|migration| migration.version < 5) {
        sqlx::raw_sql(migration.sql.clone()).execute(&mut owner).await.unwrap();
    }
    for (scope, project) in [("acme.web", "web"), ("acme.shop", "shop")] {
        act_as(&mut owner, scope, "").await;
        owner
            .execute("insert into orgs (name) values ('acme') on conflict do nothing")
            .await
            .unwrap();
        let sql = format!(
            "insert into projects (org, name) values ('acme', '{project}');
            insert into audit_log (org, project, principal, action, target, outcome)
            select 'acme', '{project}', 'alice', 'tool.call', 't' || n, 'allowed'
            from generate_series(1, 5) n"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut owner).await.unwrap();
        owner.execute("commit").await.unwrap();
    }
    let chain = MIGRATOR.iter().find(|migration| migration.version == 5).unwrap();
    sqlx::raw_sql(chain.sql.clone()).execute(&mut owner).await.unwrap();
    for scope in ["acme.web", "acme.shop"] {
        act_as(&mut owner, scope, "").await;
        let bad: Option<i64> =
            sqlx::query_scalar("select audit_first_bad()").fetch_one(&mut owner).await.unwrap();
        let places: Vec<i64> = sqlx::query_scalar("select seq from audit_log order by id")
            .fetch_all(&mut owner)
            .await
            .unwrap();
        assert_eq!((bad, places), (None, vec![1, 2, 3, 4, 5]), "{scope}");
        owner.execute("commit").await.unwrap();
    }
}
