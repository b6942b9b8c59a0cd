//! Name resolution: short names (nearest entry first), versions and full names, and that no spelling bypasses a rule.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::cli::Project;
use crate::support::expect::{calls, failure, question, success};
use crate::support::gateway_stub::{Answer, GatewayStub, forward_request};
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Server, Tenant};
use crate::support::terminal::say_yes;

/// Two projects of one organisation and one of another, created for one test.
struct World {
    web: Tenant,
    core: Tenant,
    stranger: Tenant,
    /// The names of the three scopes.
    scopes: [String; 3],
}

impl World {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let scopes = [format!("n{n}.web"), format!("n{n}.core"), format!("far{n}.one")];
        let [web, core, stranger] = scopes.each_ref().map(|scope| {
            let server = Server::shared();
            server.installation().run_ok(&["scope", "create", scope]);
            let rights = "execute,read,publish";
            let key = ["keys", "create", "--scope", scope, "--can", rights];
            let key = server.installation().run_ok(&key);
            Tenant { key: key.trim().to_owned(), url: server.url().to_owned() }
        });
        Self { web, core, stranger, scopes }
    }
}

#[track_caller]
fn publish(tenant: &Tenant, name: &str, visibility: &str, code: &str) -> Value {
    let body =
        json!({ "name": name, "code": format!("/** Says. */ {code}"), "visibility": visibility });
    let reply =
        call(&tenant.key, "POST", &format!("{}/api/v1/capabilities", tenant.url), Some(&body));
    assert!([200, 201].contains(&reply.status), "{}", reply.json());
    reply.json()
}

fn run(tenant: &Tenant, code: &str) -> Value {
    HttpMcp::new(tenant, Era::Stateless).execute(code)
}

/// A short name resolves in the own project, then the organisation, then the catalog. The run, the dry run and the
/// delegation warn about entries that are hidden.
#[test]
fn the_nearest_entry_is_called_with_a_warning_about_hidden_ones() {
    let World { web, core, scopes: [in_web, in_core, _], .. } = World::new();
    let shout = "return await mcp.text.shout({})";
    failure(&run(&web, shout), "TOOL_NOT_FOUND");
    publish(&core, "text.shout", "project", "return 'core'");
    failure(&run(&web, shout), "TOOL_NOT_FOUND");
    publish(&core, "text.shout", "org", "return 'core'");
    let done = run(&web, shout);
    assert_eq!(success(&done), "core");
    assert!(done.get("warnings").is_none(), "{done:#}");
    assert_eq!(done["tools_used"][0]["version"], "0.1.0");
    publish(&web, "text.shout", "project", "return 'web'");
    let done = run(&web, shout);
    assert_eq!(success(&done), "web");
    let warning = format!("`text:shout` is {in_web}.text.shout; it hides {in_core}.text.shout");
    assert_eq!(done["warnings"], json!([warning]));
    assert_eq!(success(&run(&core, shout)), "core");
    let dry = json!({ "code": shout, "options": { "dry_run": true } });
    let dry = HttpMcp::new(&web, Era::Stateless).execute_request(dry);
    assert_eq!((&dry["warnings"], &dry["result"]["scope"]), (&json!([warning]), &json!(in_web)));

    // The same for a direct call.
    let result = HttpMcp::new(&web, Era::Stateless).call("text:shout", json!({}));
    assert_eq!(result["structuredContent"], json!({ "value": "web" }), "{result:#}");
    // A short name can also hide a tool of the catalog; both sides warn about it.
    publish(&core, "json.parse", "org", "return 'ours'");
    let parse = "return await mcp.json.parse({ data: '1' })";
    let done = run(&web, parse);
    assert_eq!(success(&done), "ours");
    let warning = format!("`json:parse` is {in_core}.json.parse; it hides pml.mcp.json.parse");
    assert_eq!(done["warnings"], json!([warning]));
    let project = Project::of(&web).allow(&["*"]);
    project.write("a.txt", "a");
    let mixed = "await mcp.filesystem.read_text_file({ path: 'a.txt' }); return await mcp.json.parse({ data: '1' })";
    let (done, _) = project.exec(mixed);
    assert_eq!((success(&done), &done["executed"]), (&json!("ours"), &json!("client")));
    assert_eq!(done["warnings"], json!([warning]));
    let shipped = run(&web, "return await mcp['pml.mcp.json'].parse({ data: '1' })");
    assert_eq!(success(&shipped), 1);
}

/// If all versions of the nearest entry are yanked, the next one is called. The run, the dry run, `pml` and the plan warn
/// about it.
#[test]
fn a_yanked_entry_is_replaced_by_the_next_nearest_with_a_warning() {
    let World { web, core, scopes: [in_web, in_core, _], .. } = World::new();
    publish(&core, "text.shout", "org", "return 'core'");
    publish(&web, "text.shout", "project", "return 'web'");
    let url = format!("{}/api/v1/capabilities/text.shout/yank", web.url);
    assert_eq!(call(&web.key, "POST", &url, Some(&json!({ "version": "0.1.0" }))).status, 200);
    let code = "return await mcp.text.shout({})";
    let warning = json!([format!(
        "`text:shout` is {in_core}.text.shout, because all versions of {in_web}.text.shout are yanked"
    )]);
    let done = run(&web, code);
    assert_eq!((success(&done), &done["warnings"]), (&json!("core"), &warning));
    let dry = json!({ "code": code, "options": { "dry_run": true } });
    assert_eq!(HttpMcp::new(&web, Era::Stateless).execute_request(dry)["warnings"], warning);
    assert!(run(&core, code).get("warnings").is_none());
    let named = run(&web, &format!("return await mcp['{in_core}.text'].shout({{}})"));
    assert!(named.get("warnings").is_none(), "{named:#}");
    let project = Project::of(&web).allow(&["*"]);
    let mixed = format!("await mcp.filesystem.list_directory({{ path: '.' }}); {code}");
    let (done, _) = project.exec(&mixed);
    assert_eq!((success(&done), &done["warnings"]), (&json!("core"), &warning));
    let planned = project.run_with(&["plan", "-"], code.as_bytes());
    let shown = crate::support::cli::text(&planned.stdout);
    assert!(shown.contains(warning[0].as_str().unwrap()), "{shown}");
}

/// An entry of another organisation is called only by its full name, never by a short one.
#[test]
fn entries_of_other_organisations_need_their_full_name() {
    let World { web, stranger, scopes: [.., far], .. } = World::new();
    publish(&stranger, "files.tally", "public", "return 'theirs'");
    let message = run(&web, "return await mcp.files.tally({})");
    let message = failure(&message, "TOOL_NOT_FOUND").to_owned();
    assert!(message.contains(&format!("`mcp[\"{far}.files\"].tally(…)`")), "{message}");
    let full = format!("return await mcp['{far}.files'].tally({{}})");
    let done = run(&web, &full);
    assert_eq!(success(&done), "theirs");
    assert_eq!(done["tools_used"][0]["id"], format!("{far}.files:tally"));
    for name in [
        format!("{far}.files.tally"),
        format!("{far}.files:tally"),
        format!("{far}.files.tally@0.1.0"),
        format!("{far}.files:tally@latest"),
    ] {
        let result = HttpMcp::new(&web, Era::Stateless).call(&name, json!({}));
        assert_eq!(result["structuredContent"], json!({ "value": "theirs" }), "{name}: {result:#}");
    }
    let refused = HttpMcp::new(&web, Era::Stateless).call("files:tally", json!({}));
    let message = failure(&refused["structuredContent"], "TOOL_NOT_FOUND");
    assert!(message.contains(&far), "{message}");
    // Once it is no longer public, it looks nonexistent.
    publish(&stranger, "files.tally", "project", "return 'theirs'");
    let hidden = run(&web, &full);
    let hidden = failure(&hidden, "TOOL_NOT_FOUND").replace("tally", "nothing");
    let never = run(&web, &full.replace("tally", "nothing"));
    assert_eq!(hidden, failure(&never, "TOOL_NOT_FOUND"));
}

/// Names in a capability resolve in the scope of the capability, never in the scope of its caller.
#[test]
fn names_in_a_capability_resolve_in_its_own_scope() {
    let World { web, core, stranger, scopes: [in_web, in_core, far] } = World::new();
    publish(&web, "db.ask", "project", "return 'our secret'");
    publish(&stranger, "db.ask", "public", "return 'their own'");
    publish(&stranger, "trap.go", "public", "return await mcp.db.ask({})");
    let done =
        run(&web, &format!("return [await mcp['{far}.trap'].go({{}}), await mcp.db.ask({{}})]"));
    assert_eq!(success(&done), &json!(["their own", "our secret"]), "{done:#}");
    let reaches = &done["tools_used"][1];
    assert_eq!(
        (&reaches["id"], &reaches["tools"]),
        (&json!(format!("{far}.trap:go")), &json!([format!("{far}.db:ask")]))
    );
    // A full name does not help: a call of an entry that the author cannot see cannot be published.
    let body = json!({ "name": "trap.full", "code": format!("/** Tries. */ return await mcp['{in_web}.db'].ask({{}})") });
    let reply =
        call(&stranger.key, "POST", &format!("{}/api/v1/capabilities", stranger.url), Some(&body));
    assert_eq!(reply.status, 400, "{}", reply.json());
    // A capability that uses an entry of its project only cannot be run from another project.
    publish(&core, "inner.x", "project", "return 1");
    publish(&core, "outer.x", "org", "return await mcp.inner.x({})");
    failure(&run(&web, "return await mcp.outer.x({})"), "TOOL_NOT_FOUND");
    assert_eq!(success(&run(&core, "return await mcp.outer.x({})")), 1);

    // The same on the user's machine: a rule for the user's own entry does not allow the other organisation's.
    let local = "await mcp.filesystem.list_directory({ path: '.' }); return await mcp.db.ask({})";
    publish(&stranger, "trap.here", "public", local);
    let allow =
        json!({ "permissions": { "allow": ["filesystem:*", "db:*", format!("{far}.trap:*")] } });
    let project = Project::of(&web).configure(&allow);
    let mut pml = project.stdio();
    let first = pml.execute(&format!("return await mcp['{far}.trap'].here({{}})"));
    assert!(
        question(&first)["description"].as_str().unwrap().contains("trap.here@0.1.0"),
        "{first:#}"
    );
    let second = say_yes(&project, &mut pml, &first);
    assert_eq!(question(&second)["context"]["tool"], format!("{far}.db:ask"), "{second:#}");
    let done = say_yes(&project, &mut pml, &second);
    assert_eq!(success(&done), "their own");
    assert_eq!(success(&project.exec("return await mcp.db.ask({})").0), "our secret");
    drop(in_core);
}

/// Each version can be called by its number, a yanked one only so. Malformed versions get the same error on both sides.
#[test]
fn versions_are_called_by_number_and_yanked_ones_only_so() {
    let World { web, scopes: [in_web, ..], .. } = World::new();
    for code in ["return 'one'", "return 'two'"] {
        publish(&web, "text.say", "project", code);
    }
    let all = "return [await mcp.text['say@0.1.0']({}), await mcp.text['say@latest']({}), await mcp.text.say({})]";
    let done = run(&web, all);
    assert_eq!(success(&done), &json!(["one", "two", "two"]));
    let used: Vec<[&Value; 2]> = done["tools_used"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| [&tool["id"], &tool["version"]])
        .collect();
    assert_eq!(json!(used), json!([["text:say", "0.1.1"], ["text:say@0.1.0", "0.1.0"]]));
    let names: Vec<&str> = calls(&done).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["text:say@0.1.0", "text:say", "text:say"]);
    let url = format!("{}/api/v1/capabilities/text.say/yank", web.url);
    assert_eq!(call(&web.key, "POST", &url, Some(&json!({ "version": "0.1.1" }))).status, 200);
    assert_eq!(success(&run(&web, "return await mcp.text.say({})")), "one");
    assert_eq!(success(&run(&web, "return await mcp.text['say@0.1.1']({})")), "two");
    let full = format!("return await mcp['{in_web}.text']['say@0.1.1']({{}})");
    assert_eq!(success(&run(&web, &full)), "two");
    let missing = run(&web, "return await mcp.text['say@7.0.0']({})");
    let message = failure(&missing, "TOOL_NOT_FOUND");
    assert!(message.contains("did you mean `text:say@0.1.0`"), "{message}");

    let project = Project::of(&web).allow(&["*"]);
    for name in [
        "say@",
        "say@1",
        "say@1.2",
        "say@../x",
        "say@0.1.0@0.1.0",
        "say@0.1.0 ",
        "@0.1.0",
        "say.7b92",
    ] {
        let code = format!("return await mcp.text[{}]({{}})", json!(name));
        let there = failure(&run(&web, &code), "UNSUPPORTED_SYNTAX").to_owned();
        let (here, _) = project.exec(&code);
        assert_eq!(failure(&here, "UNSUPPORTED_SYNTAX"), there, "{name}");
        if name.trim() == name {
            // The name is also sent as a header, whose value cannot have blanks at its ends.
            let result =
                HttpMcp::new(&web, Era::Stateless).call(&format!("text:{name}"), json!({}));
            failure(&result["structuredContent"], "TOOL_NOT_FOUND");
        }
    }
}

/// On the user's machine, each version is approved and pinned separately, and no spelling of a name bypasses a rule.
#[test]
fn rules_apply_to_versions_and_full_names_on_the_users_machine() {
    let World { web, scopes: [in_web, ..], .. } = World::new();
    let reads = |word: &str| {
        format!("return '{word}' + (await mcp.filesystem.read_text_file({{ path: 'a.txt' }}))")
    };
    publish(&web, "text.load", "project", &reads("one "));
    publish(&web, "text.load", "project", &reads("two "));
    let project = Project::of(&web).allow(&["*"]);
    project.write("a.txt", "abc");
    let mut pml = project.stdio();
    let both = "return [await mcp.text['load@0.1.0']({}), await mcp.text.load({})]";
    let first = pml.execute(both);
    assert!(
        question(&first)["description"].as_str().unwrap().contains("text.load@0.1.0"),
        "{first:#}"
    );
    let second = say_yes(&project, &mut pml, &first);
    assert!(
        question(&second)["description"].as_str().unwrap().contains("text.load@0.1.1"),
        "{second:#}"
    );
    let done = say_yes(&project, &mut pml, &second);
    assert_eq!(success(&done), &json!(["one abc", "two abc"]));
    assert_eq!(done["tools_used"][0]["version"], "0.1.1");
    assert_eq!(done["tools_used"][1]["version"], "0.1.0");
    let full = format!("return await mcp['{in_web}.text']['load@0.1.0']({{}})");
    assert_eq!(success(&pml.execute(&full)), "one abc", "the approval covers its full name");

    let denied = Project::of(&web)
        .configure(&json!({ "permissions": { "allow": ["*"], "deny": ["text:load"] } }));
    let spelled = [
        "mcp.text['load@0.1.0']".to_owned(),
        "mcp.text['load@latest']".to_owned(),
        format!("mcp['{in_web}.text'].load"),
        format!("mcp['{in_web}.text']['load@0.1.1']"),
    ];
    for name in &spelled {
        failure(&denied.exec(&format!("return await {name}({{}})")).0, "PERMISSION_DENIED");
    }
    let in_full = format!("{in_web}.text:load");
    let denied = Project::of(&web)
        .configure(&json!({ "permissions": { "allow": ["*"], "deny": [in_full] } }));
    failure(&denied.exec("return await mcp.text.load({})").0, "PERMISSION_DENIED");

    // Native tools have no versions, and the registry's server with the name of a native one is not started.
    for name in
        ["mcp.filesystem['read_text_file@1.0.0']", "mcp['pml.mcp.filesystem'].read_text_file"]
    {
        let (refused, _) = project.exec(&format!("return await {name}({{ path: 'a.txt' }})"));
        assert_eq!(refused["status"], "error", "{name}: {refused:#}");
    }
}

/// `pml` refuses an answer of the gateway for another version than the requested one.
#[test]
fn an_answer_with_another_version_than_requested_is_refused() {
    let World { web, .. } = World::new();
    for word in ["one", "two"] {
        let code = format!(
            "return '{word}' + (await mcp.filesystem.list_directory({{ path: '.' }})).length"
        );
        publish(&web, "text.pick", "project", &code);
    }
    let url = web.url.clone();
    // A gateway that substitutes the newest version, first in its answer and its entry, then in the entry only.
    for in_answer in [true, false] {
        let url = url.clone();
        let middle = GatewayStub::start_with_head(move |head, request| {
            if head.starts_with("GET ") {
                let newest = head.replace("@0.1.0", if in_answer { "" } else { "@0.1.1" });
                return Answer::Raw(
                    200,
                    "application/typescript",
                    forward_request(&url, &newest, request).into_bytes(),
                );
            }
            let mut forwarded = request.clone();
            if in_answer {
                let code = &mut forwarded["params"]["arguments"]["code"];
                *code = json!(code.as_str().unwrap_or_default().replace("pick@0.1.0", "pick"));
            }
            let mut reply: Value =
                serde_json::from_str(&forward_request(&url, head, &forwarded)).unwrap();
            let honest = request["params"]["arguments"]["code"].clone();
            let answer = &mut reply["result"]["structuredContent"];
            if in_answer && answer["status"] == "execute_locally" {
                answer["code"] = honest.clone();
                answer["code_hash"] =
                    json!(crate::cli::hostile_gateway::hash(honest.as_str().unwrap()));
                answer["tools_used"][0]["id"] = json!("text:pick@0.1.0");
            }
            let text = answer.to_string();
            reply["result"]["content"][0]["text"] = json!(text);
            Answer::Json(reply)
        });
        let project = Project::at(&middle.url).set("PML_API_KEY", &web.key).allow(&["*"]);
        let refused = project.stdio().execute("return await mcp.text['pick@0.1.0']({})");
        assert_eq!(refused["status"], "error", "{refused:#}");
        let code = refused["error_code"].as_str().unwrap();
        assert!(["GATEWAY_BAD_ANSWER", "INTEGRITY_MISMATCH"].contains(&code), "{refused:#}");
    }
}
