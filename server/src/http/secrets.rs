//! `/api/v1/secrets`: stored secrets for the upstreams of tools. Values can be written but never read.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use protocol::ErrorCode;
use registry::{
    Caller, KeyHost, RegistryError, Right, SecretName, SecretOwner, SecretRecord, SecretValue,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use zeroize::{Zeroize as _, Zeroizing};

use super::api::{invalid, private, require};
use crate::error::ApiError;
use crate::http::body::{ApiBytes, is_json};
use crate::identity::requester::Requester;
use crate::state::SharedGateway;

/// The largest body: a value of 8 KiB with every byte escaped, plus the other members.
pub(crate) const BODY_LIMIT: usize = 64 * 1024;

/// The answer to a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SecretList)]
struct Listed {
    secrets: Vec<SecretRecord>,
}

/// The body of a `PUT`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSecret {
    /// The value that is sent to the upstream; 1 to 8192 bytes.
    #[schema(write_only, min_length = 1, max_length = 8192)]
    value: String,
    /// The owner: `me` or `project`.
    #[serde(rename = "for")]
    owner: SecretOwner,
    /// The hosts that may receive it: `host` or `host:port` for https, `http://host` unencrypted. Without hosts, only
    /// the hosts of catalog entries.
    #[serde(default)]
    #[schema(max_items = 16)]
    hosts: Vec<String>,
}

/// The query of a `DELETE`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhichSecret {
    /// The owner: `me` or `project`.
    #[serde(rename = "for")]
    owner: SecretOwner,
}

/// Lists the names of the caller's own secrets and of the project's.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets",
    responses((status = 200, description = "The names; never a value", body = Listed)))]
pub(crate) async fn list_secrets(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Personal secrets need `execute`, the project's need `admin`. With either right, both kinds may be listed.
    if !caller.rights.contains(Right::Admin) {
        require(&caller, Right::Execute)?;
    }
    // Without a master key, this must fail rather than return an empty list.
    gateway.registry.check_secrets().await?;
    let tenant = Requester::new(caller, &headers).tenant();
    let secrets = gateway.registry.secrets(&tenant).await?;
    Ok(private(Json(Listed { secrets })))
}

/// Stores a value with its hosts: 201 for a new name, 200 if it replaces another value.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The variable that a tool needs", pattern = "^[A-Z][A-Z0-9_]{0,127}$", example = "TAVILY_API_KEY")),
    request_body(content = NewSecret, example = json!({ "value": "tvly-…", "for": "me", "hosts": ["mcp.tavily.com"] })),
    responses(
        (status = 201, description = "The secret was created", body = SecretRecord),
        (status = 200, description = "The value was replaced", body = SecretRecord)))]
pub(crate) async fn put_secret(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    ApiBytes(body): ApiBytes,
) -> Result<Response, ApiError> {
    let name: SecretName = name.parse().map_err(refused)?;
    // Browsers send forms and plain text to other origins without a preflight, but not JSON.
    if !is_json(&headers) {
        let error = invalid("the body must be `application/json`");
        return Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let new: Result<NewSecret, _> = serde_json::from_slice(&body);
    // From here on, the value exists only in `NewSecret`, unless something else still holds the body.
    if let Ok(mut bytes) = body.try_into_mut() {
        bytes.zeroize();
    }
    // The parser's message could quote the value, so only the position is returned.
    let new = new.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        invalid(format!(
            "the body is not `{{\"value\":\"…\",\"for\":\"me\"|\"project\",\"hosts\":[…]}}`: see line {line} column {column}"
        ))
    })?;
    let value = SecretValue::new(Zeroizing::new(new.value)).map_err(refused)?;
    let hosts = new.hosts.iter().map(|host| host.parse()).collect::<Result<Vec<KeyHost>, _>>();
    let hosts = hosts.and_then(KeyHost::sorted).map_err(refused)?;
    // Checked only here, because the needed right depends on the owner, which is in the body.
    require(&caller, right_for(new.owner))?;
    let tenant = Requester::new(caller, &headers).tenant();
    let record = gateway
        .registry
        .put_secret(&tenant, new.owner, &name, value, hosts)
        .await
        .map_err(|error| secret_error(error, &name))?;
    let status = if record.version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, private(Json(record))).into_response())
}

/// Deletes a secret.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The variable", pattern = "^[A-Z][A-Z0-9_]{0,127}$", example = "TAVILY_API_KEY"), WhichSecret),
    responses((status = 204, description = "Deleted")))]
pub(crate) async fn delete_secret(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    query: Result<Query<WhichSecret>, QueryRejection>,
) -> Result<Response, ApiError> {
    let name: SecretName = name.parse().map_err(refused)?;
    let Query(query) = query.map_err(|_| invalid("the query is not `for=me` or `for=project`"))?;
    require(&caller, right_for(query.owner))?;
    // Without a master key, all routes of secrets give the same answer; a 404 would be misleading.
    gateway.registry.check_secrets().await?;
    let tenant = Requester::new(caller, &headers).tenant();
    gateway
        .registry
        .delete_secret(&tenant, query.owner, &name)
        .await
        .map_err(|error| secret_error(error, &name))?;
    Ok(private(StatusCode::NO_CONTENT))
}

fn right_for(owner: SecretOwner) -> Right {
    match owner {
        SecretOwner::Me => Right::Execute,
        SecretOwner::Project => Right::Admin,
    }
}

fn refused(error: RegistryError) -> ApiError {
    // The registry's messages about names, values and hosts never repeat the input, which may be
    // the secret in the wrong field.
    invalid(error.to_string())
}

fn secret_error(error: RegistryError, name: &SecretName) -> ApiError {
    match error {
        RegistryError::NotFound(_) => {
            ApiError::new(ErrorCode::NotFound, format!("there is no secret `{name}`"))
        }
        other => other.into(),
    }
}
