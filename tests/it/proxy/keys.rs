//! What is open ends when the credential or the stored key that opened it no longer counts.

use serde_json::json;

use crate::proxy::messages::{Raw, Through};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, Everything, host_of, scope_of};
use crate::support::{PATIENCE, poll};

fn put(tenant: &Tenant, name: &str, value: &str, host: &str) -> u16 {
    let url = format!("{}/api/v1/secrets/{name}", tenant.url);
    let body = json!({ "value": value, "for": "me", "hosts": [host] }).to_string();
    Through { url, key: tenant.key.clone() }.send("PUT", &[], Some(&body)).status
}

/// Opens the stream of a new session, which says nothing of itself.
fn stream(client: &Through) -> Raw {
    let session = client.initialize("2025-11-25");
    let within = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let mut stream = Raw::open(client, "GET", &within, None);
    stream.until("text/event-stream");
    stream
}

/// A revoked key ends the streams that it opened, on all gateways; those of other keys go on.
#[test]
fn a_revoked_key_ends_its_streams() {
    let home = Installation::new();
    let (server, replica) = (home.start(), home.replica().start());
    let upstream = Everything::start();
    Entry::http("local.default", "open", &upstream.url).publish(&home);
    let make = || -> serde_json::Value {
        let made = ["keys", "create", "--scope", "local.default", "--json"];
        serde_json::from_str(&home.run_well(&made)).unwrap()
    };
    let (revoked, other) = (make(), make());
    let at = |key: &serde_json::Value, server: &Server| {
        let key = key["key"].as_str().unwrap().to_owned();
        stream(&Through::new(&Tenant { key, url: server.url().to_owned() }, "open"))
    };
    let mut ending = [at(&revoked, &server), at(&revoked, &replica)];
    let mut staying = [at(&other, &server), at(&other, &replica)];
    home.run_well(&["keys", "revoke", "--scope", "local.default", revoked["id"].as_str().unwrap()]);
    for stream in &mut ending {
        poll("the stream to end", PATIENCE, || stream.has_ended().then_some(()));
    }
    assert!(staying.iter_mut().all(|stream| !stream.has_ended()));
}

/// Streams and kept connections end with the stored key that they were opened with, and with no other.
#[test]
fn a_changed_key_is_let_go_of() {
    let home = Installation::new();
    let server = home.start_with(&[("PML_LOG", "debug")]);
    let upstream = Everything::start();
    let tenant = server.tenant_that_can("execute,read,admin");
    let scope = scope_of(&tenant);
    let mut keyed = Entry::http(&scope, "open", &upstream.url).needs("OPEN_TOKEN");
    let echo =
        json!({ "name": "echo", "description": "Echoes", "inputSchema": { "type": "object" } });
    keyed.tools = vec![echo.clone()];
    keyed.publish(&home);
    let mut bare = Entry::http(&scope, "bare", &upstream.url);
    bare.tools = vec![echo];
    bare.publish(&home);
    let (open, bare) = (Through::new(&tenant, "open"), Through::new(&tenant, "bare"));
    let host = host_of(&upstream.url);
    // What a change closes is told with it; changes that are told together count as one.
    let closed = || -> Vec<u32> {
        let log = home.log();
        let told =
            log.lines().filter_map(|line| line.split_once("Stored secrets changed: closed "));
        told.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let put = |name: &str, value: &str, status: u16| {
        let before = closed().len();
        assert_eq!(put(&tenant, name, value, &host), status);
        poll("the gateway to hear of it", PATIENCE, || (closed().len() > before).then_some(()));
    };
    put("OPEN_TOKEN", "canary-1", 201);
    let (mut ending, mut staying) = (stream(&open), stream(&bare));
    let mcp = HttpMcp::new(&tenant, Era::Stateless);
    for tool in ["open:echo", "bare:echo"] {
        let said = mcp.call(tool, json!({ "message": "hello" }));
        assert_eq!(said["content"][0]["text"], "hello", "{said}");
    }
    // Another key ends no stream.
    put("OTHER_TOKEN", "canary-0", 201);
    assert_eq!(mcp.call("open:echo", json!({ "message": "on" }))["content"][0]["text"], "on");
    assert!(!ending.has_ended() && !staying.has_ended());
    put("OPEN_TOKEN", "canary-2", 200);
    poll("the stream to end", PATIENCE, || ending.has_ended().then_some(()));
    assert_eq!(closed().last(), Some(&1));
    assert!(!staying.has_ended());
    // The control: the new key is used, and another stream is opened with it.
    assert_eq!(mcp.call("open:echo", json!({ "message": "again" }))["content"][0]["text"], "again");
    let mut again = stream(&open);
    assert!(!again.has_ended());
}

/// A stream is opened with a key that was stored just now, however late its change is told.
#[test]
fn a_fresh_key_opens_a_stream_at_once() {
    let home = Installation::new();
    let server = home.start();
    let upstream = Everything::start();
    let tenant = server.tenant_that_can("execute,read,admin");
    Entry::http(&scope_of(&tenant), "open", &upstream.url).needs("OPEN_TOKEN").publish(&home);
    let open = Through::new(&tenant, "open");
    let host = host_of(&upstream.url);
    for turn in 0..20 {
        assert!(put(&tenant, "OPEN_TOKEN", &format!("canary-{turn}"), &host) < 300);
        let mut stream = stream(&open);
        // Two requests later most notices have arrived; one that comes later still is heard in the next turn.
        assert!(put(&tenant, "OTHER_TOKEN", "canary", &host) < 300);
        open.initialize("2025-11-25");
        assert!(!stream.has_ended(), "turn {turn}");
    }
}
