//! `GET /mcp` and `GET /mcp/{fqdn}`: the registry, read over HTTP.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::{EntryType, ErrorCode, RegistryEntry, Routing, Visibility};
use registry::{CatalogFilter, CatalogPage, EntryName, RegistryError, ServedEntry, Version};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::openapi::Problem;
use crate::auth::Reader;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// The largest page of the catalog.
const PAGE_LIMIT: u32 = 100;

/// The catalog's query parameters.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct CatalogQuery {
    /// Continue after this opaque cursor.
    cursor: Option<String>,
    /// Entries per page, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Words to look for.
    search: Option<String>,
    /// Only entries of this namespace.
    namespace: Option<String>,
    /// Only entries of this type.
    #[serde(rename = "type")]
    #[param(value_type = Option<EntryType>)]
    kind: Option<String>,
    /// Only entries that run there.
    #[param(value_type = Option<Routing>)]
    routing: Option<String>,
}

/// Lists the entries that the reader can see.
#[utoipa::path(get, path = "/mcp", tag = "registry", params(CatalogQuery),
    responses(
        (status = 200, description = "A page of entries, sorted by name", body = CatalogPage),
        (status = 405, description = "With `Accept: text/event-stream`: the gateway opens no stream of its own")))]
pub async fn list_entries(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
    query: Result<Query<CatalogQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    if wants_event_stream(&headers) {
        // The server never opens a stream of its own: 2026-07-28 has none, and
        // the earlier versions allow 405.
        return Ok((StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST, GET")]).into_response());
    }
    let Query(query) =
        query.map_err(|error| ApiError::new(ErrorCode::InvalidRequest, error.body_text()))?;
    let reader = Reader::of(&gateway, &headers).await?;
    let filter = CatalogFilter {
        search: query.search,
        namespace: query.namespace,
        kind: parse_word(query.kind, "type")?,
        routing: parse_word(query.routing, "routing")?,
    };
    let limit = query.limit.unwrap_or(50);
    if !(1..=PAGE_LIMIT).contains(&limit) {
        let detail = format!("`limit` is {limit}; a page has 1 to {PAGE_LIMIT} entries");
        return Err(ApiError::new(ErrorCode::InvalidRequest, detail));
    }
    let page = gateway
        .registry
        .catalog(&reader.tenant(), &filter, query.cursor.as_deref(), limit)
        .await
        .map_err(|error| match error {
            RegistryError::Invalid(reason) => ApiError::new(ErrorCode::InvalidRequest, reason),
            other => other.into(),
        })?;
    let cache = match reader {
        Reader::Anonymous => "public, max-age=60",
        Reader::Tenant(_) => "private, no-store",
    };
    Ok((
        [(header::CACHE_CONTROL, cache), (header::VARY, "authorization, x-api-key, accept")],
        Json(page),
    )
        .into_response())
}

/// Serves one entry, under its FQDN or a short form.
#[utoipa::path(get, path = "/mcp/{fqdn}", tag = "registry",
    params(
        ("fqdn" = String, Path, description = "The name, with `@version` where one is wanted", example = "pml.mcp.filesystem"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` that the reader has")),
    responses(
        (status = 200, description = "The entry; a capability's program unless JSON is asked for",
            content((RegistryEntry = "application/json"), (String = "application/typescript"))),
        (status = 304, description = "The reader has it"),
        (status = 404, description = "It is not in the registry, or no more with that hash", body = NotFound),
        (status = 410, description = "It was deleted", content_type = "application/problem+json", body = Problem)))]
pub async fn get_entry(
    State(gateway): State<SharedGateway>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Path(name) =
        name.map_err(|error| ApiError::new(ErrorCode::InvalidRequest, error.body_text()))?;
    let reader = Reader::of(&gateway, &headers).await?;
    let (text, version) = match name.split_once('@') {
        Some((text, version)) if version != "latest" => (text, Some(version.parse::<Version>())),
        _ => (name.as_str(), None),
    };
    let (Ok(wanted), Ok(version)) = (text.parse::<EntryName>(), version.transpose()) else {
        return Ok(not_found(&name));
    };
    let found = match gateway.registry.served_entry(&reader.tenant(), &wanted, version).await {
        Ok(found) => found,
        Err(RegistryError::NotFound(_)) => return Ok(not_found(&name)),
        Err(RegistryError::HashMismatch { current }) => {
            let message = format!("MCP '{}' has other content now", shown(&name));
            let body =
                NotFound { error: "hash_mismatch", message, current: Some(current.to_string()) };
            return Ok((StatusCode::NOT_FOUND, no_store(), Json(body)).into_response());
        }
        Err(other) => return Err(other.into()),
    };
    Ok(entry_response(&headers, &found))
}

fn entry_response(headers: &HeaderMap, served: &ServedEntry) -> Response {
    let found = &served.entry;
    let etag = format!("\"{}\"", found.entry.integrity);
    let cache = if found.visibility == Visibility::Public {
        "public, max-age=300"
    } else {
        "private, no-store"
    };
    let matches = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value.split(',').any(|tag| {
                let tag = tag.trim();
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
            })
        });
    let mut response = if matches {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match &found.code {
            Some(code) if !wants_json(headers) => module(&found.entry, code),
            _ => json_text(served.json.clone()),
        }
    };
    let out = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        out.insert(header::ETAG, etag);
    }
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    out.insert(header::VARY, HeaderValue::from_static("authorization, x-api-key, accept"));
    response
}

/// Returns JSON that is text already.
pub(super) fn json_text(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Returns a capability's program, with its entry in the first line.
fn module(entry: &RegistryEntry, code: &str) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/typescript; charset=utf-8")];
    (kind, entry.module(code)).into_response()
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"))
}

/// An entry that is not there.
#[derive(Debug, Serialize, ToSchema)]
struct NotFound {
    /// `not_found` or `hash_mismatch`.
    error: &'static str,
    /// What was asked for.
    message: String,
    /// With `hash_mismatch`: the name that it has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
}

/// What does not exist and what is another tenant's answer alike.
fn not_found(name: &str) -> Response {
    let message = format!("MCP '{}' not in registry", shown(name));
    let body = NotFound { error: "not_found", message, current: None };
    (StatusCode::NOT_FOUND, no_store(), Json(body)).into_response()
}

fn no_store() -> [(header::HeaderName, &'static str); 1] {
    [(header::CACHE_CONTROL, "private, no-store")]
}

/// Returns a name short and plain enough to echo.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The routing rules in force, for the CLI's cache; `ETag` is their hash.
#[utoipa::path(get, path = "/api/v1/routing", tag = "routing",
    params(("If-None-Match" = Option<String>, Header, description = "The `ETag` that the reader has")),
    responses(
        (status = 200, description = "The rules: pairs of a pattern and where it runs", body = Rules),
        (status = 304, description = "The reader has them")))]
pub async fn get_routing(State(gateway): State<SharedGateway>, headers: HeaderMap) -> Response {
    let routes = gateway.registry.routes();
    let body = json!({ "rules": &routes.rules });
    let etag = format!("\"{}\"", routes.etag);
    let same = headers.get(header::IF_NONE_MATCH).is_some_and(|v| v.as_bytes() == etag.as_bytes());
    let mut response =
        if same { StatusCode::NOT_MODIFIED.into_response() } else { Json(body).into_response() };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// The routing rules as they are told.
#[derive(ToSchema)]
#[schema(as = RoutingRules)]
#[expect(dead_code, reason = "it only describes what the rules serialise to")]
struct Rules {
    /// Each pattern with `client` or `server`.
    #[schema(example = json!([["filesystem:*", "client"]]))]
    rules: Vec<Vec<String>>,
}

fn wants_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// Reads a query parameter that is one of the words of a serde enum.
fn parse_word<T: serde::de::DeserializeOwned>(
    word: Option<String>,
    name: &str,
) -> Result<Option<T>, ApiError> {
    word.map(|word| serde_json::from_value(serde_json::Value::String(word)))
        .transpose()
        .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, format!("`{name}`: {error}")))
}
