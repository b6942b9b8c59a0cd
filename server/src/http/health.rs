//! Liveness, readiness and version.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use registry::RegistryError;
use serde_json::{Value, json};

use crate::state::SharedGateway;

/// The time limit of the database check: the route answers within two seconds.
const LIMIT: Duration = Duration::from_millis(1_900);

/// Returns whether the process serves requests.
#[utoipa::path(get, path = "/health", tag = "operation",
    responses((status = 200, description = "The process serves requests", body = Object, example = json!({ "status": "ok" }))))]
pub(crate) async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Returns the name and version of the gateway.
#[utoipa::path(get, path = "/version", tag = "operation",
    responses((status = 200, description = "The gateway's name and version", body = Object)))]
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "name": "pml-server", "version": env!("CARGO_PKG_VERSION") }))
}

/// Returns whether the gateway is ready: the database answers with the expected schema and accepts writes, programs can
/// be sandboxed, stored secrets can be read, and the gateway is not stopping.
#[utoipa::path(get, path = "/ready", tag = "operation", responses(
    (status = 200, description = "Ready", body = Object),
    (status = 503, description = "Not ready; `checks` has the reasons", body = Object)))]
pub(crate) async fn ready(State(gateway): State<SharedGateway>) -> impl IntoResponse {
    // Without asking anything that could take time.
    if gateway.stopping.announced.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "stopping" })));
    }
    // Concurrently, so that an unresponsive database is waited for only once.
    let (database, secrets, sandbox) = tokio::join!(
        gateway.registry.check_ready(),
        // `check_ready` runs one statement, whose first answer has the same limit. This is a
        // transaction, which may take 10 s on a slow database.
        tokio::time::timeout(LIMIT, gateway.registry.check_secrets()),
        gateway.sandboxes.layers(),
    );
    if let Err(error) = &database {
        tracing::warn!(error = %error, "Not ready: the database does not answer as expected");
    }
    if let Err(error) = &sandbox {
        tracing::warn!(error = %error, "Not ready: programs cannot be sandboxed");
    }
    // A gateway without a master key has no secrets, which is a valid choice. With a wrong master key, the existing
    // secrets cannot be read.
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
