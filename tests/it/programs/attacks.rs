//! Hostile programs: each one in `fixtures/attacks.txt` must end with the error of the limit that it exceeds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::PATIENCE;
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, envelope};
use crate::support::server::Installation;

const ATTACKS: &str = include_str!("../../fixtures/attacks.txt");
/// How many attacks run at the same time.
const CONCURRENT: usize = 4;

struct Attack<'a> {
    /// The acceptable error codes.
    codes: Vec<&'a str>,
    what: &'a str,
    timeout_ms: Option<u64>,
    code: &'a str,
}

fn attacks() -> Vec<Attack<'static>> {
    let (_, list) = ATTACKS.split_once("\n## ").expect("a list after the introduction");
    list.split("\n## ")
        .map(|attack| {
            let (head, code) = attack.split_once('\n').expect("a head and a program");
            let (codes, what) = head.split_once(": ").expect("codes and a description");
            let (what, timeout_ms) = match what.split_once(" @timeout ") {
                Some((what, ms)) => (what, Some(ms.parse().expect("milliseconds"))),
                None => (what, None),
            };
            Attack { codes: codes.split('|').collect(), what, timeout_ms, code }
        })
        .collect()
}

/// Runs an attack; returns an error if it did not end as expected.
fn run(client: &HttpMcp, attack: &Attack<'_>) -> Result<(), String> {
    let mut arguments = json!({ "code": attack.code });
    if let Some(timeout_ms) = attack.timeout_ms {
        arguments["options"] = json!({ "timeout_ms": timeout_ms });
    }
    let started = Instant::now();
    let envelope = envelope(&client.call("pml_execute", arguments));
    let (code, took) = (envelope["error_code"].as_str().unwrap_or("none"), started.elapsed());
    // A long program yields to short ones. On a busy machine it may wait until its wall time is over.
    let expected = attack.codes.contains(&code)
        || (code == "TIME_LIMIT" && attack.codes.contains(&"CPU_LIMIT"));
    if envelope["status"] != "error" || !expected {
        return Err(format!("{}: {code}, not {:?}: {envelope:.400}", attack.what, attack.codes));
    }
    // All attacks together load the processors for about a minute.
    if took > PATIENCE { Err(format!("{}: took {took:?}", attack.what)) } else { Ok(()) }
}

/// Every attack ends with its error, other tenants are served meanwhile, and the gateway's process survives.
#[test]
fn every_hostile_program_ends_with_the_expected_error() {
    let server = Installation::new().start();
    let (attacker, other) = (server.tenant(), server.tenant());
    let other = HttpMcp::new(&other, Era::Stateless);
    let pid = server.pid();
    let attacks = attacks();
    assert!(attacks.len() >= 60, "{} attacks", attacks.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let worker = || {
            let client = HttpMcp::new(&attacker, Era::Stateless);
            let mut wrong = Vec::new();
            while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::Relaxed)) {
                wrong.extend(run(&client, attack).err());
            }
            wrong
        };
        let workers: Vec<_> = (0..CONCURRENT).map(|_| scope.spawn(worker)).collect();
        while next.load(Ordering::Relaxed) < attacks.len() {
            // Another tenant is served meanwhile.
            let answer = other.execute("return await mcp.math.eval({ expression: '1 + 1' })");
            assert_eq!(success(&answer), 2);
            thread::sleep(Duration::from_millis(100));
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), attacks.len(), wrong.join("\n"));
    assert_eq!(server.pid(), pid);
    assert!(pid.is_alive());
    assert_eq!(server.stop(), Some(0));
}
