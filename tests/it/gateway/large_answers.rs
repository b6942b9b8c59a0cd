//! Answers of HTTP MCP servers that need much more memory than their size.

use serde_json::{Value, json};

use crate::proxy::messages::ProxyClient;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, host_of, scope_of};

const MIB: u64 = 1024 * 1024;

/// A secret that the server includes in its answer.
const KEY: &str = "bomb-canary-0f3e";

/// Starts an MCP server whose tool `many` answers with the requested number of copies of a piece of JSON, as JSON or
/// as an event.
fn bombs() -> GatewayStub {
    GatewayStub::start(|message| {
        let id = &message["id"];
        if id.is_null() {
            return Answer::Raw(202, "text/plain", Vec::new());
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "bombs", "version": "1" } })
                .to_string()
            }
            "tools/list" => json!({ "tools": [tool()] }).to_string(),
            "tools/call" => many(&message["params"]["arguments"]),
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                return Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
        match message["params"]["arguments"]["as"] == "event" {
            true => {
                let event = format!("data: {answer}\n\n").into_bytes();
                Answer::Raw(200, "text/event-stream", event)
            }
            false => Answer::Raw(200, "application/json", answer.into_bytes()),
        }
    })
}

fn tool() -> Value {
    json!({ "name": "many", "description": "Answers much", "inputSchema": { "type": "object" } })
}

fn many(arguments: &Value) -> String {
    let count = arguments["count"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
    let items = vec![arguments["item"].as_str().unwrap_or("0"); count].join(",");
    match arguments["where"] == "blocks" {
        true => format!("{{\"content\":[{items}]}}"),
        false => format!("{{\"content\":[],\"structuredContent\":{{\"items\":[{items}]}}}}"),
    }
}

/// Answers that exceed the limit of values or of bytes.
const TOO_LARGE: [(&str, &str, u64); 5] = [
    ("blocks", r#"{"type":"text","text":"a"}"#, 250_000),
    ("values", "[[],{}]", 1_000_000),
    ("values", r#"{"a":0}"#, 900_000),
    ("values", "0", 4_000_000),
    ("values", "\"some text of forty letters, of which many\"", 300_000),
];

fn call_of((shape, item, count): (&str, &str, u64), kind: &str) -> Value {
    json!({ "where": shape, "item": item, "count": count, "as": kind })
}

fn published(home: &Installation, server: &Server, bombs: &GatewayStub) -> Tenant {
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    for (namespace, key) in [("bombs", None), ("keyed", Some("BOMB_KEY"))] {
        let mut entry = Entry::http(&scope, namespace, &bombs.url);
        entry.tools = vec![tool()];
        let entry = if let Some(key) = key { entry.needs(key) } else { entry };
        entry.publish(home);
    }
    let secret = json!({ "value": KEY, "for": "me", "hosts": [host_of(&bombs.url)] });
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let url = format!("{}/api/v1/secrets/BOMB_KEY", tenant.url);
    let stored = send("PUT", &url, &headers, Some(secret.to_string().into_bytes()));
    assert_eq!(stored.status, 201, "{}", text(&stored.body));
    tenant
}

/// NX-04, R-15: the gateway refuses answers over its limits before it parses them. Other large answers pass.
#[test]
fn the_gateway_checks_the_size_of_answers_before_parsing() {
    let (home, bombs) = (Installation::new(), bombs());
    let server = home.start();
    let tenant = published(&home, &server, &bombs);
    let run = |call: &Value| {
        let code = format!("return JSON.stringify(await mcp.bombs.many({call})).length");
        HttpMcp::new(&tenant, Era::Handshake).execute(&code)
    };
    for kind in ["json", "event"] {
        for bomb in TOO_LARGE {
            std::thread::scope(|scope| {
                let runs: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| run(&call_of(bomb, kind)))).collect();
                for envelope in runs {
                    let envelope = envelope.join().unwrap();
                    let message = failure(&envelope, "TOOL_RESULT_TOO_LARGE");
                    assert!(message.contains("`bombs:many`"), "{message}");
                }
            });
        }
        // The connection is still usable, and a large answer below the limits passes.
        let large = call_of(("values", "[1,\"a\"]", 60_000), kind);
        assert!(success(&run(&large)).as_u64() > Some(400_000));
    }
    let peak = server.pid().peak_memory();
    assert!(peak < 300 * MIB, "{} MiB", peak / MIB);
}

/// NX-04: the same for a server that `pml` calls directly.
#[test]
fn pml_checks_the_size_of_answers_before_parsing() {
    let bombs = bombs();
    let config = json!({ "mcpServers": { "bombs": { "type": "http", "url": bombs.url } },
        "permissions": { "allow": ["*"] } });
    let project = Project::offline().configure(&config);
    let mut pml = project.stdio();
    let mut run = |call: &Value| {
        let code = format!("return JSON.stringify(await mcp.bombs.many({call})).length");
        pml.execute(&code)
    };
    for kind in ["json", "event"] {
        for (shape, item, count) in [
            ("blocks", r#"{"type":"text","text":"a"}"#, 500_000),
            ("values", "[[],{}]", 2_000_000),
            ("values", r#"{"a":0}"#, 2_000_000),
        ] {
            let envelope = run(&call_of((shape, item, count), kind));
            let message = failure(&envelope, "TOOL_RESULT_TOO_LARGE");
            assert!(message.contains("too large"), "{message}");
        }
        assert!(
            success(&run(&call_of(("values", "[1,\"a\"]", 100_000), kind))).as_u64()
                > Some(800_000)
        );
    }
    let peak = pml.pid().peak_memory();
    assert!(peak < 250 * MIB, "{} MiB", peak / MIB);
}

/// NX-04, R-15: proxied messages need no more memory than their size, and the total per tenant is bounded. This holds
/// for large messages, for answers from which a secret is removed, and for event streams.
#[test]
fn the_proxy_needs_bounded_memory_per_tenant() {
    let (home, bombs) = (Installation::new(), bombs());
    let server = home.start();
    let tenant = published(&home, &server, &bombs);
    let post = |server: &str, arguments: Value| {
        let call = Era::Handshake.request(
            1,
            "tools/call",
            json!({ "name": "many", "arguments": arguments }),
        );
        ProxyClient::new(&tenant, server).post(&[("mcp-protocol-version", "2025-11-25")], &call)
    };
    let long = "x".repeat(9 << 20);
    let escaped = format!("\"\\n{KEY}\",[]");
    let loads: [(&str, Value); 4] = [
        // One long string, then many names.
        ("bombs", json!({ "count": 0, "text": long })),
        (
            "bombs",
            json!({ "count": 0, "names": (0..150_000).map(|n| (format!("n{n}"), json!(0))).collect::<serde_json::Map<_, _>>() }),
        ),
        ("keyed", call_of(("values", &escaped, 150_000), "json")),
        ("keyed", call_of(("values", &escaped, 150_000), "event")),
    ];
    for (namespace, arguments) in loads {
        std::thread::scope(|scope| {
            let sent: Vec<_> =
                (0..12).map(|_| scope.spawn(|| post(namespace, arguments.clone()))).collect();
            let replies: Vec<_> = sent.into_iter().map(|reply| reply.join().unwrap()).collect();
            let passed = replies.iter().filter(|reply| reply.status == 200);
            assert!(passed.count() > 0, "{}", text(&replies[0].body));
            for reply in replies {
                assert!(matches!(reply.status, 200 | 503), "{}", reply.status);
                assert!(!text(&reply.body).contains(KEY));
            }
        });
    }
    let peak = server.pid().peak_memory();
    assert!(peak < 300 * MIB, "{} MiB", peak / MIB);
}
