//! `/api/v1/members`: the members of the caller's organisation and its projects.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use protocol::Scope;
use registry::{Caller, MemberPage, Membership, Principal, Right, Role};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::api::{explain, invalid, page_size, private, require};
use super::body::ApiJson;
use super::keys::parse_principal;
use super::openapi::Problem;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 100;

/// The query parameters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MembersQuery {
    /// Only the members of this project.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$", example = "web")]
    project: Option<String>,
    /// Opaque cursor of the next page.
    cursor: Option<String>,
    /// Members per page, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// The organisation or project of a membership.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaceQuery {
    /// The project that the role is limited to.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$", example = "web")]
    project: Option<String>,
}

/// A request to set a member's role.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutMember {
    /// The role; `owner` is only for the whole organisation.
    role: Role,
}

/// Lists the members of the organisation, or of one project.
#[utoipa::path(get, path = "/api/v1/members", tag = "members", params(MembersQuery),
    responses(
        (status = 200, description = "A page of members, by name", body = MemberPage),
        (status = 404, description = "No such project", content_type = "application/problem+json", body = Problem)))]
pub(crate) async fn list_members(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    query: Result<Query<MembersQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let project = place(&caller, query.project)?;
    let cursor = super::cursor(query.cursor.as_ref());
    let page = gateway.registry.members(&caller, project.as_ref(), cursor, limit).await;
    Ok(private(Json(page.map_err(explain)?)))
}

/// Assigns a role to a principal. Members belong to one organisation: memberships in others have no effect.
#[utoipa::path(put, path = "/api/v1/members/{principal}", tag = "members",
    params(("principal" = String, Path, description = "The principal", pattern = "^[A-Za-z0-9._:@+-]{1,128}$", example = "alice@acme.example"), PlaceQuery),
    request_body(content = PutMember, example = json!({ "role": "member" })),
    responses(
        (status = 201, description = "The member was added", body = Membership),
        (status = 200, description = "The role was changed", body = Membership),
        (status = 409, description = "The last owner must remain an owner", content_type = "application/problem+json", body = Problem)))]
pub(crate) async fn put_member(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    principal: Result<Path<String>, PathRejection>,
    query: Result<Query<PlaceQuery>, QueryRejection>,
    ApiJson(body, _room): ApiJson<PutMember>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let project = place(&caller, query.project)?;
    // Unlike in `remove_member`, a name that no member can have is an invalid request.
    let Path(principal) = principal.map_err(|error| invalid(error.body_text()))?;
    let principal = parse_principal(&principal)?;
    let given = gateway.registry.set_member(&caller, project.as_ref(), &principal, body.role);
    let (membership, is_new) = given.await.map_err(explain)?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, private(Json(membership))).into_response())
}

/// Removes a principal's role. From then on, its keys and tokens have no rights there.
#[utoipa::path(delete, path = "/api/v1/members/{principal}", tag = "members",
    params(("principal" = String, Path, description = "The principal", pattern = "^[A-Za-z0-9._:@+-]{1,128}$", example = "alice@acme.example"), PlaceQuery),
    responses(
        (status = 204, description = "The member was removed"),
        (status = 409, description = "The last owner cannot be removed", content_type = "application/problem+json", body = Problem)))]
pub(crate) async fn remove_member(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    principal: Result<Path<String>, PathRejection>,
    query: Result<Query<PlaceQuery>, QueryRejection>,
) -> Result<StatusCode, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let project = place(&caller, query.project)?;
    // An invalid name cannot be that of a member.
    let principal = principal.ok().and_then(|Path(text)| text.parse::<Principal>().ok());
    let principal = principal.ok_or_else(ApiError::not_found)?;
    let removed = gateway.registry.remove_member(&caller, project.as_ref(), &principal);
    removed.await.map_err(explain)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the requested project of the caller's organisation; an invalid name is treated as unknown.
fn place(caller: &Caller, project: Option<String>) -> Result<Option<Scope>, ApiError> {
    let scope = project.map(|name| Scope::new(caller.scope.org(), &name)).transpose();
    scope.map_err(|_| ApiError::not_found())
}
