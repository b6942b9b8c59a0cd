//! Certificates of an authority of the tests, and a client of TLS that shows which certificate it was given.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{PATIENCE, guard};

/// The settings of `openssl ca`, which, unlike the other commands, takes any dates.
const SETTINGS: &str = "\
[ca]
default_ca = own
[own]
database = index
rand_serial = yes
new_certs_dir = .
certificate = ca.crt
private_key = ca.key
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = optional
";

/// A certificate authority of its own.
pub(crate) struct Authority {
    folder: PathBuf,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    /// The file of the certificate.
    pub(crate) certificate: PathBuf,
    /// The file of the key, in the form PKCS#8.
    pub(crate) key: PathBuf,
}

/// The alternative names of certificates for gateways of the tests.
pub(crate) const NAMES: &str = "DNS:localhost,IP:127.0.0.1";

impl Authority {
    /// Creates an authority.
    pub(crate) fn new() -> Self {
        let authority = Self { folder: guard::folder("tls") };
        fs::create_dir_all(&authority.folder).unwrap();
        fs::write(authority.folder.join("ca.cnf"), SETTINGS).unwrap();
        fs::write(authority.folder.join("index"), "").unwrap();
        let new =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 9 -subj /CN=Tests";
        authority.openssl(&format!("{new} -keyout ca.key -out ca.crt"));
        authority
    }

    /// Returns the folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file of its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Runs `openssl` in its folder; the arguments are separated by spaces.
    #[track_caller]
    pub(crate) fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&self.folder);
        let output = command.output().expect("`openssl` runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {stderr}");
    }

    /// Issues a certificate that is valid for 90 days.
    #[track_caller]
    pub(crate) fn issue(&self, file: &str) -> Issued {
        self.issue_with(file, NAMES, "ec -pkeyopt ec_paramgen_curve:P-256", ["-1 day", "+90 days"])
    }

    /// Issues a certificate for these names, with this kind of key and these dates.
    #[track_caller]
    pub(crate) fn issue_with(
        &self,
        file: &str,
        names: &str,
        kind: &str,
        dates: [&str; 2],
    ) -> Issued {
        let [from, to] = dates.map(|date| {
            let output = Command::new("date").args(["-u", "-d", date, "+%Y%m%d%H%M%SZ"]).output();
            String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
        });
        let new = format!("req -newkey {kind} -noenc -subj /CN=gateway");
        let names = format!("-addext subjectAltName={names}");
        self.openssl(&format!("{new} {names} -keyout {file}.key -out {file}.csr"));
        let sign = format!("ca -config ca.cnf -batch -notext -startdate {from} -enddate {to}");
        self.openssl(&format!("{sign} -in {file}.csr -out {file}.crt"));
        let path = |ending: &str| self.folder.join(format!("{file}.{ending}"));
        Issued { certificate: path("crt"), key: path("key") }
    }

    /// Connects to a gateway as a client that trusts only this authority, and completes the handshake.
    pub(crate) fn connect(&self, url: &str) -> Encrypted {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificate()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = url.strip_prefix("https://").expect("it serves HTTPS");
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream).unwrap();
        }
        Encrypted(StreamOwned::new(session, stream))
    }
}

impl Issued {
    /// Returns the settings of a gateway that uses it.
    pub(crate) fn settings(&self) -> [(&'static str, &str); 2] {
        [
            ("PML_TLS_CERT_FILE", self.certificate.to_str().unwrap()),
            ("PML_TLS_KEY_FILE", self.key.to_str().unwrap()),
        ]
    }

    /// Returns the certificate.
    pub(crate) fn der(&self) -> Vec<u8> {
        CertificateDer::from_pem_file(&self.certificate).unwrap().to_vec()
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Encrypted {
    /// Returns the certificate of the gateway.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until a text has arrived; returns everything that was read.
    #[track_caller]
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut bytes = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let read = String::from_utf8_lossy(&bytes);
            if read.contains(text) {
                return read.into_owned();
            }
            let count = self.0.read(&mut piece).unwrap_or_default();
            assert!(count > 0, "it was closed before `{text}`: {read:?}");
            bytes.extend_from_slice(&piece[..count]);
        }
    }
}
