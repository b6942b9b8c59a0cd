//! The routes and the layers around them.

pub mod audit;
mod body;
pub mod capabilities;
pub mod health;
pub mod idempotency;
pub mod keys;
pub mod mcp;
pub mod oauth;
pub mod observe;
pub mod openapi;
pub mod registry;
pub mod secrets;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use self::openapi::Auth;
use crate::auth;
use crate::config::Serve;
use crate::error::ApiError;
use crate::limits;
use crate::state::SharedGateway;

/// The largest request body, in bytes.
pub const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// Builds the gateway's routes.
pub fn router(gateway: SharedGateway, serve: &Serve, shutdown: CancellationToken) -> Router {
    let mcp = mcp::service(gateway.clone(), serve, shutdown);
    // A key is asked for before the body is read, so nobody without one can
    // make the gateway parse anything.
    let api = Router::from(api_routes())
        // Within the check of the caller: an answer is kept for whoever it was given to.
        .route_layer(middleware::from_fn_with_state(gateway.clone(), idempotency::once));
    let keyed = Router::from(mcp_routes())
        .layer(Extension(mcp))
        .merge(api)
        .layer(middleware::from_fn_with_state(gateway.clone(), auth::require_caller));
    // The outermost layer is the last one added.
    keyed
        .merge(public_routes())
        .merge(open_routes())
        .with_state(gateway.clone())
        .fallback(async |uri: Uri| ApiError::no_such_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(gateway.clone(), oauth::challenge))
        // Before a credential is looked at: guesses count too.
        .layer(middleware::from_fn_with_state(gateway, limits::count_address))
        .layer(middleware::from_fn(harden))
        .layer(middleware::from_fn(observe::observe))
}

/// The groups of routes, each with what it needs.
fn groups() -> [(Auth, OpenApiRouter<SharedGateway>); 4] {
    [
        (Auth::Key, mcp_routes()),
        (Auth::Key, api_routes()),
        (Auth::Public, public_routes()),
        (Auth::None, open_routes()),
    ]
}

fn mcp_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new().routes(routes!(mcp::post_message))
}

/// What is administered: each of these is done once for each `Idempotency-Key`.
fn api_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(registry::get_routing))
        .routes(routes!(audit::list_events))
        .routes(routes!(capabilities::publish_capability))
        .routes(routes!(capabilities::deprecate_capability))
        .routes(routes!(capabilities::yank_capability))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::get_key, keys::revoke_key))
        .routes(routes!(keys::rotate_key))
        .routes(routes!(secrets::list_secrets))
        .routes(
            routes!(secrets::put_secret, secrets::delete_secret)
                .layer(DefaultBodyLimit::max(secrets::BODY_LIMIT)),
        )
}

/// What anybody may read as far as it is public.
fn public_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(registry::list_entries))
        .routes(routes!(registry::get_entry))
}

/// What is open to all.
fn open_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::version))
        .routes(routes!(oauth::get_metadata))
        .routes(routes!(oauth::get_mcp_metadata))
        .routes(routes!(openapi::get_openapi))
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
