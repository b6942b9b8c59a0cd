//! A sign-in: the tokens of the gateway's issuer, which stand in for an API key.

use std::fmt;

use chrono::{DateTime, Utc};
use protocol::redaction::keys_in_use;
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::ApiKey;
use crate::gateway::oauth::{self, Granted, Issuer, OauthError, Refresh, is_token};

/// How long before its end an access token is refreshed, in seconds; at most a fifth of its lifetime.
const EARLY_S: i64 = 30;

/// The longest lifetime that is believed, in seconds: a year.
const LIFETIME_LIMIT_S: u64 = 366 * 24 * 3_600;

/// What a user has for a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// An API key.
    Key(ApiKey),
    /// The tokens of a sign-in.
    SignIn(Box<SignIn>),
}

/// The tokens of a sign-in and what is needed to refresh them; never displayed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// Identifies the sign-in; a refresh keeps it.
    id: Uuid,
    /// The issuer.
    pub(crate) issuer: String,
    client_id: String,
    /// The gateway, as the audience of the tokens.
    resource: String,
    /// The endpoint that issued the tokens. The refresh token is sent to no other, except to be revoked.
    token_endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revocation_endpoint: Option<String>,
    access_token: String,
    /// When the access token expires, if the issuer has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// When it is refreshed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl SignIn {
    /// Creates the sign-in of what an issuer has granted.
    pub(crate) fn new(issuer: &Issuer, granted: Granted) -> Self {
        let sign_in = Self {
            id: Uuid::new_v4(),
            issuer: issuer.name.clone(),
            client_id: issuer.client_id.clone(),
            resource: issuer.resource.clone(),
            token_endpoint: issuer.token_endpoint.to_string(),
            revocation_endpoint: issuer.revocation_endpoint.as_ref().map(Url::to_string),
            access_token: String::new(),
            expires_at: None,
            refresh_at: None,
            refresh_token: None,
        };
        sign_in.with(granted, Utc::now())
    }

    /// Parses the text that [`Self::to_text`] returns; `None` for any other.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok()?.checked()
    }

    /// Returns the form for the keyring.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("its fields have a JSON form")
    }

    /// Returns the sign-in if its tokens are well-formed; they are removed from every log line from here on.
    pub(super) fn checked(&self) -> Option<Self> {
        for token in self.tokens() {
            if !is_token(token) {
                return None;
            }
            keys_in_use().keep(token);
        }
        Some(self.clone())
    }

    fn tokens(&self) -> impl Iterator<Item = &str> {
        [Some(self.access_token.as_str()), self.refresh_token.as_deref()].into_iter().flatten()
    }

    /// Returns the sign-in with new tokens.
    fn with(&self, granted: Granted, now: DateTime<Utc>) -> Self {
        let lifetime = granted.lifetime_s.map(|seconds| {
            i64::try_from(seconds.min(LIFETIME_LIMIT_S)).expect("a year fits into an `i64`")
        });
        let after = |seconds: i64| now + chrono::TimeDelta::seconds(seconds);
        Self {
            access_token: granted.access_token,
            expires_at: lifetime.map(after),
            refresh_at: lifetime.map(|all| after(all - EARLY_S.min(all / 5))),
            // Without a new one, the old one stays valid (RFC 6749, 6).
            refresh_token: granted.refresh_token.or_else(|| self.refresh_token.clone()),
            ..self.clone()
        }
    }

    /// Returns the access token, to authenticate a request to the gateway.
    pub(crate) fn access_token(&self) -> &str {
        &self.access_token
    }

    /// Returns the id, which is not secret.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Returns whether the access token can be refreshed.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.refresh_token.is_some()
    }

    /// Returns whether the access token is due for a refresh.
    pub(super) fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.refresh_at.is_some_and(|at| at <= now)
    }

    /// Returns whether the access token has expired.
    pub(super) fn is_over(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Requests new tokens.
    ///
    /// # Errors
    /// Returns [`OauthError::Ended`] if the person has to sign in again.
    pub(super) async fn refreshed(&self) -> Result<Self, OauthError> {
        let Some(refresh_token) = &self.refresh_token else {
            return Err(OauthError::Ended(format!(
                "the sign-in through {} is over, and the issuer gave no refresh token",
                self.issuer
            )));
        };
        let request = Refresh {
            token_endpoint: &endpoint(&self.token_endpoint)?,
            refresh_token,
            client_id: &self.client_id,
            resource: &self.resource,
        };
        match oauth::refresh(request).await {
            Ok(granted) => Ok(self.with(granted, Utc::now())),
            Err(error) if error.is("invalid_grant") => Err(OauthError::Ended(format!(
                "the sign-in through {} is over: {error}",
                self.issuer
            ))),
            Err(error) => Err(error),
        }
    }

    /// Revokes the refresh token; returns whether the issuer has done so. Without a refresh token or an endpoint, there
    /// is nothing to do.
    ///
    /// # Errors
    /// Returns why it may still be valid.
    pub(crate) async fn revoke(&self) -> Result<bool, OauthError> {
        match (&self.revocation_endpoint, &self.refresh_token) {
            (Some(url), Some(token)) => {
                oauth::revoke(&endpoint(url)?, token, &self.client_id).await.map(|()| true)
            }
            _ => Ok(false),
        }
    }
}

/// Parses a stored address, which was checked before it was stored.
fn endpoint(text: &str) -> Result<Url, OauthError> {
    Url::parse(text).map_err(|error| OauthError::Invalid(format!("a stored address: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sign_in() -> SignIn {
        SignIn {
            id: Uuid::nil(),
            issuer: "https://id.test".to_owned(),
            client_id: "pml".to_owned(),
            resource: "https://a.test/mcp".to_owned(),
            token_endpoint: "https://id.test/token".to_owned(),
            revocation_endpoint: None,
            access_token: "canary-access".to_owned(),
            expires_at: None,
            refresh_at: None,
            refresh_token: Some("canary-refresh".to_owned()),
        }
    }

    fn granted(lifetime_s: Option<u64>, refresh_token: Option<&str>) -> Granted {
        Granted {
            access_token: "new".to_owned(),
            lifetime_s,
            refresh_token: refresh_token.map(str::to_owned),
            scope: None,
        }
    }

    #[test]
    fn an_access_token_is_due_before_it_expires() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let after = |seconds| now + chrono::TimeDelta::seconds(seconds);
        for (lifetime, due_s) in [(3_600, 3_570), (60, 48), (5, 4), (0, 0)] {
            let new = sign_in().with(granted(Some(lifetime), None), now);
            assert!(new.is_due(after(due_s)) && !new.is_due(after(due_s - 1)), "{lifetime}");
            let end = i64::try_from(lifetime).unwrap();
            assert!(new.is_over(after(end)) && !new.is_over(after(end - 1)), "{lifetime}");
            assert_eq!(new.refresh_token.as_deref(), Some("canary-refresh"));
        }
        let new = sign_in().with(granted(None, Some("rotated")), now);
        assert!(!new.is_due(after(1_000_000)) && !new.is_over(after(1_000_000)));
        assert_eq!(new.refresh_token.as_deref(), Some("rotated"));
        // A lifetime that cannot be true does not overflow.
        sign_in().with(granted(Some(u64::MAX), None), now);
    }

    #[test]
    fn its_stored_form_is_strict_and_its_debug_form_has_no_token() {
        let ours = sign_in();
        assert_eq!(SignIn::parse(&ours.to_text()), Some(ours.clone()));
        assert!(!format!("{:?}", Login::SignIn(Box::new(ours.clone()))).contains("canary"));
        let bad = SignIn { access_token: "a\r\nb".to_owned(), ..ours.clone() };
        for text in [
            bad.to_text(),
            ours.to_text().replace("\"issuer\"", "\"other\""),
            String::new(),
            "pml_key_x".to_owned(),
        ] {
            assert_eq!(SignIn::parse(&text), None, "{text}");
        }
    }
}
