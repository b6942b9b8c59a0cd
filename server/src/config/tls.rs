//! The settings of TLS.

use std::path::PathBuf;

use clap::Args;

/// Settings of TLS. Both files, or neither.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsSettings {
    /// The file of the gateway's certificate and its intermediate certificates, in PEM form; the gateway then serves
    /// HTTPS.
    ///
    /// A changed file is used for new connections within seconds, or at once after SIGHUP.
    #[arg(long, env = "PML_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// The file of the certificate's private key, in PEM form, unencrypted.
    #[arg(long, env = "PML_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
}

impl TlsSettings {
    /// Returns whether the gateway is to serve HTTPS.
    pub(crate) fn is_set(&self) -> bool {
        self.tls_cert_file.is_some() || self.tls_key_file.is_some()
    }
}
