//! `stdio` MCP servers that run on the gateway: sealed, and each for one tenant.

mod contained;
mod lifecycle;
mod operator;
mod tenants;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::expect::success;
use crate::support::guard;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::registry::Registry;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// The tools of `misbehaves.js`.
const MISBEHAVIOUR: &[&str] = &[
    "crash", "daemon", "env", "exhaust", "fill", "flood", "fork", "hang", "huge", "lie", "pid",
    "recall", "refuse", "remember", "share",
];

/// Installs servers of the catalog on a gateway, and routes them to it.
#[track_caller]
fn install(installation: &Installation, servers: &[&str]) {
    for server in servers {
        installation.run_ok(&["stdio", "install", server]);
        installation.run_ok(&["routing", "set", server, "server"]);
    }
}

/// Adds a server of npm to the catalog that is this script, and installs and routes it. It needs these variables.
#[track_caller]
fn add(gateway: &Server, namespace: &str, script: &str, tools: &[&str], variables: &[&str]) {
    let installation = gateway.installation();
    let folder = guard::folder("stdio");
    let packages = Registry::start();
    packages.publish(
        &folder,
        namespace,
        &[("index.js", script)],
        &json!({ "bin": "index.js" }),
        b"",
    );
    let name = format!("io.example/{namespace}");
    let needed: Vec<Value> = variables
        .iter()
        .map(|name| json!({ "name": name, "isRequired": true, "isSecret": true }))
        .collect();
    let servers = json!({ "servers": [{
        "server": {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": name, "description": "A server of a test.", "version": "1.0.0",
            "packages": [{
                "registryType": "npm", "identifier": namespace, "version": "1.0.0",
                "transport": { "type": "stdio" }, "environmentVariables": needed,
            }],
        },
        "_meta": { "io.modelcontextprotocol.registry/official": { "status": "active" } },
    }], "metadata": { "count": 1 } });
    let file = |name: &str, content: &Value| {
        let path = folder.join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.display().to_string()
    };
    installation.run_ok(&["catalog", "ingest", &file("servers.json", &servers)]);
    let tools: Vec<Value> = tools
        .iter()
        .map(|tool| json!({ "name": tool, "inputSchema": { "type": "object" } }))
        .collect();
    let tools = file("tools.json", &json!(tools));
    installation.run_ok(&["catalog", "approve", &name, "--as", namespace, "--tools", &tools]);
    let server = format!("pml.mcp.{namespace}");
    let mut command = installation.command(&["stdio", "install", &server]);
    let installed = command.env("npm_config_registry", packages.npm()).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    installation.run_ok(&["routing", "set", &server, "server"]);
}

/// Reads a script of the fixtures.
fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns a client of a tenant, once the gateway routes this tool to itself.
#[track_caller]
fn client(tenant: &Tenant, tool: &str) -> HttpMcp {
    let client = HttpMcp::new(tenant, Era::Stateless);
    let code = format!("return await mcp.{}({{}})", tool.replace(':', "."));
    poll("the tool to be routed to the gateway", PATIENCE, || {
        let plan = json!({ "code": code, "options": { "dry_run": true } });
        let envelope = client.execute_request(plan);
        (envelope["error_code"] != "CLIENT_TOOLS_REQUIRE_PACKAGE"
            && envelope["error_code"] != "TOOL_NOT_FOUND")
            .then_some(())
    });
    client
}

/// Makes a call in a program that must succeed; returns its value.
#[track_caller]
fn call(client: &HttpMcp, tool: &str, arguments: &Value) -> Value {
    let code = format!("return await mcp.{}({arguments})", tool.replace(':', "."));
    success(&client.execute(&code)).clone()
}

/// Returns the processes of `stdio` servers that a gateway has, by their supervisors.
fn supervisors(gateway: &Server) -> Vec<crate::support::processes::Pid> {
    let tree = gateway.pid().tree();
    tree.into_iter().filter(|pid| pid.command_line().contains("__supervise")).collect()
}
