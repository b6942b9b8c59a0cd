//! GW-30: rate limits of a key, an organisation and an address, shared by all gateways.

use serde_json::{Value, json};

use crate::identity::keys::call;
use crate::support::expect::success;
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server};
use crate::support::{PATIENCE, poll};

/// The refill is so slow that no token is added while a test runs.
const SIX: &str = "6/h";

fn ask(server: &Server, key: &str, more: &[(&str, &str)]) -> Reply {
    let authorization = format!("Bearer {key}");
    let mut headers = vec![("authorization", authorization.as_str())];
    headers.extend(more);
    get(&format!("{}/api/v1/routing", server.url()), &headers)
}

/// Sends requests until one is refused; returns how many were allowed, and the refusal.
fn exhaust(mut ask: impl FnMut() -> Reply) -> (usize, Reply) {
    for allowed in 0..100 {
        let reply = ask();
        match reply.status {
            429 => return (allowed, reply),
            status => assert!([200, 401].contains(&status), "{status}"),
        }
    }
    panic!("no request was refused");
}

fn assert_rate_limited(refused: &Reply, kind: &str) {
    assert_eq!(refused.json()["code"], "RATE_LIMITED");
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), format!("\"{kind}\";q=6;w=3600"));
    assert_eq!(refused.header("ratelimit"), format!("\"{kind}\";r=0;t={wait}"));
}

/// GW-30: the limit of a key counts requests to both gateways. Another key has its own limit.
#[test]
fn a_key_has_one_rate_limit_on_all_gateways() {
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
    assert_rate_limited(&refused, "key");
    for server in &servers {
        assert_eq!(ask(server, &key, &[]).status, 429);
        // Health checks are not limited.
        assert_eq!(get(&format!("{}/health", server.url()), &[]).status, 200);
    }
    let other = installation.run_ok(&["keys", "create", "--scope", "local.default"]);
    assert_eq!(ask(&servers[0], other.trim(), &[]).status, 200, "control: another key");
}

/// GW-30: additional keys and projects do not bypass the limit of their organisation.
#[test]
fn the_keys_of_an_organisation_share_a_rate_limit() {
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
    operator.run_ok(&["scope", "create", "local.second"]);
    let third = operator.run_ok(&["keys", "create", "--scope", "local.second"]);
    let keys = [key.as_str(), second.as_str(), third.trim()];
    let mut turn = 0;
    let (allowed, refused) = exhaust(|| {
        turn += 1;
        ask(&server, keys[turn % 3], &[])
    });
    assert_eq!(allowed, 5, "one of six created the key");
    assert_rate_limited(&refused, "org");
    for key in keys {
        assert_eq!(ask(&server, key, &[]).status, 429);
    }
    operator.run_ok(&["scope", "create", "acme.web"]);
    let other = operator.run_ok(&["keys", "create", "--scope", "acme.web"]);
    assert_eq!(ask(&server, other.trim(), &[]).status, 200, "control: another organisation");
}

/// GW-30, GW-27: an address has a limit, whatever address the client claims in headers, and for every path and
/// credential.
#[test]
fn forwarding_headers_do_not_bypass_the_rate_limit_of_an_address() {
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
    assert_rate_limited(&refused, "address");
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

/// A trusted proxy states the addresses of its clients, and each has a separate limit.
#[test]
fn clients_behind_a_trusted_proxy_have_separate_rate_limits() {
    let settings = [("PML_RATE_PER_ADDRESS", SIX), ("PML_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")];
    let server = Installation::new().start_with(&settings);
    let key = server.installation().first_key();
    let from = |client: &str| {
        // The proxy appends the real address to the one that the client claims.
        let forwarded = format!("198.51.100.{}, {client}", client.len());
        ask(&server, &key, &[("x-forwarded-for", &forwarded)])
    };
    assert_eq!(exhaust(|| from("203.0.113.1")).0, 6);
    assert_eq!(from("203.0.113.2").status, 200);
    assert_eq!(exhaust(|| from("2001:db8::1")).0, 6);
    assert_eq!(from("2001:db8::ffff:1").status, 429, "the same subscriber");
    assert_eq!(from("2001:db8:0:1::1").status, 200);
}

/// Rate limits can be turned off. An invalid one prevents the start.
#[test]
fn rate_limits_can_be_turned_off() {
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

/// A tool quota counts the calls of a scope on all gateways, in programs and direct ones. Each scope has its own.
#[test]
fn a_tool_quota_counts_calls_on_all_gateways() {
    let installation = Installation::new();
    let servers = [installation.start(), installation.replica().start()];
    let [ours, theirs] = [servers[0].tenant(), servers[0].tenant()];
    let run = |server: usize, tenant: &crate::support::server::Tenant, code: &str| -> Value {
        let tenant = crate::support::server::Tenant {
            key: tenant.key.clone(),
            url: servers[server].url().to_owned(),
        };
        HttpMcp::new(&tenant, Era::Stateless).execute(code)
    };
    let parse = "return await mcp.json.parse({ data: '1' })";
    assert_eq!(success(&run(0, &ours, parse)), 1);
    let printed = installation.run_ok(&["quotas", "set", "*", "json:*", "6/day"]);
    assert_eq!(printed, "*  json:*  6/day\n");
    for (number, server) in servers.iter().enumerate() {
        poll("the quota to be known", PATIENCE, || {
            let log = server.installation().log();
            log.contains("Routes changed").then_some(number)
        });
    }
    // A call over the quota fails in the program, which can catch the error and continue.
    let five = "for (let i = 0; i < 5; i++) await mcp.json.parse({ data: '1' }); return 'five'";
    assert_eq!(success(&run(0, &ours, five)), "five");
    let caught = "const outcomes = []; for (let i = 0; i < 3; i++) { try { await mcp.json.parse({ data: '1' }); outcomes.push('ok') } catch (e) { outcomes.push(e.code) } } return [outcomes, await mcp.math.eval({ expression: '1+1' }).then(() => 'math', String)]";
    let outcomes = success(&run(1, &ours, caught)).clone();
    assert_eq!(outcomes[0], json!(["ok", "RATE_LIMITED", "RATE_LIMITED"]), "{outcomes}");
    let named = HttpMcp::new(&ours, Era::Stateless).call("json:parse", json!({ "data": "1" }));
    assert_eq!(named["structuredContent"]["error_code"], "RATE_LIMITED", "{named}");
    assert!(named["structuredContent"]["details"]["retry_after_s"].as_u64() > Some(600), "{named}");
    assert_eq!(success(&run(0, &theirs, parse)), 1, "control: another scope");

    installation.run_ok(&["quotas", "unset", "*", "json:*"]);
    poll("the quota to be removed", PATIENCE, || {
        (run(1, &ours, parse)["status"] == "success").then_some(())
    });
    installation.run_ok(&["quotas", "set", "it", "json:parse", "0/min"]);
    poll("the tool to be closed", PATIENCE, || {
        (run(0, &theirs, parse)["status"] == "error").then_some(())
    });
    let listed: Value =
        serde_json::from_str(&installation.run_ok(&["quotas", "list", "--json"])).unwrap();
    let zero = json!({ "scope": "it", "pattern": "json:parse", "calls": 0, "window": "minute" });
    assert_eq!(listed, json!([zero]));
    for wrong in [
        &["quotas", "set", "a.b.c", "*", "1/min"][..],
        &["quotas", "set", "*", "x", "1/min"],
        &["quotas", "set", "*", "*", "1"],
        &["quotas", "set", "*", "*", "-1/h"],
        &["quotas", "unset", "*", "*"],
    ] {
        assert!(!installation.run(wrong).status.success(), "{wrong:?}");
    }
}
