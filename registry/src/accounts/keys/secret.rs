//! The form of a key: `pml_<kind>_<random><checksum>`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::RegistryError;

/// The digits of the random part and of the checksum.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62^30 is more than 178 bits.
const RANDOM: usize = 30;
/// 62^6 is more than 32 bits.
const CHECKSUM: usize = 6;
/// The prefix of the only kind so far.
const PREFIX: &str = "pml_key_";

/// An API key in plain text. It exists only while it is created and while it is verified.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub(super) fn generate() -> Result<Self, RegistryError> {
        let mut text = PREFIX.to_owned();
        while text.len() < PREFIX.len() + RANDOM {
            // Almost always enough for one round: 248 of 256 values can be used, and 30 digits are
            // needed.
            let mut bytes = [0; 64];
            getrandom::fill(&mut bytes).map_err(|error| {
                RegistryError::Invalid(format!("the system has no random numbers: {error}"))
            })?;
            let missing = PREFIX.len() + RANDOM - text.len();
            // 248 is the largest multiple of 62 that fits a byte; larger values would favour the first digits.
            let even = bytes.iter().filter(|byte| **byte < 248);
            text.extend(even.take(missing).map(|byte| char::from(DIGITS[usize::from(byte % 62)])));
        }
        let checksum = checksum(&text);
        Ok(Self(text + &checksum))
    }

    /// Returns the key itself, to show it once or to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        // A fast hash without a salt suffices: nobody can guess the 178 random bits of a key.
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl FromStr for ApiKey {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let body = text.strip_prefix(PREFIX).filter(|body| {
            body.len() == RANDOM + CHECKSUM && body.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        if body.is_none() {
            return Err(RegistryError::InvalidCredential);
        }
        let (signed, sum) = text.split_at(PREFIX.len() + RANDOM);
        if checksum(signed) == sum {
            Ok(Self(text.to_owned()))
        } else {
            Err(RegistryError::InvalidCredential)
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

/// Returns the CRC-32 of a text in base 62 digits. It detects typing errors and made-up keys without a query; it is
/// not a signature.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut out = [b'0'; CHECKSUM];
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    out.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_reads_back_and_differs_from_the_next() {
        let key = ApiKey::generate().unwrap();
        assert_eq!(key.expose().parse::<ApiKey>().unwrap(), key);
        assert_eq!(key.expose().len(), 44);
        assert_ne!(key, ApiKey::generate().unwrap());
        assert_eq!(format!("{key:?}"), "ApiKey([redacted])");
    }

    #[test]
    fn the_checksum_is_fixed() {
        let key = "pml_key_000000000000000000000000000000";
        assert_eq!(checksum(key), "0JrfJz");
    }

    /// SE-10: each single change is refused by the text alone.
    #[test]
    fn a_changed_key_is_refused() {
        let key = ApiKey::generate().unwrap();
        for index in 0..key.expose().len() {
            let mut bytes = key.expose().as_bytes().to_vec();
            bytes[index] = if bytes[index] == b'a' { b'b' } else { b'a' };
            let changed = String::from_utf8(bytes).unwrap();
            changed.parse::<ApiKey>().expect_err(&changed);
        }
        for text in ["", "pml_key_", &format!("{} ", key.expose()), &key.expose()[1..]] {
            text.parse::<ApiKey>().expect_err(text);
        }
    }
}
