//! Access tokens of an identity provider: the gateway as an OAuth 2.1 resource server.
//!
//! A token is a JWT (RFC 9068), checked by the rules of RFC 8725: an allowed
//! asymmetric algorithm, a key of the one configured issuer, and every claim that binds
//! it to this gateway. Its scope must exist; a token never creates anything.

mod jwks;
mod jws;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use moka::sync::Cache;
use protocol::Scope;
use registry::{Caller, Principal, PrincipalKind, Registry, RegistryError, Right};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use jwks::Jwks;
use jws::Header;

/// The leeway between the clocks of the issuer and the gateway, in seconds.
const LEEWAY: u64 = 30;
/// The size of the cache of verified tokens, and the lifetime of its entries.
const CACHED_TOKENS: u64 = 10_000;
const CACHE_LIFETIME: Duration = Duration::from_secs(60);
/// The prefix of this gateway's rights in the claim with the rights.
const RIGHT_PREFIX: &str = "pml:";

/// The expected values of claims, and the names of the configurable claims.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    /// The expected `iss`.
    pub issuer: String,
    /// The expected `aud`: the address of this gateway.
    pub audience: String,
    /// The expected `typ`.
    pub token_type: String,
    /// The claim with the scope.
    pub scope: String,
    /// The claim with the principal.
    pub principal: String,
    /// The claim with the rights.
    pub rights: String,
    /// The client id of `pml` at the issuer, which only the metadata has.
    pub cli_client_id: Option<String>,
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// It is not a valid token of the issuer for this gateway; callers do not learn the reason.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    /// It is valid, but has no scope of this gateway, or its principal lost the membership there.
    #[error("the token has no scope of this gateway")]
    NoScope,
    /// The issuer's keys are unavailable.
    #[error("the issuer's keys are unavailable")]
    Unavailable,
    /// The registry cannot determine whether the scope exists.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Verifies tokens of one issuer.
pub(crate) struct Tokens {
    claims: Claims,
    metadata_url: String,
    jwks: Arc<Jwks>,
    /// Tokens with a verified signature, by their hash: verifying an RSA or P-256 signature costs more than the rest of
    /// a request.
    verified: Cache<[u8; 32], Verified>,
}

/// A token whose signature was verified.
#[derive(Clone)]
struct Verified {
    /// The key that verified it. A refresh of the issuer's keys creates new objects, so that the token is verified
    /// again.
    key: Arc<DecodingKey>,
    claims: Arc<Map<String, Value>>,
}

impl Tokens {
    /// Prepares the verifier; the issuer's keys are fetched when the first token arrives.
    ///
    /// # Errors
    /// Returns an error when the HTTP client cannot be created.
    pub(crate) fn new(
        claims: Claims,
        jwks_url: reqwest::Url,
        max_age: Duration,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self {
            metadata_url: metadata_url(&claims.audience),
            jwks: Arc::new(Jwks::new(jwks_url, max_age)?),
            verified: Cache::builder()
                .max_capacity(CACHED_TOKENS)
                .time_to_live(CACHE_LIFETIME)
                .build(),
            claims,
        })
    }

    /// Returns the caller of a token.
    ///
    /// # Errors
    /// Returns [`TokenError`]; its reason is for the log only.
    pub(crate) async fn caller(
        &self,
        registry: &Registry,
        token: &str,
    ) -> Result<Arc<Caller>, TokenError> {
        // From cheap to expensive: the form, the key, the signature, and last the database.
        let header = Header::of(token).ok_or(TokenError::Invalid("it is malformed"))?;
        if !is_type(&header.typ, &self.claims.token_type) {
            return Err(TokenError::Invalid("`typ` is not the configured one"));
        }
        let key = self.jwks.find(&header.kid, header.alg).await?;
        let claims = self.verified(token, header.alg, key)?;
        let expires_at = self.check(&claims)?;
        let principal = self.principal(&claims)?;
        // Checked after what makes a token invalid: a 403 means that only its scope is wrong.
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
            key_made_by: None,
        };
        // For a removed member, the scope is treated as nonexistent.
        registry.admit(claimed).await.map_err(|error| match error {
            RegistryError::InvalidCredential => TokenError::NoScope,
            other => TokenError::Registry(other),
        })
    }

    /// Returns the claims of a token with a valid signature, from the cache if possible. The caller of this function
    /// checks the claims, each time.
    fn verified(
        &self,
        token: &str,
        algorithm: Algorithm,
        key: Arc<DecodingKey>,
    ) -> Result<Arc<Map<String, Value>>, TokenError> {
        // Only the hash is kept, so that the cache contains no credentials.
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.verified.get(&hash).filter(|it| Arc::ptr_eq(&it.key, &key)) {
            return Ok(known.claims);
        }
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        // The library ignores `nbf` by default.
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        validation.set_issuer(&[&self.claims.issuer]);
        validation.set_audience(&[&self.claims.audience]);
        let jws::Claims(claims) = jsonwebtoken::decode(token, &key, &validation)
            .map_err(|error| TokenError::Invalid(refusal(error.kind())))?
            .claims;
        let claims = Arc::new(claims);
        // Cached although `check` may refuse the claims: it is called for cached ones as well.
        self.verified.insert(hash, Verified { key, claims: Arc::clone(&claims) });
        Ok(claims)
    }

    /// Returns the metadata of RFC 9728, from which a client learns the issuer.
    pub(crate) fn metadata(&self) -> Value {
        let rights: Vec<String> = Right::ALL.into_iter().map(word_of).collect();
        let mut metadata = serde_json::json!({
            "resource": self.claims.audience,
            "authorization_servers": [self.claims.issuer],
            "scopes_supported": rights,
            "bearer_methods_supported": ["header"],
            "resource_name": "PML",
        });
        // An extension, which RFC 9728, section 2, allows: for `pml login --browser`.
        if let Some(id) = &self.claims.cli_client_id {
            metadata["pml_cli_client_id"] = id.as_str().into();
        }
        metadata
    }

    /// Returns the URL of the metadata.
    pub(crate) fn metadata_url(&self) -> &str {
        &self.metadata_url
    }

    /// Refuses what the library accepts: lists of issuers or of several audiences, an `iat` in the future, and claims
    /// of a wrong type. Returns when the token expires.
    fn check(&self, claims: &Map<String, Value>) -> Result<DateTime<Utc>, TokenError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(&self.claims.issuer) {
            return Err(TokenError::Invalid("`iss` is not the configured one"));
        }
        // A token for several audiences could be replayed here by each of them.
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
        let now = u64::try_from(Utc::now().timestamp()).unwrap_or_default();
        // Only whole seconds since 1970: implementations differ in how they round, and in how they treat earlier times.
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(at) => {
                at.as_u64().map(Some).ok_or(TokenError::Invalid("it contains an invalid time"))
            }
        };
        let expires = time("exp")?.ok_or(TokenError::Invalid("there is no `exp`"))?;
        // The library checked it too, but only when the token was added to the cache.
        if expires.saturating_add(LEEWAY) <= now {
            return Err(TokenError::Invalid("it has expired"));
        }
        for name in ["nbf", "iat"] {
            if time(name)?.is_some_and(|at| at > now.saturating_add(LEEWAY)) {
                return Err(TokenError::Invalid("it is not valid yet"));
            }
        }
        let expires = i64::try_from(expires).ok().and_then(|at| DateTime::from_timestamp(at, 0));
        expires.ok_or(TokenError::Invalid("`exp` is not a time"))
    }

    /// Returns the principal of a token; never one with a special meaning in PML, such as that of an API key or a
    /// service.
    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, TokenError> {
        let missing = TokenError::Invalid("the claim with the principal is missing");
        let text = claims.get(&self.claims.principal).and_then(Value::as_str);
        let text = text.filter(|text| !text.is_empty()).ok_or(missing)?;
        let named = text.parse::<Principal>();
        match named.as_ref().map(Principal::kind) {
            Ok(PrincipalKind::Member) => Ok(named?),
            // No token may claim these: services act with API keys that administrators hold, and in the audit log,
            // reserved names mean PML itself.
            Ok(PrincipalKind::Service | PrincipalKind::Reserved) => {
                Err(TokenError::Invalid("its principal is a service or a reserved name"))
            }
            // Subjects may contain any characters. The hash gives each of them a valid and unique name.
            _ => {
                let hash = Sha256::digest(text.as_bytes());
                let hex = data_encoding::HEXLOWER.encode(&hash);
                format!("sub:{hex}").parse().map_err(TokenError::Registry)
            }
        }
    }

    fn scope(&self, claims: &Map<String, Value>) -> Option<Scope> {
        let scope: Scope = claims.get(&self.claims.scope)?.as_str()?.parse().ok()?;
        // The catalog has no members.
        (scope.org() != Scope::public().org()).then_some(scope)
    }
}

/// Returns the reason, for the log, why the library refused a token.
fn refusal(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::InvalidSignature => "the signature is not the issuer's",
        ErrorKind::MissingRequiredClaim(_) => "a required claim is missing",
        ErrorKind::InvalidIssuer => "`iss` is not the configured one",
        ErrorKind::InvalidAudience => "`aud` is not this gateway alone",
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidClaimFormat(_) => "it contains an invalid time",
        _ => "it cannot be decoded",
    }
}

/// Returns the name of a right in the claims of a token.
pub(crate) fn word_of(right: Right) -> String {
    format!("{RIGHT_PREFIX}{}", right.as_str())
}

/// Parses rights from a list or from space-separated words; the scopes of other services are ignored.
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

/// Compares media types, ignoring case and the optional prefix `application/` (RFC 7515, 4.1.9).
fn is_type(found: &str, wanted: &str) -> bool {
    let short = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.strip_prefix("application/").map(str::to_owned).unwrap_or(text)
    };
    short(found) == short(wanted)
}

/// Returns the URL of the metadata: the path of the resource is appended to the well-known one (RFC 9728, 3.1).
fn metadata_url(audience: &str) -> String {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let Ok(url) = audience.parse::<reqwest::Url>() else { return WELL_KNOWN.to_owned() };
    // The gateway serves the metadata under these two paths only.
    let path = if url.path() == "/mcp" { "/mcp" } else { "" };
    format!("{}{WELL_KNOWN}{path}", url.origin().ascii_serialization())
}
