//! Logging, set up once.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use crate::error::CliError;

/// Logs to stderr only: stdout belongs to results and to the MCP transport.
///
/// # Errors
/// Returns an error when `filter` is not a valid filter.
pub(crate) fn start(filter: &str) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| CliError::cannot_run(format!("PML_LOG is not a log filter: {error}")))?;
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    registry().with(filter).with(limits()).with(lines).init();
    Ok(())
}

/// What may be logged at all, whatever the filter says.
///
/// Libraries log whole messages at their lower levels, and those hold programs,
/// arguments and results. Their warnings stay, but for those of the MCP
/// library, some of which quote a message.
fn limits() -> Targets {
    let ours = ["client_cli", "pml", "sandbox", "analysis"].map(|name| (name, LevelFilter::TRACE));
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("rmcp", LevelFilter::ERROR)
        .with_targets(ours)
}
