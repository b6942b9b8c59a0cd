//! `pml stdio` as an MCP server: both protocol generations, and only messages on stdout.

use serde_json::{Value, json};

use crate::support::cli::Project;
use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::scaled;
use crate::support::server::Server;

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["result"]["tools"].as_array().unwrap_or_else(|| panic!("{tools}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

const META_TOOLS: [&str; 4] = ["pml_execute", "pml_discover", "pml_create", "pml_continue"];

/// A 2025-11-25 client initializes, lists and calls.
#[test]
fn clients_of_2025_11_25_can_list_and_call() {
    let mut pml = Project::new().stdio();
    let tools = pml.request("tools/list", json!({}));
    assert_eq!(names(&tools), META_TOOLS);
    for tool in tools["result"]["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 40), "{tool}");
    }
    assert!(pml.request("ping", json!({}))["result"].is_object());
    assert_eq!(success(&pml.execute("return 1")), 1);
}

/// Clients of older versions get their own version.
#[test]
fn older_protocol_versions_are_negotiated() {
    for version in ["2025-06-18", "2025-03-26", "2024-11-05"] {
        let project = Project::new();
        let mut pml =
            StdioClient::spawn(project.command(&["stdio"]), Era::Handshake, &project.log());
        let hello = pml.request(
            "initialize",
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "old", "version": "0" } }),
        );
        assert_eq!(hello["result"]["protocolVersion"], version, "{hello}");
        pml.notify("notifications/initialized", json!({}));
        assert_eq!(names(&pml.request("tools/list", json!({}))), META_TOOLS);
    }
}

/// A 2026-07-28 client begins without a handshake, and its requests are independent.
#[test]
fn clients_of_2026_07_28_can_list_and_call() {
    let mut pml = Project::new().stdio_stateless();
    let discovered = pml.request("server/discover", json!({}));
    let versions = &discovered["result"]["supportedVersions"];
    assert!(versions.to_string().contains("2026-07-28"), "{discovered}");
    let tools = pml.request("tools/list", json!({}));
    assert_eq!(names(&tools), META_TOOLS);
    assert_eq!(tools["result"]["resultType"], "complete", "{tools}");
    let call = pml.request(
        "tools/call",
        json!({ "name": "pml_execute", "arguments": { "code": "return 2" } }),
    );
    assert_eq!(call["result"]["resultType"], "complete", "{call}");
    assert_eq!(call["result"]["structuredContent"]["result"], 2);
}

/// A 2026-07-28 client may begin with a call, without `server/discover`.
#[test]
fn a_2026_07_28_client_can_start_with_a_call() {
    let mut pml = Project::new().stdio_stateless();
    assert_eq!(success(&pml.execute("return 3")), 3);
}

/// Both generations work over HTTP; lists are marked as private to the caller.
#[test]
fn both_protocol_generations_work_over_http() {
    let tenant = Server::shared().tenant();
    for era in [Era::Handshake, Era::Stateless] {
        let client = HttpMcp::new(&tenant, era);
        let tools = client.request("tools/list", json!({}));
        assert_eq!(names(&tools), META_TOOLS, "{era:?}");
        assert_eq!(success(&client.execute("return 1")), 1);
    }
    let discovered = HttpMcp::new(&tenant, Era::Stateless).request("server/discover", json!({}));
    assert!(
        discovered["result"]["supportedVersions"].to_string().contains("2026-07-28"),
        "{discovered}"
    );
    let tools = HttpMcp::new(&tenant, Era::Stateless).request("tools/list", json!({}));
    assert_eq!(tools["result"]["cacheScope"], "private", "{tools}");
    let hello = HttpMcp::new(&tenant, Era::Handshake).request(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "0" } }),
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
}

/// CL-01: with trace logs, errors and noise, every line on stdout is JSON-RPC.
#[test]
fn stdout_has_only_json_rpc_messages() {
    let project = Project::new().allow_commands(&["sh"]).set("PML_LOG", "trace");
    let mut pml = project.stdio();
    for n in 0..scaled(1_000) {
        match n % 6 {
            0 => drop(pml.execute("console.log('to the console\\n{}'); return 1")),
            1 => drop(pml.execute("return (")),
            2 => drop(pml.execute(
                "await mcp.shell.exec({ command: ['sh', '-c', 'echo out; echo err >&2'] })",
            )),
            3 => pml.write(b"noise that is no JSON\n"),
            4 => drop(pml.request("no/such", json!({}))),
            _ => drop(pml.execute("return await mcp.json.parse({ data: '{}' })")),
        }
    }
    pml.hang_up();
    pml.drain();
    for line in &pml.raw {
        let message: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
    }
    // The invalid lines may not count as requests; all others are answered.
    assert!(pml.raw.len() >= scaled(1_000) * 5 / 6, "{} lines", pml.raw.len());
    let log = std::fs::read_to_string(project.log()).unwrap();
    assert!(log.len() > 1_000, "no trace logs on stderr");
}

/// Requests are answered as they complete, so a long program does not delay others.
#[test]
fn requests_run_concurrently() {
    let mut pml = Project::new().allow_commands(&["sleep"]).stdio();
    let slow = pml.begin("await mcp.shell.exec({ command: ['sleep', '280'], timeout_ms: 290000 })");
    assert_eq!(success(&pml.execute("return 1")), 1);
    assert!(pml.answer_within(slow, std::time::Duration::ZERO).is_none());
    pml.notify("notifications/cancelled", json!({ "requestId": slow }));
    assert_eq!(success(&pml.execute("return 2")), 2);
}

/// Two sessions can work in one workspace at the same time.
#[test]
fn two_sessions_share_a_workspace() {
    let project = Project::new().allow(&["filesystem:*"]);
    let (mut one, mut two) = (project.stdio(), project.stdio());
    success(&one.execute("await mcp.filesystem.write_file({ path: 'x', content: 'one' })"));
    assert_eq!(
        success(&two.execute("return await mcp.filesystem.read_text_file({ path: 'x' })")),
        "one"
    );
}
