//! Authenticates requests, and counts them against the rate limits of their callers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use protocol::ErrorCode;
use registry::{Caller, Right, Tenant};

use crate::error::ApiError;
use crate::identity::credentials::Credentials;
use crate::state::SharedGateway;

/// Finds the caller of a request, or `None` when it carries no credential.
///
/// # Errors
/// Returns `UNAUTHORIZED` for an invalid credential, which is never treated as an absent one, and `RATE_LIMITED` when
/// its owner sends too many requests.
pub(super) async fn find_caller(
    gateway: &SharedGateway,
    headers: &HeaderMap,
) -> Result<Option<Arc<Caller>>, ApiError> {
    if !Credentials::are_in(headers) {
        return Ok(None);
    }
    let caller = gateway.credentials.check(&gateway.registry, headers).await?;
    // Counted only now, because these limits belong to the key and the organisation. Guessed
    // credentials are counted before, by their address.
    gateway.limits.count_caller(&gateway.registry, &caller).await?;
    Ok(Some(caller))
}

/// Refuses a request without a valid credential. Adds to the request's extensions the [`Caller`], and the state of
/// [changes](registry::Changes) from before the check.
pub(super) async fn require_caller(
    State(gateway): State<SharedGateway>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // Read before the credential is checked: a stream that stays open must notice every change after the check.
    let seen = *gateway.registry.changes().borrow();
    let caller = find_caller(&gateway, request.headers())
        .await?
        .ok_or_else(|| ApiError::new(ErrorCode::Unauthorized, "the request carries no API key"))?;
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(seen);
    Ok(next.run(request).await)
}

/// The reader of the registry.
pub(super) enum Reader {
    /// A caller with the right to read.
    Tenant(Arc<Caller>),
    /// A caller without a credential, who can read public entries.
    Anonymous,
}

impl Reader {
    /// Determines the reader of a request.
    ///
    /// # Errors
    /// Returns `UNAUTHORIZED` if the credential is invalid, or missing but required, and `FORBIDDEN` if it lacks the
    /// right to read.
    pub(super) async fn of(gateway: &SharedGateway, headers: &HeaderMap) -> Result<Self, ApiError> {
        match find_caller(gateway, headers).await? {
            Some(caller) if caller.rights.contains(Right::Read) => Ok(Self::Tenant(caller)),
            // Not treated as anonymous: the caller would see fewer entries without learning why.
            Some(_) => Err(ApiError::lacks(Right::Read)),
            None if gateway.anonymous_read => Ok(Self::Anonymous),
            None => Err(ApiError::new(ErrorCode::Unauthorized, "the request carries no API key")),
        }
    }

    /// Returns the tenant of the reader's registry queries.
    pub(super) fn tenant(&self) -> Tenant {
        match self {
            Self::Tenant(caller) => caller.tenant(),
            Self::Anonymous => Tenant::anonymous(),
        }
    }
}
