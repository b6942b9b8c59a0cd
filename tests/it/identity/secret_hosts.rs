//! P4: the author of an entry chooses its variable and its address, but a secret is sent only to hosts that its owner
//! has named.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::proxy::messages::ProxyClient;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, host_of, scope_of};

const CANARY: &str = "canary-61-of-a-colleague";

/// An MCP server that answers every call and records its requests.
pub(crate) fn recording_server() -> GatewayStub {
    GatewayStub::start(|body| {
        if body["id"].is_null() {
            return Answer::Raw(202, "text/plain", Vec::new());
        }
        let (part, answer) = match body["method"].as_str() {
            Some("initialize") => (
                "result",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "recording", "version": "1" },
                }),
            ),
            Some("tools/call") => {
                ("result", json!({ "content": [{ "type": "text", "text": "done" }] }))
            }
            _ => ("error", json!({ "code": -32601, "message": "no such method" })),
        };
        Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], part: answer }))
    })
}

/// Returns whether a server received the secret.
pub(crate) fn got(server: &GatewayStub, key: &str) -> bool {
    server.received().iter().any(|request| request.contains(key))
}

fn tool() -> Value {
    json!({ "name": "take", "description": "Takes", "inputSchema": { "type": "object" } })
}

fn store(tenant: &Tenant, hosts: &[&str], owner: &str) -> u16 {
    let url = format!("{}/api/v1/secrets/TAKEN_KEY", tenant.url);
    let body = json!({ "value": CANARY, "for": owner, "hosts": hosts });
    call(&tenant.key, "PUT", &url, Some(&body)).status
}

/// Calls `take` of a server from a program, by name and through the proxy; returns the error codes, or `done`.
pub(crate) fn call_in_each_way(
    tenant: &Tenant,
    namespace: &str,
    headers: &[(&str, &str)],
) -> Vec<String> {
    let bearer = format!("Bearer {}", tenant.key);
    let program = json!({ "code": format!("return await mcp.{namespace}.take({{}})") });
    let by_name = |name: &str, arguments: Value| {
        let body = Era::Stateless.request(
            1,
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        );
        let mut all = vec![
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", Era::Stateless.version()),
            ("mcp-method", "tools/call"),
            ("mcp-name", name),
        ];
        all.extend(headers);
        let reply =
            send("POST", &format!("{}/mcp", tenant.url), &all, Some(body.to_string().into()));
        reply.json()
    };
    let through = ProxyClient::new(tenant, namespace);
    let params = json!({ "name": "take", "arguments": {} });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    let mut more = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "take"),
    ];
    more.extend(headers);
    let answers = [
        by_name("pml_execute", program),
        by_name(&format!("{namespace}:take"), json!({})),
        through.send("POST", &more, Some(&body)).json(),
    ];
    let outcomes = answers.map(|answer| {
        let structured = &answer["result"]["structuredContent"];
        match structured["error_code"].as_str() {
            Some(code) => code.to_owned(),
            None if answer.to_string().contains("done") => "done".to_owned(),
            None => answer.to_string(),
        }
    });
    outcomes.to_vec()
}

/// A server tool whose secret is missing on the gateway is refused without a question. A program can catch the error.
#[test]
fn a_server_tool_without_its_secret_is_refused_without_a_question() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let stub = recording_server();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "keyed", &format!("{}/mcp", stub.url)).needs("TAKEN_KEY");
    entry.tools = vec![tool()];
    entry.publish(server.installation());
    let rules = json!({ "permissions": { "allow": ["filesystem:*"], "ask": ["keyed:*"] } });
    let project = Project::of(&tenant).configure(&rules);
    let alone = "return await mcp.keyed.take({})";
    let mixed = format!("await mcp.filesystem.list_directory({{ path: '.' }}); {alone}");
    let refused = |code: &str| {
        let (envelope, _) = project.exec(code);
        let message = failure(&envelope, "API_KEY_REQUIRED");
        assert!(message.contains("pml secrets set TAKEN_KEY --cloud"), "{envelope:#}");
    };
    refused(alone);
    refused(&mixed);
    let catching = format!("try {{ {alone} }} catch (error) {{ return error.code }}");
    assert_eq!(success(&project.exec(&catching).0), "API_KEY_REQUIRED");
    assert_eq!(store(&tenant, &["elsewhere.example"], "project"), 201);
    refused(&mixed);
    assert_eq!(store(&tenant, &[&host_of(&stub.url)], "project"), 200);
    for code in [alone, &mixed] {
        assert_eq!(project.exec(code).0["status"], "approval_required", "{code}");
    }
    assert!(stub.received().is_empty(), "the server was called");
}

/// The same on the gateway: a secret that a program cannot do without is named before anything runs.
#[test]
fn a_missing_secret_is_named_before_the_gateway_runs_anything() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let (free, keyed) = (recording_server(), recording_server());
    let scope = scope_of(&tenant);
    let (of_free, of_keyed) = (format!("{}/mcp", free.url), format!("{}/mcp", keyed.url));
    let keyed_entry = Entry::http(&scope, "keyed", &of_keyed).needs("TAKEN_KEY");
    for mut entry in [Entry::http(&scope, "free", &of_free), keyed_entry] {
        entry.tools = vec![tool()];
        entry.publish(server.installation());
    }
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let both = "await mcp.free.take({}); return await mcp.keyed.take({})";
    let envelope = client.execute(both);
    let message = failure(&envelope, "API_KEY_REQUIRED");
    assert!(message.contains("pml secrets set TAKEN_KEY --cloud"), "{message}");
    assert!(free.received().is_empty(), "something ran");
    let tries =
        "await mcp.free.take({}); try { await mcp.keyed.take({}) } catch (e) { return e.code }";
    assert_eq!(success(&client.execute(tries)), "API_KEY_REQUIRED");
    assert!(!free.received().is_empty());
    assert_eq!(store(&tenant, &["elsewhere.example"], "project"), 201);
    failure(&client.execute(both), "KEY_NOT_FOR_HOST");
    assert_eq!(store(&tenant, &[&host_of(&keyed.url)], "project"), 200);
    success(&client.execute(both));
}

/// P4: an entry of another member receives a secret only if the secret's owner has named the host of the entry. This
/// holds for programs, calls by name and the proxy.
#[test]
fn a_secret_is_sent_only_to_hosts_its_owner_named() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let (foreign, meant) = (recording_server(), recording_server());
    let scope = scope_of(&tenant);
    for (namespace, stub) in [("taker", &foreign), ("meant", &meant)] {
        let url = format!("{}/mcp", stub.url);
        let mut entry = Entry::http(&scope, namespace, &url).needs("TAKEN_KEY");
        entry.tools = vec![tool()];
        entry.publish(server.installation());
    }
    let refused = ["KEY_NOT_FOR_HOST"; 3];
    let host = host_of(&meant.url);
    for owner in ["project", "me"] {
        assert_eq!(store(&tenant, &[], owner), 201);
        assert_eq!(call_in_each_way(&tenant, "taker", &[]), refused, "without hosts");
        assert_eq!(call_in_each_way(&tenant, "meant", &[]), refused, "without hosts");
        assert_eq!(store(&tenant, &[&host], owner), 200);
        assert_eq!(call_in_each_way(&tenant, "taker", &[]), refused, "with the other's host");
        assert_eq!(call_in_each_way(&tenant, "meant", &[]), ["done"; 3]);
        let place = format!("{}/api/v1/secrets/TAKEN_KEY?for={owner}", tenant.url);
        assert_eq!(call(&tenant.key, "DELETE", &place, None).status, 204);
    }
    assert!(got(&meant, CANARY));
    assert_eq!(store(&tenant, &[&host], "me"), 201);
    // The message states the remedy and does not contain the secret.
    let envelope = HttpMcp::new(&tenant, Era::Stateless).execute("return await mcp.taker.take({})");
    let message = envelope["message"].as_str().unwrap();
    assert!(message.contains(&format!("--host {}", host_of(&foreign.url))), "{message}");
    assert!(!envelope.to_string().contains(CANARY), "{envelope}");

    // The same for a secret that is sent with the call.
    let sent = ("x-pml-key-taken-key", "canary-62-sent");
    let here = host_of(&foreign.url);
    let (port, name) = (here.rsplit(':').next().unwrap(), "x-pml-host-taken-key");
    let foreign_hosts = [
        host.clone(),
        format!("127.0.0.1:{port}"),
        format!("https://127.0.0.1:{port}"),
        "http://127.0.0.1".to_owned(),
        format!("http://localhost:{port}"),
        format!("http://*:{port}"),
        format!("{here}/mcp"),
        format!("http://x@127.0.0.1:{port}"),
        format!("{here}, *"),
        String::new(),
    ];
    assert_eq!(call_in_each_way(&tenant, "taker", &[sent]), refused);
    for host in &foreign_hosts {
        assert_eq!(call_in_each_way(&tenant, "taker", &[sent, (name, host)]), refused, "{host}");
    }
    let received = foreign.received();
    assert!(!received.iter().any(|request| request.contains("canary-6")), "{received:?}");
    assert_eq!(call_in_each_way(&tenant, "taker", &[sent, (name, &here)]), ["done"; 3]);
    assert!(got(&foreign, "canary-62-sent") && !got(&foreign, CANARY));
    // The audit log has each refusal, with the host.
    let log = call(&tenant.key, "GET", &format!("{}/api/v1/audit?limit=200", tenant.url), None);
    let log = log.json();
    let refusals = log["events"].as_array().unwrap().iter().filter(|event| {
        event["action"] == "secret.use"
            && event["outcome"] == "refused"
            && event["detail"]["host"] == here
    });
    assert!(refusals.count() >= 12, "{log:#}");
}

/// P4, SE-13: a redirect from a named host is not followed, and changing the stored hosts makes the secret unreadable.
#[test]
fn redirects_and_changed_hosts_do_not_forward_a_secret() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let elsewhere = recording_server();
    let to = format!("{}/mcp", elsewhere.url);
    let redirecting = GatewayStub::start(move |_| Answer::Redirect(to.clone()));
    let scope = scope_of(&tenant);
    let mut entry =
        Entry::http(&scope, "moved", &format!("{}/mcp", redirecting.url)).needs("TAKEN_KEY");
    entry.tools = vec![tool()];
    entry.publish(server.installation());
    let (near, far) = (host_of(&redirecting.url), host_of(&elsewhere.url));
    assert_eq!(store(&tenant, &[&near, &far], "me"), 201);
    for code in call_in_each_way(&tenant, "moved", &[]) {
        assert_eq!(code, "TOOL_UNAVAILABLE");
    }
    assert!(got(&redirecting, CANARY) && elsewhere.received().is_empty());

    let mut entry = Entry::http(&scope, "straight", &format!("{}/mcp", elsewhere.url));
    entry.tools = vec![tool()];
    entry.needs("TAKEN_KEY").publish(server.installation());
    assert_eq!(store(&tenant, &[&near], "me"), 200);
    let (org, project) = scope.split_once('.').unwrap();
    server.installation().sql(&format!(
        "update secrets set hosts = array['{far}'] where org = '{org}' and project = '{project}'"
    ));
    assert_eq!(call_in_each_way(&tenant, "straight", &[]), ["SECRET_UNREADABLE"; 3]);
    assert!(elsewhere.received().iter().all(|request| !request.contains("canary-6")));
    // The control: stored again for that host, the secret is sent there.
    assert_eq!(store(&tenant, &[&far], "me"), 200);
    assert_eq!(call_in_each_way(&tenant, "straight", &[]), ["done"; 3]);
    assert!(got(&elsewhere, CANARY));
}

/// Hosts are normalised, and an invalid one is refused without repeating it in the error.
#[test]
fn hosts_are_normalised_and_invalid_ones_refused() {
    let tenant = Server::shared().tenant();
    let url = format!("{}/api/v1/secrets/TAKEN_KEY", tenant.url);
    let put = |hosts: Value| {
        let body = json!({ "value": CANARY, "for": "me", "hosts": hosts });
        call(&tenant.key, "PUT", &url, Some(&body))
    };
    let made = put(json!(["B.example:443", "a.example:8443", "https://b.example"]));
    assert_eq!(made.json()["hosts"], json!(["a.example:8443", "b.example"]));
    let listed = call(&tenant.key, "GET", &format!("{}/api/v1/secrets", tenant.url), None);
    assert_eq!(listed.json()["secrets"][0]["hosts"], json!(["a.example:8443", "b.example"]));
    let many: Vec<String> = (0..17).map(|n| format!("h{n}.example")).collect();
    for refused in [
        json!(["canary-63."]),
        json!(["*.example"]),
        json!(["a.example", ""]),
        json!("a"),
        json!([1]),
        json!(many),
    ] {
        let reply = put(refused.clone());
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{refused}"
        );
        assert!(!text(&reply.body).contains("canary"), "{}", text(&reply.body));
    }
    // Without hosts, the field is omitted.
    assert_eq!(put(json!([])).json().get("hosts"), None);
}
