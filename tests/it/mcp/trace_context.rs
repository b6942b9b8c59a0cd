//! TR-09: the W3C trace context of a request (SEP-414) reaches the servers that its calls reach.

use serde_json::{Value, json};

use crate::proxy::messages::{ProxyClient, stateless};
use crate::registry::capabilities::published;
use crate::support::cli::Project;
use crate::support::expect::{question, success};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::{HttpMcp, send};
use crate::support::mcp_client::{Era, envelope};
use crate::support::serve::{Serving, event};
use crate::support::server::{Server, Tenant};
use crate::support::upstream::{Entry, scope_of};

/// A trace of the client, and the state of a vendor.
pub(super) const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
pub(super) const STATE: &str = "rojo=00f067aa0ba902b7";
pub(super) const BAGGAGE: &str = "user=canary-of-baggage";

/// An MCP server on stdio whose tool `echo` returns the `_meta` of its call.
pub(super) const ECHO: &str = r#"
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "echo", version: "1" } }),
  "tools/list": () => ({ tools: [{ name: "echo", inputSchema: { type: "object" } }] }),
  "tools/call": ({ _meta }) => ({ content: [], structuredContent: { meta: _meta ?? {} } }),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  send({ id, ...(answers[method] ? { result: answers[method](params) } : { error: { code: -32601, message: "unknown" } }) });
});
"#;

/// Starts an MCP server over HTTP whose tool `echo` returns the `_meta` and the headers of its call.
pub(super) fn echo_over_http() -> GatewayStub {
    GatewayStub::start_with_head(|head, message| {
        let id = &message["id"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [tool()] }),
            "tools/call" => {
                let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
                let headers: Value =
                    headers.map(|(name, value)| (name.to_owned(), json!(value))).collect();
                let meta = message["params"].get("_meta").cloned().unwrap_or_else(|| json!({}));
                json!({ "content": [], "structuredContent": { "meta": meta, "headers": headers } })
            }
            _ if id.is_null() => return Answer::Raw(202, "text/plain", Vec::new()),
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                return Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        Answer::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    })
}

pub(super) fn tool() -> Value {
    json!({ "name": "echo", "description": "Echoes", "inputSchema": { "type": "object" } })
}

/// Publishes the server as `far` for a new tenant of the shared gateway.
fn tenant_with(upstream: &GatewayStub) -> Tenant {
    tenant_at(Server::shared(), upstream)
}

/// The same on another gateway.
pub(super) fn tenant_at(server: &Server, upstream: &GatewayStub) -> Tenant {
    let tenant = server.tenant_of_own_org("execute,read,publish");
    let scope = scope_of(&tenant);
    let mut entry = Entry::http(&scope, "far", &upstream.url);
    entry.tools = vec![tool()];
    entry.publish(server.installation());
    tenant
}

/// Creates a project with the servers `near` on stdio and `desk` over HTTP.
pub(super) fn project(tenant: &Tenant, web: &GatewayStub, allow: &[&str]) -> Project {
    let project = Project::of(tenant).configure(&json!({
        "mcpServers": {
            "near": { "command": "node", "args": ["echo.js"] },
            "desk": { "type": "http", "url": web.url },
        },
        "permissions": { "allow": allow },
    }));
    project.write("echo.js", ECHO);
    project
}

pub(super) const ALL: &str =
    "return [await mcp.near.echo({}), await mcp.desk.echo({}), await mcp.far.echo({})];";

/// Returns the trace context that a server received in `_meta`, and asserts that the headers, if there are any, agree.
#[track_caller]
fn received(echoed: &Value) -> (Option<&str>, Option<&str>) {
    let meta = |name: &str| echoed["meta"][name].as_str();
    if let Some(headers) = echoed.get("headers") {
        for name in ["traceparent", "tracestate"] {
            assert_eq!(headers[name].as_str(), meta(name), "{echoed:#}");
        }
    }
    assert!(!echoed.to_string().contains("baggage"), "{echoed:#}");
    (meta("traceparent"), meta("tracestate"))
}

/// The context of the agent's request arrives at a server on stdio, at one over HTTP, and through the gateway at an
/// upstream; its baggage arrives nowhere.
#[test]
fn the_context_of_a_request_reaches_every_server() {
    let (web, upstream) = (echo_over_http(), echo_over_http());
    let tenant = tenant_with(&upstream);
    let project = project(&tenant, &web, &["*"]);
    let context = json!({ "traceparent": PARENT, "tracestate": STATE, "baggage": BAGGAGE });
    for mut pml in [project.stdio(), project.stdio_stateless()] {
        let mut execute = |context: &Value| {
            let params =
                json!({ "name": "pml_execute", "arguments": { "code": ALL }, "_meta": context });
            envelope(&pml.request("tools/call", params)["result"])
        };
        let with = execute(&context);
        let all = success(&with).as_array().unwrap();
        assert_eq!(all.len(), 3, "{with:#}");
        for echoed in all {
            assert_eq!(received(echoed), (Some(PARENT), Some(STATE)), "{echoed:#}");
        }
        // The next request of the connection has no part in that trace.
        for echoed in success(&execute(&json!({ "baggage": BAGGAGE }))).as_array().unwrap() {
            assert_eq!(received(echoed), (None, None), "{echoed:#}");
        }
    }
    // Also over HTTP: the header counts where the message has no context.
    let serving = Serving::start(&project);
    let message = Era::Stateless.request(
        1,
        "tools/call",
        json!({ "name": "pml_execute", "arguments": { "code": ALL } }),
    );
    let mut headers = stateless("tools/call", "pml_execute");
    headers.extend([("traceparent", PARENT), ("tracestate", STATE), ("baggage", BAGGAGE)]);
    let answer = event(&serving.post(&message, &headers));
    for echoed in success(&envelope(&answer["result"])).as_array().unwrap() {
        assert_eq!(received(echoed), (Some(PARENT), Some(STATE)), "{echoed:#}");
    }
}

/// A run that waits for the user goes on in the trace of the request that started it.
#[test]
fn a_run_keeps_the_context_of_the_request_that_started_it() {
    let (web, upstream) = (echo_over_http(), echo_over_http());
    let tenant = tenant_with(&upstream);
    let project = project(&tenant, &web, &["far:*"]);
    let mut pml = project.stdio_stateless();
    let code = "return [await mcp.far.echo({}), await mcp.near.echo({}), await mcp.far.echo({})];";
    let params = json!({ "name": "pml_execute", "arguments": { "code": code },
        "_meta": { "traceparent": PARENT } });
    let mut ended = envelope(&pml.request("tools/call", params)["result"]);
    question(&ended);
    while ended["status"] == "approval_required" {
        ended = pml.resume(&ended, true, false);
    }
    for echoed in success(&ended).as_array().unwrap() {
        assert_eq!(received(echoed), (Some(PARENT), None), "{echoed:#}");
    }
}

/// What is invalid or too long is ignored, and fails nothing; its valid twin is passed on. The gateway takes the context
/// of a program, of a direct call, and of a capability, whose program runs in a task of its own.
#[test]
fn an_invalid_context_is_ignored() {
    let upstream = echo_over_http();
    let tenant = tenant_with(&upstream);
    published(&tenant, "through.run", "/** Echoes. */ return await mcp.far.echo({});");
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let program = json!({ "code": "return await mcp.far.echo({})" });
    let ask = |name: &str, context: &Value| {
        let arguments = if name == "pml_execute" { program.clone() } else { json!({}) };
        let params = json!({ "name": name, "arguments": arguments, "_meta": context });
        let result = client.request("tools/call", params)["result"]["structuredContent"].clone();
        match name {
            "pml_execute" => success(&result).clone(),
            "through:run" => result["value"].clone(),
            _ => result,
        }
    };
    for name in ["pml_execute", "far:echo", "through:run"] {
        let echoed = ask(name, &json!({ "traceparent": PARENT, "tracestate": STATE }));
        assert_eq!(received(&echoed), (Some(PARENT), Some(STATE)), "{name}");
    }
    let long = format!("{PARENT}-{}", "a".repeat(100_000));
    let upper = PARENT.to_uppercase();
    let zero = PARENT.replace("00f067aa0ba902b7", "0000000000000000");
    let reserved = PARENT.replacen("00", "ff", 1);
    for invalid in [
        json!(long),
        json!(upper),
        json!(zero),
        json!(reserved),
        json!(""),
        json!(7),
        json!(null),
        json!([PARENT]),
    ] {
        let context = json!({ "traceparent": invalid, "tracestate": STATE, "baggage": BAGGAGE });
        assert_eq!(received(&ask("far:echo", &context)), (None, None), "{context:.100}");
    }
    // An invalid state is dropped alone.
    let many = vec!["a=b"; 33].join(",");
    for state in
        [json!("x".repeat(600)), json!(many), json!("A=b"), json!({}), json!("a=b\r\nx: y")]
    {
        let context = json!({ "traceparent": PARENT, "tracestate": state });
        assert_eq!(received(&ask("far:echo", &context)), (Some(PARENT), None), "{context:.100}");
    }
    // The flags of a later version may mean anything.
    let later = format!("{}-more", PARENT.replacen("00", "cc", 1).replace("-01", "-ff"));
    assert_eq!(received(&ask("far:echo", &json!({ "traceparent": later }))), (Some(PARENT), None));
}

/// The same in the headers of requests to the gateway. The proxy forwards a valid context in headers, and no baggage; a
/// message is forwarded as it is.
#[test]
fn the_context_in_headers_is_checked_too() {
    let upstream = echo_over_http();
    let tenant = tenant_with(&upstream);
    let params = json!({ "name": "far:echo", "arguments": {} });
    let body = Era::Stateless.request(1, "tools/call", params).to_string();
    let bearer = format!("Bearer {}", tenant.key);
    let direct = |more: &[(&str, &str)]| {
        let mut headers = stateless("tools/call", "far:echo");
        headers.extend([
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]);
        headers.extend(more);
        let url = format!("{}/mcp", tenant.url);
        let answer = send("POST", &url, &headers, Some(body.clone().into_bytes())).json();
        answer["result"]["structuredContent"].clone()
    };
    let proxy = ProxyClient::new(&tenant, &format!("{}.far", scope_of(&tenant)));
    let proxied = |more: &[(&str, &str)]| {
        let params = json!({ "name": "echo", "arguments": {} });
        let body = Era::Stateless.request(1, "tools/call", params).to_string();
        let headers = [&stateless("tools/call", "echo")[..], more].concat();
        let answer = proxy.send("POST", &headers, Some(&body)).json();
        answer["result"]["structuredContent"]["headers"].clone()
    };
    let valid = [("traceparent", PARENT), ("tracestate", STATE), ("baggage", BAGGAGE)];
    assert_eq!(received(&direct(&valid)), (Some(PARENT), Some(STATE)));
    let passed = proxied(&valid);
    assert_eq!((&passed["traceparent"], &passed["tracestate"]), (&json!(PARENT), &json!(STATE)));
    assert!(passed.get("baggage").is_none(), "{passed:#}");
    let other = PARENT.replace("00f067aa0ba902b7", "00f067aa0ba902b8");
    let long = format!("{PARENT}-{}", "a".repeat(2_000));
    for invalid in [
        &[("traceparent", "00-4bf92f-00f067-01"), ("tracestate", STATE)][..],
        &[("traceparent", PARENT), ("traceparent", &other)],
        &[("traceparent", &long)],
        &[("tracestate", STATE), ("baggage", BAGGAGE)],
    ] {
        assert_eq!(received(&direct(invalid)), (None, None), "{invalid:.100?}");
        let passed = proxied(invalid);
        for name in ["traceparent", "tracestate", "baggage"] {
            assert!(passed.get(name).is_none(), "{passed:#}");
        }
    }
}
