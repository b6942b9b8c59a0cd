//! `registries` of `.pml.json`: servers of registries other than the gateway.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::plan::plan;
use super::server_starts::RUNNER;
use crate::identity::keys::call;
use crate::registry::capabilities::published;
use crate::support::cli::{Project, text};
use crate::support::expect::{failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::mcp_client::StdioClient;
use crate::support::registry::Registry;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::terminal::approve;
use crate::support::upstream::scope_of;

pub(super) const ADD: &str = "return await mcp.db.add({})";

/// The rights of those who publish.
const ALL: &str = "execute,read,publish,admin";

/// The second gateway, which a company has next to the one that `pml` uses.
fn company() -> &'static Server {
    static COMPANY: OnceLock<Server> = OnceLock::new();
    COMPANY.get_or_init(|| Installation::new().start())
}

/// Publishes a server of npm that returns which package it is from.
#[track_caller]
pub(super) fn publish(tenant: &Tenant, name: &str, package: &str, visibility: &str) {
    let body = json!({
        "name": name, "type": "stdio", "description": "A database.", "version": "1.0.0",
        "visibility": visibility,
        "install": { "command": "npx", "args": ["-y", format!("{package}@1.0.0")] },
        "tools": [{ "name": "add", "description": "Adds a row.", "inputSchema": { "type": "object" } }],
    });
    published_server(tenant, &body);
}

#[track_caller]
fn published_server(tenant: &Tenant, body: &Value) {
    let reply = call(&tenant.key, "POST", &format!("{}/api/v1/servers", tenant.url), Some(body));
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
}

/// Stores API keys as `pml login` does.
pub(super) fn store_keys(project: &Project, keys: &[(&str, &str)]) {
    let keys: serde_json::Map<String, Value> =
        keys.iter().map(|(url, key)| ((*url).to_owned(), json!(key))).collect();
    let file = project.home().join(".config/pml/credentials");
    let folder = file.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(&file, Value::Object(keys).to_string()).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
}

/// A user of both gateways, with a registry of npm.
pub(super) struct Two {
    pub(super) first: Tenant,
    pub(super) second: Tenant,
    pub(super) npm: Registry,
}

impl Two {
    pub(super) fn new() -> Self {
        let first = Server::shared().tenant_with_rights(ALL);
        let second = company().tenant_with_rights(ALL);
        Self { first, second, npm: Registry::start() }
    }

    /// Creates a project whose gateway is the first one, and that has a key for the second.
    pub(super) fn project(&self, registries: &Value) -> Project {
        let project = Project::of(&self.first);
        for package in ["first-db", "second-db"] {
            let manifest = json!({ "bin": "index.js" });
            self.npm.publish(&project.home(), package, &[("index.js", RUNNER)], &manifest, b"");
        }
        store_keys(&project, &[(&self.second.url, &self.second.key)]);
        self.with(project.set("npm_config_registry", self.npm.npm()), registries)
    }

    pub(super) fn with(&self, project: Project, registries: &Value) -> Project {
        project.configure(&json!({ "permissions": { "allow": ["*"] }, "registries": registries }))
    }
}

/// Runs a program that starts a server, and allows that on a terminal; returns the question and the result.
#[track_caller]
pub(super) fn allowed(project: &Project, pml: &mut StdioClient, code: &str) -> (String, Value) {
    let pending = pml.execute(code);
    let description = question(&pending)["description"].as_str().unwrap().to_owned();
    assert_eq!(pending["context"]["dangerous"], true, "{pending:#}");
    approve(project, &pending, false);
    let done = pml.resume(&pending, true, false);
    (description, success(&done).clone())
}

pub(super) fn is_of(result: &Value, package: &str) -> bool {
    result["file"].as_str().is_some_and(|file| file.contains(&format!("/{package}/")))
}

/// A mirror of a registry that records every request, and can stop answering.
pub(super) struct Mirror {
    pub(super) stub: GatewayStub,
    pub(super) is_down: Arc<AtomicBool>,
}

impl Mirror {
    pub(super) fn of(url: &str) -> Self {
        let (url, is_down) = (url.to_owned(), Arc::new(AtomicBool::new(false)));
        let down = Arc::clone(&is_down);
        let stub = GatewayStub::start_with_head(move |head, body| {
            if down.load(Ordering::SeqCst) {
                return Answer::Close;
            }
            let answer = forward_request(&url, head, body);
            let status = if answer.contains("\"fqdn\"") { 200 } else { 404 };
            Answer::Raw(status, "application/json", answer.into_bytes())
        });
        Self { stub, is_down }
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let received = self.stub.received();
        let paths = received.iter().map(|request| request.split(' ').nth(1).unwrap().to_owned());
        paths.collect()
    }
}

/// Story 14.9: a server that the gateway does not have comes from the next registry. The question, the lock, the list,
/// searches, plans, and the check of the machine say from which one. It is sealed, and its tools are pinned.
#[test]
fn a_second_registry_has_what_the_gateway_has_not() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let project = two.project(&json!([two.second.url]));
    let (planned, _) = plan(&project, ADD);
    let task = &planned["tasks"][0];
    assert_eq!(
        (&task["side"], &task["routing_source"], &task["registry"]),
        (&json!("client"), &json!("registry"), &json!(two.second.url)),
        "{planned:#}"
    );
    let found = text(&project.run(&["search", "db:add"]).stdout);
    let from = format!("from the registry {}", two.second.url);
    assert!(found.contains(&format!("db:add (on this machine, {from})")), "{found}");
    let name = format!("{}.db", scope_of(&two.second));
    let found = text(&project.run(&["search", &format!("{name}:add")]).stdout);
    assert!(found.contains(&format!("{name}:add (on this machine, {from})")), "{found}");

    let mut pml = project.stdio();
    let (asked, result) = allowed(&project, &mut pml, ADD);
    assert!(is_of(&result, "second-db"), "{result:#}");
    let name = format!("{}.db@1.0.0", scope_of(&two.second));
    assert!(asked.contains(&format!("`{name}` of the registry {} (", two.second.url)), "{asked}");
    assert!(asked.contains("It is sealed") && asked.contains("connect to nothing"), "{asked}");
    // It is not asked about again, in a program that computes the name, or by its full name.
    let computed = "const name = ['d', 'b'].join(''); return await mcp[name].add({})";
    assert!(is_of(success(&pml.execute(computed)), "second-db"));
    let full = format!("return await mcp['{}.db'].add({{}})", scope_of(&two.second));
    assert!(is_of(success(&pml.execute(&full)), "second-db"));
    let direct = pml.call("db:add", json!({}));
    assert!(is_of(&direct["structuredContent"]["value"], "second-db"), "{direct:#}");
    drop(pml);

    let lock: Value = serde_json::from_str(&project.read(".pml/mcp.lock")).unwrap();
    assert_eq!(lock["servers"][&name]["registry"], json!(two.second.url), "{lock:#}");
    assert!(lock["tools"][&name]["pinned"]["add"].is_string(), "{lock:#}");
    let listed = text(&project.run(&["list"]).stdout);
    assert!(listed.contains(&format!("{name} of the registry {}\n", two.second.url)), "{listed}");
    let listed = project.run(&["list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["allowed"][0]["registry"], json!(two.second.url), "{listed:#}");
    // What is allowed here is also found by words, without asking the registry for them.
    let found = project.run(&["search", "add", "a", "row", "--json"]);
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let tools = found["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["registry"] == json!(two.second.url));
    let id = format!("{}.db:add", scope_of(&two.second));
    assert_eq!(tool.expect("it is found")["id"], json!(id), "{found:#}");
    let doctor = text(&project.run(&["doctor"]).stdout);
    assert!(doctor.contains(&format!("{}: with what is stored in", two.second.url)), "{doctor}");

    project.write("add.ts", ADD);
    assert!(project.run(&["lock", "add.ts"]).status.success());
    assert!(project.read("add.ts.lock").contains(&two.second.url));
    assert!(project.run(&["exec", "add.ts"]).status.success());
    let removed = project.run(&["remove", "db", "--clean"]);
    let removed = text(&removed.stdout) + &text(&removed.stderr);
    assert!(removed.contains("Deleted the files that it stored"), "{removed}");
    question(&project.stdio().execute(ADD));
}

/// The first registry that has a name wins, in both orders, and the gateway stands where the list has it. A registry
/// behind the first match is not asked.
#[test]
fn the_first_match_wins() {
    let two = Two::new();
    publish(&two.first, "db", "first-db", "project");
    publish(&two.second, "db", "second-db", "project");
    publish(&two.second, "other", "second-db", "project");
    let mirror = Mirror::of(&two.second.url);
    let url = &mirror.stub.url;
    let keys = [(&**url, &*two.second.key)];

    // The gateway is first, with a place in the list or without one.
    for registries in [json!([url]), json!([two.first.url, url])] {
        let project = two.project(&registries);
        store_keys(&project, &keys);
        let (asked, result) = allowed(&project, &mut project.stdio(), ADD);
        assert!(is_of(&result, "first-db") && !asked.contains("of the registry"), "{asked}");
    }
    assert_eq!(mirror.paths(), [] as [&str; 0], "it was asked about what the gateway has");

    let gateway = Mirror::of(&two.first.url);
    let project = two.project(&json!([url, gateway.stub.url]));
    store_keys(&project, &keys);
    let project = project.set("PML_CLOUD_URL", &gateway.stub.url);
    let (_, result) = allowed(&project, &mut project.stdio(), ADD);
    assert!(is_of(&result, "second-db"), "{result:#}");
    // The name is sent to the gateway as one of this machine, so it does not look it up.
    let mut submitted: Vec<String> = gateway.stub.received();
    submitted.retain(|request| !request.starts_with("POST /api/v1/traces "));
    assert!(!submitted.is_empty());
    for request in &submitted {
        assert!(request.contains(r#""local_tools":["db:add"]"#), "{request}");
    }

    // A name belongs to the first registry that has the server, also if that lacks the tool.
    let project = two.project(&json!([url]));
    store_keys(&project, &keys);
    let before = mirror.paths().len();
    let refused = project.stdio().execute("return await mcp.db.remove({})");
    failure(&refused, "TOOL_NOT_FOUND");
    assert_eq!(mirror.paths().len(), before);
    // Several registries in one program.
    let both = "return [await mcp.db.add({}), await mcp.other.add({})]";
    let mut pml = project.stdio();
    let pending = pml.execute(both);
    approve(&project, &pending, false);
    let pending = pml.resume(&pending, true, false);
    approve(&project, &pending, false);
    let result = pml.resume(&pending, true, false);
    let result = success(&result);
    assert!(is_of(&result[0], "first-db") && is_of(&result[1], "second-db"), "{result:#}");
}

/// Public entries of a registry are found without a key, by their full names.
#[test]
fn public_entries_need_no_key() {
    let two = Two::new();
    let theirs = company().tenant_of_own_org(ALL);
    publish(&theirs, "db", "second-db", "public");
    let name = format!("{}.db", scope_of(&theirs));
    let project = two.project(&json!([two.second.url]));
    store_keys(&project, &[]);
    let code = format!("return await mcp['{name}'].add({{}})");
    let (_, result) = allowed(&project, &mut project.stdio(), &code);
    assert!(is_of(&result, "second-db"), "{result:#}");
    let refused = project.stdio().execute(ADD);
    failure(&refused, "TOOL_NOT_FOUND");
    // A rule for the full name applies, too.
    let denied =
        json!({ "permissions": { "deny": [format!("{name}:*")] }, "registries": [two.second.url] });
    let project = project.configure(&denied);
    failure(&project.stdio().execute(&code), "PERMISSION_DENIED");
}

/// The same server in another registry is a change, which a person has to allow.
#[test]
fn a_server_of_another_registry_is_asked_about() {
    let two = Two::new();
    publish(&two.second, "db", "second-db", "project");
    let other = two.second.url.replace("127.0.0.1", "localhost");
    let project = two.project(&json!([two.second.url]));
    store_keys(&project, &[(&two.second.url, &two.second.key), (&other, &two.second.key)]);
    allowed(&project, &mut project.stdio(), ADD);
    project.write("add.ts", ADD);
    assert!(project.run(&["lock", "add.ts"]).status.success());

    let project = two.with(project, &json!([other]));
    let mut pml = project.stdio();
    let pending = pml.execute(ADD);
    let asked = question(&pending)["description"].as_str().unwrap();
    assert_eq!(pending["context"]["dangerous"], true, "{pending:#}");
    for words in [
        "which CHANGED since you allowed it (was ",
        &format!(" of the registry {}, now ", two.second.url),
        &format!(" of the registry {other})"),
    ] {
        assert!(asked.contains(words), "{asked}");
    }
    // A program that is locked does not even ask.
    let refused = project.run(&["exec", "add.ts", "--json"]);
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let message = failure(&refused, "INTEGRITY_MISMATCH");
    assert!(message.contains("registry"), "{message}");
    let (_, result) = allowed(&project, &mut project.stdio(), ADD);
    assert!(is_of(&result, "second-db"));
}

/// What cannot be used is the match all the same, and the next registry is not asked.
#[test]
fn an_entry_of_another_type_is_reported() {
    let two = Two::new();
    let third = company().tenant_with_rights(ALL);
    let remote = json!({
        "name": "db", "type": "http", "description": "Elsewhere.", "proxy_to": "http://127.0.0.1:9/mcp",
        "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
    });
    published_server(&two.second, &remote);
    published(&two.second, "db2.add", "/** Adds. */ return 1");
    publish(&third, "db", "second-db", "project");
    publish(&third, "db2", "second-db", "project");
    let mirror = Mirror::of(&third.url);
    let project = two.project(&json!([two.second.url, two.first.url, mirror.stub.url]));
    store_keys(&project, &[(&two.second.url, &two.second.key), (&mirror.stub.url, &third.key)]);
    let mut pml = project.stdio();
    for (code, kind) in [
        (ADD, "http"),
        ("return await mcp.db2.add({})", "deno"),
        ("return await mcp['d' + 'b2'].add({})", "deno"),
    ] {
        let refused = pml.execute(code);
        let message = failure(&refused, "TOOL_UNAVAILABLE");
        assert!(message.contains(&format!("it is of the type `{kind}`")), "{message}");
        assert!(message.contains(&two.second.url), "{message}");
    }
    assert_eq!(mirror.stub.requests(), 0);
}

/// LM-08: a registry cannot replace what `pml` has itself, a server of `.pml.json`, or a name in a capability.
#[test]
fn a_registry_replaces_nothing_of_this_machine() {
    let two = Two::new();
    publish(&two.first, "db", "first-db", "project");
    let code = "/** Adds a row. */ return await mcp.db.add({})";
    published(&two.first, "rows.add", code);
    let eager = GatewayStub::start_with_head(|head, _| {
        let name = head.split(' ').nth(1).unwrap_or_default().trim_start_matches("/mcp/");
        Answer::Json(json!({
            "fqdn": format!("pml.mcp.{name}"), "type": "stdio", "description": "", "routing": "server",
            "install": { "command": "npx", "args": ["evil"] }, "integrity": "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        }))
    });
    let project = two.project(&json!([eager.url, two.first.url]));
    project.write("own.js", RUNNER);
    let project = project.configure(&json!({
        "permissions": { "allow": ["*"] },
        "registries": [{ "url": eager.url, "optional": true }, two.first.url],
        "mcpServers": { "own": { "command": "node", "args": ["own.js"] } },
    }));
    let mut pml = project.stdio();
    let mine = "const files = await mcp.filesystem.list_directory({ path: '.' });
        const found = await mcp.pml.search_tools({ name: 'filesystem:read_file' });
        return [files, found.tools.length, (await mcp.own.add({})).file]";
    let done = pml.execute(mine);
    assert!(success(&done)[2].as_str().unwrap().ends_with("own.js"), "{done:#}");
    failure(&pml.execute("return await mcp.filesystem.nothing({})"), "TOOL_NOT_FOUND");
    assert_eq!(eager.requests(), 0, "{:?}", eager.received());

    // The capability is the gateway's, and so is what it calls.
    let pending = pml.execute("return await mcp.rows.add({})");
    approve(&project, &pending, false);
    let mut done = pml.resume(&pending, true, false);
    if done["status"] == "approval_required" {
        approve(&project, &done, false);
        done = pml.resume(&done, true, false);
    }
    assert!(is_of(success(&done), "first-db"), "{done:#}");
    let asked: Vec<String> = eager.received();
    assert!(asked.iter().all(|request| request.contains("/mcp/rows")), "{asked:#?}");
}
