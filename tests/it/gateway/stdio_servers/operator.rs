//! What the operator does, and what runs then.

use serde_json::{Value, json};

use super::{add, call, client, fixture, install};
use crate::support::cli::{Project, text};
use crate::support::expect::{calls, failure, success};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::Installation;
use crate::support::{PATIENCE, poll};

const MEMORY: &str = "pml.mcp.memory";

/// A server of the catalog runs on the gateway once it is installed and routed there, in programs and by `tools/call`, and
/// beside native tools. Before, its tools belong to the user's machine.
#[test]
fn a_seeded_server_runs_once_it_is_installed_and_routed() {
    let gateway = Installation::new().start();
    let (installation, tenant) = (gateway.installation().clone(), gateway.tenant());
    let plain = HttpMcp::new(&tenant, Era::Stateless);
    let read = "return await mcp.memory.read_graph({})";
    failure(&plain.execute(read), "CLIENT_TOOLS_REQUIRE_PACKAGE");

    // Routed, and not installed: the error says what to do.
    installation.run_ok(&["routing", "set", MEMORY, "server"]);
    let listed = installation.run_ok(&["routing", "list"]);
    let line = listed.lines().find(|line| line.starts_with(MEMORY)).unwrap();
    assert!(line.ends_with("  server  (yours)"), "{listed}");
    let listed: Vec<Value> =
        serde_json::from_str(&installation.run_ok(&["routing", "list", "--json"])).unwrap();
    let expected = json!({ "server": MEMORY, "routing": "server", "origin": "operator" });
    assert_eq!(listed.last(), Some(&expected));
    let memory = client(&tenant, "memory:read_graph");
    let message = failure(&memory.execute(read), "TOOL_UNAVAILABLE").to_owned();
    assert!(message.contains("pml-server stdio install pml.mcp.memory"), "{message}");

    install(&installation, &[MEMORY, "pml.mcp.sequential-thinking", "pml.mcp.time"]);
    let empty = call(&memory, "memory:read_graph", &json!({}));
    assert_eq!(empty["entities"], json!([]), "{empty}");
    let entity = json!({ "name": "n", "entityType": "t", "observations": ["o"] });
    let made = memory.call("memory__create_entities", json!({ "entities": [entity] }));
    assert_ne!(made["isError"], true, "{made:#}");

    // A program that mixes a native tool with servers of both ecosystems runs on the gateway.
    let time = client(&tenant, "time:get_current_time");
    let mixed = time.execute(
        "const graph = await mcp.memory.read_graph({});
        const now = await mcp.time.get_current_time({ timezone: 'UTC' });
        const thought = await mcp['sequential-thinking'].sequentialthinking({
            thought: 't', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 });
        const names = await mcp.json.query({ data: graph, path: '$.entities[*].name' });
        return { names, now, thought }",
    );
    let result = success(&mixed);
    assert!(result["names"].to_string().contains("\"n\""), "{result:#}");
    assert!(result["now"].to_string().contains("UTC"), "{result:#}");
    assert_eq!(mixed["executed"], "server");
    assert!(calls(&mixed).iter().all(|(_, side)| *side == "server"), "{mixed:#}");

    // In a program of `pml` that also reads a local file, it is the gateway's server that is called.
    let project = Project::of(&tenant).allow(&["*"]);
    project.write("note.txt", "local");
    let (hybrid, _) = project.exec(
        "const note = await mcp.filesystem.read_text_file({ path: 'note.txt' });
        const graph = await mcp.memory.read_graph({});
        return [note, graph.entities[0].name]",
    );
    assert_eq!(*success(&hybrid), json!(["local", "n"]));

    // A seed keeps what the operator has set, and what is listed is what is installed.
    installation.run_ok(&["seed"]);
    let listed: Value =
        serde_json::from_str(&installation.run_ok(&["stdio", "list", "--json"])).unwrap();
    let of = |name: &str| {
        let all = listed.as_array().unwrap();
        all.iter().find(|one| one["server"] == name).unwrap_or_else(|| panic!("{listed:#}")).clone()
    };
    let expected = json!({ "server": MEMORY, "installed": "yes", "version": "2026.8.31", "routing": "server" });
    assert_eq!(of(MEMORY), expected);
    assert_eq!(of("pml.mcp.fetch")["installed"], "no");
    assert_eq!(of("pml.mcp.fetch")["routing"], "client");

    // Removed, nothing of it is called; unrouted, it is the user's again.
    installation.run_ok(&["stdio", "remove", MEMORY]);
    let message = failure(&memory.execute(read), "TOOL_UNAVAILABLE").to_owned();
    assert!(message.contains("is not installed"), "{message}");
    installation.run_ok(&["routing", "unset", MEMORY]);
    poll("the tool to belong to the user's machine", PATIENCE, || {
        (memory.execute(read)["error_code"] == "CLIENT_TOOLS_REQUIRE_PACKAGE").then_some(())
    });
}

/// What cannot run on a gateway is not installed, and what has changed in the catalog is not started.
#[test]
fn what_cannot_run_is_not_installed() {
    let gateway = Installation::new().start();
    let installation = gateway.installation().clone();
    for (arguments, words) in [
        (&["stdio", "install", "pml.mcp.none"][..], "has no `stdio` server `pml.mcp.none`"),
        (&["stdio", "install", "pml.mcp.filesystem"], "needs a workspace"),
        (&["stdio", "install", "acme.web.memory"], "has no `stdio` server"),
        (&["stdio", "remove", MEMORY], "is not installed"),
        (&["routing", "set", "pml.mcp.json", "server"], "has no `stdio` server `pml.mcp.json`"),
        (&["routing", "set", "acme.web.memory", "server"], "has no `stdio` server"),
    ] {
        let refused = installation.run(arguments);
        let stderr = text(&refused.stderr);
        assert!(!refused.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    add(&gateway, "changes", &fixture("misbehaves.js"), &["pid"], &[]);
    let tenant = gateway.tenant();
    let changes = client(&tenant, "changes:pid");
    call(&changes, "changes:pid", &json!({}));
    // As a release does that starts another version.
    let record = installation.data_dir().join("stdio/installed/changes.json");
    let now = std::fs::read_to_string(&record).unwrap().replace("\"-y\"", "\"--yes\"");
    std::fs::write(&record, now).unwrap();
    let message = failure(&changes.execute("return await mcp.changes.pid({})"), "TOOL_UNAVAILABLE")
        .to_owned();
    assert!(message.contains("has changed in the catalog"), "{message}");
}
