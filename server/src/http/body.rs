//! JSON bodies of the API: read strictly, refused as every refusal is told.

use std::error::Error;
use std::time::Duration;

use axum::RequestExt as _;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use futures::TryStreamExt as _;
use protocol::ErrorCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::Value;
use tower_http::timeout::TimeoutError;

use crate::connections::TooSlow;
use crate::error::ApiError;

/// A JSON body. The type says with `deny_unknown_fields` that nothing else may stand in
/// it; serde refuses a field that stands there twice.
pub struct ApiJson<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        // A page of another origin can send a form or a text without being asked for leave.
        if !is_json(request.headers()) {
            let error =
                ApiError::new(ErrorCode::InvalidRequest, "the body must be `application/json`");
            return Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let body = read(request).await?;
        // To serde a list of its values is a struct, too.
        if body.trim_ascii_start().first() != Some(&b'{') {
            let what = "the body is not a JSON object";
            return Err(ApiError::new(ErrorCode::InvalidRequest, what));
        }
        let parsed = serde_json::from_slice(&body);
        parsed
            .map(Self)
            .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, format!("the body: {error}")))
    }
}

/// A body as it was sent.
pub struct ApiBytes(pub Bytes);

impl<S: Sync> FromRequest<S> for ApiBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        read(request).await.map(Self)
    }
}

/// Reads a whole number as JSON Schema means it: `30.0` is one.
pub(super) fn whole_number<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let mut value = Value::deserialize(from)?;
    let fraction = value.as_f64().filter(|_| value.is_f64());
    // Beyond this not every whole number is one of them.
    if let Some(whole) = fraction.filter(|it| it.fract() == 0.0 && it.abs() <= 9e15) {
        value = Value::from(whole as i64);
    }
    T::deserialize(value).map_err(serde::de::Error::custom)
}

/// How long a body may take altogether: 10 MiB at 100 KiB/s.
const LONGEST: Duration = Duration::from_secs(100);

/// Reads a whole body, within the limits of its route.
///
/// # Errors
/// Returns a refusal with status 413 when it is too large and 408 when it is too slow.
pub(super) async fn read(request: Request) -> Result<Bytes, ApiError> {
    let request = request.with_limited_body();
    // Who waits with the body is told before sending it. Whoever does not wait would be writing when the connection
    // closes, and never see the answer.
    let waits = request.headers().contains_key(header::EXPECT);
    let declared = declared(request.headers()).filter(|_| waits);
    let limit = request.body().size_hint().upper();
    if let (Some(declared), Some(limit)) = (declared, limit)
        && declared > limit
    {
        let what = format!("the request's body has {declared} bytes, and may have {limit}");
        let error = ApiError::new(ErrorCode::InvalidRequest, what);
        return Err(error.with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let read = tokio::time::timeout(LONGEST, Bytes::from_request(request, &())).await;
    read.map_err(|_| late())?.map_err(|rejection| {
        if is_late(&rejection) {
            return late();
        }
        ApiError::new(ErrorCode::InvalidRequest, rejection.body_text())
            .with_status(rejection.status())
    })
}

/// Returns how many bytes will come, if their sender says so. The body itself does not tell: the layer with its
/// time-out hides its size.
pub(super) fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads the body of a message, which may be smaller than other bodies. What is beyond is thrown away as it comes: whoever
/// writes without waiting would otherwise never see the answer.
///
/// # Errors
/// As [`read`].
pub(super) async fn read_message(request: Request, most: usize) -> Result<Bytes, ApiError> {
    let too_large = || {
        let what = format!("a message has at most {most} bytes");
        ApiError::new(ErrorCode::InvalidRequest, what).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    let declared = declared(request.headers());
    let mut is_too_large = declared.is_some_and(|size| size > most as u64);
    if declared.is_some() && !is_too_large {
        return read(request).await;
    }
    if is_too_large && request.headers().contains_key(header::EXPECT) {
        return Err(too_large());
    }
    let mut pieces = request.with_limited_body().into_body().into_data_stream();
    let mut message = Vec::new();
    let reading = async {
        while let Some(piece) = pieces.try_next().await? {
            is_too_large |= message.len() + piece.len() > most;
            if is_too_large {
                message = Vec::new();
            } else {
                message.extend_from_slice(&piece);
            }
        }
        Ok::<_, axum::Error>(())
    };
    let read = tokio::time::timeout(LONGEST, reading).await;
    match read {
        _ if is_too_large => Err(too_large()),
        Err(_) => Err(late()),
        Ok(Err(error)) if is_late(&error) => Err(late()),
        Ok(Err(_)) => Err(ApiError::new(ErrorCode::InvalidRequest, "the body could not be read")),
        Ok(Ok(())) => Ok(message.into()),
    }
}

fn late() -> ApiError {
    let error =
        ApiError::new(ErrorCode::InvalidRequest, "the request's body did not arrive in time");
    error.with_status(StatusCode::REQUEST_TIMEOUT)
}

/// Tells whether an error is one of time. axum knows its own limits, but not that.
fn is_late(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<TimeoutError>() || error.is::<TooSlow>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Tells whether a body is JSON that does not have to be unpacked first.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
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

    /// A body is read to its end, or the refusal says what is wrong with it.
    #[tokio::test]
    async fn bodies_have_a_size_and_a_pace() {
        let router = Router::new()
            .route(
                "/",
                post(async |request: Request| match read(request).await {
                    Ok(body) => body.len().to_string().into_response(),
                    Err(refusal) => refusal.into_response(),
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
        // Nothing has to come of a body that is said to be too large.
        for (length, status) in [("8", 408), ("9", 413)] {
            let body = Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
            let request = Request::post("/").header(header::EXPECT, "100-continue");
            let request = request.header(header::CONTENT_LENGTH, length).body(body);
            assert_eq!(router.clone().oneshot(request.unwrap()).await.unwrap().status(), status);
        }
    }
}
