//! The settings of the metrics.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::listen_address;

/// Settings of the metrics. The token itself comes from `PML_METRICS_TOKEN`, and has no flag: every user of the machine
/// sees the flags of every process.
#[derive(Debug, Clone, Args)]
pub(crate) struct MetricsSettings {
    /// An additional address that serves `/metrics` to everyone who can reach it, and nothing else.
    #[arg(long, env = "PML_METRICS_LISTEN", value_name = "ADDR:PORT", value_parser = listen_address)]
    pub metrics_listen: Option<SocketAddr>,

    /// The file of the token with which the operator reads `/metrics` on the main address; or PML_METRICS_TOKEN.
    #[arg(long, env = "PML_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
}
