//! The routes and the layers around them.

pub mod audit;
mod body;
pub mod capabilities;
pub mod health;
pub mod idempotency;
pub mod keys;
pub mod links;
pub mod mcp;
pub mod members;
pub mod oauth;
pub mod observe;
pub mod official;
pub mod openapi;
pub mod pages;
pub mod projects;
pub mod proxy;
pub mod registry;
pub mod secrets;
pub mod servers;
pub mod sessions;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, options};
use axum::{Extension, Router};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use self::observe::Seen;
use self::openapi::Auth;
use self::pages::Pages;
use crate::auth;
use crate::config::Serve;
use crate::error::ApiError;
use crate::limits;
use crate::state::SharedGateway;

/// The largest request body, in bytes.
pub const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// Builds the gateway's routes.
pub fn router(gateway: SharedGateway, serve: &Serve, shutdown: CancellationToken) -> Router {
    // Shared: what a layer holds is copied for each request.
    let mcp = Arc::new(mcp::service(gateway.clone(), serve, shutdown));
    // A key is asked for before the body is read, so nobody without one can
    // make the gateway parse anything.
    let api = Router::from(api_routes())
        // Within the check of the caller: an answer is kept for whoever it was given to.
        .route_layer(middleware::from_fn_with_state(gateway.clone(), idempotency::once));
    let keyed = Router::from(mcp_routes())
        .layer(Extension(mcp))
        .layer(Extension(Arc::new(Pages::new(serve))))
        .merge(api)
        .layer(middleware::from_fn_with_state(gateway.clone(), auth::require_caller));
    // The outermost layer is the last one added.
    keyed
        .merge(public_routes())
        .merge(official())
        .merge(open_routes())
        .with_state(gateway.clone())
        .fallback(async |uri: Uri| ApiError::no_such_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(gateway, around))
}

/// What is done for every request. It is one layer: each costs a request about as much as a handler.
async fn around(State(gateway): State<SharedGateway>, request: Request, next: Next) -> Response {
    observe::observe(Seen::of(&request), async {
        // Before a credential is looked at: guesses count too.
        let counted = match limits::origin(&gateway.limits, &request) {
            Some(origin) => limits::count_address(&gateway, origin).await,
            None => Ok(()),
        };
        let mut response = match counted {
            Ok(()) => oauth::challenge(&gateway, request, next).await,
            Err(refusal) => refusal.into_response(),
        };
        harden(response.headers_mut());
        response
    })
    .await
}

/// The groups of routes, each with what it needs.
fn groups() -> [(Auth, OpenApiRouter<SharedGateway>); 6] {
    [
        (Auth::Key, mcp_routes()),
        (Auth::Key, api_routes()),
        (Auth::Public, public_routes()),
        (Auth::Public, official_routes()),
        (Auth::None, linked_routes()),
        (Auth::None, open_routes()),
    ]
}

fn mcp_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new().routes(routes!(mcp::post_message)).routes(routes!(
        proxy::pass_message,
        proxy::open_stream,
        proxy::end_session
    ))
}

/// What is administered: each of these is done once for each `Idempotency-Key`.
fn api_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(registry::get_routing))
        .routes(routes!(audit::list_events))
        .routes(routes!(capabilities::publish_capability))
        .routes(routes!(capabilities::deprecate_capability))
        .routes(routes!(capabilities::yank_capability))
        .routes(routes!(capabilities::delete_capability))
        .routes(routes!(servers::publish_server).layer(DefaultBodyLimit::max(servers::BODY_LIMIT)))
        .routes(routes!(servers::deprecate_server))
        .routes(routes!(servers::yank_server))
        .routes(routes!(servers::delete_server))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::get_key, keys::revoke_key))
        .routes(routes!(keys::rotate_key))
        .routes(routes!(links::list_links, links::create_link))
        .routes(routes!(links::revoke_link))
        .routes(routes!(members::list_members))
        .routes(routes!(members::put_member, members::remove_member))
        .routes(routes!(projects::list_projects, projects::create_project))
        .routes(routes!(projects::delete_project))
        .routes(routes!(sessions::create_session))
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

/// The official registry's API.
fn official_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(official::list_servers))
        .routes(routes!(official::list_versions))
        .routes(routes!(official::get_version))
}

/// The same beneath a project's link.
fn linked_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(official::list_linked_servers))
        .routes(routes!(official::list_linked_versions))
        .routes(routes!(official::get_linked_version))
}

/// The official registry's API in all its spellings, for pages of any origin: clients differ in whether they end a
/// path with a slash.
fn official() -> Router<SharedGateway> {
    let mut router = Router::from(official_routes()).merge(linked_routes());
    for (base, list, versions, version) in [
        ("", get(official::list_servers), get(official::list_versions), get(official::get_version)),
        (
            "/r/{slug}",
            get(official::list_linked_servers),
            get(official::list_linked_versions),
            get(official::get_linked_version),
        ),
    ] {
        let servers = format!("{base}/v0.1/servers");
        let places =
            [("", list), ("/{name}/versions", versions), ("/{name}/versions/{version}", version)];
        for (place, answer) in places {
            let path = format!("{servers}{place}");
            router = router
                .route(&format!("{path}/"), answer.options(official::preflight))
                .route(&path, options(official::preflight));
        }
    }
    router.layer(middleware::map_response(official::share))
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
fn harden(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // What is meant for pages of other origins has said so.
    headers
        .entry(HeaderName::from_static("cross-origin-resource-policy"))
        .or_insert(HeaderValue::from_static("same-origin"));
}
