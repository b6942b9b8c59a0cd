//! The one way an error becomes an HTTP response.

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::ErrorCode;
use registry::RegistryError;
use serde_json::json;

/// A request that was refused before it became an execution, told as RFC 9457
/// `application/problem+json` with a `code` member.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    status: StatusCode,
    detail: String,
}

impl ApiError {
    /// Makes an error with the status that belongs to its code.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, status: status_of(code), detail: detail.into() }
    }

    /// Makes the answer to a path that is not served.
    pub fn no_such_path(path: &str) -> Self {
        let path: String = path.chars().take(200).collect();
        let detail = format!("`{}` is not a path of this gateway", protocol::escape_text(&path));
        Self { code: ErrorCode::InvalidRequest, status: StatusCode::NOT_FOUND, detail }
    }

    /// Makes the answer to a method that a path does not have; the router adds `Allow`.
    pub fn no_such_method(method: &Method) -> Self {
        let detail = format!("this path does not take `{method}`; `Allow` has those it takes");
        Self { code: ErrorCode::InvalidRequest, status: StatusCode::METHOD_NOT_ALLOWED, detail }
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }
}

/// The whole table of codes that can refuse a request, and their statuses.
fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorCode::ToolNotFound => StatusCode::NOT_FOUND,
        ErrorCode::DatabaseUnavailable | ErrorCode::Busy | ErrorCode::SandboxUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "code": self.code,
            "number": self.code.number(),
            "detail": self.detail,
            "hint": self.code.hint(),
        });
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"pml\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let body = registry_error(&error);
        Self::new(body.error_code, body.message)
    }
}

/// Tells a registry's failure without its inner text, which is logged here, once.
pub fn registry_error(error: &RegistryError) -> protocol::ErrorBody {
    let (code, message) = match error {
        RegistryError::Unavailable(_) => {
            (ErrorCode::DatabaseUnavailable, "the database does not answer")
        }
        RegistryError::IntegrityMismatch { .. } => {
            (ErrorCode::IntegrityMismatch, "a registry entry does not have its recorded hash")
        }
        _ => (ErrorCode::Internal, "the registry failed"),
    };
    tracing::error!(error = %error, code = code.name(), "Registry failed");
    protocol::ErrorBody::new(code, message)
}
