//! Records of programs: the routing decision and the outcome; never code, arguments or results.

mod list;
mod writing;

use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, Utc};
use protocol::{ErrorCode, Integrity, Scope, ToolId};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::identity::principal::Principal;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

pub use list::{ExecutionFilter, ExecutionPage};
pub(crate) use writing::{BEGUN_REST, Begun, ENDED_REST, Ended};

/// The routing decision about a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ExecutionDecision)]
pub enum Decision {
    /// On the gateway.
    Server,
    /// On the caller's machine, by `execute_locally`.
    Client,
    /// Nowhere.
    Refused,
}

impl Decision {
    fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Refused => "refused",
        }
    }

    fn from_word(word: &str) -> Self {
        match word {
            "server" => Self::Server,
            "client" => Self::Client,
            // The column has no other word.
            _ => Self::Refused,
        }
    }

    /// Returns the status with which an execution of this decision begins.
    fn first_status(self) -> &'static str {
        match self {
            Self::Server => "running",
            Self::Client => "delegated",
            Self::Refused => "refused",
        }
    }
}

/// A decision that is about to take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExecution {
    /// The id that gateway and CLI log; created by [`Uuid::now_v7`].
    pub id: Uuid,
    /// Where it runs.
    pub decision: Decision,
    /// The hash of the program.
    pub code_hash: Integrity,
    /// The program's size.
    pub code_bytes: usize,
    /// The size of its arguments as JSON.
    pub args_bytes: usize,
    /// Whether the analysis could not determine every tool.
    pub dynamic: bool,
    /// The declared tools.
    pub tools: Vec<ToolId>,
    /// Its time limit; if its end is not recorded by then, the outcome is indeterminate.
    pub limit: Duration,
    /// The reason for the refusal, if it was refused.
    pub error_code: Option<ErrorCode>,
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// With a result.
    Success,
    /// With an error.
    Error,
    /// The caller disconnected or cancelled.
    Cancelled,
}

impl ExecutionEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The outcome and the metrics of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedExecution {
    /// The status.
    pub end: ExecutionEnd,
    /// The code of its error.
    pub error_code: Option<ErrorCode>,
    /// The size of its result as JSON.
    pub result_bytes: usize,
    /// The number of its tool calls.
    pub calls: u32,
    /// Its duration.
    pub duration: Duration,
}

/// The state of a recorded execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionStatus {
    /// It runs on the gateway.
    Running,
    /// It was delegated to the caller's machine.
    Delegated,
    /// It ended with a result.
    Success,
    /// It ended with an error.
    Error,
    /// It was cancelled.
    Cancelled,
    /// It never began.
    Refused,
    /// Its end was not recorded in time: the gateway died, or no one reported it.
    Indeterminate,
}

impl ExecutionStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Delegated => "delegated",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Indeterminate => "indeterminate",
        }
    }

    fn from_word(word: &str) -> Self {
        match word {
            "running" => Self::Running,
            "delegated" => Self::Delegated,
            "success" => Self::Success,
            "error" => Self::Error,
            "cancelled" => Self::Cancelled,
            "refused" => Self::Refused,
            // No row has another word: the query derives `indeterminate` from the deadline.
            _ => Self::Indeterminate,
        }
    }
}

/// Whose records a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The reader's own.
    Own,
    /// All of the project.
    Project,
}

/// The record of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExecutionRecord {
    /// Its id.
    pub id: Uuid,
    /// The caller.
    pub principal: String,
    /// Where it was decided to run.
    pub decision: Decision,
    /// Its state now.
    pub status: ExecutionStatus,
    /// The hash of the program.
    pub code_hash: String,
    /// The size of the program.
    pub code_bytes: i64,
    /// The size of its arguments as JSON.
    pub args_bytes: i64,
    /// Whether the analysis could not determine every tool.
    pub dynamic: bool,
    /// The declared tools, with those that it reaches through capabilities.
    pub tools: Vec<String>,
    /// When it was decided.
    pub started_at: DateTime<Utc>,
    /// When its end was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    /// The name of the error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The size of its result as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<i64>,
    /// The number of its tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<i32>,
    /// Its duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// The id of its trace, for `/api/v1/traces/{id}`. Lists do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Uuid>,
}

/// A row of `executions`.
struct ExecutionRow {
    id: Uuid,
    principal: String,
    decision: String,
    status: String,
    code_hash: String,
    code_bytes: i64,
    args_bytes: i64,
    dynamic: bool,
    tools: Vec<String>,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    error_code: Option<String>,
    result_bytes: Option<i64>,
    calls: Option<i32>,
    duration_ms: Option<i64>,
}

/// Returns the run that tells of an execution. Each kind has a statement of its own, because each has its own index.
async fn trace_of(
    connection: &mut PgConnection,
    scope: &Scope,
    id: Uuid,
    row: &ExecutionRow,
) -> Result<Option<Uuid>, RegistryError> {
    let found = if row.decision == Decision::Client.as_str() {
        // A client may claim any execution, so only what its own principal tells counts. Who it is is compared
        // afterwards: without statistics, an index that begins with the principal would look better than that of the
        // execution, and all runs of the principal would be read.
        let claimed = sqlx::query_scalar!(
            "select run_id from (
                select run_id, principal, origin, received_at, id from traces
                where org = $1 and project = $2 and execution_id = $3 offset 0
            ) claimed
            where principal = $4 and origin = 'client'
            order by received_at, id limit 1",
            scope.org(),
            scope.project(),
            id,
            row.principal,
        );
        claimed.fetch_optional(connection).await?
    } else {
        let own = sqlx::query_scalar!(
            "select run_id from traces
            where org = $1 and project = $2 and principal = $4 and origin = 'gateway' and run_id = $3",
            scope.org(),
            scope.project(),
            id,
            row.principal,
        );
        own.fetch_optional(connection).await?
    };
    Ok(found)
}

impl ExecutionRow {
    fn into_record(self, trace_id: Option<Uuid>) -> ExecutionRecord {
        ExecutionRecord {
            id: self.id,
            principal: self.principal,
            decision: Decision::from_word(&self.decision),
            status: ExecutionStatus::from_word(&self.status),
            code_hash: self.code_hash,
            code_bytes: self.code_bytes,
            args_bytes: self.args_bytes,
            dynamic: self.dynamic,
            tools: self.tools,
            started_at: self.started_at,
            finished_at: self.finished_at,
            error_code: self.error_code,
            result_bytes: self.result_bytes,
            calls: self.calls,
            duration_ms: self.duration_ms,
            trace_id,
        }
    }
}

impl Registry {
    /// Records a decision; call it before the decision takes effect.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the decision was not recorded: then the program must not run.
    pub async fn begin_execution(
        &self,
        tenant: &Tenant,
        new: NewExecution,
    ) -> Result<(), RegistryError> {
        let principal = tenant.principal().map_or("operator", Principal::as_str).to_owned();
        let pool = self.pool.clone();
        let write = move |scope, begun| writing::begin(pool.clone(), scope, begun);
        self.begun.write(tenant.require_scope()?, Begun { principal, new }, write).await
    }

    /// Records the end of an execution, once. It is handed over at once, and also recorded if nobody awaits the future:
    /// within some milliseconds, with others. [`Registry::execution`] and [`Registry::executions`] wait for it, but other
    /// gateways do not see it before.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the tenant has no such execution and [`RegistryError::Conflict`] when
    /// its end is already recorded.
    pub fn finish_execution(
        &self,
        tenant: &Tenant,
        id: Uuid,
        finished: FinishedExecution,
    ) -> impl Future<Output = Result<(), RegistryError>> + Send + use<> {
        let pool = self.pool.clone();
        let write = move |scope, ended| writing::finish(pool.clone(), scope, ended);
        let written = tenant
            .require_scope()
            .map(|scope| self.ended.write(scope, Ended { id, finished }, write));
        async { written?.await }
    }

    /// Returns a recorded execution, with the id of its trace.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the reader has no such execution.
    pub async fn execution(
        &self,
        tenant: &Tenant,
        reader: Reader,
        id: Uuid,
    ) -> Result<ExecutionRecord, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        self.ended.catch_up(&scope).await;
        let own = (reader == Reader::Own).then(|| tenant.principal_name().to_owned());
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                // The state of an abandoned execution follows from its deadline, so no job has to update it.
                let row = sqlx::query_as!(
                    ExecutionRow,
                    r#"select id, principal, decision, code_hash, code_bytes, args_bytes, dynamic, tools, started_at,
                        finished_at, error_code, result_bytes, calls, duration_ms,
                        case when finished_at is null and deadline_at < clock_timestamp()
                            then 'indeterminate' else status end as "status!"
                    from executions
                    where org = $1 and project = $2 and id = $3 and ($4::text is null or principal = $4)"#,
                    scope.org(),
                    scope.project(),
                    id,
                    own,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or_else(|| RegistryError::NotFound(id.to_string()))?;
                let trace_id = trace_of(connection, &scope, id, &row).await?;
                Ok(row.into_record(trace_id))
            })
        })
        .await
    }
}

fn bytes(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
