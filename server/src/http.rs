//! The routes and the layers around them.

mod api;
pub(crate) mod audit;
mod authentication;
mod body;
pub(crate) mod capabilities;
pub(crate) mod executions;
pub(crate) mod health;
pub(crate) mod idempotency;
mod install;
pub(crate) mod keys;
pub(crate) mod links;
pub(crate) mod mcp;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod oauth;
pub(crate) mod observe;
pub(crate) mod official;
pub(crate) mod openapi;
pub(crate) mod pages;
pub(crate) mod projects;
pub(crate) mod proxy;
pub(crate) mod registry;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod sessions;
mod singular;
mod synced_tools;
pub(crate) mod traces;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{self, CorsLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutLayer};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use self::install::InstallScript;
use self::openapi::Auth;
use self::pages::Pages;
use crate::admission::limits;
use crate::config::Serve;
use crate::error::{self, ApiError};
use crate::state::SharedGateway;

/// The largest request body, in bytes.
pub(crate) const BODY_LIMIT: usize = 10 * 1024 * 1024;

/// The maximum time between two pieces of a request's body.
const BODY_SILENCE: Duration = Duration::from_secs(20);
/// The time limit of an API request, including its body. Waits for a database or an upstream have shorter limits.
const API_TIMEOUT: Duration = Duration::from_secs(60);

/// The headers that a page of another origin may send to the official registry's API.
const SHARED_HEADERS: [HeaderName; 4] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("x-api-key"),
];
/// How long a browser may cache that permission.
const PREFLIGHT_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds the gateway's routes.
pub(crate) fn router(gateway: SharedGateway, serve: &Serve) -> Router {
    // Shared, because a layer's state is cloned for each request.
    let mcp = Arc::new(mcp::service(gateway.clone(), serve));
    // The credential is checked before the body is read, so that only authenticated callers can make the gateway parse
    // anything.
    let api = Router::from(api_routes())
        // Inside authentication: a stored answer belongs to the caller that received it.
        .route_layer(middleware::from_fn_with_state(gateway.clone(), idempotency::once));
    let timed = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, API_TIMEOUT);
    let checked = middleware::from_fn_with_state(gateway.clone(), authentication::require_caller);
    let keyed = api.merge(publishing()).layer((checked.clone(), timed));
    // Runs and streams have their own time limits.
    let keyed = keyed.merge(Router::from(mcp_routes()).layer((checked, Extension(mcp))));
    let open = Router::from(public_routes())
        .merge(official())
        .merge(login())
        .merge(open_routes())
        .route(metrics::PATH, get(metrics::get_metrics));
    let router = keyed
        .merge(open.layer(timed))
        .with_state(gateway.clone())
        .fallback(async |uri: Uri| ApiError::no_such_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method));
    let requests = gateway.metrics.requests.clone();
    let around_all = (
        middleware::from_fn_with_state(gateway, around),
        RequestBodyTimeoutLayer::new(BODY_SILENCE),
        DefaultBodyLimit::max(BODY_LIMIT),
        Extension(Arc::new(Pages::new(serve))),
        Extension(Arc::new(InstallScript::new(&serve.releases))),
    );
    observe::observed(router, requests, around_all)
}

/// Counts and checks a request, and gives its answer the common form and headers. This is one layer, because each layer
/// costs about as much as a handler.
async fn around(State(gateway): State<SharedGateway>, request: Request, next: Next) -> Response {
    // An upstream's answer is forwarded unchanged.
    let is_proxied = request.uri().path().starts_with("/mcp/proxy/");
    let is_multiplexed = request.version() == Version::HTTP_2;
    let stopping = gateway.stopping.announced.clone();
    // Before the credential is checked, so that guessed credentials are counted too.
    let counted = match limits::origin(&gateway.limits, &request) {
        Some(origin) => gateway.limits.count_address(&gateway.registry, origin).await,
        None => Ok(()),
    };
    // After counting, and before anything else reads the request: its credential, or its preflight.
    let checked = counted.and_then(|()| singular::check(&request));
    let mut response = match checked {
        Ok(()) => oauth::challenge(&gateway, request, next).await,
        Err(refusal) => refusal.into_response(),
    };
    if !is_proxied {
        response = error::in_one_form(response).await;
    }
    // Last, so that refusals and proxied answers get these headers, too.
    harden(response.headers_mut());
    // The client's next request then opens a connection, which a balancer makes to another gateway. HTTP/2 has no such
    // header; its connections are told when the gateway is closing.
    if stopping.is_cancelled() && !is_multiplexed {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the templates of all routes.
pub(crate) fn templates() -> Vec<String> {
    openapi::routes().into_iter().map(|route| route.path).collect()
}

/// The groups of routes, each with the credential that it needs.
fn groups() -> [(Auth, OpenApiRouter<SharedGateway>); 8] {
    [
        (Auth::Key, mcp_routes()),
        (Auth::Key, api_routes()),
        (Auth::Key, publishing_routes()),
        (Auth::Public, public_routes()),
        (Auth::Public, official_routes()),
        (Auth::None, linked_routes()),
        (Auth::Body, login_routes()),
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

/// Administration routes: each write takes effect once per `Idempotency-Key`.
fn api_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(registry::get_routing))
        .routes(routes!(audit::list_events))
        .routes(routes!(executions::list_executions))
        .routes(routes!(executions::get_execution))
        .routes(routes!(traces::store_traces).layer(DefaultBodyLimit::max(traces::BODY_LIMIT)))
        .routes(routes!(traces::get_trace))
        .routes(
            routes!(synced_tools::sync_tools, synced_tools::list_synced_tools)
                .layer(DefaultBodyLimit::max(synced_tools::BODY_LIMIT)),
        )
        .routes(routes!(synced_tools::get_synced_tools, synced_tools::forget_synced_tools))
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

/// Routes that need no credential for public entries.
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

/// The official registry's API under a project's link.
fn linked_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(official::list_linked_servers))
        .routes(routes!(official::list_linked_versions))
        .routes(routes!(official::get_linked_version))
}

/// The route that the official registry's publisher calls.
fn publishing_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new().routes(
        routes!(official::publish::publish_server)
            .layer(DefaultBodyLimit::max(official::publish::BODY_LIMIT)),
    )
}

/// The same route, also under the path that `mcp-publisher` uses: it still calls `v0`.
fn publishing() -> Router<SharedGateway> {
    let publish = post(official::publish::publish_server)
        .layer(DefaultBodyLimit::max(official::publish::BODY_LIMIT));
    Router::from(publishing_routes()).route("/v0/publish", publish)
}

/// The official registry's API, for pages of any origin, also under other spellings of its paths: some clients append a
/// slash, and some still call `v0`.
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
        let routes =
            [("", list), ("/{name}/versions", versions), ("/{name}/versions/{version}", version)];
        for (end, answer) in routes {
            let path = format!("{base}/v0.1/servers{end}");
            let old = format!("{base}/v0/servers{end}");
            router = router
                .route(&format!("{path}/"), answer.clone())
                .route(&format!("{old}/"), answer.clone())
                .route(&old, answer);
        }
    }
    let shared = HeaderName::from_static("cross-origin-resource-policy");
    router
        // Set here, because a fallback set later would replace the surrounding layers and break preflights.
        .method_not_allowed_fallback(async |method: Method| ApiError::no_such_method(&method))
        // Only here and for the description of the interface: the compressed length of an answer
        // that mixes a caller's input with secret text reveals that text.
        .layer(CompressionLayer::new())
        .layer(SetResponseHeaderLayer::overriding(shared, HeaderValue::from_static("cross-origin")))
        // Cookies and other credentials that a browser adds by itself are not accepted, so any page may call.
        .layer(
            CorsLayer::new()
                .allow_origin(cors::Any)
                .allow_methods([Method::GET])
                .allow_headers(SHARED_HEADERS)
                .max_age(PREFLIGHT_LASTS)
                // The answer is the same for every origin.
                .vary(Vec::<HeaderName>::new()),
        )
}

/// The route where the official registry's publisher exchanges its key.
fn login_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new().routes(
        routes!(official::login::exchange_key)
            .layer(DefaultBodyLimit::max(official::login::BODY_LIMIT)),
    )
}

/// The same route, also under the path that `mcp-publisher` uses.
fn login() -> Router<SharedGateway> {
    let exchange = post(official::login::exchange_key)
        .layer(DefaultBodyLimit::max(official::login::BODY_LIMIT));
    Router::from(login_routes()).route("/v0/auth/github-at", exchange)
}

/// Routes that need no credential.
fn open_routes() -> OpenApiRouter<SharedGateway> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::version))
        .routes(routes!(install::get_script))
        .routes(routes!(oauth::get_metadata))
        .routes(routes!(oauth::get_mcp_metadata))
        .routes(routes!(openapi::get_openapi).layer(CompressionLayer::new()))
}

/// Returns the cursor of a query; an empty one is treated as absent, as in the official API.
fn cursor(given: Option<&String>) -> Option<&str> {
    given.map(String::as_str).filter(|cursor| !cursor.is_empty())
}

/// Adds the headers that prevent a browser from rendering or embedding an answer, or guessing its content type.
fn harden(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Routes for pages of other origins have already set their own.
    headers
        .entry(HeaderName::from_static("cross-origin-resource-policy"))
        .or_insert(HeaderValue::from_static("same-origin"));
}
