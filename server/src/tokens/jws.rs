//! The form of a signed token, and its signature.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// The longest token, in bytes.
const TOKEN_LIMIT: usize = 8 * 1024;

/// The algorithms that count. None of them has a secret that the gateway shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Algorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "PS256")]
    Ps256,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// The header. Where it says itself where keys are (`jku`, `jwk`, `x5u`, `x5c`) it is not heard.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) alg: Algorithm,
    pub(super) typ: String,
    pub(super) kid: String,
    /// Says that something must be understood that we do not.
    #[serde(default)]
    crit: Present,
    /// Says that the payload is written in another way.
    #[serde(default)]
    b64: Present,
    /// Say that the token is encrypted or compressed.
    #[serde(default)]
    enc: Present,
    #[serde(default)]
    zip: Present,
}

/// Whether a member is there, with whatever value.
#[derive(Debug, Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer)?;
        Ok(Self(true))
    }
}

/// A token in its parts.
pub(super) struct Jws<'a> {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// What was signed: the first two parts as they came.
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// Takes a token apart; `None` for whatever is not one, or says that it is more than one.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_LIMIT {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        // A dot more is in no alphabet of base64.
        let [header, payload, signature] =
            [header, payload, signature].map(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
        let header: Header = serde_json::from_slice(&header?).ok()?;
        let plain = [&header.crit, &header.b64, &header.enc, &header.zip].iter().all(|it| !it.0);
        let (payload, signature) = (payload?, signature?);
        plain.then_some(Self { header, payload, signed, signature })
    }
}

/// A public key of the issuer.
pub(super) enum PublicKey {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point on P-256, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Tells whether the key is one for the algorithm.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
            Self::P256(_) => algorithm == Algorithm::Es256,
            Self::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    /// Tells whether the key's owner signed the token.
    pub(super) fn verifies(&self, algorithm: Algorithm, token: &Jws<'_>) -> bool {
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let rsa = |n, e, parameters| {
            RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
        };
        match (algorithm, self) {
            (Algorithm::Rs256, Self::Rsa { n, e }) => {
                rsa(n, e, &signature::RSA_PKCS1_2048_8192_SHA256)
            }
            (Algorithm::Ps256, Self::Rsa { n, e }) => {
                rsa(n, e, &signature::RSA_PSS_2048_8192_SHA256)
            }
            (Algorithm::Es256, Self::P256(point)) => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            (Algorithm::EdDsa, Self::Ed25519(point)) => {
                let key = UnparsedPublicKey::new(&signature::ED25519, point);
                key.verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str) -> String {
        let [header, payload, signature] =
            [header, "{}", "s"].map(|part| BASE64URL_NOPAD.encode(part.as_bytes()));
        format!("{header}.{payload}.{signature}")
    }

    /// GW-03: the form alone refuses what is not a token signed with an allowed algorithm.
    #[test]
    fn only_plain_signed_tokens_are_read() {
        let good = r#"{"alg":"ES256","typ":"at+jwt","kid":"a"}"#;
        assert!(Jws::parse(&token(good)).is_some());
        // Where the header says keys are is not heard, and no reason to refuse it.
        let pointing =
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","jku":"https://evil.test","jwk":{}}"#;
        assert!(Jws::parse(&token(pointing)).is_some());
        for header in [
            r#"{"alg":"none","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"NONE","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"HS256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"es256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"ES256","alg":"RS256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":["ES256"],"typ":"at+jwt","kid":"a"}"#,
            r#"{"typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"ES256","kid":"a"}"#,
            r#"{"alg":"ES256","typ":"at+jwt"}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","crit":["exp"]}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","crit":null}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","b64":false}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","b64":true}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","zip":"DEF"}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","enc":"A256GCM"}"#,
            "[]",
            "",
        ] {
            assert!(Jws::parse(&token(header)).is_none(), "{header}");
        }
        let good = token(good);
        let long = "A".repeat(TOKEN_LIMIT);
        for text in [
            "",
            ".",
            "..",
            "a.b",
            &format!("{good}."),
            &format!("{good}="),
            &good.replacen('.', "..", 1),
            &format!("{good}.x.y"),
            &format!("{good}{long}"),
        ] {
            assert!(Jws::parse(text).is_none(), "{text}");
        }
    }
}
