//! `/openapi.json`, and whether the gateway conforms to it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::identity::members::Organisation;
use crate::support::cli::{finish, text};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, get, send};
use crate::support::mcp_client::Era;
use crate::support::mcp_servers::{SCHEMATHESIS, python};
use crate::support::server::{Server, Tenant};
use crate::support::{PATIENCE, guard, poll, scaled};

/// Operations that cannot succeed in these runs, with the reason.
const NEVER_SUCCEED: [&str; 4] = [
    // The session must exist at an upstream; the tests of `proxy/` have such sessions.
    "DELETE /mcp/proxy/{server}",
    // No issuer is configured here; `identity/tokens.rs` has one.
    "GET /.well-known/oauth-protected-resource",
    "GET /.well-known/oauth-protected-resource/mcp",
    // No releases are configured here; `release/served_script.rs` has some.
    "GET /install.sh",
];

fn document() -> Value {
    let reply = get(&format!("{}/openapi.json", Server::shared().url()), &[]);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    reply.json()
}

/// The statuses that each operation returned, with their counts.
type Statuses = BTreeMap<String, BTreeMap<u16, usize>>;

/// Runs schemathesis with the document, and returns the statuses of each operation.
///
/// It fails on a status above 499, on a status, content type or body that the document does not have, on an invalid
/// request that is accepted, and on a valid one that is refused.
fn run_schemathesis(phases: &str, key: Option<&str>, own: Option<&Value>) -> Statuses {
    // All operations except the one that serves the document.
    let operations: usize = document()["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| *path != "/openapi.json")
        .map(|(_, item)| item.as_object().unwrap().len())
        .sum();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/schemathesis");
    let folder = guard::folder("schemathesis");
    let notes = folder.join("notes.ndjson");
    let mut command = Command::new(python(SCHEMATHESIS).join("schemathesis"));
    command.args(["--config-file", &format!("{fixture}/schemathesis.toml"), "run"]);
    command.arg(format!("{}/openapi.json", Server::shared().url()));
    command.args(["--checks", "all", "--phases", phases, "--no-color"]);
    // The requests are the same in each run, so a new finding comes from the change under test.
    command.args(["--generation-deterministic", "-n", &scaled(50).to_string()]);
    if let Some(key) = key {
        command.args(["-H", &format!("Authorization: Bearer {key}")]);
    }
    command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", fixture);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PML_NOTES", &notes);
    if let Some(own) = own {
        command.env("PML_OWN", own.to_string());
    }
    command.current_dir(&folder);
    let output = finish(command, b"");
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", text(&output.stderr));
    for line in [format!("Tested: {operations}"), " passed".to_owned()] {
        assert!(printed.contains(&line), "no `{line}` in\n{printed}");
    }
    let mut statuses = Statuses::new();
    for line in std::fs::read_to_string(notes).unwrap().lines() {
        let note: Value = serde_json::from_str(line).unwrap();
        let operation = note["operation"].as_str().unwrap().to_owned();
        let status = note["status"].as_u64().unwrap() as u16;
        *statuses.entry(operation).or_default().entry(status).or_default() += 1;
    }
    assert_eq!(statuses.len(), operations, "{statuses:#?}");
    statuses
}

/// Returns the percentage of answers that got past authentication and rate limits.
fn share_that_reached_logic(statuses: &Statuses) -> usize {
    let (mut all, mut reached) = (0, 0);
    for (status, count) in statuses.values().flatten() {
        all += count;
        if ![401, 403, 429].contains(status) {
            reached += count;
        }
    }
    reached * 100 / all
}

/// With the key of an organisation's owner, each described operation succeeds at least once.
#[test]
fn the_gateway_conforms_to_its_openapi_document_for_an_owner() {
    let organisation = Organisation::on(Server::shared());
    let key = &organisation.boss;
    let upstream = GatewayStub::start_with_head(|head, message| match head.split(' ').next() {
        Some("GET") => Answer::Raw(200, "text/event-stream", Vec::new()),
        _ => Answer::Json(
            json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "tools": [] } }),
        ),
    });
    let ask = |method: &str, path: &str, body: Option<Value>| {
        let reply = organisation.ask(key, method, path, body);
        assert!(reply.status < 300, "{path}: {}", text(&reply.body));
        reply.json()
    };
    let proxy_to = format!("{}/mcp", upstream.url);
    let kept = json!({
        "name": "kept", "type": "http", "description": "Is there.", "proxy_to": proxy_to,
        "tools": [{ "name": "add", "inputSchema": { "type": "object" } }],
    });
    ask("POST", "servers", Some(kept));
    let tenant = Tenant { key: key.clone(), url: Server::shared().url().to_owned() };
    let ran = HttpMcp::new(&tenant, Era::Stateless).execute("return 1");
    let execution = ran["execution_id"].as_str().unwrap();
    poll("the trace", PATIENCE, || {
        let path = format!("traces/{execution}");
        (organisation.ask(key, "GET", &path, None).status == 200).then_some(())
    });
    let own = json!({
        "key": key,
        "key_id": ask("GET", "keys/self", None)["id"],
        "scope": format!("{}.web", organisation.name),
        "server": "kept",
        "execution": execution,
        "slug": ask("POST", "registry-links", Some(json!({ "name": "schemathesis" })))["slug"],
        "upstream": proxy_to,
    });
    let statuses = run_schemathesis("examples,coverage,fuzzing,stateful", Some(key), Some(&own));
    let succeeded =
        |answers: &BTreeMap<u16, usize>| answers.keys().any(|status| (200..300).contains(status));
    let never: Vec<&str> = statuses
        .iter()
        .filter(|(_, answers)| !succeeded(answers))
        .map(|(operation, _)| operation.as_str())
        .collect();
    assert_eq!(never, NEVER_SUCCEED, "{statuses:#?}");
    let share = share_that_reached_logic(&statuses);
    assert!(share >= 90, "{share} % reached logic: {statuses:#?}");
    // No request has revoked the key that the run used.
    ask("GET", "keys/self", None);
}

#[test]
fn the_gateway_conforms_to_its_openapi_document_for_readers_and_anonymous() {
    let reader = Server::shared().tenant_with_rights("read");
    let own = json!({ "only_reads": true });
    run_schemathesis("examples,coverage,fuzzing", Some(&reader.key), Some(&own));
    run_schemathesis("examples,coverage,fuzzing", None, None);
    let own = format!("{}/api/v1/keys/self", reader.url);
    let alive = get(&own, &[("authorization", &format!("Bearer {}", reader.key))]);
    assert_eq!(alive.status, 200, "a request has revoked the reader's key");
}

/// `pml-server routes` and the document list the same routes with the same authentication.
#[test]
fn the_openapi_document_describes_every_route() {
    let printed = Server::shared().installation().run_ok(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&printed).unwrap();
    let document = document();
    let routes = routes.as_array().unwrap();
    assert!(routes.len() >= 22, "{}", routes.len());
    // The document describes the interface for tenants.
    let is_operators = |route: &&Value| route["auth"] == "operator";
    assert_eq!(routes.iter().filter(is_operators).count(), 1, "/metrics");
    assert_eq!(document["paths"].get("/metrics"), None);
    for route in routes.iter().filter(|route| !is_operators(route)) {
        let (method, path) = (route["method"].as_str().unwrap(), route["path"].as_str().unwrap());
        let operation = &document["paths"][path][method.to_lowercase()];
        // An empty list means that no header is needed: the key is in the body.
        let security = operation["security"].as_array().map(Vec::len);
        let auth = security.map_or("none", |ways| ["body", "key", "public"][ways]);
        assert_eq!(route["auth"], auth, "{method} {path}");
        let refused = operation["responses"].as_object().unwrap();
        assert_eq!(refused.contains_key("401"), auth != "none", "{method} {path}");
    }
}

/// Every refusal is problem JSON, whether it comes from the router, a library or a handler.
#[test]
fn every_refusal_is_problem_json() {
    let tenant = Server::shared().tenant_with_rights("execute,read,publish,admin");
    let bearer = format!("Bearer {}", tenant.key);
    let json = "application/json";
    let both = "application/json, text/event-stream";
    // Far below the limit of most routes: a refusal while the body is still being sent may end as a broken pipe.
    let small = "x".repeat(300 * 1024);
    for (method, path, kind, accept, body, status) in [
        ("GET", "/nowhere", "", "", "", 404),
        ("GET", "/api/v1/nowhere", "", "", "", 404),
        ("PUT", "/health", "", "", "", 405),
        ("DELETE", "/mcp/pml.mcp.filesystem", "", "", "", 405),
        ("POST", "/v0.1/servers", json, "", "{}", 405),
        ("GET", "/mcp", "", "text/event-stream", "", 405),
        ("POST", "/mcp", json, "", "{}", 406),
        ("POST", "/mcp", "text/plain", both, "{}", 415),
        ("POST", "/api/v1/keys", "text/plain", "", "{}", 415),
        ("POST", "/v0.1/publish", json, "", &small, 413),
        ("PUT", "/api/v1/secrets/A_KEY", json, "", &small, 413),
        ("POST", "/api/v1/keys", json, "", "{", 400),
        ("POST", "/api/v1/sessions", json, "", "[null, null]", 400),
        ("GET", "/mcp?limit=x", "", "", "", 400),
        ("GET", "/mcp/%ff", "", "", "", 400),
        ("GET", "/api/v1/keys/%ff", "", "", "", 404),
        ("POST", "/api/v1/servers/%ff/yank", json, "", r#"{"version":"1.0.0"}"#, 400),
        ("POST", "/api/v1/capabilities/%ff/yank", json, "", r#"{"version":"1.0.0"}"#, 400),
    ] {
        let headers: Vec<(&str, &str)> =
            [("authorization", bearer.as_str()), ("content-type", kind), ("accept", accept)]
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .collect();
        let body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
        let reply = send(method, &format!("{}{path}", tenant.url), &headers, body);
        let what = format!("{method} {path}: {}", text(&reply.body));
        assert_eq!(reply.status, status, "{what}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{what}");
        let problem = reply.json();
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&json!(status), &json!("about:blank")),
            "{what}"
        );
        for member in ["code", "detail", "title", "hint"] {
            assert!(
                problem[member].as_str().is_some_and(|word| !word.is_empty()),
                "{member}: {what}"
            );
        }
    }
}

/// Sends a head and part of a body, and reads the answer without sending the rest.
fn send_partially(url: &str, head: &str, body: &[u8]) -> (u16, String, Value) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{head}: {error}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{head}: {answer}"));
    let head = head.to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: "));
    (
        status,
        kind.unwrap_or_default().to_owned(),
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{head} {body}: {error}")),
    )
}

/// A body over the limit is refused with problem JSON: before it is sent if the client uses `Expect: 100-continue`,
/// otherwise when the limit is exceeded.
#[test]
fn a_body_over_the_limit_is_refused_with_problem_json() {
    const DECLARED: usize = 11 * 1024 * 1024;
    let tenant = Server::shared().tenant_with_rights("execute,read,publish,admin");
    for (method, path, limit) in [
        ("POST", "/mcp", 10 * 1024 * 1024),
        ("POST", "/api/v1/keys", 10 * 1024 * 1024),
        ("POST", "/api/v1/servers", 2 * 1024 * 1024),
        ("PUT", "/api/v1/secrets/A_KEY", 64 * 1024),
        ("POST", "/api/v1/traces", 6 * 1024 * 1024),
        ("POST", "/v0.1/publish", 256 * 1024),
        ("POST", "/v0.1/auth/github-at", 16 * 1024),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nconnection: close",
            tenant.key
        );
        let declared = send_partially(
            &tenant.url,
            &format!("{head}\r\nexpect: 100-continue\r\ncontent-length: {DECLARED}"),
            b"",
        );
        let mut chunk = format!("{:x}\r\n", limit + 1).into_bytes();
        chunk.resize(chunk.len() + limit + 1, b' ');
        let chunked =
            send_partially(&tenant.url, &format!("{head}\r\ntransfer-encoding: chunked"), &chunk);
        for (status, kind, problem) in [declared, chunked] {
            let what = format!("{method} {path}: {problem:#}");
            assert_eq!((status, kind.as_str()), (413, "application/problem+json"), "{what}");
            assert_eq!(
                (&problem["status"], &problem["title"]),
                (&json!(413), &json!("Payload Too Large")),
                "{what}"
            );
            assert!(problem["code"].is_string() && problem["detail"].is_string(), "{what}");
        }
    }
}

/// `30.0` is an integer as in JSON Schema, an empty cursor means the first page, and page sizes are limited.
#[test]
fn parameters_are_validated_as_documented() {
    let tenant = Server::shared().tenant_with_rights("execute,read,publish,admin");
    let bearer = format!("Bearer {}", tenant.key);
    let read =
        |path: &str| get(&format!("{}{path}", tenant.url), &[("authorization", &bearer)]).status;
    for path in [
        "/api/v1/keys?cursor=",
        "/mcp?cursor=",
        "/v0.1/servers?cursor=",
        "/v0.1/servers?limit=9223372036854775807",
    ] {
        assert_eq!(read(path), 200, "{path}");
    }
    for path in [
        "/v0.1/servers?limit=0",
        "/v0.1/servers?limit=-1",
        "/v0.1/servers?limit=1.5",
        "/mcp?limit=101",
    ] {
        assert_eq!(read(path), 400, "{path}");
    }
    let make = |body: Value| {
        crate::identity::keys::call(
            &tenant.key,
            "POST",
            &format!("{}/api/v1/keys", tenant.url),
            Some(&body),
        )
        .status
    };
    let days = |days: Value| json!({ "name": "n", "can": ["read"], "expires_in_days": days });
    assert_eq!([make(days(json!(30.0))), make(days(json!(30))), make(days(Value::Null))], [201; 3]);
    assert_eq!(
        [make(days(json!(30.5))), make(days(json!(0.0))), make(days(json!(1e300)))],
        [400; 3]
    );
}
