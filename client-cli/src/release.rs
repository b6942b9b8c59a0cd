//! Releases of `pml`: which version is the newest, and what its files are.
//!
//! A release is a folder or a web address with `latest.txt`, its signature `latest.txt.minisig`, and the files of each
//! version in a folder of its own. The signature covers `latest.txt`, which has the hash of each file.

mod manifest;
mod place;
mod replace;
mod source;

use std::path::Path;

use minisign_verify::{PublicKey, Signature};

pub(crate) use self::manifest::{File, Manifest};
pub(crate) use self::place::{Owner, owner_of};
pub(crate) use self::replace::{Installation, ReplaceError};
pub(crate) use self::source::Source;
use crate::files::records::RecordFile;

/// The manifest in a release.
const MANIFEST: &str = "latest.txt";
/// Its signature.
const SIGNATURE: &str = "latest.txt.minisig";
/// The largest manifest and the largest signature, in bytes.
const TEXT_LIMIT: u64 = 64 * 1024;
/// The only channel.
const CHANNEL: &str = "stable";

/// The public keys that this program trusts, separated by spaces, and where its releases are. They are set when a release
/// is built.
const KEYS: Option<&str> = option_env!("PML_RELEASE_KEYS");
const URL: Option<&str> = option_env!("PML_RELEASE_URL");

/// Why a release is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReleaseError {
    /// This program does not know where its releases are, or whose they are.
    #[error("this `pml` was not built as a release, so it does not know {0}")]
    NotARelease(&'static str),
    /// A public key is invalid.
    #[error("`{0}` is not a public key of minisign")]
    Key(String),
    /// Something cannot be read.
    #[error("cannot read `{from}`: {reason}")]
    Unreadable {
        /// What.
        from: String,
        /// Why.
        reason: String,
    },
    /// The signature is not that of a trusted key.
    #[error("the signature of `{0}` is not valid for a trusted key, so nothing of it was used")]
    Signature(String),
    /// The manifest is invalid.
    #[error("`latest.txt` of the release is invalid: {0}")]
    Manifest(String),
    /// It is no release that may be installed.
    #[error("the release is refused: {0}")]
    Refused(String),
}

/// Where releases are and whose they are.
#[derive(Debug)]
pub(crate) struct Trusted {
    source: Source,
    keys: Vec<PublicKey>,
}

impl Trusted {
    /// Uses the given place and key instead of those that this program was built with.
    ///
    /// # Errors
    /// Returns what is missing or invalid.
    pub(crate) fn new(from: Option<&str>, key: Option<&str>) -> Result<Self, ReleaseError> {
        // A release that is built without an address has an empty one.
        let built = URL.filter(|url| !url.is_empty());
        let from = from.or(built).ok_or(ReleaseError::NotARelease("where releases are"))?;
        let keys = key.or(KEYS).ok_or(ReleaseError::NotARelease("whose signatures to trust"))?;
        let keys = keys
            .split_whitespace()
            .map(|key| PublicKey::from_base64(key).map_err(|_| ReleaseError::Key(key.to_owned())));
        let keys: Vec<PublicKey> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(ReleaseError::NotARelease("whose signatures to trust"));
        }
        Ok(Self { source: Source::parse(from)?, keys })
    }

    /// Returns where releases are.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Reads and verifies the manifest of the newest release.
    ///
    /// # Errors
    /// Returns [`ReleaseError`] if it cannot be read, or is not signed, or invalid.
    pub(crate) async fn manifest(&self) -> Result<Manifest, ReleaseError> {
        let text = self.source.text(MANIFEST, TEXT_LIMIT).await?;
        let signature = self.source.text(SIGNATURE, TEXT_LIMIT).await?;
        let shown = || self.source.shown(MANIFEST);
        let signature =
            Signature::decode(&signature).map_err(|_| ReleaseError::Signature(shown()))?;
        // Signatures of the older form, which cover the file and not its hash, are accepted too: `openssl` of
        // `install.sh` can verify only them. The file is small.
        let is_signed =
            self.keys.iter().any(|key| key.verify(text.as_bytes(), &signature, true).is_ok());
        if !is_signed {
            return Err(ReleaseError::Signature(shown()));
        }
        Manifest::parse(&text)
    }
}

/// The newest release that was seen, among the user's own records: an older one is not accepted any more.
#[derive(Debug)]
pub(crate) struct Seen(RecordFile);

impl Seen {
    /// Returns the record in the folder of the user's own records.
    pub(crate) fn of(records: &Path) -> Self {
        Self(RecordFile::named(records, "release", CHANNEL.to_owned(), 128))
    }

    /// Checks that a release is in force now, and not older than this program or than one that was seen before.
    ///
    /// # Errors
    /// Returns why it is refused.
    pub(crate) fn check(
        &self,
        manifest: &Manifest,
        now: chrono::DateTime<chrono::Utc>,
    ) -> Result<(), ReleaseError> {
        let refused = |reason: String| Err(ReleaseError::Refused(reason));
        if manifest.channel != CHANNEL {
            return refused(format!(
                "it is of the channel `{}`, not `{CHANNEL}`",
                protocol::escape_text(&manifest.channel)
            ));
        }
        if manifest.expires <= now {
            return refused(format!(
                "its statement of what is newest expired on {}, and a newer one is not there; check this machine's clock",
                manifest.expires.format("%Y-%m-%d")
            ));
        }
        let seen = self.0.read().and_then(|text| String::from_utf8(text).ok());
        if let Some(seen) = seen.as_deref().and_then(manifest::version_of)
            && manifest.version < seen
        {
            return refused(format!(
                "it says that {} is the newest version, and {} was seen before",
                manifest.shown(),
                manifest::shown(seen)
            ));
        }
        Ok(())
    }

    /// Remembers a release.
    ///
    /// # Errors
    /// Returns why it cannot be stored.
    pub(crate) fn remember(&self, manifest: &Manifest) -> Result<(), std::io::Error> {
        self.0.write(manifest.shown().as_bytes())
    }
}

/// Returns the version of this program.
pub(crate) fn own_version() -> manifest::Version {
    manifest::version_of(env!("CARGO_PKG_VERSION")).unwrap_or_default()
}
