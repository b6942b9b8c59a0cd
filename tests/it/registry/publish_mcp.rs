//! `pml publish --mcp` and `pml unpublish`, with real MCP servers.

use serde_json::{Value, json};

use crate::support::cli::{Project, text};
use crate::support::gateway_stub::{Answer, GatewayStub};
use crate::support::http::get;
use crate::support::mcp_servers::npm;
use crate::support::server::{Server, Tenant};
use crate::support::upstream::Everything;

fn tenant() -> Tenant {
    Server::shared().tenant_with_rights("execute,read,publish,admin")
}

/// Runs `pml`; returns its exit code, stdout, and both streams.
fn run(project: &Project, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = project.run_with(arguments, b"");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let all = format!("{out}{err}");
    (output.status.code(), out, all)
}

fn entry(tenant: &Tenant, name: &str) -> (u16, Value) {
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [("authorization", bearer.as_str()), ("accept", "application/json")];
    let reply = get(&format!("{}/mcp/{name}", tenant.url), &headers);
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// `pml publish --mcp` starts the server and publishes the tools that it lists. Its variables come from the workspace;
/// without them nothing is published.
#[test]
fn a_stdio_server_is_published_with_the_tools_it_lists() {
    let tenant = tenant();
    let project = Project::of(&tenant);
    let mut file = json!({
        "name": "recall", "type": "stdio", "description": "Remembers.", "version": "1.0.0",
        "install": {
            "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"],
            "env_required": ["RECALL_NAME"],
        },
    });
    project.write("server.json", file.to_string());
    let publish = ["publish", "--mcp", "server.json"];
    let (code, _, printed) = run(&project, &publish);
    assert!(code != Some(0) && printed.contains("RECALL_NAME"), "{printed}");
    assert_eq!(entry(&tenant, "recall").0, 404, "the server was published");
    project.write(".env", "RECALL_NAME=canary-81\n");

    let (code, shown, printed) = run(&project, &["publish", "--mcp", "server.json", "--dry-run"]);
    assert_eq!(code, Some(0), "{printed}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["install"]["env_required"], json!(["RECALL_NAME"]));
    assert_eq!(entry(&tenant, "recall").0, 404, "nothing was published");

    let (code, _, printed) = run(&project, &publish);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("Starting [\"npx\"")
            && printed.contains("] with `RECALL_NAME`\n")
            && printed.contains("  recall:create_entities\n"),
        "{printed}"
    );
    assert!(!printed.contains("canary"), "{printed}");
    let (status, found) = entry(&tenant, "recall");
    assert_eq!((status, &found["server_version"]), (200, &json!("1.0.0")));
    assert_eq!((&found["routing"], &found["tools"]), (&json!("client"), &shown["tools"]));
    assert!(found["tools"].as_array().unwrap().len() >= 9, "{found}");
    assert!(!found.to_string().contains("canary"), "{found}");
    // Publishing the same again succeeds; other content of the same version is a conflict.
    assert_eq!(run(&project, &publish).0, Some(0));
    file["description"] = json!("Forgets.");
    project.write("server.json", file.to_string());
    let (code, _, printed) = run(&project, &publish);
    assert!(code == Some(1) && printed.contains("[3019 CONFLICT]"), "{printed}");
    let (code, made, printed) =
        run(&project, &["publish", "--mcp", "server.json", "--version", "1.1.0", "--json"]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(serde_json::from_str::<Value>(&made).unwrap()["version"], "1.1.0");

    // Deprecating and yanking one version and all versions.
    let stdout_of = |arguments: &[&str]| {
        let (code, stdout, printed) = run(&project, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {printed}");
        stdout
    };
    let deprecated = |name: &str| entry(&tenant, name).1["deprecated"].clone();
    assert!(
        stdout_of(&["deprecate", "recall@1.0.0", "loses notes"]).contains("1.0.0 is deprecated")
    );
    assert_eq!(deprecated("recall@1.0.0"), "loses notes");
    assert_eq!(deprecated("recall@1.1.0"), Value::Null);
    stdout_of(&["deprecate", "recall", "use memory"]);
    assert_eq!(deprecated("recall@1.1.0"), "use memory");
    stdout_of(&["deprecate", "recall", "--undo"]);
    assert_eq!(deprecated("recall@1.0.0"), Value::Null);
    assert!(stdout_of(&["yank", "recall@1.1.0"]).contains("1.1.0 is yanked"));
    assert_eq!(entry(&tenant, "recall").1["server_version"], "1.0.0");
    assert_eq!(entry(&tenant, "recall@1.1.0").0, 200);
    let (code, _, printed) = run(&project, &["yank", "recall"]);
    assert!(code == Some(2) && printed.contains("has no version"), "{printed}");
    let (code, _, printed) = run(&project, &["deprecate", "nowhere.known", "gone"]);
    assert!(code == Some(1) && printed.contains("NOT_FOUND"), "{printed}");

    // Deleting needs a confirmation or `--yes`.
    let (code, _, printed) = run(&project, &["unpublish", "recall"]);
    assert!(code == Some(2) && printed.contains("--yes"), "{printed}");
    assert_eq!(entry(&tenant, "recall").0, 200);
    assert_eq!(run(&project, &["unpublish", "recall", "--yes"]).0, Some(0));
    assert_eq!(entry(&tenant, "recall").0, 410);
    let (code, _, printed) = run(&project, &["unpublish", "recall", "--yes"]);
    assert!(code != Some(0) && printed.contains("GONE"), "{printed}");
    let (code, _, printed) = run(&project, &publish);
    assert!(code == Some(1) && printed.contains("never reused"), "{printed}");
}

/// A server.json of the official registry is accepted unchanged. A package without an immutable version is refused.
#[test]
fn an_official_server_json_is_published_unchanged() {
    let tenant = tenant();
    let project = Project::of(&tenant);
    let modules = npm("mcp").join("node_modules");
    let name = "@modelcontextprotocol/server-memory";
    let package = std::fs::read(modules.join(name).join("package.json")).unwrap();
    let package: Value = serde_json::from_slice(&package).unwrap();
    let mut file = json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.acme/official-notes",
        "title": "Notes",
        "description": "Remembers.",
        "version": "2.1.0",
        "packages": [{
            "registryType": "npm", "identifier": name, "version": package["version"],
            "transport": { "type": "stdio" },
        }],
    });
    project.write("server.json", file.to_string());
    let publish = ["publish", "--mcp", "server.json"];
    let (code, _, printed) = run(&project, &publish);
    assert_eq!(code, Some(0), "{printed}");
    let (status, found) = entry(&tenant, "official-notes");
    assert_eq!((status, &found["server_version"]), (200, &json!("2.1.0")));
    assert_eq!(found["install"]["command"], "npx");
    assert!(found["tools"].as_array().unwrap().len() >= 9, "{found}");
    for (field, value, why) in [
        ("/packages/0/version", json!("latest"), "no immutable version"),
        ("/packages/0/transport/type", json!("sse"), "does not use stdio"),
        ("/version", json!("2.1.0-beta"), "--version"),
    ] {
        let before = std::mem::replace(file.pointer_mut(field).unwrap(), value);
        project.write("server.json", file.to_string());
        let (code, _, printed) = run(&project, &publish);
        assert!(code == Some(2) && printed.contains(why), "{field}: {printed}");
        assert!(!printed.contains("Starting"), "{field}: {printed}");
        *file.pointer_mut(field).unwrap() = before;
    }
}

/// `pml` lists the tools of an HTTP server itself, with the server's key, and reads all pages.
#[test]
fn an_http_server_is_published_with_all_pages_of_its_tools() {
    let tenant = tenant();
    let project = Project::of(&tenant);
    let everything = Everything::start();
    let describe = |name: &str, url: &str, variables: &[&str]| {
        let file = json!({
            "name": name, "type": "http", "description": "Has all.", "proxy_to": url,
            "env_required": variables,
        });
        project.write("server.json", file.to_string());
    };
    let publish = ["publish", "--mcp", "server.json"];
    describe("all", &everything.url, &[]);
    let (code, _, printed) = run(&project, &publish);
    assert_eq!(code, Some(0), "{printed}");
    let (status, found) = entry(&tenant, "all");
    assert_eq!(
        (status, &found["routing"], &found["proxy_to"]),
        (200, &json!("server"), &json!(everything.url))
    );
    let names =
        found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    assert!(names.clone().any(|name| name == "echo"), "{found}");

    // A server that needs a key, with two pages of tools.
    let paged = GatewayStub::start_with_head(|head, body| {
        if !head.contains("Bearer canary-82") {
            return Answer::Raw(401, "text/plain", b"canary-82".to_vec());
        }
        if body["id"].is_null() {
            return Answer::Raw(202, "text/plain", Vec::new());
        }
        let tool = |name: &str| json!([{ "name": name, "inputSchema": { "type": "object" } }]);
        let (part, answer) = match (body["method"].as_str(), body["params"]["cursor"].as_str()) {
            (Some("initialize"), _) => (
                "result",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "paged", "version": "1" },
                }),
            ),
            (Some("tools/list"), None) => {
                ("result", json!({ "tools": tool("one"), "nextCursor": "2" }))
            }
            (Some("tools/list"), Some("2")) => ("result", json!({ "tools": tool("two") })),
            _ => ("error", json!({ "code": -32601, "message": "no such method" })),
        };
        Answer::Json(json!({ "jsonrpc": "2.0", "id": body["id"], part: answer }))
    });
    describe("paged", &format!("{}/mcp", paged.url), &["PAGED_KEY"]);
    for set in ["", "PAGED_KEY=\n"] {
        project.write(".env", set);
        let (code, _, printed) = run(&project, &publish);
        assert!(code == Some(2) && printed.contains("`PAGED_KEY`, which is not set"), "{printed}");
    }
    assert_eq!(paged.requests(), 0);
    project.write(".env", "PAGED_KEY=wrong\n");
    let (code, _, printed) = run(&project, &publish);
    assert!(code != Some(0) && printed.contains("TOOL_UNAVAILABLE"), "{printed}");
    assert_eq!(entry(&tenant, "paged").0, 404, "nothing was published");
    project.write(".env", "PAGED_KEY=canary-82\n");
    let (code, _, printed) = run(&project, &publish);
    assert!(
        code == Some(0) && printed.contains("paged:one") && printed.contains("paged:two"),
        "{printed}"
    );
    assert!(!printed.contains("canary"), "{printed}");

    // An unreachable server, a redirect, and addresses to which the key would be sent unencrypted or not at all.
    let elsewhere = paged.url.clone();
    let redirecting = GatewayStub::start(move |_| Answer::Redirect(elsewhere.clone()));
    let before = paged.requests();
    for (url, code) in [
        ("http://127.0.0.1:9/mcp", "TOOL_UNAVAILABLE"),
        (&redirecting.url, "TOOL_UNAVAILABLE"),
        ("http://mcp.acme.example/mcp", "INVALID_REQUEST"),
        ("file:///etc/passwd", "INVALID_REQUEST"),
    ] {
        describe("nobody", url, &["PAGED_KEY"]);
        let (exit, _, printed) = run(&project, &publish);
        assert!(
            exit != Some(0) && printed.contains(code) && printed.contains("Nothing was published"),
            "{url}: {printed}"
        );
        assert!(!printed.contains("canary"), "{printed}");
    }
    assert_eq!((entry(&tenant, "nobody").0, paged.requests()), (404, before));
}

/// An invalid server file is refused before the server is started. `pml unpublish` also deletes capabilities.
#[test]
fn an_invalid_server_file_is_refused_before_the_server_starts() {
    let tenant = tenant();
    let project = Project::of(&tenant);
    let touch = json!({ "command": "touch", "args": ["${workspace}/started"] });
    let good = json!({ "name": "n", "type": "stdio", "description": "d", "install": touch });
    for (field, value) in [
        ("tools", json!([])),
        ("routing", json!("server")),
        ("name", json!("a.b")),
        ("type", json!("native")),
        ("proxy_to", json!("https://x.example")),
    ] {
        let mut file = good.clone();
        file[field] = value;
        project.write("server.json", file.to_string());
        let (code, _, printed) = run(&project, &["publish", "--mcp", "server.json"]);
        assert_eq!(code, Some(2), "{field}: {printed}");
        assert!(!project.path("started").exists(), "{field}");
    }
    project.write("server.json", good.to_string());
    let (code, _, printed) = run(&project, &["publish", "--mcp", "server.json"]);
    assert!(code != Some(0) && printed.contains("Nothing was published"), "{printed}");
    assert!(project.path("started").exists(), "control: a valid file");
    assert_eq!(entry(&tenant, "n").0, 404);

    project.write("shout.ts", "/** Shouts. */ return args.text.toUpperCase()");
    let (code, shown, _) =
        run(&project, &["publish", "shout.ts", "--name", "words.shout", "--dry-run"]);
    assert_eq!((code, entry(&tenant, "words:shout").0), (Some(0), 404));
    assert!(shown.contains("toUpperCase"), "{shown}");
    assert_eq!(run(&project, &["publish", "shout.ts", "--name", "words.shout"]).0, Some(0));
    assert_eq!(entry(&tenant, "words:shout").0, 200);
    assert_eq!(run(&project, &["unpublish", "words.shout", "--yes"]).0, Some(0));
    assert_eq!(entry(&tenant, "words:shout").0, 410);
    assert_eq!(run(&project, &["publish", "shout.ts"]).0, Some(2), "a program needs its name");
}
