//! Sealing: AES-256-GCM with a random nonce, bound to the purpose of the bytes.
//!
//! A sealed value consists of a format byte, 12 bytes of nonce, the ciphertext, and 16 bytes of tag. Every failure to
//! open it returns the same error, so that the error reveals nothing.

use std::fmt;

use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use zeroize::{Zeroize as _, Zeroizing};

use crate::RegistryError;

/// The format byte of sealed values; the only format so far.
const FORMAT: u8 = 1;
/// The bytes of a nonce, and those of a tag.
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
/// The bytes of a key.
pub(super) const KEY_BYTES: usize = 32;

/// A sealed value cannot be opened; the reason is not revealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// A key that seals, wiped from memory when dropped.
pub(super) struct SealingKey(Zeroizing<[u8; KEY_BYTES]>);

impl SealingKey {
    /// Generates one from random bytes.
    pub(super) fn generate() -> Result<Self, RegistryError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        fill(bytes.as_mut())?;
        Ok(Self(bytes))
    }

    /// Creates a key from bytes; fails if their number is wrong.
    pub(super) fn from_slice(bytes: &[u8]) -> Result<Self, Unreadable> {
        let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| Unreadable)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Seals a value for a purpose.
    pub(super) fn seal(&self, purpose: &Purpose, value: &[u8]) -> Result<Vec<u8>, RegistryError> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        // Allocated with the final size: a reallocation would leave a copy of the plaintext behind.
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + value.len() + TAG_LEN);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value);
        let text = (&mut sealed[1 + NONCE_LEN..]).into();
        let tag = match self.cipher().encrypt_inout_detached(&nonce.into(), &purpose.0, text) {
            Ok(tag) => tag,
            Err(_) => {
                // The plaintext must not stay behind either.
                sealed.zeroize();
                let reason = "the value is too large to encrypt".to_owned();
                return Err(RegistryError::Invalid(reason));
            }
        };
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a value that was sealed for this purpose.
    pub(super) fn open(
        &self,
        purpose: &Purpose,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
        let (&format, rest) = sealed.split_first().ok_or(Unreadable)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(Unreadable)?;
        let (text, tag) = rest.split_last_chunk::<TAG_LEN>().ok_or(Unreadable)?;
        if format != FORMAT {
            return Err(Unreadable);
        }
        // `Zeroizing` wipes the buffer when dropped, also after a failed decryption.
        let mut value = Zeroizing::new(text.to_vec());
        let text = value.as_mut_slice().into();
        let (nonce, tag): (&Nonce<_>, &Tag<_>) = (nonce.into(), tag.into());
        self.cipher()
            .decrypt_inout_detached(nonce, &purpose.0, text, tag)
            .map_err(|_| Unreadable)?;
        Ok(value)
    }

    /// Expands the key for one use; the round keys are wiped when the cipher is dropped.
    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new((&*self.0).into())
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The associated data of sealed bytes, which open only with the same data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Purpose(Vec<u8>);

impl Purpose {
    /// Encodes a purpose and its parts. Each part is preceded by its length, so that different lists have different
    /// encodings.
    pub(super) fn new(kind: &str, parts: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for part in std::iter::once(&kind).chain(parts) {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self(bytes)
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), RegistryError> {
    getrandom::fill(bytes).map_err(|error| {
        RegistryError::Invalid(format!("the system has no random numbers: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn purpose() -> Purpose {
        Purpose::new("secret", &["acme", "web", "alice", "TAVILY_API_KEY", "1"])
    }

    #[test]
    fn opens_only_for_the_same_purpose() {
        let key = SealingKey::generate().unwrap();
        for value in [&b""[..], b"x", &[7; 8_192]] {
            let sealed = key.seal(&purpose(), value).unwrap();
            assert_eq!(sealed.len(), 29 + value.len());
            assert_eq!(key.open(&purpose(), &sealed).unwrap().as_slice(), value);
            let other = SealingKey::generate().unwrap();
            other.open(&purpose(), &sealed).unwrap_err();
            // The same concatenated text, split differently.
            let shifted = Purpose::new("secret", &["acme", "weba", "lice", "TAVILY_API_KEY", "1"]);
            key.open(&shifted, &sealed).unwrap_err();
            let other_kind =
                Purpose::new("data key", &["acme", "web", "alice", "TAVILY_API_KEY", "1"]);
            key.open(&other_kind, &sealed).unwrap_err();
        }
    }

    /// Values that older versions sealed, with another library, can still be opened.
    #[test]
    fn opens_values_of_older_versions() {
        let bytes: [u8; KEY_BYTES] = std::array::from_fn(|index| (index * 7 + 3) as u8);
        let key = SealingKey::from_slice(&bytes).unwrap();
        let golden: [(&str, &[u8]); 3] = [
            (
                "01c7fd59eb61f27bdca0785657fefc746a747503ddee64635a07c4629be111f3aabe3b7ffc621b1bd90e463081ae",
                b"tvly-golden-value",
            ),
            ("01457832e9f0696c7931858ba69f4f46cf9b04363869972b86a71c109b", b""),
            (
                "0107aa80946357ea8ad10a2e5f2525a6610b602a493fa0f92a3067624412d5e870f12afd675910c261c038b45c31ac\
                 54469be3ca7a8ff80c86e608c5407f6dded0e42590c94f80abaa0117e2dc3213356d4dc92bef755fac0e67efaf3b\
                 abe65ead82f10d21727ae7382a37d0c6d2145ff86afdf54e3b7e105be8d0032c4d525b31",
                &[7; 100],
            ),
        ];
        for (sealed, value) in golden {
            let sealed = data_encoding::HEXLOWER.decode(sealed.as_bytes()).unwrap();
            assert_eq!(key.open(&purpose(), &sealed).unwrap().as_slice(), value);
        }
    }

    /// SE-06: any flipped bit, wrong length or other format byte gives the same error, without a panic.
    #[test]
    fn every_corruption_gives_the_same_error() {
        let key = SealingKey::generate().unwrap();
        let sealed = key.seal(&purpose(), b"canary-secret-value").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&purpose(), &flipped), Err(Unreadable), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(key.open(&purpose(), &sealed[..length]), Err(Unreadable), "{length} bytes");
        }
        for format in (0..=255).filter(|format| *format != FORMAT) {
            let mut other = sealed.clone();
            other[0] = format;
            assert_eq!(key.open(&purpose(), &other), Err(Unreadable), "format {format}");
        }
        let longer = [sealed.as_slice(), &[0]].concat();
        assert_eq!(key.open(&purpose(), &longer), Err(Unreadable));
        assert_eq!(key.open(&purpose(), &[255; 4_096]), Err(Unreadable));
        key.open(&purpose(), &sealed).unwrap();
    }

    /// SE-05: nonces do not repeat, on one gateway or across two.
    #[test]
    fn nonces_do_not_repeat() {
        let key = SealingKey::generate().unwrap();
        let replica = SealingKey::from_slice(key.bytes()).unwrap();
        let mut seen = HashSet::new();
        for number in 0..100_000 {
            let sealer = if number % 2 == 0 { &key } else { &replica };
            let sealed = sealer.seal(&purpose(), b"x").unwrap();
            assert!(seen.insert(sealed[1..=NONCE_LEN].to_vec()), "a nonce repeated");
        }
    }

    /// SE-11: the time of a failure does not depend on which byte of the tag differs (Welch's t-test).
    #[test]
    fn failure_time_does_not_reveal_the_wrong_byte() {
        const EACH: usize = 50_000;
        let key = SealingKey::generate().unwrap();
        let sealed = key.seal(&purpose(), b"canary-secret-value").unwrap();
        let (mut early, mut late) = (sealed.clone(), sealed.clone());
        early[sealed.len() - 16] ^= 1;
        late[sealed.len() - 1] ^= 1;
        // The slowest tenth is noise and is dropped, as in `dudect`.
        let mean_and_error = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.truncate(EACH * 9 / 10);
            let count = times.len() as f64;
            let mean = times.iter().sum::<f64>() / count;
            let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
            (mean, squares / (count - 1.0) / count)
        };
        let t = || {
            let mut times = [Vec::with_capacity(EACH), Vec::with_capacity(EACH)];
            let mut order = vec![0; 2 * EACH];
            getrandom::fill(&mut order).unwrap();
            for place in order {
                let class = usize::from(place % 2);
                let forged = [&early, &late][class];
                let start = std::time::Instant::now();
                let opened = key.open(&purpose(), std::hint::black_box(forged));
                let nanoseconds = start.elapsed().as_nanos() as f64;
                assert_eq!(std::hint::black_box(opened), Err(Unreadable));
                if times[class].len() < EACH {
                    times[class].push(nanoseconds);
                }
            }
            let [(a, a_error), (b, b_error)] = times.each_mut().map(mean_and_error);
            (a - b) / (a_error + b_error).sqrt()
        };
        // A leak shows in every run; noise from a busy machine does not.
        let all: Vec<f64> = (0..5).map(|_| t()).collect();
        assert!(all.iter().any(|t| t.abs() < 4.5), "{all:?}");
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = SealingKey::from_slice(&[0xab; KEY_BYTES]).unwrap();
        assert_eq!(format!("{key:?}"), "[redacted]");
        SealingKey::from_slice(&[0; 31]).unwrap_err();
        SealingKey::from_slice(&[0; 33]).unwrap_err();
    }
}
