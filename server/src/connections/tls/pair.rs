//! A certificate and its private key, from two files.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use zeroize::Zeroizing;

use super::validity::Validity;

const CERTIFICATE: &str = "PML_TLS_CERT_FILE";
const KEY: &str = "PML_TLS_KEY_FILE";

/// The largest file; a chain has a few KiB.
const FILE_LIMIT: u64 = 1024 * 1024;
/// The permissions of a key's file that are warned of. The group may read it, because orchestrators mount secrets this
/// way.
const OTHERS: u32 = 0o027;

/// Why a pair cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{setting}: {reason}; {remedy}")]
pub(crate) struct PairError {
    /// The setting of the file.
    pub setting: &'static str,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub remedy: &'static str,
}

impl PairError {
    fn new(setting: &'static str, reason: impl Into<String>, remedy: &'static str) -> Self {
        Self { setting, reason: reason.into(), remedy }
    }
}

/// The files of a pair.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    /// Takes the two settings; `None` if neither is set.
    ///
    /// # Errors
    /// Returns an error when only one of them is set.
    pub(crate) fn new(
        certificate: Option<&Path>,
        key: Option<&Path>,
    ) -> Result<Option<Self>, PairError> {
        let remedy = "set both PML_TLS_CERT_FILE and PML_TLS_KEY_FILE, or neither";
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(Self { certificate: certificate.to_owned(), key: key.to_owned() }))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => Err(PairError::new(CERTIFICATE, "it is not set", remedy)),
            (Some(_), None) => Err(PairError::new(KEY, "it is not set", remedy)),
        }
    }

    /// Returns the file of the certificate.
    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Returns the file of the key.
    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    /// Returns whether other users can read or change the key's file.
    pub(crate) fn key_is_open_to_others(&self) -> bool {
        std::fs::metadata(&self.key).is_ok_and(|metadata| metadata.mode() & OTHERS != 0)
    }

    /// Reads and checks the pair.
    ///
    /// # Errors
    /// Returns an error when no client could connect with it now.
    pub(crate) fn load(&self) -> Result<Pair, PairError> {
        self.read().parse()
    }

    /// Reads the files, without judging them.
    pub(super) fn read(&self) -> Contents {
        Contents {
            files: self.clone(),
            certificate: read(CERTIFICATE, &self.certificate),
            key: read(KEY, &self.key),
        }
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, PairError> {
    let shown = path.display();
    // Without the flag, opening a named pipe would wait for its writer. It has no effect on regular files.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let unreadable = |error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "correct the path, or create the file",
            _ => "let the gateway's user read it",
        };
        PairError::new(setting, format!("could not read `{shown}`: {error}"), remedy)
    };
    let file = opened.map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > FILE_LIMIT {
        let reason = format!("`{shown}` is not a regular file of at most 1 MiB");
        return Err(PairError::new(setting, reason, "name a file in PEM form"));
    }
    // Its final size, so that no copy of a key is left behind when it grows.
    let size = usize::try_from(metadata.len()).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    file.take(FILE_LIMIT).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// What the files contained at one moment, or why they could not be read.
pub(super) struct Contents {
    files: Files,
    certificate: Result<Zeroizing<Vec<u8>>, PairError>,
    key: Result<Zeroizing<Vec<u8>>, PairError>,
}

impl Contents {
    /// Returns a value that is the same for the same contents and failures.
    pub(super) fn fingerprint(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for contents in [&self.certificate, &self.key] {
            let hash = match contents {
                Ok(bytes) => blake3::hash(bytes),
                Err(error) => blake3::hash(error.to_string().as_bytes()),
            };
            hasher.update(&[u8::from(contents.is_ok())]).update(hash.as_bytes());
        }
        hasher.finalize()
    }

    /// Checks the pair.
    ///
    /// # Errors
    /// Returns an error when no client could connect with it now.
    pub(super) fn parse(self) -> Result<Pair, PairError> {
        let (certificate, key) = (self.certificate?, self.key?);
        let shown = self.files.certificate.display();
        let of_certificate = |reason: String, remedy| PairError::new(CERTIFICATE, reason, remedy);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
            of_certificate(
                format!("`{shown}` has no certificates in PEM form"),
                "write certificates between `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`",
            )
        })?;
        let key = parse_key(&key, &self.files.key)?;
        let validity = Validity::of(&chain[0]).map_err(|_| {
            of_certificate(
                format!("the first certificate in `{shown}` is malformed"),
                "obtain it again from its authority",
            )
        })?;
        let pair = Pair { certified: CertifiedKey::new(chain, key), validity };
        match pair.certified.keys_match() {
            // A kind of key that cannot be compared.
            Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(TlsError::InconsistentKeys(_)) => {
                return Err(PairError::new(
                    KEY,
                    format!(
                        "the key in `{}` does not belong to the first certificate in `{shown}`",
                        self.files.key.display()
                    ),
                    "put the gateway's own certificate first, then the intermediate ones, and name its key",
                ));
            }
            Err(error) => {
                return Err(of_certificate(
                    format!("the first certificate in `{shown}` cannot be used: {error}"),
                    "use a certificate of version 3 for a server",
                ));
            }
        }
        let now = now();
        if now > validity.not_after {
            return Err(of_certificate(
                format!("the certificate in `{shown}` expired on {}", date(validity.not_after)),
                "renew it, or correct this machine's clock",
            ));
        }
        if now < validity.not_before {
            return Err(of_certificate(
                format!("the certificate in `{shown}` is valid from {}", date(validity.not_before)),
                "use one that is already valid, or correct this machine's clock",
            ));
        }
        Ok(pair)
    }
}

/// Parses a key in any of the three usual forms. The messages never quote the file.
fn parse_key(
    text: &[u8],
    path: &Path,
) -> Result<std::sync::Arc<dyn rustls::sign::SigningKey>, PairError> {
    let shown = path.display();
    let Ok(key) = PrivateKeyDer::from_pem_slice(text) else {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        return Err(match is_encrypted {
            true => PairError::new(
                KEY,
                format!("the key in `{shown}` is encrypted"),
                "decrypt it with `openssl pkey`, and let only the gateway's user read it",
            ),
            false => PairError::new(
                KEY,
                format!("`{shown}` has no private key in PEM form"),
                "name the file with `-----BEGIN PRIVATE KEY-----`",
            ),
        });
    };
    provider().key_provider.load_private_key(key).map_err(|_| {
        PairError::new(
            KEY,
            format!("the key in `{shown}` is malformed or of an unsupported kind"),
            "use RSA of 2048 to 8192 bits, ECDSA on P-256 or P-384, or Ed25519",
        )
    })
}

/// A certificate and its key that belong together, and that were valid when they were read.
pub(crate) struct Pair {
    pub(super) certified: CertifiedKey,
    /// When the certificate is valid.
    pub validity: Validity,
}

impl Pair {
    /// Returns the gateway's own certificate, in DER form.
    pub(crate) fn certificate(&self) -> &[u8] {
        self.certified.cert.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// Returns whether clients accept the certificate for a host, which may have a port.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.certified.cert.first().is_some_and(|certificate| names(certificate, host))
    }
}

/// Returns whether a certificate names a host, which may have a port.
pub(super) fn names(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // An IPv6 address has colons, too, and brackets only before a port.
    let forms = [host, host.trim_matches(['[', ']']), without_port.trim_matches(['[', ']'])];
    let Some(name) = forms.into_iter().find_map(|form| ServerName::try_from(form).ok()) else {
        return false;
    };
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.and_then(|parsed| verify_server_name(&parsed, &name)).is_ok()
}

/// The only provider of cryptography.
pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Returns the seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns a moment as text.
pub(crate) fn date(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|it| chrono::DateTime::from_timestamp(it, 0));
    moment.map_or_else(String::new, |moment| moment.format("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For `gw.example` and `::1`; its first date is a `UTCTime`, and its last one a `GeneralizedTime`.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBmDCCAT6gAwIBAgIUSSDaFbARWWi6LYElL6j7ghh8q+EwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBdDAgFw0yNjExMjkxMTQ2MjFaGA8yMTI2MTEwNTExNDYyMVow
DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOJjP9yG7YBN
0X9gj9G2inP4aSnuWmXx9XUaGCYqvt7M5FR/J5+1h0OEoCRY6vol5TGoVIigsVQp
FY65Yi45NeWjfDB6MB0GA1UdDgQWBBSt5NqBKrcObSl8cF1nUB0bivxfSzAfBgNV
HSMEGDAWgBSt5NqBKrcObSl8cF1nUB0bivxfSzAPBgNVHRMBAf8EBTADAQH/MCcG
A1UdEQQgMB6CCmd3LmV4YW1wbGWHEAAAAAAAAAAAAAAAAAAAAAEwCgYIKoZIzj0E
AwIDSAAwRQIhAMO9sWrMdIchgI2N+CugoWbArXazvm7GoY3UoRLjW8RhAiBWfODR
iFDwvh+oC6Z3fAHRpm2n94TM3WtqhMgrmnOqwg==
-----END CERTIFICATE-----";

    #[test]
    fn both_forms_of_dates_are_read() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let validity = Validity { not_before: 1_795_952_781, not_after: 4_949_552_781 };
        assert_eq!(Validity::of(&certificate).unwrap(), validity);
    }

    /// A truncated or changed certificate is an error, never a panic.
    #[test]
    fn a_malformed_certificate_is_an_error() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        for length in 0..certificate.len() {
            assert!(Validity::of(&certificate[..length]).is_err(), "{length}");
        }
        for at in 0..certificate.len() {
            let mut changed = certificate.to_vec();
            changed[at] ^= 0xff;
            let _ = Validity::of(&changed);
        }
        assert!(Validity::of(b"canary").is_err());
    }

    #[test]
    fn a_certificate_is_for_its_alternative_names_only() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        for host in ["gw.example", "GW.example:8443", "[::1]", "[::1]:3001", "::1"] {
            assert!(names(&certificate, host), "{host}");
        }
        for host in ["t", "x.gw.example", "gw.example.evil.test", "127.0.0.1", "[::2]:1", "", "*"] {
            assert!(!names(&certificate, host), "{host}");
        }
    }
}
