//! The durations of MCP requests, by the semantic conventions of MCP that the spans follow, too.

use std::time::{Duration, Instant};

use prometheus::{HistogramOpts, Registry};

use super::UpstreamEnd;
use super::label::{Histograms, labels};

/// The bounds that the conventions recommend, in seconds.
const BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

labels! {
    /// `error.type` of the conventions.
    pub(crate) enum OperationError as "error_type" {
        /// It succeeded.
        None = "",
        /// The result says that the tool failed.
        Tool = "tool_error",
        /// The server could not be reached, or the connection was lost.
        Connection = "connection_error",
        /// The caller gave up, or the time ran out.
        Cancelled = "cancelled",
        /// It failed in another way.
        Other = "_OTHER",
    }
}

impl From<UpstreamEnd> for OperationError {
    fn from(end: UpstreamEnd) -> Self {
        match end {
            UpstreamEnd::Success => Self::None,
            // A result that says so, an error of the protocol, or no result.
            UpstreamEnd::Error => Self::Other,
            UpstreamEnd::Unavailable | UpstreamEnd::Paused => Self::Connection,
            UpstreamEnd::Cancelled => Self::Cancelled,
        }
    }
}

/// The durations of `tools/call`.
pub(crate) struct Operations {
    /// As a server.
    pub server: Calls,
    /// As a client of `http` servers.
    pub http: Calls,
    /// As a client of `stdio` servers on the gateway.
    pub stdio: Calls,
}

/// The durations of `tools/call` on one side.
pub(crate) struct Calls(Histograms<OperationError>);

impl Operations {
    pub(super) fn new(registry: &Registry) -> Self {
        let calls = |side: &str, transport: &str, help: &str| {
            let name = format!("mcp_{side}_operation_duration_seconds");
            let options = HistogramOpts::new(name, help)
                .buckets(BOUNDS.to_vec())
                .const_label("mcp_method_name", "tools/call")
                .const_label("network_transport", transport);
            Calls(Histograms::with(registry, options))
        };
        let sent =
            "The duration of each MCP request that the gateway sent, by the kind of its error.";
        Self {
            server: calls(
                "server",
                "tcp",
                "The duration of each MCP request that the gateway answered, by the kind of its error.",
            ),
            http: calls("client", "tcp", sent),
            stdio: calls("client", "pipe", sent),
        }
    }
}

impl Calls {
    /// Begins to measure a call. Dropping the returned value before its end counts it as cancelled.
    pub(crate) fn begin(&self) -> Call<'_> {
        Call { calls: self, began: Instant::now(), error: OperationError::Cancelled }
    }

    /// Adds a call that has ended.
    pub(crate) fn done(&self, error: OperationError, duration: Duration) {
        self.0.observe(error, duration.as_secs_f64());
    }
}

/// A call that goes on.
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    began: Instant,
    /// How it ended.
    pub error: OperationError,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.done(self.error, self.began.elapsed());
    }
}
