//! Logging, set up once.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging to stderr: text on a terminal, JSON lines elsewhere.
///
/// # Errors
/// Returns an error when `filter` is not a valid filter.
pub fn start(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| anyhow::anyhow!("PML_LOG is not a log filter: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        builder.with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
    Ok(())
}
