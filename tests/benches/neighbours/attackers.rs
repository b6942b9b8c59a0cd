//! A tenant that keeps a constant number of attacks in flight.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::json;

use crate::attacks::Attack;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, envelope};
use crate::support::server::Tenant;

/// The attacking tenant, and the outcomes of its programs.
pub(crate) struct Attackers {
    tenant: Tenant,
    attacks: Vec<Attack>,
    next: AtomicUsize,
    ended: Mutex<BTreeMap<String, usize>>,
}

impl Attackers {
    /// Creates the tenant without starting an attack.
    pub(crate) fn new(tenant: Tenant, attacks: Vec<Attack>) -> Attackers {
        Attackers { tenant, attacks, next: AtomicUsize::new(0), ended: Mutex::default() }
    }

    /// Attacks with this number of requests in flight while `meanwhile` runs, then waits for those in flight. It cycles
    /// through the list of attacks and continues where the last call stopped.
    pub(crate) fn attack<T>(&self, in_flight: usize, meanwhile: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..in_flight {
                scope.spawn(|| {
                    let client = HttpMcp::new(&self.tenant, Era::Stateless);
                    while !over.load(Ordering::Relaxed) {
                        self.send(&client);
                    }
                });
            }
            let result = meanwhile();
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    fn send(&self, client: &HttpMcp) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let attack = &self.attacks[number % self.attacks.len()];
        let mut arguments = json!({ "code": attack.code });
        if let Some(timeout_ms) = attack.timeout_ms {
            arguments["options"] = json!({ "timeout_ms": timeout_ms });
        }
        let envelope = envelope(&client.call("pml_execute", arguments));
        let code = envelope["error_code"].as_str().unwrap_or("none: it succeeded");
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry(code.to_owned()).or_default() += 1;
    }

    /// Returns a Markdown table of the outcomes.
    pub(crate) fn table(&self) -> String {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<(&String, &usize)> = ended.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let mut table = "| the attacks ended with | programs |\n|---|---:|\n".to_owned();
        for (code, count) in rows {
            table += &format!("| `{code}` | {count} |\n");
        }
        table
    }
}
