//! The export of spans: its settings, its start, and its end.

use std::time::Duration;

use execution::spans::{self, Settings};

use crate::http_client::{self, Credential};

/// The time limit for one request to the collector.
const LIMIT: Duration = Duration::from_secs(5);

/// How long the end of a command waits for the collector.
const FLUSH: Duration = Duration::from_secs(1);

/// Starts to export spans, if the user's environment has the address of a collector. A project cannot set it: neither
/// `.pml.json` nor `.env` is read for it.
///
/// What is wrong is a warning: the variables may be meant for other programs.
pub(super) fn start() {
    let settings = match Settings::read(|name| std::env::var(name).ok()) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(error) => return tracing::warn!("Spans are not exported: {error}"),
    };
    // The headers may hold a credential.
    let credential = if settings.headers.is_empty() { Credential::None } else { Credential::Sent };
    let client = http_client::builder(&settings.endpoint, credential);
    let client = client.map_err(|error| error.to_string()).and_then(|builder| {
        builder.timeout(LIMIT).build().map_err(|error| error.without_url().to_string())
    });
    let started = client.and_then(|client| {
        spans::start(settings, client, "pml", env!("CARGO_PKG_VERSION"))
            .map_err(|error| error.to_string())
    });
    if let Err(error) = started {
        tracing::warn!("Spans are not exported: {error}");
    }
}

/// Sends what waits, at the end of a command.
pub(super) async fn finish() {
    spans::flush(FLUSH).await;
}
