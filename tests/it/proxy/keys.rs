//! Open streams end when the API key or the stored secret that opened them becomes invalid.

use serde_json::json;

use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, Everything, host_of, scope_of};
use crate::support::{PATIENCE, poll};

fn put(tenant: &Tenant, name: &str, value: &str, host: &str) -> u16 {
    let url = format!("{}/api/v1/secrets/{name}", tenant.url);
    let body = json!({ "value": value, "for": "me", "hosts": [host] }).to_string();
    ProxyClient { url, key: tenant.key.clone() }.send("PUT", &[], Some(&body)).status
}

/// Opens the stream of a new session, which sends nothing by itself.
fn stream(client: &ProxyClient) -> Raw {
    let session = client.initialize("2025-11-25");
    let within = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let mut stream = Raw::open(client, "GET", &within, None);
    stream.until("text/event-stream");
    stream
}

/// Revoking a key ends the streams that it opened, on all gateways. Streams of other keys stay open.
#[test]
fn revoking_a_key_ends_its_streams_on_all_gateways() {
    let home = Installation::new();
    let (server, replica) = (home.start(), home.replica().start());
    let upstream = Everything::start();
    Entry::http("local.default", "open", &upstream.url).publish(&home);
    let make = || -> serde_json::Value {
        let made = ["keys", "create", "--scope", "local.default", "--json"];
        serde_json::from_str(&home.run_ok(&made)).unwrap()
    };
    let (revoked, other) = (make(), make());
    let at = |key: &serde_json::Value, server: &Server| {
        let key = key["key"].as_str().unwrap().to_owned();
        stream(&ProxyClient::new(&Tenant { key, url: server.url().to_owned() }, "open"))
    };
    let mut ending = [at(&revoked, &server), at(&revoked, &replica)];
    let mut staying = [at(&other, &server), at(&other, &replica)];
    home.run_ok(&["keys", "revoke", "--scope", "local.default", revoked["id"].as_str().unwrap()]);
    for stream in &mut ending {
        poll("the stream to end", PATIENCE, || stream.has_ended().then_some(()));
    }
    assert!(staying.iter_mut().all(|stream| !stream.has_ended()));
}

/// Changing a secret closes the streams and pooled connections that were opened with it, and no others.
#[test]
fn changing_a_secret_closes_its_streams_and_connections() {
    let home = Installation::new();
    let server = home.start_with(&[("PML_LOG", "debug")]);
    let upstream = Everything::start();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let scope = scope_of(&tenant);
    let mut keyed = Entry::http(&scope, "open", &upstream.url).needs("OPEN_TOKEN");
    let echo =
        json!({ "name": "echo", "description": "Echoes", "inputSchema": { "type": "object" } });
    keyed.tools = vec![echo.clone()];
    keyed.publish(&home);
    let mut bare = Entry::http(&scope, "bare", &upstream.url);
    bare.tools = vec![echo];
    bare.publish(&home);
    let (open, bare) = (ProxyClient::new(&tenant, "open"), ProxyClient::new(&tenant, "bare"));
    let host = host_of(&upstream.url);
    // The log states how many connections a change closes. Changes that arrive together are logged as one.
    let closed = || -> Vec<u32> {
        let log = home.log();
        let counts =
            log.lines().filter_map(|line| line.split_once("Stored secrets changed: closed "));
        counts.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let put = |name: &str, value: &str, status: u16| {
        let before = closed().len();
        assert_eq!(put(&tenant, name, value, &host), status);
        poll("the gateway to learn of it", PATIENCE, || (closed().len() > before).then_some(()));
    };
    put("OPEN_TOKEN", "canary-1", 201);
    let (mut ending, mut staying) = (stream(&open), stream(&bare));
    let mcp = HttpMcp::new(&tenant, Era::Stateless);
    for tool in ["open:echo", "bare:echo"] {
        let result = mcp.call(tool, json!({ "message": "hello" }));
        assert_eq!(result["content"][0]["text"], "hello", "{result}");
    }
    // Storing another secret ends no stream.
    put("OTHER_TOKEN", "canary-0", 201);
    assert_eq!(mcp.call("open:echo", json!({ "message": "on" }))["content"][0]["text"], "on");
    assert!(!ending.has_ended() && !staying.has_ended());
    put("OPEN_TOKEN", "canary-2", 200);
    poll("the stream to end", PATIENCE, || ending.has_ended().then_some(()));
    assert_eq!(closed().last(), Some(&1));
    assert!(!staying.has_ended());
    // The control: the new secret is used, and a new stream can be opened with it.
    assert_eq!(mcp.call("open:echo", json!({ "message": "again" }))["content"][0]["text"], "again");
    let mut again = stream(&open);
    assert!(!again.has_ended());
}

/// A stream that was opened with a new secret is not closed by the late notification about this secret.
#[test]
fn a_late_notification_does_not_close_a_stream_with_the_new_secret() {
    let home = Installation::new();
    let server = home.start();
    let upstream = Everything::start();
    let tenant = server.tenant_with_rights("execute,read,admin");
    Entry::http(&scope_of(&tenant), "open", &upstream.url).needs("OPEN_TOKEN").publish(&home);
    let open = ProxyClient::new(&tenant, "open");
    let host = host_of(&upstream.url);
    for turn in 0..20 {
        assert!(put(&tenant, "OPEN_TOKEN", &format!("canary-{turn}"), &host) < 300);
        let mut stream = stream(&open);
        // After two more requests, most notifications have arrived; a later one shows in the next turn.
        assert!(put(&tenant, "OTHER_TOKEN", "canary", &host) < 300);
        open.initialize("2025-11-25");
        assert!(!stream.has_ended(), "turn {turn}");
    }
}
