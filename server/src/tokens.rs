//! Access tokens of an identity provider: the gateway as an OAuth 2.1 resource server.
//!
//! A token is a JWT as RFC 9068 has it, checked by the rules of RFC 8725: an allowed
//! asymmetric algorithm, a key of the one configured issuer, and every claim that binds
//! it to this gateway. It names a scope that exists; nothing is made for it.

mod jwks;
mod jws;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use protocol::Scope;
use registry::{Caller, Principal, Registry, RegistryError, Right};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use jwks::Jwks;
use jws::Jws;

/// How far the clocks of the issuer and of the gateway may be apart, in seconds.
const LEEWAY: f64 = 30.0;
/// What stands before the name of a right among the rights of a token.
const RIGHT_PREFIX: &str = "pml:";

/// What tokens must say, and where they say the rest.
#[derive(Debug, Clone)]
pub struct Claims {
    /// What `iss` is.
    pub issuer: String,
    /// What `aud` is: the address of this gateway.
    pub audience: String,
    /// What `typ` is.
    pub token_type: String,
    /// The claim with the scope.
    pub scope: String,
    /// The claim with the principal.
    pub principal: String,
    /// The claim with the rights.
    pub rights: String,
}

/// Says why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is not a valid token of the issuer for this gateway; callers learn no more.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    /// It is valid and names no scope of this gateway, or none any more for whoever it is of.
    #[error("the token names no scope of this gateway")]
    NoScope,
    /// The issuer's keys cannot be had.
    #[error("the issuer's keys cannot be had")]
    Unavailable,
    /// The registry cannot say whether the scope exists.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Checks tokens of one issuer.
pub struct Tokens {
    claims: Claims,
    metadata_url: String,
    jwks: Arc<Jwks>,
}

impl Tokens {
    /// Prepares the check; the issuer is asked for its keys when the first token comes.
    ///
    /// # Errors
    /// Returns an error when there can be no HTTP client.
    pub fn new(
        claims: Claims,
        jwks_url: reqwest::Url,
        max_age: Duration,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            metadata_url: metadata_url(&claims.audience),
            jwks: Arc::new(Jwks::new(jwks_url, max_age)?),
            claims,
        })
    }

    /// Returns who calls with a token.
    ///
    /// # Errors
    /// Returns [`TokenError`]; the log has why, the caller only what kind it is.
    pub async fn caller(
        &self,
        registry: &Registry,
        token: &str,
    ) -> Result<Arc<Caller>, TokenError> {
        let token = Jws::parse(token).ok_or(TokenError::Invalid("it has not the form of one"))?;
        let header = &token.header;
        if !is_type(&header.typ, &self.claims.token_type) {
            return Err(TokenError::Invalid("`typ` is another one"));
        }
        let key = self.jwks.find(&header.kid, header.alg).await?;
        if !key.verifies(header.alg, &token) {
            return Err(TokenError::Invalid("the signature is not the issuer's"));
        }
        let claims: Map<String, Value> = serde_json::from_slice(&token.payload)
            .map_err(|_| TokenError::Invalid("the claims are no object"))?;
        let expires_at = self.check(&claims)?;
        let principal = self.principal(&claims)?;
        let scope = self.scope(&claims).ok_or(TokenError::NoScope)?;
        let rights = rights(claims.get(&self.claims.rights)).collect();
        let claimed = Caller {
            key_id: None,
            principal,
            scope,
            rights,
            expires_at: Some(expires_at),
            org_role: None,
            session: None,
        };
        // Whoever was a member and is none any more is answered as if there were no such scope.
        registry.admit(claimed).await.map_err(|error| match error {
            RegistryError::InvalidCredential => TokenError::NoScope,
            other => TokenError::Registry(other),
        })
    }

    /// Returns the metadata of RFC 9728, by which a client finds the issuer.
    pub fn metadata(&self) -> Value {
        let rights: Vec<String> = Right::ALL.into_iter().map(word_of).collect();
        serde_json::json!({
            "resource": self.claims.audience,
            "authorization_servers": [self.claims.issuer],
            "scopes_supported": rights,
            "bearer_methods_supported": ["header"],
            "resource_name": "PML",
        })
    }

    /// Returns where the metadata is.
    pub fn metadata_url(&self) -> &str {
        &self.metadata_url
    }

    /// Checks the claims that bind a token; returns when it ends.
    fn check(&self, claims: &Map<String, Value>) -> Result<DateTime<Utc>, TokenError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(&self.claims.issuer) {
            return Err(TokenError::Invalid("`iss` is another one"));
        }
        // A token that others accept too could be used here by any of them.
        let audience = match claims.get("aud") {
            Some(Value::Array(all)) if all.len() == 1 => all[0].as_str(),
            Some(Value::String(one)) => Some(one.as_str()),
            _ => None,
        };
        if audience != Some(&self.claims.audience) {
            return Err(TokenError::Invalid("`aud` is not this gateway alone"));
        }
        if text("sub").is_none_or(str::is_empty) {
            return Err(TokenError::Invalid("there is no `sub`"));
        }
        let now = Utc::now().timestamp_millis() as f64 / 1_000.0;
        let ends = claims.get("exp").and_then(Value::as_f64).filter(|at| at.is_finite());
        let ends = ends.ok_or(TokenError::Invalid("there is no `exp`"))?;
        if ends + LEEWAY <= now {
            return Err(TokenError::Invalid("it has expired"));
        }
        for name in ["nbf", "iat"] {
            let begins = claims.get(name).map(Value::as_f64);
            // A claim of another type says something that we do not understand.
            if begins.is_some_and(|at| at.is_none_or(|at| at - LEEWAY > now)) {
                return Err(TokenError::Invalid("it is not valid yet"));
            }
        }
        DateTime::from_timestamp(ends as i64, 0).ok_or(TokenError::Invalid("`exp` is no time"))
    }

    /// Returns the principal of a token; never one that a key could be.
    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, TokenError> {
        let missing = TokenError::Invalid("the claim with the principal is missing");
        let text = claims.get(&self.claims.principal).and_then(Value::as_str);
        let text = text.filter(|text| !text.is_empty()).ok_or(missing)?;
        let plain = !text.starts_with("key:") && !text.starts_with("sub:");
        match text.parse() {
            Ok(principal) if plain => Ok(principal),
            // Subjects may have any characters; each has a name of ours, and no two the same.
            _ => {
                let hash = Sha256::digest(text.as_bytes());
                let hex = data_encoding::HEXLOWER.encode(&hash);
                format!("sub:{hex}").parse().map_err(TokenError::Registry)
            }
        }
    }

    fn scope(&self, claims: &Map<String, Value>) -> Option<Scope> {
        let scope: Scope = claims.get(&self.claims.scope)?.as_str()?.parse().ok()?;
        // The public catalog has no members.
        (scope.org() != Scope::public().org()).then_some(scope)
    }
}

/// Returns the word for a right among those of a token.
pub fn word_of(right: Right) -> String {
    format!("{RIGHT_PREFIX}{}", right.as_str())
}

/// Reads rights from a list or from words; what is meant for others is passed over.
fn rights(claim: Option<&Value>) -> impl Iterator<Item = Right> {
    let words: Vec<&str> = match claim {
        Some(Value::String(words)) => words.split(' ').collect(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let rights: Vec<Right> = words
        .into_iter()
        .filter_map(|word| word.strip_prefix(RIGHT_PREFIX)?.parse().ok())
        .collect();
    rights.into_iter()
}

/// Compares media types, of which `application/` may be left out (RFC 7515, 4.1.9).
fn is_type(found: &str, wanted: &str) -> bool {
    let short = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.strip_prefix("application/").map(str::to_owned).unwrap_or(text)
    };
    short(found) == short(wanted)
}

/// Returns the address of the metadata: the path of the resource follows the well-known one.
fn metadata_url(audience: &str) -> String {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let Ok(url) = audience.parse::<reqwest::Url>() else { return WELL_KNOWN.to_owned() };
    let path = if url.path() == "/mcp" { "/mcp" } else { "" };
    format!("{}{WELL_KNOWN}{path}", url.origin().ascii_serialization())
}
