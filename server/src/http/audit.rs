//! `GET /api/v1/audit`: the audit events of the caller's scope.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use registry::{AuditPage, Caller, Right};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api::{invalid, page_size, private, require};
use crate::error::ApiError;
use crate::identity::requester::Requester;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 200;

/// The query parameters.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only events before this position in the chain.
    before: Option<i64>,
    /// Events per page, 1 to 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// Whether to verify the chain, which reads all of it.
    #[serde(default)]
    verify: bool,
}

/// The answer: a page, and the result of the verification if it was requested.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditAnswer)]
struct Answer {
    #[serde(flatten)]
    page: AuditPage,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<Chain>,
}

/// The result of verifying the chain: whether every event has the right hash of its predecessor.
#[derive(Debug, Serialize, ToSchema)]
struct Chain {
    /// Whether all events are as they were recorded.
    intact: bool,
    /// The position of the first event that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bad: Option<i64>,
}

/// Lists events, the newest first, for an administrator of the scope.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "A page of events, the newest first", body = Answer)))]
pub(crate) async fn list_events(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let tenant = Requester::new(caller, &headers).tenant();
    let page = gateway.registry.audit_log(&tenant, query.before, limit).await?;
    // Only on request, because it reads the whole log of the scope.
    let chain = if query.verify {
        let first_bad = gateway.registry.first_bad_event(&tenant).await?;
        Some(Chain { intact: first_bad.is_none(), first_bad })
    } else {
        None
    };
    Ok(private(Json(Answer { page, chain })))
}
