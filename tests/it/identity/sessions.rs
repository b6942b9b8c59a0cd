//! Sessions: short-lived credentials that end with the key or token that created them.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::identity::members::Organisation;
use crate::support::expect::success;
use crate::support::http::{HttpMcp, Reply, get, send};
use crate::support::issuer::{Issuer, Signer, header, signed_part};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

#[track_caller]
fn create(url: &str, key: &str, body: Value) -> Reply {
    call(key, "POST", &format!("{url}/api/v1/sessions"), Some(&body))
}

#[track_caller]
fn session(url: &str, key: &str, body: Value) -> String {
    let made = create(url, key, body);
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    made.json()["session"].as_str().unwrap().to_owned()
}

fn status(url: &str, credential: &str, path: &str) -> u16 {
    call(credential, "GET", &format!("{url}{path}"), None).status
}

/// A session acts as its principal with the rights it was given, and cannot create further sessions.
#[test]
fn a_session_has_only_the_rights_it_was_given() {
    let server = Server::shared();
    let tenant = server.tenant_with_rights("execute,read,admin");
    let made =
        create(&tenant.url, &tenant.key, json!({ "can": ["read"], "expires_in_seconds": 60 }));
    assert_eq!((made.status, made.header("cache-control")), (201, "private, no-store"));
    let made = made.json();
    let own = call(&tenant.key, "GET", &format!("{}/api/v1/keys/self", tenant.url), None).json();
    for field in ["scope", "principal"] {
        assert_eq!(made[field], own[field], "{field}");
    }
    assert_eq!(made["can"], json!(["read"]));
    let reader = made["session"].as_str().unwrap();
    assert_eq!(status(&tenant.url, reader, "/mcp"), 200);
    // It has only the rights it was given, whatever the rights of its key, and cannot act as the key itself.
    assert_eq!(status(&tenant.url, reader, "/api/v1/keys"), 403);
    for path in ["/api/v1/keys/self", &format!("/api/v1/keys/{}", own["id"].as_str().unwrap())] {
        assert!([403, 404].contains(&status(&tenant.url, reader, path)), "{path}");
    }
    let rotate = format!("{}/api/v1/keys/self/rotate", tenant.url);
    let full = session(&tenant.url, &tenant.key, json!({}));
    assert_eq!(call(&full, "POST", &rotate, Some(&json!({}))).status, 404);
    let caller = Tenant { key: full.clone(), url: tenant.url.clone() };
    let ran =
        HttpMcp::new(&caller, Era::Stateless).execute("return await mcp.json.parse({ data: '7' })");
    assert_eq!(success(&ran), 7);
    // A session with `admin` can create keys with rights that it has. No session can create a session.
    let keys = format!("{}/api/v1/keys", tenant.url);
    let new = |can: &str| json!({ "name": "n", "can": [can] });
    assert_eq!(call(reader, "POST", &keys, Some(&new("read"))).status, 403);
    assert_eq!(call(&full, "POST", &keys, Some(&new("publish"))).status, 403);
    assert_eq!(call(&full, "POST", &keys, Some(&new("read"))).status, 201);
    for credential in [reader, &full] {
        let refused = create(&tenant.url, credential, json!({}));
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
    }
    for (body, status) in [
        (json!({ "can": ["publish"] }), 403),
        (json!({ "can": [] }), 400),
        (json!({ "can": ["root"] }), 400),
        (json!({ "expires_in_seconds": 0 }), 400),
        (json!({ "expires_in_seconds": 901 }), 400),
        (json!({ "principal": "eve" }), 400),
        (json!({ "scope": "acme.web" }), 400),
        (json!({ "expires_in_seconds": 900 }), 201),
    ] {
        assert_eq!(create(&tenant.url, &tenant.key, body.clone()).status, status, "{body}");
    }
    // It is accepted in its one header only, and is not logged.
    let url = format!("{}/mcp", tenant.url);
    assert_eq!(get(&url, &[("x-api-key", &full)]).status, 401);
    for query in ["access_token", "session"] {
        let path = format!("{}/api/v1/routing?{query}={full}", tenant.url);
        assert_eq!(get(&path, &[]).status, 401, "{query}");
    }
    assert!(!server.installation().log().contains("eyJ"));
    // The answer is not stored for a repeated request.
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("idempotency-key", "one"),
    ];
    let send = || {
        let url = format!("{}/api/v1/sessions", tenant.url);
        crate::support::http::send("POST", &url, &headers, Some(b"{}".to_vec()))
    };
    assert_eq!(send().status, 201);
    let again = send();
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("SHOWN_ONCE")));
    assert!(!String::from_utf8_lossy(&again.body).contains("eyJ"));
    let log = call(&tenant.key, "GET", &format!("{}/api/v1/audit", tenant.url), None).json();
    let made =
        |event: &&Value| event["action"] == "session.create" && event["outcome"] == "allowed";
    assert_eq!(log["events"].as_array().unwrap().iter().filter(made).count(), 4, "{log}");
}

#[test]
fn a_session_expires() {
    let tenant = Server::shared().tenant_with_rights("read");
    let short = session(&tenant.url, &tenant.key, json!({ "expires_in_seconds": 2 }));
    let long = session(&tenant.url, &tenant.key, json!({}));
    poll("the session to end", PATIENCE, || {
        (status(&tenant.url, &short, "/mcp") == 401).then_some(())
    });
    assert_eq!(status(&tenant.url, &long, "/mcp"), 200, "positive control");
}

/// A session is valid on every gateway of the database, and ends on all of them when its key is revoked or rotated, or
/// its principal is removed.
#[test]
fn a_session_ends_with_its_key_or_membership() {
    let installation = Installation::new();
    let [here, there] = [installation.start(), installation.replica().start()];
    let ours = Organisation::on(&here);
    for end in ["revoke", "rotate", "remove"] {
        let who = format!("{end}@acme.example");
        assert_eq!(
            ours.ask(
                &ours.boss,
                "PUT",
                &format!("members/{who}"),
                Some(json!({ "role": "admin" }))
            )
            .status,
            201
        );
        let key = ours.key("web", &who, "read,admin");
        let made = session(here.url(), &key, json!({}));
        for server in [&here, &there] {
            assert_eq!(status(server.url(), &made, "/mcp"), 200, "{end}");
        }
        let (method, path, body) = match end {
            "revoke" => ("DELETE", "keys/self".to_owned(), None),
            "rotate" => {
                ("POST", "keys/self/rotate".to_owned(), Some(json!({ "grace_seconds": 600 })))
            }
            _ => ("DELETE", format!("members/{who}"), None),
        };
        let by = if end == "remove" { &ours.boss } else { &key };
        assert!([201, 204].contains(&ours.ask(by, method, &path, body).status), "{end}");
        assert_eq!(status(here.url(), &made, "/mcp"), 401, "{end}: immediately on this gateway");
        poll("the other gateway to refuse it", PATIENCE, || {
            (status(there.url(), &made, "/mcp") == 401).then_some(())
        });
        // A rotated key is valid for its grace period; its sessions are not.
        assert_eq!(status(here.url(), &key, "/mcp"), if end == "rotate" { 200 } else { 401 });
    }
}

/// GW-03: only HS256 with the gateway's own key is accepted; the header of a session does not choose its algorithm or
/// key.
#[test]
fn sessions_with_another_signature_are_refused() {
    let tenant = Server::shared().tenant_with_rights("read");
    let good = session(&tenant.url, &tenant.key, json!({}));
    let ask = |token: &str| call(token, "GET", &format!("{}/mcp", tenant.url), None);
    assert_eq!(ask(&good).status, 200, "positive control");
    let (signed, tag) = good.rsplit_once('.').unwrap();
    let (head, payload) = signed.split_once('.').unwrap();
    let decode = |part: &str| -> Value {
        serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
    };
    let (head, claims) = (decode(head), decode(payload));
    assert_eq!((&head["alg"], &head["typ"]), (&json!("HS256"), &json!("pml-session+jwt")));
    let mut tokens = vec![
        format!("{signed}."),
        signed.to_owned(),
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&[0; 32])),
        format!("{signed}.{}", &tag[..tag.len() - 4]),
        format!("{good}="),
        format!("{good}.x.y"),
    ];
    for (name, value) in [
        ("alg", json!("none")),
        ("alg", json!("NONE")),
        ("alg", json!("HS512")),
        ("alg", json!("EdDSA")),
        ("typ", json!("JWT")),
        ("typ", json!("at+jwt")),
        ("kid", json!("other")),
        ("crit", json!(["exp"])),
        ("jwk", json!({ "kty": "oct", "k": "c2VjcmV0" })),
        ("b64", json!(false)),
    ] {
        let mut odd = head.clone();
        odd[name] = value;
        let signed = signed_part(&odd, &claims);
        tokens.push(format!("{signed}.{tag}"));
        tokens.push(format!("{signed}."));
    }
    // Signed with publicly known values.
    for secret in ["", "secret", head["kid"].as_str().unwrap(), claims["iss"].as_str().unwrap()] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, signed.as_bytes());
        tokens.push(format!("{signed}.{}", BASE64URL_NOPAD.encode(tag.as_ref())));
    }
    for (name, value) in [
        ("rights", json!(["admin"])),
        ("sub", json!("eve")),
        ("exp", json!(claims["exp"].as_i64().unwrap() + 600)),
        ("pml_scope", json!("local.default")),
    ] {
        let mut more = claims.clone();
        more[name] = value;
        tokens.push(format!("{}.{tag}", signed_part(&head, &more)));
    }
    for token in tokens {
        let refused = ask(&token);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (401, &json!("UNAUTHORIZED")),
            "{token}"
        );
    }
}

/// GW-05: a session is not accepted as a token, a token not as a session, and neither by another installation.
#[test]
fn sessions_and_tokens_are_not_interchangeable() {
    let signer = Signer::ed25519();
    let issuer = Issuer::start(&[("k", &signer)]);
    let ours = issuer.gateway(&[]);
    let other = issuer.gateway(&[]);
    let key = ours.installation().first_key();
    let made = session(ours.url(), &key, json!({ "can": ["read"] }));
    assert_eq!(status(ours.url(), &made, "/mcp"), 200, "positive control");
    assert_eq!(status(other.url(), &made, "/mcp"), 401, "of another installation");
    let (signed, _) = made.rsplit_once('.').unwrap();
    let (head, payload) = signed.split_once('.').unwrap();
    let decode = |part: &str| -> Value {
        serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
    };
    // Tokens signed by the issuer with the header or the claims of a session.
    let mut session_head = header("EdDSA", "k");
    session_head["typ"] = json!("pml-session+jwt");
    for (head, claims) in [
        (session_head, issuer.claims()),
        (header("EdDSA", "k"), decode(payload)),
        (decode(head), issuer.claims()),
        (decode(head), decode(payload)),
    ] {
        let token = signer.token(&head, &claims);
        assert_eq!(status(ours.url(), &token, "/mcp"), 401, "{head} {claims}");
    }
    let token = signer.token(&header("EdDSA", "k"), &issuer.claims());
    assert_eq!(status(ours.url(), &token, "/mcp"), 200, "positive control");
    // A token without rights can create no session.
    let mut claims = issuer.claims();
    claims["scope"] = json!("openid");
    let refused = create(ours.url(), &signer.token(&header("EdDSA", "k"), &claims), json!({}));
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
    // A session can be created with a token. It ends with the membership of its principal.
    let of_token = session(ours.url(), &token, json!({}));
    assert_eq!(status(ours.url(), &of_token, "/mcp"), 200);
    let operator = ours.installation();
    let who = ["--org", "local", "alice@acme.example"];
    operator.run_ok(&[&["members", "add", "--role", "viewer"], &who[..]].concat());
    operator.run_ok(&[&["members", "remove"], &who[..]].concat());
    poll("the session to end", PATIENCE, || {
        (status(ours.url(), &of_token, "/mcp") == 401).then_some(())
    });
    assert_eq!(status(ours.url(), &token, "/mcp"), 403);
}

/// A gateway without a master key cannot sign or verify sessions, and reports it.
#[test]
fn sessions_need_a_master_key() {
    let home = Installation::new();
    let private = home.start();
    let tenant = private.tenant();
    let folder = home.socket_folder();
    let url = format!("postgres://pml_app@localhost:5432/pml?host={folder}&sslmode=disable");
    let bare = Installation::new().start_with(&[("PML_DATABASE_URL", &url)]);
    let refused = create(bare.url(), &tenant.key, json!({}));
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("SECRETS_UNAVAILABLE")));
    // With an `Idempotency-Key` too, the answer has the id of its log lines.
    let authorization = format!("Bearer {}", tenant.key);
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
        ("idempotency-key", "8e03978e"),
    ];
    let sessions = format!("{}/api/v1/sessions", bare.url());
    let refused = send("POST", &sessions, &headers, Some(b"{}".to_vec()));
    assert_eq!(refused.status, 503);
    let id = refused.header("x-request-id");
    assert_eq!(refused.json()["instance"], format!("urn:uuid:{id}"));
    let made = session(private.url(), &tenant.key, json!({}));
    assert_eq!(status(bare.url(), &made, "/mcp"), 401);
    // A gateway with the same master key accepts it.
    let own = home.data_dir().join("master.key").display().to_string();
    let whole = [("PML_DATABASE_URL", url.as_str()), ("PML_MASTER_KEY_FILE", &own)];
    let whole = Installation::new().start_with(&whole);
    assert_eq!(status(whole.url(), &made, "/mcp"), 200);
}
