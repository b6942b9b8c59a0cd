//! `/openapi.json`: the routes' own descriptions.
//!
//! Each handler describes its own answers. This module adds what the routes of a group have in common: the credential
//! that they need and their refusals.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::{OpenApi as _, ToSchema};

/// The credential that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auth {
    /// Nothing.
    None,
    /// An API key or a token; nothing for public entries.
    Public,
    /// A key or a token.
    Key,
    /// A key in the body.
    Body,
    /// The operator's own token.
    Operator,
}

/// One route, as `pml-server routes --json` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Route {
    /// The HTTP method.
    pub method: String,
    /// The path, with parameters in braces.
    pub path: String,
    /// The credential that it needs.
    pub auth: Auth,
}

/// A refusal in the form of RFC 9457, with a `code` from `docs/errors.md`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what an `ApiError` serialises to")]
pub(super) struct Problem {
    /// Always `about:blank`; `code` identifies the problem.
    r#type: String,
    /// The status in words.
    title: String,
    /// The status.
    status: u16,
    /// A stable name.
    #[schema(example = "UNAUTHORIZED")]
    code: String,
    /// A stable number.
    number: u16,
    /// What failed, and for which object.
    detail: String,
    /// What to do next.
    hint: String,
    /// With 5xx: the id of this request, as `urn:uuid:…`, the same as in `X-Request-Id`.
    instance: Option<String>,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "PML gateway",
        description = "The gateway and registry of PML. Programs and tools are called over MCP, on `POST /mcp`; the other routes are for administration and reading.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Problem, protocol::RunTrace)),
    tags(
        (name = "mcp", description = "MCP Streamable HTTP"),
        (name = "registry", description = "MCP servers, tools and capabilities"),
        (name = "official", description = "The official MCP registry's API, and links to a project's registry"),
        (name = "capabilities", description = "Publishing of programs"),
        (name = "servers", description = "Publishing of MCP servers"),
        (name = "keys", description = "API keys of a scope"),
        (name = "members", description = "Members, roles and projects of an organisation"),
        (name = "secrets", description = "Stored secrets for the upstreams of tools"),
        (name = "audit", description = "The audit log"),
        (name = "executions", description = "Decisions about programs, and the calls of their runs"),
        (name = "tools", description = "Tools of the caller's own MCP servers, which run on the caller's machine"),
        (name = "routing", description = "Where tools run"),
        (name = "identity", description = "Discovery of the token issuer"),
        (name = "operation", description = "Liveness, readiness, version"),
    )
)]
struct Gateway;

/// The document, built once.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut whole = json!(Gateway::openapi());
    whole["components"]["securitySchemes"] = json!({
        "key": { "type": "http", "scheme": "bearer", "description": "An API key, or an access token of the configured issuer" },
    });
    whole["components"]["responses"] = refusals();
    for (auth, group) in super::groups() {
        let mut group = json!(group.into_openapi());
        for (path, item) in group["paths"].as_object_mut().into_iter().flatten() {
            for (method, operation) in std::mem::take(item).as_object_mut().into_iter().flatten() {
                add_common(path, method, operation, auth);
                whole["paths"][path][method] = operation.take();
            }
        }
        for (name, schema) in group["components"]["schemas"].as_object_mut().into_iter().flatten() {
            whole["components"]["schemas"][name] = schema.take();
        }
    }
    add_choices(&mut whole["components"]["schemas"]);
    whole
});

/// Serves the document.
#[utoipa::path(get, path = "/openapi.json", tag = "operation",
    responses((status = 200, description = "This document, OpenAPI 3.1", body = Object)))]
pub(crate) async fn get_openapi() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=60")];
    (headers, TEXT.as_str()).into_response()
}

/// Returns every route in the document, and the operator's: it is no part of the interface for tenants, which the
/// document describes.
pub(crate) fn routes() -> Vec<Route> {
    // The inverse of `add_common`: the number of alternatives in `security` identifies the group.
    let auth_of = |operation: &Value| match operation["security"].as_array().map(Vec::len) {
        None => Auth::None,
        Some(0) => Auth::Body,
        Some(1) => Auth::Key,
        Some(_) => Auth::Public,
    };
    let paths = DOCUMENT["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        item.as_object()
            .into_iter()
            .flatten()
            .map(move |(method, operation)| (path, method, operation))
    });
    let described = operations.map(|(path, method, operation)| Route {
        method: method.to_uppercase(),
        path: path.clone(),
        auth: auth_of(operation),
    });
    let metrics = Route {
        method: "GET".to_owned(),
        path: super::metrics::PATH.to_owned(),
        auth: Auth::Operator,
    };
    described.chain([metrics]).collect()
}

/// Adds the group's common parts to an operation.
fn add_common(path: &str, method: &str, operation: &mut Value, auth: Auth) {
    let mut refused = Vec::new();
    if auth != Auth::None {
        refused.extend(["400", "401", "403", "503"]);
        operation["security"] = match auth {
            // In OpenAPI, an empty object makes the credential optional, and an empty list removes it.
            Auth::Public => json!([{ "key": [] }, {}]),
            Auth::Body => json!([]),
            Auth::Key | Auth::None | Auth::Operator => json!([{ "key": [] }]),
        };
    }
    if path.starts_with("/r/") {
        refused.extend(["400", "503"]);
    }
    // The routes in `UNCOUNTED` of `admission/limits.rs` have no rate limit.
    if !["/health", "/ready", "/version"].contains(&path) {
        refused.push("429");
    }
    if path.contains('{') {
        refused.push("404");
    }
    if operation.get("requestBody").is_some() {
        refused.extend(["413", "415"]);
    }
    // The requests for which `idempotency::once` accepts a key.
    if method == "post" && path.starts_with("/api/v1/") {
        refused.extend(["409", "422"]);
        let parameter = json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Makes a repeated request take effect only once",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => operation["parameters"] = json!([parameter]),
        }
    }
    for status in refused {
        // A handler's own description of a status is more specific.
        let own = &mut operation["responses"][status];
        if own.is_null() {
            *own = json!({ "$ref": format!("#/components/responses/{status}") });
        }
    }
}

/// Adds constraints that types cannot express: mutually exclusive fields, and fields that depend on another's value.
fn add_choices(schemas: &mut Value) {
    schemas["CreateKey"]["not"] = json!({
        "required": ["expires_at", "expires_in_days"],
        "properties": { "expires_at": { "type": "string" }, "expires_in_days": { "type": "integer" } },
    });
    // The type's old name: returned only with `http_as=cloud`, accepted everywhere.
    if let Some(words) = schemas["EntryType"]["enum"].as_array_mut() {
        words.push(json!("cloud"));
    }
    let schema = &mut schemas["PublishServer"];
    schema["oneOf"] = json!([
        {
            "required": ["install"],
            "properties": {
                "type": { "const": "stdio" },
                "install": { "type": "object" },
                "proxy_to": { "type": "null" },
                "env_required": { "maxItems": 0 },
            },
        },
        {
            "required": ["proxy_to"],
            "properties": {
                "type": { "const": "http" },
                "proxy_to": { "type": "string" },
                "install": { "type": "null" },
            },
        },
    ]);
}

/// The refusals of all routes, by status.
fn refusals() -> Value {
    let all = [
        ("400", "The request is invalid"),
        ("401", "No credential, or an invalid one"),
        ("403", "The credential lacks a right"),
        ("404", "The caller has no object of that name"),
        (
            "409",
            "The request conflicts with the current state, or the same request is still running",
        ),
        ("413", "The body is too large"),
        ("415", "The body is not JSON, or compressed"),
        ("422", "The `Idempotency-Key` was already used for a different request"),
        ("429", "Too many requests; `Retry-After` has the time to wait"),
        ("503", "The database, the identity provider or the master key is unavailable"),
    ];
    let refusal = |description: &str| {
        json!({
            "description": description,
            "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
        })
    };
    all.into_iter()
        .map(|(status, description)| (status.to_owned(), refusal(description)))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_described() {
        let mut ids = Vec::new();
        for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let what = format!("{method} {path}");
                assert!(
                    operation["summary"].as_str().is_some_and(|text| text.len() > 10),
                    "{what}"
                );
                assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{what}");
                if let Some(body) = operation.get("requestBody") {
                    let body = &body["content"]["application/json"];
                    assert!(body.get("example").is_some(), "{what}: {body}");
                }
                ids.push(operation["operationId"].as_str().unwrap().to_owned());
            }
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "an operation id is not unique");
    }

    /// `add_choices` would silently create a schema that no route uses.
    #[test]
    fn choices_are_added_to_existing_schemas() {
        let schemas = &DOCUMENT["components"]["schemas"];
        for name in ["CreateKey", "PublishServer"] {
            assert!(schemas[name].get("properties").is_some(), "{name}: {}", schemas[name]);
        }
        assert!(schemas["EntryType"]["enum"].as_array().is_some_and(|words| words.len() == 5));
    }

    #[test]
    fn routes_report_the_credential_of_their_group() {
        let routes = routes();
        let auth = |method: &str, path: &str| {
            routes
                .iter()
                .find(|route| route.method == method && route.path == path)
                .map(|route| route.auth)
        };
        assert_eq!(auth("POST", "/mcp"), Some(Auth::Key));
        assert_eq!(auth("GET", "/mcp"), Some(Auth::Public));
        assert_eq!(auth("GET", "/health"), Some(Auth::None));
        assert_eq!(auth("GET", "/api/v1/keys"), Some(Auth::Key));
        assert_eq!(auth("GET", "/metrics"), Some(Auth::Operator));
        assert_eq!(auth("GET", "/nowhere"), None);
    }
}
