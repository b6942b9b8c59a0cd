//! Tools of users' own MCP servers on the gateway: who finds them, and what they change.

use serde_json::{Value, json};

use crate::identity::members::Organisation;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::{Era, envelope};
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

const CLIENT: &str = "0195d2a0-0000-7000-8000-00000000000a";
const OTHER_CLIENT: &str = "0195d2a0-0000-7000-8000-00000000000b";

/// A key, and what it is for.
struct Person<'a> {
    ours: &'a Organisation<'a>,
    key: String,
}

impl<'a> Person<'a> {
    fn of(ours: &'a Organisation<'a>, principal: &str) -> Self {
        Self { ours, key: ours.key("web", principal, "execute,read") }
    }

    fn mcp(&self) -> HttpMcp {
        let url = self.ours.server.url().to_owned();
        HttpMcp::new(&Tenant { key: self.key.clone(), url }, Era::Stateless)
    }

    #[track_caller]
    fn sync(&self, client: &str, namespace: &str, tools: &[Value]) -> Value {
        let body = json!({ "client": client, "namespace": namespace, "tools": tools });
        let reply = self.ours.ask(&self.key, "POST", "tools/sync", Some(body));
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    /// Returns the ids of what a plain client finds.
    #[track_caller]
    fn finds(&self, arguments: Value) -> Vec<String> {
        ids(&found(&self.mcp(), arguments))
    }

    #[track_caller]
    fn stored(&self) -> Value {
        let reply = self.ours.ask(&self.key, "GET", "tools/sync", None);
        assert_eq!(reply.status, 200);
        reply.json()["servers"].clone()
    }
}

fn found(mcp: &HttpMcp, arguments: Value) -> Value {
    mcp.call("pml_discover", arguments)["structuredContent"].clone()
}

fn ids(found: &Value) -> Vec<String> {
    let tools = found["tools"].as_array().unwrap_or_else(|| panic!("{found}"));
    tools.iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

fn tool(name: &str, description: &str) -> Value {
    json!({
        "name": name, "description": description, "annotations": { "readOnlyHint": true },
        "inputSchema": { "type": "object", "properties": { "bean": { "type": "string" } }, "required": ["bean"] },
    })
}

fn brew() -> Value {
    tool("brew", "Brews a cup of coffee.")
}

/// The principal who sent tools finds them by words, name and pattern, and is told where they run. Nobody else does, by
/// no way.
#[test]
fn tools_are_found_by_whom_they_belong_to_only() {
    let ours = Organisation::on(Server::shared());
    let theirs = Organisation::on(Server::shared());
    let (ann, bob) = (Person::of(&ours, "ann"), Person::of(&ours, "bob"));
    let namesake = Person::of(&theirs, "ann");
    let receipt = ann.sync(CLIENT, "barista", &[brew()]);
    assert_eq!((&receipt["tools"], &receipt["namespace"]), (&json!(1), &json!("barista")));
    let searches = [
        json!({ "intent": "brew a cup of coffee" }),
        json!({ "name": "barista" }),
        json!({ "name": "barista:brew" }),
        json!({ "name": "barista__brew" }),
        json!({ "pattern": "barista:*" }),
        json!({ "pattern": "*:bre*" }),
        json!({ "intent": "brew coffee", "filter": { "routing": "client" } }),
    ];
    for search in &searches {
        let answer = found(&ann.mcp(), search.clone());
        assert_eq!(ids(&answer), ["barista:brew"], "{search}");
        let tool = &answer["tools"][0];
        assert_eq!(tool["routing"], "client");
        assert_eq!(tool["needs"], "`pml` on the user's machine; it cannot be called from here");
        assert_eq!(tool["signature"], "mcp.barista.brew({ bean: string }) => Promise<unknown>");
        // A server's own hint decides nothing.
        assert_eq!(tool.get("read_only"), None, "{tool}");
        for other in [&bob, &namesake] {
            assert!(!other.finds(search.clone()).contains(&"barista:brew".to_owned()), "{search}");
        }
        // `pml` knows its own tools; those of another machine cannot be called there.
        let with_package = found(&ann.mcp().with_package(), search.clone());
        assert!(!ids(&with_package).contains(&"barista:brew".to_owned()), "{search}");
    }
    let by_server = json!({ "name": "barista", "filter": { "routing": "server" } });
    assert_eq!(ann.finds(by_server), [] as [String; 0]);
    // An administrator does not find them either.
    let boss = Person { ours: &ours, key: ours.boss.clone() };
    for other in [&bob, &boss, &namesake] {
        assert_eq!(other.stored(), json!([]));
        let missing = other.ours.ask(&other.key, "GET", &format!("tools/sync/{CLIENT}"), None);
        let deleted = other.ours.ask(&other.key, "DELETE", &format!("tools/sync/{CLIENT}"), None);
        assert_eq!((missing.status, deleted.status), (404, 404));
        // A set of the same client and name is another one.
        other.sync(CLIENT, "barista", &[]);
    }
    assert_eq!(ann.stored()[0]["tools"][0]["name"], "brew");
    // The suggestions for a wrong name are about names that others may not know of.
    let suggested = found(&bob.mcp(), json!({ "name": "barista:bre" })).to_string();
    assert!(!suggested.contains("barista:brew"), "{suggested}");
}

/// A set is replaced as a whole, removed when it is empty or deleted, and the newest of two workspaces is found.
#[test]
fn a_set_is_replaced_and_removed() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann");
    let first = ann.sync(CLIENT, "barista", &[brew(), tool("grind", "Grinds beans.")]);
    assert_eq!(ann.finds(json!({ "name": "barista" })), ["barista:brew", "barista:grind"]);
    assert_eq!(ann.sync(CLIENT, "barista", &[brew(), tool("grind", "Grinds beans.")]), first);
    let changed = ann.sync(CLIENT, "barista", &[tool("brew", "Brews tea.")]);
    assert_ne!(changed["hash"], first["hash"]);
    let now = found(&ann.mcp(), json!({ "name": "barista" }));
    assert_eq!(ids(&now), ["barista:brew"]);
    assert_eq!(now["tools"][0]["description"], "Brews tea.");
    ann.sync(OTHER_CLIENT, "barista", &[tool("brew", "Brews cocoa.")]);
    let now = found(&ann.mcp(), json!({ "name": "barista" }));
    assert_eq!((ids(&now).len(), &now["tools"][0]["description"]), (1, &json!("Brews cocoa.")));
    let delete =
        |path: &str| ours.ask(&ann.key, "DELETE", &format!("tools/sync/{path}"), None).status;
    assert_eq!(delete(&format!("{OTHER_CLIENT}?namespace=other")), 404);
    assert_eq!(delete(&format!("{OTHER_CLIENT}?namespace=barista")), 204);
    assert_eq!(delete(OTHER_CLIENT), 404);
    assert_eq!(
        found(&ann.mcp(), json!({ "name": "barista" }))["tools"][0]["description"],
        "Brews tea."
    );
    let removed = ann.sync(CLIENT, "barista", &[]);
    assert_eq!((&removed["tools"], removed.get("hash")), (&json!(0), None));
    assert_eq!(ann.finds(json!({ "name": "barista" })), [] as [String; 0]);
    assert_eq!(ann.stored(), json!([]));
}

/// For a caller without `pml`, a program with such a tool is refused with what it needs. For `pml`, and for others, the
/// tool does not exist.
#[test]
fn a_program_with_such_a_tool_needs_the_package() {
    let ours = Organisation::on(Server::shared());
    let (ann, bob) = (Person::of(&ours, "ann"), Person::of(&ours, "bob"));
    ann.sync(CLIENT, "barista", &[brew()]);
    let program = "const two = await mcp.math.eval({ expression: '1 + 1' }); return await mcp.barista.brew({ bean: two })";
    let refused = ann.mcp().execute(program);
    assert_eq!(refused["error_code"], "CLIENT_TOOLS_REQUIRE_PACKAGE", "{refused}");
    assert_eq!(refused["client_tools"], json!(["barista:brew"]));
    let called = envelope(&ann.mcp().call("barista:brew", json!({ "bean": "a" })));
    assert_eq!(called["error_code"], "CLIENT_TOOLS_REQUIRE_PACKAGE", "{called}");
    for (who, mcp) in [("bob", bob.mcp()), ("pml", ann.mcp().with_package())] {
        let unknown = mcp.execute(program);
        assert_eq!(unknown["error_code"], "TOOL_NOT_FOUND", "{who}: {unknown}");
        let called = envelope(&mcp.call("barista:brew", json!({ "bean": "a" })));
        assert_eq!(called["error_code"], "TOOL_NOT_FOUND", "{who}: {called}");
    }
    // One that nobody has stays unknown next to one that is known.
    let unknown = ann.mcp().execute("await mcp.barista.brew({}); await mcp.barista.steam({})");
    assert_eq!(unknown["error_code"], "TOOL_NOT_FOUND", "{unknown}");
    assert!(!unknown["message"].as_str().unwrap().contains("brew`"), "{unknown}");
}

/// A set cannot hide or replace an entry of the registry, in a search or in a program.
#[test]
fn an_entry_of_the_registry_is_not_hidden() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann");
    let entry = || found(&ann.mcp(), json!({ "name": "math:eval", "include": ["schemas"] }));
    let before = entry();
    assert_eq!(before["tools"][0]["routing"], "server", "{before}");
    ann.sync(CLIENT, "math", &[tool("eval", "Computes, says Ann."), tool("anns", "Ann's own.")]);
    assert_eq!(entry(), before);
    assert_eq!(ann.finds(json!({ "name": "math:anns" })), ["math:anns"]);
    let ran = ann.mcp().execute("return await mcp.math.eval({ expression: '1 + 2' })");
    assert_eq!(ran["status"], "success", "{ran}");
}

/// Secrets, defaults and unknown keywords do not reach the database; members for commands are refused.
#[test]
fn only_what_describes_a_tool_is_stored() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann");
    let mut leaky = tool("leak", "Logs in with ghp_CANARYCANARYCANARYCANARYCANARY1234.");
    leaky["inputSchema"]["properties"]["bean"]["default"] = json!("canary-default");
    leaky["inputSchema"]["x-command"] = json!("canary-command");
    leaky["inputSchema"]["$id"] = json!("https://canary.internal/schema");
    ann.sync(CLIENT, "leaky", &[leaky]);
    let stored = ann.stored().to_string();
    assert!(stored.contains("[redacted]"), "{stored}");
    assert!(!stored.to_lowercase().contains("canary"), "{stored}");
    let sync = |change: &dyn Fn(&mut Value)| {
        let mut body = json!({ "client": CLIENT, "namespace": "n", "tools": [brew()] });
        change(&mut body);
        let reply = ours.ask(&ann.key, "POST", "tools/sync", Some(body));
        (reply.status, reply.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(sync(&|_| {}).0, 200, "control");
    for (why, change) in [
        ("command", (&|body: &mut Value| body["command"] = json!("npx")) as &dyn Fn(&mut Value)),
        ("env", &|body| body["tools"][0]["env"] = json!({ "A": "b" })),
        ("path", &|body| body["tools"][0]["annotations"]["path"] = json!("/home/ann")),
        ("title", &|body| body["tools"][0]["annotations"]["title"] = json!("x")),
        ("twice", &|body| body["tools"] = json!([brew(), brew()])),
        ("UUID", &|body| body["client"] = json!("../x")),
        ("reserved", &|body| body["namespace"] = json!("pml")),
        ("`namespace`", &|body| body["namespace"] = json!("a.b.c")),
        ("the limit is 256", &|body| {
            body["tools"] = (0..257).map(|n| tool(&format!("t{n}"), "")).collect();
        }),
        ("the limit is 65536", &|body| {
            body["tools"][0]["description"] = "x".repeat(66_000).into();
        }),
    ] {
        let (status, detail) = sync(change);
        assert_eq!(status, 400, "{why}: {detail}");
        assert!(detail.contains(why), "{why}: {detail}");
    }
    let no_right = ours.key("web", "cleo", "read");
    let body = json!({ "client": CLIENT, "namespace": "n", "tools": [] });
    for (method, path) in [("POST", "tools/sync"), ("GET", "tools/sync")] {
        let body = (method == "POST").then(|| body.clone());
        assert_eq!(ours.ask(&no_right, method, path, body).status, 403, "{method}");
    }
}

/// A principal has at most 64 servers, whatever the number of its workspaces.
#[test]
fn the_servers_of_a_principal_are_limited() {
    let ours = Organisation::on(Server::shared());
    let (ann, bob) = (Person::of(&ours, "ann"), Person::of(&ours, "bob"));
    for n in 0..64 {
        ann.sync([CLIENT, OTHER_CLIENT][n % 2], &format!("s{n}"), &[brew()]);
    }
    let body = json!({ "client": CLIENT, "namespace": "more", "tools": [brew()] });
    let refused = ours.ask(&ann.key, "POST", "tools/sync", Some(body));
    assert_eq!(refused.status, 400);
    assert!(refused.json()["detail"].as_str().unwrap().contains("64 servers"));
    assert_eq!(ann.stored().as_array().unwrap().len(), 64);
    // What is there can be replaced, and others are not affected.
    ann.sync(CLIENT, "s0", &[tool("other", "Another.")]);
    bob.sync(CLIENT, "more", &[brew()]);
    ann.sync(CLIENT, "s0", &[]);
    ann.sync(CLIENT, "more", &[brew()]);
}

/// What is not sent again is removed by the gateway; what was sent again is not.
#[test]
fn what_is_not_renewed_is_removed() {
    let installation = Installation::new();
    let server = installation.start();
    let ours = Organisation::on(&server);
    let ann = Person::of(&ours, "ann");
    for namespace in ["old", "kept", "renewed"] {
        ann.sync(CLIENT, namespace, &[brew()]);
    }
    let (key, name) = (ann.key.clone(), ours.name.clone());
    installation.sql(
        "update synced_servers set received_at = now() - interval '31 days' where namespace <> 'kept'",
    );
    ann.sync(CLIENT, "renewed", &[brew()]);
    drop(server);
    let server = installation.start();
    let ours = Organisation { server: &server, name, boss: String::new() };
    let ann = Person { ours: &ours, key };
    poll("the old set to be removed", PATIENCE, || {
        let stored = ann.stored();
        let mut left: Vec<_> =
            stored.as_array()?.iter().map(|one| one["namespace"].as_str().unwrap()).collect();
        left.sort_unstable();
        (left == ["kept", "renewed"]).then_some(())
    });
    // Only the owner's function removes the rows of others, and nothing that is younger than a week.
    let young = "do $$ begin perform expire_synced_tools(6, 10); raise 'removed'; \
        exception when check_violation then null; end $$";
    installation.sql(young);
}
