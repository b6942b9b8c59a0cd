//! Messages that need much more memory than their size.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::proxy::messages::{ProxyClient, Raw};
use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Silence, handshaking};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::Installation;
use crate::support::upstream::{Entry, scope_of};
use crate::support::{PATIENCE, poll};

const MIB: u64 = 1024 * 1024;

/// Builds a call whose arguments contain `count` copies of a piece of JSON.
fn call_of(piece: &str, count: usize) -> Vec<u8> {
    let pieces = vec![piece; count].join(",");
    let arguments = json!({ "name": "json:parse", "arguments": { "data": "@" } });
    let message = Era::Handshake.request(1, "tools/call", arguments).to_string();
    message.replace("\"@\"", &format!("[{pieces}]")).into_bytes()
}

/// NX-04, R-15: 24 concurrent large messages of one tenant need at most 300 MiB, which are freed afterwards. Other
/// requests are served meanwhile.
#[test]
fn concurrent_large_messages_need_bounded_memory() {
    let server = Installation::new().start();
    let tenant = server.tenant();
    let client = || HttpMcp::new(&tenant, Era::Handshake);
    client().execute("return 1");
    let before = server.pid().memory();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let health = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::SeqCst) {
                let started = Instant::now();
                assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
                slowest = slowest.max(started.elapsed());
            }
            slowest
        });
        // The last three exceed the limit of bytes or of values.
        for (piece, count, expected) in [
            ("0", 199_000, [200, 503]),
            ("{\"a\":0}", 65_000, [200, 503]),
            ("[[],\"\"]", 49_000, [200, 503]),
            ("\"a text\"", 199_000, [200, 503]),
            ("0", 1_200_000, [413, 413]),
            ("0", 4_800_000, [413, 413]),
            ("{\"a\":0}", 1_200_000, [413, 413]),
        ] {
            let message = call_of(piece, count);
            std::thread::scope(|senders| {
                let client = &client;
                let message = &message;
                let sent: Vec<_> = (0..24)
                    .map(|_| {
                        senders.spawn(|| client().post(message, "tools/call", Some("json:parse")))
                    })
                    .collect();
                for reply in sent {
                    let reply = reply.join().unwrap();
                    assert!(
                        expected.contains(&reply.status),
                        "{count} of {piece}: {}",
                        reply.status
                    );
                }
            });
        }
        done.store(true, Ordering::SeqCst);
        // 50 ms are promised; a busy machine gets more.
        let slowest = health.join().unwrap();
        eprintln!("slowest answer of /health during large messages: {slowest:?}");
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    });
    let peak = server.pid().peak_memory();
    eprintln!("peak memory of concurrent large messages: {} MiB", peak / MIB);
    assert!(peak < 300 * MIB, "{} MiB", peak / MIB);
    // Allocators keep some free memory, so the test expects only half of it back.
    poll("the memory to be freed", PATIENCE, || {
        (server.pid().memory() < (before + peak) / 2).then_some(())
    });
}

/// NX-04: a result with very many values is refused before it is parsed. A large result below the limit passes.
#[test]
fn results_with_too_many_values_are_refused_before_parsing() {
    let servers = json!({ "mcpServers": { "bombs": { "command": "python3", "args": ["bombs.py"] } },
        "permissions": { "allow": ["*"] } });
    let project = Project::offline().configure(&servers);
    project.write("bombs.py", include_str!("../../fixtures/bombs.py"));
    let many = |pml: &mut StdioClient, shape: &str, item: &str, count: usize| {
        let call = json!({ "where": shape, "item": item, "count": count });
        pml.execute(&format!("return JSON.stringify(await mcp.bombs.many({call})).length"))
    };
    for (shape, item, count) in [
        ("blocks", r#"{"type":"text","text":"a"}"#, 500_000),
        ("values", "[[],{}]", 2_000_000),
        ("values", r#"{"a":0}"#, 2_000_000),
        ("values", "0", 6_000_000),
    ] {
        let mut pml = project.stdio();
        let envelope = many(&mut pml, shape, item, count);
        let message = failure(&envelope, "TOOL_UNAVAILABLE");
        assert!(message.contains("more than 500000 values"), "{message}");
        let peak = pml.pid().peak_memory();
        assert!(peak < 250 * MIB, "{count} of {item}: {} MiB", peak / MIB);
    }
    let mut pml = project.stdio();
    assert!(
        success(&many(&mut pml, "blocks", r#"{"type":"text","text":"a"}"#, 20_000)).as_u64()
            > Some(20_000)
    );
    assert!(success(&many(&mut pml, "values", "[1,\"a\"]", 100_000)).as_u64() > Some(100_000));
    let peak = pml.pid().peak_memory();
    assert!(peak < 250 * MIB, "{} MiB", peak / MIB);
}

/// NX-04: messages in flight count by their size, so a tenant can have many small ones at the same time, even at one
/// server.
#[test]
fn many_small_messages_run_concurrently() {
    const MESSAGES: usize = 40;
    let upstream = handshaking("silent", |method| match method {
        "tools/call" => Err(Silence),
        _ => Ok(None),
    });
    let home = Installation::new();
    let server = home.start();
    let tenant = server.tenant();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "silent", &upstream.url);
    entry.tools = vec![
        json!({ "name": "wait", "description": "Waits", "inputSchema": { "type": "object" } }),
    ];
    entry.publish(&home);
    let mcp = ProxyClient { url: format!("{}/mcp", server.url()), key: tenant.key.clone() };
    let call = json!({ "name": "silent:wait", "arguments": {} });
    let call = Era::Handshake.request(1, "tools/call", call).to_string();
    let version = [("mcp-protocol-version", "2025-11-25")];
    let _waiting: Vec<Raw> =
        (0..MESSAGES).map(|_| Raw::open(&mcp, "POST", &version, Some(&call))).collect();
    poll("all calls to reach the server", PATIENCE, || {
        let calls =
            upstream.received().iter().filter(|received| received.contains("tools/call")).count();
        (calls == MESSAGES).then_some(())
    });
}
