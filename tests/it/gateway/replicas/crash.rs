//! A gateway that is killed while the other serves on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;

use super::load::{Kind, WORKERS, assert_effects, call_once, load};
use super::{Replicas, record};
use crate::identity::keys::call;
use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::counter::Counter;
use crate::support::mcp_client::Era;
use crate::support::{PATIENCE, poll, scaled};

/// `kill -9` of one gateway fails at most the requests that it had. What it had begun is known as such, and is not
/// begun again. The other gateway serves on, and the killed one again after its start.
#[test]
fn a_killed_gateway_fails_at_most_its_requests_in_flight() {
    let set = Replicas::start(&[]);
    let counter = Counter::start();
    let tenant = set.tenant("execute,read,admin");
    set.publish(&counter);
    let [killed, _] = &set.gateways;
    let there = set.gateways[1].direct(&tenant);
    // A program that waits when its gateway is killed.
    let code = "return await mcp.counter.add({ x: 'waits', then: 'never' })";
    let arguments = json!({ "code": code, "options": { "timeout_ms": 3_000 } });
    let begin = |id: u64| {
        let params = json!({ "name": "pml_execute", "arguments": arguments });
        let body = Era::Stateless.request(id, "tools/call", params).to_string();
        let direct = killed.direct(&tenant);
        let client = ProxyClient { url: format!("{}/mcp", direct.url), key: direct.key };
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "pml_execute"),
        ];
        Raw::open(&client, "POST", &headers, Some(&body))
    };
    let stop = AtomicBool::new(false);
    let (sent, gone, id) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load(&tenant, scaled(200), || stop.load(Ordering::SeqCst)));
        poll("some load", PATIENCE, || (counter.count() > 5).then_some(()));
        let _waiting = begin(1);
        let id = poll("the program to wait", PATIENCE, || {
            let url = format!("{}/api/v1/executions?limit=50", there.url);
            let listed = call(&tenant.key, "GET", &url, None).json();
            let executions = listed["items"].as_array();
            let waits = counter.seen().iter().any(|arguments| arguments["x"] == "waits");
            let running = executions?.iter().find(|it| {
                it["status"] == "running" && it["tools"].to_string().contains("counter")
            })?;
            waits.then(|| running["id"].as_str().unwrap().to_owned())
        });
        killed.kill();
        let gone = Instant::now();
        assert_eq!(record(&there, &id)["status"], "running");
        let before = counter.count();
        poll("the other gateway to serve on", PATIENCE, || {
            (counter.count() > before + 20).then_some(())
        });
        stop.store(true, Ordering::SeqCst);
        (load.join().unwrap(), gone, id)
    });
    let failed: Vec<_> = sent.iter().filter(|request| !request.is_done()).collect();
    assert!(failed.len() <= WORKERS, "{}: {failed:#?}", failed.len());
    for request in &failed {
        assert!(request.began < gone, "sent after the gateway was gone: {request:#?}");
    }
    // Whoever sends a call again gets its outcome or learns that it is unknown.
    for request in failed.iter().filter(|request| request.kind == Kind::Call) {
        let again = call_once(&tenant, &request.name).json();
        let result = &again["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let code = result["structuredContent"]["error_code"].as_str().unwrap_or_default();
        let known = ["REQUEST_IN_PROGRESS", "CALL_INDETERMINATE"].contains(&code);
        assert!(text.starts_with("call ") || known, "{again:#}");
    }
    assert_effects(&sent, &set.cluster, &counter);
    poll("the outcome of the program to count as unknown", PATIENCE, || {
        let status = record(&there, &id)["status"].clone();
        assert!(["running", "indeterminate"].contains(&status.as_str().unwrap()), "{status}");
        (status == "indeterminate").then_some(())
    });
    let waited = counter.seen().into_iter().filter(|arguments| arguments["x"] == "waits");
    assert_eq!(waited.count(), 1);
    killed.start();
    assert_eq!(killed.ready().status, 200);
    assert_eq!(record(&killed.direct(&tenant), &id)["status"], "indeterminate");
}
