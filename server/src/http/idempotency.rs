//! `Idempotency-Key`: a repeated write takes effect once.
//!
//! As in the IETF draft (draft-ietf-httpapi-idempotency-key-header), the same key with the same request gets the same
//! answer, with a different request 422, and while the first request is running 409. An answer is stored for 24 hours,
//! for the principal that received it, as long as that principal keeps all rights that it had at the first request.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use protocol::ErrorCode;
use registry::{Caller, Claim, IdempotencyKey, Right, StoredAnswer, Tenant};

use super::body;
use crate::error::{ApiError, in_current_request};
use crate::state::SharedGateway;

/// The header that names a request.
const HEADER: &str = "idempotency-key";
/// The header of a repeated answer.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key, in bytes.
const KEY_LIMIT: usize = 255;
/// The largest answer that is stored, in bytes.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// After this many seconds without an end, the gateway of a request is assumed to have died.
const LONGEST_RUN: u64 = 60;

/// In the extensions of an answer that contains a credential: the answer to store instead of it.
#[derive(Debug, Clone)]
pub(super) struct ShownOnce {
    /// The answer to a repeated request.
    pub(super) again: ApiError,
}

/// Executes a `POST` with an `Idempotency-Key` once.
pub(crate) async fn once(
    State(gateway): State<SharedGateway>,
    Extension(caller): Extension<Arc<Caller>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // The other methods of the API are idempotent by definition (RFC 9110, 9.2.2).
    if request.method() != Method::POST || !request.headers().contains_key(HEADER) {
        return Ok(next.run(request).await);
    }
    let key = parse_key(request.headers())?.to_owned();
    let (parts, sent) = request.into_parts();
    // Read before the claim, because the body is a part of what identifies the request.
    let sent = body::read(&gateway.memory, Request::from_parts(parts.clone(), sent)).await?;
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let target = format!("{target}{}", credential_suffix(&caller, parts.uri.path()));
    let key = IdempotencyKey::new(key.as_bytes(), parts.method.as_str(), &target, &sent);
    let tenant = caller.tenant();
    match gateway.registry.claim_request(&caller, key).await? {
        Claim::Denied { lacks } => Err(denied(lacks)),
        Claim::Done(answer) => Ok(replay(answer)),
        Claim::Other => Err(ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            "this `Idempotency-Key` was already used for a different request",
        )),
        // Within the time limit of a request, `API_TIMEOUT`, a retry may find the answer.
        Claim::Running { seconds } if seconds < LONGEST_RUN => Err(ApiError::new(
            ErrorCode::RequestInProgress,
            "the request with this `Idempotency-Key` is still running",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))),
        // The request may have taken effect, so it is not executed again.
        Claim::Running { .. } => Err(ApiError::new(
            ErrorCode::RequestInProgress,
            "the request with this `Idempotency-Key` was started, and its outcome is unknown",
        )),
        Claim::New => {
            let mut request = Request::from_parts(parts, Body::from(sent));
            request.extensions_mut().insert(body::Read);
            // In a separate task: if the client disconnects, this future is dropped, but the claim must still be
            // settled.
            let task = tokio::spawn(in_current_request(async move {
                let response = next.run(request).await;
                settle(&gateway, &tenant, key, response).await
            }));
            // A panic ends only the task, and the layer that answers panics does not see it. The
            // key stays claimed, because the request may have taken effect.
            task.await.unwrap_or_else(|error| {
                tracing::error!(error = %error, "A request ended without an answer");
                Err(ApiError::new(ErrorCode::Internal, "the request ended without an answer"))
            })
        }
    }
}

/// Returns the credential as a part of the request's identity, if the request is about the credential itself: the same
/// text sent with another credential is then another request. No target contains a space, so the result is unambiguous.
fn credential_suffix(caller: &Caller, path: &str) -> String {
    let is_about_itself = path == "/api/v1/sessions" || path.split('/').any(|part| part == "self");
    if !is_about_itself {
        return String::new();
    }
    format!(" {:?} {:?}", caller.key_id, caller.session.map(|session| session.id))
}

/// Creates the refusal for a caller that has fewer rights than at the first request.
fn denied(lacks: Option<Right>) -> ApiError {
    match lacks {
        Some(right) => {
            let word = right.as_str();
            let detail = format!(
                "the request with this `Idempotency-Key` was sent with the right `{word}`, which you no longer have"
            );
            ApiError::forbidden(right, detail)
        }
        None => ApiError::new(
            ErrorCode::Forbidden,
            "the request with this `Idempotency-Key` was sent with a role in the organisation that you no longer have",
        ),
    }
}

/// Stores the answer of a request that took effect, and releases the key of a refused one.
async fn settle(
    gateway: &SharedGateway,
    tenant: &Tenant,
    key: IdempotencyKey,
    response: Response,
) -> Result<Response, ApiError> {
    let (parts, answer) = response.into_parts();
    // If this fails, the key stays claimed: the request may have taken effect, so it must not be
    // executed again.
    let answer: Bytes = to_bytes(answer, ANSWER_LIMIT).await.map_err(|error| {
        tracing::error!(error = %error, "Could not store an answer");
        ApiError::new(ErrorCode::Internal, "the answer is too large")
    })?;
    // A refused request had no effect: its key is released and may be used again.
    let kept = match parts.extensions.get::<ShownOnce>() {
        Some(ShownOnce { again }) => {
            Some(StoredAnswer { status: again.status().as_u16(), body: again.body().to_string() })
        }
        None if parts.status.is_success() => {
            let body = String::from_utf8_lossy(&answer).into_owned();
            Some(StoredAnswer { status: parts.status.as_u16(), body })
        }
        None => None,
    };
    // A request that ended in a server error may still have taken effect, so its key stays claimed.
    if !parts.status.is_server_error() {
        gateway.registry.settle_request(tenant, key, kept).await?;
    }
    Ok(Response::from_parts(parts, Body::from(answer)))
}

fn replay(answer: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    // Other headers of the first answer, such as `Location`, are not stored.
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Parses the idempotency key of a request.
fn parse_key(headers: &HeaderMap) -> Result<&str, ApiError> {
    // `singular` has refused duplicates already; this check keeps the function correct by itself.
    let mut values = headers.get_all(HEADER).iter();
    let one = values.next().filter(|_| values.next().is_none());
    let text = one.and_then(|value| value.to_str().ok()).map(str::trim);
    text.filter(|text| (1..=KEY_LIMIT).contains(&text.len())).ok_or_else(|| {
        let detail =
            format!("`Idempotency-Key` must be one value of 1 to {KEY_LIMIT} ASCII characters");
        ApiError::new(ErrorCode::InvalidRequest, detail)
    })
}
