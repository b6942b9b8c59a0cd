//! The settings of connection limits.

use clap::Args;

/// Settings of connections.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectionSettings {
    /// The maximum number of connections. Default: two thirds of the open-file limit, at most 8192.
    #[arg(long, env = "PML_CONNECTIONS", value_name = "N", value_parser = parse_count)]
    pub connections: Option<usize>,

    /// The maximum number of connections from one address. Default: half of all. Trusted proxies are exempt.
    #[arg(long, env = "PML_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = parse_count)]
    pub connections_per_address: Option<usize>,
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected a number from 1".to_owned()),
    }
}
