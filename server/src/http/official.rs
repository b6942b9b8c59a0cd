//! `/v0.1/servers`: the official MCP registry's API, for the caller or through a project's link.

pub(crate) mod login;
pub(crate) mod publish;

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use chrono::{DateTime, Utc};
use registry::{OfficialFilter, OfficialReader, RegistryError, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::api::invalid;
use super::pages::Pages;
use crate::error::ApiError;
use crate::http::authentication::Reader;
use crate::state::SharedGateway;

/// The largest page.
const PAGE_LIMIT: u32 = 100;
/// The default page size.
const PAGE: u32 = 30;

/// The query parameters of the list. Unknown ones are ignored, because clients of other registries send some.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServersQuery {
    /// Opaque cursor of the next page.
    cursor: Option<String>,
    /// Servers per page; values above 100 are treated as 100.
    #[param(minimum = 1, value_type = Option<u64>)]
    limit: Option<String>,
    /// A substring of the name.
    search: Option<String>,
    /// Only servers changed at or after this time (RFC 3339).
    #[param(format = DateTime)]
    updated_since: Option<String>,
    /// `latest`, or one version.
    version: Option<String>,
    /// Include deleted and yanked versions.
    #[param(value_type = Option<bool>)]
    include_deleted: Option<String>,
}

/// The query parameters of a server.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServerQuery {
    /// Include deleted and yanked versions.
    #[param(value_type = Option<bool>)]
    include_deleted: Option<String>,
}

/// A server with the registry's metadata, in the official registry's schema.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the answer")]
struct ServerResponse {
    /// The server.json.
    #[schema(value_type = Object)]
    server: Value,
    /// The registry's metadata: status, times, and whether the version is the latest.
    #[schema(value_type = Object)]
    _meta: Value,
}

/// A page of servers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the answer")]
struct ServerList {
    /// The servers.
    servers: Vec<ServerResponse>,
    /// The number of servers, and the cursor of the next page.
    #[schema(value_type = Object)]
    metadata: Value,
}

/// The variable parts of a path: a link's slug, a server's name, a version.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Place {
    slug: Option<String>,
    name: Option<String>,
    version: Option<String>,
}

/// Lists servers.
#[utoipa::path(get, path = "/v0.1/servers", tag = "official",
    params(ServersQuery),
    responses((status = 200, description = "A page of servers, in a stable order", body = ServerList)))]
pub(crate) async fn list_servers(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServersQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let place = parse_place(place)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let (reader, cache) = incoming.reader(&gateway, &place).await?;
    let since = query.updated_since.map(|text| text.parse::<DateTime<Utc>>()).transpose();
    let filter = OfficialFilter {
        search: query.search,
        updated_since: since.map_err(|error| invalid(format!("`updated_since`: {error}")))?,
        version: query.version.filter(|version| !version.is_empty()),
        include_deleted: flag(query.include_deleted)?,
    };
    // An empty cursor is treated as absent.
    let cursor = query.cursor.filter(|cursor| !cursor.is_empty());
    let limit = query.limit.as_deref().map_or(Some(PAGE), page_limit);
    let limit = limit.ok_or_else(|| invalid("`limit` must be a whole number of at least 1"))?;
    let page = gateway.registry.official_servers(&reader, &filter, cursor.as_deref(), limit).await;
    let page = page.map_err(official_error)?;
    let mut metadata = json!({ "count": page.servers.len() });
    if let Some(cursor) = page.next_cursor {
        metadata["nextCursor"] = json!(cursor);
    }
    Ok(answer(cache, &json!({ "servers": page.servers, "metadata": metadata })))
}

/// Lists the versions of a server, the newest first.
#[utoipa::path(get, path = "/v0.1/servers/{name}/versions", tag = "official",
    params(("name" = String, Path, description = "The server's name, with the slash encoded", example = "pml.mcp/filesystem"), ServerQuery),
    responses((status = 200, description = "All versions, the newest first", body = ServerList)))]
pub(crate) async fn list_versions(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let ServerRequest { place, deleted, reader, cache } =
        parse_server_request(&gateway, &incoming, place, query).await?;
    let name = place.name.as_deref().unwrap_or_default();
    let versions = gateway.registry.official_versions(&reader, name, deleted).await;
    let versions = versions.map_err(official_error)?;
    let metadata = json!({ "count": versions.len() });
    Ok(answer(cache, &json!({ "servers": versions, "metadata": metadata })))
}

/// Returns one version of a server; `latest` is the current one. A yanked version can be fetched by its number.
#[utoipa::path(get, path = "/v0.1/servers/{name}/versions/{version}", tag = "official",
    params(("name" = String, Path, description = "The server's name, with the slash encoded", example = "pml.mcp/filesystem"), ("version" = String, Path, description = "The version, or `latest`", example = "latest"), ServerQuery),
    responses((status = 200, description = "The version", body = ServerResponse)))]
pub(crate) async fn get_version(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let ServerRequest { place, deleted, reader, cache } =
        parse_server_request(&gateway, &incoming, place, query).await?;
    let [name, version] =
        [&place.name, &place.version].map(|part| part.as_deref().unwrap_or_default());
    let found = gateway.registry.official_version(&reader, name, version, deleted).await;
    Ok(answer(cache, &found.map_err(official_error)?))
}

/// Lists servers through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ServersQuery),
    responses((status = 200, description = "A page of servers, in a stable order", body = ServerList)))]
pub(crate) async fn list_linked_servers(
    gateway: State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServersQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    list_servers(gateway, incoming, place, query).await
}

/// Lists the versions of a server through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers/{name}/versions", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ("name" = String, Path, description = "The server's name, with the slash encoded", example = "pml.mcp/filesystem"), ServerQuery),
    responses((status = 200, description = "All versions, the newest first", body = ServerList)))]
pub(crate) async fn list_linked_versions(
    gateway: State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    list_versions(gateway, incoming, place, query).await
}

/// Returns one version of a server through a link.
#[utoipa::path(get, path = "/r/{slug}/v0.1/servers/{name}/versions/{version}", tag = "official",
    params(("slug" = String, Path, description = "The slug of the link", example = "00000000000000000000000000000000"), ("name" = String, Path, description = "The server's name, with the slash encoded", example = "pml.mcp/filesystem"), ("version" = String, Path, description = "The version, or `latest`", example = "latest"), ServerQuery),
    responses((status = 200, description = "The version", body = ServerResponse)))]
pub(crate) async fn get_linked_version(
    gateway: State<SharedGateway>,
    incoming: Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    get_version(gateway, incoming, place, query).await
}

/// The address and headers of a request.
#[derive(FromRequestParts)]
pub(crate) struct Incoming {
    pages: Extension<Arc<Pages>>,
    uri: Uri,
    headers: HeaderMap,
}

impl Incoming {
    /// Returns the reader: the project of the link, else the caller.
    async fn reader(
        &self,
        gateway: &SharedGateway,
        place: &Place,
    ) -> Result<(OfficialReader, &'static str), ApiError> {
        // A link decides alone: a credential that is sent as well has no effect.
        let (tenant, cache) = match &place.slug {
            Some(slug) => {
                // The tenant has no principal, so entries that are private to one stay hidden.
                let scope = gateway.registry.scope_of_link(slug).await.map_err(official_error)?;
                // A cached answer would outlive the revocation of the link.
                (Tenant::of(scope), "private, no-store")
            }
            None => match Reader::of(gateway, &self.headers).await? {
                Reader::Anonymous => (Tenant::anonymous(), "public, max-age=60"),
                reader @ Reader::Tenant(_) => (reader.tenant(), "private, no-store"),
            },
        };
        Ok((self.on_behalf_of(tenant), cache))
    }

    /// Returns a reader with the public address of this request.
    fn on_behalf_of(&self, tenant: Tenant) -> OfficialReader {
        OfficialReader { tenant, gateway: self.pages.address(&self.uri, &self.headers) }
    }
}

/// A parsed request for one server.
struct ServerRequest {
    place: Place,
    deleted: bool,
    reader: OfficialReader,
    cache: &'static str,
}

async fn parse_server_request(
    gateway: &SharedGateway,
    incoming: &Incoming,
    place: Result<Path<Place>, PathRejection>,
    query: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<ServerRequest, ApiError> {
    let place = parse_place(place)?;
    let deleted = include_deleted(query)?;
    let (reader, cache) = incoming.reader(gateway, &place).await?;
    Ok(ServerRequest { place, deleted, reader, cache })
}

fn include_deleted(query: Result<Query<ServerQuery>, QueryRejection>) -> Result<bool, ApiError> {
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    flag(query.include_deleted)
}

fn parse_place(place: Result<Path<Place>, PathRejection>) -> Result<Place, ApiError> {
    // A name that is not UTF-8 cannot exist.
    place.map(|Path(place)| place).map_err(|_| no_such_server())
}

/// Parses the page size. Larger numbers are reduced to the limit, because clients of other registries send them.
fn page_limit(text: &str) -> Option<u32> {
    // Of a zero, nothing remains, so it is refused. `parse` alone would accept a sign.
    let digits = text.trim_start_matches('0');
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse::<i64>().ok().filter(|_| is_number)?;
    Some(u32::try_from(number).unwrap_or(PAGE_LIMIT).min(PAGE_LIMIT))
}

fn flag(word: Option<String>) -> Result<bool, ApiError> {
    match word.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid("`include_deleted` must be `true` or `false`")),
    }
}

fn official_error(error: RegistryError) -> ApiError {
    match error {
        RegistryError::Invalid(reason) => invalid(reason),
        RegistryError::NotFound(_) => no_such_server(),
        other => other.into(),
    }
}

/// Creates the answer for a server that is unknown or foreign, and for an unknown link. It has the `error` member of
/// the official API in addition to ours.
fn no_such_server() -> ApiError {
    ApiError::not_found().with_member("error", "Server not found")
}

fn answer(cache: &'static str, body: &Value) -> Response {
    let text = Bytes::from(body.to_string());
    let mut response = super::registry::json_text(text);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    // The same URL has different contents for different callers.
    headers.insert(header::VARY, HeaderValue::from_static("authorization, x-api-key"));
    response
}
