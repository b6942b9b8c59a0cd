//! A tenant that exceeds its rate limit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Tenant;

/// The rate limit of a key, per second.
pub(crate) const QUOTA: u32 = 100;
/// The factor by which the limit is exceeded.
pub(crate) const TIMES: u32 = 10;
/// The number of connections.
const CONNECTIONS: u32 = 8;

/// The noisy tenant, and the outcomes of its requests.
pub(crate) struct Noise {
    tenant: Tenant,
    body: String,
    served: AtomicUsize,
    refused: AtomicUsize,
    failed: AtomicUsize,
    driven: Duration,
}

impl Noise {
    /// Creates the tenant without sending anything; its requests run this program.
    pub(crate) fn new(tenant: Tenant, program: &str) -> Self {
        let params = json!({ "name": "pml_execute", "arguments": { "code": program } });
        let body = Era::Stateless.request(1, "tools/call", params).to_string();
        let [served, refused, failed] = std::array::from_fn(|_| AtomicUsize::new(0));
        Self { tenant, body, served, refused, failed, driven: Duration::ZERO }
    }

    /// Sends at a constant rate while `meanwhile` runs, whatever the answers are. After a late answer, a connection sends
    /// without a pause until it has caught up.
    pub(crate) fn drive<T>(&mut self, meanwhile: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        let started = Instant::now();
        let result = thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let client = HttpMcp::new(&self.tenant, Era::Stateless);
                    let pause = Duration::from_secs(1) * CONNECTIONS / (QUOTA * TIMES);
                    let mut next = Instant::now();
                    while !over.load(Ordering::Relaxed) {
                        self.send(&client);
                        next += pause;
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                });
            }
            let result = meanwhile();
            over.store(true, Ordering::Relaxed);
            result
        });
        self.driven += started.elapsed();
        result
    }

    fn send(&self, client: &HttpMcp) {
        let reply = client.post(self.body.as_bytes(), "tools/call", Some("pml_execute"));
        let count = match reply.status {
            200 => &self.served,
            429 if reply.json()["code"] == "RATE_LIMITED" => &self.refused,
            _ => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a summary of the requests and their outcomes.
    pub(crate) fn summary(&self) -> String {
        let [served, refused, failed] =
            [&self.served, &self.refused, &self.failed].map(|count| count.load(Ordering::Relaxed));
        let rate = (served + refused + failed) as f64 / self.driven.as_secs_f64();
        format!(
            "The noisy tenant sent {rate:.0} requests a second: {served} were served, {refused} refused with \
             `RATE_LIMITED`, {failed} answered otherwise.\n"
        )
    }
}
