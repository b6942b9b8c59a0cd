//! Sessions: short-lived tokens of the gateway, created from an API key or an identity provider's token.
//!
//! A session is a JWT that follows RFC 8725. Its header is a constant for each master key and is compared byte by byte
//! before `jsonwebtoken` parses it, so a token can choose neither the algorithm nor its type. It is signed with
//! HMAC-SHA-256 by a key that is derived from the master key for this purpose only, so every gateway on the database
//! accepts it and no other installation does. A session alone grants nothing: at each use, the API key that it was
//! created from must still be valid, and the role of its principal applies.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use protocol::Scope;
use registry::{Caller, Registry, RegistryError, Rights, Session};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The type of the token, in its header.
const TYPE: &str = "pml-session+jwt";
/// The purpose from which the signing key is derived.
const PURPOSE: &str = "sessions, HS256";
/// The longest session, in bytes.
const TOKEN_LIMIT: usize = 2 * 1024;
/// The longest lifetime of a session.
pub(crate) const MAX_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Creates and verifies sessions of one installation.
pub(crate) struct Sessions {
    /// Both issuer and audience: the installation issues sessions to itself.
    issuer: String,
    /// The first one signs. All are accepted, because during a rotation there are two master keys.
    signers: Vec<Signer>,
}

struct Signer {
    header: Header,
    /// The encoded header of a token, with the dot after it.
    prefix: String,
    encoding_key: EncodingKey,
    decoding_key: DecodingKey,
}

impl Signer {
    fn new(id: &str, secret: &[u8]) -> Result<Self, serde_json::Error> {
        let header = Header {
            typ: Some(TYPE.to_owned()),
            kid: Some(id.to_owned()),
            ..Header::new(Algorithm::HS256)
        };
        let prefix = BASE64URL_NOPAD.encode(&serde_json::to_vec(&header)?) + ".";
        let encoding_key = EncodingKey::from_secret(secret);
        let decoding_key = DecodingKey::from_secret(secret);
        Ok(Self { header, prefix, encoding_key, decoding_key })
    }
}

/// The claims of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    iat: i64,
    exp: i64,
    jti: Uuid,
    /// The id of the API key that the session was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<Uuid>,
    pml_scope: Scope,
    rights: Rights,
}

/// A new session.
pub(crate) struct IssuedSession {
    /// The token.
    pub token: String,
    /// When it expires.
    pub expires_at: DateTime<Utc>,
}

impl Sessions {
    /// Derives the signing keys; `None` without a master key.
    ///
    /// # Errors
    /// Returns an error if the database cannot identify the installation.
    pub(crate) async fn of(registry: &Registry) -> Result<Option<Self>, RegistryError> {
        let signers: Vec<Signer> = registry
            .derived_keys(PURPOSE)?
            .into_iter()
            .map(|derived| Signer::new(&derived.id, derived.bytes.as_ref()))
            .collect::<Result<_, _>>()
            .map_err(|error| RegistryError::Invalid(format!("a session's header: {error}")))?;
        if signers.is_empty() {
            return Ok(None);
        }
        let issuer = format!("urn:uuid:{}", registry.installation_id().await?);
        Ok(Some(Self { issuer, signers }))
    }

    /// Creates a session for a caller. It expires at the latest with the caller's own credential.
    ///
    /// # Errors
    /// Returns an error only when the claims cannot be encoded or signed.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        id: Uuid,
        rights: &Rights,
        lifetime: Duration,
    ) -> Result<IssuedSession, jsonwebtoken::errors::Error> {
        let now = Utc::now();
        let end = now + TimeDelta::from_std(lifetime.min(MAX_LIFETIME)).unwrap_or_default();
        // Whole seconds, rounded down, so that the session never outlives its credential.
        let expires = caller.expires_at.map_or(end, |at| at.min(end)).timestamp();
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: self.issuer.clone(),
            sub: caller.principal.as_str().to_owned(),
            iat: now.timestamp(),
            exp: expires,
            jti: id,
            sid: caller.key_id,
            pml_scope: caller.scope.clone(),
            rights: rights.clone(),
        };
        // Never empty: without a master key, `of` creates no `Sessions`.
        let signer = &self.signers[0];
        let token = jsonwebtoken::encode(&signer.header, &claims, &signer.encoding_key)?;
        // From the claim, which has no fraction of a second.
        let expires_at = DateTime::from_timestamp(expires, 0).unwrap_or(now);
        Ok(IssuedSession { token, expires_at })
    }

    /// Returns whether a credential has the header of a session.
    pub(crate) fn has_session_header(&self, credential: &str) -> bool {
        self.signers.iter().any(|signer| credential.starts_with(&signer.prefix))
    }

    /// Returns the caller of a session.
    ///
    /// # Errors
    /// Returns [`RegistryError::InvalidCredential`] for an invalid session, and for a session whose API key or role is
    /// no longer valid, and [`RegistryError::Unavailable`] when the database does not answer.
    pub(crate) async fn caller(
        &self,
        registry: &Registry,
        credential: &str,
    ) -> Result<Arc<Caller>, RegistryError> {
        let claimed = self.verify(credential).ok_or(RegistryError::InvalidCredential)?;
        registry.admit(claimed).await
    }

    /// Verifies a session, and returns the caller that it claims.
    fn verify(&self, credential: &str) -> Option<Caller> {
        // With the longest scope and principal, a session has little more than 1 KiB.
        if credential.len() > TOKEN_LIMIT {
            return None;
        }
        // The compared header selects the key, never a `kid` that was parsed from the token.
        let signer = self.signers.iter().find(|signer| credential.starts_with(&signer.prefix))?;
        let mut validation = Validation::new(Algorithm::HS256);
        // The installation issues and verifies sessions itself, so their end is exact.
        validation.leeway = 0;
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.issuer]);
        let decoded = jsonwebtoken::decode(credential, &signer.decoding_key, &validation).ok()?;
        let claims: Claims = decoded.claims;
        // The library accepts lists of issuers and audiences, and ignores `iat`. The 30 seconds allow for clocks of
        // gateways that differ.
        let now = Utc::now().timestamp();
        let longest = i64::try_from(MAX_LIFETIME.as_secs()).ok()?;
        let is_valid_now =
            claims.iat <= now + 30 && now < claims.exp && claims.exp <= claims.iat + longest;
        if claims.iss != self.issuer || claims.aud != self.issuer || !is_valid_now {
            return None;
        }
        Some(Caller {
            // A session is not its key: `self` must not resolve, and it cannot rotate the key. The
            // registry adds the current role at each use.
            key_id: None,
            principal: claims.sub.parse().ok()?,
            scope: claims.pml_scope,
            rights: claims.rights,
            expires_at: DateTime::from_timestamp(claims.exp, 0),
            org_role: None,
            session: Some(Session { id: claims.jti, key_id: claims.sid }),
            key_made_by: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sessions(issuer: &str, secret: &[u8]) -> Sessions {
        Sessions { issuer: issuer.to_owned(), signers: vec![Signer::new("a", secret).unwrap()] }
    }

    fn caller() -> Caller {
        Caller {
            key_id: Some(Uuid::from_u128(7)),
            principal: "alice".parse().unwrap(),
            scope: "acme.web".parse().unwrap(),
            rights: "execute,read".parse().unwrap(),
            expires_at: None,
            org_role: None,
            session: None,
            key_made_by: None,
        }
    }

    fn signed(sessions: &Sessions, header: &str, claims: &serde_json::Value) -> String {
        let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let signed = format!("{}.{}", part(header), part(&claims.to_string()));
        let key = &sessions.signers[0].encoding_key;
        let tag = jsonwebtoken::crypto::sign(signed.as_bytes(), key, Algorithm::HS256).unwrap();
        format!("{signed}.{tag}")
    }

    fn claims(ours: &Sessions) -> serde_json::Value {
        let now = Utc::now().timestamp();
        json!({
            "iss": ours.issuer, "aud": ours.issuer, "sub": "alice", "iat": now, "exp": now + 60,
            "jti": Uuid::nil(), "pml_scope": "acme.web", "rights": ["read"],
        })
    }

    #[test]
    fn a_session_has_the_claims_of_its_caller() {
        let ours = sessions("urn:a", b"secret");
        let read: Rights = "read".parse().unwrap();
        let issued =
            ours.create(&caller(), Uuid::nil(), &read, Duration::from_secs(9_999)).unwrap();
        let claimed = ours.verify(&issued.token).unwrap();
        assert!(issued.expires_at <= Utc::now() + MAX_LIFETIME, "the lifetime is limited");
        assert_eq!((claimed.key_id, claimed.rights, claimed.scope), (None, read, caller().scope));
        assert_eq!(claimed.session.unwrap().key_id, caller().key_id);
        // It expires at the latest with the credential that it was created from.
        let soon = Utc::now() + TimeDelta::seconds(5);
        let ending = Caller { expires_at: Some(soon), ..caller() };
        let issued = ours.create(&ending, Uuid::nil(), &ending.rights, MAX_LIFETIME).unwrap();
        assert!(issued.expires_at <= soon);
    }

    /// GW-03: only the exact header of this installation is accepted.
    #[test]
    fn sessions_with_another_header_are_refused() {
        let ours = sessions("urn:a", b"secret");
        let claims = claims(&ours);
        let good = r#"{"typ":"pml-session+jwt","alg":"HS256","kid":"a"}"#;
        let token = signed(&ours, good, &claims);
        assert!(ours.verify(&token).is_some(), "the unchanged session is valid");
        for header in [
            r#"{"alg":"none","kid":"a","typ":"pml-session+jwt"}"#,
            r#"{"alg":"HS512","kid":"a","typ":"pml-session+jwt"}"#,
            r#"{"alg":"EdDSA","kid":"a","typ":"pml-session+jwt"}"#,
            r#"{"alg":"HS256","kid":"a","typ":"at+jwt"}"#,
            r#"{"alg":"HS256","kid":"a","typ":"JWT"}"#,
            r#"{"alg":"HS256","kid":"b","typ":"pml-session+jwt"}"#,
            r#"{"alg":"HS256","kid":"a"}"#,
            r#"{"alg":"HS256","kid":"a","typ":"pml-session+jwt","crit":["exp"]}"#,
            // The same members in another order: the bytes differ.
            r#"{"alg":"HS256","typ":"pml-session+jwt","kid":"a"}"#,
            "{}",
            "",
        ] {
            assert!(ours.verify(&signed(&ours, header, &claims)).is_none(), "{header}");
        }
        let (text, tag) = token.rsplit_once('.').unwrap();
        let zeroes = BASE64URL_NOPAD.encode(&[0; 32]);
        for changed in [
            text.to_owned(),
            format!("{text}."),
            format!("{text}.{zeroes}"),
            format!("{text}.{}", &tag[..20]),
            format!("{text}.{tag}="),
            format!("{text}.x.{tag}"),
            format!("{token}.x.y"),
            String::new(),
        ] {
            assert!(ours.verify(&changed).is_none(), "{changed}");
        }
        assert!(sessions("urn:a", b"other").verify(&token).is_none(), "another master key");
    }

    /// GW-05: sessions of another installation or time, and with invalid claims, are refused.
    #[test]
    fn sessions_with_other_claims_are_refused() {
        let ours = sessions("urn:a", b"secret");
        let header = r#"{"typ":"pml-session+jwt","alg":"HS256","kid":"a"}"#;
        let good = claims(&ours);
        let now = good["iat"].as_i64().unwrap();
        let with = |name: &str, value: serde_json::Value| {
            let mut claims = good.clone();
            claims[name] = value;
            ours.verify(&signed(&ours, header, &claims)).is_some()
        };
        assert!(with("sub", json!("bob")), "another principal is valid");
        for (name, value) in [
            ("iss", json!("urn:b")),
            ("aud", json!("urn:b")),
            ("aud", json!(["urn:a"])),
            ("aud", serde_json::Value::Null),
            ("exp", json!(now - 1)),
            ("exp", json!(now + 901)),
            ("exp", json!("9999999999")),
            ("iat", json!(now + 3_600)),
            ("sub", json!("")),
            ("sub", json!("a b")),
            ("pml_scope", json!("acme")),
            ("rights", json!(["root"])),
            ("rights", json!("read")),
            ("sid", json!("x")),
            ("other", json!(1)),
        ] {
            assert!(!with(name, value.clone()), "{name}: {value}");
        }
        let elsewhere = sessions("urn:b", b"secret");
        assert!(elsewhere.verify(&signed(&ours, header, &good)).is_none());
    }
}
