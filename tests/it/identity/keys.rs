//! API keys over HTTP and from the operator's command line: creation, rotation, revocation.

use serde_json::{Value, json};

use crate::support::http::{Reply, get, send};
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// Sends a request with an API key and an optional JSON body.
#[track_caller]
pub(crate) fn call(key: &str, method: &str, url: &str, body: Option<&Value>) -> Reply {
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    send(method, url, &headers, body.map(|body| body.to_string().into_bytes()))
}

#[track_caller]
fn keys(tenant: &Tenant, method: &str, path: &str, body: Option<Value>) -> Reply {
    call(&tenant.key, method, &format!("{}/api/v1/keys{path}", tenant.url), body.as_ref())
}

/// Returns the status of a request by a key for itself.
fn status_of(url: &str, key: &str) -> u16 {
    call(key, "GET", &format!("{url}/api/v1/keys/self"), None).status
}

/// SE-10: a new key is only in the answer that creates it.
#[test]
fn a_new_key_is_shown_only_once() {
    let admin = Server::shared().tenant_with_rights("execute,read,admin");
    let wanted = json!({
        "name": "build", "can": ["read", "execute"], "principal": "service:ci", "expires_in_days": 30,
    });
    let made = keys(&admin, "POST", "", Some(wanted));
    assert_eq!((made.status, made.header("cache-control")), (201, "private, no-store"));
    let made_body = made.json();
    let key = made_body["key"].as_str().unwrap();
    assert!(key.starts_with("pml_key_"), "{made_body}");
    assert_eq!(made_body["can"], json!(["execute", "read"]));
    let place = format!("/api/v1/keys/{}", made_body["id"].as_str().unwrap());
    assert_eq!(made.header("location"), place);
    // It acts as the requested principal.
    let own = call(key, "GET", &format!("{}/api/v1/keys/self", admin.url), None);
    assert_eq!(own.status, 200);
    let own = own.json();
    assert_eq!((&own["principal"], &own["name"]), (&json!("service:ci"), &json!("build")));
    assert_eq!(call(key, "GET", &format!("{}{place}", admin.url), None).json(), own);
    // No other answer contains it.
    for path in ["", &place["/api/v1/keys".len()..]] {
        let reply = keys(&admin, "GET", path, None);
        assert_eq!(reply.status, 200, "{path}");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(!text.contains(&key[8..20]) && !text.contains("hash"), "{text}");
    }
    let log = Server::shared().installation().log();
    assert!(!log.contains(&key[8..]), "the key was logged");
}

#[test]
fn listing_keys_is_paged() {
    let admin = Server::shared().tenant_with_rights("admin");
    for number in 0..4 {
        let made = keys(
            &admin,
            "POST",
            "",
            Some(json!({ "name": format!("{number}"), "can": ["admin"] })),
        );
        assert_eq!(made.status, 201);
    }
    let mut names = Vec::new();
    let mut path = "?limit=2".to_owned();
    loop {
        let page = keys(&admin, "GET", &path, None).json();
        assert_eq!(page["total"], 5, "{page}");
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.len() <= 2);
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["nextCursor"].as_str() else { break };
        path = format!("?limit=2&cursor={next}");
    }
    assert_eq!(names, ["", "0", "1", "2", "3"]);
    for query in ["?limit=0", "?limit=101", "?limit=x", "?cursor=x", "?org=other"] {
        assert_eq!(keys(&admin, "GET", query, None).status, 400, "{query}");
    }
}

/// GW-31: a key cannot create or rotate a key with a right that it lacks, and the refusal names the right.
#[test]
fn a_key_cannot_grant_a_right_that_it_lacks() {
    let server = Server::shared();
    let admin = server.tenant_with_rights("read,admin");
    for (can, lacks) in [
        (json!(["execute"]), "execute"),
        (json!(["read", "publish"]), "publish"),
        (json!(["read", "execute", "publish", "admin"]), "execute"),
    ] {
        let refused = keys(&admin, "POST", "", Some(json!({ "name": "more", "can": can })));
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&format!("`{lacks}`")), "{detail}");
    }
    assert_eq!(keys(&admin, "GET", "", None).json()["total"], 1, "a key was created");
    let made =
        keys(&admin, "POST", "", Some(json!({ "name": "as much", "can": ["read", "admin"] })));
    assert_eq!(made.status, 201, "control: rights that it has");

    // Rotating another key would give access to that key's rights.
    let operator = server.installation();
    let scope = made.json()["scope"].as_str().unwrap().to_owned();
    let printed =
        operator.run_ok(&["keys", "create", "--scope", &scope, "--can", "execute", "--json"]);
    let stronger: Value = serde_json::from_str(&printed).unwrap();
    let path = format!("/{}/rotate", stronger["id"].as_str().unwrap());
    let refused = keys(&admin, "POST", &path, Some(json!({})));
    assert_eq!(
        (refused.status, refused.json()["detail"].as_str().unwrap().contains("`execute`")),
        (403, true)
    );
    assert_eq!(
        status_of(&admin.url, stronger["key"].as_str().unwrap()),
        200,
        "the key was rotated"
    );
    let weaker = format!("/{}/rotate", made.json()["id"].as_str().unwrap());
    assert_eq!(keys(&admin, "POST", &weaker, Some(json!({}))).status, 201, "positive control");

    // The refusals are in the audit log of the scope.
    let log = call(&admin.key, "GET", &format!("{}/api/v1/audit", admin.url), None).json();
    let refused =
        |event: &&Value| event["outcome"] == "refused" && event["detail"]["lacks"] == "execute";
    assert_eq!(log["events"].as_array().unwrap().iter().filter(refused).count(), 3, "{log}");
}

/// GW-31: a key without `admin` can read, rotate and revoke itself, and no other key.
#[test]
fn a_key_without_admin_can_manage_only_itself() {
    let server = Server::shared();
    let reader = server.tenant_with_rights("read");
    let me = keys(&reader, "GET", "/self", None);
    assert_eq!(me.status, 200);
    let id = me.json()["id"].as_str().unwrap().to_owned();
    let scope = me.json()["scope"].as_str().unwrap().to_owned();
    let printed = server.installation().run_ok(&["keys", "create", "--scope", &scope, "--json"]);
    let other: Value = serde_json::from_str(&printed).unwrap();
    let others =
        [other["id"].as_str().unwrap(), "00000000-0000-7000-8000-000000000000", "x", "%00", "%ff"];
    for other in others {
        for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/rotate")] {
            let body = (method == "POST").then(|| json!({}));
            let refused = keys(&reader, method, &format!("/{other}{path}"), body);
            assert_eq!(refused.status, 403, "{method} {other}{path}");
        }
    }
    assert_eq!(keys(&reader, "GET", "", None).status, 403);
    assert_eq!(
        keys(&reader, "POST", "", Some(json!({ "name": "x", "can": ["read"] }))).status,
        403
    );
    // Its own id in upper case is not its id.
    assert_eq!(keys(&reader, "GET", &format!("/{}", id.to_uppercase()), None).status, 403);

    let rotated = keys(&reader, "POST", "/self/rotate", Some(json!({ "grace_seconds": 600 })));
    assert_eq!(rotated.status, 201);
    let new = rotated.json()["key"].as_str().unwrap().to_owned();
    assert_eq!((status_of(&reader.url, &reader.key), status_of(&reader.url, &new)), (200, 200));
    let again = keys(&reader, "POST", &format!("/{id}/rotate"), Some(json!({})));
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("CONFLICT")));
    let gone = call(&new, "DELETE", &format!("{}/api/v1/keys/self", reader.url), None);
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!((status_of(&reader.url, &reader.key), status_of(&reader.url, &new)), (200, 401));
}

/// A key that is revoked or rotated on one gateway becomes invalid on the others.
#[test]
fn a_revocation_reaches_every_gateway() {
    let installation = Installation::new();
    let [here, there] = [installation.start(), installation.replica().start()];
    let admin = installation.first_key();
    for end in ["revoke", "rotate"] {
        let url = format!("{}/api/v1/keys", here.url());
        let made =
            call(&admin, "POST", &url, Some(&json!({ "name": end, "can": ["read"] }))).json();
        let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
        for server in [&here, &there] {
            assert_eq!(status_of(server.url(), key), 200);
        }
        let reply = match end {
            "revoke" => call(&admin, "DELETE", &format!("{url}/{id}"), None),
            _ => call(&admin, "POST", &format!("{url}/{id}/rotate"), Some(&json!({}))),
        };
        assert!([201, 204].contains(&reply.status), "{end}: {}", reply.status);
        assert_eq!(status_of(here.url(), key), 401, "{end}: immediately on this gateway");
        poll("the other gateway to refuse it", PATIENCE, || {
            (status_of(there.url(), key) == 401).then_some(())
        });
    }
}

/// GW-29: unknown and duplicate fields of a body are refused.
#[test]
fn unknown_and_duplicate_fields_are_refused() {
    let admin = Server::shared().tenant_with_rights("read,admin");
    let good = json!({ "name": "n", "can": ["read"] });
    for (field, value) in [
        ("org_id", json!("other")),
        ("scope", json!("other.web")),
        ("role", json!("admin")),
        ("rights", json!(["admin"])),
        ("scopes", json!(["admin"])),
        ("owner", json!("eve")),
        ("id", json!("00000000-0000-7000-8000-000000000000")),
        ("created_at", json!("2020-01-01T00:00:00Z")),
        ("key", json!("pml_key_x")),
        ("Name", json!("other")),
        ("__proto__", json!({})),
    ] {
        for (path, mut body) in [("", good.clone()), ("/self/rotate", json!({}))] {
            body[field] = value.clone();
            let refused = keys(&admin, "POST", path, Some(body));
            assert_eq!(
                (refused.status, &refused.json()["code"]),
                (400, &json!("INVALID_REQUEST")),
                "{field}"
            );
        }
    }
    let url = format!("{}/api/v1/keys", admin.url);
    let authorization = format!("Bearer {}", admin.key);
    let json_type = ("content-type", "application/json");
    for (kind, body, status) in [
        (json_type, r#"{"name":"a","name":"b","can":["read"]}"#, 400),
        (json_type, r#"{"name":"a","can":["read"],"can":["admin"]}"#, 400),
        (json_type, r#"{"name":"a","can":[]}"#, 400),
        (json_type, r#"{"name":"a","can":["root"]}"#, 400),
        (json_type, r#"{"name":"a","can":"read"}"#, 400),
        (json_type, r#"{"name":"","can":["read"]}"#, 400),
        (json_type, "{\"name\":\"a\\u0000\",\"can\":[\"read\"]}", 400),
        (json_type, r#"{"name":"a","can":["read"],"principal":"a b"}"#, 400),
        (json_type, r#"{"name":"a","can":["read"],"expires_in_days":0}"#, 400),
        (json_type, r#"{"name":"a","can":["read"],"expires_in_days":3651}"#, 400),
        (json_type, r#"{"name":"a","can":["read"],"expires_at":"2020-01-01T00:00:00Z"}"#, 400),
        (json_type, r#"{"can":["read"]}"#, 400),
        (json_type, "[]", 400),
        (json_type, "", 400),
        (("content-type", "text/plain"), r#"{"name":"a","can":["read"]}"#, 415),
        (("x-other", "y"), r#"{"name":"a","can":["read"]}"#, 415),
    ] {
        let headers = [("authorization", authorization.as_str()), kind];
        let refused = send("POST", &url, &headers, Some(body.as_bytes().to_vec()));
        assert_eq!(refused.status, status, "{body}");
        assert_eq!(refused.header("content-type"), "application/problem+json", "{body}");
    }
    assert_eq!(
        keys(&admin, "POST", "/self/rotate", Some(json!({ "grace_seconds": 604_801 }))).status,
        400
    );
    assert_eq!(keys(&admin, "GET", "", None).json()["total"], 1, "a key was created");
    assert_eq!(keys(&admin, "POST", "", Some(good)).status, 201, "positive control");
}

/// The operator creates, lists, rotates and revokes keys from the command line.
#[test]
fn the_operator_manages_keys_from_the_command_line() {
    let server = Server::shared();
    let operator = server.installation();
    let tenant = server.tenant();
    let me = keys(&tenant, "GET", "/self", None).json();
    let scope = me["scope"].as_str().unwrap();
    let made: Value = serde_json::from_str(&operator.run_ok(&[
        "keys",
        "create",
        "--scope",
        scope,
        "--name",
        "ci",
        "--principal",
        "ci@acme.example",
        "--expires-in-days",
        "7",
        "--can",
        "read",
        "--json",
    ]))
    .unwrap();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert_eq!((&made["name"], &made["principal"]), (&json!("ci"), &json!("ci@acme.example")));
    assert!(made["expires_at"].is_string() && status_of(&tenant.url, key) == 200, "{made}");
    let listed = operator.run_ok(&["keys", "list", "--scope", scope]);
    assert!(
        listed.contains(id) && listed.contains("until") && !listed.contains(&key[8..]),
        "{listed}"
    );
    let rotated = operator.run_ok(&["keys", "rotate", "--scope", scope, id]);
    let new = rotated.trim();
    poll("the old key to end", PATIENCE, || (status_of(&tenant.url, key) == 401).then_some(()));
    assert_eq!(status_of(&tenant.url, new), 200);
    let records: Value =
        serde_json::from_str(&operator.run_ok(&["keys", "list", "--scope", scope, "--json"]))
            .unwrap();
    let successor =
        records.as_array().unwrap().iter().find(|key| key["id"] == id).unwrap()["replaced_by"]
            .clone();
    operator.run_ok(&["keys", "revoke", "--scope", scope, successor.as_str().unwrap()]);
    poll("the new key to end", PATIENCE, || (status_of(&tenant.url, new) == 401).then_some(()));
    let unknown = operator.run(&["keys", "revoke", "--scope", "other.scope", id]);
    let stderr = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!((unknown.status.code(), stderr.contains("has no key")), (Some(1), true), "{stderr}");
    assert_eq!(
        operator.run(&["keys", "create", "--scope", scope, "--expires-in-days", "0"]).status.code(),
        Some(2)
    );
}

/// `keys/self` needs a valid key.
#[test]
fn keys_self_needs_a_valid_key() {
    let url = format!("{}/api/v1/keys/self", Server::shared().url());
    assert_eq!(get(&url, &[]).status, 401);
    assert_eq!(get(&url, &[("authorization", "Bearer pml_key_x")]).status, 401);
}
