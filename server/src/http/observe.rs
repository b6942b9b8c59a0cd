//! The outermost layers of each request: its id, its line in the log, and an answer even after a panic.

use std::any::Any;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::Route;
use protocol::ErrorCode;
use tower::{Layer, Service, ServiceBuilder};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::TraceLayer;
use tracing::Span;
use uuid::Uuid;

use crate::error::{ApiError, with_request_id};
use crate::metrics::Requests;

/// The header with the id of a request.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Headers that carry a credential.
const SENSITIVE: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
];

/// Wraps routes in the layers of this module, with `within` as the innermost. The first layer is the outermost.
///
/// Together they are one layer of the router, because for each layer, the router clones everything within it per
/// request.
pub(crate) fn observed<L>(router: Router, requests: Requests, within: L) -> Router
where
    L: Layer<Route> + Clone + Send + Sync + 'static,
    L::Service:
        Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request>>::Future: Send + 'static,
{
    router.layer(
        ServiceBuilder::new()
            // Outermost, so that no layer within can show a credential in debug output.
            .layer(SetSensitiveRequestHeadersLayer::new(SENSITIVE))
            // Before the next layer, which keeps an id that a request already has.
            .map_request(clear)
            .layer(SetRequestIdLayer::x_request_id(NewId))
            .layer(
                TraceLayer::new_for_http()
                    .make_span_with(span)
                    .on_request(())
                    .on_response(log)
                    .on_body_chunk(())
                    .on_eos(())
                    // `log` writes a line for status 500 too, and the failure was logged where it occurred.
                    .on_failure(()),
            )
            .layer(PropagateRequestIdLayer::x_request_id())
            // Outside of the panic handler, whose answer contains the id and is counted.
            .layer(middleware::from_fn_with_state(requests, count))
            .layer(CatchPanicLayer::custom(panic_answer))
            .layer(within),
    )
}

/// Removes a request id that the client sent, which could make two requests look like one in the log, and marks the
/// client's secrets for upstreams as sensitive.
fn clear(mut request: Request) -> Request {
    let headers = request.headers_mut();
    headers.remove(HEADER);
    for (name, value) in headers.iter_mut() {
        if name.as_str().starts_with("x-pml-key-") {
            value.set_sensitive(true);
        }
    }
    request
}

#[derive(Clone)]
struct NewId;

impl MakeRequestId for NewId {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        HeaderValue::try_from(Uuid::now_v7().to_string()).ok().map(RequestId::new)
    }
}

/// Creates the span of a request. It has the route, not the path or the query, which contain the client's input.
fn span(request: &Request) -> Span {
    let id = request.extensions().get::<RequestId>();
    let id = id.and_then(|id| id.header_value().to_str().ok()).unwrap_or_default();
    // Without a route there is no `MatchedPath`, and the path would be the client's text.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    tracing::info_span!("request", request.id = id, method = %request.method(), route)
}

fn log(response: &Response, latency: Duration, _: &Span) {
    let status = response.status().as_u16();
    let duration_ms = latency.as_secs_f64() * 1e3;
    tracing::info!(status, duration_ms, "Answered a request");
}

/// Counts a request, and remembers its id.
async fn count(State(requests): State<Requests>, request: Request, next: Next) -> Response {
    let count = requests.begin(request.method(), request.extensions().get::<MatchedPath>());
    let response = match request.extensions().get::<RequestId>().cloned() {
        Some(id) => with_request_id(id, next.run(request)).await,
        None => next.run(request).await,
    };
    count.answered(response.status());
    response
}

/// Creates the answer for a handler that panicked. The panic hook has logged the message.
fn panic_answer(_panic: Box<dyn Any + Send>) -> Response {
    ApiError::new(ErrorCode::Internal, "the request could not be answered").into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use serde_json::Value;
    use tower::ServiceExt as _;
    use tower::layer::util::Identity;

    use super::*;

    /// GW-26: the message of a panic is logged, never sent.
    #[tokio::test]
    async fn a_panic_is_answered_without_its_message() {
        async fn panics() -> Response {
            panic!("canary: select * from secrets at /srv/pml")
        }
        let router =
            Router::new().route("/panics", get(panics)).route("/works", get(async || "yes"));
        let metrics = crate::metrics::Metrics::unread();
        let router = observed(router, metrics.requests.clone(), Identity::new());
        let ask = async |path: &str| {
            let request = Request::get(path).header(HEADER, "mine").body(Body::empty());
            router.clone().oneshot(request.unwrap()).await.unwrap()
        };
        let response = ask("/panics").await;
        assert_eq!(response.status(), 500);
        let id = response.headers()[HEADER].to_str().unwrap().to_owned();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], "INTERNAL");
        assert_eq!(body["instance"], format!("urn:uuid:{id}"));
        assert!(!body.to_string().contains("canary"), "{body}");
        let response = ask("/works").await;
        assert_eq!(response.status(), 200);
        assert_ne!(response.headers()[HEADER], "mine");
    }
}
