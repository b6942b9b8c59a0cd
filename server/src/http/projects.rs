//! `/api/v1/projects`: the projects of the caller's organisation.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use registry::{Caller, ProjectPage, ProjectRecord, RegistryError, Right};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::api::{explain, invalid, page_size, private, require};
use super::body::ApiJson;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 100;

/// The query parameters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectsQuery {
    /// Opaque cursor of the next page.
    cursor: Option<String>,
    /// Projects per page, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A request for a new project.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateProject {
    /// Its name, which must never have been used before.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$")]
    name: String,
}

/// Lists the projects of the organisation.
#[utoipa::path(get, path = "/api/v1/projects", tag = "members", params(ProjectsQuery),
    responses((status = 200, description = "A page of projects, by name", body = ProjectPage)))]
pub(crate) async fn list_projects(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    query: Result<Query<ProjectsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let page =
        gateway.registry.projects(&caller, super::cursor(query.cursor.as_ref()), limit).await;
    Ok(private(Json(page.map_err(explain)?)))
}

/// Creates a project in the organisation.
#[utoipa::path(post, path = "/api/v1/projects", tag = "members",
    request_body(content = CreateProject, example = json!({ "name": "web" })),
    responses((status = 201, description = "The project", body = ProjectRecord)))]
pub(crate) async fn create_project(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<CreateProject>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Admin)?;
    let created = gateway.registry.create_project(&caller, &body.name).await.map_err(explain)?;
    let location = format!("/api/v1/projects/{}", created.name);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], private(Json(created)))
        .into_response())
}

/// Deletes a project permanently: its API keys are revoked at once, and its name is never reused.
#[utoipa::path(delete, path = "/api/v1/projects/{name}", tag = "members",
    params(("name" = String, Path, description = "Its name", pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$", example = "web")),
    responses((status = 204, description = "Deleted")))]
pub(crate) async fn delete_project(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    require(&caller, Right::Admin)?;
    // An invalid name is treated as an unknown project.
    let Path(name) = name.map_err(|_| ApiError::not_found())?;
    let deleted = gateway.registry.delete_project(&caller, &name).await;
    deleted.map_err(|error| match error {
        RegistryError::Name(_) => ApiError::not_found(),
        other => explain(other),
    })?;
    Ok(StatusCode::NO_CONTENT)
}
