//! SE-01: makes calls with secrets that end in many ways, then searches every place that could have kept one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Tenant};
use crate::support::upstream::{Entry, host_of, scope_of};
use crate::support::{PATIENCE, poll};

/// How an upstream ends a call. Every answer contains the secret that the upstream received.
const ENDS: [&str; 6] = ["answer", "refuse", "break", "garble", "fail", "hang"];
/// How a call is made.
const ROUTES: [&str; 4] = ["program", "name", "proxy", "header"];

/// An upstream that repeats the secret in each answer, in several encodings.
fn upstream(received: Arc<Mutex<Vec<String>>>) -> GatewayStub {
    GatewayStub::start_with_head(move |head, body| {
        let key = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
        });
        let key = key.unwrap_or_default();
        let answer = |part: &str, value: Value| {
            Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], part: value }))
        };
        if body["id"].is_null() {
            return Answer::Raw(if body.is_null() { 405 } else { 202 }, "text/plain", Vec::new());
        }
        match body["method"].as_str() {
            Some("initialize") => {
                let capabilities = json!({ "tools": {} });
                return answer(
                    "result",
                    json!({
                        "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "serverInfo": { "name": "indiscreet", "version": "1" },
                    }),
                );
            }
            Some("tools/call") => received.lock().unwrap().push(key.clone()),
            _ => return answer("error", json!({ "code": -32601, "message": "no such method" })),
        }
        let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        let leak = format!("{key} {hex} {}", data_encoding::BASE64.encode(key.as_bytes()));
        match body["params"]["name"].as_str() {
            Some("answer") => {
                answer("result", json!({ "content": [{ "type": "text", "text": leak }] }))
            }
            Some("refuse") => Answer::Raw(401, "text/plain", leak.into_bytes()),
            Some("break") => Answer::Raw(500, "text/html", leak.into_bytes()),
            Some("garble") => {
                Answer::Raw(200, "application/json", format!("{{\"{leak}").into_bytes())
            }
            Some("fail") => answer(
                "error",
                json!({ "code": -32000, "message": leak, "data": { "sent": leak } }),
            ),
            _ => Answer::Never,
        }
    })
}

/// Calls a tool of the upstream by name, over `/mcp` or through the proxy. For `hang`, it disconnects once the
/// upstream has received the call.
fn call_by_hand(
    tenant: &Tenant,
    route: &str,
    end: &str,
    (key, host): (&str, &str),
    received: impl Fn() -> bool,
) -> String {
    let (path, tool) = match route {
        "proxy" => ("/mcp/proxy/indiscreet", end.to_owned()),
        _ => ("/mcp", format!("indiscreet:{end}")),
    };
    let body = Era::Stateless.request(1, "tools/call", json!({ "name": tool, "arguments": {} }));
    let body = body.to_string();
    let mut headers = vec![
        ("authorization", format!("Bearer {}", tenant.key)),
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", Era::Stateless.version().to_owned()),
        ("mcp-method", "tools/call".to_owned()),
        ("mcp-name", tool),
    ];
    if route == "header" {
        headers.push(("x-pml-key-sweep-key", key.to_owned()));
        headers.push(("x-pml-host-sweep-key", host.to_owned()));
    }
    if end != "hang" {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let reply =
            send("POST", &format!("{}{path}", tenant.url), &headers, Some(body.into_bytes()));
        return format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body));
    }
    let address = tenant.url.strip_prefix("http://").unwrap();
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    poll("the upstream to receive the call", PATIENCE, || received().then_some(()));
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut come = vec![0; 64 * 1024];
    let count = stream.read(&mut come).unwrap_or(0);
    String::from_utf8_lossy(&come[..count]).into_owned()
}

/// Returns the forms in which a secret could have been written.
fn forms(key: &str) -> Vec<String> {
    let hex = |upper: bool| -> String {
        key.bytes().map(|b| if upper { format!("{b:02X}") } else { format!("{b:02x}") }).collect()
    };
    let mut forms = vec![key.to_owned(), hex(false), hex(true), key.chars().rev().collect()];
    for offset in 0..3 {
        // The encoding depends on the position modulo 3, and at both ends on the neighbouring bytes.
        let around = format!("{}{key}", "x".repeat(offset));
        let encoded = data_encoding::BASE64.encode(around.as_bytes());
        forms.push(encoded[4..encoded.len() - 4].to_owned());
    }
    forms
}

/// SE-01: makes 24 calls, each with its own secret, stored or sent with the call. They succeed, fail, time out or are
/// abandoned, with all logging on.
#[test]
fn no_secret_remains_in_answers_logs_or_the_database() {
    let installation = Installation::new();
    let server = installation.start_with(&[("PML_LOG", "trace")]);
    let tenant = server.tenant_with_rights("execute,read,publish,admin");
    let received = Arc::new(Mutex::new(Vec::new()));
    let stub = upstream(Arc::clone(&received));
    let (scope, host) = (scope_of(&tenant), host_of(&stub.url));
    let mut entry = Entry::http(&scope, "indiscreet", &stub.url).needs("SWEEP_KEY");
    let tool = |name: &&str| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } });
    entry.tools = ENDS.iter().map(tool).collect();
    entry.publish(&installation);

    let (mut keys, mut answers) = (Vec::new(), Vec::new());
    for (number, (route, end)) in
        ROUTES.iter().flat_map(|route| ENDS.iter().map(move |end| (*route, *end))).enumerate()
    {
        let key = format!("sweep{number:02}Canary7f3a91Q");
        let stored = json!({ "value": if route == "header" { "stored" } else { &key }, "for": "me", "hosts": [host] });
        let place = format!("{}/api/v1/secrets/SWEEP_KEY", tenant.url);
        let put = call(&tenant.key, "PUT", &place, Some(&stored));
        assert!([200, 201].contains(&put.status), "{}", put.json());
        answers.push(String::from_utf8_lossy(&put.body).into_owned());
        let got_there = || received.lock().unwrap().iter().any(|sent| sent.contains(&key));
        answers.push(if route == "program" {
            let code = format!(
                "console.log('before'); try {{ return await mcp.indiscreet.{end}({{}}) }} catch (error) {{ throw new Error(error + error.stack) }}"
            );
            let run = json!({ "code": code, "options": { "timeout_ms": 1_500 } });
            HttpMcp::new(&tenant, Era::Stateless).execute_request(run).to_string()
        } else {
            call_by_hand(&tenant, route, end, (&key, &host), got_there)
        });
        assert!(got_there(), "{route} {end}: {}", answers.last().unwrap());
        keys.push(key);
    }
    // The calls ended as intended.
    let ended = |number: usize, code: &str| {
        assert!(answers[2 * number + 1].contains(code), "{code}: {}", answers[2 * number + 1]);
    };
    ended(0, "[redacted]");
    ended(5, "TIME_LIMIT");
    assert_eq!(keys.len(), 24);

    let read = |path: &str| {
        let reply = call(&tenant.key, "GET", &format!("{}{path}", tenant.url), None);
        String::from_utf8_lossy(&reply.body).into_owned()
    };
    answers.extend(["/api/v1/secrets", "/api/v1/audit?limit=200", "/mcp/indiscreet"].map(read));
    let tables = installation.sql("select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace");
    let mut database = String::new();
    for table in tables.lines() {
        database += &installation.sql(&format!("select t::text from \"{table}\" t"));
    }
    assert!(database.contains("SWEEP_KEY") && database.contains("secret.use"), "not read");
    assert_eq!(server.stop(), Some(0));
    let log = installation.log();
    assert!(log.contains("indiscreet:answer"), "the calls are not logged");
    let postgres =
        std::fs::read_to_string(installation.data_dir().join("postgres/server.log")).unwrap();
    let answers = answers.join("\n");
    for key in &keys {
        for form in forms(key) {
            for (place, text) in [
                ("answers", &answers),
                ("log", &log),
                ("database", &database),
                ("Postgres' log", &postgres),
            ] {
                if let Some(line) = text.lines().find(|line| line.contains(&form)) {
                    panic!("{place}: {}", line.chars().take(600).collect::<String>());
                }
            }
        }
    }
}
