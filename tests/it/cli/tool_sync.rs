//! What the gateway is told of the tools of the user's own MCP servers.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::expect::success;
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::{HttpMcp, get};
use crate::support::mcp_client::Era;
use crate::support::registry::Registry;
use crate::support::server::{Server, Tenant};
use crate::support::{PATIENCE, poll};

/// An MCP server whose tools are in `tools.json`.
const SERVER: &str = r#"#!/usr/bin/env node
const tools = JSON.parse(require("fs").readFileSync(process.cwd() + "/tools.json"));
const answers = {
  initialize: (params) => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} },
    serverInfo: { name: "notes", version: "1" } }),
  "tools/list": () => ({ tools }),
  "tools/call": ({ name }) => ({ content: [{ type: "text", text: name }] }),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const reply = answers[method] ? { result: answers[method](params) } : { error: { code: -32601, message: "unknown" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...reply }) + "\n");
});
"#;

const CALL: &str = "return await mcp.notes.count({})";
/// A program that the gateway executes.
const OTHER: &str = "return await mcp.string.upper({ text: 'a' })";

/// The gateway, and what `pml` has sent to it.
struct Recorded {
    tenant: Tenant,
    stub: GatewayStub,
}

impl Recorded {
    fn start() -> Self {
        let tenant = Server::shared().tenant();
        let forwarded = tenant.url.clone();
        let stub = GatewayStub::start_with_head(move |head, body| {
            let answer = forward_request(&forwarded, head, body);
            Answer::Raw(200, "application/json", answer.into_bytes())
        });
        Self { tenant, stub }
    }

    /// Returns a project whose server has the tools of [`tools`], with `members` in its entry.
    fn project(&self, members: &Value) -> Project {
        let project = Project::of(&self.tenant)
            .set("PML_CLOUD_URL", &self.stub.url)
            .set("NOTES_TOKEN", "canary-of-a-variable");
        project.write("canary-notes.js", SERVER);
        project.write("tools.json", tools("Counts the notes.").to_string());
        configure(project, members)
    }

    fn syncs(&self) -> usize {
        let received = self.stub.received();
        received.iter().filter(|it| it.starts_with("POST /api/v1/tools/sync")).count()
    }

    /// Returns the servers that the gateway has.
    fn stored(&self) -> Vec<Value> {
        let bearer = format!("Bearer {}", self.tenant.key);
        let url = format!("{}/api/v1/tools/sync", self.tenant.url);
        let reply = get(&url, &[("authorization", &bearer)]);
        reply.json()["servers"].as_array().unwrap().clone()
    }

    /// Returns the own tools that a client without `pml` finds in the namespace, in which other tests publish.
    fn found(&self) -> Value {
        let client = HttpMcp::new(&self.tenant, Era::Stateless);
        let found = client.call("pml_discover", json!({ "name": "notes" }));
        let found = found["structuredContent"]["tools"].as_array().unwrap().clone();
        found.into_iter().filter(|tool| tool["needs"].is_string()).collect()
    }
}

fn configure(project: Project, members: &Value) -> Project {
    let mut entry = json!({
        "command": "node", "args": ["canary-notes.js", "--token=${NOTES_TOKEN}"],
        "env": { "NOTES_PLACE": "canary-of-the-entry" },
    });
    for (name, value) in members.as_object().unwrap() {
        entry[name] = value.clone();
    }
    project.configure(&json!({
        "permissions": { "allow": ["notes:*"], "deny": ["notes:drop"] }, "mcpServers": { "notes": entry },
    }))
}

/// The tools of the server: one that a rule allows, one that it denies, and texts with what nobody should be told.
fn tools(count: &str) -> Value {
    let leaks = "with canary-of-a-variable and canary-of-the-entry from canary-notes.js";
    json!([
        { "name": "count", "description": format!("{count} Works {leaks}."), "inputSchema": {
            "type": "object", "properties": {
                "list": { "type": "string", "description": format!("The list {leaks}."), "default": "canary-default" },
            }, "x-canary": true,
        }, "annotations": { "title": "canary-title", "readOnlyHint": true } },
        { "name": "drop", "description": "canary-denied", "inputSchema": { "type": "object" } },
    ])
}

fn tell() -> Value {
    json!({ "sync_tools": true })
}

/// Runs a program until the gateway is in a state. A run does not wait for long for what it sends, and the next one sends it.
#[track_caller]
fn run_until<T>(
    project: &Project,
    program: &str,
    what: &str,
    is_reached: impl Fn() -> Option<T>,
) -> T {
    poll(what, PATIENCE, || {
        success(&project.exec(program).0);
        is_reached()
    })
}

#[track_caller]
fn listed(project: &Project) -> Value {
    let listed = project.run(&["list", "--json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["configured"][0]["tool_sync"].clone()
}

/// P8: without the word, nothing of an own server leaves this machine, whatever runs.
#[test]
fn nothing_is_sent_without_the_word() {
    let gateway = Recorded::start();
    for members in [json!({}), json!({ "sync_tools": false })] {
        let project = gateway.project(&members);
        success(&project.exec(CALL).0);
        success(&project.exec(OTHER).0);
        let found = project.stdio().call("pml_discover", json!({ "intent": "count the notes" }));
        assert!(found.to_string().contains("notes:count"), "{found}");
        assert_eq!(listed(&project), Value::Null);
    }
    // The same in a file that nobody trusts, as a repository brings it.
    let project = gateway.project(&json!({}));
    let untrusted =
        project.read(".pml.json").replace("\"command\"", "\"sync_tools\": true, \"command\"");
    assert!(untrusted.contains("sync_tools"));
    project.write(".pml.json", untrusted);
    project.exec(OTHER);
    assert!(gateway.stub.requests() > 0, "control");
    assert_eq!((gateway.syncs(), gateway.stored()), (0, Vec::new()));
    for request in gateway.stub.received() {
        for canary in ["canary", "Counts the notes"] {
            assert!(!request.contains(canary), "{request}");
        }
    }
}

/// With the word, a client without `pml` finds the tools, and is told nothing of how the server is started. Nothing is sent
/// twice, a change is, and the tools are removed when the word is taken back.
#[test]
fn the_tools_of_a_server_are_sent_where_the_user_said_so() {
    let gateway = Recorded::start();
    let project = gateway.project(&tell());
    assert_eq!(listed(&project)["state"], "waiting", "nothing is known of it yet");
    let found = run_until(&project, CALL, "the tools to arrive", || {
        Some(gateway.found()).filter(|found| !found.as_array().unwrap().is_empty())
    });
    assert_eq!(
        (&found[0]["id"], &found[0]["routing"], found.as_array().unwrap().len()),
        (&json!("notes:count"), &json!("client"), 1),
        "{found}"
    );
    let stored = gateway.stored();
    assert!(
        stored[0]["tools"][0]["description"]
            .as_str()
            .unwrap()
            .starts_with("Counts the notes. Works with [redacted]")
    );
    let sent =
        gateway.stub.received().into_iter().filter(|it| it.starts_with("POST /api/v1/tools/sync"));
    let sent: Vec<String> = sent.collect();
    let place = project.workspace().display().to_string();
    for request in &sent {
        let body = request.split_once("\r\n\r\n").map_or(request.as_str(), |(_, body)| body);
        for canary in ["canary", "node", place.as_str(), "drop"] {
            assert!(!body.contains(canary), "{canary}: {body}");
        }
    }
    run_until(&project, CALL, "`pml` to note it", || {
        (listed(&project)["state"] == "sent").then_some(())
    });
    let status = listed(&project);
    assert_eq!(
        (&status["gateway"], &status["tools"]),
        (&json!(gateway.stub.url), &json!(1)),
        "{status}"
    );
    let shown = text(&project.run(&["list"]).stdout);
    assert!(shown.contains("was told its tools (1) less than a minute ago"), "{shown}");
    let doctor = text(&project.run(&["doctor"]).stdout);
    assert!(doctor.contains("`notes`:") && doctor.contains("was told its tools (1)"), "{doctor}");

    // Not again, in later runs.
    let before = gateway.syncs();
    success(&project.exec(CALL).0);
    assert_eq!(gateway.syncs(), before);

    // What is still named by a file that nobody trusts stays, and is not renewed.
    let trusted = project.read(".pml.json");
    project.write(".pml.json", format!("{trusted}\n"));
    project.exec(OTHER);
    assert_eq!((gateway.syncs(), gateway.stored().len()), (before, 1));
    project.write(".pml.json", &trusted);

    // The word is taken back.
    let project = configure(project, &json!({}));
    let status = listed(&project);
    assert_eq!(status["state"], "removing", "{status}");
    run_until(&project, OTHER, "the tools to be removed", || {
        gateway.stored().is_empty().then_some(())
    });
    run_until(&project, OTHER, "`pml` to note it", || {
        (listed(&project) == Value::Null).then_some(())
    });
}

/// The tools of a running server are sent while an agent is connected, and again when the server has others.
#[test]
fn a_changed_server_is_sent_again() {
    let gateway = Recorded::start();
    let project = gateway.project(&tell());
    let described = |text: &str| {
        poll(text, PATIENCE, || {
            let stored = gateway.stored();
            stored.first()?["tools"][0]["description"].as_str()?.starts_with(text).then_some(())
        });
    };
    let mut agent = project.stdio();
    success(&agent.execute(CALL));
    described("Counts the notes.");
    drop(agent);
    project.write("tools.json", tools("Counts all notes.").to_string());
    // The user allows the changed tool by forgetting the old one.
    assert!(project.run(&["remove", "notes"]).status.success());
    let mut agent = project.stdio();
    agent.call("pml_discover", json!({ "name": "notes" }));
    success(&agent.execute(CALL));
    agent.call("pml_discover", json!({ "name": "notes" }));
    described("Counts all notes.");
}

/// A gateway that is unreachable gets the tools later; one that refuses them is not asked with each run.
#[test]
fn what_could_not_be_sent_is_sent_later() {
    let gateway = Recorded::start();
    let project = gateway.project(&tell());
    let offline = project.set("PML_CLOUD_URL", "http://127.0.0.1:9");
    success(&offline.exec(CALL).0);
    let status = listed(&offline);
    assert!(["waiting", "sending"].contains(&status["state"].as_str().unwrap()), "{status}");
    assert_eq!(gateway.syncs(), 0);
    // Of another gateway, nothing is noted; the tools are known from the first run.
    let project = offline.set("PML_CLOUD_URL", &gateway.stub.url);
    run_until(&project, OTHER, "the tools to arrive", || {
        (gateway.stored().len() == 1).then_some(())
    });

    let forwarded = gateway.tenant.url.clone();
    let refusing = GatewayStub::start_with_head(move |head, body| {
        if head.starts_with("POST /api/v1/tools/sync") {
            let problem = json!({ "type": "about:blank", "title": "Bad Request", "status": 400, "code": "INVALID_REQUEST",
                "number": 3016, "detail": "you have the tools of 64 servers here\u{1b}[31m" });
            return Answer::Raw(400, "application/problem+json", problem.to_string().into_bytes());
        }
        Answer::Raw(200, "application/json", forward_request(&forwarded, head, body).into_bytes())
    });
    let project = project.set("PML_CLOUD_URL", &refusing.url);
    let asked = || {
        refusing.received().iter().filter(|it| it.starts_with("POST /api/v1/tools/sync")).count()
    };
    run_until(&project, CALL, "the refusal", || {
        (listed(&project)["state"] == "refused").then_some(())
    });
    let before = asked();
    success(&project.exec(CALL).0);
    assert_eq!(asked(), before);
    let shown = text(&project.run(&["list"]).stdout);
    assert!(
        shown.contains("does not take its tools")
            && shown.contains("64 servers")
            && !shown.contains('\u{1b}'),
        "{shown}"
    );
}

/// A server from npm, sealed, as people have it: its tools are found through the gateway by another client.
#[test]
fn a_server_from_npm_is_found_through_the_gateway() {
    let gateway = Recorded::start();
    let registry = Registry::start();
    let project = Project::of(&gateway.tenant).set("npm_config_registry", registry.npm());
    let files = [
        ("index.js", SERVER.replace("process.cwd()", "__dirname")),
        ("tools.json", tools("Counts.").to_string()),
    ];
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    registry.publish(&project.home(), "notes-mcp", &files, &json!({ "bin": "index.js" }), b"");
    let project =
        project.configure(&json!({ "permissions": { "allow": ["notes:*"] }, "mcpServers": {
        "notes": { "command": "npx", "args": ["-y", "notes-mcp"], "sync_tools": true },
    } }));
    let found = run_until(&project, CALL, "the tools to arrive", || {
        Some(gateway.found()).filter(|found| found.as_array().unwrap().len() == 2)
    });
    assert!(!found.to_string().contains("notes-mcp"), "{found}");
}
