//! The export of spans: its settings, and its start.

use std::time::Duration;

use anyhow::Context as _;
use execution::spans::{self, Settings};

use crate::{http_client, private_settings};

/// The time limit for one request to the collector.
const LIMIT: Duration = Duration::from_secs(5);

/// Reads where spans are exported to; `None` if they are not.
///
/// # Errors
/// Returns which setting is wrong.
pub(in crate::commands) fn settings() -> anyhow::Result<Option<Settings>> {
    let variable = |name: &'static str| match private_settings::taken(name) {
        Some(secret) => Some(secret.to_string()),
        None => std::env::var(name).ok(),
    };
    Ok(Settings::read(variable)?)
}

/// Starts to export spans, in a task of the current runtime.
///
/// # Errors
/// Returns an error when the HTTP client or the exporter cannot be created.
pub(super) fn start(settings: Settings) -> anyhow::Result<()> {
    let http = http_client::for_named(LIMIT).build()?;
    spans::start(settings, http, "pml-server", env!("CARGO_PKG_VERSION"))
        .context("cannot export spans")
}
