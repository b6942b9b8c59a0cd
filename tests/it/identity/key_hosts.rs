//! P4: whoever writes an entry names the variable and the address, and gets nobody's key by that.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::proxy::messages::Through;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, host_of, scope_of};

const CANARY: &str = "canary-61-of-a-colleague";

/// An MCP server that answers every call; it keeps what it hears.
pub(crate) fn listening() -> GatewayStub {
    GatewayStub::start(|body| {
        if body["id"].is_null() {
            return Answer::Raw(202, "text/plain", Vec::new());
        }
        let (part, answer) = match body["method"].as_str() {
            Some("initialize") => (
                "result",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "listening", "version": "1" },
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

/// Tells whether a server got the key.
pub(crate) fn got(server: &GatewayStub, key: &str) -> bool {
    server.heard().iter().any(|request| request.contains(key))
}

fn tool() -> Value {
    json!({ "name": "take", "description": "Takes", "inputSchema": { "type": "object" } })
}

fn store(tenant: &Tenant, hosts: &[&str], owner: &str) -> u16 {
    let url = format!("{}/api/v1/secrets/TAKEN_KEY", tenant.url);
    let body = json!({ "value": CANARY, "for": owner, "hosts": hosts });
    call(&tenant.key, "PUT", &url, Some(&body)).status
}

/// Calls `take` of a server in each way that there is; returns the codes of what went wrong, or `done`.
pub(crate) fn in_each_way(
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
    let through = Through::new(tenant, namespace);
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
    let told = answers.map(|answer| {
        let structured = &answer["result"]["structuredContent"];
        match structured["error_code"].as_str() {
            Some(code) => code.to_owned(),
            None if answer.to_string().contains("done") => "done".to_owned(),
            None => answer.to_string(),
        }
    });
    told.to_vec()
}

/// Nobody is asked about a call of a server tool that the gateway has no key for; a program can catch that as any error.
#[test]
fn nobody_is_asked_about_a_server_tool_that_lacks_its_key() {
    let server = Server::shared();
    let tenant = server.tenant_that_can("execute,read,admin");
    let stub = listening();
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "keyed", &format!("{}/mcp", stub.url)).needs("TAKEN_KEY");
    entry.tools = vec![tool()];
    entry.publish(server.installation());
    let rules = json!({ "permissions": { "allow": ["filesystem:*"], "ask": ["keyed:*"] } });
    let project = Project::of(&tenant).configure(&rules);
    let alone = "return await mcp.keyed.take({})";
    let mixed = format!("await mcp.filesystem.list_directory({{ path: '.' }}); {alone}");
    let refused = |code: &str| {
        let (told, _) = project.exec(code);
        let message = failure(&told, "API_KEY_REQUIRED");
        assert!(message.contains("pml secrets set TAKEN_KEY --cloud"), "{told:#}");
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
    assert!(stub.heard().is_empty(), "nothing was called");
}

/// P4: a colleague's entry gets a key where its owner named the host, and nowhere else; in all three ways.
#[test]
fn an_entry_does_not_decide_where_keys_go() {
    let server = Server::shared();
    let tenant = server.tenant_that_can("execute,read,admin");
    let (foreign, meant) = (listening(), listening());
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
        assert_eq!(in_each_way(&tenant, "taker", &[]), refused, "without hosts");
        assert_eq!(in_each_way(&tenant, "meant", &[]), refused, "without hosts");
        assert_eq!(store(&tenant, &[&host], owner), 200);
        assert_eq!(in_each_way(&tenant, "taker", &[]), refused, "with the other's host");
        assert_eq!(in_each_way(&tenant, "meant", &[]), ["done"; 3]);
        let place = format!("{}/api/v1/secrets/TAKEN_KEY?for={owner}", tenant.url);
        assert_eq!(call(&tenant.key, "DELETE", &place, None).status, 204);
    }
    assert!(got(&meant, CANARY));
    assert_eq!(store(&tenant, &[&host], "me"), 201);
    // The message says what to do, and does not have the key.
    let told = HttpMcp::new(&tenant, Era::Stateless).execute("return await mcp.taker.take({})");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains(&format!("--host {}", host_of(&foreign.url))), "{message}");
    assert!(!told.to_string().contains(CANARY), "{told}");

    // The same for a key that comes with the call.
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
    assert_eq!(in_each_way(&tenant, "taker", &[sent]), refused);
    for host in &foreign_hosts {
        assert_eq!(in_each_way(&tenant, "taker", &[sent, (name, host)]), refused, "{host}");
    }
    let heard = foreign.heard();
    assert!(!heard.iter().any(|request| request.contains("canary-6")), "{heard:?}");
    assert_eq!(in_each_way(&tenant, "taker", &[sent, (name, &here)]), ["done"; 3]);
    assert!(got(&foreign, "canary-62-sent") && !got(&foreign, CANARY));
    // What was refused is on record, with the host.
    let log = call(&tenant.key, "GET", &format!("{}/api/v1/audit?limit=200", tenant.url), None);
    let log = log.json();
    let refusals = log["events"].as_array().unwrap().iter().filter(|event| {
        event["action"] == "secret.use"
            && event["outcome"] == "refused"
            && event["detail"]["host"] == here
    });
    assert!(refusals.count() >= 12, "{log:#}");
}

/// P4, SE-13: a host that was named may not pass the key on; a row that was changed does not open.
#[test]
fn a_named_host_is_the_last_stop() {
    let server = Server::shared();
    let tenant = server.tenant_that_can("execute,read,admin");
    let elsewhere = listening();
    let to = format!("{}/mcp", elsewhere.url);
    let redirecting = GatewayStub::start(move |_| Answer::Redirect(to.clone()));
    let scope = scope_of(&tenant);
    let mut entry =
        Entry::http(&scope, "moved", &format!("{}/mcp", redirecting.url)).needs("TAKEN_KEY");
    entry.tools = vec![tool()];
    entry.publish(server.installation());
    let (near, far) = (host_of(&redirecting.url), host_of(&elsewhere.url));
    assert_eq!(store(&tenant, &[&near, &far], "me"), 201);
    for code in in_each_way(&tenant, "moved", &[]) {
        assert_eq!(code, "TOOL_UNAVAILABLE");
    }
    assert!(got(&redirecting, CANARY) && elsewhere.heard().is_empty());

    let mut entry = Entry::http(&scope, "straight", &format!("{}/mcp", elsewhere.url));
    entry.tools = vec![tool()];
    entry.needs("TAKEN_KEY").publish(server.installation());
    assert_eq!(store(&tenant, &[&near], "me"), 200);
    let (org, project) = scope.split_once('.').unwrap();
    server.installation().sql(&format!(
        "update secrets set hosts = array['{far}'] where org = '{org}' and project = '{project}'"
    ));
    assert_eq!(in_each_way(&tenant, "straight", &[]), ["SECRET_UNREADABLE"; 3]);
    assert!(elsewhere.heard().iter().all(|request| !request.contains("canary-6")));
    // The twin: stored anew for that host, it goes there.
    assert_eq!(store(&tenant, &[&far], "me"), 200);
    assert_eq!(in_each_way(&tenant, "straight", &[]), ["done"; 3]);
    assert!(got(&elsewhere, CANARY));
}

/// Hosts are told back in their one form; what is none is refused without repeating it.
#[test]
fn hosts_are_stored_in_one_form() {
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
    // Without hosts none are told, as before.
    assert_eq!(put(json!([])).json().get("hosts"), None);
}
