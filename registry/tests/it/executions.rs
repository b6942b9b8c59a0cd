//! Records of executions: start and end once each, visible to their tenant only, and permanent.

use std::time::Duration;

use protocol::{ErrorCode, Integrity};
use registry::{
    AuditEvent, AuditOutcome, Decision, ExecutionEnd, ExecutionStatus, FinishedExecution,
    NewExecution, Reader, RegistryError, Tenant,
};
use sqlx::{Executor as _, Row as _};
use uuid::Uuid;

use crate::cluster::eventually;
use crate::database::{Database, act_as, is_not_found, sqlstate};

pub(crate) fn new_execution() -> NewExecution {
    NewExecution {
        id: Uuid::now_v7(),
        decision: Decision::Server,
        code_hash: Integrity::of(b"return 1"),
        code_bytes: 8,
        args_bytes: 2,
        dynamic: false,
        tools: vec!["json:parse".parse().unwrap()],
        limit: Duration::from_secs(30),
        error_code: None,
    }
}

pub(crate) fn finished() -> FinishedExecution {
    FinishedExecution {
        end: ExecutionEnd::Success,
        error_code: None,
        result_bytes: 1,
        calls: 3,
        duration: Duration::from_millis(12),
    }
}

#[tokio::test]
async fn an_execution_is_started_and_finished_once() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    for (decision, open, end, closed) in [
        (
            Decision::Server,
            ExecutionStatus::Running,
            ExecutionEnd::Success,
            ExecutionStatus::Success,
        ),
        (Decision::Client, ExecutionStatus::Delegated, ExecutionEnd::Error, ExecutionStatus::Error),
        (
            Decision::Server,
            ExecutionStatus::Running,
            ExecutionEnd::Cancelled,
            ExecutionStatus::Cancelled,
        ),
    ] {
        let new = NewExecution { decision, ..new_execution() };
        let id = new.id;
        registry.begin_execution(&web, new.clone()).await.unwrap();
        let begun = registry.execution(&web, Reader::Project, id).await.unwrap();
        assert_eq!((begun.status, begun.finished_at), (open, None));
        assert_eq!(
            (begun.principal.as_str(), begun.tools),
            ("operator", vec!["json:parse".into()])
        );
        assert_eq!(begun.code_hash, new.code_hash.to_string());
        // The same id cannot be used twice.
        let again = registry.begin_execution(&web, new).await.unwrap_err();
        assert!(matches!(again, RegistryError::Conflict(_)), "{again}");

        let last = FinishedExecution {
            end,
            error_code: (end == ExecutionEnd::Error).then_some(ErrorCode::ALL[0]),
            ..finished()
        };
        registry.finish_execution(&web, id, last).await.unwrap();
        let ended = registry.execution(&web, Reader::Project, id).await.unwrap();
        assert_eq!((ended.status, ended.calls, ended.duration_ms), (closed, Some(3), Some(12)));
        assert_eq!(ended.error_code.as_deref(), last.error_code.map(ErrorCode::name));
        assert!(ended.finished_at.unwrap() >= ended.started_at);
        let twice = registry.finish_execution(&web, id, finished()).await.unwrap_err();
        assert!(matches!(twice, RegistryError::Conflict(_)), "{twice}");
        assert_eq!(registry.execution(&web, Reader::Project, id).await.unwrap(), ended);
    }
}

#[tokio::test]
async fn a_refused_execution_cannot_be_finished() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let new = NewExecution {
        decision: Decision::Refused,
        error_code: Some(ErrorCode::ALL[0]),
        ..new_execution()
    };
    let id = new.id;
    registry.begin_execution(&web, new).await.unwrap();
    let refused = registry.execution(&web, Reader::Project, id).await.unwrap();
    assert_eq!(refused.status, ExecutionStatus::Refused);
    assert_eq!(refused.error_code.as_deref(), Some(ErrorCode::ALL[0].name()));
    assert!(refused.finished_at.is_some());
    let late = registry.finish_execution(&web, id, finished()).await.unwrap_err();
    assert!(matches!(late, RegistryError::Conflict(_)), "{late}");
}

/// Of several concurrent reports of the end, one is recorded.
#[tokio::test]
async fn of_concurrent_finishes_one_is_recorded() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let new = new_execution();
    let id = new.id;
    registry.begin_execution(&web, new).await.unwrap();
    let mut enders = tokio::task::JoinSet::new();
    for calls in 0..16 {
        let (registry, web) = (registry.clone(), web.clone());
        enders.spawn(async move {
            let end = FinishedExecution { calls, ..finished() };
            (calls, registry.finish_execution(&web, id, end).await)
        });
    }
    let (winners, losers): (Vec<_>, Vec<_>) =
        enders.join_all().await.into_iter().partition(|(_, end)| end.is_ok());
    assert_eq!(winners.len(), 1);
    assert!(losers.iter().all(|(_, end)| matches!(end, Err(RegistryError::Conflict(_)))));
    let calls = registry.execution(&web, Reader::Project, id).await.unwrap().calls;
    assert_eq!(calls, Some(winners[0].0 as i32));
}

#[tokio::test]
async fn an_overdue_execution_is_indeterminate() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let new = NewExecution { limit: Duration::ZERO, ..new_execution() };
    let id = new.id;
    registry.begin_execution(&web, new).await.unwrap();
    let open = registry.execution(&web, Reader::Project, id).await.unwrap();
    assert_eq!((open.status, open.finished_at), (ExecutionStatus::Indeterminate, None));
    // A late end is still recorded.
    registry.finish_execution(&web, id, finished()).await.unwrap();
    assert_eq!(
        registry.execution(&web, Reader::Project, id).await.unwrap().status,
        ExecutionStatus::Success
    );
}

#[tokio::test]
async fn executions_need_a_scope_that_exists() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let nowhere = Tenant::of("acme.nowhere".parse().unwrap());
    assert!(is_not_found(registry.begin_execution(&nowhere, new_execution()).await));
    let refused = registry.begin_execution(&Tenant::anonymous(), new_execution()).await;
    assert!(matches!(refused, Err(RegistryError::Invalid(_))), "{refused:?}");
    assert!(is_not_found(registry.execution(&web, Reader::Project, Uuid::now_v7()).await));
    assert!(is_not_found(registry.finish_execution(&web, Uuid::now_v7(), finished()).await));
}

/// Neither the serving role nor the owner can change or delete events.
#[tokio::test]
async fn the_audit_log_is_append_only() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let detail = serde_json::json!({ "reason": "\u{202e}no" });
    let event = AuditEvent::new("tool.call", "shell:exec", AuditOutcome::Refused)
        .with_detail(detail.clone());
    registry.audit(&web, event).await.unwrap();
    for mut connection in [database.app().await, database.owner().await] {
        for statement in [
            "update audit_log set outcome = 'allowed'",
            "delete from audit_log",
            "truncate audit_log",
        ] {
            act_as(&mut connection, "acme.web", "eve").await;
            assert_eq!(sqlstate(connection.execute(statement).await), "42501", "{statement}");
            connection.execute("rollback").await.unwrap();
        }
    }
    let kept: (String, String, serde_json::Value) =
        sqlx::query_as("select target, outcome, detail from audit_log where action = 'tool.call'")
            .fetch_one(&mut database.superuser().await)
            .await
            .unwrap();
    assert_eq!(kept, ("shell:exec".to_owned(), "refused".to_owned(), detail));
    let anonymous = AuditEvent::new("tool.call", "x:y", AuditOutcome::Failed);
    let refused = registry.audit(&Tenant::anonymous(), anonymous).await;
    assert!(matches!(refused, Err(RegistryError::Invalid(_))), "{refused:?}");
    // Text that Postgres cannot store is refused as invalid.
    let nul = AuditEvent::new("tool.call", "a\0b", AuditOutcome::Failed);
    let refused = registry.audit(&web, nul).await;
    assert!(matches!(refused, Err(RegistryError::Invalid(_))), "{refused:?}");
}

/// Executions of two tenants that begin and end at the same time are all recorded; one with the id of another is told so,
/// and nobody else.
#[tokio::test]
async fn concurrent_executions_are_each_recorded() {
    let database = Database::migrated().await;
    let [web, shop] = database.tenants(["acme.web", "acme.shop"]).await;
    let registry = database.registry().await;
    let all: Vec<(Tenant, NewExecution)> = (0..96)
        .map(|number| {
            let tenant = if number % 3 == 0 { &shop } else { &web };
            (tenant.clone(), NewExecution { code_bytes: number, ..new_execution() })
        })
        .collect();
    let taken = new_execution();
    registry.begin_execution(&web, taken.clone()).await.unwrap();
    let mut begins = tokio::task::JoinSet::new();
    for (tenant, new) in all.iter().cloned().chain((0..3).map(|_| (web.clone(), taken.clone()))) {
        let registry = registry.clone();
        begins.spawn(async move { (new.id, registry.begin_execution(&tenant, new).await) });
    }
    for (id, begun) in begins.join_all().await {
        match begun {
            Err(RegistryError::Conflict(_)) => assert_eq!(id, taken.id),
            begun => {
                begun.unwrap();
                assert_ne!(id, taken.id);
            }
        }
    }
    // Handed over, and not awaited: who reads here sees the ends all the same.
    for (tenant, new) in &all {
        let end = FinishedExecution { result_bytes: new.code_bytes, ..finished() };
        drop(registry.finish_execution(tenant, new.id, end));
    }
    for (tenant, new) in &all {
        let record = registry.execution(tenant, Reader::Project, new.id).await.unwrap();
        assert_eq!(record.status, ExecutionStatus::Success);
        assert_eq!(record.code_bytes, new.code_bytes as i64);
        assert_eq!(record.result_bytes, Some(new.code_bytes as i64));
    }
    let other = registry.execution(&shop, Reader::Project, taken.id).await;
    assert!(is_not_found(other), "no row has the tenant of another");
}

/// In a new database, whose tables have no statistics, an end still finds its row by the key: not by an index that begins
/// with the project, of which it would read everything, nor by the whole table.
#[tokio::test]
async fn ends_are_found_by_the_key_from_the_first_moment() {
    const COUNT: usize = 200;
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    for _ in 0..COUNT / 10 {
        let all: Vec<NewExecution> = (0..10).map(|_| new_execution()).collect();
        let mut ends = tokio::task::JoinSet::new();
        for new in all {
            let (registry, web) = (registry.clone(), web.clone());
            ends.spawn(async move {
                registry.begin_execution(&web, new.clone()).await.unwrap();
                registry.finish_execution(&web, new.id, finished()).await.unwrap();
            });
        }
        ends.join_all().await;
    }
    // The database adds up what a connection has read when it is closed.
    registry.close().await;
    let scans = "select
        coalesce(sum(idx_scan) filter (where indexrelname = 'executions_pkey'), 0)::bigint as by_key,
        coalesce(sum(idx_scan) filter (where indexrelname <> 'executions_pkey'), 0)::bigint as otherwise,
        (select seq_tup_read from pg_stat_user_tables where relname = 'executions') as sequential
        from pg_stat_user_indexes where relname = 'executions'";
    let row = eventually("the statistics", async || {
        let row = database.superuser().await.fetch_one(scans).await.unwrap();
        (row.get::<i64, _>("by_key") >= COUNT as i64).then_some(row)
    })
    .await;
    assert_eq!(row.get::<i64, _>("otherwise"), 0, "another index was read");
    assert_eq!(row.get::<i64, _>("sequential"), 0, "the whole table was read");
}

/// What was handed over is written before the connections close.
#[tokio::test]
async fn closing_writes_the_ends_that_were_handed_over() {
    let database = Database::migrated().await;
    let [web] = database.tenants(["acme.web"]).await;
    let registry = database.registry().await;
    let all: Vec<NewExecution> = (0..32).map(|_| new_execution()).collect();
    for new in &all {
        registry.begin_execution(&web, new.clone()).await.unwrap();
    }
    for new in &all {
        drop(registry.finish_execution(&web, new.id, finished()));
    }
    registry.close().await;
    let other = database.registry().await;
    for new in &all {
        let record = other.execution(&web, Reader::Project, new.id).await.unwrap();
        assert_eq!(record.status, ExecutionStatus::Success);
    }
}
