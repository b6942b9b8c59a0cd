//! Content hashes in the form of Subresource Integrity.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ShortHash;

/// A SHA-256 of a whole content in the form of W3C SRI, `sha256-<base64>`.
///
/// No other algorithm, length or spelling is accepted: an empty or weak hash
/// must never count as a match.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Integrity([u8; 32]);

/// A text that is not an integrity value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an integrity must be `sha256-` and 44 characters of standard base64")]
pub struct IntegrityError;

/// Returns the text of a JSON value in its canonical form: no white space, the keys of every object sorted.
pub fn canonical_json(mut value: Value) -> String {
    // Parsing keeps the keys in the order in which they arrived, so equal objects may have different texts.
    value.sort_all_objects();
    value.to_string()
}

impl Integrity {
    /// Hashes a content.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Hashes a JSON value in its canonical form: no white space, the keys of
    /// every object sorted.
    pub fn of_json(value: &Value) -> Self {
        Self::of(canonical_json(value.clone()).as_bytes())
    }

    /// Creates it from a raw hash.
    pub fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Returns the raw hash.
    pub fn into_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns the first four hex digits, as in a pinned FQDN.
    pub fn short(&self) -> ShortHash {
        format!("{:02x}{:02x}", self.0[0], self.0[1])
            .parse()
            .expect("two bytes are four lower-case hex digits")
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256-{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Integrity({self})")
    }
}

impl FromStr for Integrity {
    type Err = IntegrityError;

    fn from_str(text: &str) -> Result<Self, IntegrityError> {
        let encoded = text.strip_prefix("sha256-").ok_or(IntegrityError)?;
        // This engine also refuses missing padding and unused bits other than zero, so that each
        // hash has exactly one spelling.
        let bytes = STANDARD.decode(encoded).map_err(|_| IntegrityError)?;
        Ok(Self(bytes.try_into().map_err(|_| IntegrityError)?))
    }
}

impl Serialize for Integrity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Integrity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_the_bytes() {
        let empty = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(Integrity::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Integrity>().unwrap(), Integrity::of(b""));
        assert_eq!(Integrity::of(b"").short().as_str(), "e3b0");
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        use serde_json::json;
        assert_eq!(
            Integrity::of_json(&json!({"a": [1, {"c": 2, "b": null}], "B": "x"})),
            Integrity::of_json(&json!({"B": "x", "a": [1, {"b": null, "c": 2}]})),
        );
        assert_ne!(
            Integrity::of_json(&json!({"a": [1, 2]})),
            Integrity::of_json(&json!({"a": [2, 1]}))
        );
        let canonical = "{\"a\\n\":\"\u{e9}\",\"b\":1.5}";
        assert_eq!(
            Integrity::of_json(&json!({"b": 1.5, "a\n": "\u{e9}"})),
            Integrity::of(canonical.as_bytes())
        );
    }

    /// LK-02: weak, empty and malformed hashes are refused.
    #[test]
    fn weak_hashes_are_refused() {
        for text in [
            "",
            "sha256-",
            "md5-1B2M2Y8AsgTpgAmY7PhCfg==",
            "SHA256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
            "sha256-47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=",
            "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ] {
            text.parse::<Integrity>().expect_err(text);
        }
    }
}
