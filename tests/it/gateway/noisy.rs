//! a tenant that sends ten times what it may is refused, and another one notices nothing but that.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::expect::success;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

/// What each tenant may send; so little comes in anew that a slow machine changes nothing.
const ALLOWED: usize = 60;
const NOISE: usize = 10 * ALLOWED;
/// How many of the noisy tenant's requests are under way at a time.
const IN_FLIGHT: usize = 8;
/// What the other tenant does meanwhile, at least; together fewer than it may.
const WORK: usize = 20;

const PROGRAM: &str = "return (await mcp.json.parse({ data: '[7]' }))[0]";

/// What became of a request.
enum Answer {
    Served,
    Refused,
}

/// What became of the noise.
#[derive(Debug, Default)]
struct Noise {
    served: AtomicUsize,
    refused: AtomicUsize,
}

/// Sends all of the noise, and lets the other tenant work from before its first to after its last request. An answer
/// that is neither what was asked for nor the refusal panics.
fn beside_noise(noisy: impl Fn() -> Answer + Sync, quiet: impl Fn()) -> Noise {
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
            // The last of its work is done when the noise is over, so some of it was done within.
            if round == WORK / 2 {
                poll("the noise to be over", PATIENCE, || {
                    over.load(Ordering::Relaxed).then_some(())
                });
            }
        }
    });
    noise
}

/// The noisy tenant got what it may have, and little more.
fn is_bounded(noise: &Noise) {
    let [served, refused] =
        [&noise.served, &noise.refused].map(|count| count.load(Ordering::Relaxed));
    assert!((ALLOWED..=2 * ALLOWED).contains(&served), "{noise:?}");
    assert_eq!(served + refused, NOISE);
}

/// Calls a tool that a quota counts.
fn parse(tenant: &Tenant) -> (Answer, Value) {
    let told = HttpMcp::new(tenant, Era::Stateless).call("json:parse", json!({ "data": "[7]" }));
    let answer = match told["structuredContent"]["error_code"].as_str() {
        None => Answer::Served,
        Some("RATE_LIMITED") => Answer::Refused,
        Some(other) => panic!("{other}: {told}"),
    };
    if matches!(answer, Answer::Served) {
        assert_eq!(told["structuredContent"]["value"], json!([7]), "{told}");
    }
    (answer, told)
}

/// Does it for the tenant that is not noisy: it is never refused.
fn parse_calmly(tenant: &Tenant) {
    let (answer, told) = parse(tenant);
    assert!(matches!(answer, Answer::Served), "{told}");
}

fn program(tenant: &Tenant) {
    let envelope = HttpMcp::new(tenant, Era::Stateless).execute(PROGRAM);
    assert_eq!(success(&envelope), 7);
}

fn tenants(server: &Server) -> [Tenant; 2] {
    // Of organisations of their own, as customers are.
    ["loud.web", "calm.web"].map(|scope| {
        let operator = server.installation();
        operator.run_well(&["scope", "create", scope]);
        let key = operator.run_well(&["keys", "create", "--scope", scope]);
        Tenant { key: key.trim().to_owned(), url: server.url().to_owned() }
    })
}

/// ten times the requests of a key are refused as `RATE_LIMITED`, and say when to come back; programs and calls
/// of another tenant all succeed meanwhile.
#[test]
fn requests_beyond_a_rate_are_the_senders_loss() {
    let rate = format!("{ALLOWED}/h");
    let server = Installation::new().start_with(&[("PML_RATE_PER_KEY", &rate)]);
    let pid = server.pid();
    let [loud, calm] = tenants(&server);
    let body = Era::Stateless
        .request(1, "tools/call", json!({ "name": "json:parse", "arguments": { "data": "[7]" } }))
        .to_string();
    let client = HttpMcp::new(&loud, Era::Stateless);
    let noise = beside_noise(
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
            program(&calm);
            parse_calmly(&calm);
        },
    );
    is_bounded(&noise);
    assert!(server.pid() == pid && pid.is_alive());
}

/// the same of the operator's quota of a tool, which each scope has for itself.
#[test]
fn calls_beyond_a_quota_are_the_callers_loss() {
    let server = Installation::new().start();
    let [loud, calm] = tenants(&server);
    let operator = server.installation();
    operator.run_well(&["quotas", "set", "*", "json:*", &format!("{ALLOWED}/day")]);
    poll("the quota to be known", PATIENCE, || {
        operator.log().contains("Routes changed").then_some(())
    });
    let noise = beside_noise(
        || parse(&loud).0,
        || {
            parse_calmly(&calm);
            program(&calm);
        },
    );
    is_bounded(&noise);
    // Only the tool is closed to it.
    let envelope = HttpMcp::new(&loud, Era::Stateless)
        .execute("return await mcp.math.eval({ expression: '6*7' })");
    assert_eq!(success(&envelope), 42);
}
