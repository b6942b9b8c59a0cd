//! What began on one gateway continues on the other.

use serde_json::{Value, json};

use super::{Replicas, envelope, execute, named, record};
use crate::identity::keys::call;
use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::counter::Counter;
use crate::support::http::{HttpMcp, Reply, send};
use crate::support::mcp_client::Era;
use crate::support::server::Tenant;
use crate::support::upstream::{Entry, Everything};
use crate::support::{PATIENCE, poll};

fn make_key(tenant: &Tenant, name: &str) -> Reply {
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("idempotency-key", name),
    ];
    let body = json!({ "name": name, "can": ["read"] }).to_string();
    send("POST", &format!("{}/api/v1/keys", tenant.url), &headers, Some(body.into_bytes()))
}

/// The balancer sends requests to both gateways, and a client does not notice: handshake, calls, records, repeated
/// requests, keys, capabilities and rules are the same on both.
#[test]
fn a_client_does_not_notice_which_gateway_answers() {
    let set = Replicas::start(&[]);
    let counter = Counter::start();
    let tenant = set.tenant("execute,read,publish,admin");
    set.publish(&counter);
    let [here, there] = set.gateways.each_ref().map(|gateway| gateway.direct(&tenant));

    // Requests without a session: the balancer takes turns.
    for expected in 1..=6 {
        let ran = envelope(&execute(&tenant, &json!({ "code": format!("return {expected}") })));
        assert_eq!(ran["result"], expected);
    }
    for gateway in &set.gateways {
        let executed = gateway.log().matches("Executed a program").count();
        assert!((1..6).contains(&executed), "the balancer sent {executed} of 6 here");
    }
    // A session of 2025-11-25 that began on one gateway is known on the other.
    let session = initialize(&here);
    for gateway in [&there, &here, &there, &tenant] {
        let reply = within(gateway, &session, 7, &json!({ "code": "return 'known'" }));
        assert_eq!(envelope(&reply)["result"], "known");
    }

    // A program that one gateway ran is read on the other.
    let ran = envelope(&execute(&here, &json!({ "code": "return 'here'" })));
    let id = ran["execution_id"].as_str().unwrap();
    poll("the other gateway to read its end", PATIENCE, || {
        let read = record(&there, id);
        assert_eq!(read["id"], id, "{read}");
        (read["status"] == "success").then_some(())
    });

    // A write that is sent again through the other gateway.
    assert_eq!(make_key(&here, "twice").status, 201);
    let again = make_key(&there, "twice");
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("SHOWN_ONCE")));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(make_key(&there, "once").status, 201, "control: another key");

    // A named call.
    let none = json!({});
    let text = |reply: Reply| reply.json()["result"]["content"][0]["text"].clone();
    assert_eq!(text(named(&here, "r1", &none)), "call 1");
    assert_eq!(text(named(&there, "r1", &none)), "call 1");
    assert_eq!(text(named(&there, "r2", &none)), "call 2", "control: another name");
    assert_eq!(counter.count(), 2);

    // A capability that is published on one gateway runs on the other.
    let run = || envelope(&execute(&there, &json!({ "code": "return await mcp.words.shout({})" })));
    assert_eq!(run()["status"], "error", "it does not exist yet");
    let shout = json!({ "name": "words:shout", "code": "/** Shouts. */ return 'LOUD'" });
    let published =
        call(&here.key, "POST", &format!("{}/api/v1/capabilities", here.url), Some(&shout));
    assert_eq!(published.status, 201, "{}", published.json());
    poll("the capability on the other gateway", PATIENCE, || {
        (run()["result"] == "LOUD").then_some(())
    });

    // A rule of the operator.
    let rule = |tenant: &Tenant| {
        let rules =
            call(&tenant.key, "GET", &format!("{}/api/v1/routing", tenant.url), None).json();
        rules.to_string().contains("acme_docs")
    };
    assert!(!rule(&here) && !rule(&there));
    set.operator.run(&["routing", "set", "acme_docs:*", "server"]);
    for gateway in [&here, &there] {
        poll("the rule", PATIENCE, || rule(gateway).then_some(()));
    }
}

/// Begins a session of 2025-11-25; returns its id.
fn initialize(tenant: &Tenant) -> String {
    let client = json!({ "name": "pml-it", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let hello = Era::Handshake.request(1, "initialize", hello).to_string();
    let hello = HttpMcp::new(tenant, Era::Handshake).post(hello.as_bytes(), "initialize", None);
    let session = hello.header("mcp-session-id").to_owned();
    assert!(!session.is_empty(), "{:?}", hello.headers);
    session
}

/// Runs a program within a session.
fn within(tenant: &Tenant, session: &str, id: u64, arguments: &Value) -> Reply {
    let params = json!({ "name": "pml_execute", "arguments": arguments });
    post(tenant, session, &Era::Handshake.request(id, "tools/call", params))
}

fn post(tenant: &Tenant, session: &str, message: &Value) -> Reply {
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-session-id", session),
    ];
    let body = message.to_string().into_bytes();
    send("POST", &format!("{}/mcp", tenant.url), &headers, Some(body))
}

/// The balancer sends what belongs to a session to the gateway that has its requests, so a notification cancels them.
#[test]
fn a_notification_through_the_balancer_cancels_its_request() {
    let set = Replicas::start(&[]);
    let counter = Counter::start();
    let tenant = set.tenant("execute,read");
    set.publish(&counter);
    let code = "return await mcp.counter.add({ then: 'never' })";
    // Several, because one notification could reach the right gateway by chance.
    for round in 1..=6 {
        let session = initialize(&tenant);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| within(&tenant, &session, 7, &json!({ "code": code })));
            poll("the program to wait", PATIENCE, || (counter.count() == round).then_some(()));
            let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": 7 } });
            assert_eq!(post(&tenant, &session, &cancel).status, 202);
            assert_eq!(envelope(&waits.join().unwrap())["error_code"], "CANCELLED");
        });
    }
}

/// A server asks its user during a call that runs through one gateway. The answer comes through the other, for the same
/// principal only.
#[test]
fn a_question_is_answered_through_the_other_gateway() {
    let set = Replicas::start(&[]);
    let upstream = Everything::start();
    let tenant = set.tenant("execute,read");
    set.cluster.sql(&Entry::http("it.web", "asks", &upstream.url).statements());
    let [here, there] =
        set.gateways.each_ref().map(|gateway| ProxyClient::new(&gateway.direct(&tenant), "asks"));
    let client = json!({ "name": "pml-it", "version": "1" });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": client } });
    let session = here.post(&[], &hello).header("mcp-session-id").to_owned();
    let within = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(there.post(&within, &ready).status, 202);
    let asks = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "test_elicitation", "arguments": { "message": "Go on?" } } });
    let mut stream = Raw::open(&here, "POST", &within, Some(&asks.to_string()));
    let question = stream.line("elicitation/create");
    let question: Value =
        serde_json::from_str(question.strip_prefix("data: ").unwrap_or(&question)).unwrap();
    assert_eq!(question["params"]["message"], "Go on?");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "response": "yes" } } });
    let other = set.operator.run(&[
        "keys",
        "create",
        "--scope",
        "it.web",
        "--principal",
        "eve",
        "--can",
        "execute",
    ]);
    let eve = ProxyClient { key: other.trim().to_owned(), url: there.url.clone() };
    assert_eq!(eve.post(&within, &answer).status, 404, "of another principal");
    assert_eq!(there.post(&within, &answer).status, 202);
    stream.until("action=accept");
}
