//! Ed25519 keys: this machine's own, and those that the user trusts.
//!
//! A key id is the SHA-256 of the key as a `SubjectPublicKeyInfo` (RFC 8410), in hex digits. `openssl pkey -pubin -outform
//! DER | sha256sum` computes the same.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use execution::files::atomic::{self, Existing};
use protocol::Integrity;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustix::fs::{Mode, OFlags};

use crate::files::records::name_of_hash;

/// The file of this machine's key among the user's records, a PKCS #8 document.
const FILE: &str = "signing-key";
/// The folder of trusted keys among the user's settings.
const TRUSTED: &str = "trusted-keys";
/// The maximum size of a key's file in bytes.
const LIMIT: u64 = 4 * 1024;
/// The maximum number of trusted keys.
const TRUSTED_LIMIT: usize = 1000;
/// What precedes the 32 bytes of an Ed25519 key in its `SubjectPublicKeyInfo`.
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The system reported an error.
    #[error("`{path}`: {source}", path = path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a key; the reason is the rest of a sentence.
    #[error("`{path}` {reason}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// No key could be made.
    #[error("no key could be made: the system gave no random bytes")]
    NoRandom,
}

impl KeyError {
    fn system(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::System { path: path.to_owned(), source: error.into() }
    }

    fn invalid(path: &Path, reason: &'static str) -> Self {
        Self::Invalid { path: path.to_owned(), reason }
    }
}

/// This machine's key.
pub(crate) struct SigningKey {
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// Reads the key of the user whose records are in this folder, and makes it if there is none.
    ///
    /// # Errors
    /// Returns why it cannot be read or made. One that others can read is refused.
    pub(crate) fn of_user(records: &Path) -> Result<Self, KeyError> {
        if let Some(key) = Self::find(records)? {
            return Ok(key);
        }
        let path = records.join(FILE);
        let made =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandom)?;
        let write = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(records)?;
            let folder = File::open(records)?;
            let mode = Some(Mode::from_raw_mode(0o600));
            atomic::write(folder, FILE, made.as_ref(), mode, Existing::Kept)
        };
        match write() {
            Ok(()) => {}
            // Another `pml` has made it in the meantime: there is one key.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(KeyError::system(&path, error)),
        }
        Self::find(records)?.ok_or_else(|| KeyError::system(&path, io::ErrorKind::NotFound))
    }

    /// Reads the key; `None` if there is none.
    ///
    /// # Errors
    /// As [`of_user`](Self::of_user).
    pub(crate) fn find(records: &Path) -> Result<Option<Self>, KeyError> {
        let path = records.join(FILE);
        let Some((file, bytes)) = read(&path)? else { return Ok(None) };
        let mode = file.metadata().map_err(|error| KeyError::system(&path, error))?.permissions();
        if mode.mode() & 0o077 != 0 {
            let reason =
                "can be read by others, so it proves nothing; remove it, and a new key is made";
            return Err(KeyError::invalid(&path, reason));
        }
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| {
            KeyError::invalid(&path, "is not an Ed25519 key; remove it, and a new key is made")
        })?;
        Ok(Some(Self { pair }))
    }

    /// Returns its public part.
    pub(crate) fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// The public part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads a key from a file.
    ///
    /// # Errors
    /// Returns why it cannot be read, or is none.
    pub(crate) fn read(path: &Path) -> Result<Self, KeyError> {
        let found = read(path)?;
        let (_, bytes) = found.ok_or_else(|| KeyError::system(path, io::ErrorKind::NotFound))?;
        let key = std::str::from_utf8(&bytes).ok().and_then(Self::from_pem);
        key.ok_or_else(|| {
            let reason =
                "is not the public part of an Ed25519 key in PEM form, as `pml runs key` prints it";
            KeyError::invalid(path, reason)
        })
    }

    /// Parses the one PEM form that [`to_pem`](Self::to_pem) has.
    pub(super) fn from_pem(text: &str) -> Option<Self> {
        let encoded = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?.trim();
        let der = STANDARD.decode(encoded).ok()?;
        Some(Self(der.strip_prefix(&PREFIX)?.try_into().ok()?))
    }

    /// Returns it in PEM form.
    pub(crate) fn to_pem(self) -> String {
        format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(self.der()))
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> String {
        name_of_hash(Integrity::of(&self.der()))
    }

    /// Returns whether a signature of a message is this key's.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }

    fn der(&self) -> Vec<u8> {
        [&PREFIX[..], &self.0].concat()
    }
}

/// The keys that the user trusts: files of the settings, named after their ids.
pub(crate) struct TrustedKeys {
    folder: PathBuf,
}

impl TrustedKeys {
    /// Returns those of the user with these settings.
    pub(crate) fn of_user(settings: &Path) -> Self {
        Self { folder: settings.join(TRUSTED) }
    }

    /// Returns all of them.
    ///
    /// # Errors
    /// Returns what cannot be read. An invalid file is never skipped.
    pub(crate) fn all(&self) -> Result<Vec<PublicKey>, KeyError> {
        let failed = |error: io::Error| KeyError::system(&self.folder, error);
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut keys = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "pem") {
                continue;
            }
            if keys.len() == TRUSTED_LIMIT {
                return Err(KeyError::invalid(&self.folder, "has more than 1,000 keys"));
            }
            let key = PublicKey::read(&path)?;
            if path.file_stem().is_none_or(|name| name != key.id().as_str()) {
                return Err(KeyError::invalid(&path, "is not named after the id of its key"));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// Returns why it cannot be written.
    pub(crate) fn add(&self, key: PublicKey) -> Result<(), KeyError> {
        let write = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            let (folder, name) = (File::open(&self.folder)?, format!("{}.pem", key.id()));
            let mode = Some(Mode::from_raw_mode(0o600));
            atomic::write_durably(folder, &name, key.to_pem().as_bytes(), mode, Existing::Replaced)
        };
        write().map_err(|error| KeyError::system(&self.folder, error))
    }
}

/// Reads a small regular file; `None` if there is none.
fn read(path: &Path) -> Result<Option<(File, Vec<u8>)>, KeyError> {
    // Opening a FIFO does not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(KeyError::system(path, errno)),
    };
    let is_file = file.metadata().map_err(|error| KeyError::system(path, error))?.is_file();
    let mut bytes = Vec::new();
    if is_file {
        (&file).take(LIMIT + 1).read_to_end(&mut bytes).map_err(|e| KeyError::system(path, e))?;
    }
    if !is_file || bytes.len() as u64 > LIMIT {
        return Err(KeyError::invalid(path, "is not a key's file"));
    }
    Ok(Some((file, bytes)))
}
