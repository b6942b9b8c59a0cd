//! Master keys: parsing, ids, derived keys, and wrapping of data keys.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hkdf::Hkdf;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::seal::{KEY_BYTES, Purpose, SealingKey, Unreadable};
use crate::RegistryError;

/// Accepts keys with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The minimum number of distinct bytes: 32 random bytes have about 30, so fewer than this is a pattern.
const DIFFERENT_BYTES: usize = 16;
/// The plaintext of a key's check value.
const CHECK: &[u8] = b"pml master key";

/// Why a text is not a master key; the message never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MasterKeyError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is not 32 bytes.
    #[error("it is not 32 bytes in base64 or hex")]
    Malformed,
    /// It was not generated at random.
    #[error("it consists of words or a pattern, so that others can guess it")]
    Weak,
}

/// A key that wraps data keys; it is never stored in the database.
pub struct MasterKey {
    id: String,
    key: SealingKey,
}

impl MasterKey {
    /// Generates one from random bytes.
    ///
    /// # Errors
    /// Returns [`RegistryError::Invalid`] when the system has no random numbers.
    pub fn generate() -> Result<Self, RegistryError> {
        Ok(Self::of(SealingKey::generate()?))
    }

    /// Returns its name: a truncated hash, from which the key cannot be derived.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key in base64, for its file.
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(self.key.bytes()))
    }

    fn of(key: SealingKey) -> Self {
        // The prefix separates this hash from other hashes of the key. Eight bytes are the 16 hex
        // digits that a constraint of the table requires.
        let mut hash = Sha256::new();
        hash.update(b"pml master key id\0");
        hash.update(key.bytes());
        let id = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { id, key }
    }

    /// Returns the check value, which distinguishes this key from a wrong one.
    pub(super) fn check_value(&self) -> Result<Vec<u8>, RegistryError> {
        self.key.seal(&Purpose::new("master key", &[&self.id]), CHECK)
    }

    /// Returns whether a check value is this key's.
    pub(crate) fn opens(&self, check_value: &[u8]) -> bool {
        let opened = self.key.open(&Purpose::new("master key", &[&self.id]), check_value);
        opened.is_ok_and(|value| value.as_slice() == CHECK)
    }

    /// Derives a key for another purpose with HKDF (RFC 5869); the master key cannot be recovered from it.
    fn derive(&self, purpose: &str) -> Result<DerivedKey, RegistryError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        // This fails only for an output longer than 255 hashes (RFC 5869, section 2.3).
        Hkdf::<Sha256>::new(Some(b"pml derived key"), self.key.bytes())
            .expand(purpose.as_bytes(), bytes.as_mut())
            .map_err(|_| RegistryError::Invalid("a key cannot be derived".to_owned()))?;
        Ok(DerivedKey { id: self.id.clone(), bytes })
    }

    /// Derives the key that encrypts session handles.
    pub(super) fn session_key(&self) -> Result<SealingKey, Unreadable> {
        let derived = self.derive("mcp session").map_err(|_| Unreadable)?;
        SealingKey::from_slice(derived.bytes.as_ref())
    }

    pub(super) fn wrap(
        &self,
        org: &str,
        version: i32,
        key: &SealingKey,
    ) -> Result<Vec<u8>, RegistryError> {
        self.key.seal(&data_key(org, version), key.bytes())
    }

    pub(super) fn unwrap(
        &self,
        org: &str,
        version: i32,
        wrapped: &[u8],
    ) -> Result<SealingKey, Unreadable> {
        SealingKey::from_slice(&self.key.open(&data_key(org, version), wrapped)?)
    }
}

/// A key for a purpose other than sealing, derived from a master key.
pub struct DerivedKey {
    /// The name of the master key.
    pub id: String,
    /// The key, wiped from memory when dropped.
    pub bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn data_key(org: &str, version: i32) -> Purpose {
    Purpose::new("data key", &[org, &version.to_string()])
}

impl FromStr for MasterKey {
    type Err = MasterKeyError;

    fn from_str(text: &str) -> Result<Self, MasterKeyError> {
        // Files and command substitutions often end with a newline.
        let text = text.trim();
        if text.is_empty() {
            return Err(MasterKeyError::Empty);
        }
        let bytes = Zeroizing::new(decode(text).ok_or(MasterKeyError::Malformed)?);
        let key = SealingKey::from_slice(&bytes).map_err(|_| MasterKeyError::Malformed)?;
        if is_weak(&bytes) {
            return Err(MasterKeyError::Weak);
        }
        Ok(Self::of(key))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Decodes hex, or else base64.
fn decode(text: &str) -> Option<Vec<u8>> {
    // Hex first: 64 hex digits are valid base64 as well, of 48 other bytes.
    if text.len() == 2 * KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return text
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
    }
    BASE64.decode(text).ok()
}

/// Returns whether a key is text or follows a pattern. Random bytes match each of these tests with a probability below
/// 10^-12.
fn is_weak(bytes: &[u8]) -> bool {
    let different = bytes.iter().collect::<HashSet<_>>().len();
    let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    // The caller has checked that there are 32 bytes, so the slices below exist.
    let step = |pair: &[u8]| pair[1].wrapping_sub(pair[0]);
    let counts = bytes.windows(2).all(|pair| step(pair) == step(&bytes[..2]));
    // One half derived from the other: equal, reversed, or with the same change to each byte.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let is_mirrored = first.iter().eq(second.iter().rev());
    let mut changes = first.iter().zip(second).map(|(a, b)| a ^ b);
    let change = changes.next();
    let is_repeated = changes.all(|other| Some(other) == change);
    different < DIFFERENT_BYTES || is_text || counts || is_mirrored || is_repeated
}

/// The master keys of a gateway: the one that encrypts, and others during a rotation.
#[derive(Debug, Default)]
pub struct MasterKeys(Vec<MasterKey>);

impl MasterKeys {
    /// Wraps a list of keys; the first one becomes the current one of a new database.
    pub fn new(keys: Vec<MasterKey>) -> Self {
        Self(keys)
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key with this id.
    pub fn get(&self, id: &str) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.id == id)
    }

    /// Derives a key for another purpose from each master key, in order.
    pub(super) fn derive(&self, purpose: &str) -> Result<Vec<DerivedKey>, RegistryError> {
        self.0.iter().map(|key| key.derive(purpose)).collect()
    }

    /// Iterates over all keys, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &MasterKey> {
        self.0.iter()
    }

    pub(super) fn first(&self) -> Option<&MasterKey> {
        self.0.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "8f1c2b3a4d5e6f70819203a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7ef";

    #[test]
    fn a_key_is_read_from_base64_and_hex() {
        let key = MasterKey::generate().unwrap();
        let text = key.expose();
        assert_eq!(text.parse::<MasterKey>().unwrap().id(), key.id());
        let unpadded = text.trim_end_matches('=');
        assert_eq!(format!(" {unpadded}\n").parse::<MasterKey>().unwrap().id(), key.id());
        let hex = HEX.parse::<MasterKey>().unwrap();
        assert_eq!(hex.id(), HEX.to_uppercase().parse::<MasterKey>().unwrap().id());
        assert_ne!(hex.id(), key.id());
    }

    #[test]
    fn refuses_keys_that_can_be_guessed() {
        let encoded = |bytes: &[u8]| BASE64.encode(bytes);
        let counted: Vec<u8> = (0..32).collect();
        let half = decode(HEX).unwrap()[..16].to_vec();
        let mirrored: Vec<u8> = half.iter().rev().copied().collect();
        let inverted: Vec<u8> = half.iter().map(|byte| !byte).collect();
        for (text, expected) in [
            ("", MasterKeyError::Empty),
            (" \n", MasterKeyError::Empty),
            ("changeme", MasterKeyError::Malformed),
            ("secret", MasterKeyError::Malformed),
            (&HEX[..62], MasterKeyError::Malformed),
            (&format!("{HEX}00"), MasterKeyError::Malformed),
            ("not base64, not hex: !!!!!!!!!!!!!!!!!!!!!!!", MasterKeyError::Malformed),
            (&"0".repeat(64), MasterKeyError::Weak),
            (&"a5".repeat(32), MasterKeyError::Weak),
            (&"0123456789abcdef".repeat(4), MasterKeyError::Weak),
            (&encoded(&counted), MasterKeyError::Weak),
            (&HEX[..32].repeat(2), MasterKeyError::Weak),
            (&encoded(&[half.clone(), mirrored].concat()), MasterKeyError::Weak),
            (&encoded(&[half.clone(), inverted].concat()), MasterKeyError::Weak),
            (&encoded(b"changemechangemechangemechangeme"), MasterKeyError::Weak),
            (&encoded(b"correct horse battery staple 42!"), MasterKeyError::Weak),
        ] {
            let refused = text.parse::<MasterKey>().expect_err(text);
            assert_eq!(refused, expected, "{text}");
            assert!(text.trim().is_empty() || !refused.to_string().contains(text), "{refused}");
        }
        HEX.parse::<MasterKey>().unwrap();
    }

    #[test]
    fn a_check_value_detects_a_wrong_key() {
        let (key, other) = (MasterKey::generate().unwrap(), MasterKey::generate().unwrap());
        let value = key.check_value().unwrap();
        assert!(key.opens(&value) && !other.opens(&value) && !key.opens(b""));
    }

    /// SE-04: a wrapped key can be unwrapped only for its organisation and version.
    #[test]
    fn a_wrapped_key_is_bound_to_its_organisation() {
        let master = MasterKey::generate().unwrap();
        let key = SealingKey::generate().unwrap();
        let wrapped = master.wrap("acme", 1, &key).unwrap();
        assert_eq!(master.unwrap("acme", 1, &wrapped).unwrap().bytes(), key.bytes());
        master.unwrap("other", 1, &wrapped).unwrap_err();
        master.unwrap("acme", 2, &wrapped).unwrap_err();
        MasterKey::generate().unwrap().unwrap("acme", 1, &wrapped).unwrap_err();
    }

    #[test]
    fn derived_keys_differ_by_purpose_and_master_key() {
        let key = HEX.parse::<MasterKey>().unwrap();
        let derived = key.derive("sessions").unwrap();
        assert_eq!(derived.bytes, key.derive("sessions").unwrap().bytes);
        assert_ne!(derived.bytes, key.derive("other").unwrap().bytes);
        assert_ne!(derived.bytes, MasterKey::generate().unwrap().derive("sessions").unwrap().bytes);
        assert_ne!(*derived.bytes, *key.key.bytes());
        assert_eq!(derived.id, key.id());
        assert_eq!(format!("{derived:?}"), format!("DerivedKey {{ id: {:?}, .. }}", key.id()));
    }

    /// Values that older versions wrapped, checked and derived, with another library, are still accepted.
    #[test]
    fn accepts_values_of_older_versions() {
        let decode = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let master = HEX.parse::<MasterKey>().unwrap();
        assert_eq!(master.id(), "a5c5b831d024e89b");
        assert!(master.opens(&decode(
            "01212eda951398bfc44126e02099ea2eb957a0cbb295920a583811cdd1599789da9837fae3cb5114cc4d99"
        )));
        let wrapped = decode(
            "01bdd6c03f1a5d90bbc04d0c1bb8ef97660fcc5eed4cba0746c4bf61e9c6176628e003bea6db0917beae8a4aa8b07faa\
             30a53266dee94d46cb29394d12",
        );
        let expected: [u8; KEY_BYTES] = std::array::from_fn(|index| (index * 7 + 3) as u8);
        assert_eq!(master.unwrap("acme", 3, &wrapped).unwrap().bytes(), &expected);
        let derived = decode("94b8bd6ff506166afde75567234d7cc6c80ee217cd031733bbd08d0d8aecf72a");
        assert_eq!(master.derive("sessions, HS256").unwrap().bytes.as_slice(), derived);
        let parts = ["acme", "web", "alice", "pml.mcp.x", "https://x.test/mcp"];
        let handle = decode(
            "0106446b91c11173a0ccf06c38af57f5c3ab2c609344d39c92ef42baa57723f66012c576d6f4920057e14a168b",
        );
        let opened =
            master.session_key().unwrap().open(&Purpose::new("mcp session", &parts), &handle);
        assert_eq!(opened.unwrap().as_slice(), b"upstream-session");
    }

    /// SE-17: a master key is never shown.
    #[test]
    fn a_key_is_never_shown() {
        let key = HEX.parse::<MasterKey>().unwrap();
        let shown = format!("{key:?} {:?}", MasterKeys::new(vec![HEX.parse().unwrap()]));
        assert!(!shown.contains(HEX) && !shown.contains(key.expose().as_str()), "{shown}");
    }
}
