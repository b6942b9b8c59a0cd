//! What a server from the registry gets when it starts: the question shows it, and the workspace cannot choose it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::cli::{Project, policy_for, text};
use crate::support::expect::{failure, question, success};
use crate::support::registry::Registry;
use crate::support::server::{Server, Tenant};
use crate::support::terminal::approve;

/// A small MCP server. Its tool returns how it was started.
pub(super) const RUNNER: &str = r#"#!/usr/bin/env node
const started = () => ({ file: __filename, path: process.env.PATH, folder: process.cwd(),
  names: Object.keys(process.env), notes: process.env.NOTES, args: process.argv.slice(2) });
const answers = {
  initialize: (params) => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} },
    serverInfo: { name: "notes", version: "1" } }),
  "tools/list": () => ({ tools: [{ name: "add", inputSchema: { type: "object" } }] }),
  "tools/call": () => ({ content: [{ type: "text", text: "started" }], structuredContent: started() }),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const reply = answers[method] ? { result: answers[method](params) } : { error: { code: -32601, message: "unknown" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...reply }) + "\n");
});
"#;

pub(super) const ADD: &str = "return await mcp.jotter.add({})";

fn program(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

pub(super) fn tenant() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish,admin")
}

#[track_caller]
pub(super) fn publish(tenant: &Tenant, version: &str, variables: &[&str], hosts: &[&str]) {
    let body = json!({
        "name": "jotter", "type": "stdio", "description": "Keeps notes.", "version": version,
        "install": {
            "command": "npx", "args": ["-y", "notes@1.0.0"], "env_required": variables, "network": hosts,
            "env": { "NOTES": "${home}/notes" },
        },
        "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
    });
    let url = format!("{}/api/v1/servers", tenant.url);
    let reply = call(&tenant.key, "POST", &url, Some(&body));
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
}

/// Creates a project whose user has this registry of npm, in which the server is published.
pub(super) fn project(tenant: &Tenant, registry: &Registry) -> Project {
    let project = Project::of(tenant).allow(&["*"]);
    let manifest = json!({ "bin": "index.js" });
    registry.publish(&project.home(), "notes", &[("index.js", RUNNER)], &manifest, b"");
    project.set("npm_config_registry", registry.npm())
}

/// NX-01: the question shows each variable that the server gets, with its source. The approval pins them, and an
/// additional one is asked about again.
#[test]
fn a_start_shows_its_grants_and_pins_them() {
    let tenant = tenant();
    publish(&tenant, "1.0.0", &["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"], &[]);
    let registry = Registry::start();
    let project = project(&tenant, &registry).set("AWS_SECRET_ACCESS_KEY", "canary-a1");
    let missing = project.stdio().execute(ADD);
    assert!(failure(&missing, "API_KEY_REQUIRED").contains("GITHUB_TOKEN"), "{missing:#}");
    project.write(".env", "GITHUB_TOKEN=canary-b2\n");

    let mut pml = project.stdio();
    let pending = pml.execute(ADD);
    assert_eq!(question(&pending)["approval_type"], "dependency");
    let description = pending["description"].as_str().unwrap();
    for line in [
        "\"npx\" \"-y\" \"notes@1.0.0\"",
        "`pml` installs `notes@1.0.0` from npm, without running its scripts, by `/",
        "It gets `AWS_SECRET_ACCESS_KEY` from your environment, a credential that lets its holder act as you",
        "It gets `GITHUB_TOKEN` from the workspace's `.env`",
        "It is sealed: it can read and change this project and its own folder, and connect to nothing",
    ] {
        assert!(description.contains(line), "{line}: {description}");
    }
    assert_eq!(pending["context"]["grants"].as_array().unwrap().len(), 4, "{pending:#}");
    assert!(pending["context"]["start_hash"].as_str().unwrap().starts_with("sha256-"));
    assert!(!pending.to_string().contains("canary"), "{pending:#}");
    failure(&pml.resume(&pending, false, false), "APPROVAL_DENIED");
    assert!(!project.path(".pml/mcp.lock").exists());

    let pending = pml.execute(ADD);
    approve(&project, &pending, false);
    let got = success(&pml.resume(&pending, true, false)).clone();
    assert!(got["notes"].as_str().unwrap().ends_with("/notes"), "{got:#}");
    let names: Vec<&str> =
        got["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.contains(&"AWS_SECRET_ACCESS_KEY") && names.contains(&"GITHUB_TOKEN"), "{got:#}");
    let lock = project.read(".pml/mcp.lock");
    assert!(!lock.contains("canary"), "{lock}");
    let lock: Value = serde_json::from_str(&lock).unwrap();
    let pinned = lock["servers"].as_object().unwrap().values().next().unwrap();
    let variables = json!({ "AWS_SECRET_ACCESS_KEY": "environment", "GITHUB_TOKEN": ".env" });
    assert_eq!(pinned["grants"]["variables"], variables, "{lock:#}");
    assert_eq!(pinned["grants"]["package"], "`notes@1.0.0` from npm", "{lock:#}");
    assert_eq!(pinned["grants"]["hosts"], json!([]), "{lock:#}");
    success(&project.stdio().execute(ADD));

    // The source changed: the approved token came from `.env`, this one from the user's environment.
    let project = project.set("GITHUB_TOKEN", "canary-c3");
    let pending = project.stdio().execute(ADD);
    let description = question(&pending)["description"].as_str().unwrap();
    assert!(description.contains("whose command or variables CHANGED"), "{description}");
    assert!(
        description.contains("NEW: It gets `GITHUB_TOKEN` from your environment"),
        "{description}"
    );

    let variables = ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NPM_TOKEN"];
    publish(&tenant, "1.1.0", &variables, &["api.notes.test", "*.notes.test"]);
    let project = project.set("NPM_TOKEN", "canary-d4");
    let pending = project.stdio().execute(ADD);
    let description = question(&pending)["description"].as_str().unwrap();
    assert!(description.contains("It gets `NPM_TOKEN`"), "{description}");
    let reach = "and connect to `api.notes.test`, `*.notes.test`";
    assert!(description.contains(reach), "{description}");
}

/// LM-03, NX-01: a long command is shortened, so that it cannot scroll the grants off the screen.
#[test]
fn a_long_command_does_not_hide_the_grants() {
    let tenant = tenant();
    let long: Vec<String> = (0..20).map(|n| format!("{n}{}", "x".repeat(400))).collect();
    let body = json!({
        "name": "jotter", "type": "stdio", "description": "Keeps notes.", "version": "1.0.0",
        "install": { "command": "npx", "args": long, "env_required": ["GITHUB_TOKEN"] },
        "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
    });
    let reply = call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(&body));
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
    let registry = Registry::start();
    let project = project(&tenant, &registry).set("GITHUB_TOKEN", "canary-e5");
    let pending = project.stdio().execute(ADD);
    let description = question(&pending)["description"].as_str().unwrap();
    assert!(description.contains("characters in total, sha256-"), "{description}");
    assert!(
        description.contains("\nIt gets `GITHUB_TOKEN` from your environment"),
        "{description}"
    );
}

/// NX-02: neither a program nor its interpreter resolves into the workspace, however `PATH` leads there. The started
/// program gets a `PATH` without these entries.
#[test]
fn programs_and_interpreters_are_never_resolved_in_the_workspace() {
    let tenant = tenant();
    publish(&tenant, "1.0.0", &[], &[]);
    let registry = Registry::start();
    for first_entry in
        ["WORK/bin:", "WORK/node_modules/.bin:", "LINK:", "bin:", "node_modules/.bin:", ".:", ":"]
    {
        let config = json!({ "permissions": { "allow": ["*"] }, "policy": policy_for(&["node"]) });
        let project = project(&tenant, &registry).configure(&config);
        let link = project.home().join("linked");
        symlink(project.path("bin"), &link).unwrap();
        let first = first_entry
            .replace("WORK", &project.workspace().display().to_string())
            .replace("LINK", &link.display().to_string());
        let path = format!("{first}{}", std::env::var("PATH").unwrap());
        let planted = format!("#!/bin/sh\necho $0 >> {}\nexit 9\n", project.path("ran").display());
        for folder in ["bin", "node_modules/.bin", "."] {
            for name in ["npx", "npm", "node", "sh"] {
                program(&project.path(&format!("{folder}/{name}")), &planted);
            }
        }
        let project = project.set("PATH", &path);
        let mut pml = project.stdio();
        let pending = pml.execute(ADD);
        let description = question(&pending)["description"].as_str().unwrap();
        assert!(!description.contains(&project.workspace().display().to_string()), "{description}");
        approve(&project, &pending, false);
        let got = success(&pml.resume(&pending, true, false)).clone();
        let work = project.workspace().display().to_string();
        let entries: Vec<&str> = got["path"].as_str().unwrap().split(':').collect();
        assert!(
            entries.iter().all(|e| e.starts_with('/') && !e.starts_with(&work)),
            "{first_entry}: {got:#}"
        );
        assert!(!entries.contains(&link.to_str().unwrap()), "{first_entry}: {got:#}");
        assert!(!got["file"].as_str().unwrap().starts_with(&work), "{first_entry}: {got:#}");
        // `shell:exec` resolves names by the same rule.
        let version = pml.execute(
            "const { exit_code, stdout } = await mcp.shell.exec({ command: ['node', '--version'] });
             return [exit_code, stdout.startsWith('v')]",
        );
        assert_eq!(*success(&version), json!([0, true]), "{first_entry}");
        assert!(!project.path("ran").exists(), "{first_entry}: {}", project.read("ran"));
    }
}

/// NX-02: a program of the workspace runs only by its path, which the error for its bare name states. An entry of the
/// registry cannot name it at all.
#[test]
fn workspace_programs_run_by_explicit_path_only() {
    let tenant = tenant();
    let project = Project::of(&tenant).allow(&["*"]);
    program(&project.path("bin/tool"), "#!/bin/sh\necho mine\n");
    let path = format!("{}:{}", project.path("bin").display(), std::env::var("PATH").unwrap());
    let project = project.set("PATH", &path);
    let mut pml = project.stdio();
    let refused = pml.execute("return await mcp.shell.exec({ command: ['tool'] })");
    assert!(failure(&refused, "TOOL_FAILED").contains("`./bin/tool`"), "{refused:#}");
    let asked = pml.execute("return (await mcp.shell.exec({ command: ['./bin/tool'] })).stdout");
    question(&asked);
    approve(&project, &asked, false);
    assert_eq!(*success(&pml.resume(&asked, true, false)), json!("mine\n"));

    for (name, command) in [("jotter", "${workspace}/bin/tool"), ("diary", "./bin/tool")] {
        let body = json!({
            "name": name, "type": "stdio", "description": "Keeps notes.",
            "install": { "command": command, "args": [] },
            "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
        });
        let reply =
            call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(&body));
        assert_eq!(reply.status, 201, "{}", text(&reply.body));
        let refused = pml.execute(&format!("return await mcp.{name}.add({{}})"));
        failure(&refused, "TOOL_UNAVAILABLE");
    }
}
