//! `POST /v0.1/publish`: the request of the official registry's `mcp-publisher`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use registry::{Caller, Right};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{Incoming, ServerResponse, answer, official_error};
use crate::error::ApiError;
use crate::http::api::require;
use crate::http::body::ApiJson;
use crate::http::capabilities::publish_error;
use crate::http::openapi::Problem;
use crate::publish::official;
use crate::state::SharedGateway;

/// The largest body: a server.json of 64 KiB, plus JSON escaping.
pub(crate) const BODY_LIMIT: usize = 256 * 1024;

/// A server.json of the official registry; members that are not listed here are preserved.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is read from a map")]
struct ServerJson {
    /// `org.project/namespace`, with the key's own scope.
    #[schema(pattern = "^[A-Za-z0-9._-]+/[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$", max_length = 200)]
    name: String,
    /// The description.
    #[schema(min_length = 1, max_length = 100, pattern = "[^\\s]")]
    description: String,
    /// Three numbers.
    #[schema(pattern = "^(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})\\.(0|[1-9][0-9]{0,8})$")]
    version: String,
    /// The packages; the first one that can be started as described is used.
    #[schema(value_type = Option<Vec<Object>>)]
    packages: Option<Vec<Value>>,
    /// The remote addresses, used if no package can be started.
    #[schema(value_type = Option<Vec<Object>>)]
    remotes: Option<Vec<Value>>,
}

/// Publishes a version of an MCP server in the caller's scope, as `org.project/namespace`.
///
/// Equivalent to `POST /api/v1/servers`, with a server.json. Programs can call only listed tools: list them in
/// `_meta`, at `io.modelcontextprotocol.registry/publisher-provided`, `ai.casys.pml/tools`, or publish with
/// `pml publish --mcp`, which reads them from the server.
#[utoipa::path(post, path = "/v0.1/publish", tag = "official", operation_id = "publish_official_server",
    request_body(content = ServerJson, description = "A server.json", example = json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "acme.web/notes", "description": "Keeps notes.", "version": "1.2.0",
        "packages": [{ "registryType": "npm", "identifier": "@acme/notes", "version": "1.2.0", "transport": { "type": "stdio" } }]
    })),
    responses(
        (status = 200, description = "Published, or the identical version already exists", body = ServerResponse),
        (status = 409, description = "The version exists with different content, or the name is or was taken", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn publish_server(
    State(gateway): State<SharedGateway>,
    incoming: Incoming,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(body, _room): ApiJson<Map<String, Value>>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Publish)?;
    let published = official::publish(&gateway, &caller, body).await.map_err(|error| {
        let detail = error.message.clone();
        // Clients of the official API read the reason from this member.
        publish_error(error).with_member("error", detail)
    })?;
    let reader = incoming.on_behalf_of(caller.tenant());
    // Answered as a reader would see it, in the official form.
    let found =
        gateway.registry.official_version(&reader, &published.name, &published.version, true).await;
    let mut found = found.map_err(official_error)?;
    if !published.warnings.is_empty() {
        found["_meta"]["ai.casys.pml/registry"]["warnings"] = json!(published.warnings);
    }
    Ok(answer("private, no-store", &found))
}
