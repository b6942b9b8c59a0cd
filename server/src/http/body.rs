//! Reads request bodies, limited in size, time and memory, and parses JSON strictly.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt as _;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use execution::{NotKept, gather};
use http_body_util::LengthLimitError;
use protocol::{ErrorCode, Scope};
use registry::Caller;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::Value;
use tower_http::timeout::TimeoutError;

use crate::admission::memory::{Memory, Parsed, Reserved};
use crate::connections::TooSlow;
use crate::error::ApiError;
use crate::state::SharedGateway;

/// A JSON body, and the memory that it occupies. The type refuses unknown fields with `deny_unknown_fields`; serde
/// refuses duplicate fields.
pub(crate) struct ApiJson<T>(pub T, pub Option<Reserved>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<SharedGateway> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &SharedGateway) -> Result<Self, ApiError> {
        // Browsers send forms and plain text to other origins without a preflight, but not JSON.
        if !is_json(request.headers()) {
            let error =
                ApiError::new(ErrorCode::InvalidRequest, "the body must be `application/json`");
            return Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let scope = scope_of(&request);
        let body = read(&gateway.memory, request).await?;
        // Serde would also accept an array of the fields' values for a struct.
        if body.trim_ascii_start().first() != Some(&b'{') {
            let what = "the body is not a JSON object";
            return Err(ApiError::new(ErrorCode::InvalidRequest, what));
        }
        let (parsed, reserved) = match scope {
            Some(scope) => {
                let reserved = gateway.memory.parsed(&scope, &body, Parsed::Tree).await?;
                let parse = async move { serde_json::from_slice(&body) };
                (gateway.memory.work(&reserved, parse).await, Some(reserved))
            }
            None => (serde_json::from_slice(&body), None),
        };
        match parsed {
            Ok(parsed) => Ok(Self(parsed, reserved)),
            Err(error) => {
                Err(ApiError::new(ErrorCode::InvalidRequest, format!("the body: {error}")))
            }
        }
    }
}

/// A body as it was sent.
pub(crate) struct ApiBytes(pub Bytes);

impl FromRequest<SharedGateway> for ApiBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &SharedGateway) -> Result<Self, ApiError> {
        read(&gateway.memory, request).await.map(Self)
    }
}

/// Returns the scope of the request's sender, if the request was authenticated.
fn scope_of(request: &Request) -> Option<Scope> {
    request.extensions().get::<Arc<Caller>>().map(|caller| caller.scope.clone())
}

/// Marks, in the extensions of a request, that its body has already been read and its memory charged.
#[derive(Clone)]
pub(super) struct Read;

/// Parses an integer as JSON Schema defines it: `30.0` is one.
pub(super) fn whole_number<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    // `/openapi.json` declares these members as integers, and a client that validates by that
    // schema may send `30.0` for 30.
    let mut value = Value::deserialize(from)?;
    // Integers stay as they are: converted to floats, large ones would lose digits.
    let fraction = value.as_f64().filter(|_| value.is_f64());
    // Above 2^53 (about 9e15), floats cannot represent every integer.
    if let Some(whole) = fraction.filter(|it| it.fract() == 0.0 && it.abs() <= 9e15) {
        value = Value::from(whole as i64);
    }
    T::deserialize(value).map_err(serde::de::Error::custom)
}

/// The total time limit of a body: 10 MiB at 100 KiB/s.
const TIME_LIMIT: Duration = Duration::from_secs(100);

/// Reads a whole body within the size limit of its route. Its memory is charged to the sender's tenant.
///
/// # Errors
/// Returns a refusal with status 413 when it is too large, 408 when it is too slow, and 503 when there is no room.
pub(super) async fn read(memory: &Memory, request: Request) -> Result<Bytes, ApiError> {
    collect(memory, request, None).await
}

/// Reads the body of a message with a separate size limit. Data beyond the limit is read and discarded: otherwise, a
/// client that does not read while it writes would never see the refusal.
///
/// # Errors
/// As [`read`].
pub(super) async fn read_message(
    memory: &Memory,
    request: Request,
    most: usize,
) -> Result<Bytes, ApiError> {
    collect(memory, request, Some(most)).await
}

async fn collect(
    memory: &Memory,
    request: Request,
    most: Option<usize>,
) -> Result<Bytes, ApiError> {
    let request = request.with_limited_body();
    // axum keeps a route's limit private, but the limited body reports it as its upper bound,
    // because the timeout layer hides the declared size of the body within.
    let limit = request.body().size_hint().upper().and_then(|limit| usize::try_from(limit).ok());
    let limit = most.or(limit).unwrap_or(super::BODY_LIMIT);
    let declared = declared(request.headers());
    let too_large = || {
        let what = match declared {
            Some(size) => format!("the body has {size} bytes; the limit is {limit}"),
            None => format!("the body has more than {limit} bytes, the limit"),
        };
        ApiError::new(ErrorCode::InvalidRequest, what).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    // A client with `Expect: 100-continue` is refused before it sends the body. Other clients have already begun to
    // send it; they would still be writing when the connection closes, and never see the answer.
    if declared.is_some_and(|size| size > limit) && request.headers().contains_key(header::EXPECT) {
        return Err(too_large());
    }
    let scope = scope_of(&request).filter(|_| request.extensions().get::<Read>().is_none());
    let body = request.into_body();
    let reading = async {
        match scope {
            Some(scope) => {
                gather(&memory.of(&scope), body.into_data_stream(), declared, limit, true).await
            }
            // Bodies of unauthenticated routes are small, and the others have already been read and charged.
            None => axum::body::to_bytes(body, limit).await.map_err(NotKept::Cut),
        }
    };
    // The timeout layer limits only the silence between two pieces. At the minimum rate of a
    // connection, a body of 10 MiB would take almost three hours.
    let read = tokio::time::timeout(TIME_LIMIT, reading).await.map_err(|_| late())?;
    read.map_err(|why| match why {
        NotKept::TooLarge => too_large(),
        NotKept::NoRoom(refusal) => refusal,
        NotKept::Cut(error) if is_late(&error) => late(),
        NotKept::Cut(error) if is_caused_by::<LengthLimitError>(&error) => too_large(),
        NotKept::Cut(_) => ApiError::new(ErrorCode::InvalidRequest, "the body is incomplete"),
    })
}

/// Returns how many bytes will arrive, if the sender declares it. The body itself does not know: the timeout layer
/// hides its size.
fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn late() -> ApiError {
    let error =
        ApiError::new(ErrorCode::InvalidRequest, "the request's body did not arrive in time");
    error.with_status(StatusCode::REQUEST_TIMEOUT)
}

/// Returns whether an error is a timeout. axum recognizes its own limits, but not this one.
fn is_late(error: &(dyn Error + 'static)) -> bool {
    is_caused_by::<TimeoutError>(error) || is_caused_by::<TooSlow>(error)
}

fn is_caused_by<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    // Each layer around the body wraps the error of the one within.
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns whether a body is uncompressed JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    // The gateway never decompresses a body, so that a small one cannot expand into a large one.
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity");
    kind.trim().eq_ignore_ascii_case("application/json") && !encoded
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::DefaultBodyLimit;
    use axum::response::IntoResponse as _;
    use axum::{Router, routing::post};
    use futures::{StreamExt as _, stream};
    use tower::ServiceExt as _;
    use tower_http::timeout::RequestBodyTimeoutLayer;

    use super::*;

    #[tokio::test]
    async fn large_and_slow_bodies_are_refused() {
        let router = Router::new()
            .route(
                "/",
                post(async |request: Request| {
                    match read(
                        &Memory::start(crate::metrics::Metrics::unread()).expect("threads"),
                        request,
                    )
                    .await
                    {
                        Ok(body) => body.len().to_string().into_response(),
                        Err(refusal) => refusal.into_response(),
                    }
                }),
            )
            .layer(DefaultBodyLimit::max(8))
            .layer(RequestBodyTimeoutLayer::new(Duration::from_millis(50)));
        let pieces = |count| stream::repeat("abcd").take(count).map(Ok::<_, std::io::Error>);
        for (body, status) in [
            (Body::from_stream(pieces(2)), 200),
            (Body::from_stream(pieces(3)), 413),
            (Body::from("123456789"), 413),
            (Body::from_stream(pieces(1).chain(stream::pending())), 408),
        ] {
            let request = Request::post("/").body(body).unwrap();
            assert_eq!(router.clone().oneshot(request).await.unwrap().status(), status);
        }
        // With `Expect`, a body whose declared length is too large is refused before any of it arrives.
        for (length, status) in [("8", 408), ("9", 413)] {
            let body = Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
            let request = Request::post("/").header(header::EXPECT, "100-continue");
            let request = request.header(header::CONTENT_LENGTH, length).body(body);
            assert_eq!(router.clone().oneshot(request.unwrap()).await.unwrap().status(), status);
        }
    }
}
