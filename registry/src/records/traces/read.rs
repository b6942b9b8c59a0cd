//! Reads traces.

use protocol::{ToolId, TraceEvent, TraceValue};
use serde_json::Value;
use uuid::Uuid;

use super::{TraceOrigin, TraceRecord, parsed};
use crate::identity::tenant::Tenant;
use crate::records::executions::Reader;
use crate::{Registry, RegistryError};

impl Registry {
    /// Returns the trace of a run, with at most `limit` events whose number is above `after`.
    ///
    /// If several principals use one id, the reader gets the reader's own, and else the one that arrived last. What
    /// the gateway tells itself comes before what a client says.
    ///
    /// # Errors
    /// Returns [`RegistryError::NotFound`] when the reader has no such run.
    pub async fn trace(
        &self,
        tenant: &Tenant,
        reader: Reader,
        run_id: Uuid,
        after: u32,
        limit: u32,
    ) -> Result<TraceRecord, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = tenant.principal_name().to_owned();
        let own_only = reader == Reader::Own;
        let after = i32::try_from(after).unwrap_or(i32::MAX);
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                let header = sqlx::query!(
                    r#"select id, month as "month!", run_id, origin, principal, execution_id, code_hash, status,
                        error_code, started_at, received_at, duration_ms, arguments, result, event_count,
                        events_dropped
                    from traces
                    where org = $1 and project = $2 and run_id = $3 and (principal = $4 or not $5)
                    order by principal = $4 desc, origin = 'gateway' desc, received_at desc, id limit 1"#,
                    scope.org(),
                    scope.project(),
                    run_id,
                    principal,
                    own_only,
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or_else(|| RegistryError::NotFound(run_id.to_string()))?;
                let rows = sqlx::query!(
                    "select seq, trace_id, parent_trace_id, tool, kind, routing, status, error_code, started_at,
                        duration_ms, arguments, result
                    from trace_events
                    where org = $1 and project = $2 and trace = $3 and month = $4 and seq > $5
                    order by seq limit $6",
                    scope.org(),
                    scope.project(),
                    header.id,
                    header.month,
                    after,
                    // One more than requested: it shows whether another page follows.
                    i64::from(limit) + 1,
                )
                .fetch_all(connection)
                .await?;
                let most = usize::try_from(limit).unwrap_or(usize::MAX);
                let more = rows.len() > most;
                let events = rows.into_iter().take(most).map(|row| {
                    Ok(TraceEvent {
                        seq: row.seq.unsigned_abs(),
                        trace_id: row.trace_id,
                        parent_trace_id: row.parent_trace_id,
                        tool: row.tool.parse::<ToolId>()?,
                        kind: parsed(row.kind.into())?,
                        routing: parsed(row.routing.into())?,
                        status: parsed(row.status.into())?,
                        error_code: row.error_code,
                        started_at: row.started_at.to_rfc3339_opts(
                            chrono::SecondsFormat::Micros,
                            true,
                        ),
                        duration_ms: row.duration_ms.map(i64::unsigned_abs),
                        arguments: described(row.arguments)?,
                        result: described(row.result)?,
                    })
                });
                let events = events.collect::<Result<Vec<_>, RegistryError>>()?;
                Ok(TraceRecord {
                    run_id: header.run_id,
                    origin: match header.origin.as_str() {
                        "gateway" => TraceOrigin::Gateway,
                        _ => TraceOrigin::Client,
                    },
                    principal: header.principal,
                    execution_id: header.execution_id,
                    code_hash: header.code_hash,
                    status: parsed(header.status.into())?,
                    error_code: header.error_code,
                    started_at: header.started_at,
                    received_at: header.received_at,
                    duration_ms: header.duration_ms,
                    arguments: described(header.arguments)?,
                    result: described(header.result)?,
                    event_count: header.event_count,
                    events_dropped: header.events_dropped,
                    next_after: events.last().filter(|_| more).map(|event| event.seq),
                    events,
                })
            })
        })
        .await
    }
}

fn described(stored: Option<Value>) -> Result<Option<TraceValue>, RegistryError> {
    stored.map(parsed).transpose()
}
