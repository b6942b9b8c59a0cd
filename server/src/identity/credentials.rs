//! Authenticates the API key, session or access token of a request.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use protocol::ErrorCode;
use registry::{Caller, Registry, RegistryError};

use super::sessions::Sessions;
use super::tokens::{TokenError, Tokens};
use crate::error::ApiError;

/// Checks credentials of every kind.
pub(crate) struct Credentials {
    /// Verifies access tokens, if an issuer is configured.
    pub tokens: Option<Tokens>,
    /// Creates and verifies sessions, if there is a master key.
    pub sessions: Option<Sessions>,
}

impl Credentials {
    /// Returns whether a request carries a credential, valid or not.
    pub(crate) fn are_in(headers: &HeaderMap) -> bool {
        headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key")
    }

    /// Returns the caller that the credential of a request belongs to.
    ///
    /// A credential with the header of our sessions is a session, and one with the prefix of our API keys is a key. Any
    /// other is a token, if tokens are accepted.
    ///
    /// # Errors
    /// Returns `UNAUTHORIZED` for an invalid credential, and if there is none.
    pub(crate) async fn check(
        &self,
        registry: &Registry,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, ApiError> {
        let refused =
            |what| ApiError::new(ErrorCode::Unauthorized, format!("the {what} is not valid"));
        let credential = presented_key(headers).ok_or_else(|| refused("API key"))?;
        // Sessions and tokens are bearer tokens, which are accepted only in `Authorization` (RFC 6750, 2.1).
        let sessions = self.sessions.as_ref().filter(|_| !headers.contains_key("x-api-key"));
        if let Some(sessions) = sessions.filter(|sessions| sessions.has_session_header(credential))
        {
            return match sessions.caller(registry, credential).await {
                Err(RegistryError::InvalidCredential) => Err(refused("session")),
                found => Ok(found?),
            };
        }
        let tokens = self.tokens.as_ref().filter(|_| !headers.contains_key("x-api-key"));
        // A key of ours is never verified as a token, even if it is invalid: the issuer's keys need not be fetched.
        if let Some(tokens) = tokens.filter(|_| !credential.starts_with("pml_")) {
            return match tokens.caller(registry, credential).await {
                Ok(caller) => Ok(caller),
                Err(TokenError::Invalid(why)) => {
                    tracing::info!(why, "Refused a token");
                    Err(refused("token"))
                }
                // Not 401, which would make the client get another token from the issuer: that one
                // would have no scope either.
                Err(error @ TokenError::NoScope) => {
                    Err(ApiError::new(ErrorCode::Forbidden, error.to_string()))
                }
                Err(error @ TokenError::Unavailable) => {
                    Err(ApiError::new(ErrorCode::IdentityUnavailable, error.to_string()))
                }
                Err(TokenError::Registry(error)) => Err(error.into()),
            };
        }
        match registry.authenticate(credential).await {
            Ok(caller) => Ok(caller),
            Err(RegistryError::InvalidCredential) => Err(refused("API key")),
            // For example, the database does not answer. A 401 would tell the client to discard a
            // valid key.
            Err(other) => Err(other.into()),
        }
    }
}

/// Returns the credential of a request.
///
/// Only headers are read: a credential in a query string would end up in logs. Several different credentials are
/// treated as none, because an intermediary may have used a different one.
fn presented_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get_all(header::AUTHORIZATION).iter().map(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        // Schemes ignore case, and several spaces may follow them (RFC 9110, 11.1 and 11.4).
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let plain = headers.get_all("x-api-key").iter().map(|value| value.to_str().ok());
    let mut keys = bearer.chain(plain);
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_headers_only() {
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
        // An intermediary could have checked one of them, and the gateway would use the other.
        for other in [("authorization", "Bearer pml_y"), ("x-api-key", "pml_y")] {
            assert_eq!(several(&[("authorization", "Bearer pml_x"), other]), None);
        }
    }
}
