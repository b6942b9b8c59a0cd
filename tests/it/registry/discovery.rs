//! `pml_discover`: what it finds on the gateway and on the user's machine, and how compact its answer is.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::cli::Project;
use crate::support::expect::{failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::poll;
use crate::support::server::Server;
use crate::support::terminal::say_yes;

/// Intents as agents write them, each with a tool that must be among the first three results, or none.
const INTENTS: &[(&str, &str)] = &[
    ("read file", "filesystem:read_text_file"),
    ("read a text file", "filesystem:read_text_file"),
    ("read the contents of a file from disk", "filesystem:read_text_file"),
    ("read several files at once", "filesystem:read_multiple_files"),
    ("read an image file", "filesystem:read_media_file"),
    ("write a file", "filesystem:write_file"),
    ("save text to a file", "filesystem:write_file"),
    ("edit a file", "filesystem:edit_file"),
    ("create a folder", "filesystem:create_directory"),
    ("list files in a directory", "filesystem:list_directory"),
    ("show the directory tree", "filesystem:directory_tree"),
    ("rename a file", "filesystem:move_file"),
    ("find files by name", "filesystem:search_files"),
    ("file size and modification time", "filesystem:get_file_info"),
    ("filesytem read", "filesystem:read_text_file"),
    ("raed_text_file", "filesystem:read_text_file"),
    ("readTextFile", "filesystem:read_text_file"),
    ("filesystem__read_text_file", "filesystem:read_text_file"),
    ("mcp.filesystem.read_text_file", "filesystem:read_text_file"),
    ("run a shell command", "shell:exec"),
    ("execute a command in the terminal", "shell:exec"),
    ("git commit", "git:git_commit"),
    ("commit staged changes", "git:git_commit"),
    ("show the git log", "git:git_log"),
    ("create a git branch", "git:git_create_branch"),
    ("what is the current time", "time:get_current_time"),
    ("convert time between timezones", "time:convert_time"),
    ("fetch a web page", "fetch:fetch"),
    ("download a url", "fetch:fetch"),
    ("parse json", "json:parse"),
    ("query a JSON document", "json:query"),
    ("merge two json objects", "json:merge"),
    ("sort a list", "collections:sort"),
    ("remove duplicates from a list", "collections:unique"),
    ("hash a string with sha256", "crypto:hash"),
    ("generate a uuid", "crypto:uuid"),
    ("format a date", "datetime:format"),
    ("evaluate a math expression", "math:eval"),
    ("calculate the mean and median", "math:stats"),
    ("uppercase a string", "string:upper"),
    ("fill in a template", "string:template"),
    ("library documentation", "context7:get-library-docs"),
    ("knowledge graph entities", "memory:create_entities"),
    ("xyzzy frobnicate", ""),
    ("purple monkey dishwasher", ""),
    ("asdfghjkl", ""),
    ("the of and", ""),
    ("¿?!", ""),
];

fn discover(client: &HttpMcp, arguments: Value) -> Value {
    client.call("pml_discover", arguments)["structuredContent"].clone()
}

fn discover_here(pml: &mut StdioClient, arguments: Value) -> Value {
    pml.call("pml_discover", arguments)["structuredContent"].clone()
}

fn ids(answer: &Value) -> Vec<&str> {
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    tools.iter().map(|tool| tool["id"].as_str().unwrap()).collect()
}

/// Both sides find the expected tools, ordered by the same score.
#[test]
fn intents_find_the_expected_tools() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let mut pml = Project::of(&tenant).stdio();
    let mut wrong = Vec::new();
    for (intent, expected) in INTENTS {
        let request = json!({ "intent": intent });
        let answers = [discover(&client, request.clone()), discover_here(&mut pml, request)];
        for answer in answers {
            let found = ids(&answer);
            let good = match *expected {
                "" => found.is_empty(),
                expected => found.iter().take(3).any(|id| *id == expected),
            };
            let scores: Vec<f64> = answer["tools"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|t| t["score"].as_f64())
                .collect();
            let ordered = scores.len() == found.len()
                && scores.is_sorted_by(|a, b| a >= b)
                && scores.iter().all(|score| (0.25..=1.0).contains(score));
            if !good || !ordered {
                wrong.push(format!("{intent}: not {expected:?} but {found:?} {scores:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn results_are_compact_without_schemas() {
    let client = HttpMcp::new(&Server::shared().tenant(), Era::Stateless);
    let answer = discover(&client, json!({ "intent": "read a text file", "limit": 5 }));
    let first = &answer["tools"][0];
    assert_eq!(
        first["signature"],
        "mcp.filesystem.read_text_file({ path: string, tail?: number, head?: number }) => Promise<string>"
    );
    assert!(first["description"].as_str().unwrap().len() < 200, "{first:#}");
    for tool in answer["tools"].as_array().unwrap() {
        assert!(tool.to_string().len() < 600, "{tool:#}");
        assert_eq!(tool.get("input_schema"), None);
    }
    let whole =
        discover(&client, json!({ "name": "filesystem:read_text_file", "include": ["schemas"] }));
    assert!(whole["tools"][0]["input_schema"]["properties"]["path"].is_object(), "{whole:#}");
    assert!(whole["tools"][0]["fqdn"].as_str().unwrap().starts_with("pml.mcp.filesystem."));
}

#[test]
fn several_intents_have_separate_results() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let mut pml = Project::of(&tenant).stdio();
    let request = json!({ "intents": ["read a file", "hash a string", "reading files", "xyzzy"], "limit": 2 });
    for answer in [discover(&client, request.clone()), discover_here(&mut pml, request)] {
        let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
        let intents: Vec<&str> =
            results.iter().map(|one| one["intent"].as_str().unwrap()).collect();
        assert_eq!(intents, ["read a file", "hash a string", "reading files", "xyzzy"]);
        assert!(ids(&results[1]).contains(&"crypto:hash"), "{answer:#}");
        assert_eq!(results[3]["tools"], json!([]));
        // A tool that an earlier result has described is listed with its id and score only.
        let again = &results[2]["tools"][0];
        let first = results[0]["tools"].as_array().unwrap().iter().find(|t| t["id"] == again["id"]);
        assert!(first.is_some_and(|first| first["signature"].is_string()), "{answer:#}");
        assert_eq!(again.as_object().unwrap().len(), 2, "{answer:#}");
    }
}

#[test]
fn filters_apply_and_invalid_requests_are_explained() {
    let tenant = Server::shared().tenant();
    let client = HttpMcp::new(&tenant, Era::Stateless);
    let mut pml = Project::of(&tenant).stdio();
    let mut both = |request: Value| {
        [client.call("pml_discover", request.clone()), pml.call("pml_discover", request)]
    };
    for routing in ["client", "server"] {
        for answer in both(json!({ "pattern": "*", "filter": { "routing": routing }, "limit": 50 }))
        {
            let tools = answer["structuredContent"]["tools"].as_array().unwrap().clone();
            assert!(
                tools.len() > 10 && tools.iter().all(|t| t["routing"] == routing),
                "{tools:#?}"
            );
        }
    }
    for answer in both(json!({ "name": "filesystem:read_fil" })) {
        let answer = &answer["structuredContent"];
        assert_eq!(answer["tools"], json!([]));
        assert!(answer["suggestions"].to_string().contains("filesystem:read_file"), "{answer:#}");
    }
    for (wrong, correction) in [
        (json!({ "intent": "x", "name": "a:b" }), "{\"intent\": \"read a file\"}"),
        (json!({ "limit": 51 }), "1 to 50"),
        (json!({ "limit": "many" }), "1 to 50"),
        (json!({ "include": ["everything"] }), "`schemas`"),
        (json!({ "intent": ["x"] }), "string"),
        (json!({ "tool": "x" }), "`intent`"),
    ] {
        for answer in both(wrong.clone()) {
            let refused = envelope(&answer);
            let message = failure(&refused, "INVALID_REQUEST");
            assert!(message.contains(correction), "{wrong}: {message}");
        }
    }
}

/// Configures a server of the user, whose tools no registry knows.
fn own_server(project: Project, allow: &[&str]) -> Project {
    project.write(
        "own.py",
        r#"
import json, sys, os
open("started", "a").write("x")
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = None
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "own", "version": "1"}}
    if m["method"] == "tools/list":
        r = {"tools": [
            {"name": "brew_coffee", "description": "Brews coffee. Strong.", "inputSchema": {"type": "object", "properties": {"cups": {"type": "integer"}}, "required": ["cups"]}},
            {"name": "parse_json", "description": "Parses JSON <IMPORTANT>.", "inputSchema": {"type": "object"}}]}
    if m["method"] == "tools/call":
        r = {"content": [{"type": "text", "text": "brewed"}]}
    end = {"result": r} if r else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **end}), flush=True)
"#,
    );
    let script = project.path("own.py").display().to_string();
    let entry = json!({ "command": "python3", "args": [script] });
    project.configure(
        &json!({ "mcpServers": { "kitchen": entry }, "permissions": { "allow": allow } }),
    )
}

fn kitchen(answer: &Value) -> Value {
    let tools = answer["tools"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    tools.iter().find(|tool| tool["id"] == "kitchen:brew_coffee").cloned().unwrap_or_default()
}

#[test]
fn tools_of_the_users_own_servers_are_found() {
    let project = own_server(Project::new(), &["kitchen:*"]);
    let mut pml = project.stdio();
    let answer = discover_here(&mut pml, json!({ "intent": "brew coffee" }));
    assert_eq!(
        kitchen(&answer),
        json!({
            "id": "kitchen:brew_coffee",
            "signature": "mcp.kitchen.brew_coffee({ cups: number }) => Promise<unknown>",
            "description": "Brews coffee.",
            "routing": "client",
            "score": 1.0,
        }),
        "{answer:#}"
    );
    // They are merged with the gateway's in one order, and descriptions with instructions are flagged.
    let both = discover_here(&mut pml, json!({ "intent": "parse json" }));
    assert_eq!(ids(&both)[..2], ["kitchen:parse_json", "json:parse"], "{both:#}");
    assert_eq!(both["tools"][0]["flags"], json!(["instructions"]));
    // The tool can be called by its signature.
    assert_eq!(
        success(&pml.execute("return await mcp.kitchen.brew_coffee({ cups: 1 })")),
        "brewed"
    );
}

/// Discovery does not start a server whose calls need approval. After the first approved call its tools are known.
#[test]
fn discovery_does_not_start_servers_that_need_approval() {
    let project = own_server(Project::new(), &[]);
    let mut pml = project.stdio();
    let request = json!({ "intent": "brew coffee" });
    let answer = discover_here(&mut pml, request.clone());
    assert_eq!((&answer["tools"], &answer["not_started"]), (&json!([]), &json!(["kitchen"])));
    assert!(!project.path("started").exists());
    let pending = pml.execute("return await mcp.kitchen.brew_coffee({ cups: 1 })");
    assert_eq!(success(&say_yes(&project, &mut pml, &pending)), "brewed");
    poll("the server's tools to be known", PATIENCE, || {
        let answer = discover_here(&mut pml, request.clone());
        kitchen(&answer).is_object().then_some(())
    });
    drop(pml);
    // The next process knows them without starting the server.
    let started = project.read("started");
    let answer = discover_here(&mut project.stdio(), request);
    assert!(kitchen(&answer).is_object(), "{answer:#}");
    assert_eq!(project.read("started"), started);
}

#[test]
fn local_tools_are_found_without_the_gateway() {
    for project in [Project::offline(), Project::offline().set("PML_API_KEY", "pml_x")] {
        let project = own_server(project, &["kitchen:*"]);
        let mut pml = project.stdio();
        let answer = discover_here(&mut pml, json!({ "intent": "read a text file" }));
        assert_eq!(ids(&answer)[0], "filesystem:read_text_file");
        assert!(
            answer["missing"].as_str().unwrap().starts_with("the gateway's tools: "),
            "{answer:#}"
        );
        let answer = discover_here(&mut pml, json!({ "pattern": "*_coffee" }));
        assert_eq!(ids(&answer), ["kitchen:brew_coffee"]);
        let answer = discover_here(&mut pml, json!({ "name": "shell" }));
        assert_eq!(ids(&answer), ["shell:exec"]);
    }
}

/// Offline, the gateway's tools that were found before are listed with their age. The cache is separate for each API key.
#[test]
fn gateway_tools_found_before_are_listed_offline_with_their_age() {
    let tenant = Server::shared().tenant();
    let (url, answers) = (tenant.url.clone(), Arc::new(AtomicBool::new(true)));
    let is_there = Arc::clone(&answers);
    let gateway = GatewayStub::start_with_head(move |head, body| {
        if !is_there.load(Ordering::SeqCst) {
            return Answer::Close;
        }
        Answer::Raw(200, "application/json", forward_request(&url, head, body).into_bytes())
    });
    let project = Project::at(&gateway.url).set("PML_API_KEY", &tenant.key);
    let project = own_server(project, &["kitchen:*"]);
    let found =
        discover_here(&mut project.stdio(), json!({ "intents": ["parse json", "hash a string"] }));
    assert_eq!(found["results"][0]["tools"][1]["id"], "json:parse", "{found:#}");
    assert!(!found.to_string().contains("offline"), "{found:#}");
    let folder = project.home().join(".local/state/pml/discovered");
    let record = poll("the answer to be cached", PATIENCE, || {
        std::fs::read_dir(&folder).ok()?.flatten().map(|file| file.path()).next()
    });
    assert_eq!(std::fs::metadata(record).unwrap().permissions().mode() & 0o777, 0o600);

    answers.store(false, Ordering::SeqCst);
    let mut pml = project.stdio();
    let away = discover_here(&mut pml, json!({ "intent": "parse json" }));
    assert_eq!(ids(&away)[..2], ["kitchen:parse_json", "json:parse"], "{away:#}");
    let parse = &away["tools"][1];
    assert_eq!(parse["offline"], "as of less than a minute ago");
    assert_eq!(parse["signature"], "mcp.json.parse({ data: string }) => Promise<unknown>");
    assert!(parse.get("input_schema").is_none() && parse["score"].as_f64().unwrap() > 0.5);
    assert!(away["tools"][0].get("offline").is_none(), "{away:#}");
    assert!(away["missing"].as_str().unwrap().contains("those marked `offline`"), "{away:#}");
    let shown = discover_here(&mut pml, json!({ "name": "crypto:hash", "include": ["schemas"] }));
    assert_eq!(shown["tools"][0]["input_schema"]["type"], "object", "{shown:#}");
    let near = discover_here(&mut pml, json!({ "name": "json:prase" }));
    assert_eq!(near["suggestions"][0], "json:parse", "{near:#}");
    let here = json!({ "pattern": "*parse*", "filter": { "routing": "client" } });
    assert_eq!(ids(&discover_here(&mut pml, here)), ["kitchen:parse_json"]);
    let mut project = project;
    for key in ["pml_another", ""] {
        project = project.set("PML_API_KEY", key);
        let other = discover_here(&mut project.stdio(), json!({ "intent": "parse json" }));
        assert_eq!(ids(&other), ["kitchen:parse_json"], "{other:#}");
    }
    let project = project.set("PML_API_KEY", &tenant.key);
    let project = project.configure(&json!({ "permissions": { "deny": ["json:*"] } }));
    let mut pml = project.stdio();
    assert_eq!(ids(&discover_here(&mut pml, json!({ "name": "crypto:hash" }))), ["crypto:hash"]);
    assert_eq!(ids(&discover_here(&mut pml, json!({ "name": "json:parse" }))), [] as [&str; 0]);
}

/// Denied tools are not listed, and a tool that hides another one states it.
#[test]
fn denied_tools_are_not_listed_and_hidden_ones_are_stated() {
    let tenant = Server::shared().tenant();
    let project = Project::of(&tenant);
    project.write(
        ".pml.json",
        json!({ "permissions": { "deny": ["git:*", "shell:exec"] } }).to_string(),
    );
    let mut pml = project.stdio();
    let answer = discover_here(&mut pml, json!({ "intent": "git commit" }));
    assert!(ids(&answer).iter().all(|id| !id.starts_with("git:")), "{answer:#}");
    assert_eq!(ids(&discover_here(&mut pml, json!({ "name": "shell:exec" }))), [] as [&str; 0]);
    // `pml` runs its own file tools, not the registry's server of that name.
    let answer = discover_here(&mut pml, json!({ "name": "filesystem:read_text_file" }));
    let hides = answer["tools"][0]["hides"][0].as_str().unwrap_or_default();
    assert!(hides.starts_with("pml.mcp.filesystem.read_text_file"), "{answer:#}");
    assert_eq!(ids(&answer).len(), 1);
}

/// A program can search tools on both sides, subject to the permission rules.
#[test]
fn programs_can_search_tools_under_the_permission_rules() {
    let tenant = Server::shared().tenant();
    let code = "const { tools } = await mcp.pml.search_tools({ query: args.query, limit: 3 }); return tools.map((t) => t.id)";
    let request = |query: &str| json!({ "code": code, "args": { "query": query } });
    let client = HttpMcp::new(&tenant, Era::Stateless);
    assert_eq!(success(&client.execute_request(request("parse json")))[0], "json:parse");
    let project = own_server(Project::of(&tenant), &["kitchen:*", "pml:search_tools"]);
    let mut pml = project.stdio();
    assert_eq!(success(&pml.execute_request(request("brew coffee")))[0], "kitchen:brew_coffee");
    assert_eq!(success(&pml.execute_request(request("hash a string")))[0], "crypto:hash");
    let mut asking = Project::of(&tenant).stdio();
    assert_eq!(asking.execute_request(request("x"))["status"], "approval_required");
    let denied = Project::of(&tenant);
    denied.write(".pml.json", json!({ "permissions": { "deny": ["pml:*"] } }).to_string());
    failure(&denied.stdio().execute_request(request("x")), "PERMISSION_DENIED");
    let wrong = client.execute("return await mcp.pml.search_tools({ words: 'x' })");
    assert!(failure(&wrong, "INVALID_ARGUMENTS").contains("words"), "{wrong:#}");
}
