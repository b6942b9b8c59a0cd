//! `/api/v1/traces`: what the calls of runs were.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::{Extension, Json};
use chrono::Utc;
use protocol::{TRACE_EVENTS, TRACE_RUNS, TraceOutcome, TraceReceipt, TraceReceipts};
use registry::{Caller, Right, StoredTrace, TraceRecord};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::api::{invalid, page_size, private, reader, require};
use super::body::ApiJson;
use crate::error::ApiError;
use crate::state::SharedGateway;
use crate::traces::check;

/// The largest body: the most events of a batch, described without their values.
pub(super) const BODY_LIMIT: usize = 6 * 1024 * 1024;
/// The largest page of events.
const PAGE_LIMIT: u32 = 500;

/// A batch of runs. Each is read by itself, so that one that cannot be read does not hold up the others.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TraceBatch)]
pub(crate) struct Batch {
    /// At most 100 runs, or parts of them, with at most 5,000 events in all.
    #[schema(schema_with = any_runs)]
    runs: Vec<Map<String, Value>>,
}

/// Describes the runs of a batch: each other object is refused in its receipt, and not with the request.
fn any_runs() -> Schema {
    let any = AnyOfBuilder::new()
        .item(RefOr::Ref(Ref::from_schema_name("RunTrace")))
        .item(ObjectBuilder::new());
    utoipa::openapi::schema::ArrayBuilder::new().items(any).max_items(Some(TRACE_RUNS)).into()
}

/// The query parameters of a trace.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceQuery {
    /// Only events after this one, by their `seq`.
    #[param(minimum = 0)]
    after: Option<i32>,
    /// Events per page, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Stores runs that have ended on the caller's machine, and ends the executions that were delegated to them. Repeating
/// a request changes nothing.
#[utoipa::path(post, path = "/api/v1/traces", tag = "executions",
    request_body(content = Batch, example = json!({ "runs": [] })),
    responses((status = 200, description = "A receipt for each run, in their order", body = TraceReceipts)))]
pub(crate) async fn store_traces(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(batch, _room): ApiJson<Batch>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Execute)?;
    if batch.runs.len() > TRACE_RUNS {
        let count = batch.runs.len();
        return Err(invalid(format!("the batch has {count} runs; the limit is {TRACE_RUNS}")));
    }
    let events = |run: &Map<_, _>| run.get("events").and_then(Value::as_array).map_or(0, Vec::len);
    let count: usize = batch.runs.iter().map(events).sum();
    if count > TRACE_EVENTS {
        return Err(invalid(format!("the batch has {count} events; the limit is {TRACE_EVENTS}")));
    }
    let tenant = caller.tenant();
    let mut receipts = Vec::with_capacity(batch.runs.len());
    for sent in batch.runs {
        let sent = Value::Object(sent);
        let run_id = check::sent_id(&sent);
        // In a transaction each: what is wrong with one does not undo the others.
        let stored = match check::trace(sent, Utc::now()) {
            Ok(trace) => gateway.registry.store_trace(&tenant, trace).await?,
            Err(reason) => StoredTrace::Refused(reason),
        };
        receipts.push(match stored {
            StoredTrace::Stored => {
                TraceReceipt { run_id, outcome: TraceOutcome::Stored, reason: None }
            }
            StoredTrace::Refused(reason) => {
                TraceReceipt { run_id, outcome: TraceOutcome::Refused, reason: Some(reason) }
            }
        });
    }
    let refused = receipts.iter().filter(|it| it.outcome == TraceOutcome::Refused).count();
    // Only numbers: what a client sends could forge a log line.
    tracing::info!(scope = %caller.scope, runs = receipts.len(), events = count, refused, "Received traces");
    Ok(private(Json(TraceReceipts { runs: receipts })))
}

/// Returns a run with a page of its calls: the caller's own, or for an administrator any of the scope.
#[utoipa::path(get, path = "/api/v1/traces/{id}", tag = "executions",
    params(("id" = String, Path, description = "The run's id: `trace_id` of an execution, or the client's id", example = "0195d2a0-0000-7000-8000-000000000000"), TraceQuery),
    responses((status = 200, description = "The run, with a page of its calls", body = TraceRecord)))]
pub(crate) async fn get_trace(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let reader = reader(&caller)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let id = read_id(id)?;
    let after = query.after.unwrap_or(0);
    let after = u32::try_from(after).map_err(|_| invalid("`after` is negative"))?;
    let trace = gateway.registry.trace(&caller.tenant(), reader, id, after, limit).await?;
    Ok(private(Json(trace)))
}

/// Parses the id of a record. A malformed one is not found: no record has it.
pub(super) fn read_id(id: Result<Path<String>, PathRejection>) -> Result<Uuid, ApiError> {
    let id = id.ok().and_then(|Path(id)| Uuid::try_parse(&id).ok());
    id.ok_or_else(ApiError::not_found)
}
