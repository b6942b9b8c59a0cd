//! `/api/v1/executions`: decisions about programs, and how they ended.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::{Extension, Json};
use chrono::{DateTime, Utc};
use protocol::ToolId;
use registry::{
    Caller, ExecutionFilter, ExecutionPage, ExecutionRecord, ExecutionStatus, Principal, Reader,
    Right,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::api::{explain, invalid, page_size, private, reader};
use super::traces::read_id;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 200;

/// The query parameters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutionsQuery {
    /// Opaque cursor of the next page; send the same filter with it.
    cursor: Option<String>,
    /// Executions per page, 1 to 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// Only those in this state.
    #[param(inline)]
    status: Option<ExecutionStatus>,
    /// Only those that declared this tool, for example `json:parse`.
    #[param(example = "json:parse")]
    tool: Option<String>,
    /// Only those of this principal; another one than the caller only for an administrator.
    #[param(pattern = "^[A-Za-z0-9._:@+-]{1,128}$")]
    principal: Option<String>,
    /// Only those since this time.
    since: Option<DateTime<Utc>>,
    /// Only those before this time.
    until: Option<DateTime<Utc>>,
}

/// Lists executions, the newest first: the caller's own, or for an administrator all of the scope.
#[utoipa::path(get, path = "/api/v1/executions", tag = "executions", params(ExecutionsQuery),
    responses((status = 200, description = "A page of executions, the newest first", body = ExecutionPage)))]
pub(crate) async fn list_executions(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    query: Result<Query<ExecutionsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let reader = reader(&caller)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let principal = query.principal.as_deref().map(str::parse::<Principal>).transpose();
    let principal = principal.map_err(explain)?;
    if reader == Reader::Own && principal.as_ref().is_some_and(|it| *it != caller.principal) {
        // The answer is the same whether or not there is such a principal.
        return Err(ApiError::lacks(Right::Admin));
    }
    let filter = ExecutionFilter {
        status: query.status,
        tool: query
            .tool
            .map(|tool| tool.parse::<ToolId>())
            .transpose()
            .map_err(|error| invalid(error.to_string()))?,
        principal: principal.map(|it| it.as_str().to_owned()),
        since: query.since,
        until: query.until,
    };
    let cursor = super::cursor(query.cursor.as_ref());
    let page: Result<ExecutionPage, _> =
        gateway.registry.executions(&caller.tenant(), reader, filter, cursor, limit).await;
    Ok(private(Json(page.map_err(explain)?)))
}

/// Returns an execution, with the id of its trace: the caller's own, or for an administrator any of the scope.
#[utoipa::path(get, path = "/api/v1/executions/{id}", tag = "executions",
    params(("id" = String, Path, description = "The execution's id", example = "0195d2a0-0000-7000-8000-000000000000")),
    responses((status = 200, description = "The execution", body = ExecutionRecord)))]
pub(crate) async fn get_execution(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let reader = reader(&caller)?;
    let id = read_id(id)?;
    Ok(private(Json(gateway.registry.execution(&caller.tenant(), reader, id).await?)))
}
