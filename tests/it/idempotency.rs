//! GW-25: a write that is sent again with its `Idempotency-Key` is done once.

use std::thread;

use serde_json::{Value, json};

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

/// GW-25: a key is made once; who asks again hears which, and never the key.
#[test]
fn a_repeated_request_is_done_once() {
    let admin = Server::shared().tenant_that_can("read,admin");
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

    // The key stands for that one request: neither for another body nor for another path.
    for (path, body) in [("", new_key("b")), ("/self/rotate", new_key("a"))] {
        let other = post(&admin, path, "8e03978e-40d5", &body);
        assert_eq!((other.status, &other.json()["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    }
    assert_eq!(post(&admin, "", "another", &new_key("a")).status, 201, "the twin: another key");
    // Another tenant's is another key.
    let other = Server::shared().tenant_that_can("read,admin");
    assert_eq!(post(&other, "", "8e03978e-40d5", &new_key("a")).status, 201);
}

/// GW-25: of fifty at once one is done; the others hear of it or that it runs.
#[test]
fn of_many_at_once_one_is_done() {
    let admin = Server::shared().tenant_that_can("read,admin");
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

/// GW-25: what was begun by a gateway that is no more is not done again; after a day its key is free.
#[test]
fn a_request_whose_end_is_unknown_is_not_done_again() {
    let admin = Server::shared().tenant_that_can("read,admin");
    assert_eq!(post(&admin, "", "k", &new_key("a")).status, 201);
    let age = |by: &str| {
        let record =
            crate::keys::call(&admin.key, "GET", &format!("{}/api/v1/keys/self", admin.url), None);
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
    assert_eq!(unknown.header("retry-after"), "", "to wait is of no use");
    assert_eq!(count(&admin), 2);
    age("25 hours");
    assert_eq!(post(&admin, "", "k", &new_key("b")).status, 201);
}

/// What was refused had no effect, so its key is free.
#[test]
fn a_refused_request_is_forgotten() {
    let admin = Server::shared().tenant_that_can("read,admin");
    let refused = post(&admin, "", "k", &json!({ "name": "a", "can": ["publish"] }));
    assert_eq!(refused.status, 403);
    assert_eq!(post(&admin, "", "k", &json!({ "name": "a", "can": "read" })).status, 400);
    assert_eq!(post(&admin, "", "k", &new_key("a")).status, 201);
    for wrong in ["", " ", "ключ", &"x".repeat(256)] {
        assert_eq!(post(&admin, "", wrong, &new_key("a")).status, 400, "{wrong}");
    }
    assert_eq!(count(&admin), 2);
}
