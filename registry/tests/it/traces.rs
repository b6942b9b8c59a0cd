//! Traces: their partitions, how they are removed, and that lists of executions do not become slower.

use std::num::NonZeroU16;
use std::sync::Arc;

use chrono::{SubsecRound as _, Utc};
use protocol::{Integrity, Routing, TraceKind, TraceStatus};
use registry::{
    Decision, ExecutionFilter, ExecutionStatus, NewExecution, NewTrace, NewTraceEvent, OwnTrace,
    Reader, Registry, RegistryError, Retention, StoredTrace, Tenant,
};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use uuid::Uuid;

use crate::cluster::eventually;
use crate::database::{Database, is_not_found};
use crate::executions::new_execution;

fn member(scope: &str, principal: &str) -> Tenant {
    Tenant::member(scope.parse().unwrap(), principal.parse().unwrap())
}

/// A trace with this many calls in a row.
fn trace(calls: i32) -> NewTrace {
    let started_at = Utc::now().trunc_subsecs(6);
    let event = |seq: i32| NewTraceEvent {
        seq,
        trace_id: seq.to_string(),
        parent_trace_id: None,
        tool: "json:parse".parse().unwrap(),
        kind: TraceKind::Tool,
        routing: Routing::Client,
        status: TraceStatus::Success,
        error_code: None,
        started_at,
        duration_ms: Some(1),
        arguments: None,
        result: None,
    };
    NewTrace {
        run_id: Uuid::now_v7(),
        execution_id: None,
        code_hash: Integrity::of(b"return 1"),
        status: TraceStatus::Success,
        error_code: None,
        started_at,
        duration_ms: 5,
        arguments: None,
        result: None,
        event_count: calls,
        events_dropped: 0,
        events: (1..=calls).map(event).collect(),
    }
}

fn retention(traces: u16, executions: u16) -> Retention {
    let days = |days| NonZeroU16::new(days).unwrap();
    Retention { traces: days(traces), executions: days(executions), synced_tools: days(30) }
}

async fn expire(registry: &Registry) {
    while registry.expire_records(retention(90, 365)).await.unwrap() > 0 {}
}

#[tokio::test]
async fn old_records_are_removed_and_others_stay() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let ann = member("acme.web", "ann");
    let (old, new) = (trace(2), trace(2));
    for trace in [&old, &new] {
        assert_eq!(registry.store_trace(&ann, trace.clone()).await.unwrap(), StoredTrace::Stored);
    }
    let [ancient, recent] = [new_execution(), new_execution()];
    for execution in [&ancient, &recent] {
        registry.begin_execution(&ann, execution.clone()).await.unwrap();
    }
    let partitions = async || -> Vec<String> {
        let names = "select inhrelid::regclass::text from pg_inherits
            where inhparent = 'trace_events'::regclass order by 1";
        sqlx::query_scalar(names).fetch_all(&mut database.owner().await).await.unwrap()
    };
    let made = partitions().await;
    assert_eq!(made.len(), 3, "{made:?}");
    // Making them again changes nothing.
    registry.make_trace_partitions().await.unwrap();
    assert_eq!(partitions().await, made);
    // Nothing is old yet.
    expire(&registry).await;
    assert_eq!(partitions().await, made);

    let age = format!(
        "update traces set received_at = now() - interval '200 days' where run_id = '{}';
        update executions set started_at = now() - interval '366 days' where id = '{}';
        create table trace_events_2020_01 partition of trace_events for values from ('2020-01-01') to ('2020-02-01')",
        old.run_id, ancient.id
    );
    let mut superuser = database.superuser().await;
    sqlx::raw_sql(AssertSqlSafe(age)).execute(&mut superuser).await.unwrap();
    sqlx::raw_sql("alter table trace_events_2020_01 owner to pml_owner")
        .execute(&mut superuser)
        .await
        .unwrap();
    expire(&registry).await;
    assert!(is_not_found(registry.trace(&ann, Reader::Own, old.run_id, 0, 10).await));
    let kept = registry.trace(&ann, Reader::Own, new.run_id, 0, 10).await.unwrap();
    assert_eq!(kept.events.len(), 2);
    assert!(is_not_found(registry.execution(&ann, Reader::Own, ancient.id).await));
    registry.execution(&ann, Reader::Own, recent.id).await.unwrap();
    assert_eq!(partitions().await, made);

    // The role that serves cannot remove what has just happened.
    for days in [retention(6, 365), retention(90, 6)] {
        let refused = registry.expire_records(days).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Invalid(_)), "{refused}");
    }
}

/// The setting that lets the owner remove rows gives the role that serves nothing.
#[tokio::test]
async fn the_serving_role_cannot_remove_or_change_traces() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    registry.store_trace(&member("acme.web", "ann"), trace(1)).await.unwrap();
    let mut app = database.app().await;
    app.execute("begin; select set_config('app.expiring', 'on', true)").await.unwrap();
    let seen: i64 =
        sqlx::query_scalar("select count(*) from traces").fetch_one(&mut app).await.unwrap();
    assert_eq!(seen, 0, "the setting opens rows of other tenants");
    app.execute("rollback").await.unwrap();
    for statement in [
        "delete from traces",
        "update traces set status = 'error'",
        "delete from trace_events",
        "update trace_events set tool = 'a:b'",
        "truncate trace_events",
        "create policy mine on traces using (true)",
        "select expire_records(0, 365, 10)",
    ] {
        app.execute(statement).await.expect_err(statement);
    }
}

/// A trace of the gateway itself belongs to the principal of the execution, and is written once.
#[tokio::test]
async fn own_traces_are_stored_once_and_beside_those_of_clients() {
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let (ann, ben) = (member("acme.web", "ann"), member("acme.web", "ben"));
    let execution = new_execution();
    registry.begin_execution(&ann, execution.clone()).await.unwrap();
    // A client that has guessed the id cannot take the place of what the gateway saw.
    let forged = NewTrace { run_id: execution.id, status: TraceStatus::Denied, ..trace(0) };
    assert_eq!(registry.store_trace(&ann, forged).await.unwrap(), StoredTrace::Stored);
    let own = OwnTrace {
        principal: "ann".parse().unwrap(),
        trace: NewTrace { run_id: execution.id, ..trace(3) },
    };
    let traces = Arc::new(vec![own]);
    for _ in 0..3 {
        registry.store_own_traces(&"acme.web".parse().unwrap(), traces.clone()).await.unwrap();
    }
    let read = registry.trace(&ann, Reader::Own, execution.id, 0, 10).await.unwrap();
    assert_eq!((read.status, read.events.len()), (TraceStatus::Success, 3));
    let record = registry.execution(&ann, Reader::Own, execution.id).await.unwrap();
    assert_eq!(record.trace_id, Some(execution.id));
    assert!(is_not_found(registry.trace(&ben, Reader::Own, execution.id, 0, 10).await));
    registry.trace(&ben, Reader::Project, execution.id, 0, 10).await.unwrap();
    let rows: i64 = sqlx::query_scalar("select count(*) from trace_events")
        .fetch_one(&mut database.superuser().await)
        .await
        .unwrap();
    assert_eq!(rows, 3);
}

/// However many executions there are, and however few of them a filter matches, a page reads few rows.
#[tokio::test]
async fn lists_of_executions_stay_flat() {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok());
    // In a smaller table, reading all of it can be the cheapest.
    let count = (1_000_000.0 * scale.unwrap_or(0.1_f64)).max(100_000.0) as u64;
    let database = Database::migrated().await;
    database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let [ann, ben] = ["ann", "ben"].map(|principal| member("acme.web", principal));
    // Ben's only one is the oldest.
    let first = NewExecution { decision: Decision::Client, ..new_execution() };
    registry.begin_execution(&ben, first.clone()).await.unwrap();
    let rows = format!(
        "insert into executions (id, org, project, principal, decision, status, code_hash, code_bytes, args_bytes,
            dynamic, tools, started_at, deadline_at, finished_at)
        select gen_random_uuid(), org, project, 'ann', 'server', 'success', code_hash, 8, 2, false, '{{json:parse}}',
            started_at + make_interval(secs => n), deadline_at, now()
        from executions, generate_series(1, {count}) n;
        analyze executions"
    );
    let mut superuser = database.superuser().await;
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut superuser).await.unwrap();
    let by = |principal: &str| Some(principal.to_owned());
    let rare = ExecutionFilter { status: Some(ExecutionStatus::Error), ..Default::default() };
    let absent = ExecutionFilter { tool: Some("a:b".parse().unwrap()), ..Default::default() };
    for (tenant, reader, filter, expected) in [
        (&ann, Reader::Project, ExecutionFilter::default(), 20),
        (&ann, Reader::Own, ExecutionFilter::default(), 20),
        (&ben, Reader::Own, ExecutionFilter::default(), 1),
        (&ann, Reader::Project, ExecutionFilter { principal: by("ben"), ..Default::default() }, 1),
        (&ann, Reader::Project, rare.clone(), 0),
        (&ann, Reader::Own, rare, 0),
        (&ann, Reader::Project, absent, 0),
    ] {
        let what = format!("{reader:?} {filter:?}");
        let before = rows_read(&database, "executions").await;
        let reading = database.registry().await;
        let page = reading.executions(tenant, reader, filter.clone(), None, 20).await.unwrap();
        // The database adds up what a connection has read when it is closed.
        reading.close().await;
        assert_eq!(page.items.len(), expected, "{what}");
        // A page that found nothing in what it looked at is not the last one.
        assert_eq!(page.next_cursor.is_some(), expected != 1, "{what}");
        let after = eventually("the statistics", async || {
            Some(rows_read(&database, "executions").await)
                .filter(|after| after.scans > before.scans)
        })
        .await;
        assert_eq!(after.sequential, before.sequential, "{what}: the whole table was read");
        let fetched = after.fetched - before.fetched;
        assert!(fetched <= 4_200, "{what}: {fetched} rows were fetched");
    }
    // The pages of a rare filter lead to what it matches.
    let delegated =
        ExecutionFilter { status: Some(ExecutionStatus::Delegated), ..Default::default() };
    let (mut cursor, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = registry
            .executions(&ann, Reader::Project, delegated.clone(), cursor.as_deref(), 20)
            .await
            .unwrap();
        found.extend(page.items.into_iter().map(|item| item.id));
        pages += 1;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, [first.id]);
    assert_eq!(pages, count / 2_000 + 1);
}

/// However many runs a principal has, an execution is read with its own, and in a database without statistics, too.
#[tokio::test]
async fn an_execution_is_read_without_the_runs_of_others() {
    for has_statistics in [false, true] {
        let database = Database::migrated().await;
        database.tenants(["acme.web"]).await;
        let registry = database.registry().await;
        let ann = member("acme.web", "ann");
        let delegated = NewExecution { decision: Decision::Client, ..new_execution() };
        let own = new_execution();
        for execution in [&delegated, &own] {
            registry.begin_execution(&ann, execution.clone()).await.unwrap();
        }
        let told = NewTrace { execution_id: Some(delegated.id), ..trace(1) };
        assert_eq!(registry.store_trace(&ann, told.clone()).await.unwrap(), StoredTrace::Stored);
        let ran = OwnTrace {
            principal: "ann".parse().unwrap(),
            trace: NewTrace { run_id: own.id, ..trace(1) },
        };
        let scope = "acme.web".parse().unwrap();
        registry.store_own_traces(&scope, Arc::new(vec![ran])).await.unwrap();
        let many = "insert into traces (id, org, project, principal, origin, run_id, execution_id, code_hash, status,
                started_at, duration_ms, event_count)
            select gen_random_uuid(), org, project, principal, origin, gen_random_uuid(),
                case when origin = 'client' then gen_random_uuid() end, code_hash, status, started_at, 1, 0
            from traces, generate_series(1, 10000)";
        let mut superuser = database.superuser().await;
        sqlx::raw_sql(many).execute(&mut superuser).await.unwrap();
        if has_statistics {
            superuser.execute("analyze traces").await.unwrap();
        }
        for (execution, run) in [(&delegated, told.run_id), (&own, own.id)] {
            let before = rows_read(&database, "traces").await;
            let reading = database.registry().await;
            let record = reading.execution(&ann, Reader::Own, execution.id).await.unwrap();
            reading.close().await;
            assert_eq!(record.trace_id, Some(run));
            let after = eventually("the statistics", async || {
                Some(rows_read(&database, "traces").await).filter(|it| it.scans > before.scans)
            })
            .await;
            let what = format!("{:?}, {has_statistics}", execution.decision);
            assert_eq!(after.sequential, before.sequential, "{what}: the whole table was read");
            assert!(after.fetched - before.fetched <= 4, "{what}");
        }
    }
}

struct RowsRead {
    scans: i64,
    sequential: i64,
    fetched: i64,
}

async fn rows_read(database: &Database, table: &str) -> RowsRead {
    let read = sqlx::query(
        "select coalesce(idx_scan, 0) as scans, seq_tup_read as sequential,
        coalesce(idx_tup_fetch, 0) as fetched from pg_stat_user_tables where relname = $1",
    );
    let row = read.bind(table).fetch_one(&mut database.superuser().await).await.unwrap();
    RowsRead {
        scans: row.get("scans"),
        sequential: row.get("sequential"),
        fetched: row.get("fetched"),
    }
}
