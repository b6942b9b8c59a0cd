//! The gateway's figures, for Prometheus.
//!
//! The parts of the gateway count what they do in the structs of this module. Each counter exists from the start and is
//! an atomic, so counting takes neither a lock nor memory. The state of the parts, such as the number of connections, is
//! read when the figures are asked for: see `http/metrics.rs`.
//!
//! Figures are the operator's, and concern all tenants together. So a label has one of a closed set of words: a
//! [`Label`], a route's template, or an [`ErrorCode`](protocol::ErrorCode). No tenant, tool, URL or other text of a
//! caller can become one.

mod label;
mod operations;
mod process;
mod programs;
mod requests;
mod snapshot;

use std::time::Duration;

use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, Registry};

pub(crate) use label::{Counters, Label, labels};
pub(crate) use operations::{Calls, OperationError, Operations};
pub(crate) use programs::{Decision, ProgramCount, Programs};
pub(crate) use requests::Requests;
pub(crate) use snapshot::Snapshot;

/// The upper bounds of durations of work that may take from less than a millisecond to a minute, in seconds.
const SECONDS: [f64; 16] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

labels! {
    /// A limit that can refuse a request or a program.
    pub(crate) enum Limit as "limit" {
        /// The programs of a tenant, running and queued.
        Programs = "programs",
        /// The requests of an API key or of a subject.
        Key = "key",
        /// The requests of an organisation.
        Org = "org",
        /// The requests from an address.
        Address = "address",
        /// The operator's quota of tool calls.
        Quota = "quota",
        /// The memory for messages.
        Memory = "memory",
        /// The proxied messages of a scope.
        Exchanges = "exchanges",
    }
}

labels! {
    /// How an analysis ended.
    pub(crate) enum AnalysisEnd as "outcome" {
        /// The result was cached.
        Cached = "cached",
        /// A child analysed the program.
        Analysed = "analysed",
        /// The program is over a limit that needs no analysis.
        TooLarge = "too_large",
        /// The analysis ran out of time.
        TimedOut = "timed_out",
        /// It failed in another way.
        Failed = "failed",
    }
}

labels! {
    /// How a call of an upstream ended.
    pub(crate) enum UpstreamEnd as "outcome" {
        /// The upstream returned a result.
        Success = "success",
        /// It answered with an error, or with something that is not a result.
        Error = "error",
        /// It could not be reached, or the connection was lost.
        Unavailable = "unavailable",
        /// It was not called, because it had failed several times in a row.
        Paused = "paused",
        /// The caller gave up, or the time ran out.
        Cancelled = "cancelled",
    }
}

labels! {
    /// How a start of a `stdio` server ended.
    pub(crate) enum StdioStart as "outcome" {
        /// It runs.
        Success = "success",
        /// It did not start.
        Failure = "failure",
        /// It was not started, because it had failed several times in a row, or too many run.
        Refused = "refused",
    }
}

/// The figures of `stdio` servers that run on the gateway.
pub(crate) struct StdioCounters {
    /// Calls.
    pub calls: Work<UpstreamEnd>,
    /// Starts.
    pub starts: Counters<StdioStart>,
}

impl StdioCounters {
    fn new(registry: &Registry) -> Self {
        let calls = Work::new(
            registry,
            "pml_stdio_calls_total",
            "pml_stdio_call_duration_seconds",
            "call of a `stdio` server on the gateway",
        );
        let help = "Starts of `stdio` servers on the gateway, by their outcome.";
        Self { calls, starts: Counters::new(registry, "pml_stdio_starts_total", help) }
    }
}

/// The gateway's counters.
pub(crate) struct Metrics {
    registry: Registry,
    /// HTTP requests.
    pub requests: Requests,
    /// Programs and their tool calls.
    pub programs: Programs,
    /// Refusals by limits.
    pub refusals: Counters<Limit>,
    /// Analyses.
    pub analyses: Work<AnalysisEnd>,
    /// Calls of upstreams.
    pub upstreams: Work<UpstreamEnd>,
    /// `stdio` servers.
    pub stdio: StdioCounters,
    /// MCP requests.
    pub operations: Operations,
}

impl Metrics {
    /// Creates the counters. `routes` are the templates of the gateway's routes.
    pub(crate) fn new(routes: &[String]) -> Self {
        let registry = Registry::new();
        let refusals = Counters::new(
            &registry,
            "pml_refusals_total",
            "Requests, programs and calls that a limit refused.",
        );
        let analyses = Work::new(
            &registry,
            "pml_analyses_total",
            "pml_analysis_duration_seconds",
            "analysis of a program",
        );
        let upstreams = Work::new(
            &registry,
            "pml_upstream_calls_total",
            "pml_upstream_call_duration_seconds",
            "call of an upstream",
        );
        Self {
            requests: Requests::new(&registry, routes),
            programs: Programs::new(&registry),
            refusals,
            analyses,
            upstreams,
            stdio: StdioCounters::new(&registry),
            operations: Operations::new(&registry),
            registry,
        }
    }

    /// Creates counters for a test that does not read them.
    #[cfg(test)]
    pub(crate) fn unread() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self::new(&[]))
    }

    /// Returns the counters' values.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Counts work by its end, and its durations.
pub(crate) struct Work<L> {
    ends: Counters<L>,
    durations: Histogram,
}

impl<L: Label> Work<L> {
    fn new(registry: &Registry, ends: &str, durations: &str, what: &str) -> Self {
        Self {
            ends: Counters::new(registry, ends, &format!("Each {what}, by its outcome.")),
            durations: histogram(registry, durations, &format!("The duration of each {what}.")),
        }
    }

    /// Counts work without a duration, because it was not done.
    pub(crate) fn skipped(&self, end: L) {
        self.ends.add(end);
    }

    /// Counts work that was done.
    pub(crate) fn done(&self, end: L, duration: Duration) {
        self.ends.add(end);
        self.durations.observe(duration.as_secs_f64());
    }
}

/// Creates a histogram of durations.
fn histogram(registry: &Registry, name: &str, help: &str) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
    let histogram = Histogram::with_opts(options).expect("the name and the buckets are valid");
    registered(registry, histogram)
}

/// Adds a metric to a registry.
fn registered<M: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    metric: M,
) -> M {
    registry.register(Box::new(metric.clone())).expect("each name is used once");
    metric
}

#[cfg(test)]
mod tests {
    use super::programs::{CallKind, Decision, Ending};
    use super::*;

    /// Otherwise one value would be counted as another.
    #[test]
    fn values_are_numbered_in_order_and_have_different_words() {
        fn check<L: Label>() {
            let words: std::collections::BTreeSet<_> = L::ALL.iter().map(|it| it.word()).collect();
            assert_eq!(words.len(), L::ALL.len());
            for (index, label) in L::ALL.iter().enumerate() {
                assert_eq!(label.index(), index, "{}", label.word());
            }
        }
        check::<AnalysisEnd>();
        check::<CallKind>();
        check::<Decision>();
        check::<Ending>();
        check::<Limit>();
        check::<OperationError>();
        check::<StdioStart>();
        check::<UpstreamEnd>();
    }
}
