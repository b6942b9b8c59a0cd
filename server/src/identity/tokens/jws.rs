//! The form of a token, checked before its signature.
//!
//! `jsonwebtoken` decodes and verifies tokens. It accepts more headers than we do (it ignores `crit` and `b64`, accepts
//! any `typ`, and uses the last of two members with the same name), so the rules of RFC 8725 are checked first.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::Algorithm;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The longest token, in bytes.
const TOKEN_LIMIT: usize = 8 * 1024;

/// Parses one of the accepted algorithms. All are asymmetric: with a symmetric one, the public key could be used to
/// sign.
fn algorithm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Algorithm, D::Error> {
    let name = String::deserialize(deserializer)?;
    match name.as_str() {
        "RS256" => Ok(Algorithm::RS256),
        "PS256" => Ok(Algorithm::PS256),
        "ES256" => Ok(Algorithm::ES256),
        "EdDSA" => Ok(Algorithm::EdDSA),
        _ => Err(serde::de::Error::custom("an algorithm that is not accepted")),
    }
}

/// The header. `jku`, `jwk`, `x5u` and `x5c` are ignored: the token does not choose its keys.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    #[serde(deserialize_with = "algorithm")]
    pub(super) alg: Algorithm,
    pub(super) typ: String,
    pub(super) kid: String,
    /// The `crit` header: extensions that must be understood. We support none.
    #[serde(default)]
    crit: Present,
    /// The `b64` header: a different encoding of the payload.
    #[serde(default)]
    b64: Present,
    /// The headers of encrypted and compressed tokens.
    #[serde(default)]
    enc: Present,
    #[serde(default)]
    zip: Present,
}

/// Whether a member is present, with any value.
#[derive(Debug, Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer)?;
        Ok(Self(true))
    }
}

impl Header {
    /// Parses the header of a token; `None` unless the text is a plain signed token with an accepted algorithm.
    pub(super) fn of(token: &str) -> Option<Self> {
        if token.len() > TOKEN_LIMIT {
            return None;
        }
        let mut parts = token.split('.').map(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
        // The first `?` is for a missing part, the second for one that is not base64url.
        let header = parts.next()??;
        // A duplicate member is refused even if we ignore it, because another implementation could use it.
        serde_json::from_slice::<Claims>(&header).ok()?;
        let header: Self = serde_json::from_slice(&header).ok()?;
        // Only their form is checked; the library decodes them again.
        let (_payload, _signature) = (parts.next()??, parts.next()??);
        let plain = [&header.crit, &header.b64, &header.enc, &header.zip].iter().all(|it| !it.0);
        (plain && parts.next().is_none()).then_some(header)
    }
}

/// The claims of a token. Duplicate names are refused (RFC 7519, 4), because another implementation could use the other
/// claim.
pub(super) struct Claims(pub(super) Map<String, Value>);

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClaimsVisitor;

        impl<'de> Visitor<'de> for ClaimsVisitor {
            type Value = Claims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of claims")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Claims, A::Error> {
                let mut claims = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    // `Map`'s own parser would keep the last of two claims.
                    if claims.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("duplicate claim"));
                    }
                }
                Ok(Claims(claims))
            }
        }

        deserializer.deserialize_map(ClaimsVisitor)
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

    /// GW-03: everything but a plain token with an allowed algorithm is refused by its form alone.
    #[test]
    fn only_plain_signed_tokens_are_accepted() {
        let good = r#"{"alg":"ES256","typ":"at+jwt","kid":"a"}"#;
        assert!(Header::of(&token(good)).is_some());
        // Headers that point at keys are ignored, not refused.
        let pointing =
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","jku":"https://evil.test","jwk":{}}"#;
        assert!(Header::of(&token(pointing)).is_some());
        for header in [
            r#"{"alg":"none","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"NONE","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"HS256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"es256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"ES256","alg":"RS256","typ":"at+jwt","kid":"a"}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","jku":"a","jku":"b"}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"a","x":1,"\u0078":1}"#,
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
            assert!(Header::of(&token(header)).is_none(), "{header}");
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
            assert!(Header::of(text).is_none(), "{text}");
        }
    }

    #[test]
    fn duplicate_claims_are_refused() {
        let read = |text: &str| serde_json::from_str::<Claims>(text).map(|claims| claims.0);
        assert_eq!(read(r#"{"sub":"a","exp":1}"#).unwrap()["sub"], "a");
        for text in [r#"{"sub":"a","sub":"b"}"#, r#"{"sub":"a","s\u0075b":"a"}"#, "[]", "null", "7"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
