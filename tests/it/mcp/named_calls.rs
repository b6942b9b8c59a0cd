//! Calls that name their run in `_meta`: each takes effect once.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::registry::capabilities::published;
use crate::support::cli::Project;
use crate::support::counter::Counter;
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::scope_of;
use crate::support::{PATIENCE, poll};

fn publish(counter: &Counter, home: &Installation, tenant: &Tenant) {
    counter.entry(&scope_of(tenant)).publish(home);
}

/// Calls `counter:add`; see [`call`].
fn add(tenant: &Tenant, era: Era, name: &Value, arguments: &Value) -> String {
    call(tenant, era, "counter:add", name, arguments)
}

/// Calls a tool; returns the text of the result, or the name of the error.
fn call(tenant: &Tenant, era: Era, tool: &str, name: &Value, arguments: &Value) -> String {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if !name.is_null() {
        params["_meta"] = json!({ "ai.casys.pml/run": name });
    }
    let answer = HttpMcp::new(tenant, era).request("tools/call", params);
    let result = &answer["result"];
    let code = result["structuredContent"]["error_code"].as_str();
    code.or_else(|| result["content"][0]["text"].as_str())
        .unwrap_or_else(|| panic!("{answer:#}"))
        .to_owned()
}

fn started() -> (Installation, Server, Counter, Tenant) {
    let (home, counter) = (Installation::new(), Counter::start());
    let server = home.start();
    let tenant = server.tenant();
    publish(&counter, &home, &tenant);
    (home, server, counter, tenant)
}

#[test]
fn a_named_call_is_made_once() {
    let (home, server, counter, tenant) = started();
    let (name, none) = (json!({ "run_id": "r1", "call_index": 1 }), json!({}));
    let add_here = |name: &Value, arguments: &Value| add(&tenant, Era::Stateless, name, arguments);
    assert_eq!(add_here(&name, &none), "call 1");
    assert_eq!(add_here(&name, &none), "call 1");
    assert_eq!(add(&tenant, Era::Handshake, &name, &none), "call 1");
    assert_eq!(counter.count(), 1);
    // Another call, another run, a call that was made again on purpose, and calls without a name.
    assert_eq!(add_here(&name, &json!({ "x": 1 })), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(add_here(&json!({ "run_id": "r1", "call_index": "1.1" }), &none), "call 2");
    assert_eq!(add_here(&json!({ "run_id": "r2", "call_index": 1 }), &none), "call 3");
    let again = json!({ "run_id": "r1", "call_index": 1, "again_ms": 5 });
    assert_eq!(add_here(&again, &none), "call 4");
    assert_eq!(add_here(&Value::Null, &none), "call 5");
    assert_eq!(add_here(&Value::Null, &none), "call 6");
    // The failure of a tool is its answer.
    let failed = (json!({ "run_id": "r1", "call_index": 2 }), json!({ "then": "fail" }));
    assert_eq!(add_here(&failed.0, &failed.1), "call 7");
    assert_eq!(add_here(&failed.0, &failed.1), "call 7");
    // Nobody else has these names.
    let other = server.tenant();
    publish(&counter, &home, &other);
    assert_eq!(add(&other, Era::Stateless, &name, &none), "call 8");
    assert_eq!(counter.count(), 8);
}

/// What may have taken effect is not made again under the same name.
#[test]
fn a_call_with_an_unknown_outcome_is_not_made_again() {
    let (home, _server, counter, tenant) = started();
    let (name, closes) = (json!({ "run_id": "r", "call_index": 1 }), json!({ "then": "close" }));
    let first = add(&tenant, Era::Stateless, &name, &closes);
    assert_eq!(first, "TOOL_UNAVAILABLE");
    let made = counter.count();
    assert_eq!(add(&tenant, Era::Stateless, &name, &closes), "REQUEST_IN_PROGRESS");
    home.sql("update idempotency_keys set claimed_at = claimed_at - interval '1 minute'");
    assert_eq!(add(&tenant, Era::Stateless, &name, &closes), "CALL_INDETERMINATE");
    assert_eq!(counter.count(), made);
}

/// The error of a capability may be that of a call after one that took effect.
#[test]
fn a_capability_that_failed_is_not_run_again() {
    let (home, server, counter, _) = started();
    let tenant = server.tenant_with_rights("execute,read,publish");
    publish(&counter, &home, &tenant);
    let code =
        "/** Counts. */ await mcp.counter.add({}); return await mcp.math.eval({ wrong: args.x });";
    published(&tenant, "twice.run", code);
    let name = json!({ "run_id": "r", "call_index": 1 });
    let run = |name: &Value| call(&tenant, Era::Stateless, "twice:run", name, &json!({ "x": 1 }));
    let first = run(&name);
    assert_eq!((first.as_str(), counter.count()), ("INVALID_ARGUMENTS", 1));
    let second = run(&name);
    assert_eq!(counter.count(), 1, "{first}, {second}");
    run(&Value::Null);
    assert_eq!(counter.count(), 2, "the capability still calls its tool");
}

#[test]
fn concurrent_calls_with_one_name_are_made_once() {
    let (_home, _server, counter, tenant) = started();
    for round in 1..=5 {
        let name = json!({ "run_id": "r", "call_index": round });
        let answers: Vec<String> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..20)
                .map(|_| scope.spawn(|| add(&tenant, Era::Stateless, &name, &json!({}))))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let expected = format!("call {round}");
        assert!(answers.contains(&expected), "{answers:?}");
        for answer in answers {
            assert!(answer == expected || answer == "REQUEST_IN_PROGRESS", "{answer}");
        }
        assert_eq!(counter.count(), round);
    }
}

#[test]
fn invalid_names_are_refused() {
    let (_home, _server, counter, tenant) = started();
    for name in [
        json!({}),
        json!("r1"),
        json!({ "run_id": "r" }),
        json!({ "call_index": 1 }),
        json!({ "run_id": "", "call_index": 1 }),
        json!({ "run_id": 7, "call_index": 1 }),
        json!({ "run_id": "r", "call_index": -1 }),
        json!({ "run_id": "r", "call_index": "" }),
        json!({ "run_id": "r", "call_index": {} }),
        json!({ "run_id": "r".repeat(600), "call_index": 1 }),
    ] {
        assert_eq!(add(&tenant, Era::Stateless, &name, &json!({})), "INVALID_REQUEST", "{name}");
    }
    assert_eq!(counter.count(), 0);
    let odd = json!({ "run_id": "\u{1b}[2J\u{202e}", "call_index": 1, "more": "\0" });
    assert_eq!(add(&tenant, Era::Stateless, &odd, &json!({})), "call 1");
}

/// P7: the answer to a call is lost with `pml`. When the run is resumed, the gateway still has it.
#[test]
fn a_resumed_run_gets_the_outcome_of_its_call() {
    let (_home, server, counter, tenant) = started();
    // The way to the gateway: it holds back one answer.
    let holds = Arc::new(AtomicBool::new(true));
    let (url, held) = (server.url().to_owned(), Arc::clone(&holds));
    let way = GatewayStub::start_with_head(move |head, body| {
        let answer = forward_request(&url, head, body);
        let is_call = body["params"]["name"].as_str().is_some_and(|name| name.contains("counter"));
        match is_call && held.load(Ordering::SeqCst) {
            true => Answer::Never,
            false => Answer::Raw(200, "application/json", answer.into_bytes()),
        }
    });
    let project = Project::at(&way.url).set("PML_API_KEY", &tenant.key).allow(&["*"]);
    project.write("a.txt", "A");
    project.write(
        "program.ts",
        "await mcp.filesystem.read_text_file({ path: 'a.txt' }); return await mcp.counter.add({ x: 1 });",
    );
    let mut pml = project.command(&["exec", "program.ts"]);
    pml.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut pml = pml.spawn().expect("it starts");
    poll("the call", PATIENCE, || (counter.count() == 1).then_some(()));
    pml.kill().expect("it still waits");
    pml.wait().expect("it was killed");
    holds.store(false, Ordering::SeqCst);
    let output = project.run(&["runs", "resume", "last", "--json", "--repeat", "2"]);
    let envelope: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(success(&envelope), "call 1");
    assert_eq!(counter.count(), 1);
}
