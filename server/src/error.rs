//! The only place where an error becomes an HTTP response.

mod request_id;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::ErrorCode;
use registry::{RegistryError, Right};
use serde_json::{Map, Value, json};

pub(crate) use self::request_id::{in_current_request, with_request_id};

/// A request that was refused before it became an execution, as RFC 9457 `application/problem+json` with a `code`
/// member.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    code: ErrorCode,
    status: StatusCode,
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
    lacks: Option<Right>,
}

/// The right that a refused caller lacks, in the extensions of the response: a client with a token requests it from
/// its issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingRight(pub Right);

/// The message for an id or a name that does not exist or belongs to another tenant.
pub(crate) const NOT_FOUND: &str =
    "no object with this name or id exists, or your key cannot see it";

impl ApiError {
    /// Creates an error with the status that belongs to its code.
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: status_of(code),
            detail: detail.into(),
            members: Map::new(),
            headers: Vec::new(),
            lacks: None,
        }
    }

    /// Creates the answer to a path that is not served.
    pub(crate) fn no_such_path(path: &str) -> Self {
        // The path is any text of the client, and people and models read the message.
        let path: String = path.chars().take(200).collect();
        let detail = format!("`{}` is not a path of this gateway", protocol::escape_text(&path));
        Self::new(ErrorCode::InvalidRequest, detail)
            .with_status(StatusCode::NOT_FOUND)
            .with_member("hint", "`GET /openapi.json` lists the paths.")
    }

    /// Creates the answer to a method that a path does not have; the router adds `Allow`.
    pub(crate) fn no_such_method(method: &Method) -> Self {
        let detail =
            format!("this path does not support `{method}`; `Allow` lists the supported methods");
        Self::new(ErrorCode::InvalidRequest, detail)
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
            .with_member("hint", "`GET /openapi.json` lists the methods of each path.")
    }

    /// Creates the answer to a caller that lacks a right.
    pub(crate) fn lacks(right: Right) -> Self {
        Self::forbidden(right, format!("the key lacks the right `{}`", right.as_str()))
    }

    /// Creates the answer to a caller that lacks a right, with another message.
    pub(crate) fn forbidden(right: Right, detail: impl Into<String>) -> Self {
        Self { lacks: Some(right), ..Self::new(ErrorCode::Forbidden, detail) }
    }

    /// Creates the answer to an id that does not exist or belongs to another tenant.
    pub(crate) fn not_found() -> Self {
        Self::new(ErrorCode::NotFound, NOT_FOUND)
    }

    /// Replaces the status of the code.
    #[must_use]
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Adds a member to the body.
    #[must_use]
    pub(crate) fn with_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the body.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "code": self.code,
            "number": self.code.number(),
            "detail": self.detail,
            "hint": self.code.hint(),
        });
        if let Value::Object(body) = &mut body {
            body.extend(self.members.clone());
        }
        body
    }
}

/// Returns the status of each code that can refuse a request.
fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden | ErrorCode::KeyNotForHost => StatusCode::FORBIDDEN,
        ErrorCode::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorCode::ToolNotFound | ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Conflict | ErrorCode::RequestInProgress | ErrorCode::ShownOnce => {
            StatusCode::CONFLICT
        }
        ErrorCode::Gone => StatusCode::GONE,
        ErrorCode::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::DatabaseUnavailable
        | ErrorCode::Busy
        | ErrorCode::SandboxUnavailable
        | ErrorCode::SecretsUnavailable
        | ErrorCode::IdentityUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        // Codes of executions have no status of their own: their envelopes are sent with 200.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = self.body();
        // The operator finds the log lines by this id. Refusals have none, because they must be identical for foreign
        // and nonexistent objects.
        if let Some(id) = request_id::current().filter(|_| self.status.is_server_error()) {
            body["instance"] = json!(format!("urn:uuid:{id}"));
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // RFC 9110, section 15.5.2, requires a challenge. `oauth::challenge` may replace it.
        if self.status == StatusCode::UNAUTHORIZED {
            headers
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"pml\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // Not `extend`, which would add a second value to a header that is set above.
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        if let Some(right) = self.lacks {
            response.extensions_mut().insert(MissingRight(right));
        }
        response
    }
}

/// The largest message of a library that is included in an answer, in bytes.
const TEXT_LIMIT: usize = 4 * 1024;

/// How rmcp refuses a request that comes through an unknown name, or from a page of another site.
const FOREIGN: [&str; 3] = ["Forbidden: Host", "Forbidden: Origin", "Forbidden: Invalid Origin"];
const FOREIGN_HINT: &str =
    "The operator sets further names and sites with `PML_ALLOWED_HOSTS` and `PML_ALLOWED_ORIGINS`.";

/// Converts refusals by the router or a library, in plain text or empty, to the common form.
pub(crate) async fn in_one_form(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_plain = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let (parts, body) = response.into_parts();
    // A longer text is not truncated but replaced by the reason phrase of the status.
    let text = axum::body::to_bytes(body, TEXT_LIMIT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = match text.trim() {
        "" => status.canonical_reason().unwrap_or("the request was refused").to_lowercase(),
        text => protocol::escape_text(text),
    };
    let code = match status {
        StatusCode::UNAUTHORIZED => ErrorCode::Unauthorized,
        StatusCode::FORBIDDEN => ErrorCode::Forbidden,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Busy,
        status if status.is_server_error() => ErrorCode::Internal,
        _ => ErrorCode::InvalidRequest,
    };
    let is_foreign = FOREIGN.iter().any(|start| detail.starts_with(start));
    let mut problem = ApiError::new(code, detail).with_status(status);
    if is_foreign {
        // The hint of the code is about rights.
        problem = problem.with_member("hint", FOREIGN_HINT);
    }
    let mut problem = problem.into_response();
    // The other headers are kept, for example `Allow`, because only the body is replaced.
    for (name, value) in &parts.headers {
        if ![header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name) {
            problem.headers_mut().insert(name, value.clone());
        }
    }
    problem.extensions_mut().extend(parts.extensions);
    problem
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::NotFound(_) => Self::not_found(),
            RegistryError::Conflict(reason) => Self::new(ErrorCode::Conflict, reason),
            RegistryError::Gone(name) => Self::new(
                ErrorCode::Gone,
                format!("`{}` was deleted", protocol::escape_text(&name)),
            ),
            RegistryError::NotAllowed(reason) => Self::new(ErrorCode::Forbidden, reason),
            other => {
                let body = registry_error(&other);
                Self::new(body.error_code, body.message)
            }
        }
    }
}

/// Converts a registry failure without its internal text, which is logged here, once.
pub(crate) fn registry_error(error: &RegistryError) -> protocol::ErrorBody {
    let (code, message) = match error {
        RegistryError::Unavailable(_) => {
            (ErrorCode::DatabaseUnavailable, "the database does not answer")
        }
        RegistryError::IntegrityMismatch { .. } => {
            (ErrorCode::IntegrityMismatch, "a registry entry does not match its recorded hash")
        }
        RegistryError::NoMasterKey => (
            ErrorCode::SecretsUnavailable,
            "this gateway cannot store secrets: the operator has set neither PML_MASTER_KEY nor PML_MASTER_KEY_FILE",
        ),
        RegistryError::WrongMasterKey { .. } => (
            ErrorCode::SecretsUnavailable,
            "this gateway lacks the master key of the stored secrets: PML_MASTER_KEY is a different one",
        ),
        RegistryError::UnreadableSecret(_) => {
            (ErrorCode::SecretUnreadable, "the stored secret cannot be read")
        }
        _ => (ErrorCode::Internal, "the registry failed"),
    };
    tracing::error!(error = %error, code = code.name(), "Registry failed");
    protocol::ErrorBody::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_an_error_replaces_that_of_its_status() {
        let seconds = |error: ApiError| {
            let response = error.into_response();
            let values = response.headers().get_all(header::RETRY_AFTER).iter();
            values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let busy = ApiError::new(ErrorCode::Busy, "busy");
        assert_eq!(seconds(busy.clone()), ["1"]);
        assert_eq!(seconds(busy.with_header(header::RETRY_AFTER, HeaderValue::from(7))), ["7"]);
        assert!(seconds(ApiError::not_found()).is_empty());
    }
}
