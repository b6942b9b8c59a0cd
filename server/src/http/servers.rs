//! `/api/v1/servers`: MCP servers that tenants publish.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use registry::{Caller, Right};

use super::api::{private, require};
use super::body::ApiJson;
use super::capabilities::{Deprecate, Named, Yank, named, publish_error, published};
use super::openapi::Problem;
use crate::error::ApiError;
use crate::publish::servers::{self, PublishServer, PublishedServer};
use crate::state::SharedGateway;

/// The largest body: an entry of 1 MiB, plus JSON escaping.
pub(crate) const BODY_LIMIT: usize = 2 * 1024 * 1024;

/// Publishes an MCP server in the caller's scope.
#[utoipa::path(post, path = "/api/v1/servers", tag = "servers",
    request_body(content = PublishServer, example = json!({
        "name": "notes", "type": "http", "description": "Keeps notes.",
        "proxy_to": "https://notes.example/mcp", "env_required": ["NOTES_TOKEN"],
        "tools": [{ "name": "add", "description": "Adds a note.", "inputSchema": { "type": "object" } }]
    })),
    responses(
        (status = 201, description = "Published", body = PublishedServer),
        (status = 200, description = "The identical version already exists", body = PublishedServer),
        (status = 409, description = "The version exists with different content, or the name is or was taken", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn publish_server(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<PublishServer>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    let entry = servers::publish(&gateway, &caller, body).await.map_err(publish_error)?;
    Ok(published(entry.new, entry.location.clone(), &entry))
}

/// Deprecates a version of a server, or all versions.
#[utoipa::path(post, path = "/api/v1/servers/{name}/deprecate", tag = "servers",
    params(("name" = String, Path, description = "Its namespace", example = "notes")),
    request_body(content = Deprecate, example = json!({ "version": "0.1.0", "message": "use notes2" })),
    responses((status = 200, description = "The deprecation was set or cleared", body = Named)))]
pub(crate) async fn deprecate_server(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body, _room): ApiJson<Deprecate>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    let version = body.version.as_deref();
    let done = servers::deprecate(&gateway, &caller, &name, version, body.message).await;
    named(done.map(|()| name))
}

/// Yanks a version of a server: only requests for exactly this version still resolve.
#[utoipa::path(post, path = "/api/v1/servers/{name}/yank", tag = "servers",
    params(("name" = String, Path, description = "Its namespace", example = "notes")),
    request_body(content = Yank, example = json!({ "version": "0.1.0" })),
    responses((status = 200, description = "The version was yanked", body = Named)))]
pub(crate) async fn yank_server(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    ApiJson(body, _room): ApiJson<Yank>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    named(servers::yank(&gateway, &caller, &name, &body.version).await.map(|()| name))
}

/// Deletes a server permanently, with all its versions. Its name is never reused.
#[utoipa::path(delete, path = "/api/v1/servers/{name}", tag = "servers",
    params(("name" = String, Path, description = "Its namespace", example = "notes")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 410, description = "Already deleted", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_server(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    gateway.registry.delete_server(&caller, &name).await?;
    Ok(private(StatusCode::NO_CONTENT))
}
