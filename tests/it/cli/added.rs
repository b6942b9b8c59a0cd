//! `pml add` and `pml run`: a capability as an MCP server of its own.

use serde_json::{Value, json};

use super::server_starts::{RUNNER, publish, tenant};
use crate::identity::keys::call;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::mcp_client::{Era, StdioClient};
use crate::support::registry::Registry;
use crate::support::server::{Server, Tenant};
use crate::support::terminal::{approve, on_terminal};
use crate::support::upstream::scope_of;

/// An address that nothing listens on.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Calls a server of the registry, and writes a file.
const TWICE: &str =
    "const first = await mcp.jotter.add({}); const second = await mcp.jotter.add({});
await mcp.filesystem.write_file({ path: 'made.txt', content: String(args.text ?? 'none') });
return { notes: [first.notes, second.notes] };";

fn capability(tenant: &Tenant, name: &str, code: &str) {
    let body = json!({ "name": name, "description": "Adds notes.", "code": code });
    let url = format!("{}/api/v1/capabilities", tenant.url);
    let reply = call(&tenant.key, "POST", &url, Some(&body));
    assert!(reply.status < 300, "{}", text(&reply.body));
}

/// Creates a project with an npm registry that has the server `jotter`, and a gateway that has the capability.
fn project(tenant: &Tenant, registry: &Registry, rules: &Value) -> Project {
    publish(tenant, "1.0.0", &[], &[]);
    capability(tenant, "notes.twice", TWICE);
    let project = Project::of(tenant).configure(&json!({ "permissions": rules }));
    let manifest = json!({ "bin": "index.js" });
    registry.publish(&project.home(), "notes", &[("index.js", RUNNER)], &manifest, b"");
    project.set("npm_config_registry", registry.npm())
}

/// Adds a capability as a person does on a terminal; returns what was shown.
#[track_caller]
fn add(project: &Project, arguments: &[&str]) -> String {
    let (shown, code) =
        on_terminal(project, &[&["add"], arguments].concat(), &[(r"Add it\? \[y/N\]: ", "y")]);
    assert_eq!(code, 0, "{shown}");
    shown
}

fn gone(project: Project) -> Project {
    project.set("PML_CLOUD_URL", NOWHERE).set("npm_config_registry", NOWHERE).set("PML_API_KEY", "")
}

fn serve(project: &Project, server: &str, era: Era, capabilities: Value) -> StdioClient {
    StdioClient::start_with(project.command(&["run", server]), era, &project.log(), capabilities)
}

fn tools(client: &mut StdioClient) -> Vec<String> {
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Story 14.10, AC1-4 and AC7-8: a capability is added with its server, shown before, written into `.mcp.json`, and then
/// runs without the gateway, the registry of npm, and an API key, in both protocol generations.
#[test]
fn an_added_capability_runs_without_gateway_and_key() {
    let (tenant, registry) = (tenant(), Registry::start());
    let rules = json!({ "allow": ["filesystem:write_file", "jotter:*", format!("{}.jotter:*", scope_of(&tenant))] });
    let project = project(&tenant, &registry, &rules);
    project
        .write(".mcp.json", json!({ "mcpServers": { "other": { "command": "x" } } }).to_string());
    let shown = add(&project, &["notes:twice"]);
    let name = format!("{}.notes.twice@0.1.0", scope_of(&tenant));
    for part in [
        format!("`{name}` as the MCP server `twice`"),
        "may call `filesystem:write_file`, `jotter:add`".to_owned(),
        "  | const first = await mcp.jotter.add({}); const second = await mcp.jotter.add({});"
            .to_owned(),
        "\"npx\" \"-y\" \"notes@1.0.0\"".to_owned(),
        "connect to nothing".to_owned(),
        format!("✓ {name} added. Restart your agent to use `twice`."),
    ] {
        assert!(shown.contains(&part), "no `{part}`: {shown}");
    }
    assert!(!shown.contains('⚠'), "{shown}");
    let agents: Value = serde_json::from_str(&project.read(".mcp.json")).unwrap();
    assert_eq!(agents["mcpServers"]["other"]["command"], "x");
    let entry = json!({ "type": "stdio", "command": "pml", "args": ["run", "twice"] });
    assert_eq!(agents["mcpServers"]["twice"], entry);
    let listed = text(&project.run(&["list"]).stdout);
    assert!(
        listed.contains(&format!("  twice\n    {name}; agents start `pml run twice`")),
        "{listed}"
    );

    drop(registry);
    let project = gone(project);
    for era in [Era::Handshake, Era::Stateless] {
        let mut client = serve(&project, "twice", era, json!({}));
        assert_eq!(tools(&mut client), ["run", "config", "pml_continue"]);
        let result = client.call("run", json!({ "text": "hello" }));
        let notes = result["structuredContent"]["value"]["notes"]
            .as_array()
            .unwrap_or_else(|| panic!("{result}"))
            .clone();
        assert!(notes.len() == 2 && notes[0] == notes[1], "{result}");
        assert_eq!(project.read("made.txt"), "hello");
        let config = client.call("config", json!({}))["structuredContent"].clone();
        assert_eq!(config["version"], "0.1.0");
        assert_eq!(config["calls"], json!(["filesystem:write_file", "jotter:add"]), "{config}");
        assert_eq!(config["servers"].as_object().unwrap().len(), 1, "{config}");
        let other = client.request(
            "tools/call",
            json!({ "name": "pml_execute", "arguments": { "code": "return 1" } }),
        );
        assert!(
            other["error"]["message"].as_str().unwrap().contains("there are `run` and `config`"),
            "{other}"
        );
    }
    // A client that shows forms has no use for `pml_continue`.
    let mut client = serve(&project, "notes.twice", Era::Handshake, json!({ "elicitation": {} }));
    assert_eq!(tools(&mut client), ["run", "config"]);
}

/// The calls of an added capability are asked about and denied as those of any program.
#[test]
fn the_rules_apply_to_an_added_capability() {
    let (tenant, registry) = (tenant(), Registry::start());
    let full = format!("{}.jotter:*", scope_of(&tenant));
    let project = project(&tenant, &registry, &json!({ "allow": ["jotter:*", full] }));
    add(&project, &["notes:twice"]);
    let project = gone(project);
    let mut client = serve(&project, "twice", Era::Handshake, json!({}));
    let asked = client.call("run", json!({ "text": "x" }))["structuredContent"].clone();
    assert_eq!(question(&asked)["context"]["tool"], "filesystem:write_file", "{asked}");
    assert!(!project.path("made.txt").exists());
    approve(&project, &asked, false);
    let ended = client
        .call("pml_continue", json!({ "workflow_id": asked["workflow_id"], "approved": true }));
    success(&ended["structuredContent"]);
    assert_eq!(project.read("made.txt"), "x");
    for denied in
        ["notes:twice", "filesystem:*", "jotter:add", &format!("{}.notes:twice", scope_of(&tenant))]
    {
        project.write(".pml.json", json!({ "permissions": { "deny": [denied] } }).to_string());
        assert!(project.run(&["trust", "--yes"]).status.success());
        let refused = client.call("run", json!({}))["structuredContent"].clone();
        failure(&refused, "PERMISSION_DENIED");
    }
}

/// Story 14.10, AC5-6: `pml remove` takes it back; its server may be used by others, and stays.
#[test]
fn a_removed_capability_does_not_run() {
    let (tenant, registry) = (tenant(), Registry::start());
    let project = project(&tenant, &registry, &json!({}));
    add(&project, &["notes:twice", "--as", "writer"]);
    let removed = project.run(&["remove", "writer"]);
    assert!(
        text(&removed.stdout).contains("Removed the MCP server `writer` from .mcp.json"),
        "{removed:?}"
    );
    let agents: Value = serde_json::from_str(&project.read(".mcp.json")).unwrap();
    assert_eq!(agents["mcpServers"], json!({}));
    let refused = project.run(&["run", "writer"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("pml add writer"), "{}", text(&refused.stderr));
    let listed: Value = serde_json::from_slice(&project.run(&["list", "--json"]).stdout).unwrap();
    assert_eq!((&listed["added"], &listed["capabilities"]), (&json!({}), &json!([])));
    assert_eq!(listed["allowed"].as_array().unwrap().len(), 1, "{listed}");
}

/// Nothing is added unless a person agrees, and a file of the repository adds nothing.
#[test]
fn only_a_person_adds_a_capability() {
    let (tenant, registry) = (tenant(), Registry::start());
    let project = project(&tenant, &registry, &json!({})).set("PML_TRUST_NONINTERACTIVE", "");
    for arguments in [&["add", "notes:twice"][..], &["add", "notes:twice", "--yes"]] {
        let refused = project.run(arguments);
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    }
    let (shown, code) =
        on_terminal(&project, &["add", "notes:twice"], &[(r"Add it\? \[y/N\]: ", "")]);
    assert!(code == 3 && shown.contains("nothing was added"), "{code} {shown}");
    for file in [".mcp.json", ".pml/deps.json", ".pml/mcp.lock"] {
        assert!(!project.path(file).exists(), "{file}");
    }
    // The files of another user's project.
    add(&project, &["notes:twice"]);
    let other = Project::of(&tenant);
    for file in [".mcp.json", ".pml/deps.json", ".pml/mcp.lock"] {
        other.write(file, project.read(file));
    }
    let refused = other.run(&["run", "twice"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("you have not allowed it here"),
        "{}",
        text(&refused.stderr)
    );
    // A program that was changed on disk.
    let folder = project.home().join(".local/state/pml/capabilities");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let changed = std::fs::read_to_string(&path).unwrap().replace("'made.txt'", "'evil.txt'");
        std::fs::write(&path, changed).unwrap();
    }
    let refused = project.run(&["run", "twice"]);
    assert!(text(&refused.stderr).contains("no longer here"), "{}", text(&refused.stderr));
}

#[test]
fn names_that_are_taken_or_wrong_change_nothing() {
    let (tenant, registry) = (tenant(), Registry::start());
    let project = project(&tenant, &registry, &json!({}));
    let agents = json!({ "mcpServers": { "twice": { "command": "evil" } } }).to_string();
    project.write(".mcp.json", &agents);
    for (arguments, code, error) in [
        (&["add", "notes:twice", "--yes"][..], 2, "`.mcp.json` has another server `twice`"),
        (&["add", "notes:twice", "--yes", "--as", "pml"], 2, "cannot be the name of the server"),
        (&["add", "twice", "--yes"], 2, "`text:shout`"),
        (&["add", "notes:thrice", "--yes"], 2, "notes:thrice"),
        (&["add", "jotter:add", "--yes"], 2, "is a tool, not a capability"),
        (&["add", "filesystem:write_file", "--yes", "--as", "f"], 2, "is a tool, not a capability"),
        (&["run", "twice"], 1, "was not added here"),
    ] {
        let refused = project.run(arguments);
        let shown = text(&refused.stderr);
        assert!(shown.contains(error), "{arguments:?}: {shown}");
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {shown}");
    }
    assert_eq!(project.read(".mcp.json"), agents);
    assert!(!project.path(".pml/deps.json").exists());
    for content in ["{", "{\"version\":2,\"capabilities\":{}}"] {
        project.write(".pml/deps.json", content);
        let refused = project.run(&["run", "twice"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    }
}

/// A server that lacks a secret is named when its capability is added.
#[test]
fn missing_secrets_are_reported() {
    let (tenant, registry) = (tenant(), Registry::start());
    let project = project(&tenant, &registry, &json!({}));
    publish(&tenant, "1.1.0", &["NOTES_TOKEN"], &[]);
    let added = project.run(&["add", "notes:twice", "--yes"]);
    let shown = text(&added.stdout);
    assert!(
        added.status.success() && shown.contains('⚠') && shown.contains("NOTES_TOKEN"),
        "{shown}{}",
        text(&added.stderr)
    );
}

/// Without an API key, a public capability is added by its full name, with its public server.
#[test]
fn public_capabilities_are_added_without_a_key() {
    let tenant = Server::shared().tenant_of_own_org("execute,read,publish,admin");
    let registry = Registry::start();
    let scope = scope_of(&tenant);
    let rules =
        json!({ "allow": ["filesystem:write_file", "jotter:*", format!("{scope}.jotter:*")] });
    let project = project(&tenant, &registry, &rules);
    let project = project.set("PML_API_KEY", "");
    let name = format!("{scope}.notes.twice");
    let refused = project.run(&["add", &name, "--yes"]);
    assert!(!refused.status.success());
    let shown = text(&refused.stderr);
    assert!(shown.contains("only public capabilities can be added"), "{shown}");
    let server = json!({
        "name": "jotter", "type": "stdio", "description": "Keeps notes.", "version": "1.1.0", "visibility": "public",
        "install": { "command": "npx", "args": ["-y", "notes@1.0.0"], "env": { "NOTES": "${home}/notes" } },
        "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
    });
    let shared = json!({
        "name": "notes.twice", "description": "Adds notes.", "code": TWICE, "version": "0.2.0", "visibility": "public",
    });
    for (kind, body) in [("servers", server), ("capabilities", shared)] {
        let url = format!("{}/api/v1/{kind}", tenant.url);
        let reply = call(&tenant.key, "POST", &url, Some(&body));
        assert!(reply.status < 300, "{}", text(&reply.body));
    }
    let added = project.run(&["add", &name, "--yes"]);
    assert!(added.status.success(), "{}{}", text(&added.stdout), text(&added.stderr));
    let project = gone(project);
    let result = serve(&project, "twice", Era::Stateless, json!({})).call("run", json!({}));
    assert!(result["structuredContent"]["value"]["notes"].is_array(), "{result}");
}

/// A capability that calls a tool of the gateway says that it needs the gateway.
#[test]
fn tools_of_the_gateway_still_need_it() {
    let (tenant, registry) = (tenant(), Registry::start());
    let project = project(&tenant, &registry, &json!({ "allow": ["*"] }));
    capability(&tenant, "maths.sum", "return (await mcp.math.eval({ expression: '20 + 1' }))");
    let added = project.run(&["add", "maths.sum", "--yes"]);
    assert!(text(&added.stdout).contains("⚠ It calls tools of the gateway"), "{added:?}");
    let result = serve(&project, "sum", Era::Stateless, json!({})).call("run", json!({}));
    assert!(result["structuredContent"]["value"].to_string().contains("21"), "{result}");
    let project = gone(project);
    let refused = serve(&project, "sum", Era::Stateless, json!({})).call("run", json!({}));
    assert_eq!(refused["structuredContent"]["status"], "error", "{refused}");
}
