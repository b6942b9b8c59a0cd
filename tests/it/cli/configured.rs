//! What `.pml.json` may say, in the forms that people write it.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::{failure, success};
use crate::support::registry::Registry;

/// An MCP server with three tools, each of which returns its own name, and the server's arguments and variables.
const DATABASE: &str = r#"#!/usr/bin/env node
const tools = ["query", "migrate", "drop"].map((name) => ({ name, inputSchema: { type: "object" } }));
const called = ({ name }) => ({ name, args: process.argv.slice(2), env: process.env });
const answers = {
  initialize: (params) => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} },
    serverInfo: { name: "database", version: "1" } }),
  "tools/list": () => ({ tools }),
  "tools/call": (params) => ({ content: [{ type: "text", text: params.name }], structuredContent: called(params) }),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const reply = answers[method] ? { result: answers[method](params) } : { error: { code: -32601, message: "unknown" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...reply }) + "\n");
});
"#;

/// A server in the registry's form, whose tools spell its name as an identifier.
fn internal_db() -> Value {
    json!({
        "permissions": { "allow": ["*"], "ask": [], "deny": [] },
        "private_mcps": {
            "internal-db": {
                "type": "stdio",
                "install": { "command": "npx", "args": ["@company/internal-db-mcp"] },
                "tools": ["internal_db:query", "internal_db:migrate"],
            },
        },
    })
}

/// Returns a project with the package of the server in reach.
fn with_package(project: Project) -> Project {
    let registry = Registry::start();
    let manifest = json!({ "bin": "index.js" });
    let files = [("index.js", DATABASE)];
    registry.publish(&project.home(), "@company/internal-db-mcp", &files, &manifest, b"");
    project.set("npm_config_registry", registry.npm())
}

/// What a program needs that uses nothing of the file.
const SUM: &str = "return 1 + 1";

/// Settings without an effect are named in a warning, and another version of the file is refused.
#[test]
fn settings_without_effect_are_named() {
    let project = Project::offline().configure(&json!({
        "version": "1.0",
        "workspace": ".",
        "server": { "port": 3003 },
        "expose_tools": { "mode": "hybrid", "curated_limit": 10 },
    }));
    let (envelope, _) = project.exec(SUM);
    success(&envelope);
    let said = text(&project.run_with(&["exec", "-"], SUM.as_bytes()).stderr);
    let warning = "warning: `workspace` in `.pml.json` has no effect in this version";
    assert!(said.contains(warning) && !said.contains("expose_tools"), "{said}");
    project.write(".pml.json", r#"{ "version": "2.0" }"#);
    let refused = project.run_with(&["exec", "-"], SUM.as_bytes());
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("version `2.0` of this file is not known"), "{said}");
}

/// A server in the registry's form is installed and started by the first call, in a program and by name. Its other tools
/// do not exist for programs.
#[test]
fn a_server_in_the_registrys_form_offers_the_listed_tools() {
    // With a gateway, without which no dynamic program runs.
    let project = with_package(Project::new().configure(&internal_db()));
    let (envelope, _) = project.exec("return await mcp.internal_db.query({ sql: 'select 1' })");
    assert_eq!(success(&envelope)["name"], "query", "{envelope:#}");
    let mut pml = project.stdio();
    let direct = pml.call("internal_db:migrate", json!({}));
    assert_eq!(direct["structuredContent"]["value"]["name"], "migrate", "{direct:#}");

    let listed = "its `tools` are `internal_db:migrate`, `internal_db:query`";
    let spelled = "write `internal_db:query`";
    for (code, words) in [
        ("return await mcp.internal_db.drop({})", listed),
        ("return await mcp['internal_' + args.name].drop({})", listed),
        ("return await mcp['internal-db'].query({})", spelled),
        ("return await mcp[args.name.replace('db', 'internal-db')].query({})", spelled),
    ] {
        let request = json!({ "code": code, "args": { "name": "db" } });
        let message = failure(&pml.execute_request(request), "TOOL_NOT_FOUND").to_owned();
        assert!(message.contains(words), "{code}: {message}");
    }
    let direct = pml.call("internal-db:query", json!({}));
    assert!(direct.to_string().contains("TOOL_NOT_FOUND"), "{direct:#}");

    project.write("drop.ts", "return await mcp.internal_db.drop({})");
    let planned = text(&project.run(&["plan", "drop.ts"]).stdout);
    assert!(planned.starts_with("Is refused before it starts: "), "{planned}");

    let found = pml.call("pml_discover", json!({ "name": "internal_db" }));
    let found = found["structuredContent"]["tools"].as_array().unwrap().clone();
    let found: Vec<&str> = found.iter().map(|tool| tool["id"].as_str().unwrap()).collect();
    assert_eq!(found, ["internal_db:migrate", "internal_db:query"]);
    let types = text(&project.run(&["types", "-o", "-"]).stdout);
    assert!(types.contains("internal_db") && types.contains("migrate"), "{types}");
    assert!(!types.contains("drop"), "{types}");

    let (code, said) = remove(&project, "internal-db");
    assert!(code == Some(0) && said.contains("Deleted the files"), "{said}");
}

fn remove(project: &Project, name: &str) -> (Option<i32>, String) {
    let output = project.run(&["remove", name, "--clean"]);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// CL-08: a rule applies to the server in either spelling of its name. Without trust, there is no such server.
#[test]
fn rules_apply_to_both_spellings_of_a_server() {
    let query = "return await mcp.internal_db.query({})";
    for rule in ["internal-db:*", "internal_db:*", "internal-db:query", "internal_db:query"] {
        let mut settings = internal_db();
        settings["permissions"]["deny"] = json!([rule]);
        let project = Project::offline().configure(&settings);
        let (envelope, _) = project.exec(query);
        let message = failure(&envelope, "PERMISSION_DENIED");
        assert!(message.contains(rule), "{message}");
    }
    let mut settings = internal_db();
    settings["permissions"]["allow"] = json!(["internal-db:*"]);
    let project = Project::offline().configure(&settings);
    let output = project.run_with(&["exec", "-", "--json"], query.as_bytes());
    let (said, answer) = (text(&output.stderr), text(&output.stdout));
    assert!(said.contains("write `internal_db:*`"), "{said}");
    assert!(answer.contains("approval_required"), "{answer}");

    let project = Project::offline();
    project.write(".pml.json", internal_db().to_string());
    let output = project.run_with(&["exec", "-", "--json"], query.as_bytes());
    let said = text(&output.stderr);
    assert!(said.contains("`permissions.allow`, `private_mcps` in it are ignored"), "{said}");
    assert!(!text(&output.stdout).contains("success"), "{said}");
}

/// A server of the file comes before one of the registry with the same namespace. The log says so. Its program may be named
/// in the workspace with `${WORKSPACE}`.
#[test]
fn a_private_server_comes_before_the_registry() {
    let entry = json!({
        "install": { "command": "node", "args": ["${WORKSPACE}/database.js"], "env": { "PLACE": "${WORKSPACE}" } },
        "tools": ["memory:query"],
    });
    let project = Project::new().configure(&json!({
        "permissions": { "allow": ["*"] },
        "private_mcps": { "memory": entry },
    }));
    // A build service sets it, to a folder that is not this workspace.
    let project = project.set("WORKSPACE", "/elsewhere");
    project.write("database.js", DATABASE);
    let call = "return await mcp.memory.query({})";
    // For the second, the gateway is asked about `json`, and not about a tool that is here.
    for code in [call.to_owned(), format!("await mcp.json.parse({{ data: '1' }}); {call}")] {
        let run = |level: &str| {
            project.run_with(&["--log", level, "exec", "-", "--json"], code.as_bytes())
        };
        let output = run("client_cli=debug");
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        let answer = success(&envelope);
        assert_eq!(answer["name"], "query", "{envelope:#}");
        assert_eq!(answer["env"]["PLACE"], json!(project.workspace()), "{envelope:#}");
        let said = text(&output.stderr);
        let line =
            "A server of `.pml.json` has `memory:query`, which hides `memory` of the gateway";
        assert!(said.contains(line), "{said}");
        assert!(!text(&run("warn").stderr).contains("hides"), "{said}");
    }
    // What only the registry's server has is not offered by its namespace.
    let (envelope, _) = project.exec("return await mcp.memory.read_graph({})");
    failure(&envelope, "TOOL_NOT_FOUND");
}
