//! MCP servers that tenants publish, and the deletion of entries.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::identity::secret_hosts::{call_in_each_way, got, recording_server};
use crate::support::cli::text;
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::upstream::{host_of, scope_of};
use crate::support::{PATIENCE, poll};

const ALL: &str = "execute,read,publish,admin";

fn at(tenant: &Tenant, path: &str) -> String {
    format!("{}/api/v1/{path}", tenant.url)
}

fn http(name: &str, url: &str) -> Value {
    json!({
        "name": name, "type": "http", "description": "Takes what it gets.", "proxy_to": url,
        "env_required": ["TAKEN_KEY"],
        "tools": [{ "name": "take", "description": "Takes", "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true } }],
    })
}

fn stdio(name: &str, command: &str) -> Value {
    json!({
        "name": name, "type": "stdio", "description": "Keeps notes.",
        "install": { "command": command, "args": ["-y", "notes@1.0.0"], "env_required": ["NOTES"] },
        "tools": [{ "name": "add", "description": "Adds", "inputSchema": { "type": "object" } }],
    })
}

fn publish(tenant: &Tenant, body: &Value) -> Reply {
    call(&tenant.key, "POST", &at(tenant, "servers"), Some(body))
}

#[track_caller]
fn published(tenant: &Tenant, body: &Value) -> Value {
    let reply = publish(tenant, body);
    assert_eq!(reply.status, 201, "{}", text(&reply.body));
    reply.json()
}

fn entry(tenant: &Tenant, name: &str) -> Reply {
    let bearer = format!("Bearer {}", tenant.key);
    let headers = [("authorization", bearer.as_str()), ("accept", "application/json")];
    get(&format!("{}/mcp/{name}", tenant.url), &headers)
}

/// Creates a key of another principal in the tenant's scope.
fn colleague(server: &Server, tenant: &Tenant, principal: &str, rights: &str) -> Tenant {
    let scope = scope_of(tenant);
    let make = ["keys", "create", "--scope", &scope, "--principal", principal, "--can", rights];
    let key = server.installation().run_ok(&make).trim().to_owned();
    Tenant { key, url: tenant.url.clone() }
}

/// A capability pins every server that it calls, also two of the same namespace in different scopes.
#[test]
fn a_capability_pins_servers_of_the_same_namespace() {
    let (tenant, other) =
        (Server::shared().tenant_with_rights(ALL), Server::shared().tenant_with_rights(ALL));
    published(&tenant, &stdio("twin", "npx"));
    let mut theirs = stdio("twin", "uvx");
    theirs["visibility"] = json!("org");
    published(&other, &theirs);
    let theirs = format!("{}.twin", scope_of(&other));
    let code =
        format!("/** Remembers. */\nawait mcp.twin.add({{}})\nreturn mcp['{theirs}'].add({{}})");
    let body = json!({ "name": "both.remember", "code": code });
    let made = call(&tenant.key, "POST", &at(&tenant, "capabilities"), Some(&body));
    assert_eq!(made.status, 201, "{}", text(&made.body));
    let deps = entry(&tenant, "both:remember").json()["mcp_deps"].clone();
    for server in [format!("{}.twin", scope_of(&tenant)), theirs] {
        let found = deps.as_array().unwrap().iter().find(|dep| dep["fqdn"] == server);
        let found = found.unwrap_or_else(|| panic!("{server}: {deps}"));
        assert_eq!(found["integrity"], entry(&tenant, &server).json()["integrity"]);
    }
    assert_eq!(deps.as_array().unwrap().len(), 2, "{deps}");
}

/// RG-03, RG-14: a published server can be read, listed and called. Its type determines its routing, which the author
/// cannot choose.
#[test]
fn a_published_server_can_be_read_listed_and_called() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights(ALL);
    let stub = recording_server();
    let url = format!("{}/mcp", stub.url);
    let made = published(&tenant, &http("taker", &url));
    assert_eq!((&made["version"], &made["routing"]), (&json!("0.1.0"), &json!("server")));
    assert_eq!(made["tools"], json!(["taker:take"]));
    let scope = scope_of(&tenant);
    let found = entry(&tenant, "taker");
    assert_eq!((found.status, found.header("cache-control")), (200, "private, no-store"));
    let found = found.json();
    assert_eq!(found["fqdn"], format!("{scope}.taker"));
    assert_eq!((&found["server_version"], &found["proxy_to"]), (&json!("0.1.0"), &json!(url)));
    assert_eq!(found["integrity"], made["integrity"]);
    assert_eq!(entry(&tenant, "taker@0.1.0").json(), found);
    assert_eq!(entry(&tenant, "taker@0.1.1").status, 404);
    assert_eq!(entry(&tenant, "taker:take").json()["routing"], "server");
    // P4: the server's host receives a secret only if the secret's owner has named it.
    let secret = at(&tenant, "secrets/TAKEN_KEY");
    for (hosts, outcome) in [(json!([]), "KEY_NOT_FOR_HOST"), (json!([host_of(&stub.url)]), "done")]
    {
        let body = json!({ "value": "canary-71", "for": "me", "hosts": hosts });
        assert!(call(&tenant.key, "PUT", &secret, Some(&body)).status < 300);
        assert_eq!(call_in_each_way(&tenant, "taker", &[]), [outcome; 3]);
        assert_eq!(got(&stub, "canary-71"), outcome == "done");
    }
    // The upstream's own `readOnlyHint` does not make its calls eager.
    let plan = json!({ "code": "return await mcp.taker.take({})", "options": { "dry_run": true } });
    let plan = HttpMcp::new(&tenant, Era::Stateless).execute_request(plan).to_string();
    assert!(!plan.contains("\"eager\":true"), "{plan}");

    let made = published(&tenant, &stdio("jotter", "npx"));
    assert_eq!(made["routing"], "client");
    let refused_run =
        HttpMcp::new(&tenant, Era::Stateless).execute("return await mcp.jotter.add({})");
    assert_eq!(refused_run["error_code"], "CLIENT_TOOLS_REQUIRE_PACKAGE", "{refused_run}");
    let bearer = format!("Bearer {}", tenant.key);
    let listed =
        get(&format!("{}/v0.1/servers?search={scope}", tenant.url), &[("authorization", &bearer)]);
    let listed = listed.json();
    let names: Vec<&str> = listed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["server"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [format!("{scope}/jotter"), format!("{scope}/taker")]);
    assert_eq!(listed["servers"][1]["server"]["version"], "0.1.0");
    // RG-06: for another scope it looks nonexistent.
    let stranger = server.tenant_with_rights(ALL);
    for name in [format!("{scope}.taker"), format!("{scope}.taker.take"), "taker".to_owned()] {
        assert_eq!(entry(&stranger, &name).status, 404, "{name}");
    }
}

/// RG-03: a published version is immutable, and one of several concurrent publishers wins. Versions can be yanked and
/// deprecated.
#[test]
fn a_published_version_of_a_server_is_immutable() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights(ALL);
    let with = |version: &str, command: &str| {
        let mut body = stdio("jotter", command);
        body["version"] = json!(version);
        body
    };
    let first = published(&tenant, &with("1.0.0", "npx"));
    assert_eq!(publish(&tenant, &with("1.0.0", "npx")).status, 200);
    let refused = publish(&tenant, &with("1.0.0", "bunx"));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("CONFLICT")));
    assert_eq!(entry(&tenant, "jotter").json()["install"]["command"], "npx");
    // Without a version, the same content is the existing version, and other content becomes the next one.
    assert_eq!(publish(&tenant, &stdio("jotter", "npx")).json()["version"], "1.0.0");
    assert_eq!(published(&tenant, &stdio("jotter", "uvx"))["version"], "1.0.1");
    let racers: Vec<_> = (0..12)
        .map(|number| {
            let (tenant, body) = (tenant.clone(), with("2.0.0", &format!("racer{number}")));
            std::thread::spawn(move || publish(&tenant, &body).status)
        })
        .collect();
    let mut ends: Vec<u16> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!((ends[0], ends[1], ends[11]), (201, 409, 409), "{ends:?}");

    let say = |what: &str, body: Value| {
        call(&tenant.key, "POST", &at(&tenant, &format!("servers/jotter/{what}")), Some(&body))
            .status
    };
    assert_eq!(say("yank", json!({ "version": "2.0.0" })), 200);
    assert_eq!(entry(&tenant, "jotter").json()["server_version"], "1.0.1");
    assert!(
        entry(&tenant, "jotter@2.0.0").json()["install"]["command"]
            .as_str()
            .unwrap()
            .starts_with("racer")
    );
    assert_eq!(entry(&tenant, "jotter@1.0.0").json()["integrity"], first["integrity"]);
    assert_eq!(say("deprecate", json!({ "version": "1.0.1", "message": "use paper" })), 200);
    assert_eq!(entry(&tenant, "jotter").json()["deprecated"], "use paper");
    assert_eq!(say("deprecate", json!({ "message": null })), 200);
    assert_eq!(entry(&tenant, "jotter").json().get("deprecated"), None);
    for version in ["1.0.0", "1.0.1"] {
        assert_eq!(say("yank", json!({ "version": version })), 200);
    }
    assert_eq!((entry(&tenant, "jotter").status, entry(&tenant, "jotter:add").status), (404, 404));
    assert_eq!(entry(&tenant, "jotter@1.0.1").status, 200);
    assert_eq!(say("yank", json!({ "version": "9.9.9" })), 404);
    // RG-01: a version that was changed in the database is not served.
    let (org, project) = {
        let scope = scope_of(&tenant);
        let (o, p) = scope.split_once('.').unwrap();
        (o.to_owned(), p.to_owned())
    };
    let tampered = server.installation().sql(&format!(
        "set session_replication_role = replica;
        update server_versions set content = replace(content, 'uvx', 'evil')
            where org = '{org}' and project = '{project}' and version = '1.0.1';
        select 'done'"
    ));
    assert!(tampered.contains("done"));
    assert_eq!(entry(&tenant, "jotter@1.0.1").status, 500);
}

/// RG-05, RG-14, GW-13: reserved and look-alike names, unknown fields, private addresses and missing rights are refused.
#[test]
fn invalid_servers_are_refused() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights(ALL);
    let url = "https://mcp.acme.example/mcp";
    let body = json!({ "name": "ours:act", "code": "/** Ours. */ return 1" });
    assert_eq!(call(&tenant.key, "POST", &at(&tenant, "capabilities"), Some(&body)).status, 201);
    let mut with_act = http("ours", url);
    with_act["tools"][0]["name"] = json!("act");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = http("fine", url);
        change(&mut body);
        body
    };
    for (body, status) in [
        (http("pml", url), 400),
        (http("mcp", url), 400),
        (http("filesystem", url), 409),
        (http("context7", url), 409),
        (http("fi1esystem", url), 400),
        (http("file-system", url), 400),
        (http("pmI", url), 400),
        (http("P-M-L", url), 400),
        (http("memorv", url), 400),
        (http("she11", url), 400),
        (http("ｐｍｌ", url), 400),
        (http("kubernetes", url), 400),
        (http("f\u{438}ne", url), 400),
        (http("a.b", url), 400),
        (http("", url), 400),
        (with_act, 409),
        (http("fine", "http://169.254.169.254/"), 400),
        (http("fine", "http://10.0.0.1/mcp"), 400),
        (http("fine", "https://user:word@mcp.acme.example/"), 400),
        (http("fine", "file:///etc/passwd"), 400),
        (http("fine", "mcp.acme.example"), 400),
        (changed(&|body| body["type"] = json!("native")), 400),
        (changed(&|body| body["type"] = json!("stdio")), 400),
        (changed(&|body| body["routing"] = json!("server")), 400),
        (changed(&|body| body["result"] = json!("json")), 400),
        (changed(&|body| body["owner"] = json!("x")), 400),
        (changed(&|body| body["org"] = json!("pml")), 400),
        (changed(&|body| body["install"] = json!({ "command": "sh" })), 400),
        (changed(&|body| body["env_required"] = json!(["a b"])), 400),
        (changed(&|body| body["tools"] = json!([])), 400),
        (changed(&|body| body["tools"][0]["name"] = json!("a b")), 400),
        (changed(&|body| body["tools"][0]["inputSchema"] = json!({ "type": "string" })), 400),
        (changed(&|body| body["tools"][0]["description"] = json!("x".repeat(5_000))), 400),
        (changed(&|body| body["description"] = json!(" ")), 400),
        (changed(&|body| body["description"] = json!("a\u{0}")), 400),
        (changed(&|body| body["version"] = json!("1.0")), 400),
        (
            changed(&|body| {
                let tool = body["tools"][0].clone();
                body["tools"] = json!([tool, tool]);
            }),
            409,
        ),
    ] {
        let refused = publish(&tenant, &body);
        assert_eq!(refused.status, status, "{body}: {}", text(&refused.body));
    }
    assert_eq!(entry(&tenant, "fine").status, 404);
    for (field, value) in [
        ("env_required", json!(["A=B"])),
        ("env", json!({ "A=B": "x" })),
        ("env", json!({ "A": 1 })),
        ("env", json!({ "A": "${HOME}" })),
        ("network", json!("all")),
        ("network", json!(["https://api.test/x"])),
        ("network", json!(["api.test\n"])),
        ("network", json!([""])),
    ] {
        let mut evil = stdio("fine", "npx");
        evil["install"][field] = value;
        assert_eq!(publish(&tenant, &evil).status, 400, "{evil}");
    }
    // Publishing and deleting need the right `publish`.
    let member = colleague(server, &tenant, "reader", "execute,read");
    assert_eq!(publish(&member, &http("fine", url)).status, 403);
    let refused = call(&member.key, "DELETE", &at(&tenant, "servers/fine"), None);
    assert_eq!(refused.status, 403);
    // A private server is visible to its owner only, but its name is taken.
    let (ann, bob) = (
        colleague(server, &tenant, "ann", "execute,read,publish"),
        colleague(server, &tenant, "bob", "execute,read,publish"),
    );
    let mut own = http("anns", url);
    own["visibility"] = json!("private");
    published(&ann, &own);
    assert_eq!((entry(&ann, "anns").status, entry(&bob, "anns").status), (200, 404));
    assert_eq!(publish(&bob, &http("anns", url)).status, 409);
    own["visibility"] = json!("project");
    assert_eq!(publish(&ann, &own).status, 200);
    assert_eq!(entry(&bob, "anns").status, 200);
    own["visibility"] = json!("public");
    assert_eq!(publish(&bob, &own).status, 409, "not the owner");
}

/// RG-04, RG-14: a deleted entry is `GONE` for those who could see it and unknown to others, on every gateway and in
/// every list. Its name cannot be used again.
#[test]
fn a_deleted_entry_is_gone_and_its_name_is_never_reused() {
    let home = Installation::new();
    let (server, replica) = (home.start(), home.replica().start());
    let tenant = server.tenant_with_rights(ALL);
    let stranger = server.tenant_with_rights(ALL);
    let (ann, bob) = (
        colleague(&server, &tenant, "ann", "execute,read,publish"),
        colleague(&server, &tenant, "bob", "execute,read,publish"),
    );
    let elsewhere = |tenant: &Tenant| Tenant { url: replica.url().to_owned(), ..tenant.clone() };
    let scope = scope_of(&tenant);
    let code = json!({ "name": "words:shout", "code": "/** Shouts. */ return 'LOUD'", "visibility": "public" });
    assert_eq!(call(&ann.key, "POST", &at(&ann, "capabilities"), Some(&code)).status, 201);
    let mut open = stdio("jotter", "npx");
    open["visibility"] = json!("public");
    published(&ann, &open);
    let mut hidden = stdio("diary", "npx");
    hidden["visibility"] = json!("private");
    published(&ann, &hidden);

    let official = |query: &str| {
        let listed =
            get(&format!("{}/v0.1/servers?search={scope}/jotter{query}", replica.url()), &[]);
        listed.json()["servers"].as_array().cloned().unwrap_or_default()
    };
    let names =
        [format!("{scope}.words.shout"), format!("{scope}.jotter"), format!("{scope}.jotter.add")];
    // Every caller reads them first, so that every cache has them.
    for name in &names {
        for reader in [&tenant, &elsewhere(&tenant), &stranger, &elsewhere(&stranger)] {
            assert_eq!(entry(reader, name).status, 200, "{name}");
        }
    }
    assert_eq!(official("").len(), 1);
    let run = |tenant: &Tenant| {
        HttpMcp::new(tenant, Era::Stateless).execute("return await mcp.words.shout({})")
    };
    assert_eq!(run(&elsewhere(&tenant))["result"], "LOUD");

    let delete = |by: &Tenant, path: &str| call(&by.key, "DELETE", &at(by, path), None).status;
    // Another member may not delete it, and for another scope it does not exist.
    assert_eq!(delete(&bob, "capabilities/words:shout"), 403);
    assert_eq!(delete(&bob, "servers/jotter"), 403);
    assert_eq!(delete(&bob, "servers/diary"), 404);
    assert_eq!(delete(&stranger, "servers/jotter"), 404);
    assert_eq!(delete(&stranger, "capabilities/words:shout"), 404);
    assert_eq!(entry(&tenant, &names[1]).status, 200);
    // The publisher deletes one entry, an administrator the other.
    assert_eq!(delete(&ann, "capabilities/words.shout"), 204);
    assert_eq!(delete(&tenant, "servers/jotter"), 204);
    assert_eq!(delete(&ann, "servers/diary"), 204);

    for name in &names {
        for reader in [&tenant, &elsewhere(&tenant), &stranger, &elsewhere(&stranger)] {
            poll("every gateway to answer 410", PATIENCE, || {
                (entry(reader, name).status == 410).then_some(())
            });
        }
    }
    poll("programs not to find it", PATIENCE, || {
        (run(&elsewhere(&tenant))["error_code"] == "TOOL_NOT_FOUND").then_some(())
    });
    assert_eq!(entry(&tenant, &format!("{}@0.1.0", names[1])).status, 410);
    assert_eq!(entry(&tenant, &format!("{}@0.1.0", names[0])).status, 410);
    let diary = format!("{scope}.diary");
    assert_eq!(entry(&ann, &diary).status, 410);
    for other in [&bob, &tenant, &stranger] {
        assert_eq!(entry(other, &diary).status, 404, "a caller who could not see it");
    }
    let listed = get(&format!("{}/mcp?search=jotter&limit=100", replica.url()), &[]);
    assert!(!text(&listed.body).contains(&scope), "{}", text(&listed.body));
    assert_eq!(official("").len(), 0);
    for query in ["&include_deleted=true", "&updated_since=2020-01-01T00:00:00Z"] {
        let gone = official(query);
        assert_eq!(gone.len(), 1, "{query}");
        let status = &gone[0]["_meta"]["io.modelcontextprotocol.registry/official"]["status"];
        assert_eq!((status, &gone[0]["server"]["version"]), (&json!("deleted"), &json!("0.1.0")));
    }
    // Deleting again gets the same answer as reading, and the names cannot be used again.
    assert_eq!(delete(&tenant, "servers/jotter"), 410);
    assert_eq!(delete(&tenant, "capabilities/words:shout"), 410);
    assert_eq!(delete(&tenant, "servers/diary"), 404);
    for by in [&ann, &bob, &tenant] {
        assert_eq!(call(&by.key, "POST", &at(by, "capabilities"), Some(&code)).status, 409);
        assert_eq!(publish(by, &stdio("jotter", "npx")).status, 409);
        assert_eq!(publish(by, &stdio("diary", "npx")).status, 409);
        let tool = json!({ "name": "jotter:add", "code": "/** Takes its place. */ return 1" });
        assert_eq!(call(&by.key, "POST", &at(by, "capabilities"), Some(&tool)).status, 409);
        let mut shout = stdio("words", "npx");
        shout["tools"][0]["name"] = json!("shout");
        assert_eq!(publish(by, &shout).status, 409);
    }
    // The audit log has the deletions and the refusals.
    let log = call(&tenant.key, "GET", &at(&tenant, "audit?limit=200&verify=true"), None).json();
    assert_eq!(log["chain"]["intact"], true);
    let count = |action: &str, outcome: &str| {
        log["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["action"] == action && event["outcome"] == outcome)
            .count()
    };
    assert_eq!((count("server.delete", "allowed"), count("capability.delete", "allowed")), (2, 1));
    assert_eq!((count("server.delete", "refused"), count("capability.delete", "refused")), (1, 1));
}

/// RG-04: deleting a project deletes its servers with all their versions.
#[test]
fn deleting_a_project_deletes_its_servers() {
    let server = Server::shared();
    let tenant = server.tenant_of_own_org(ALL);
    let stranger = server.tenant();
    let mut open = stdio("jotter", "npx");
    open["visibility"] = json!("public");
    published(&tenant, &open);
    let scope = scope_of(&tenant);
    let names = [format!("{scope}.jotter"), format!("{scope}.jotter@0.1.0")];
    for name in &names {
        assert_eq!(entry(&stranger, name).status, 200, "{name}");
    }
    server.installation().run_ok(&["projects", "delete", &scope, "--yes"]);
    for name in &names {
        poll("the answer 410", PATIENCE, || (entry(&stranger, name).status == 410).then_some(()));
    }
}
