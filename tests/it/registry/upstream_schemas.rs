//! Tool schemas of upstream servers: they are forwarded and shown, but never resolved or evaluated.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::proxy::messages::ProxyClient;
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub, handshaking};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Server;
use crate::support::upstream::{Entry, scope_of};

/// Tools whose schemas refer to addresses, expand exponentially, recurse, or backtrack.
fn bombs(canary: &str) -> Vec<Value> {
    let mut twenty = json!({ "type": "string" });
    for _ in 0..20 {
        twenty = json!({ "allOf": [twenty.clone()] });
    }
    let mut doubling = json!({ "a0": { "type": "string" } });
    for n in 1..=30 {
        let before = json!({ "$ref": format!("#/$defs/a{}", n - 1) });
        doubling[format!("a{n}")] = json!({ "allOf": [before, before] });
    }
    [
        ("fetches", json!({ "$ref": format!("{canary}/schema.json") })),
        ("fetches_id", json!({ "$id": canary, "$schema": format!("{canary}/meta"), "$ref": "other.json" })),
        ("reads", json!({ "$ref": "file:///etc/passwd" })),
        ("recurses", json!({ "$ref": "#" })),
        ("recurses_twice", json!({ "properties": { "x": { "$ref": "#" } }, "allOf": [{ "$ref": "#" }] })),
        ("nests", json!({ "properties": { "x": twenty } })),
        ("doubles", json!({ "$ref": "#/$defs/a30", "$defs": doubling })),
        ("backtracks", json!({ "properties": { "x": { "pattern": "(a+)+$" } } })),
        ("is_no_pattern", json!({ "properties": { "x": { "pattern": "(" } } })),
    ]
    .map(|(name, mut schema)| {
        schema["type"] = json!("object");
        json!({ "name": name, "description": "A schema bomb", "inputSchema": schema, "outputSchema": schema })
    })
    .into()
}

/// GW-22: references in upstream schemas are never fetched or expanded, and their patterns are never matched.
#[test]
fn upstream_schemas_are_never_resolved_or_evaluated() {
    let canary = GatewayStub::start(|_| Answer::Close);
    let tools = bombs(&canary.url);
    let listed = tools.clone();
    let upstream = handshaking("bombs", move |method| {
        Ok(match method {
            "tools/list" => Some(json!({ "tools": listed })),
            "tools/call" => Some(json!({
                "content": [{ "type": "text", "text": "{\"x\":\"y\"}" }], "structuredContent": { "x": "y" },
            })),
            _ => None,
        })
    });
    let server = Server::shared();
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "bombs", &upstream.url);
    entry.tools = tools.clone();
    entry.publish(server.installation());
    let started = Instant::now();
    // The proxy forwards them unchanged.
    let client = ProxyClient::new(&tenant, "bombs");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    assert_eq!(client.post(&[], &list).json()["result"]["tools"], json!(tools));
    // They are read from the registry and found; their tools are called by id and in programs.
    let mcp = HttpMcp::new(&tenant, Era::Stateless);
    let bearer = format!("Bearer {}", tenant.key);
    let read = crate::support::http::get(
        &format!("{}/mcp/bombs", tenant.url),
        &[("authorization", &bearer)],
    );
    assert_eq!(read.json()["tools"].as_array().unwrap().len(), tools.len());
    let found = mcp.call("pml_discover", json!({ "pattern": "bombs:*", "limit": 20 }));
    let arguments = json!({ "x": "a".repeat(50_000) + "!" });
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        assert!(found.to_string().contains(name), "{name}: {found}");
        let called = mcp.call(&format!("bombs:{name}"), arguments.clone());
        assert_eq!(called["structuredContent"]["x"], "y", "{name}: {called}");
        let passed = client.call_stateless(name, arguments.clone()).json();
        assert_eq!(passed["result"]["structuredContent"]["x"], "y", "{name}: {passed}");
    }
    let program = "return (await mcp.bombs.backtracks({ x: 'a'.repeat(5000) + '!' })).x + (await mcp.bombs.doubles({})).x";
    assert_eq!(success(&mcp.execute(program)), "yy");
    assert_eq!(canary.requests(), 0, "{:?}", canary.received());
    // It takes about a hundredth of this limit; evaluating such a schema would take longer than any limit.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
