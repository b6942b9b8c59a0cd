//! `/api/v1/capabilities`: programs published under a name.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use protocol::{ErrorBody, ErrorCode};
use registry::{Caller, Right};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::{private, require};
use super::body::ApiJson;
use super::openapi::Problem;
use crate::error::ApiError;
use crate::publish::{self, Publish, PublishedCapability};
use crate::state::SharedGateway;

/// A request to deprecate a version, or to clear the deprecation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deprecate {
    /// The version; by default, all versions.
    #[schema(pattern = "^(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})$")]
    pub(super) version: Option<String>,
    /// The reason; `null` clears the deprecation.
    #[schema(min_length = 1, max_length = 1000, pattern = "[^\\s\\u0000]")]
    pub(super) message: Option<String>,
}

/// A request to yank a version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Yank {
    /// The version.
    #[schema(pattern = "^(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})$")]
    pub(super) version: String,
}

/// The entry concerned.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Named {
    name: String,
}

/// Publishes a program as a capability.
#[utoipa::path(post, path = "/api/v1/capabilities", tag = "capabilities",
    request_body(content = Publish, example = json!({ "name": "text:shout", "code": "/** Returns a text in capitals. */ return args.text.toUpperCase()" })),
    responses(
        (status = 201, description = "Published", body = PublishedCapability),
        (status = 200, description = "The identical version already exists", body = PublishedCapability),
        (status = 409, description = "The version exists with different bytes, or the name is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The program is not a valid capability", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn publish_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<Publish>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    let entry = publish::publish(&gateway, &caller, body).await.map_err(publish_error)?;
    Ok(published(entry.new, entry.location.clone(), &entry))
}

/// Deprecates a version, or all versions.
#[utoipa::path(post, path = "/api/v1/capabilities/{name}/deprecate", tag = "capabilities",
    params(("name" = String, Path, description = "Its id", example = "text:shout")),
    request_body(content = Deprecate, example = json!({ "version": "0.1.0", "message": "use text:upper" })),
    responses((status = 200, description = "The deprecation was set or cleared", body = Named)))]
pub(crate) async fn deprecate_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body, _room): ApiJson<Deprecate>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    let version = body.version.as_deref();
    named(publish::deprecate(&gateway, &caller, &name, version, body.message).await)
}

/// Yanks a version: only requests for exactly this version still resolve.
#[utoipa::path(post, path = "/api/v1/capabilities/{name}/yank", tag = "capabilities",
    params(("name" = String, Path, description = "Its id", example = "text:shout")),
    request_body(content = Yank, example = json!({ "version": "0.1.0" })),
    responses((status = 200, description = "The version was yanked", body = Named)))]
pub(crate) async fn yank_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body, _room): ApiJson<Yank>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    named(publish::yank(&gateway, &caller, &name, &body.version).await)
}

/// Deletes a capability permanently, with all its versions. Its name is never reused.
#[utoipa::path(delete, path = "/api/v1/capabilities/{name}", tag = "capabilities",
    params(("name" = String, Path, description = "Its id", example = "text:shout")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 410, description = "Already deleted", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_capability(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    publish::delete(&gateway, &caller, &name).await?;
    Ok(private(StatusCode::NO_CONTENT))
}

/// Answers a publication with the entry and its location: 201 if the version is new, 200 if it already existed.
pub(super) fn published(is_new: bool, location: String, entry: &impl Serialize) -> Response {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    (status, [(header::LOCATION, location)], private(Json(entry))).into_response()
}

/// Answers a deprecation or a yank with the entry's name.
pub(super) fn named(done: Result<impl ToString, ErrorBody>) -> Result<Response, ApiError> {
    let name = done.map_err(publish_error)?.to_string();
    Ok(private(Json(Named { name })))
}

/// Converts the error of a publication. An error of the program itself gets 422, whatever its code is.
pub(super) fn publish_error(error: ErrorBody) -> ApiError {
    let refused = ApiError::new(error.error_code, error.message);
    match error.error_code {
        // These have their usual status; all others, such as `PARSE_ERROR`, are about the program.
        ErrorCode::InvalidRequest
        | ErrorCode::Forbidden
        | ErrorCode::NotFound
        | ErrorCode::Conflict
        | ErrorCode::DatabaseUnavailable
        | ErrorCode::SandboxUnavailable
        | ErrorCode::IntegrityMismatch
        | ErrorCode::Internal => refused,
        _ => refused
            .with_status(StatusCode::UNPROCESSABLE_ENTITY)
            .with_member("details", error.details),
    }
}
