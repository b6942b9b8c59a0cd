//! a tenant that sends ten times its limit is refused, and other tenants are not affected.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// The limit of each tenant. It refills so slowly that a slow machine does not change the result.
const ALLOWED: usize = 60;
const NOISE: usize = 10 * ALLOWED;
/// How many requests of the noisy tenant are in flight at a time.
const IN_FLIGHT: usize = 8;
/// How often the quiet tenant works meanwhile, at least. Its requests stay below the limit.
const WORK: usize = 20;

const PROGRAM: &str = "return (await mcp.json.parse({ data: '[7]' }))[0]";

/// The outcome of a request.
enum Answer {
    Served,
    Refused,
}

/// The outcome of all requests of the noisy tenant.
#[derive(Debug, Default)]
struct Noise {
    served: AtomicUsize,
    refused: AtomicUsize,
}

/// Sends all requests of the noisy tenant, and lets the quiet tenant work from before the first to after the last of
/// them. An answer that is neither a result nor the expected refusal panics.
fn during_noise(noisy: impl Fn() -> Answer + Sync, quiet: impl Fn()) -> Noise {
    let (noise, next, over) = (Noise::default(), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let senders: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                scope.spawn(|| {
                    while next.fetch_add(1, Ordering::Relaxed) < NOISE {
                        let count = match noisy() {
                            Answer::Served => &noise.served,
                            Answer::Refused => &noise.refused,
                        };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let done = &over;
        scope.spawn(move || {
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        for round in 0..WORK {
            quiet();
            // The second half is done after the noise, so the first half was done during it.
            if round == WORK / 2 {
                poll("the noise to be over", PATIENCE, || {
                    over.load(Ordering::Relaxed).then_some(())
                });
            }
        }
    });
    noise
}

/// Asserts that the noisy tenant was served up to its limit, and little more.
fn assert_bounded(noise: &Noise) {
    let [served, refused] =
        [&noise.served, &noise.refused].map(|count| count.load(Ordering::Relaxed));
    assert!((ALLOWED..=2 * ALLOWED).contains(&served), "{noise:?}");
    assert_eq!(served + refused, NOISE);
}

/// Calls a tool that a quota counts.
fn parse(tenant: &Tenant) -> (Answer, Value) {
    let result = HttpMcp::new(tenant, Era::Stateless).call("json:parse", json!({ "data": "[7]" }));
    let answer = match result["structuredContent"]["error_code"].as_str() {
        None => Answer::Served,
        Some("RATE_LIMITED") => Answer::Refused,
        Some(other) => panic!("{other}: {result}"),
    };
    if matches!(answer, Answer::Served) {
        assert_eq!(result["structuredContent"]["value"], json!([7]), "{result}");
    }
    (answer, result)
}

/// Calls the tool for the quiet tenant, which is never refused.
fn parse_unrefused(tenant: &Tenant) {
    let (answer, result) = parse(tenant);
    assert!(matches!(answer, Answer::Served), "{result}");
}

fn program(tenant: &Tenant) {
    let envelope = HttpMcp::new(tenant, Era::Stateless).execute(PROGRAM);
    assert_eq!(success(&envelope), 7);
}

fn tenants(server: &Server) -> [Tenant; 2] {
    // In separate organisations, as customers are.
    ["noisy.web", "quiet.web"].map(|scope| {
        let operator = server.installation();
        operator.run_ok(&["scope", "create", scope]);
        let key = operator.run_ok(&["keys", "create", "--scope", scope]);
        Tenant { key: key.trim().to_owned(), url: server.url().to_owned() }
    })
}

/// requests beyond the limit of a key are refused as `RATE_LIMITED` with `Retry-After`. Programs and calls of
/// another tenant all succeed meanwhile.
#[test]
fn a_tenant_over_its_rate_limit_does_not_affect_others() {
    let rate = format!("{ALLOWED}/h");
    let server = Installation::new().start_with(&[("PML_RATE_PER_KEY", &rate)]);
    let pid = server.pid();
    let [noisy, quiet] = tenants(&server);
    let body = Era::Stateless
        .request(1, "tools/call", json!({ "name": "json:parse", "arguments": { "data": "[7]" } }))
        .to_string();
    let client = HttpMcp::new(&noisy, Era::Stateless);
    let noise = during_noise(
        || {
            let reply = client.post(body.as_bytes(), "tools/call", Some("json:parse"));
            if reply.status == 200 {
                assert_eq!(reply.json()["result"]["structuredContent"]["value"], json!([7]));
                return Answer::Served;
            }
            assert_eq!((reply.status, &reply.json()["code"]), (429, &json!("RATE_LIMITED")));
            assert!(reply.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
            Answer::Refused
        },
        || {
            program(&quiet);
            parse_unrefused(&quiet);
        },
    );
    assert_bounded(&noise);
    assert!(server.pid() == pid && pid.is_alive());
}

/// the same for the operator's quota of a tool, which is counted for each scope separately.
#[test]
fn a_tenant_over_its_tool_quota_does_not_affect_others() {
    let server = Installation::new().start();
    let [noisy, quiet] = tenants(&server);
    let operator = server.installation();
    operator.run_ok(&["quotas", "set", "*", "json:*", &format!("{ALLOWED}/day")]);
    poll("the quota to be known", PATIENCE, || {
        operator.log().contains("Routes changed").then_some(())
    });
    let noise = during_noise(
        || parse(&noisy).0,
        || {
            parse_unrefused(&quiet);
            program(&quiet);
        },
    );
    assert_bounded(&noise);
    // Only this tool is refused.
    let envelope = HttpMcp::new(&noisy, Era::Stateless)
        .execute("return await mcp.math.eval({ expression: '6*7' })");
    assert_eq!(success(&envelope), 42);
}
