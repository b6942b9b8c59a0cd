//! Writes the begins and the ends of executions, those of one project together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::{ErrorCode, Scope};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{FinishedExecution, NewExecution, bytes};
use crate::RegistryError;
use crate::database::pool::ServedPool;
use crate::database::together::{Item, Rest, Written};

/// A program waits for its begin, so only many share one.
pub(crate) const BEGUN_REST: Rest =
    Rest { from: 3, least: Duration::ZERO, most: Duration::from_millis(5) };
/// Nobody waits for an end but who reads it.
pub(crate) const ENDED_REST: Rest =
    Rest { from: 1, least: Duration::from_millis(10), most: Duration::from_millis(10) };

/// A decision, and who asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) principal: String,
    pub(crate) new: NewExecution,
}

/// The end of an execution.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) id: Uuid,
    pub(crate) finished: FinishedExecution,
}

impl Item for Begun {
    fn id(&self) -> Uuid {
        self.new.id
    }
}

impl Item for Ended {
    fn id(&self) -> Uuid {
        self.id
    }
}

/// Records decisions of one project: all of them or none.
pub(crate) async fn begin(pool: ServedPool, scope: Scope, begun: Vec<Begun>) -> Written {
    let rows: Vec<Value> = begun.iter().map(Begun::row).collect();
    let (count, rows) = (rows.len(), Value::Array(rows));
    let was_sent = AtomicBool::new(false);
    let done = pool
        .outside(move |connection| {
            let is_repeated = was_sent.swap(true, Ordering::Relaxed);
            let (scope, rows) = (scope.clone(), rows.clone());
            Box::pin(async move {
                let sent = sqlx::query!(
                    "select begin_executions($1, $2, $3)",
                    scope.org(),
                    scope.project(),
                    rows
                );
                match sent.execute(connection).await {
                    // The first answer was lost with its connection, and the rows are from then.
                    Err(sqlx::Error::Database(error))
                        if is_repeated && error.is_unique_violation() =>
                    {
                        Err(sqlx::Error::WorkerCrashed)
                    }
                    sent => sent.map(drop),
                }
            })
        })
        .await;
    done.map(|()| (0..count).map(|_| Ok(())).collect())
}

/// Records ends of executions of one project.
pub(crate) async fn finish(pool: ServedPool, scope: Scope, ended: Vec<Ended>) -> Written {
    let rows: Value = ended.iter().map(Ended::row).collect();
    let told = pool
        .outside(move |connection| {
            let (scope, rows) = (scope.clone(), rows.clone());
            Box::pin(async move {
                sqlx::query!(
                    r#"select id as "id!", is_first as "is_first!" from finish_executions($1, $2, $3)"#,
                    scope.org(),
                    scope.project(),
                    rows
                )
                .fetch_all(connection)
                .await
            })
        })
        .await?;
    let result_of = |id: Uuid| match told.iter().find(|row| row.id == id) {
        Some(row) if row.is_first => Ok(()),
        Some(_) => Err(RegistryError::Conflict(format!("execution `{id}` has already ended"))),
        None => Err(RegistryError::NotFound(id.to_string())),
    };
    Ok(ended.iter().map(|end| result_of(end.id)).collect())
}

impl Begun {
    fn row(&self) -> Value {
        let new = &self.new;
        json!({
            "id": new.id,
            "principal": self.principal,
            "decision": new.decision.as_str(),
            "status": new.decision.first_status(),
            "code_hash": new.code_hash.to_string(),
            "code_bytes": bytes(new.code_bytes),
            "args_bytes": bytes(new.args_bytes),
            "dynamic": new.dynamic,
            "tools": new.tools,
            "error_code": new.error_code.map(ErrorCode::name),
            "limit_s": new.limit.as_secs_f64(),
        })
    }
}

impl Ended {
    fn row(&self) -> Value {
        let finished = &self.finished;
        json!({
            "id": self.id,
            "status": finished.end.as_str(),
            "error_code": finished.error_code.map(ErrorCode::name),
            "result_bytes": bytes(finished.result_bytes),
            "calls": i32::try_from(finished.calls).unwrap_or(i32::MAX),
            "duration_ms": i64::try_from(finished.duration.as_millis()).unwrap_or(i64::MAX),
        })
    }
}
