//! The harness of the black-box tests, as far as the benches need it.

#![allow(dead_code, reason = "the tests use all of it, no bench does")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../it/support/binaries.rs"]
pub(crate) mod binaries;
#[path = "../../it/support/cli.rs"]
pub(crate) mod cli;
#[path = "../../it/support/guard.rs"]
pub(crate) mod guard;
#[path = "../../it/support/http.rs"]
pub(crate) mod http;
#[path = "../../it/support/mcp_client.rs"]
pub(crate) mod mcp_client;
#[path = "../../it/support/mcp_servers.rs"]
pub(crate) mod mcp_servers;
#[path = "../../it/support/processes.rs"]
pub(crate) mod processes;
#[path = "../../it/support/server.rs"]
pub(crate) mod server;
#[path = "../../it/support/upstream.rs"]
pub(crate) mod upstream;

use std::time::{Duration, Instant};

/// The time limit of operations that normally take a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Calls `look` until it returns a value.
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
