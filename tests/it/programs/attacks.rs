//! A gateway under attack: each program of `fixtures/attacks.txt` ends with an error that says which limit it met.

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
/// Attacks at the same time.
const LANES: usize = 4;

struct Attack<'a> {
    /// The codes of the error that must end it.
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

/// Returns what is wrong with how the attack ended.
fn ends(client: &HttpMcp, attack: &Attack<'_>) -> Result<(), String> {
    let mut arguments = json!({ "code": attack.code });
    if let Some(timeout_ms) = attack.timeout_ms {
        arguments["options"] = json!({ "timeout_ms": timeout_ms });
    }
    let begun = Instant::now();
    let envelope = envelope(&client.call("pml_execute", arguments));
    let (code, took) = (envelope["error_code"].as_str().unwrap_or("none"), begun.elapsed());
    // A loop makes way for all that is short, and on a busy machine that may last for its whole wall time.
    let expected = attack.codes.contains(&code)
        || (code == "TIME_LIMIT" && attack.codes.contains(&"CPU_LIMIT"));
    if envelope["status"] != "error" || !expected {
        return Err(format!("{}: {code}, not {:?}: {envelope:.400}", attack.what, attack.codes));
    }
    // All of them together take the processors for a minute.
    if took > PATIENCE { Err(format!("{}: took {took:?}", attack.what)) } else { Ok(()) }
}

/// Every attack ends as it should, the same process still serves, and no child is left.
#[test]
fn every_attack_ends_with_its_error() {
    let server = Installation::new().start();
    let (attacker, other) = (server.tenant(), server.tenant());
    let other = HttpMcp::new(&other, Era::Stateless);
    let pid = server.pid();
    let attacks = attacks();
    assert!(attacks.len() >= 60, "{} attacks", attacks.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let lane = || {
            let client = HttpMcp::new(&attacker, Era::Stateless);
            let mut wrong = Vec::new();
            while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::Relaxed)) {
                wrong.extend(ends(&client, attack).err());
            }
            wrong
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        while next.load(Ordering::Relaxed) < attacks.len() {
            // Another tenant is served meanwhile.
            let answer = other.execute("return await mcp.math.eval({ expression: '1 + 1' })");
            assert_eq!(success(&answer), 2);
            thread::sleep(Duration::from_millis(100));
        }
        lanes.into_iter().flat_map(|lane| lane.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), attacks.len(), wrong.join("\n"));
    assert_eq!(server.pid(), pid);
    assert!(pid.is_alive());
    assert_eq!(server.stop(), Some(0));
}
