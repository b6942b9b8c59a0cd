//! The test harness: both programs, clients for them, and real MCP servers.

pub(crate) mod balancer;
pub(crate) mod binaries;
pub(crate) mod cli;
pub(crate) mod collector;
pub(crate) mod counter;
pub(crate) mod device_issuer;
pub(crate) mod expect;
pub(crate) mod faulty_network;
pub(crate) mod gateway_stub;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod mcp_client;
pub(crate) mod mcp_servers;
pub(crate) mod ports;
pub(crate) mod postgres;
pub(crate) mod processes;
pub(crate) mod registry;
pub(crate) mod relay;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod terminal;
pub(crate) mod tls;
pub(crate) mod upstream;

use std::time::{Duration, Instant};

/// The time limit of operations that normally take a moment: after this they count as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `look` until it returns a value; fails the test after `patience`.
#[track_caller]
pub(crate) fn poll<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {} s", patience.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Scales a count by `PML_TEST_SCALE` (1 is the full count), to at least one.
pub(crate) fn scaled(full: usize) -> usize {
    ((full as f64 * scale()).round() as usize).max(1)
}

/// Returns whether counts are full, so that a test may take its time.
pub(crate) fn has_full_counts() -> bool {
    scale() >= 1.0
}

fn scale() -> f64 {
    std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1)
}
