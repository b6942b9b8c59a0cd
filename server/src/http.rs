//! The routes and the layers around them.

pub mod audit;
mod body;
pub mod capabilities;
pub mod health;
pub mod idempotency;
pub mod keys;
pub mod mcp;
pub mod oauth;
pub mod registry;
pub mod secrets;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post, put};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::auth;
use crate::config::Serve;
use crate::error::ApiError;
use crate::limits;
use crate::state::SharedGateway;

/// The largest request body, in bytes.
pub const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// One route, as `pml-server routes --json` lists it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Route {
    /// The HTTP method.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// What it needs: `none`, `key`, or `public` (a key, or none for public entries).
    pub auth: &'static str,
}

/// Every route that [`router`] serves.
pub const ROUTES: &[Route] = &[
    Route { method: "POST", path: "/mcp", auth: "key" },
    Route { method: "GET", path: "/mcp", auth: "public" },
    Route { method: "GET", path: "/mcp/{fqdn}", auth: "public" },
    Route { method: "GET", path: "/api/v1/routing", auth: "key" },
    Route { method: "GET", path: "/api/v1/audit", auth: "key" },
    Route { method: "POST", path: "/api/v1/capabilities", auth: "key" },
    Route { method: "POST", path: "/api/v1/capabilities/{name}/deprecate", auth: "key" },
    Route { method: "POST", path: "/api/v1/capabilities/{name}/yank", auth: "key" },
    Route { method: "GET", path: "/api/v1/keys", auth: "key" },
    Route { method: "POST", path: "/api/v1/keys", auth: "key" },
    Route { method: "GET", path: "/api/v1/keys/{id}", auth: "key" },
    Route { method: "DELETE", path: "/api/v1/keys/{id}", auth: "key" },
    Route { method: "POST", path: "/api/v1/keys/{id}/rotate", auth: "key" },
    Route { method: "GET", path: "/api/v1/secrets", auth: "key" },
    Route { method: "PUT", path: "/api/v1/secrets/{name}", auth: "key" },
    Route { method: "DELETE", path: "/api/v1/secrets/{name}", auth: "key" },
    Route { method: "GET", path: "/health", auth: "none" },
    Route { method: "GET", path: "/ready", auth: "none" },
    Route { method: "GET", path: "/version", auth: "none" },
    Route { method: "GET", path: "/.well-known/oauth-protected-resource", auth: "none" },
    Route { method: "GET", path: "/.well-known/oauth-protected-resource/mcp", auth: "none" },
];

/// Builds the gateway's routes.
pub fn router(gateway: SharedGateway, serve: &Serve, shutdown: CancellationToken) -> Router {
    let mcp = mcp::service(gateway.clone(), serve, shutdown);
    // A key is asked for before the body is read, so nobody without one can
    // make the gateway parse anything.
    let api = Router::new()
        .route("/api/v1/routing", get(registry::get_routing))
        .route("/api/v1/audit", get(audit::list_events))
        .route("/api/v1/capabilities", post(capabilities::publish_capability))
        .route("/api/v1/capabilities/{name}/deprecate", post(capabilities::deprecate_capability))
        .route("/api/v1/capabilities/{name}/yank", post(capabilities::yank_capability))
        .route("/api/v1/keys", get(keys::list_keys).post(keys::create_key))
        .route("/api/v1/keys/{id}", get(keys::get_key).delete(keys::revoke_key))
        .route("/api/v1/keys/{id}/rotate", post(keys::rotate_key))
        .route("/api/v1/secrets", get(secrets::list_secrets))
        .route(
            "/api/v1/secrets/{name}",
            put(secrets::put_secret)
                .delete(secrets::delete_secret)
                .layer(DefaultBodyLimit::max(secrets::BODY_LIMIT)),
        )
        // Within the check of the caller: an answer is kept for whoever it was given to.
        .route_layer(middleware::from_fn_with_state(gateway.clone(), idempotency::once))
        .with_state(gateway.clone());
    let keyed = Router::new()
        .route("/mcp", post(mcp::post).with_state(mcp))
        .merge(api)
        .layer(middleware::from_fn_with_state(gateway.clone(), auth::require_caller));
    let public = Router::new()
        .route("/mcp", get(registry::list_entries))
        .route("/mcp/{fqdn}", get(registry::get_entry))
        .route("/ready", get(health::ready))
        .route("/.well-known/oauth-protected-resource", get(oauth::get_metadata))
        .route("/.well-known/oauth-protected-resource/mcp", get(oauth::get_metadata))
        .with_state(gateway.clone());
    let open =
        Router::new().route("/health", get(health::health)).route("/version", get(health::version));
    // The outermost layer is the last one added.
    keyed
        .merge(public)
        .merge(open)
        .fallback(async |uri: Uri| ApiError::no_such_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(gateway.clone(), oauth::challenge))
        // Before a credential is looked at: guesses count too.
        .layer(middleware::from_fn_with_state(gateway, limits::count_address))
        .layer(middleware::from_fn(harden))
}

/// Adds the headers that keep a browser from reading an answer as something else.
async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    response
}
