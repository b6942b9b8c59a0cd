//! GW-30: limits of a key, an organisation and an address, shared by all gateways.

use serde_json::json;

use crate::keys::call;
use crate::support::http::{Reply, get};
use crate::support::server::{Installation, Server};

/// No more come in while a test runs.
const SIX: &str = "6/h";

fn ask(server: &Server, key: &str, more: &[(&str, &str)]) -> Reply {
    let authorization = format!("Bearer {key}");
    let mut headers = vec![("authorization", authorization.as_str())];
    headers.extend(more);
    get(&format!("{}/api/v1/routing", server.url()), &headers)
}

/// Asks until it is refused; returns how often it was not, and the refusal.
fn exhaust(mut ask: impl FnMut() -> Reply) -> (usize, Reply) {
    for allowed in 0..100 {
        let reply = ask();
        match reply.status {
            429 => return (allowed, reply),
            status => assert!([200, 401].contains(&status), "{status}"),
        }
    }
    panic!("nothing was refused");
}

fn is_told(refused: &Reply, kind: &str) {
    assert_eq!(refused.json()["code"], "RATE_LIMITED");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), format!("\"{kind}\";q=6;w=3600"));
    assert_eq!(refused.header("ratelimit"), format!("\"{kind}\";r=0;t={wait}"));
}

/// GW-30: one key, through two gateways at once; another key has its own.
#[test]
fn a_key_has_a_limit_on_all_gateways() {
    let installation = Installation::new();
    let settings = [("PML_RATE_PER_KEY", SIX)];
    let servers =
        [installation.start_with(&settings), installation.replica().start_with(&settings)];
    let key = installation.first_key();
    let mut turn = 0;
    let (allowed, refused) = exhaust(|| {
        turn += 1;
        ask(&servers[turn % 2], &key, &[])
    });
    assert_eq!(allowed, 6);
    is_told(&refused, "key");
    for server in &servers {
        assert_eq!(ask(server, &key, &[]).status, 429);
        // Those who watch it are answered.
        assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    }
    let other = installation.run_well(&["keys", "create", "--scope", "local.default"]);
    assert_eq!(ask(&servers[0], other.trim(), &[]).status, 200, "the twin: another key");
}

/// GW-30: more keys, of more projects, are no way around the limit of their organisation.
#[test]
fn an_organisation_has_a_limit() {
    let server = Installation::new().start_with(&[("PML_RATE_PER_ORG", SIX)]);
    let operator = server.installation();
    let key = operator.first_key();
    let made = call(
        &key,
        "POST",
        &format!("{}/api/v1/keys", server.url()),
        Some(&json!({ "name": "more", "can": ["read"] })),
    );
    let second = made.json()["key"].as_str().unwrap().to_owned();
    operator.run_well(&["scope", "create", "local.second"]);
    let third = operator.run_well(&["keys", "create", "--scope", "local.second"]);
    let keys = [key.as_str(), second.as_str(), third.trim()];
    let mut turn = 0;
    let (allowed, refused) = exhaust(|| {
        turn += 1;
        ask(&server, keys[turn % 3], &[])
    });
    assert_eq!(allowed, 5, "one made the key");
    is_told(&refused, "org");
    for key in keys {
        assert_eq!(ask(&server, key, &[]).status, 429);
    }
    operator.run_well(&["scope", "create", "acme.web"]);
    let other = operator.run_well(&["keys", "create", "--scope", "acme.web"]);
    assert_eq!(ask(&server, other.trim(), &[]).status, 200, "the twin: another organisation");
}

/// GW-30, GW-27: an address has a limit, whatever a client says of where it comes from, with
/// whatever path and with whatever credential.
#[test]
fn an_address_has_a_limit() {
    let server = Installation::new().start_with(&[("PML_RATE_PER_ADDRESS", SIX)]);
    let mut turn = 0;
    let (allowed, refused) = exhaust(|| {
        turn += 1;
        let claimed = format!("203.0.113.{turn}");
        let names =
            ["x-forwarded-for", "forwarded", "x-real-ip", "true-client-ip", "cf-connecting-ip"];
        ask(&server, "pml_key_guess", &names.map(|name| (name, claimed.as_str())))
    });
    assert_eq!(allowed, 6);
    is_told(&refused, "address");
    for path in [
        "/api/v1/routing",
        "/API/v1/routing",
        "/mcp",
        "/MCP",
        "/mcp/json:parse",
        "/nothing",
        "//health",
        "/health/",
    ] {
        let reply =
            get(&format!("{}{path}", server.url()), &[("x-forwarded-for", "203.0.113.200")]);
        assert_eq!(reply.status, 429, "{path}");
    }
    assert_eq!(get(&format!("{}/ready", server.url()), &[]).status, 200);
}

/// The twin: a proxy of ours says where its clients come from, and each has a limit of its own.
#[test]
fn clients_behind_our_proxy_are_told_apart() {
    let settings = [("PML_RATE_PER_ADDRESS", SIX), ("PML_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")];
    let server = Installation::new().start_with(&settings);
    let key = server.installation().first_key();
    let from = |client: &str| {
        // What the client itself claims stands before what the proxy adds.
        let forwarded = format!("198.51.100.{}, {client}", client.len());
        ask(&server, &key, &[("x-forwarded-for", &forwarded)])
    };
    assert_eq!(exhaust(|| from("203.0.113.1")).0, 6);
    assert_eq!(from("203.0.113.2").status, 200);
    assert_eq!(exhaust(|| from("2001:db8::1")).0, 6);
    assert_eq!(from("2001:db8::ffff:1").status, 429, "the same subscriber");
    assert_eq!(from("2001:db8:0:1::1").status, 200);
}

/// Limits can be taken off, and a wrong one stops the gateway.
#[test]
fn limits_are_settings() {
    let off =
        [("PML_RATE_PER_KEY", "off"), ("PML_RATE_PER_ORG", "off"), ("PML_RATE_PER_ADDRESS", "off")];
    let server = Installation::new().start_with(&off);
    let key = server.installation().first_key();
    for _ in 0..50 {
        assert_eq!(ask(&server, &key, &[]).status, 200);
    }
    let output =
        server.installation().command(&["serve", "--rate-per-key", "many"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
