//! Around each request: an id for it, one line in the log, and an answer whatever happens.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use protocol::ErrorCode;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::error::ApiError;

/// The header that tells the id of a request. One that a client sends is not heard: an
/// id that somebody else chose could make two requests look like one.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static ID: Uuid;
}

/// Returns the id of the request that this task answers.
pub fn request_id() -> Option<Uuid> {
    ID.try_with(|id| *id).ok()
}

/// What the log says of a request.
///
/// It has the route, not the path or the query: those hold what a client wrote.
pub struct Seen {
    method: Method,
    route: Option<MatchedPath>,
}

impl Seen {
    /// Looks at a request.
    pub fn of(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { method: request.method().clone(), route }
    }
}

/// Gives a request its id, waits for its answer and logs how it went.
pub async fn observe(seen: Seen, answer: impl Future<Output = Response>) -> Response {
    let id = Uuid::now_v7();
    let route = seen.route.as_ref().map_or("none", MatchedPath::as_str);
    let method = seen.method;
    let started = Instant::now();
    let span = tracing::info_span!("request", request.id = %id);
    let answer = AssertUnwindSafe(answer).catch_unwind();
    let answered = ID.scope(id, async { answer.await.unwrap_or_else(|panic| broken(&*panic)) });
    let mut response = answered.instrument(span.clone()).await;
    let status = response.status().as_u16();
    let duration_ms = started.elapsed().as_secs_f64() * 1e3;
    span.in_scope(|| tracing::info!(%method, route, status, duration_ms, "Answered a request"));
    // A UUID is plain ASCII.
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert(HEADER, id);
    }
    response
}

/// Answers for a handler that panicked. What it said is in the log, written by the hook.
fn broken(_panic: &(dyn Any + Send)) -> Response {
    ApiError::new(ErrorCode::Internal, "the request could not be answered").into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::middleware::Next;
    use axum::routing::get;
    use axum::{Router, middleware};
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;

    /// GW-26: what a panic says is for the log.
    #[tokio::test]
    async fn a_panic_is_answered() {
        async fn breaks() -> Response {
            panic!("canary: select * from secrets at /srv/pml")
        }
        let router = Router::new()
            .route("/breaks", get(breaks))
            .route("/works", get(async || "yes"))
            .layer(middleware::from_fn(async |request: Request, next: Next| {
                observe(Seen::of(&request), next.run(request)).await
            }));
        let ask = async |path: &str| {
            let request = Request::get(path).header(HEADER, "mine").body(Body::empty());
            router.clone().oneshot(request.unwrap()).await.unwrap()
        };
        let response = ask("/breaks").await;
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
