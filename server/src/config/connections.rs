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

    /// For how many seconds the gateway serves on after a signal to stop, with `/ready` failing, so that balancers notice.
    ///
    /// Behind a balancer, set more than its health checks take to notice. A second signal ends the wait.
    #[arg(
        long,
        env = "PML_DRAIN_SECONDS",
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=300)
    )]
    pub drain_seconds: u16,
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected a number from 1".to_owned()),
    }
}
