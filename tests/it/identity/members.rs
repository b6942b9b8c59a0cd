//! Members and projects, over HTTP and from the operator's command line.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::http::{Reply, get};
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll, scaled};

/// An organisation with a project `web` and an owner, `boss`.
pub(crate) struct Organisation<'a> {
    pub(crate) server: &'a Server,
    pub(crate) name: String,
    pub(crate) boss: String,
}

impl<'a> Organisation<'a> {
    pub(crate) fn on(server: &'a Server) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("org{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let operator = server.installation();
        operator.run_ok(&["projects", "create", &format!("{name}.web")]);
        operator.run_ok(&["members", "add", "--org", &name, "--role", "owner", "boss"]);
        let mut made = Self { server, name, boss: String::new() };
        made.boss = made.key("web", "boss", "execute,read,publish,admin");
        made
    }

    /// Creates a key from the operator's command line.
    pub(crate) fn key(&self, project: &str, principal: &str, can: &str) -> String {
        let scope = format!("{}.{project}", self.name);
        let make = ["keys", "create", "--scope", &scope, "--principal", principal, "--can", can];
        self.server.installation().run_ok(&make).trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn ask(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
        let url = format!("{}/api/v1/{path}", self.server.url());
        call(key, method, &url, body.as_ref())
    }

    #[track_caller]
    fn set(&self, key: &str, member: &str, role: &str) -> Reply {
        self.ask(key, "PUT", &format!("members/{member}"), Some(json!({ "role": role })))
    }
}

fn status_of(url: &str, key: &str) -> u16 {
    call(key, "GET", &format!("{url}/api/v1/keys/self"), None).status
}

#[test]
fn an_owner_manages_members_and_projects() {
    let ours = Organisation::on(Server::shared());
    let made = ours.ask(&ours.boss, "POST", "projects", Some(json!({ "name": "shop" })));
    assert_eq!((made.status, made.header("location")), (201, "/api/v1/projects/shop"));
    assert_eq!(made.json()["scope"], format!("{}.shop", ours.name));
    let again = ours.ask(&ours.boss, "POST", "projects", Some(json!({ "name": "shop" })));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("CONFLICT")));
    for name in ["", "a.b", "a b", "-x", "../x"] {
        let refused = ours.ask(&ours.boss, "POST", "projects", Some(json!({ "name": name })));
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("INVALID_REQUEST")));
    }
    let listed = ours.ask(&ours.boss, "GET", "projects?limit=1", None).json();
    assert_eq!((&listed["total"], &listed["items"][0]["name"]), (&json!(2), &json!("shop")));
    let next = format!("projects?limit=1&cursor={}", listed["nextCursor"].as_str().unwrap());
    let next = ours.ask(&ours.boss, "GET", &next, None).json();
    assert_eq!((&next["items"][0]["name"], &next["nextCursor"]), (&json!("web"), &Value::Null));

    let added = ours.set(&ours.boss, "ann@acme.example", "admin");
    assert_eq!((added.status, &added.json()["role"]), (201, &json!("admin")));
    let changed = ours.set(&ours.boss, "ann@acme.example", "member");
    assert_eq!((changed.status, &changed.json()["project"]), (200, &Value::Null));
    let path = "members/ann@acme.example?project=shop";
    let added = ours.ask(&ours.boss, "PUT", path, Some(json!({ "role": "admin" })));
    assert_eq!((added.status, &added.json()["project"]), (201, &json!("shop")));
    let listed = ours.ask(&ours.boss, "GET", "members", None).json();
    assert_eq!(listed["total"], 3, "{listed}");
    let listed = ours.ask(&ours.boss, "GET", "members?project=shop", None).json();
    assert_eq!(listed["items"][0]["principal"], "ann@acme.example");
    // An admin of one project without a role in the organisation can manage this project only.
    let ann = ours.key("shop", "ann@acme.example", "execute,read,publish,admin");
    for (method, path, body, status) in [
        ("GET", "members", None, 403),
        ("GET", "projects", None, 403),
        ("POST", "projects", Some(json!({ "name": "x" })), 403),
        ("DELETE", "projects/web", None, 403),
        ("PUT", "members/eve", Some(json!({ "role": "viewer" })), 403),
        ("GET", "members?project=web", None, 404),
        ("GET", "members?project=none", None, 404),
        ("PUT", "members/eve?project=web", Some(json!({ "role": "viewer" })), 404),
        ("DELETE", "members/boss", None, 403),
        ("GET", "members?project=shop", None, 200),
        ("PUT", "members/eve?project=shop", Some(json!({ "role": "viewer" })), 201),
        ("DELETE", "members/eve?project=shop", None, 204),
    ] {
        assert_eq!(ours.ask(&ann, method, path, body).status, status, "{method} {path}");
    }
    // Creating or rotating a key in an owner's name does not give access to the organisation.
    let theirs = ours.key("shop", "boss", "read");
    let id = ours.ask(&theirs, "GET", "keys/self", None).json()["id"].clone();
    let rotate = format!("keys/{}/rotate", id.as_str().unwrap());
    assert_eq!(ours.ask(&ann, "POST", &rotate, Some(json!({}))).status, 403);
    let new = json!({ "name": "n", "can": ["admin"], "principal": "boss" });
    assert_eq!(ours.ask(&ann, "POST", "keys", Some(new)).status, 403);
    // Neither does a new key of the admin's own.
    let own = json!({ "name": "n", "can": ["admin"] });
    let made = ours.ask(&ann, "POST", "keys", Some(own)).json();
    let made = made["key"].as_str().unwrap();
    assert_eq!(ours.ask(made, "GET", "projects", None).status, 403);
    let boss = ours.key("shop", "boss", "read,admin");
    assert_eq!(ours.ask(&boss, "GET", "projects", None).status, 200, "positive control");
    assert_eq!(ours.ask(&boss, "POST", &rotate, Some(json!({}))).status, 201, "positive control");
    for (path, body, status) in [
        ("members/a%20b", json!({ "role": "viewer" }), 400),
        ("members/x", json!({ "role": "root" }), 400),
        ("members/x", json!({ "role": "viewer", "org": "other" }), 400),
        ("members/x?project=web", json!({ "role": "owner" }), 400),
        ("members/x?org=other", json!({ "role": "viewer" }), 400),
        ("members/x?project=a.b", json!({ "role": "viewer" }), 404),
    ] {
        let refused = ours.ask(&ours.boss, "PUT", path, Some(body));
        assert_eq!(refused.status, status, "{path}");
    }
    for query in ["?limit=0", "?limit=101", "?cursor=x", "?org=other"] {
        for list in ["members", "projects"] {
            let refused = ours.ask(&ours.boss, "GET", &format!("{list}{query}"), None);
            assert_eq!(refused.status, 400, "{list}{query}");
        }
    }
    let last = ours.ask(&ours.boss, "DELETE", "members/boss", None);
    assert_eq!((last.status, &last.json()["code"]), (409, &json!("CONFLICT")));
}

/// RG-14: a removed member loses access on every gateway and with every credential.
#[test]
fn a_removed_member_loses_access_with_every_credential() {
    let key = Signer::ed25519();
    let issuer = Issuer::start(&[("k", &key)]);
    let here = issuer.gateway(&[]);
    let jwks = format!("{}/keys", issuer.claims()["iss"].as_str().unwrap());
    let there = here.installation().replica().start_with(&[
        ("PML_OAUTH_ISSUER", issuer.claims()["iss"].as_str().unwrap()),
        ("PML_OAUTH_AUDIENCE", crate::support::issuer::AUDIENCE),
        ("PML_OAUTH_JWKS_URL", &jwks),
    ]);
    let ours = Organisation::on(&here);
    let ann = ours.key("web", "ann", "read,publish");
    let session = ours.ask(&ann, "POST", "sessions", Some(json!({}))).json();
    let session = session["session"].as_str().unwrap().to_owned();
    let mut claims = issuer.claims();
    claims["pml_scope"] = json!(format!("{}.web", ours.name));
    claims["sub"] = json!("ann");
    let token = key.token(&header("EdDSA", "k"), &claims);
    let status = |server: &Server, credential: &str, method: &str, path: &str| {
        let body = json!({ "name": "ann:own", "code": "/** Ours. */ return 1" });
        let body = (method == "POST").then_some(body);
        call(credential, method, &format!("{}{path}", server.url()), body.as_ref()).status
    };
    let all = |expected: &[u16; 3], method: &str, path: &str| {
        for server in [&here, &there] {
            poll("both gateways to know", PATIENCE, || {
                let seen = [&ann, &session, &token].map(|it| status(server, it, method, path));
                (seen == *expected).then_some(())
            });
        }
    };
    all(&[200, 200, 200], "GET", "/mcp");
    assert_eq!(ours.set(&ours.boss, "ann", "viewer").status, 201);
    all(&[403, 403, 403], "POST", "/api/v1/capabilities");
    assert_eq!(ours.ask(&ours.boss, "DELETE", "members/ann", None).status, 204);
    // Immediately on this gateway: the key and the session are invalid, and the token has no scope.
    assert_eq!(status(&here, &ann, "GET", "/mcp"), 401);
    all(&[401, 401, 403], "GET", "/mcp");
    assert_eq!(ours.set(&ours.boss, "ann", "member").status, 201);
    all(&[200, 200, 200], "GET", "/mcp");
    // Publishing works again. The first request creates the version; the others publish the same bytes.
    assert_eq!(status(&here, &ann, "POST", "/api/v1/capabilities"), 201);
    all(&[200, 200, 403], "POST", "/api/v1/capabilities");
}

/// GW-33: neither the status, the body nor the duration reveals whether a principal exists in another organisation.
#[test]
fn adding_a_member_does_not_reveal_membership_elsewhere() {
    let server = Server::shared();
    let (ours, theirs) = (Organisation::on(server), Organisation::on(server));
    let rounds = scaled(500).max(50);
    let known = |round: usize| format!("known{round}@acme.example");
    for round in 0..rounds {
        assert_eq!(theirs.set(&theirs.boss, &known(round), "member").status, 201);
    }
    let mut apart = Vec::new();
    for round in 0..rounds {
        let mut names = [(1.0, known(round)), (-1.0, format!("other{round}@acme.example"))];
        // Neither is always the first.
        names.rotate_left(round % 2);
        let mut difference = 0.0;
        for (sign, name) in &names {
            let began = Instant::now();
            let removed = ours.ask(&ours.boss, "DELETE", &format!("members/{name}"), None);
            let added = ours.set(&ours.boss, name, "member");
            difference += sign * began.elapsed().as_secs_f64() * 1e3;
            assert_eq!((removed.status, added.status), (404, 201), "{name}");
            let mut rest = added.json();
            for own in ["principal", "created_at", "updated_at"] {
                assert!(rest.as_object_mut().unwrap().remove(own).is_some(), "{own}");
            }
            assert_eq!(rest, json!({ "role": "member", "project": null }), "{name}");
        }
        apart.push(difference);
    }
    apart.sort_by(f64::total_cmp);
    let median = apart[apart.len() / 2];
    assert!(median.abs() < 5.0, "a known one takes {median} ms longer on the median");
    let listed = theirs.ask(&theirs.boss, "GET", "members", None).json();
    assert_eq!(listed["total"], rounds + 1, "the other organisation's members changed");
}

/// RG-04: the entries of a deleted project are `GONE` for those who could see them and unknown to others, and its name
/// cannot be used again.
#[test]
fn a_deleted_project_is_gone_and_its_name_is_never_reused() {
    let server = Server::shared();
    let ours = Organisation::on(server);
    assert_eq!(
        ours.ask(&ours.boss, "POST", "projects", Some(json!({ "name": "old" }))).status,
        201
    );
    let ann = ours.key("old", "ann", "execute,read,publish");
    for visibility in ["public", "org", "project", "private"] {
        let name = format!("{}:{visibility}", ours.name);
        let code = "/** Ours. */ return 1";
        let body = json!({ "name": name, "code": code, "visibility": visibility });
        assert_eq!(ours.ask(&ann, "POST", "capabilities", Some(body)).status, 201);
    }
    let stranger = server.tenant_with_rights("read").key;
    let look = |key: Option<&str>, what: &str| {
        let url = format!("{}/mcp/{}.old.{}.{what}", server.url(), ours.name, ours.name);
        match key {
            Some(key) => call(key, "GET", &url, None),
            None => get(&url, &[]),
        }
    };
    assert_eq!(look(Some(&stranger), "public").status, 200);
    assert_eq!(look(Some(&ours.boss), "org").status, 200);
    assert_eq!(ours.ask(&ours.boss, "DELETE", "projects/old", None).status, 204);
    assert_eq!(status_of(server.url(), &ann), 401);
    for key in [Some(ours.boss.as_str()), Some(&stranger), None] {
        let gone = look(key, "public");
        assert_eq!((gone.status, &gone.json()["code"]), (410, &json!("GONE")));
        assert_eq!(gone.header("content-type"), "application/problem+json");
        let private = look(key, "private");
        let never = look(key, "never");
        assert_eq!((private.status, never.status), (404, 404));
        let plain =
            |reply: &Reply| String::from_utf8_lossy(&reply.body).replace("private", "never");
        assert_eq!(plain(&private), plain(&never), "the answer reveals a private entry");
        assert_eq!(look(key, "project").status, 404);
    }
    assert_eq!(look(Some(&ours.boss), "org").status, 410);
    assert_eq!(look(Some(&stranger), "org").status, 404);
    // Not even the operator can use the name again.
    let again = ours.ask(&ours.boss, "POST", "projects", Some(json!({ "name": "old" })));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("CONFLICT")));
    let operator = server.installation();
    let scope = format!("{}.old", ours.name);
    for command in [["projects", "create"], ["scope", "create"], ["keys", "create"]] {
        let mut arguments = command.to_vec();
        if command[0] == "keys" {
            arguments.push("--scope");
        }
        arguments.push(&scope);
        assert_eq!(operator.run(&arguments).status.code(), Some(1), "{command:?}");
    }
    assert_eq!(ours.ask(&ours.boss, "DELETE", "projects/old", None).status, 404);
    let log = ours.ask(&ours.boss, "GET", "audit", None).json();
    let count = |action: &str| {
        let is_it = |event: &&Value| event["action"] == action && event["target"] == scope;
        log["events"].as_array().unwrap().iter().filter(is_it).count()
    };
    assert_eq!((count("project.create"), count("project.delete")), (1, 1), "{log}");
}

#[test]
fn the_operator_manages_members_projects_and_organisations() {
    let installation = Installation::new();
    let server = installation.start();
    let ours = Organisation::on(&server);
    let name = ours.name.as_str();
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&installation.run_ok(arguments)).unwrap()
    };
    let added = ["members", "add", "--org", name, "--project", "web", "--role", "viewer", "ann"];
    let answer = format!("`ann` now has the role `viewer` in `{name}.web`.\n");
    assert_eq!(installation.run_ok(&added), answer);
    let members = json(&["members", "list", "--org", name, "--json"]);
    assert_eq!((&members[0]["principal"], &members[1]["role"]), (&json!("ann"), &json!("owner")));
    let listed = installation.run_ok(&["members", "list", "--org", name]);
    assert!(listed.contains("viewer  web") && listed.contains("owner   *"), "{listed}");
    assert_eq!(
        json(&["projects", "list", "--org", name, "--json"])[0]["scope"],
        format!("{name}.web")
    );
    for (arguments, code, message) in [
        (vec!["members", "remove", "--org", name, "boss"], 1, "last owner"),
        (vec!["members", "remove", "--org", name, "eve"], 1, "not a member"),
        (vec!["members", "add", "--org", "none", "--role", "owner", "eve"], 1, "does not exist"),
        (vec!["members", "add", "--org", name, "--role", "root", "eve"], 2, "expected owner"),
        (vec!["orgs", "delete", name], 2, "--yes"),
        (vec!["orgs", "delete", "none", "--yes"], 1, "there is no organisation"),
        (vec!["orgs", "delete", "pml", "--yes"], 1, "contains the catalog"),
        (vec!["projects", "delete", "none.none", "--yes"], 1, "there is no project"),
    ] {
        let refused = installation.run(&arguments);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
    installation.run_ok(&["members", "remove", "--org", name, "--project", "web", "ann"]);
    assert_eq!(status_of(server.url(), &ours.boss), 200);
    installation.run_ok(&["orgs", "delete", name, "--yes"]);
    poll("the key to be refused", PATIENCE, || {
        (status_of(server.url(), &ours.boss) == 401).then_some(())
    });
    let orgs = json(&["orgs", "list", "--json"]);
    let org = orgs.as_array().unwrap().iter().find(|org| org["name"] == name).unwrap();
    assert!(org["deleted_at"].is_string(), "{org}");
    // A gateway starts even if its first scope was deleted.
    installation.run_ok(&["projects", "delete", "local.default", "--yes"]);
    assert_eq!(server.stop(), Some(0));
    let again = installation.start();
    assert_eq!(get(&format!("{}/ready", again.url()), &[]).status, 200);
}
