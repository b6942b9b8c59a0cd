//! GW-08: credentials of the gateway are not passed through to upstreams.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{Reply, send};
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::server::{Installation, Server};

/// An HTTP MCP server that answers every call.
fn upstream() -> GatewayStub {
    GatewayStub::start(|request| {
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "notes", "version": "1" },
            }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "done" }] }),
            method if method.starts_with("notifications/") => {
                return Answer::Raw(202, "text/plain", Vec::new());
            }
            method => {
                let error = json!({ "code": -32601, "message": method });
                return Answer::Json(
                    json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }),
                );
            }
        };
        Answer::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
    })
}

/// Publishes a server with one tool in the first scope. The members are written in canonical order, because the hash
/// is that of the canonical form.
fn publish(installation: &Installation, namespace: &str, url: &str, env_required: &[&str]) {
    let stored = |name: &str| {
        let mut content = json!({ "description": "Notes" });
        if !env_required.is_empty() {
            content["env_required"] = json!(env_required);
        }
        content["fqdn"] = json!(name);
        content["proxy_to"] = json!(url);
        content["tools"] = json!([{ "description": "Lists", "inputSchema": { "type": "object" }, "name": "list" }]);
        content["type"] = json!("http");
        let content = content.to_string();
        let hash = data_encoding::BASE64.encode(&Sha256::digest(content.as_bytes()));
        format!("'{content}', 'sha256-{hash}'")
    };
    let server = stored(&format!("local.default.{namespace}"));
    let tool = stored(&format!("local.default.{namespace}.list"));
    installation.sql(&format!(
        "insert into mcp_servers (org, project, namespace, content, integrity, routing, visibility, owner)
            values ('local', 'default', '{namespace}', {server}, 'server', 'project', 'operator');
        insert into tools (org, project, namespace, name, content, integrity, visibility, owner)
            values ('local', 'default', '{namespace}', 'list', {tool}, 'project', 'operator')"
    ));
}

/// Calls the tool of a server over MCP.
fn call(server: &Server, namespace: &str, headers: &[(&str, &str)]) -> (Reply, Value) {
    let name = format!("{namespace}__list");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": {} } });
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    all.extend(headers);
    let reply =
        send("POST", &format!("{}/mcp", server.url()), &all, Some(body.to_string().into_bytes()));
    let result = reply.json()["result"].clone();
    (reply, result)
}

/// GW-08: neither a token nor an API key of the gateway reaches an upstream, in any header or body.
#[test]
fn gateway_credentials_never_reach_an_upstream() {
    let signer = Signer::ed25519();
    let issuer = Issuer::start(&[("k", &signer)]);
    let server = issuer.gateway(&[]);
    let (open, keyed) = (upstream(), upstream());
    publish(server.installation(), "notes", &format!("{}/mcp", open.url), &[]);
    publish(server.installation(), "locked", &format!("{}/mcp", keyed.url), &["LOCKED_TOKEN"]);
    let token = signer.token(&header("EdDSA", "k"), &issuer.claims());
    let key = server.installation().first_key();
    for credential in [&token, &key] {
        let bearer = format!("Bearer {credential}");
        let authorization = ("authorization", bearer.as_str());
        let (reply, result) = call(&server, "notes", &[authorization, ("cookie", "canary=1")]);
        assert_eq!(
            result["content"][0]["text"],
            "done",
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        // The control: the secret for the upstream does reach it.
        let (_, refused) = call(&server, "locked", &[authorization]);
        assert_eq!(refused["structuredContent"]["error_code"], "API_KEY_REQUIRED", "{refused}");
        let sent = ("x-pml-key-locked-token", "meant-for-it");
        let (_, refused) = call(&server, "locked", &[authorization, sent]);
        assert_eq!(refused["structuredContent"]["error_code"], "KEY_NOT_FOR_HOST", "{refused}");
        let host = ("x-pml-host-locked-token", keyed.url.as_str());
        let (_, result) = call(&server, "locked", &[authorization, sent, host]);
        assert_eq!(result["content"][0]["text"], "done", "{result}");
    }
    let received = [open.received(), keyed.received()].concat();
    assert!(received.len() >= 4, "{received:?}");
    let signature = token.rsplit('.').next().unwrap();
    for request in &received {
        for canary in [signature, &key[8..], "canary=1", "x-pml-key", "x-pml-host"] {
            assert!(!request.contains(canary), "{request}");
        }
    }
    assert!(
        open.received().iter().all(|request| !request.to_lowercase().contains("authorization:"))
    );
    assert!(keyed.received().iter().all(|request| request.contains("Bearer meant-for-it")));
}
