//! Nobody but the operator gets a credential that acts as somebody else.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::identity::members::Organisation;
use crate::support::http::{HttpMcp, Reply};
use crate::support::issuer::{Issuer, Signer, header};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};

/// An organisation with an administrator, `boss`, and a member, `ann`, who has something of her own.
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

    /// Tells whether a key reaches what is private to `ann`.
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

/// NX-08: an administrator makes keys for themselves and for services, and for nobody else.
#[test]
fn an_administrator_makes_no_key_of_another_principal() {
    let world = World::new();
    let boss = world.ours.boss.clone();
    assert!(world.is_ann(&world.ann), "the twin");
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
    // Rotating her key would show her successor.
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
    // She looks after her own keys, and whoever administers can end them.
    let rotated = world.ask(&world.ann, "POST", &path, Some(json!({ "grace_seconds": 600 })));
    assert_eq!(rotated.status, 201);
    let path = format!("keys/{}", annes["id"].as_str().unwrap());
    assert_eq!(world.ask(&boss, "DELETE", &path, None).status, 204);
    assert!(world.is_ann(rotated.json()["key"].as_str().unwrap()));
}

/// NX-08: a key that acts for itself is handed on only to whoever made it.
#[test]
fn a_key_of_its_own_is_rotated_by_its_maker_or_itself() {
    let world = World::new();
    let made = json!({ "name": "n", "can": ["read", "admin"] });
    let made = world.ask(&world.ann, "POST", "keys", Some(made)).json();
    let rotate = |key: &str, of: &Value| {
        let path = format!("keys/{}/rotate", of["id"].as_str().unwrap());
        world.ask(key, "POST", &path, Some(json!({ "grace_seconds": 600 })))
    };
    assert_eq!(rotate(&world.ours.boss, &made).status, 403);
    let second = rotate(&world.ann, &made);
    assert_eq!(second.status, 201, "the twin");
    // Once it has rotated itself, nobody else has seen it.
    let second = second.json();
    let third = rotate(second["key"].as_str().unwrap(), &second);
    assert_eq!(third.status, 201);
    assert_eq!(rotate(&world.ann, &third.json()).status, 403);
}

/// NX-08: names that stand for PML itself are nobody's, whoever asks.
#[test]
fn reserved_principals_are_refused() {
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
    // A service has no role, so that no member is one.
    let refused = world.ask(&boss, "PUT", "members/service:ci", Some(json!({ "role": "viewer" })));
    assert_eq!(refused.status, 400, "{}", refused.json());
}

/// NX-08: what a key does is in the log with its principal and with whoever made the key.
#[test]
fn the_audit_log_names_the_maker_of_a_key() {
    let world = World::new();
    let made = world.make_key(&world.ours.boss, "service:ci").json();
    let id = made["id"].as_str().unwrap();
    let key = made["key"].as_str().unwrap();
    let diary =
        json!({ "name": "ci.say", "code": "/** Says. */ return 1", "visibility": "private" });
    assert_eq!(world.ask(key, "POST", "capabilities", Some(diary)).status, 201);
    // The operator, who owns the database, may act as anybody, and that is seen as well.
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

/// NX-08: an identity provider makes nobody a service, a key or PML itself.
#[test]
fn a_token_of_a_reserved_principal_is_refused() {
    let signer = Signer::ed25519();
    let issuer = Issuer::start(&[("a", &signer)]);
    let gateway = issuer.gateway(&[]);
    let status = |subject: &str| {
        let mut claims = issuer.claims();
        claims["sub"] = json!(subject);
        let token = signer.token(&header("EdDSA", "a"), &claims);
        call(&token, "GET", &format!("{}/api/v1/routing", gateway.url()), None).status
    };
    assert_eq!(status("alice"), 200, "the twin");
    for subject in ["operator", "Operator", "pml", "system", "service:ci", "SERVICE:ci", "local"] {
        assert_eq!(status(subject), 401, "{subject}");
    }
    // The name of a key is a name like others for an issuer, and is not the key's here.
    assert_eq!(status("key:0195d2a0-0000-7000-8000-000000000000"), 200);
}

/// Keys that were made before principals had kinds go on as they were.
#[test]
fn existing_keys_keep_working() {
    let installation = Installation::new();
    let server = installation.start();
    let make = ["keys", "create", "--scope", "local.default", "--principal", "ci", "--can", ALL];
    let key = installation.run_well(&make).trim().to_owned();
    installation
        .sql("update api_keys set principal = 'operator', made_by = null where principal = 'ci'");
    let own = call(&key, "GET", &format!("{}/api/v1/keys/self", server.url()), None);
    assert_eq!((own.status, &own.json()["principal"]), (200, &json!("operator")));
    assert_eq!(own.json()["made_by"], Value::Null);
}
