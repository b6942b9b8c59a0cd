//! An upstream may repeat the secret anywhere in its answer; it must not reach the log, even through a library.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::support::http::send;
use crate::support::server::Installation;
use crate::support::upstream::{Entry, host_of};
use crate::support::{PATIENCE, poll};

const CANARY: &str = "canary-9f2b71d3e8";

/// Where the upstream repeats the secret.
const PLACES: [&str; 14] = [
    "content_type",
    "content_type_base64",
    "status_text",
    "redirect",
    "redirect_userinfo",
    "challenge",
    "session",
    "cookie",
    "header_name",
    "encoding",
    "length",
    "body",
    "event",
    "trailer",
];

/// Answers a request with its secret in the place that the path names.
fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length, mut key) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if head.is_empty() {
            head = line.to_owned();
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "authorization" => key = value.trim().trim_start_matches("Bearer ").to_owned(),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let base64 = BASE64.encode(format!("user:{key}").as_bytes());
    let json = "content-type: application/json\r\n";
    let (status, headers, body) = match path.trim_start_matches('/') {
        "content_type" => {
            ("200 OK", format!("content-type: text/{key}; x=\"{key}\"\r\n"), key.clone())
        }
        "content_type_base64" => {
            ("200 OK", format!("content-type: text/x; x=\"{base64}\"\r\n"), base64)
        }
        "status_text" => (format!("500 no {key}").leak() as &str, json.to_owned(), key.clone()),
        "redirect" => (
            "307 Moved",
            format!("location: http://{key}.invalid/{key}?k={key}\r\n"),
            String::new(),
        ),
        "redirect_userinfo" => {
            ("308 Moved", format!("location: http://x:{key}@127.0.0.1:1/\r\n"), String::new())
        }
        "challenge" => (
            "401 Unauthorized",
            format!(
                "www-authenticate: Bearer realm=\"{key}\", resource_metadata=\"http://127.0.0.1:1/{key}\"\r\n"
            ),
            key.clone(),
        ),
        "session" => ("404 Not Found", format!("mcp-session-id: {key}\r\n{json}"), key.clone()),
        "cookie" => {
            ("403 Forbidden", format!("set-cookie: k={key}; domain={key}\r\n{json}"), key.clone())
        }
        "header_name" => ("200 OK", format!("{key} x: y\r\n{json}"), String::new()),
        "encoding" => (
            "200 OK",
            format!("content-encoding: {key}\r\ntransfer-encoding: {key}\r\n"),
            key.clone(),
        ),
        "length" => ("200 OK", format!("content-length: {key}\r\n{json}"), key.clone()),
        "event" => (
            "200 OK",
            "content-type: text/event-stream\r\n".to_owned(),
            format!("event: {key}\nid: {key}\ndata: {{\"{key}\": {key}\n\n"),
        ),
        "trailer" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n";
            let whole = format!("{head}2;{key}={key}\r\n{{}}\r\n0\r\nx: {key}\r\n{key}\r\n\r\n");
            return stream.write_all(whole.as_bytes());
        }
        _ => ("200 OK", json.to_owned(), format!("{{\"jsonrpc\":\"2.0\",\"{key}\":\"{key}\",")),
    };
    let answer = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes())
}

/// NX-09: what libraries log about an answer, at the level `trace`, is redacted.
#[test]
fn no_secret_reaches_the_log_through_a_library() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || echo(stream));
        }
    });
    let installation = Installation::new();
    let gateway = installation.start_with(&[("PML_LOG", "trace")]);
    let bearer = format!("Bearer {}", installation.first_key());
    let host = host_of(&upstream);
    for place in PLACES {
        let mut entry = Entry::http("local.default", place, &format!("{upstream}/{place}"));
        entry = entry.needs("ECHO_KEY");
        entry.tools = vec![json!({ "name": "say", "inputSchema": { "type": "object" } })];
        entry.publish(&installation);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
            ("x-pml-key-echo-key", CANARY),
            ("x-pml-host-echo-key", &host),
        ];
        let code = format!("return await mcp.{place}.say({{}})");
        let body = |method: &str, params: Value| {
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
                .to_string()
                .into_bytes()
        };
        let params = json!({ "name": "pml_execute", "arguments": { "code": code } });
        let ran = send(
            "POST",
            &format!("{}/mcp", gateway.url()),
            &headers,
            Some(body("tools/call", params)),
        );
        let ran = String::from_utf8_lossy(&ran.body).into_owned();
        assert!(ran.contains("TOOL_"), "{place} did not fail because of the answer: {ran}");
        assert!(!ran.contains(CANARY), "{place}: {ran}");
        let through = format!("{}/mcp/proxy/{place}", gateway.url());
        let passed = send("POST", &through, &headers, Some(body("tools/list", json!({}))));
        assert!(!String::from_utf8_lossy(&passed.body).contains(CANARY), "{place}");
    }
    // Tasks of libraries write to the log a moment later.
    let log = poll("the last place to be logged", PATIENCE, || {
        let log = installation.log();
        log.contains("/trailer").then_some(log)
    });
    assert!(log.contains("[redacted]"), "nothing of the upstream was logged");
    let encoded = BASE64.encode(format!("user:{CANARY}").as_bytes());
    for form in [CANARY, encoded.as_str(), &CANARY[7..]] {
        let found: Vec<&str> = log.lines().filter(|line| line.contains(form)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "not JSON: {line}");
    }
}
