//! The settings of how many connections there may be.

use clap::Args;

use crate::connections::Limits;

/// Settings of connections.
#[derive(Debug, Clone, Args)]
pub struct ConnectionSettings {
    /// Connections at the same time, at most. Default: two thirds of the files that may be open, at most 8192.
    #[arg(long, env = "PML_CONNECTIONS", value_name = "N", value_parser = parse_count)]
    pub connections: Option<usize>,

    /// Those of one address. Default: half of all. Trusted proxies have no such limit.
    #[arg(long, env = "PML_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = parse_count)]
    pub connections_per_address: Option<usize>,
}

impl ConnectionSettings {
    /// Returns the limits where so many files may be open.
    pub fn limits(&self, open_files: u64) -> Limits {
        Limits::new(open_files, self.connections, self.connections_per_address)
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected a number from 1".to_owned()),
    }
}
