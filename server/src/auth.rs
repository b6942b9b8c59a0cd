//! Authentication: an API key, a session or an access token becomes a principal, a scope and rights.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use protocol::{ErrorCode, Scope};
use registry::{Caller, RegistryError, Right, Tenant};

use crate::error::ApiError;
use crate::progress::Progress;
use crate::state::SharedGateway;
use crate::tokens::TokenError;
use crate::upstreams::keys::CallerKeys;

/// Whether a caller can run a program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// `pml`, which handles `execute_locally`.
    Package,
    /// Any other MCP client.
    Plain,
}

/// The caller, its address, and the secrets that it sent along.
#[derive(Debug, Clone)]
pub struct Requester {
    /// The principal, its scope and rights.
    pub caller: Arc<Caller>,
    /// Whether the caller can run a program itself.
    pub client: ClientKind,
    /// The caller's keys for upstreams.
    pub keys: CallerKeys,
    /// The sink for the request's progress.
    pub progress: Progress,
}

impl Requester {
    /// Builds the caller from a request with a valid key.
    pub fn new(caller: Arc<Caller>, headers: &HeaderMap) -> Self {
        let client = match headers.get(CLIENT_HEADER).map(|value| value.as_bytes()) {
            Some(b"package") => ClientKind::Package,
            _ => ClientKind::Plain,
        };
        let keys = CallerKeys::from_headers(headers);
        Self { caller, client, keys, progress: Progress::default() }
    }

    /// Returns the tenant's scope.
    pub fn scope(&self) -> &Scope {
        &self.caller.scope
    }

    /// Returns the tenant of the caller's registry queries.
    pub fn tenant(&self) -> Tenant {
        self.caller.tenant()
    }
}

/// The header of a caller that can run `execute_locally` answers.
pub const CLIENT_HEADER: &str = "x-pml-client";

/// Returns the key that a request carries.
///
/// Only headers are read: a key in a query string would end up in logs. Several different keys are treated as none,
/// because an intermediary may have read a different one.
fn presented_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get_all(header::AUTHORIZATION).iter().map(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let plain = headers.get_all("x-api-key").iter().map(|value| value.to_str().ok());
    let mut keys = bearer.chain(plain);
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(first)
}

/// Finds the caller of a request, or `None` when it carries no credential.
///
/// A credential with the prefix of our keys is a key, and one with the header of our sessions is a session; anything
/// else is a token, if tokens are accepted.
///
/// # Errors
/// Returns `UNAUTHORIZED` for an invalid credential, which is never treated as an absent one, and `RATE_LIMITED` when
/// its owner sends too many requests.
pub async fn find_caller(
    gateway: &SharedGateway,
    headers: &HeaderMap,
) -> Result<Option<Arc<Caller>>, ApiError> {
    if !headers.contains_key(header::AUTHORIZATION) && !headers.contains_key("x-api-key") {
        return Ok(None);
    }
    let caller = check_credential(gateway, headers).await?;
    gateway.limits.count_caller(&gateway.registry, &caller).await?;
    Ok(Some(caller))
}

/// Returns whom the credential of a request belongs to.
///
/// # Errors
/// As [`find_caller`], but requests are not counted.
pub async fn check_credential(
    gateway: &SharedGateway,
    headers: &HeaderMap,
) -> Result<Arc<Caller>, ApiError> {
    let refused = |what| ApiError::new(ErrorCode::Unauthorized, format!("the {what} is not valid"));
    let credential = presented_key(headers).ok_or_else(|| refused("API key"))?;
    // Tokens travel in the one header that RFC 6750 has for them.
    let sessions = gateway.sessions.as_ref().filter(|_| !headers.contains_key("x-api-key"));
    if let Some(sessions) = sessions.filter(|sessions| sessions.is_one(credential)) {
        return match sessions.caller(&gateway.registry, credential).await {
            Err(RegistryError::InvalidCredential) => Err(refused("session")),
            found => Ok(found?),
        };
    }
    let tokens = gateway.tokens.as_ref().filter(|_| !headers.contains_key("x-api-key"));
    if let Some(tokens) = tokens.filter(|_| !credential.starts_with("pml_")) {
        return match tokens.caller(&gateway.registry, credential).await {
            Ok(caller) => Ok(caller),
            Err(TokenError::Invalid(why)) => {
                tracing::info!(why, "Refused a token");
                Err(refused("token"))
            }
            Err(error @ TokenError::NoScope) => {
                Err(ApiError::new(ErrorCode::Forbidden, error.to_string()))
            }
            Err(error @ TokenError::Unavailable) => {
                Err(ApiError::new(ErrorCode::IdentityUnavailable, error.to_string()))
            }
            Err(TokenError::Registry(error)) => Err(error.into()),
        };
    }
    match gateway.registry.authenticate(credential).await {
        Ok(caller) => Ok(caller),
        Err(RegistryError::InvalidCredential) => Err(refused("API key")),
        Err(other) => Err(other.into()),
    }
}

/// Lets a request through only with a valid key. The request's extensions receive the [`Caller`], and the state of
/// [changes](registry::Changes) from before the check.
pub async fn require_caller(
    State(gateway): State<SharedGateway>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // Before the credential is checked, so that a stream that stays open sees every later change.
    let seen = *gateway.registry.changes().borrow();
    let caller = find_caller(&gateway, request.headers())
        .await?
        .ok_or_else(|| ApiError::new(ErrorCode::Unauthorized, "the request carries no API key"))?;
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(seen);
    Ok(next.run(request).await)
}

/// The reader of the registry: a tenant, or anybody for public entries.
pub enum Reader {
    /// A caller with the right to read.
    Tenant(Arc<Caller>),
    /// Nobody in particular.
    Anonymous,
}

impl Reader {
    /// Finds out who reads.
    ///
    /// # Errors
    /// Returns `UNAUTHORIZED` when a key is needed or wrong, `FORBIDDEN` when
    /// the key may not read.
    pub async fn of(gateway: &SharedGateway, headers: &HeaderMap) -> Result<Self, ApiError> {
        match find_caller(gateway, headers).await? {
            Some(caller) if caller.rights.contains(Right::Read) => Ok(Self::Tenant(caller)),
            Some(_) => Err(ApiError::lacks(Right::Read)),
            None if gateway.anonymous_read => Ok(Self::Anonymous),
            None => Err(ApiError::new(ErrorCode::Unauthorized, "the request carries no API key")),
        }
    }

    /// Returns on whose behalf the registry is read.
    pub fn tenant(&self) -> Tenant {
        match self {
            Self::Tenant(caller) => caller.tenant(),
            Self::Anonymous => Tenant::anonymous(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_headers_only() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(
                name.parse::<axum::http::HeaderName>().unwrap(),
                value.parse().unwrap(),
            )])
        };
        assert_eq!(presented_key(&headers("authorization", "Bearer pml_x")), Some("pml_x"));
        assert_eq!(presented_key(&headers("authorization", "bearer  pml_x")), Some("pml_x"));
        assert_eq!(presented_key(&headers("x-api-key", "pml_x")), Some("pml_x"));
        assert_eq!(presented_key(&headers("authorization", "Basic pml_x")), None);
        assert_eq!(presented_key(&headers("authorization", "pml_x")), None);
        assert_eq!(presented_key(&headers("cookie", "key=pml_x")), None);
        let several = |values: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(*name, value.parse().unwrap());
            }
            presented_key(&headers).map(str::to_owned)
        };
        let same = several(&[("authorization", "Bearer pml_x"), ("x-api-key", "pml_x")]);
        assert_eq!(same.as_deref(), Some("pml_x"));
        for other in [("authorization", "Bearer pml_y"), ("x-api-key", "pml_y")] {
            assert_eq!(several(&[("authorization", "Bearer pml_x"), other]), None);
        }
    }
}
