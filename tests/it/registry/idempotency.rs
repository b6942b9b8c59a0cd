//! GW-25: a write that is repeated with its `Idempotency-Key` is executed once.

use std::thread;

use serde_json::{Value, json};

use crate::identity::members::Organisation;
use crate::support::http::{Reply, send};
use crate::support::server::{Server, Tenant};

fn post(tenant: &Tenant, path: &str, idempotency_key: &str, body: &Value) -> Reply {
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("idempotency-key", idempotency_key),
    ];
    let url = format!("{}/api/v1/keys{path}", tenant.url);
    send("POST", &url, &headers, Some(body.to_string().into_bytes()))
}

fn count(tenant: &Tenant) -> Value {
    let authorization = format!("Bearer {}", tenant.key);
    let url = format!("{}/api/v1/keys", tenant.url);
    send("GET", &url, &[("authorization", &authorization)], None).json()["total"].clone()
}

fn new_key(name: &str) -> Value {
    json!({ "name": name, "can": ["read"] })
}

/// GW-25: a repeated request creates no second key. Its answer names the first one without showing its secret part.
#[test]
fn a_repeated_request_is_executed_once() {
    let admin = Server::shared().tenant_with_rights("read,admin");
    let first = post(&admin, "", "8e03978e-40d5", &new_key("a"));
    assert_eq!(first.status, 201);
    let (first, again) = (first.json(), post(&admin, "", "8e03978e-40d5", &new_key("a")));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("SHOWN_ONCE")));
    assert_eq!(again.json()["id"], first["id"]);
    assert_eq!(again.header("content-type"), "application/problem+json");
    assert_eq!(again.header("idempotency-replayed"), "true");
    let secret = &first["key"].as_str().unwrap()[8..];
    assert!(!String::from_utf8_lossy(&again.body).contains(secret));
    assert_eq!(post(&admin, "", "8e03978e-40d5", &new_key("a")).body, again.body);
    assert_eq!(count(&admin), 2);

    // The `Idempotency-Key` cannot be used for another body or path.
    for (path, body) in [("", new_key("b")), ("/self/rotate", new_key("a"))] {
        let other = post(&admin, path, "8e03978e-40d5", &body);
        assert_eq!((other.status, &other.json()["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    }
    assert_eq!(post(&admin, "", "another", &new_key("a")).status, 201, "control: another key");
    // The same `Idempotency-Key` of another tenant is independent.
    let other = Server::shared().tenant_with_rights("read,admin");
    assert_eq!(post(&other, "", "8e03978e-40d5", &new_key("a")).status, 201);
}

/// GW-25: one of fifty concurrent requests is executed; the others get its outcome or `REQUEST_IN_PROGRESS`.
#[test]
fn one_of_many_concurrent_requests_is_executed() {
    let admin = Server::shared().tenant_with_rights("read,admin");
    let replies: Vec<Reply> = thread::scope(|scope| {
        let sent: Vec<_> =
            (0..50).map(|_| scope.spawn(|| post(&admin, "", "once", &new_key("a")))).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        assert_eq!(reply.status, 409);
        match reply.json()["code"].as_str().unwrap() {
            "SHOWN_ONCE" => {}
            "REQUEST_IN_PROGRESS" => assert_eq!(reply.header("retry-after"), "1"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(count(&admin), 2);
}

/// GW-25: a request whose gateway died during it is not executed again. After a day, its `Idempotency-Key` is free.
#[test]
fn a_request_with_unknown_outcome_is_not_executed_again() {
    let admin = Server::shared().tenant_with_rights("read,admin");
    assert_eq!(post(&admin, "", "k", &new_key("a")).status, 201);
    let age = |by: &str| {
        let record = crate::identity::keys::call(
            &admin.key,
            "GET",
            &format!("{}/api/v1/keys/self", admin.url),
            None,
        );
        let record = record.json();
        let (org, project) = record["scope"].as_str().unwrap().split_once('.').unwrap();
        Server::shared().installation().sql(&format!(
            "update idempotency_keys set status = null, answer = null,
                claimed_at = now() - interval '{by}' where org = '{org}' and project = '{project}'"
        ));
    };
    age("5 minutes");
    let unknown = post(&admin, "", "k", &new_key("a"));
    assert_eq!((unknown.status, &unknown.json()["code"]), (409, &json!("REQUEST_IN_PROGRESS")));
    assert_eq!(unknown.header("retry-after"), "", "waiting does not help");
    assert_eq!(count(&admin), 2);
    age("25 hours");
    assert_eq!(post(&admin, "", "k", &new_key("b")).status, 201);
}

/// A refused request had no effect, so its `Idempotency-Key` can be used again.
#[test]
fn the_idempotency_key_of_a_refused_request_can_be_reused() {
    let admin = Server::shared().tenant_with_rights("read,admin");
    let refused = post(&admin, "", "k", &json!({ "name": "a", "can": ["publish"] }));
    assert_eq!(refused.status, 403);
    assert_eq!(post(&admin, "", "k", &json!({ "name": "a", "can": "read" })).status, 400);
    assert_eq!(post(&admin, "", "k", &new_key("a")).status, 201);
    for wrong in ["", " ", "ключ", &"x".repeat(256)] {
        assert_eq!(post(&admin, "", wrong, &new_key("a")).status, 400, "{wrong}");
    }
    assert_eq!(count(&admin), 2);
}

/// Returns every `POST` of the API as an owner sends it: route, path and body.
fn writes(names: &Names) -> Vec<(&'static str, String, Value)> {
    let capability = json!({ "name": "notes.count", "code": "/** Counts. */ return 1" });
    let server = json!({
        "name": "clock", "type": "stdio", "description": "Ours.", "install": { "command": "npx" },
        "tools": [{ "name": "now", "description": "Ours.", "inputSchema": { "type": "object" } }],
    });
    let (version, nothing) = (json!({ "version": "0.1.0" }), json!({}));
    vec![
        ("/api/v1/capabilities", "capabilities".to_owned(), capability),
        (
            "/api/v1/capabilities/{name}/deprecate",
            "capabilities/notes.count/deprecate".to_owned(),
            version.clone(),
        ),
        ("/api/v1/capabilities/{name}/yank", "capabilities/notes.count/yank".to_owned(), version),
        ("/api/v1/servers", "servers".to_owned(), server),
        (
            "/api/v1/servers/{name}/deprecate",
            "servers/clock/deprecate".to_owned(),
            json!({ "version": "0.1.0" }),
        ),
        (
            "/api/v1/servers/{name}/yank",
            "servers/clock/yank".to_owned(),
            json!({ "version": "0.1.0" }),
        ),
        ("/api/v1/keys", "keys".to_owned(), new_key("made")),
        ("/api/v1/keys/{id}/rotate", format!("keys/{}/rotate", names.key), nothing.clone()),
        ("/api/v1/registry-links", "registry-links".to_owned(), json!({ "name": "ours" })),
        ("/api/v1/projects", "projects".to_owned(), json!({ "name": "another" })),
        ("/api/v1/sessions", "sessions".to_owned(), nothing),
        ("/api/v1/traces", "traces".to_owned(), json!({ "runs": [] })),
        (
            "/api/v1/tools/sync",
            "tools/sync".to_owned(),
            json!({ "client": "0195d2a0-0000-7000-8000-000000000000", "namespace": "notes", "tools": [] }),
        ),
    ]
}

/// The objects of the writes.
struct Names {
    /// The id of a key that may be rotated.
    key: String,
}

/// GW-25: on every route, a stored answer is repeated only to a caller who currently has the right for the request.
#[test]
fn stored_answers_are_repeated_only_with_the_right_for_the_request() {
    const ALL: &str = "execute,read,publish,admin";
    let ours = Organisation::on(Server::shared());
    let chief = ours.key("web", "chief", ALL);
    let put = |who: &str, role: &str| {
        let path = format!("members/{who}");
        let reply = ours.ask(&ours.boss, "PUT", &path, Some(json!({ "role": role })));
        assert!(reply.status < 300, "{}", String::from_utf8_lossy(&reply.body));
    };
    put("chief", "owner");
    let spare = ours.ask(&chief, "POST", "keys", Some(new_key("spare"))).json();
    let writes = writes(&Names { key: spare["id"].as_str().unwrap().to_owned() });
    let routes = ours.server.installation().run_ok(&["routes", "--json"]);
    let routes: Value = serde_json::from_str(&routes).unwrap();
    for route in routes.as_array().unwrap() {
        let path = route["path"].as_str().unwrap();
        let is_tried = writes.iter().any(|(known, ..)| *known == path);
        let is_write = route["method"] == "POST" && path.starts_with("/api/v1/");
        assert!(is_tried || !is_write, "add {path} to `writes`");
    }

    // Three keys of one principal: one with all rights, one that may only read, and a revoked one.
    let doer = ours.key("web", "chief", ALL);
    let reader = ours.key("web", "chief", "read");
    let ended = ours.key("web", "chief", ALL);
    assert_eq!(ours.ask(&ended, "DELETE", "keys/self", None).status, 204);
    let ask = |key: &str, (route, path, body): &(&str, String, Value)| {
        let authorization = format!("Bearer {key}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", *route),
        ];
        let url = format!("{}/api/v1/{path}", ours.server.url());
        send("POST", &url, &headers, Some(body.to_string().into_bytes()))
    };
    let is_replayed = |reply: &Reply| reply.header("idempotency-replayed") == "true";
    let refused = |reply: Reply, status: u16, why: &str| {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!((reply.status, is_replayed(&reply)), (status, false), "{why}: {text}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{why}");
    };
    for write in &writes {
        let first = ask(&doer, write);
        let text = String::from_utf8_lossy(&first.body).into_owned();
        assert!(first.status < 300 && !is_replayed(&first), "{write:?}: {} {text}", first.status);
        assert!(is_replayed(&ask(&doer, write)), "control: {write:?}");
        refused(ask(&reader, write), 403, write.0);
        refused(ask(&ended, write), 401, write.0);
        // The same `Idempotency-Key` of another principal is independent.
        let other = ours.key("web", "service:other", "read");
        assert!(!is_replayed(&ask(&other, write)), "{write:?}");
        let again = ask(&chief, write);
        let is_about_itself = write.0 == "/api/v1/sessions";
        assert_eq!(is_replayed(&again), !is_about_itself, "control: {write:?}: {}", again.status);
        if is_about_itself {
            assert_eq!(again.json()["code"], "IDEMPOTENCY_KEY_REUSED");
        }
    }
    // The principal loses rights while the key stays the same.
    for (role, why) in [("admin", "was an owner"), ("member", "was"), ("viewer", "was")] {
        put("chief", role);
        for write in &writes {
            refused(ask(&doer, write), 403, &format!("{why}, is {role}: {}", write.0));
        }
    }
    put("chief", "owner");
    for write in &writes {
        assert!(is_replayed(&ask(&doer, write)), "control: {write:?}");
    }
}

/// GW-25: a request of a key about itself is a different request when another key sends it.
#[test]
fn a_request_about_the_own_key_is_not_shared_with_other_keys() {
    let ours = Organisation::on(Server::shared());
    let [one, two] = ["one", "two"].map(|_| ours.key("web", "boss", "read"));
    let rotate = |key: &str| {
        let tenant = Tenant { key: key.to_owned(), url: ours.server.url().to_owned() };
        post(&tenant, "/self/rotate", "k", &json!({ "grace_seconds": 600 }))
    };
    assert_eq!(rotate(&one).status, 201);
    let other = rotate(&two);
    assert_eq!((other.status, &other.json()["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    let again = rotate(&one);
    assert_eq!(
        (again.status, &again.json()["code"]),
        (409, &json!("SHOWN_ONCE")),
        "positive control"
    );
}
