//! What the proxy does not forward: denied calls, redirects, private addresses and large bodies.

use super::messages::{ProxyClient, plain_upstream, publish, request};
use crate::support::cli::text;
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{Entry, scope_of};
use crate::support::{PATIENCE, poll};
use serde_json::json;

/// Routing rules of the operator apply to proxied calls. Servers of other types cannot be proxied.
#[test]
fn routing_rules_apply_to_proxied_calls() {
    let server = Server::shared();
    let upstream = plain_upstream();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let scope = scope_of(&tenant);
    let home = server.installation();
    publish(&tenant, "fixed", &upstream.url);
    let mut ruled = Entry::http(&scope, "ruled", &upstream.url);
    ruled.routing = None;
    ruled.publish(home);
    let mut local = Entry::http(&scope, "onlylocal", &upstream.url);
    local.routing = Some("client");
    local.publish(home);
    let mut stdio = Entry::http(&scope, "started", "");
    stdio.content = json!({ "type": "stdio", "description": "Test", "install": { "command": "true", "args": [] } });
    stdio.publish(home);
    home.run_ok(&["routing", "set", "ruled:*", "server"]);
    home.run_ok(&["routing", "set", "ruled:wipe", "client"]);
    home.run_ok(&["routing", "set", "fixed:wipe", "client"]);
    let ruled = ProxyClient::new(&tenant, "ruled");
    poll("the rules to arrive", PATIENCE, || {
        let listed = ruled.post(&[], &request("tools/list", json!({})));
        let wiped = ruled.call_stateless("wipe", json!({})).json();
        (listed.status == 200 && wiped["result"]["isError"] == true).then_some(())
    });
    let before = upstream.requests();
    let wiped = ruled.call_stateless("wipe", json!({})).json();
    assert_eq!(wiped["result"]["structuredContent"]["error_code"], "CLIENT_TOOLS_REQUIRE_PACKAGE");
    let list = request("tools/list", json!({}));
    let refused = ProxyClient::new(&tenant, "onlylocal").post(&[], &list);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("CLIENT_TOOLS_REQUIRE_PACKAGE"))
    );
    let refused = ProxyClient::new(&tenant, "started").post(&[], &list);
    assert_eq!((refused.status, &refused.json()["code"]), (501, &json!("TOOL_UNAVAILABLE")));
    assert!(text(&refused.body).contains("`stdio` server"), "{}", text(&refused.body));
    for unknown in ["nobodys", "local.default.nothing", "fixed:list", "..%2f", "json:parse"] {
        let reply = ProxyClient::new(&tenant, unknown).post(&[], &list);
        assert_eq!((reply.status, &reply.json()["code"]), (404, &json!("NOT_FOUND")), "{unknown}");
    }
    assert_eq!(upstream.requests(), before);
    // Positive controls: another tool of the same server, and one of a server whose row has its own routing.
    assert_eq!(ruled.call_stateless("list", json!({})).json()["result"]["content"], json!([]));
    let fixed = ProxyClient::new(&tenant, "fixed");
    assert_eq!(fixed.call_stateless("wipe", json!({})).json()["result"]["content"], json!([]));
    assert_eq!(upstream.requests(), before + 2);
    let audit =
        get(&format!("{}/api/v1/audit?limit=20", tenant.url), &[("x-api-key", &tenant.key)]);
    assert!(text(&audit.body).contains("ruled:wipe"), "{}", text(&audit.body));
    for rule in ["ruled:*", "ruled:wipe", "fixed:wipe"] {
        home.run_ok(&["routing", "unset", rule]);
    }
}

/// The operator's quotas count proxied calls per tool.
#[test]
fn quotas_count_proxied_calls() {
    let upstream = plain_upstream();
    let home = Server::shared().installation();
    let tenant = Server::shared().tenant();
    publish(&tenant, "counted", &upstream.url);
    home.run_ok(&["quotas", "set", &scope_of(&tenant), "counted:list", "0/min"]);
    let client = ProxyClient::new(&tenant, "counted");
    let refused = poll("the quota to arrive", PATIENCE, || {
        let called = client.call_stateless("list", json!({})).json()["result"].clone();
        (called["isError"] == true).then_some(called)
    });
    assert_eq!(refused["structuredContent"]["error_code"], "RATE_LIMITED", "{refused}");
    let before = upstream.requests();
    assert_eq!(client.call_stateless("list", json!({})).json()["result"]["isError"], true);
    assert_eq!(upstream.requests(), before);
    // The positive control.
    assert_eq!(client.call_stateless("read", json!({})).json()["result"]["content"], json!([]));
    home.run_ok(&["quotas", "unset", &scope_of(&tenant), "counted:list"]);
}

/// GW-08, SE-13: the proxy neither follows a redirect of the server nor forwards its authentication challenge.
#[test]
fn redirects_and_challenges_of_a_server_are_not_forwarded() {
    let other = GatewayStub::start(|_| Answer::Close);
    let tenant = Server::shared().tenant();
    let target = other.url.clone();
    let away = GatewayStub::start(move |_| Answer::Redirect(format!("{target}/mcp")));
    let closed = GatewayStub::start(|_| Answer::Raw(401, "application/json", b"{}".to_vec()));
    let page = GatewayStub::start(|_| Answer::Raw(200, "text/html", b"<script>".to_vec()));
    let gone = GatewayStub::start(|_| Answer::Close);
    for (namespace, stub) in
        [("away", &away), ("closed", &closed), ("page", &page), ("gone", &gone)]
    {
        publish(&tenant, namespace, &stub.url);
        let client = ProxyClient::new(&tenant, namespace);
        let refused =
            client.post(&[("x-pml-key-any", "canary")], &request("tools/list", json!({})));
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (502, &json!("TOOL_UNAVAILABLE")),
            "{namespace}"
        );
        assert_eq!(refused.header("www-authenticate"), "");
        let called = client.call_stateless("x", json!({})).json();
        assert_eq!(
            called["result"]["structuredContent"]["error_code"], "TOOL_UNAVAILABLE",
            "{namespace}"
        );
        assert_eq!(stub.requests(), 2, "{namespace}: a request was repeated");
    }
    assert_eq!(other.requests(), 0);
}

/// SE-13: the gateway does not connect to an upstream at a private address, in any spelling, unless the operator allows
/// it.
#[test]
fn private_addresses_need_the_operators_permission() {
    let upstream = plain_upstream();
    let port = upstream.url.rsplit(':').next().unwrap().to_owned();
    let hosts = ["127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"];
    for (allowed, reached) in
        [("", &[][..]), ("127.0.0.1", &["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]"])]
    {
        let home = Installation::new();
        let server = home.start_with(&[("PML_UPSTREAM_PRIVATE_HOSTS", allowed)]);
        let tenant = Tenant { key: home.first_key(), url: server.url().to_owned() };
        for (index, host) in hosts.iter().enumerate() {
            let namespace = format!("at{index}");
            let mut entry =
                Entry::http("local.default", &namespace, &format!("http://{host}:{port}/mcp"));
            entry.tools = vec![
                json!({ "name": "list", "description": "Lists", "inputSchema": { "type": "object" } }),
            ];
            entry.publish(&home);
            let before = upstream.requests();
            let passed =
                ProxyClient::new(&tenant, &namespace).call_stateless("list", json!({})).json();
            let called =
                HttpMcp::new(&tenant, Era::Stateless).call(&format!("{namespace}:list"), json!({}));
            if reached.contains(host) {
                assert_eq!(passed["result"]["content"], json!([]), "{host}");
                assert!(upstream.requests() > before + 1, "{host}: {called}");
            } else {
                assert!(passed.to_string().contains("TOOL_UNAVAILABLE"), "{host}: {passed}");
                assert!(called.to_string().contains("TOOL_UNAVAILABLE"), "{host}: {called}");
                assert_eq!(upstream.requests(), before, "{host}");
            }
        }
    }
}

/// GW-20: a body over the limit is refused before anything is forwarded.
#[test]
fn bodies_over_the_limit_are_not_forwarded() {
    let upstream = plain_upstream();
    let tenant = Server::shared().tenant();
    publish(&tenant, "small", &upstream.url);
    let client = ProxyClient::new(&tenant, "small");
    let body = |size: usize| {
        request("tools/call", json!({ "name": "a", "arguments": { "x": "y".repeat(size) } }))
            .to_string()
    };
    assert_eq!(client.send("POST", &[], Some(&body(10 << 20))).status, 413);
    assert_eq!(upstream.requests(), 0);
    assert_eq!(client.send("POST", &[], Some(&body(1 << 20))).status, 200);
}
