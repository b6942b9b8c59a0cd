//! `/api/v1/tools/sync`: the tools of the caller's own MCP servers.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use protocol::{ToolSync, ToolSyncReceipt};
use registry::{Caller, Right, SyncedServer};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api::{explain, invalid, private, require};
use super::body::ApiJson;
use crate::error::ApiError;
use crate::state::SharedGateway;
use crate::synced_tools::{check, read_client};

/// The largest body. The tools may be larger before what is not stored is removed from them.
pub(super) const BODY_LIMIT: usize = 1024 * 1024;

/// The servers whose tools are stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SyncedServers)]
pub(crate) struct Listed {
    /// The servers, the one that was sent last first.
    servers: Vec<SyncedServer>,
}

/// The query parameters of a removal.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhichServer {
    /// Only the server with this namespace.
    namespace: Option<String>,
}

/// Replaces the tools of one of the caller's own MCP servers; an empty list removes the server. Only the caller finds
/// them. Repeating a request changes nothing but the time from which they are kept.
#[utoipa::path(post, path = "/api/v1/tools/sync", tag = "tools",
    request_body(content = ToolSync, example = json!({
        "client": "0195d2a0-0000-7000-8000-000000000000", "namespace": "notes",
        "tools": [{ "name": "add", "description": "Adds a note.", "inputSchema": { "type": "object" } }] })),
    responses((status = 200, description = "What is stored", body = ToolSyncReceipt)))]
pub(crate) async fn sync_tools(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    ApiJson(sent, _room): ApiJson<ToolSync>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Execute)?;
    let server = check(sent).map_err(invalid)?;
    let (client, namespace) = (server.client.to_string(), server.namespace.clone());
    let tools = server.tools.len();
    let hash = gateway.registry.sync_tools(&caller.tenant(), server).await.map_err(explain)?;
    tracing::info!(scope = %caller.scope, tools, "Received the tools of a user's own server");
    Ok(private(Json(ToolSyncReceipt { client, namespace, tools, hash })))
}

/// Lists the tools that the caller has sent.
#[utoipa::path(get, path = "/api/v1/tools/sync", tag = "tools",
    responses((status = 200, description = "The servers with their tools", body = Listed)))]
pub(crate) async fn list_synced_tools(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Execute)?;
    let servers = gateway.registry.synced_servers(&caller.tenant(), None).await?;
    Ok(private(Json(Listed { servers })))
}

/// Lists the tools that the caller has sent from one workspace.
#[utoipa::path(get, path = "/api/v1/tools/sync/{client}", tag = "tools",
    params(("client" = String, Path, description = "The id of the workspace", example = "0195d2a0-0000-7000-8000-000000000000")),
    responses((status = 200, description = "The servers with their tools", body = Listed)))]
pub(crate) async fn get_synced_tools(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(client): Path<String>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Execute)?;
    let client = read_client(&client).ok_or_else(ApiError::not_found)?;
    let servers = gateway.registry.synced_servers(&caller.tenant(), Some(client)).await?;
    if servers.is_empty() {
        return Err(ApiError::not_found());
    }
    Ok(private(Json(Listed { servers })))
}

/// Removes the tools that the caller has sent from one workspace.
#[utoipa::path(delete, path = "/api/v1/tools/sync/{client}", tag = "tools",
    params(("client" = String, Path, description = "The id of the workspace", example = "0195d2a0-0000-7000-8000-000000000000"), WhichServer),
    responses((status = 204, description = "Removed")))]
pub(crate) async fn forget_synced_tools(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(client): Path<String>,
    query: Result<Query<WhichServer>, QueryRejection>,
) -> Result<Response, ApiError> {
    require(&caller, Right::Execute)?;
    let Query(query) = query.map_err(|error| invalid(error.body_text()))?;
    let client = read_client(&client).ok_or_else(ApiError::not_found)?;
    if query.namespace.as_deref().is_some_and(|namespace| namespace.contains('\0')) {
        return Err(ApiError::not_found());
    }
    let tenant = caller.tenant();
    let forgotten = gateway.registry.forget_synced_tools(&tenant, client, query.namespace).await;
    forgotten.map_err(|error| match error {
        registry::RegistryError::NotFound(_) => ApiError::not_found(),
        other => other.into(),
    })?;
    Ok(private(StatusCode::NO_CONTENT))
}
