//! `/v0.1/servers`: the official MCP registry's API, read-only, for the public catalog or through a project's link.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use protocol::ErrorCode;
use registry::{OfficialFilter, RegistryError, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Reader;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 100;
/// A page when nothing is said.
const PAGE: u32 = 30;

/// The query parameters of the list. Others are not refused: clients of other registries send some.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ServersQuery {
    /// Continue after this opaque cursor.
    cursor: Option<String>,
    /// Servers per page; more than 100 are 100.
    #[param(minimum = 1, value_type = Option<u64>)]
    limit: Option<u32>,
    /// A part of the name.
    search: Option<String>,
    /// Changed at or after this (RFC 3339).
    #[param(format = DateTime)]
    updated_since: Option<String>,
    /// `latest`, or one version.
    version: Option<String>,
    /// Those that were taken back as well.
    #[param(value_type = Option<bool>)]
    include_deleted: Option<String>,
}

/// The query parameters of a server.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ServerQuery {
    /// Those that were taken back as well.
    #[param(value_type = Option<bool>)]
    include_deleted: Option<String>,
}

/// A server and what the registry says of it, as the official registry's schema has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is answered")]
struct ServerResponse {
    /// The server.json.
    #[schema(value_type = Object)]
    server: Value,
    /// The registry's facts: status, times, and whether it is the latest.
    #[schema(value_type = Object)]
    _meta: Value,
}

/// A page of servers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is answered")]
struct ServerList {
    /// The servers.
    servers: Vec<ServerResponse>,
    /// How many these are, and where the next page begins.
    #[schema(value_type = Object)]
    metadata: Value,
}

/// The parts of a path that there are: a link's slug, a server's name, a version.
#[derive(Debug, Default, Deserialize)]
pub struct Place {
    slug: Option<String>,
    name: Option<String>,
    version: Option<String>,
}

/// Lists servers.
#[utoipa::path(get, path = "/v0.1/servers", tag = "official",
    params(ServersQuery),
    responses((status = 200, description = "A page of servers, in a stable order", body = ServerList)))]
pub async fn list_servers(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServersQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let place = found(place)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let (tenant, cache) = reader(&gateway, &headers, &place).await?;
    let since = query.updated_since.map(|text| text.parse::<DateTime<Utc>>()).transpose();
    let filter = OfficialFilter {
        search: query.search,
        updated_since: since.map_err(|error| invalid(format!("`updated_since`: {error}")))?,
        version: query.version.filter(|version| !version.is_empty()),
        include_deleted: flag(query.include_deleted)?,
    };
    // A cursor that was left empty is none.
    let cursor = query.cursor.filter(|cursor| !cursor.is_empty());
    let limit = match query.limit.unwrap_or(PAGE) {
        0 => return Err(invalid("`limit` is 0; a page has 1 to 100 servers")),
        limit => limit.min(PAGE_LIMIT),
    };
    let page = gateway.registry.official_servers(&tenant, &filter, cursor.as_deref(), limit).await;
    let page = page.map_err(told)?;
    let mut metadata = json!({ "count": page.servers.len() });
    if let Some(cursor) = page.next_cursor {
        metadata["nextCursor"] = json!(cursor);
    }
    Ok(answer(cache, &json!({ "servers": page.servers, "metadata": metadata })))
}

/// Lists the versions of a server, the newest first.
#[utoipa::path(get, path = "/v0.1/servers/{name}/versions", tag = "official",
    params(("name" = String, Path, description = "The server's name, its slash encoded", example = "pml.mcp/filesystem"), ServerQuery),
    responses((status = 200, description = "All versions, the newest first", body = ServerList)))]
pub async fn list_versions(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let (cache, versions) = versions(&gateway, &headers, &found(place)?, query).await?;
    let metadata = json!({ "count": versions.len() });
    Ok(answer(cache, &json!({ "servers": versions, "metadata": metadata })))
}

/// Returns one version of a server; `latest` is the one that the catalog has now.
#[utoipa::path(get, path = "/v0.1/servers/{name}/versions/{version}", tag = "official",
    params(("name" = String, Path, description = "The server's name, its slash encoded", example = "pml.mcp/filesystem"), ("version" = String, Path, description = "The version, or `latest`", example = "latest"), ServerQuery),
    responses((status = 200, description = "The version", body = ServerResponse)))]
pub async fn get_version(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let place = found(place)?;
    let (cache, versions) = versions(&gateway, &headers, &place, query).await?;
    let wanted = place.version.unwrap_or_default();
    let version = versions.into_iter().find(|version| match wanted.as_str() {
        "latest" => {
            version["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] == true
        }
        wanted => version["server"]["version"] == wanted,
    });
    Ok(answer(cache, &version.ok_or_else(no_such_server)?))
}

/// Lists servers through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ServersQuery),
    responses((status = 200, description = "A page of servers, in a stable order", body = ServerList)))]
pub async fn list_linked_servers(
    gateway: State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServersQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    list_servers(gateway, headers, place, query).await
}

/// Lists the versions of a server through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers/{name}/versions", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ("name" = String, Path, description = "The server's name, its slash encoded", example = "pml.mcp/filesystem"), ServerQuery),
    responses((status = 200, description = "All versions, the newest first", body = ServerList)))]
pub async fn list_linked_versions(
    gateway: State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    list_versions(gateway, headers, place, query).await
}

/// Returns one version of a server through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers/{name}/versions/{version}", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ("name" = String, Path, description = "The server's name, its slash encoded", example = "pml.mcp/filesystem"), ("version" = String, Path, description = "The version, or `latest`", example = "latest"), ServerQuery),
    responses((status = 200, description = "The version", body = ServerResponse)))]
pub async fn get_linked_version(
    gateway: State<SharedGateway>,
    headers: HeaderMap,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    get_version(gateway, headers, place, query).await
}

/// What a page of any origin may ask for: it reads, with no credential of the browser's.
pub async fn preflight() -> Response {
    let allow = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, OPTIONS")),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("accept, authorization, content-type, x-api-key"),
        ),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400")),
    ];
    (StatusCode::NO_CONTENT, allow).into_response()
}

/// Adds what lets pages of other origins read the answers, refusals too.
pub async fn share(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("cross-origin"),
    );
    response
}

async fn versions(
    gateway: &SharedGateway,
    headers: &HeaderMap,
    place: &Place,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<(&'static str, Vec<Value>), ApiError> {
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let deleted = flag(query.include_deleted)?;
    let (tenant, cache) = reader(gateway, headers, place).await?;
    let name = place.name.as_deref().unwrap_or_default();
    let found = gateway.registry.official_versions(&tenant, name, deleted).await;
    Ok((cache, found.map_err(told)?))
}

/// Finds out who reads: whoever a link stands for, else the caller.
async fn reader(
    gateway: &SharedGateway,
    headers: &HeaderMap,
    place: &Place,
) -> Result<(Tenant, &'static str), ApiError> {
    match &place.slug {
        Some(slug) => {
            let scope = gateway.registry.scope_of_link(slug).await.map_err(told)?;
            Ok((Tenant::of(scope), "private, no-store"))
        }
        None => {
            let reader = Reader::of(gateway, headers).await?;
            let cache = match reader {
                Reader::Anonymous => "public, max-age=60",
                Reader::Tenant(_) => "private, no-store",
            };
            Ok((reader.tenant(), cache))
        }
    }
}

fn found(place: Result<Path<Place>, PathRejection>) -> Result<Place, ApiError> {
    // What is not even text is nobody's name.
    place.map(|Path(place)| place).map_err(|_| no_such_server())
}

fn flag(word: Option<String>) -> Result<bool, ApiError> {
    match word.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid("`include_deleted` is `true` or `false`")),
    }
}

fn told(error: RegistryError) -> ApiError {
    match error {
        RegistryError::Invalid(reason) => invalid(reason),
        RegistryError::NotFound(_) => no_such_server(),
        other => other.into(),
    }
}

/// A foreign server, an unknown one and a link that leads nowhere answer alike; the API's own member besides ours.
fn no_such_server() -> ApiError {
    ApiError::not_found().with_member("error", "Server not found")
}

fn answer(cache: &'static str, body: &Value) -> Response {
    let text = Bytes::from(body.to_string());
    let mut response = super::registry::json_text(text);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("authorization, x-api-key"));
    response
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, detail)
}
