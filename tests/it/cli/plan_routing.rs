//! Where `pml plan` says that calls run, compared with the dry run and the actual run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::identity::secret_hosts::recording_server;
use crate::registry::capabilities::{DOUBLE, published};
use crate::support::cli::{Project, finish, text};
use crate::support::expect::{calls, failure, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, StdioClient, envelope};
use crate::support::server::Server;
use crate::support::terminal::say_yes;
use crate::support::upstream::{Entry, scope_of};
use crate::support::{PATIENCE, poll};

use super::plan::plan;

/// A program that reads a file and passes its text to the tool.
fn sends_file_to(tool: &str) -> String {
    let (namespace, action) = tool.split_once(':').unwrap();
    format!(
        "const text = await mcp.filesystem.read_text_file({{ path: 'a.txt' }});
return await mcp[{namespace:?}][{action:?}]({{ data: text, path: 'a.txt', n: text.length }});"
    )
}

/// Runs a program and approves every question.
fn execute_approving(project: &Project, pml: &mut StdioClient, code: &str) -> Value {
    let mut envelope = pml.execute(code);
    while envelope["status"] == "approval_required" {
        envelope = say_yes(project, pml, &envelope);
    }
    envelope
}

/// For every source of routing, the plan, the dry run through `pml` and over HTTP, and the actual run agree where the
/// call runs.
#[test]
fn plan_dry_run_and_run_agree_on_routing() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,publish,admin");
    let upstream = recording_server();
    let url = format!("{}/mcp", upstream.url);
    let take =
        json!({ "name": "take", "description": "Takes", "inputSchema": { "type": "object" } });
    let serve = |body: &Value| {
        let reply =
            call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(body));
        assert_eq!(reply.status, 201, "{}", text(&reply.body));
    };
    serve(
        &json!({ "name": "taker", "type": "http", "description": "Takes.", "proxy_to": url, "tools": [take] }),
    );
    let scope = scope_of(&tenant);
    let ruled = Entry { routing: None, tools: vec![take], ..Entry::http(&scope, "ruled", &url) };
    ruled.publish(server.installation());
    server.installation().run_ok(&["routing", "set", "ruled:take", "server"]);
    published(&tenant, "maths.double", DOUBLE);
    published(
        &tenant,
        "files.count",
        "/** Counts. */ const text = await mcp.filesystem.read_text_file({ path: args.path }); return await mcp.math.eval({ expression: `${text.length}` })",
    );
    published(
        &tenant,
        "files.reads",
        "/** Reads. */ return await mcp.filesystem.read_text_file({ path: args.path })",
    );

    let project = Project::of(&tenant);
    let own = project.node_server("server-memory", &[]);
    let graph = json!({ "name": "read_graph", "description": "Reads", "inputSchema": { "type": "object" } });
    serve(&json!({
        "name": "recall", "type": "stdio", "description": "Remembers.",
        "install": { "command": "node", "args": own["args"] }, "tools": [graph],
    }));
    let mut overriding = own.clone();
    overriding["override"] = json!(true);
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "private_mcps": { "secret": own },
        "mcpServers": { "mine": own, "shell": overriding, "memory": own },
    }));
    project.write("a.txt", "12");
    let mut pml = project.stdio();
    let http = HttpMcp::new(&tenant, Era::Stateless).with_package();

    for (tool, side, source, leaves, note) in [
        ("json:parse", "server", "gateway", true, ""),
        ("taker:take", "server", "gateway", true, ""),
        ("ruled:take", "server", "gateway", true, ""),
        ("recall:read_graph", "client", "gateway", false, ""),
        ("maths:double", "server", "gateway", true, ""),
        ("files:count", "client", "gateway", true, ""),
        ("files:reads", "client", "gateway", false, ""),
        ("filesystem:get_file_info", "client", "native", false, ""),
        ("mine:read_graph", "client", "config", false, ""),
        ("secret:read_graph", "client", "config", false, ""),
        ("shell:read_graph", "client", "config", false, "which hides `shell` of `pml`"),
        ("memory:read_graph", "client", "config", false, "which hides `pml.mcp.memory"),
    ] {
        let code = sends_file_to(tool);
        let planned = poll(tool, PATIENCE, || {
            // The gateway learns of the operator's rule by a notification, a moment later.
            let (planned, exit) = plan(&project, &code);
            assert_eq!(exit, 0, "{planned:#}");
            (planned["tasks"][1]["side"] == side || tool != "ruled:take").then_some(planned)
        });
        let task = &planned["tasks"][1];
        assert_eq!(
            (&task["side"], &task["routing_source"]),
            (&json!(side), &json!(source)),
            "{planned:#}"
        );
        assert_eq!(
            (&planned["runs_on"], &planned["routing"]["asked"]),
            (&json!("client"), &json!(source != "native"))
        );
        assert_eq!(
            !planned["egress"].as_array().unwrap().is_empty(),
            leaves,
            "{tool}: {planned:#}"
        );
        assert!(planned["notes"].to_string().contains(note), "{tool}: {}", planned["notes"]);

        let dry = pml.execute_request(json!({ "code": code, "options": { "dry_run": true } }));
        let dry = success(&dry);
        assert_eq!(dry["routing"], "client", "{tool}: {dry:#}");
        for field in ["text_goes_to", "egress", "args_egress", "order"] {
            assert_eq!(dry[field], planned[field], "{tool}: {field}");
        }
        assert_eq!(dry["tasks"][1]["side"], side, "{tool}: {dry:#}");
        if source == "gateway" {
            let there = envelope(
                &http.call("pml_execute", json!({ "code": code, "options": { "dry_run": true } })),
            );
            for field in ["routing", "client_tools", "egress", "args_egress", "order", "tasks"] {
                assert_eq!(success(&there)[field], dry[field], "{tool}: {field}");
            }
        }

        let ran = execute_approving(&project, &mut pml, &code);
        let made = calls(&ran);
        assert_eq!(made[0], ("filesystem:read_text_file", "client"), "{ran:#}");
        assert_eq!(made[1], (tool, side), "{ran:#}");
    }
}

/// An `ask` rule for a server tool makes the program run on this machine. The plan notes a denied tool.
#[test]
fn the_plan_reflects_the_users_permission_rules() {
    let tenant = Server::shared().tenant();
    let code = "return await mcp.math.eval({ expression: '1 + 1' })";
    let ruled = |rules: Value| Project::of(&tenant).configure(&json!({ "permissions": rules }));
    let free = ruled(json!({ "allow": ["*"] }));
    assert_eq!(plan(&free, code).0["runs_on"], "server");
    let asks = ruled(json!({ "allow": ["json:*"], "ask": ["math:*"] }));
    let (planned, _) = plan(&asks, code);
    assert_eq!(
        (&planned["runs_on"], &planned["tasks"][0]["side"]),
        (&json!("client"), &json!("server"))
    );
    assert!(
        planned["notes"][0]
            .as_str()
            .unwrap()
            .contains("a permission rule of yours asks about `math:eval`"),
        "{planned:#}"
    );
    let mut pml = asks.stdio();
    let dry = pml.execute_request(json!({ "code": code, "options": { "dry_run": true } }));
    assert_eq!(success(&dry)["routing"], "client", "{dry:#}");
    let ran = execute_approving(&asks, &mut pml, code);
    assert_eq!((success(&ran), &ran["executed"]), (&json!(2), &json!("client")));
    let denies = ruled(json!({ "allow": ["*"], "deny": ["math:eval"] }));
    let (planned, _) = plan(&denies, code);
    let why = "`math:eval` is denied: `deny` has `math:eval` in `.pml.json`";
    assert_eq!((&planned["refusals"], &planned["text_goes_to"]), (&json!([why]), &Value::Null));
    let shown = text(&denies.run_with(&["plan", "-"], code.as_bytes()).stdout);
    assert!(
        shown.starts_with(&format!(
            "Is refused before it starts: 1 call, 1 tool, 1 step.\n  {why}\n"
        )),
        "{shown}"
    );
}

/// Whatever the rules and the policy are, a program runs where its plan says.
#[test]
fn a_program_runs_where_its_plan_says() {
    let tenant = Server::shared().tenant();
    let init = json!({ "allow": ["math:*", "json:*", "filesystem:read_text_file"], "ask": ["*"] });
    let all = json!({ "allow": ["*"] });
    let reads = json!({ "read": { "allow": ["**"] } });
    let settings = [
        json!({}),
        json!({ "permissions": init }),
        json!({ "permissions": { "allow": ["json:*"], "ask": ["math:*"] } }),
        json!({ "permissions": { "allow": ["*"], "deny": ["math:*"] } }),
        json!({ "permissions": { "allow": ["*"], "deny": ["pml.mcp.math:eval"] } }),
        json!({ "permissions": all, "analysis": "local" }),
        json!({ "permissions": all, "policy": { "filesystem": reads, "tools": ["json:*", "math:*"] } }),
        json!({ "permissions": all, "policy": { "tools": ["*"], "calls": { "math:*": 5 } } }),
    ];
    let programs = [
        "return 1",
        "return await mcp.math.eval({ expression: '1' })",
        "return await mcp.math.eval({ expression: args.n ?? '2' })",
        "const n = await mcp.math.eval({ expression: '3' }); return await mcp.json.parse({ data: `${n}` })",
        "const t = await mcp.filesystem.read_text_file({ path: 'a.json' }); return await mcp.json.parse({ data: t })",
        "const name = ['ma', 'th'].join(''); return await mcp[name].eval({ expression: '4' })",
        "return await mcp.nobody.knows({})",
    ];
    let mut ends = BTreeMap::<String, usize>::new();
    for settings in settings {
        let project = Project::of(&tenant).configure(&settings);
        project.write("a.json", "5");
        for code in programs {
            let (planned, _) = plan(&project, code);
            let (ran, _) = project.exec(code);
            let end = match ran["status"].as_str().unwrap() {
                "success" => {
                    assert_eq!(planned["runs_on"], ran["executed"], "{settings} {code}");
                    ran["executed"].as_str().unwrap()
                }
                "error" => "refused",
                other => other,
            };
            let is_refused = !planned["refusals"].as_array().unwrap().is_empty();
            assert_eq!(is_refused, end == "refused", "{settings} {code}: {planned:#} {ran:#}");
            *ends.entry(end.to_owned()).or_default() += 1;
        }
    }
    // Each end was reached.
    for (end, least) in [("server", 9), ("client", 9), ("refused", 9), ("approval_required", 3)] {
        assert!(ends.get(end).is_some_and(|count| *count >= least), "{end}: {ends:?}");
    }
}

/// A tool that no table has is unknown and counts as egress. A cached answer of the gateway is shown with its age.
#[test]
fn unknown_routing_is_stated_and_counts_as_egress() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,publish,admin");
    let body = json!({
        "name": "taker", "type": "http", "description": "Takes.", "proxy_to": "https://taker.test/mcp",
        "tools": [{ "name": "take", "description": "Takes", "inputSchema": { "type": "object" } }],
    });
    let reply = call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(&body));
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
    let project = Project::of(&tenant);
    let code = sends_file_to("taker:take");
    let offline = |flags: &[&str]| {
        let output =
            project.run_with(&[&["plan", "-", "--offline"], flags].concat(), code.as_bytes());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let read = |shown: String| serde_json::from_str::<Value>(&shown).unwrap();
    let unknown = read(offline(&["--json"]));
    let task = &unknown["tasks"][1];
    assert_eq!((&task["side"], &task["routing_source"]), (&json!("unknown"), &json!("none")));
    assert_eq!(unknown["egress"], json!([{ "from": "t1", "to": "t2" }]));
    let shown = offline(&[]);
    assert!(
        shown.contains("t1 filesystem:read_text_file → t2 taker:take (location unknown)"),
        "{shown}"
    );
    assert!(shown.contains("taker:take: unknown, because no table lists it"), "{shown}");
    assert!(!shown.contains("No result"), "{shown}");
    // If it is the only tool, it is unknown where the program runs.
    let output =
        project.run_with(&["plan", "-", "--offline"], b"return await mcp.taker.take(args)");
    assert!(
        text(&output.stdout).starts_with("Runs on this machine, or on the server"),
        "{}",
        text(&output.stdout)
    );

    let (online, _) = plan(&project, &code);
    assert_eq!(online["tasks"][1]["side"], "server", "{online:#}");
    let cached = read(offline(&["--json"]));
    let task = &cached["tasks"][1];
    assert_eq!((&task["side"], &task["routing_source"]), (&json!("server"), &json!("cache")));
    assert!(task["routing_age_s"].as_u64().unwrap() < 600, "{task}");
    assert!(offline(&[]).contains(", less than a minute ago"), "{}", offline(&[]));
    // The cache is separate for each API key.
    let mut other = project.command(&["plan", "-", "--offline", "--json"]);
    other.env("PML_API_KEY", &server.tenant().key);
    let output = finish(other, code.as_bytes());
    assert_eq!(read(text(&output.stdout))["tasks"][1]["side"], "unknown");
    // A deleted entry is removed from the cache.
    let bearer = &tenant.key;
    let gone = call(bearer, "DELETE", &format!("{}/api/v1/servers/taker", tenant.url), None);
    assert!(gone.status < 300, "{}", text(&gone.body));
    let (online, _) = plan(&project, &code);
    assert_eq!(
        (&online["tasks"][1]["side"], &online["tasks"][1]["routing_source"]),
        (&json!("unknown"), &json!("gateway"))
    );
    assert_eq!(online["refusals"], json!(["`taker:take` is not registered"]), "{online:#}");
    assert_eq!(read(offline(&["--json"]))["tasks"][1]["side"], "unknown");
}

/// The gateway receives the names of tools and nothing else of the program. If it cannot be reached, the plan states it.
#[test]
fn plan_sends_only_tool_names_to_the_gateway() {
    let stub = GatewayStub::start(|_| Answer::Close);
    let project = Project::at(&stub.url).set("PML_API_KEY", "pml_test_canary");
    let code = "// canary-11\nconst x = await mcp.slack.post_message({ text: 'canary-22', to: args.canary33 }); return x.canary44";
    let (planned, exit) = plan(&project, code);
    assert_eq!((exit, &planned["routing"]["asked"]), (0, &json!(false)), "{planned:#}");
    assert!(
        planned["routing"]["why_not"].as_str().unwrap().contains("cannot be reached"),
        "{planned:#}"
    );
    assert_eq!(planned["tasks"][0]["routing_source"], "shipped");
    let received = stub.received().join("\n");
    assert!(received.contains("slack") && received.contains("post_message"), "{received}");
    for canary in ["canary-11", "canary-22", "canary33", "canary44"] {
        assert!(!received.contains(canary), "{received}");
    }
    // Nothing is sent for tools of this machine, or with `--offline`.
    let requests_before = stub.requests();
    plan(&project, "return await mcp.filesystem.read_text_file({ path: 'a' })");
    project.run_with(&["plan", "-", "--offline"], code.as_bytes());
    assert_eq!(stub.requests(), requests_before);
}

/// The gateway's routing rules are cached with their `ETag`. Offline, they decide where unseen tools run.
#[test]
fn routing_rules_are_cached_and_revalidated_by_etag() {
    let tenant = Server::shared().tenant();
    let url = tenant.url.clone();
    let served = Arc::new(Mutex::new(("v1", "server")));
    let serves = Arc::clone(&served);
    let gateway = GatewayStub::start_with_head(move |head, body| {
        if !head.starts_with("GET /api/v1/routing ") {
            return Answer::Raw(
                200,
                "application/json",
                forward_request(&url, head, body).into_bytes(),
            );
        }
        let (version, side) = *serves.lock().unwrap();
        if head.to_ascii_lowercase().contains(&format!("if-none-match: \"{version}\"")) {
            return Answer::Raw(304, "application/json", Vec::new());
        }
        let rules = json!({ "rules": [["acme:*", side]] }).to_string().into_bytes();
        // The stub writes the content type unescaped, so another header can follow it.
        let kind = match version {
            "v1" => "application/json\r\netag: \"v1\"",
            _ => "application/json\r\netag: \"v2\"",
        };
        Answer::Raw(200, kind, rules)
    });
    let project = Project::at(&gateway.url).set("PML_API_KEY", &tenant.key);
    let asks = || {
        let (planned, _) = plan(&project, "return await mcp.json.parse({ data: '1' })");
        assert_eq!(planned["routing"]["asked"], true, "{planned:#}");
        gateway
            .received()
            .into_iter()
            .filter(|text| text.starts_with("GET /api/v1/routing "))
            .count()
    };
    let offline = |tool: &str| {
        let code = format!("return await mcp.{tool}({{}})");
        let output = project.run_with(&["plan", "-", "--offline", "--json"], code.as_bytes());
        let planned: Value = serde_json::from_slice(&output.stdout).unwrap();
        let task = planned["tasks"][0].clone();
        assert_eq!(task["routing_age_s"].is_u64(), task["routing_source"] == "rules", "{task:#}");
        json!([task["side"], task["routing_source"]])
    };
    assert_eq!(offline("acme.ship"), json!(["unknown", "none"]));
    assert_eq!(asks(), 1);
    assert_eq!(offline("acme.ship"), json!(["server", "rules"]));
    assert_eq!(offline("slack.post_message"), json!(["server", "shipped"]));
    assert_eq!(asks(), 2);
    let last = gateway.received().pop().unwrap().to_ascii_lowercase();
    assert!(last.contains("if-none-match: \"v1\""), "{last}");
    assert_eq!(offline("acme.ship"), json!(["server", "rules"]), "lost after 304");
    *served.lock().unwrap() = ("v2", "client");
    asks();
    assert_eq!(offline("acme.ship"), json!(["client", "rules"]));
    let text_of = project.run_with(&["plan", "-", "--offline"], b"return await mcp.acme.ship({})");
    let shown = text(&text_of.stdout);
    assert!(shown.contains("acme:ship: according to the routing rules of the gateway"), "{shown}");
    // The cache is separate for each API key.
    let project = project.set("PML_API_KEY", "pml_another");
    let output =
        project.run_with(&["plan", "-", "--offline", "--json"], b"return await mcp.acme.ship({})");
    let planned: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(planned["tasks"][0]["routing_source"], "none", "{planned:#}");
}

/// The plan and the dry run state whether the text of the program is sent to the gateway for analysis.
#[test]
fn the_plan_states_whether_the_source_is_sent_to_the_gateway() {
    let here = "return await mcp.filesystem.list_directory({ path: '.' }) // canary-55";
    let mixed = "await mcp.filesystem.list_directory({ path: '.' }); return await mcp.json.parse({ data: '1' }) // canary-55";
    for (code, key, goes) in
        [(here, "pml_test_canary", true), (here, "", false), (mixed, "", true), (mixed, "k", true)]
    {
        let stub = GatewayStub::start(|_| Answer::Close);
        let project = Project::at(&stub.url).set("PML_API_KEY", key).allow(&["*"]);
        let (planned, _) = plan(&project, code);
        let gateway = planned["routing"]["gateway"].clone();
        assert!(gateway.as_str().unwrap().starts_with(&stub.url), "{planned:#}");
        let expected = if goes { gateway.clone() } else { Value::Null };
        assert_eq!(planned["text_goes_to"], expected, "{key} {code}");
        let shown = text(&project.run_with(&["plan", "-", "--offline"], code.as_bytes()).stdout);
        let line =
            format!("\nIts text goes to the gateway {} for analysis.\n", gateway.as_str().unwrap());
        assert_eq!(shown.contains(&line), goes, "{shown}");
        assert!(!stub.received().join("\n").contains("canary-55"), "`plan` sent the source");
        project.exec(code);
        assert_eq!(stub.received().join("\n").contains("canary-55"), goes, "{key} {code}");
    }
    // The default gateway, which the user did not name, receives nothing.
    let project = Project::at("").allow(&["*"]);
    assert_eq!(plan(&project, mixed).0["text_goes_to"], Value::Null);
    let (refused, _) = project.exec(mixed);
    assert!(
        failure(&refused, "UNAUTHORIZED").contains("you did not name this gateway"),
        "{refused:#}"
    );
    // Without an answer from the gateway, a program of this machine still runs, and the dry run states the same.
    let project = Project::at(&GatewayStub::start(|_| Answer::Close).url).set("PML_API_KEY", "k");
    let mut pml = project.allow(&["*"]).stdio();
    let dry = pml.execute_request(json!({ "code": here, "options": { "dry_run": true } }));
    assert!(success(&dry)["text_goes_to"].as_str().unwrap().starts_with("http://"), "{dry:#}");
}

/// `pml:search_tools` runs on this machine and queries the gateway, so its arguments count as egress.
#[test]
fn arguments_of_search_tools_count_as_egress() {
    let project = Project::offline();
    let code = sends_file_to("pml:search_tools");
    let (planned, _) = plan(&project, &code);
    let search = &planned["tasks"][1];
    assert_eq!((&search["side"], &search["sends_within"]), (&json!("client"), &json!(true)));
    assert_eq!(planned["egress"], json!([{ "from": "t1", "to": "t2" }]), "{planned:#}");
}
