//! Stores traces.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, SubsecRound as _, Utc};
use protocol::{Scope, TraceStatus, TraceValue, escape_text};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{NewTrace, NewTraceEvent, OwnTrace, StoredTrace, TraceOrigin, parsed, text, word};
use crate::database::transaction::lock;
use crate::identity::tenant::Tenant;
use crate::{Registry, RegistryError};

impl Registry {
    /// Stores a part of a client's trace, and ends the execution that was delegated to the same principal, if it is
    /// open. Repeating it changes nothing.
    ///
    /// Whatever another principal or project has under these ids has no influence on the answer.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer; the same call may succeed later.
    pub async fn store_trace(
        &self,
        tenant: &Tenant,
        trace: NewTrace,
    ) -> Result<StoredTrace, RegistryError> {
        let scope = tenant.require_scope()?.clone();
        let principal = tenant.principal_name().to_owned();
        self.in_tenant(tenant, move |connection| {
            Box::pin(async move {
                // The parts of a run follow each other, so that each sees the events of those before it.
                let name = format!("pml trace {scope} {principal} {}", trace.run_id);
                lock(connection, &name).await?;
                let stored = header(connection, &scope, &principal, trace.run_id).await?;
                if let Some(field) = stored.as_ref().and_then(|stored| stored.difference(&trace)) {
                    let reason = format!("`{field}` differs from that of an earlier part");
                    return Ok(StoredTrace::Refused(reason));
                }
                let place = stored.map(|stored| stored.place);
                // Before anything is written: nothing of a refused part is stored.
                let new = match new_events(connection, place, &trace.events).await? {
                    Ok(new) => new,
                    Err(reason) => return Ok(StoredTrace::Refused(reason)),
                };
                let place = match place {
                    Some(place) => place,
                    None => {
                        let own = [OwnedTrace { principal: &principal, trace: &trace }];
                        let made =
                            insert_headers(connection, &scope, TraceOrigin::Client, &own).await?;
                        let place = made.get(&trace.run_id).copied();
                        // Only without the lock could another part have inserted it.
                        place.ok_or_else(|| {
                            RegistryError::Conflict("it exists already".to_owned())
                        })?
                    }
                };
                let rows: Vec<_> = new.into_iter().map(|event| (place, event)).collect();
                insert_events(connection, &scope, &rows).await?;
                if let Some(execution) = trace.execution_id {
                    finish(connection, &scope, &principal, execution, &trace).await?;
                }
                Ok(StoredTrace::Stored)
            })
        })
        .await
    }

    /// Stores traces of the gateway's own executions in a scope. An execution that has one keeps it.
    ///
    /// # Errors
    /// Returns [`RegistryError::Unavailable`] when the database does not answer: then none is stored.
    pub async fn store_own_traces(
        &self,
        scope: &Scope,
        traces: Arc<Vec<OwnTrace>>,
    ) -> Result<(), RegistryError> {
        let scope = scope.clone();
        self.in_tenant(&Tenant::of(scope.clone()), move |connection| {
            Box::pin(async move {
                let own: Vec<_> = traces
                    .iter()
                    .map(|own| OwnedTrace { principal: own.principal.as_str(), trace: &own.trace })
                    .collect();
                let places = insert_headers(connection, &scope, TraceOrigin::Gateway, &own).await?;
                let rows: Vec<_> = traces
                    .iter()
                    .filter_map(|own| Some((*places.get(&own.trace.run_id)?, &own.trace.events)))
                    .flat_map(|(place, events)| events.iter().map(move |event| (place, event)))
                    .collect();
                insert_events(connection, &scope, &rows).await
            })
        })
        .await
    }
}

/// A trace and whose it is.
struct OwnedTrace<'a> {
    principal: &'a str,
    trace: &'a NewTrace,
}

/// Where the events of a trace are.
#[derive(Clone, Copy)]
struct EventsPlace {
    trace: Uuid,
    month: NaiveDate,
}

/// What is stored of a run, without its events.
struct Header {
    place: EventsPlace,
    execution_id: Option<Uuid>,
    code_hash: String,
    status: String,
    error_code: Option<String>,
    started_at: DateTime<Utc>,
    duration_ms: i64,
    arguments: Option<Value>,
    result: Option<Value>,
    event_count: i32,
}

impl Header {
    /// Returns the first field in which a part of the run differs: what was stored first is kept.
    fn difference(&self, part: &NewTrace) -> Option<&'static str> {
        let same = [
            ("execution_id", self.execution_id == part.execution_id),
            ("code_hash", self.code_hash == part.code_hash.to_string()),
            ("status", self.status == word(&part.status)),
            ("error_code", self.error_code == part.error_code),
            // Postgres stores microseconds.
            ("started_at", self.started_at == part.started_at.trunc_subsecs(6)),
            ("duration_ms", self.duration_ms == part.duration_ms),
            ("event_count", self.event_count == part.event_count),
            ("arguments", is_of(self.arguments.as_ref(), part.arguments.as_ref())),
            ("result", is_of(self.result.as_ref(), part.result.as_ref())),
        ];
        same.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
    }
}

/// Returns whether a stored description is of the same value. The value itself is not compared: a newer gateway may
/// sanitize it otherwise.
fn is_of(stored: Option<&Value>, told: Option<&TraceValue>) -> bool {
    match (stored, told) {
        (None, None) => true,
        (Some(stored), Some(told)) => parsed::<TraceValue>(stored.clone()).is_ok_and(|stored| {
            (&stored.hash, stored.bytes, &stored.shape) == (&told.hash, told.bytes, &told.shape)
        }),
        _ => false,
    }
}

/// Inserts the runs that are not stored yet; returns where their events belong.
async fn insert_headers(
    connection: &mut PgConnection,
    scope: &Scope,
    origin: TraceOrigin,
    traces: &[OwnedTrace<'_>],
) -> Result<HashMap<Uuid, EventsPlace>, RegistryError> {
    let column = traces.iter();
    let ids: Vec<Uuid> = column.clone().map(|_| Uuid::now_v7()).collect();
    let principals: Vec<String> = column.clone().map(|it| it.principal.to_owned()).collect();
    let column = column.map(|it| it.trace);
    let runs: Vec<Uuid> = column.clone().map(|it| it.run_id).collect();
    let executions: Vec<Option<Uuid>> = column.clone().map(|it| it.execution_id).collect();
    let hashes: Vec<String> = column.clone().map(|it| it.code_hash.to_string()).collect();
    let statuses: Vec<String> = column.clone().map(|it| word(&it.status)).collect();
    let codes: Vec<Option<String>> = column.clone().map(|it| it.error_code.clone()).collect();
    let starts: Vec<DateTime<Utc>> = column.clone().map(|it| it.started_at).collect();
    let durations: Vec<i64> = column.clone().map(|it| it.duration_ms).collect();
    let arguments: Vec<Option<String>> =
        column.clone().map(|it| text(it.arguments.as_ref())).collect();
    let results: Vec<Option<String>> = column.clone().map(|it| text(it.result.as_ref())).collect();
    let counts: Vec<i32> = column.clone().map(|it| it.event_count).collect();
    let dropped: Vec<i32> = column.map(|it| it.events_dropped).collect();
    let rows = sqlx::query!(
        r#"insert into traces (org, project, origin, id, principal, run_id, execution_id, code_hash, status,
            error_code, started_at, duration_ms, arguments, result, event_count, events_dropped)
        select $1, $2, $3, t.* from unnest($4::uuid[], $5::text[], $6::uuid[], $7::uuid[], $8::text[], $9::text[],
            $10::text[], $11::timestamptz[], $12::int8[], $13::text[]::json[], $14::text[]::json[], $15::int4[], $16::int4[]) as t
        on conflict (org, project, principal, origin, run_id) do nothing
        returning run_id, id, month as "month!""#,
        scope.org(),
        scope.project(),
        origin.as_str(),
        &ids,
        &principals,
        &runs,
        &executions as &[Option<Uuid>],
        &hashes,
        &statuses,
        &codes as &[Option<String>],
        &starts,
        &durations,
        &arguments as &[Option<String>],
        &results as &[Option<String>],
        &counts,
        &dropped,
    )
    .fetch_all(connection)
    .await?;
    let places = rows.into_iter();
    Ok(places.map(|row| (row.run_id, EventsPlace { trace: row.id, month: row.month })).collect())
}

async fn header(
    connection: &mut PgConnection,
    scope: &Scope,
    principal: &str,
    run_id: Uuid,
) -> Result<Option<Header>, RegistryError> {
    let row = sqlx::query!(
        r#"select id, month as "month!", execution_id, code_hash, status, error_code, started_at, duration_ms,
            arguments, result, event_count
        from traces where org = $1 and project = $2 and principal = $3 and origin = 'client' and run_id = $4"#,
        scope.org(),
        scope.project(),
        principal,
        run_id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Header {
        place: EventsPlace { trace: row.id, month: row.month },
        execution_id: row.execution_id,
        code_hash: row.code_hash,
        status: row.status,
        error_code: row.error_code,
        started_at: row.started_at,
        duration_ms: row.duration_ms,
        arguments: row.arguments,
        result: row.result,
        event_count: row.event_count,
    }))
}

/// Returns the events that are not stored yet, or why none may be.
async fn new_events<'a>(
    connection: &mut PgConnection,
    place: Option<EventsPlace>,
    events: &'a [NewTraceEvent],
) -> Result<Result<Vec<&'a NewTraceEvent>, String>, RegistryError> {
    let numbers: Vec<i32> = events.iter().map(|event| event.seq).collect();
    let parents = events.iter().filter_map(|event| event.parent_trace_id.clone());
    let names: Vec<String> =
        events.iter().map(|event| event.trace_id.clone()).chain(parents).collect();
    let stored = sqlx::query!(
        "select seq, trace_id from trace_events
        where trace = $1 and month = $2 and (seq = any($3) or trace_id = any($4))",
        // Of a run that is not stored, there are none.
        place.map(|place| place.trace) as Option<Uuid>,
        place.map(|place| place.month) as Option<NaiveDate>,
        &numbers,
        &names,
    )
    .fetch_all(connection)
    .await?;
    let number_of: HashMap<&str, i32> =
        stored.iter().map(|row| (row.trace_id.as_str(), row.seq)).collect();
    let stored_numbers: HashSet<i32> = stored.iter().map(|row| row.seq).collect();
    let mut known: HashSet<&str> = number_of.keys().copied().collect();
    let mut new = Vec::with_capacity(events.len());
    for event in events {
        let is_stored = number_of.get(event.trace_id.as_str()) == Some(&event.seq);
        let is_taken = stored_numbers.contains(&event.seq) || known.contains(&*event.trace_id);
        if is_taken && !is_stored {
            return Ok(Err(format!(
                "event {}: another event has its `seq` or `trace_id`",
                event.seq
            )));
        }
        if let Some(parent) = event.parent_trace_id.as_deref().filter(|it| !known.contains(it)) {
            let parent = escape_text(parent);
            return Ok(Err(format!(
                "event {}: its `parent_trace_id`, `{parent}`, is neither stored nor earlier in this part",
                event.seq
            )));
        }
        if !is_stored {
            known.insert(&event.trace_id);
            new.push(event);
        }
    }
    Ok(Ok(new))
}

async fn insert_events(
    connection: &mut PgConnection,
    scope: &Scope,
    events: &[(EventsPlace, &NewTraceEvent)],
) -> Result<(), RegistryError> {
    if events.is_empty() {
        return Ok(());
    }
    let places = events.iter().map(|(place, _)| place);
    let traces: Vec<Uuid> = places.clone().map(|place| place.trace).collect();
    let months: Vec<NaiveDate> = places.map(|place| place.month).collect();
    let column = events.iter().map(|(_, event)| *event);
    let numbers: Vec<i32> = column.clone().map(|it| it.seq).collect();
    let names: Vec<String> = column.clone().map(|it| it.trace_id.clone()).collect();
    let parents: Vec<Option<String>> =
        column.clone().map(|it| it.parent_trace_id.clone()).collect();
    let tools: Vec<String> = column.clone().map(|it| it.tool.as_str().to_owned()).collect();
    let kinds: Vec<String> = column.clone().map(|it| word(&it.kind)).collect();
    let routings: Vec<String> = column.clone().map(|it| it.routing.as_str().to_owned()).collect();
    let statuses: Vec<String> = column.clone().map(|it| word(&it.status)).collect();
    let codes: Vec<Option<String>> = column.clone().map(|it| it.error_code.clone()).collect();
    let starts: Vec<DateTime<Utc>> = column.clone().map(|it| it.started_at).collect();
    let durations: Vec<Option<i64>> = column.clone().map(|it| it.duration_ms).collect();
    let arguments: Vec<Option<String>> =
        column.clone().map(|it| text(it.arguments.as_ref())).collect();
    let results: Vec<Option<String>> = column.map(|it| text(it.result.as_ref())).collect();
    sqlx::query!(
        "insert into trace_events (org, project, trace, month, seq, trace_id, parent_trace_id, tool, kind, routing,
            status, error_code, started_at, duration_ms, arguments, result)
        select $1, $2, e.* from unnest($3::uuid[], $4::date[], $5::int4[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::int8[], $15::text[]::json[],
            $16::text[]::json[]) as e",
        scope.org(),
        scope.project(),
        &traces,
        &months,
        &numbers,
        &names,
        &parents as &[Option<String>],
        &tools,
        &kinds,
        &routings,
        &statuses,
        &codes as &[Option<String>],
        &starts,
        &durations as &[Option<i64>],
        &arguments as &[Option<String>],
        &results as &[Option<String>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends the execution that was delegated to the principal, unless it has ended.
async fn finish(
    connection: &mut PgConnection,
    scope: &Scope,
    principal: &str,
    execution: Uuid,
    trace: &NewTrace,
) -> Result<(), RegistryError> {
    let status = match trace.status {
        TraceStatus::Success => "success",
        // The code of the error says that it was denied.
        TraceStatus::Error | TraceStatus::Denied => "error",
        TraceStatus::Cancelled => "cancelled",
        // It stays open, and is indeterminate from its deadline on.
        TraceStatus::Indeterminate => return Ok(()),
    };
    let result_bytes = trace.result.as_ref().map_or(0, |result| result.bytes);
    sqlx::query!(
        "update executions
        set status = $5, error_code = $6, result_bytes = $7, calls = $8, duration_ms = $9,
            finished_at = clock_timestamp()
        where org = $1 and project = $2 and principal = $3 and id = $4 and decision = 'client'
            and finished_at is null and code_hash = $10",
        scope.org(),
        scope.project(),
        principal,
        execution,
        status,
        trace.error_code,
        i64::try_from(result_bytes).unwrap_or(i64::MAX),
        trace.event_count,
        trace.duration_ms,
        // It was another program that was delegated.
        trace.code_hash.to_string(),
    )
    .execute(connection)
    .await?;
    Ok(())
}
