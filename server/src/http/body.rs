//! JSON bodies of the API: read strictly, refused as every refusal is told.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use protocol::ErrorCode;
use serde::de::DeserializeOwned;

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
        let parsed = serde_json::from_slice(&body);
        parsed
            .map(Self)
            .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, format!("the body: {error}")))
    }
}

/// Reads a whole body, as far as it may be large.
pub(super) async fn read(request: Request) -> Result<Bytes, ApiError> {
    Bytes::from_request(request, &()).await.map_err(|rejection| {
        ApiError::new(ErrorCode::InvalidRequest, rejection.body_text())
            .with_status(rejection.status())
    })
}

/// Tells whether a body is JSON that does not have to be unpacked first.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity");
    kind.trim().eq_ignore_ascii_case("application/json") && !encoded
}
