//! Liveness, readiness and version.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::state::SharedGateway;

/// Answers as long as the process serves.
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Tells which program answers.
pub async fn version() -> Json<Value> {
    Json(json!({ "name": "pml-server", "version": env!("CARGO_PKG_VERSION") }))
}

/// Tells whether the gateway can do its work: the database answers with the
/// schema that this program knows, and programs can be contained.
pub async fn ready(State(gateway): State<SharedGateway>) -> impl IntoResponse {
    let database = gateway.registry.check_ready().await;
    if let Err(error) = &database {
        tracing::warn!(error = %error, "Not ready: the database does not answer as it should");
    }
    let sandbox = gateway.sandboxes.layers().await;
    if let Err(error) = &sandbox {
        tracing::warn!(error = %error, "Not ready: programs cannot be contained");
    }
    let ready = database.is_ok() && sandbox.is_ok();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if ready { "ready" } else { "unavailable" },
        "checks": {
            "database": database.is_ok(),
            "sandbox": { "ok": sandbox.is_ok(), "layers": sandbox.unwrap_or_default() },
        },
    });
    (status, Json(body))
}
