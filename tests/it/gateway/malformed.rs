//! Malformed input gets the specified error, and the process continues to serve.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll, scaled};

/// Lines that are not JSON-RPC messages.
fn nonsense() -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = [
        "not json",
        "{",
        "{\"jsonrpc\":\"2.0\",",
        "\"text\"",
        "123",
        "null",
        "true",
        "[1,2",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":",
        "{}",
        "[]",
        "{\"jsonrpc\":\"1.0\"}",
    ]
    .iter()
    .map(|line| line.as_bytes().to_vec())
    .collect();
    lines.push(vec![0xff, 0xfe, 0xfd]);
    lines.push(b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\xc3\"}".to_vec());
    lines.push(b"\0\0\0".to_vec());
    lines.push(vec![b'['; 20_000]);
    lines
}

/// CL-02: after any malformed line on stdin, the next request is served.
#[test]
fn stdio_serves_requests_after_malformed_lines() {
    for mut pml in [Project::new().stdio(), Project::new().stdio_stateless()] {
        for line in nonsense() {
            let mut line = line;
            line.push(b'\n');
            pml.write(&line);
            pml.write(b"\n\r\n  \n");
            let tools = pml.request("tools/list", json!({}));
            assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(4), "{tools}");
        }
        assert_eq!(success(&pml.execute("return await mcp.math.eval({ expression: '1' })")), 1);
    }
}

/// CL-02: text that is not JSON is answered with -32700, as JSON-RPC requires.
#[test]
fn stdio_answers_invalid_json_with_a_parse_error() {
    let mut pml = Project::new().stdio();
    pml.write(b"this is not json\n");
    let reply = pml.next_message(Duration::from_secs(10)).expect("an answer");
    assert_eq!((&reply["error"]["code"], &reply["id"]), (&json!(-32700), &Value::Null), "{reply}");
}

/// CL-02: a line of 100 MiB is not kept in memory, and the next request is served.
#[test]
fn stdio_discards_an_oversized_line() {
    let mut pml = Project::new().stdio();
    pml.request("tools/list", json!({}));
    let before = pml.pid().tree_memory();
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..scaled(100).max(50) {
        pml.write(&megabyte);
    }
    pml.write(b"\n");
    let tools = pml.request("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(4), "{tools}");
    poll("memory to stay within 64 MiB", PATIENCE, || {
        (pml.pid().tree_memory() < before + (64 << 20)).then_some(())
    });
}

/// An unknown method is -32601, wrong parameters -32602, an unknown tool an error result.
#[test]
fn stdio_answers_invalid_requests_with_the_specified_errors() {
    let mut pml = Project::new().stdio();
    assert_eq!(pml.request("no/such", json!({}))["error"]["code"], -32601);
    let wrong = pml.request("tools/call", json!({ "name": 5 }));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    for (name, arguments, code) in [
        ("pml_execute", json!({ "code": 5 }), "INVALID_REQUEST"),
        ("pml_execute", json!({ "kode": "return 1" }), "INVALID_REQUEST"),
        ("pml_execute", json!({}), "INVALID_REQUEST"),
        ("pml_continue", json!({ "approved": true }), "INVALID_REQUEST"),
        ("no such tool", json!({}), "TOOL_NOT_FOUND"),
        ("json__prase", json!({}), "TOOL_NOT_FOUND"),
    ] {
        let result = pml.call(name, arguments);
        assert_eq!(result["isError"], true, "{name}: {result}");
        failure(&result["structuredContent"], code);
    }
}

/// A tool can be called directly, by its wire name and by its id.
#[test]
fn a_tool_can_be_called_by_wire_name_or_id() {
    let project = Project::new().allow(&["filesystem:*"]);
    project.write("a.txt", "direct");
    let mut pml = project.stdio();
    for name in ["json__parse", "json:parse"] {
        let result = pml.call(name, json!({ "data": "[1]" }));
        assert_eq!(result["structuredContent"], json!({ "value": [1] }), "{name}: {result}");
    }
    let result = pml.call("filesystem__read_text_file", json!({ "path": "a.txt" }));
    assert_eq!(result["structuredContent"]["value"], "direct", "{result}");
}

/// GW-19: a body that is not JSON gets 400 with -32700, and JSON that is not a request -32600, never 5xx.
#[test]
fn http_answers_malformed_bodies_with_400_and_a_json_rpc_error() {
    let tenant = Server::shared().tenant();
    for era in [Era::Handshake, Era::Stateless] {
        let client = HttpMcp::new(&tenant, era);
        for body in nonsense() {
            let reply = client.post(&body, "tools/list", None);
            let shown = text(&body[..body.len().min(60)]);
            assert_eq!(reply.status, 400, "{shown}: {}", text(&reply.body));
            let is_json = serde_json::from_slice::<Value>(&body).is_ok();
            let code = if is_json { -32600 } else { -32700 };
            assert_eq!(reply.json()["error"]["code"], code, "{shown}: {}", text(&reply.body));
        }
        assert_eq!(success(&client.execute("return 1")), 1);
    }
}

/// GW-13, GW-18: batches, invalid ids and duplicate members are refused, never with a server error.
#[test]
fn http_refuses_batches_invalid_ids_and_duplicate_members() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Handshake);
    let list = r#""method":"tools/list","params":{}"#;
    for (body, accepted) in [
        (format!(r#"{{"jsonrpc":"2.0","id":1,{list}}}"#), true),
        (format!(r#"{{"jsonrpc":"2.0","id":"text",{list}}}"#), true),
        (format!(r#"[{{"jsonrpc":"2.0","id":1,{list}}}]"#), false),
        (format!(r#"{{"jsonrpc":"2.0","id":null,{list}}}"#), false),
        (format!(r#"{{"jsonrpc":"2.0","id":true,{list}}}"#), false),
        (format!(r#"{{"jsonrpc":"2.0","id":1.5,{list}}}"#), false),
        (format!(r#"{{"jsonrpc":"1.0","id":1,{list}}}"#), false),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), false),
    ] {
        let reply = client.post(body.as_bytes(), "tools/list", None);
        let shown = format!("{body}: {} {}", reply.status, text(&reply.body));
        assert!(reply.status < 500, "{shown}");
        if accepted {
            assert_eq!(reply.status, 200, "{shown}");
            let sent: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(reply.json()["id"], sent["id"], "{shown}");
        } else {
            assert_eq!(reply.status, 400, "{shown}");
            assert!(!text(&reply.body).contains("pml_execute"), "{shown}");
        }
    }
    let duplicate = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"pml_execute","arguments":{"code":"return 666"}}}"#;
    let reply = client.post(duplicate.as_bytes(), "tools/list", None);
    assert!(reply.status < 500 && !text(&reply.body).contains("666"), "{}", text(&reply.body));
}

/// GW-20: a body over 10 MiB is refused with 413.
#[test]
fn http_refuses_bodies_over_10_mib() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Handshake);
    let reply = client.post(&vec![b' '; (10 << 20) + 1], "tools/list", None);
    assert_eq!(reply.status, 413, "{}", text(&reply.body));
    success(&client.execute("return 1"));
}

/// GW-16, GW-17: a foreign Origin or Host is refused; loopback without Origin is served.
#[test]
fn http_refuses_foreign_origins_and_hosts() {
    let tenant = Server::shared().tenant();
    let authorization = format!("Bearer {}", tenant.key);
    let url = format!("{}/mcp", tenant.url);
    let body = Era::Handshake.request(1, "tools/list", json!({})).to_string();
    let answer = |name: &str, value: &str| {
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
            (name, value),
        ];
        send("POST", &url, &headers, Some(body.clone().into_bytes()))
    };
    let check_refusal = |name: &str, value: &str| {
        let reply = answer(name, value);
        assert_eq!(reply.status, 403, "{name}: {value}");
        // Not that the key lacks a right.
        let hint = reply.json()["hint"].as_str().unwrap_or_default().to_owned();
        assert!(hint.contains("PML_ALLOWED_HOSTS"), "{name}: {value}: {hint}");
    };
    assert_eq!(answer("x-nothing", "1").status, 200);
    for origin in
        ["http://evil.test", "null", "http://127.0.0.1.evil.test", "http://localhost.evil.test"]
    {
        check_refusal("origin", origin);
    }
    for host in ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test:80"] {
        check_refusal("host", host);
    }
}

/// GW-17: both settings with the gateway's names apply to `POST /mcp` and to the proxy.
#[test]
fn http_accepts_the_configured_hosts() {
    let home = Installation::new();
    let server = home.start_with(&[
        ("PML_PUBLIC_URL", "https://gw.example:8443/pml"),
        ("PML_ALLOWED_HOSTS", "Other.example, third.example:81"),
    ]);
    let authorization = format!("Bearer {}", home.first_key());
    let body = Era::Handshake.request(1, "tools/list", json!({})).to_string();
    for (host, is_allowed) in [
        ("gw.example:8443", true),
        ("GW.example:8443", true),
        ("other.example", true),
        ("third.example:81", true),
        ("gw.example", false),
        ("third.example", false),
        ("evil.test", false),
    ] {
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
            ("host", host),
        ];
        let status = |path: &str| {
            let url = format!("{}{path}", server.url());
            send("POST", &url, &headers, Some(body.clone().into_bytes())).status
        };
        assert_eq!(status("/mcp"), if is_allowed { 200 } else { 403 }, "{host}");
        let proxied = status("/mcp/proxy/local.default.nothing");
        assert_eq!(proxied == 403, !is_allowed, "{host}: {proxied}");
    }
}

/// GW-14: headers that contradict the body are refused with -32020.
#[test]
fn http_refuses_headers_that_contradict_the_body() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let arguments = json!({ "name": "json:parse", "arguments": { "data": "1" } });
    let body = Era::Stateless.request(7, "tools/call", arguments).to_string();
    let good = client.post(body.as_bytes(), "tools/call", Some("json:parse"));
    assert_eq!(good.status, 200, "{}", text(&good.body));
    for (method, name) in [
        ("tools/list", Some("json:parse")),
        ("tools/call", Some("json:stringify")),
        ("TOOLS/CALL", Some("json:parse")),
        ("tools/call", None),
    ] {
        let reply = client.post(body.as_bytes(), method, name);
        assert_eq!(reply.status, 400, "{method} {name:?}: {}", text(&reply.body));
        assert_eq!(reply.json()["error"]["code"], -32020, "{method} {name:?}");
    }
}

/// A program that is not UTF-8 is refused with the position of the invalid byte.
#[test]
fn a_program_that_is_not_utf8_is_refused_with_the_position() {
    let project = Project::offline();
    let output = project.run_with(&["analyze", "-"], b"return '\xff';");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("byte 8"), "{}", text(&output.stderr));
    let output = project.run_with(&["exec", "-"], b"return '\xff';");
    assert_eq!(output.status.code(), Some(2));
}

/// AN-05: byte order marks, line separators and bidirectional controls do not hide a call from the analysis.
#[test]
fn unusual_characters_do_not_hide_calls() {
    let mut pml = Project::new().stdio();
    for code in [
        "\u{feff}return await mcp.json.parse({ data: '1' })",
        "const s = 'é\u{2028}😀'; return await m\\u0063p.json.parse({ data: '1' })",
        "/* \u{202e} */ return await mcp.json.parse({ data: '1' })",
    ] {
        let envelope = pml.execute(code);
        if envelope["status"] == "success" {
            assert_eq!(envelope["tools_used"][0]["id"], "json:parse", "{code:?}");
        } else {
            assert!(envelope["error_code"].is_string(), "{code:?}: {envelope:#}");
        }
    }
    alive(&mut pml);
}

#[track_caller]
fn alive(pml: &mut StdioClient) {
    assert_eq!(success(&pml.execute("return 1")), 1);
}

/// SB-21: the bytes of an engine's bytecode are read as source text, which does not parse.
#[test]
fn bytecode_is_parsed_as_source_text_and_refused() {
    let client = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    // The version bytes that QuickJS has used for its bytecode, followed by atoms, a function and its end.
    for version in [1u8, 2, 5, 0x14, 0x15, 0x18, 0x43, 0x45] {
        let code: String = [version, 1, 8, b'x', 0, 12, 0, 6, 0, 0xa2, 1, 0x29]
            .iter()
            .map(|b| char::from(*b))
            .collect();
        failure(&client.execute(&code), "PARSE_ERROR");
    }
    failure(&client.execute("\u{7f}ELF\u{2}\u{1}\u{1}"), "PARSE_ERROR");
    failure(&client.execute("\0asm\u{1}\0\0\0"), "PARSE_ERROR");
}
