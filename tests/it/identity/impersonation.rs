//! Only the operator can obtain a credential that acts as another principal.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::identity::members::Organisation;
use crate::support::http::{HttpMcp, Reply};
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};

/// An organisation with an administrator, `boss`, and a member, `ann`, who has a private capability and a secret.
struct World {
    ours: Organisation<'static>,
    ann: String,
}

const ALL: &str = "execute,read,publish,admin";

impl World {
    fn new() -> Self {
        let ours = Organisation::on(Server::shared());
        let put = json!({ "role": "admin" });
        assert_eq!(ours.ask(&ours.boss, "PUT", "members/ann", Some(put)).status, 201);
        let ann = ours.key("web", "ann", ALL);
        let world = Self { ours, ann };
        let diary = json!({
            "name": "diary.read", "code": "/** Reads. */ return 'hers'", "visibility": "private",
        });
        assert_eq!(world.ask(&world.ann, "POST", "capabilities", Some(diary)).status, 201);
        let secret = json!({ "value": "canary-of-ann", "for": "me" });
        let stored = world.ask(&world.ann, "PUT", "secrets/DIARY_KEY", Some(secret));
        assert_eq!(stored.status, 201, "{}", String::from_utf8_lossy(&stored.body));
        world
    }

    #[track_caller]
    fn ask(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.ours.ask(key, method, path, body)
    }

    #[track_caller]
    fn make_key(&self, key: &str, principal: &str) -> Reply {
        let body =
            json!({ "name": "n", "can": ["execute", "read", "publish"], "principal": principal });
        self.ask(key, "POST", "keys", Some(body))
    }

    /// Returns whether a key can access what is private to `ann`.
    fn is_ann(&self, key: &str) -> bool {
        let tenant = Tenant { key: key.to_owned(), url: self.ours.server.url().to_owned() };
        let ran = HttpMcp::new(&tenant, Era::Stateless).execute("return await mcp.diary.read({})");
        let secrets = self.ask(key, "GET", "secrets", None).json().to_string();
        ran["result"] == "hers" || secrets.contains("DIARY_KEY")
    }

    fn audit(&self) -> Vec<Value> {
        let log = self.ask(&self.ours.boss, "GET", "audit?limit=100", None).json();
        log["events"].as_array().expect("a log has events").clone()
    }
}

/// NX-08: an administrator can create keys for themselves and for services only.
#[test]
fn an_administrator_cannot_create_a_key_for_another_principal() {
    let world = World::new();
    let boss = world.ours.boss.clone();
    assert!(world.is_ann(&world.ann), "positive control");
    assert!(!world.is_ann(&boss));
    let annes = world.ask(&world.ann, "GET", "keys/self", None).json();
    let anns_key = format!("key:{}", annes["id"].as_str().unwrap());
    for other in ["ann", anns_key.as_str(), "eve", "sub:00", "Ann"] {
        let refused = world.make_key(&boss, other);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (403, &json!("FORBIDDEN")),
            "{other}"
        );
    }
    // Rotating her key would show its successor to the administrator.
    let path = format!("keys/{}/rotate", annes["id"].as_str().unwrap());
    let rotated = world.ask(&boss, "POST", &path, Some(json!({ "grace_seconds": 600 })));
    assert_eq!(rotated.status, 403, "{}", rotated.json());
    let refused = world.audit();
    let refused: Vec<&Value> =
        refused.iter().filter(|event| event["outcome"] == "refused").collect();
    assert_eq!(refused.len(), 6, "{refused:#?}");
    assert!(
        refused
            .iter()
            .all(|event| event["principal"] == "boss" && event["detail"]["for"].is_string())
    );

    for own in ["boss", "service:ci"] {
        let made = world.make_key(&boss, own);
        assert_eq!(made.status, 201, "{own}");
        let made = made.json();
        assert_eq!((&made["principal"], &made["made_by"]), (&json!(own), &json!("boss")));
        assert!(!world.is_ann(made["key"].as_str().unwrap()), "{own}");
    }
    // She can rotate her own key, and an administrator can revoke it.
    let rotated = world.ask(&world.ann, "POST", &path, Some(json!({ "grace_seconds": 600 })));
    assert_eq!(rotated.status, 201);
    let path = format!("keys/{}", annes["id"].as_str().unwrap());
    assert_eq!(world.ask(&boss, "DELETE", &path, None).status, 204);
    assert!(world.is_ann(rotated.json()["key"].as_str().unwrap()));
}

/// NX-08: a key that is its own principal can be rotated by its creator until it rotates itself.
#[test]
fn a_key_that_acts_for_itself_is_rotated_by_its_creator_or_itself() {
    let world = World::new();
    let made = json!({ "name": "n", "can": ["read", "admin"] });
    let made = world.ask(&world.ann, "POST", "keys", Some(made)).json();
    let rotate = |key: &str, of: &Value| {
        let path = format!("keys/{}/rotate", of["id"].as_str().unwrap());
        world.ask(key, "POST", &path, Some(json!({ "grace_seconds": 600 })))
    };
    assert_eq!(rotate(&world.ours.boss, &made).status, 403);
    let second = rotate(&world.ann, &made);
    assert_eq!(second.status, 201, "positive control");
    // Once it has rotated itself, its creator does not know it any more.
    let second = second.json();
    let third = rotate(second["key"].as_str().unwrap(), &second);
    assert_eq!(third.status, 201);
    assert_eq!(rotate(&world.ann, &third.json()).status, 403);
}

/// NX-08: reserved names cannot be used as principals, not even by the operator.
#[test]
fn reserved_principal_names_are_refused() {
    let world = World::new();
    let boss = world.ours.boss.clone();
    let scope = format!("{}.web", world.ours.name);
    let operator = world.ours.server.installation();
    for reserved in ["operator", "OPERATOR", "pml", "system", "local", "Service:ci", "operator:x"] {
        let refused = world.make_key(&boss, reserved);
        assert_eq!(refused.status, 400, "{reserved}: {}", refused.json());
        let path = format!("members/{reserved}");
        let refused = world.ask(&boss, "PUT", &path, Some(json!({ "role": "viewer" })));
        assert_eq!(refused.status, 400, "{reserved}: {}", refused.json());
        let run = operator.run(&["keys", "create", "--scope", &scope, "--principal", reserved]);
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && stderr.contains("reserved"), "{reserved}: {stderr}");
    }
    // A service cannot have a role.
    let refused = world.ask(&boss, "PUT", "members/service:ci", Some(json!({ "role": "viewer" })));
    assert_eq!(refused.status, 400, "{}", refused.json());
}

/// NX-08: the audit log records actions with the principal of the key and with the key's creator.
#[test]
fn the_audit_log_names_the_creator_of_a_key() {
    let world = World::new();
    let made = world.make_key(&world.ours.boss, "service:ci").json();
    let id = made["id"].as_str().unwrap();
    let key = made["key"].as_str().unwrap();
    let diary =
        json!({ "name": "ci.say", "code": "/** Says. */ return 1", "visibility": "private" });
    assert_eq!(world.ask(key, "POST", "capabilities", Some(diary)).status, 201);
    // The operator, who owns the database, can act as any principal; the log shows that as well.
    let as_ann = world.ours.key("web", "ann", ALL);
    assert_eq!(world.ask(&as_ann, "DELETE", "capabilities/diary.read", None).status, 204);
    let log = world.audit();
    let of = |action: &str, target: &str| {
        let found = log.iter().find(|event| event["action"] == action && event["target"] == target);
        found.unwrap_or_else(|| panic!("{action} {target}: {log:#?}"))
    };
    let event = of("key.create", id);
    assert_eq!(
        (&event["principal"], &event["detail"]["for"]),
        (&json!("boss"), &json!("service:ci"))
    );
    let event = of("capability.publish", "ci:say");
    assert_eq!(
        (&event["principal"], &event["detail"]["key_made_by"]),
        (&json!("service:ci"), &json!("boss"))
    );
    let event = of("capability.delete", "diary:read");
    assert_eq!(
        (&event["principal"], &event["detail"]["key_made_by"]),
        (&json!("ann"), &json!("operator"))
    );
}

/// NX-08: a token of the identity provider cannot name a service or PML itself as its subject.
#[test]
fn tokens_with_a_reserved_subject_are_refused() {
    let signer = Signer::ed25519();
    let issuer = Issuer::start(&[("a", &signer)]);
    let gateway = issuer.gateway(&[]);
    let status = |subject: &str| {
        let mut claims = issuer.claims();
        claims["sub"] = json!(subject);
        let token = signer.token(&header("EdDSA", "a"), &claims);
        call(&token, "GET", &format!("{}/api/v1/routing", gateway.url()), None).status
    };
    assert_eq!(status("alice"), 200, "positive control");
    for subject in ["operator", "Operator", "pml", "system", "service:ci", "SERVICE:ci", "local"] {
        assert_eq!(status(subject), 401, "{subject}");
    }
    // A subject that looks like the name of a key is accepted, but is not that key's principal.
    assert_eq!(status("key:0195d2a0-0000-7000-8000-000000000000"), 200);
}

/// Keys from before principals had kinds keep working.
#[test]
fn keys_from_before_principal_kinds_keep_working() {
    let installation = Installation::new();
    let server = installation.start();
    let make = ["keys", "create", "--scope", "local.default", "--principal", "ci", "--can", ALL];
    let key = installation.run_ok(&make).trim().to_owned();
    installation
        .sql("update api_keys set principal = 'operator', made_by = null where principal = 'ci'");
    let own = call(&key, "GET", &format!("{}/api/v1/keys/self", server.url()), None);
    assert_eq!((own.status, &own.json()["principal"]), (200, &json!("operator")));
    assert_eq!(own.json()["made_by"], Value::Null);
}
