//! Checks of requests and forms of answers that the API's routes share.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use protocol::ErrorCode;
use registry::{Caller, Reader, RegistryError, Right};
use uuid::Uuid;

use super::idempotency::ShownOnce;
use crate::error::ApiError;

/// The longest name of a key or a link, in characters.
const NAME_LIMIT: usize = 200;

/// Refuses a caller that lacks a right.
pub(super) fn require(caller: &Caller, right: Right) -> Result<(), ApiError> {
    if caller.rights.contains(right) { Ok(()) } else { Err(ApiError::lacks(right)) }
}

/// Returns whose records the caller may read: an administrator all of the scope, others their own.
///
/// # Errors
/// Returns `FORBIDDEN` if it may read none.
pub(super) fn reader(caller: &Caller) -> Result<Reader, ApiError> {
    if caller.rights.contains(Right::Admin) {
        return Ok(Reader::Project);
    }
    require(caller, Right::Read)?;
    Ok(Reader::Own)
}

/// Returns the size of the requested page, which has at most `largest` items.
pub(super) fn page_size(limit: Option<u32>, largest: u32) -> Result<u32, ApiError> {
    let limit = limit.unwrap_or(50);
    if !(1..=largest).contains(&limit) {
        return Err(invalid(format!("`limit` is {limit}; it must be 1 to {largest}")));
    }
    Ok(limit)
}

/// Validates the name of a key or a link.
pub(super) fn checked_name(name: String) -> Result<String, ApiError> {
    if name.is_empty() || name.chars().count() > NAME_LIMIT || name.contains(char::is_control) {
        return Err(invalid(format!(
            "`name` must have 1 to {NAME_LIMIT} characters, without control characters"
        )));
    }
    Ok(name)
}

/// Creates the answer to an invalid request.
pub(super) fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, detail)
}

/// Converts a registry error; its validation errors become `INVALID_REQUEST`.
pub(super) fn explain(error: RegistryError) -> ApiError {
    match error {
        RegistryError::Invalid(reason) => invalid(reason),
        RegistryError::Name(error) => invalid(error.to_string()),
        other => other.into(),
    }
}

/// Creates an answer that no cache may store.
pub(super) fn private(body: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "private, no-store")], body).into_response()
}

/// Marks an answer that contains a new credential: a repeated request gets `SHOWN_ONCE` instead of the credential.
pub(super) fn shown_once(what: &str, id: Uuid, mut answer: Response) -> Response {
    let detail = format!("{what} `{id}` was created, and shown only in the first answer");
    let again = ApiError::new(ErrorCode::ShownOnce, detail).with_member("id", id.to_string());
    answer.extensions_mut().insert(ShownOnce { again });
    answer
}
