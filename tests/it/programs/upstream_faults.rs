//! an upstream that is slow, or whose connections break, costs its callers an error in time, and nobody else anything.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::expect::{failure, success};
use crate::support::faulty_network::{Fault, FaultyNetwork};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, Everything, scope_of};
use crate::support::{PATIENCE, poll, scaled};

/// An upstream behind a faulty network, and a tenant that can call it as `far:echo`; `near:echo` is the same one without
/// faults.
struct Site {
    _everything: Everything,
    network: FaultyNetwork,
    tenant: Tenant,
}

impl Site {
    fn new() -> Self {
        let (everything, server) = (Everything::start(), Server::shared());
        let network = FaultyNetwork::to(&everything.url);
        let tenant = server.tenant();
        let scope = scope_of(&tenant);
        for (namespace, url) in [("far", &network.url), ("near", &everything.url)] {
            let mut entry = Entry::http(&scope, namespace, url);
            entry.tools = vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })];
            entry.publish(server.installation());
        }
        Self { _everything: everything, network, tenant }
    }

    /// Calls a tool in a program of its own.
    fn call(&self, namespace: &str, timeout_ms: u64) -> Value {
        let code = format!("return await mcp.{namespace}.echo({{ message: 'm' }})");
        let arguments = json!({ "code": code, "options": { "timeout_ms": timeout_ms } });
        HttpMcp::new(&self.tenant, Era::Stateless).execute_request(arguments)
    }
}

/// A deadline is kept whatever the answer does, and a call is never sent twice.
#[test]
fn slow_and_broken_answers_end_in_time_and_are_not_repeated() {
    let site = Site::new();
    assert_eq!(*success(&site.call("far", 20_000)), "m");
    for (fault, code) in [
        (Fault::Late(Duration::from_secs(10)), "TIME_LIMIT"),
        (Fault::Trickles, "TIME_LIMIT"),
        (Fault::Reset, "TOOL_UNAVAILABLE"),
        (Fault::HalfClosed, "TOOL_UNAVAILABLE"),
    ] {
        site.network.set(Fault::None);
        // The connection of the previous case may be broken.
        poll("the upstream works", PATIENCE, || {
            (site.call("far", 20_000)["status"] == "success").then_some(())
        });
        site.network.set(fault);
        let (calls, begun) = (site.network.calls(), Instant::now());
        let answer = site.call("far", 1_000);
        failure(&answer, code);
        let took = answer["duration_ms"].as_f64().unwrap();
        if code == "TIME_LIMIT" {
            assert!((1_000.0..4_000.0).contains(&took), "{fault:?}: {took} ms");
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(site.network.calls(), calls + 1, "{fault:?}");
    }
}

/// After failures in a row the upstream is left alone: its calls fail at once and say so, and are not sent. Other upstreams,
/// and the calls of other tenants, are not affected. Once it answers again, it is called again.
#[test]
fn an_upstream_that_fails_is_left_alone_for_a_time() {
    let site = Site::new();
    assert_eq!(*success(&site.call("far", 20_000)), "m");
    site.network.set(Fault::Reset);
    let paused = |answer: &Value| {
        let message = failure(answer, "TOOL_UNAVAILABLE");
        message.contains("failed 5 times in a row, so it is not called for")
    };
    let failures = (0..).take_while(|_| !paused(&site.call("far", 20_000))).count();
    assert_eq!(failures, 5);
    let calls = site.network.calls();
    for _ in 0..10 {
        assert!(paused(&site.call("far", 20_000)));
        assert_eq!(*success(&site.call("near", 20_000)), "m");
    }
    assert_eq!(site.network.calls(), calls);

    let server = Server::shared();
    let other = server.tenant();
    let scope = scope_of(&other);
    let mut entry = Entry::http(&scope, "far", &site.network.url);
    entry.tools = vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })];
    entry.publish(server.installation());
    site.network.set(Fault::None);
    let code = "return await mcp.far.echo({ message: 'm' })";
    assert_eq!(*success(&HttpMcp::new(&other, Era::Stateless).execute(code)), "m");

    poll("the upstream is called again", PATIENCE, || {
        (site.call("far", 20_000)["status"] == "success").then_some(())
    });
    for _ in 0..5 {
        assert_eq!(*success(&site.call("far", 20_000)), "m");
    }
}

/// While half of all connections break at once and the others soon, each call ends with its result or an error, and is sent at most once; another
/// upstream answers all calls.
#[test]
fn a_flapping_upstream_affects_only_its_own_calls() {
    let site = Site::new();
    assert_eq!(*success(&site.call("far", 20_000)), "m");
    site.network.set(Fault::Flapping);
    let (before, count) = (site.network.calls(), scaled(400));
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let calls = (0..count / 4 + 1).map(|_| {
                        assert_eq!(*success(&site.call("near", 20_000)), "m");
                        site.call("far", 20_000)
                    });
                    calls.collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let (good, bad): (Vec<_>, Vec<_>) =
        results.iter().partition(|answer| answer["status"] == "success");
    let shares =
        format!("{} of {} calls of a flapping upstream succeeded", good.len(), results.len());
    assert!(!good.is_empty() && !bad.is_empty(), "{shares}");
    for answer in &bad {
        failure(answer, "TOOL_UNAVAILABLE");
    }
    let sent = site.network.calls() - before;
    assert!((good.len()..=results.len()).contains(&sent), "{shares}, {sent} were sent");
    println!("{shares}, {sent} were sent");
}
