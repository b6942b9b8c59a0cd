//! `GET /mcp` and `GET /mcp/{fqdn}`: the registry, read over HTTP.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use headers::{ETag, HeaderMapExt as _, IfNoneMatch};
use protocol::{EntryType, ErrorCode, RegistryEntry, Routing, Visibility};
use registry::{CatalogFilter, CatalogPage, EntryName, RegistryError, ServedEntry, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::api::{invalid, page_size};
use super::openapi::Problem;
use super::pages::Pages;
use crate::error::ApiError;
use crate::http::authentication::Reader;
use crate::state::SharedGateway;

/// The largest page of the list.
const PAGE_LIMIT: u32 = 100;

/// The query parameters of the list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CatalogQuery {
    /// Opaque cursor of the next page.
    cursor: Option<String>,
    /// Entries per page, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// The text to search for.
    search: Option<String>,
    /// Only entries of this namespace.
    namespace: Option<String>,
    /// Only entries of this type.
    #[serde(rename = "type")]
    #[param(value_type = Option<EntryType>)]
    kind: Option<String>,
    /// Only entries with this routing.
    #[param(value_type = Option<Routing>)]
    routing: Option<String>,
    /// How the answer names the type `http`: `http` or `cloud`.
    #[param(pattern = "^(http|cloud)$")]
    http_as: Option<String>,
}

/// The query parameters of an entry. Unknown ones are ignored.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EntryQuery {
    /// How the answer names the type `http`: `http`, or `cloud` with the gateway's proxy as `proxy_to`.
    #[param(pattern = "^(http|cloud)$")]
    http_as: Option<String>,
}

/// Lists the entries that the reader can see.
#[utoipa::path(get, path = "/mcp", tag = "registry", params(CatalogQuery),
    responses(
        (status = 200, description = "A page of entries, sorted by name", body = CatalogPage),
        (status = 405, description = "With `Accept: text/event-stream`: the gateway opens no server-initiated stream", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_entries(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
    query: Result<Query<CatalogQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    if wants_event_stream(&headers) {
        // The gateway never opens a server-initiated stream: 2026-07-28 has none, and the earlier versions allow 405.
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
    let says_cloud = says_cloud(query.http_as.as_deref())?;
    let limit = page_size(query.limit, PAGE_LIMIT)?;
    let page = gateway
        .registry
        .catalog(&reader.tenant(), &filter, super::cursor(query.cursor.as_ref()), limit)
        .await
        .map_err(|error| match error {
            RegistryError::Invalid(reason) => ApiError::new(ErrorCode::InvalidRequest, reason),
            other => other.into(),
        })?;
    // Shared caches may store what anybody can read; `Vary` keeps it from other callers.
    let cache = match reader {
        Reader::Anonymous => "public, max-age=60",
        Reader::Tenant(_) => "private, no-store",
    };
    let mut page = json!(page);
    if says_cloud {
        for entry in page["items"].as_array_mut().into_iter().flatten() {
            if entry["type"] == "http" {
                entry["type"] = json!("cloud");
            }
        }
    }
    Ok((
        [(header::CACHE_CONTROL, cache), (header::VARY, "authorization, x-api-key, accept")],
        Json(page),
    )
        .into_response())
}

/// Serves one entry, under its FQDN or a short form.
#[utoipa::path(get, path = "/mcp/{fqdn}", tag = "registry",
    params(
        ("fqdn" = String, Path, description = "The name, optionally with `@version`", example = "pml.mcp.filesystem"),
        EntryQuery,
        ("If-None-Match" = Option<String>, Header, description = "The reader's cached `ETag`")),
    responses(
        (status = 200, description = "The entry; for a capability its program, unless the request accepts JSON",
            content((RegistryEntry = "application/json"), (String = "application/typescript"))),
        (status = 304, description = "The reader's copy is current"),
        (status = 404, description = "The entry does not exist, or no longer has that hash", body = NotFound),
        (status = 410, description = "The entry was deleted", content_type = "application/problem+json", body = Problem)))]
pub(crate) async fn get_entry(
    State(gateway): State<SharedGateway>,
    pages: Extension<Arc<Pages>>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<EntryQuery>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|error| invalid(error.body_text()))?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let says_cloud = says_cloud(query.http_as.as_deref())?;
    let reader = Reader::of(&gateway, &headers).await?;
    // `@latest` and no version are the same. An invalid version is answered like an unknown one.
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
        // Disclosed only to readers who can see the entry: the query is limited to their tenant.
        Err(RegistryError::HashMismatch { current }) => {
            let message = format!("the content of MCP '{}' has changed", shown(&name));
            let body =
                NotFound { error: "hash_mismatch", message, current: Some(current.to_string()) };
            return Ok((StatusCode::NOT_FOUND, no_store(), Json(body)).into_response());
        }
        Err(RegistryError::Ambiguous { candidates, .. }) => {
            let message =
                format!("several projects have '{}': {}", shown(&name), candidates.join(", "));
            let body = NotFound { error: "ambiguous", message, current: None };
            return Ok((StatusCode::NOT_FOUND, no_store(), Json(body)).into_response());
        }
        Err(other) => return Err(other.into()),
    };
    if says_cloud && found.entry.entry.kind == EntryType::Http {
        return cloud_response(&found, pages.address(&uri, &headers));
    }
    Ok(entry_response(&headers, &found))
}

/// Parses `http_as`.
fn says_cloud(word: Option<&str>) -> Result<bool, ApiError> {
    match word {
        None | Some("http") => Ok(false),
        Some("cloud") => Ok(true),
        Some(_) => {
            Err(ApiError::new(ErrorCode::InvalidRequest, "`http_as` must be `http` or `cloud`"))
        }
    }
}

/// Serves an entry for clients that call the type `cloud`. They send their messages to `proxy_to`, so it is set to the
/// gateway's own proxy. `integrity` remains the hash of the stored entry, because this form is not stored.
fn cloud_response(served: &ServedEntry, gateway: Option<String>) -> Result<Response, ApiError> {
    let unreadable = |_| ApiError::new(ErrorCode::Internal, "the entry is not JSON");
    let mut entry: Value = serde_json::from_slice(&served.json).map_err(unreadable)?;
    let fqdn = &served.entry.fqdn;
    entry["type"] = json!("cloud");
    entry["proxy_to"] = match gateway {
        Some(gateway) => {
            json!(format!("{gateway}/mcp/proxy/{}.{}", fqdn.scope(), fqdn.namespace()))
        }
        // The upstream's own address would bypass the proxy, and with it the secrets, rules and
        // audit log of the gateway.
        None => Value::Null,
    };
    // Without `ETag` and never cached: the address may come from the request's `Host`, and the
    // stored hash does not cover this form.
    let headers = [
        (header::CACHE_CONTROL, "private, no-store"),
        (header::VARY, "authorization, x-api-key, accept"),
    ];
    Ok((headers, Json(entry)).into_response())
}

fn entry_response(headers: &HeaderMap, served: &ServedEntry) -> Response {
    let found = &served.entry;
    let module_code = found.code.as_ref().filter(|_| !wants_json(headers));
    // Two representations of an entry must not have the same strong tag (RFC 9110, 8.8.1).
    let kind = if module_code.is_some() { ".ts" } else { "" };
    let etag = format!("\"{}{kind}\"", found.entry.integrity);
    // Shared caches may store only what an anonymous reader would get too.
    let cache = if found.visibility == Visibility::Public {
        "public, max-age=300"
    } else {
        "private, no-store"
    };
    let mut response = if reader_has(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match module_code {
            Some(code) => module(&found.entry, code),
            // The stored bytes, which the hash in `ETag` covers, not a new serialization.
            None => json_text(served.json.clone()),
        }
    };
    // Also on a 304, which must have these headers of the full answer (RFC 9110, 15.4.5).
    let out = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        out.insert(header::ETAG, etag);
    }
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    out.insert(header::VARY, HeaderValue::from_static("authorization, x-api-key, accept"));
    response
}

/// Returns an answer from JSON text.
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

/// The answer for an entry that cannot be served.
#[derive(Debug, Serialize, ToSchema)]
struct NotFound {
    /// `not_found`, `hash_mismatch` or `ambiguous`.
    error: &'static str,
    /// The requested name.
    message: String,
    /// With `hash_mismatch`: the current name.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
}

/// Nonexistent entries and those of other tenants get the same answer.
fn not_found(name: &str) -> Response {
    let message = format!("MCP '{}' not in registry", shown(name));
    let body = NotFound { error: "not_found", message, current: None };
    (StatusCode::NOT_FOUND, no_store(), Json(body)).into_response()
}

fn no_store() -> [(header::HeaderName, &'static str); 1] {
    [(header::CACHE_CONTROL, "private, no-store")]
}

/// Returns a name without control characters and truncated, for echoing.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Returns the current routing rules, for the CLI's cache; `ETag` is their hash.
#[utoipa::path(get, path = "/api/v1/routing", tag = "routing",
    params(("If-None-Match" = Option<String>, Header, description = "The reader's cached `ETag`")),
    responses(
        (status = 200, description = "The rules: pairs of a pattern and where it runs", body = Rules),
        (status = 304, description = "The reader's copy is current")))]
pub(crate) async fn get_routing(
    State(gateway): State<SharedGateway>,
    headers: HeaderMap,
) -> Response {
    let routes = gateway.registry.routes();
    let body = json!({ "rules": &routes.rules });
    let etag = format!("\"{}\"", routes.etag);
    let mut response = if reader_has(&headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(body).into_response()
    };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
        .headers_mut()
        // `no-cache` requires revalidation before each use: a changed rule must apply at once.
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// The routing rules in the answer.
#[derive(ToSchema)]
#[schema(as = RoutingRules)]
#[expect(dead_code, reason = "it only describes what the rules serialise to")]
struct Rules {
    /// Each pattern with `client` or `server`.
    #[schema(example = json!([["filesystem:*", "client"]]))]
    rules: Vec<Vec<String>>,
}

/// Returns whether `If-None-Match` matches an `ETag`: any of a list, weak or not, or `*` (RFC 9110, 13.1.2).
pub(super) fn reader_has(headers: &HeaderMap, etag: &str) -> bool {
    let (Some(known), Ok(etag)) = (headers.typed_get::<IfNoneMatch>(), etag.parse::<ETag>()) else {
        return false;
    };
    !known.precondition_passes(&etag)
}

fn wants_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// Parses a query parameter as a variant of a serde enum.
fn parse_word<T: serde::de::DeserializeOwned>(
    word: Option<String>,
    name: &str,
) -> Result<Option<T>, ApiError> {
    word.map(|word| serde_json::from_value(serde_json::Value::String(word)))
        .transpose()
        .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, format!("`{name}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list, several lines, a weak tag, a comma within a tag, and `*`.
    #[test]
    fn if_none_match_accepts_all_forms_of_the_header() {
        let tag = "\"sha256-ab+/=\"";
        let has = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, value.parse().unwrap());
            }
            reader_has(&headers, tag)
        };
        let weak = format!("W/{tag}");
        let list = format!("\"x\", {weak} , \"y\"");
        let comma = format!("\"a,b\",{tag}");
        for values in [&[tag][..], &[&weak], &[&list], &[&comma], &["\"x\"", tag], &["*"]] {
            assert!(has(values), "{values:?}");
        }
        let unquoted = tag.trim_matches('"');
        let within = format!("\"a,{unquoted}\"");
        for values in [&[][..], &["\"x\""], &[unquoted], &[&within], &["\"x\", \"y\""], &[""]] {
            assert!(!has(values), "{values:?}");
        }
    }
}
