//! `/api/v1/registry-links`: addresses under which a project's registry can be read without an API key.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use registry::{Caller, LinkRecord, Right};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::api::{checked_name, private, require, shown_once};
use super::body::ApiJson;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// A request for a new link.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateLink {
    /// A label.
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$")]
    name: String,
}

/// A new link, shown only once.
#[derive(Serialize, ToSchema)]
struct MadeLink<'a> {
    /// The unguessable part of the address.
    slug: &'a str,
    /// The path of the registry under the gateway's address.
    path: String,
    #[serde(flatten)]
    #[schema(value_type = LinkRecord)]
    record: &'a LinkRecord,
}

/// The links of a project.
#[derive(Serialize, ToSchema)]
struct Links {
    /// All links, the oldest first.
    items: Vec<LinkRecord>,
    /// The number of items.
    total: usize,
}

/// Lists the links of the project, for an administrator.
#[utoipa::path(get, path = "/api/v1/registry-links", tag = "official",
    responses((status = 200, description = "All links, the oldest first", body = Links)))]
pub(crate) async fn list_links(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let items = gateway.registry.links(&caller.tenant()).await?;
    let total = items.len();
    Ok(private(Json(Links { items, total })))
}

/// Creates a link and returns its slug, which is shown only once.
#[utoipa::path(post, path = "/api/v1/registry-links", tag = "official",
    request_body(content = CreateLink, example = json!({ "name": "VS Code" })),
    responses((status = 201, description = "The link, shown only once", body = MadeLink)))]
pub(crate) async fn create_link(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<CreateLink>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let name = checked_name(body.name)?;
    let (slug, record) = gateway.registry.create_link(&caller.tenant(), &name).await?;
    let link =
        MadeLink { slug: slug.expose(), path: format!("/r/{}", slug.expose()), record: &record };
    let answer = (StatusCode::CREATED, private(Json(link))).into_response();
    Ok(shown_once("link", record.id, answer))
}

/// Revokes a link on every gateway at once.
#[utoipa::path(delete, path = "/api/v1/registry-links/{id}", tag = "official",
    params(("id" = String, Path, description = "The link's id", example = "0195d2a0-0000-7000-8000-000000000000")),
    responses((status = 204, description = "Revoked")))]
pub(crate) async fn revoke_link(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    require(&caller, Right::Admin)?;
    // An id that is not UTF-8 cannot exist, and only the canonical spelling of a UUID is accepted.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    let parsed = Uuid::try_parse(&id).ok().filter(|parsed| parsed.to_string() == id);
    let id = parsed.ok_or_else(ApiError::not_found)?;
    gateway.registry.revoke_link(&caller.tenant(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
