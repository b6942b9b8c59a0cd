//! Liveness, readiness and version.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use registry::RegistryError;
use serde_json::{Value, json};

use crate::state::SharedGateway;

/// How long the database has to show that it is ready: who asks is answered within two seconds.
const LIMIT: Duration = Duration::from_millis(1_900);

/// Answers as long as the process serves.
#[utoipa::path(get, path = "/health", tag = "operation",
    responses((status = 200, description = "It serves", body = Object, example = json!({ "status": "ok" }))))]
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Tells which program answers.
#[utoipa::path(get, path = "/version", tag = "operation",
    responses((status = 200, description = "The gateway's name and version", body = Object)))]
pub async fn version() -> Json<Value> {
    Json(json!({ "name": "pml-server", "version": env!("CARGO_PKG_VERSION") }))
}

/// Tells whether the gateway can do its work: the database answers with the
/// schema that this program knows, programs can be contained, and the secrets that
/// are stored can be read.
#[utoipa::path(get, path = "/ready", tag = "operation", responses(
    (status = 200, description = "Ready", body = Object),
    (status = 503, description = "Not ready; `checks` has the reasons", body = Object)))]
pub async fn ready(State(gateway): State<SharedGateway>) -> impl IntoResponse {
    // Side by side, so that a database that does not answer is waited for once.
    let (database, secrets, sandbox) = tokio::join!(
        gateway.registry.check_ready(),
        tokio::time::timeout(LIMIT, gateway.registry.check_secrets()),
        gateway.sandboxes.layers(),
    );
    if let Err(error) = &database {
        tracing::warn!(error = %error, "Not ready: the database does not answer as expected");
    }
    if let Err(error) = &sandbox {
        tracing::warn!(error = %error, "Not ready: programs cannot be sandboxed");
    }
    // Without a master key there are no secrets, which is a choice; with a wrong one
    // those that there are cannot be read.
    let stores_secrets = !matches!(secrets, Ok(Err(RegistryError::NoMasterKey)));
    let secrets_hold = matches!(secrets, Ok(Ok(()) | Err(RegistryError::NoMasterKey)));
    match &secrets {
        Ok(Err(error)) if !secrets_hold => {
            tracing::warn!(error = %error, "Not ready: stored secrets cannot be read");
        }
        Err(_) => tracing::warn!("Not ready: stored secrets could not be read in time"),
        Ok(_) => {}
    }
    let ready = database.is_ok() && sandbox.is_ok() && secrets_hold;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if ready { "ready" } else { "unavailable" },
        "checks": {
            "database": database.is_ok(),
            "secrets": { "ok": secrets_hold, "stored": stores_secrets },
            "sandbox": { "ok": sandbox.is_ok(), "layers": sandbox.unwrap_or_default() },
        },
    });
    (status, Json(body))
}
