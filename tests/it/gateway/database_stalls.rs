//! A database that hangs without resetting its connections, as the clients of a gateway see it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::database_outage::{Setup, assert_no_internals};
use crate::support::http::{HttpMcp, Reply, get};
use crate::support::mcp_client::Era;
use crate::support::processes::Pid;
use crate::support::relay::Network;
use crate::support::server::{Installation, Tenant};
use crate::support::{PATIENCE, poll};

/// How soon a caller gets the error: two seconds are promised, the rest is for the load of this test's machine.
const MAX_ERROR_DELAY: Duration = Duration::from_millis(2_800);
/// How soon the gateway serves again.
const MAX_RECOVERY: Duration = Duration::from_secs(5);
/// How often the database hangs. The best round counts, because a busy machine may be late in one of them.
const ROUNDS: usize = 3;

/// The tool that each round calls. They differ because a cached look-up would not need the database.
const CALLED_TOOLS: [(&str, &str); ROUNDS] = [
    ("json:parse", r#"{"data":"1"}"#),
    ("math:eval", r#"{"expression":"1"}"#),
    ("datetime:now", "{}"),
];

/// All processes of a private Postgres, stopped by `SIGSTOP` until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn all_of(database: &Installation) -> Self {
        let file = database.data_dir().join("postgres/data/postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap();
        let postmaster = Pid::of(text.lines().next().unwrap().trim().parse().unwrap());
        // The postmaster is stopped first, so that it starts no other process meanwhile.
        let mut stopped = Self(vec![postmaster]);
        postmaster.signal("STOP");
        for process in postmaster.tree().into_iter().skip(1).filter(|process| process.is_alive()) {
            process.try_signal("STOP");
            stopped.0.push(process);
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for process in &self.0 {
            process.try_signal("CONT");
        }
    }
}

type Request<'a> = Box<dyn Fn() -> Reply + Send + Sync + 'a>;

/// Sends requests that all need the database at the same time; returns each reply and its duration.
fn ask_all(setup: &Setup, round: usize) -> Vec<(String, Reply, Duration)> {
    let tenant = Tenant { key: setup.key.clone(), url: setup.gateway.url().to_owned() };
    let mcp = |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = Era::Stateless.request(1, "tools/call", params).to_string();
        HttpMcp::new(&tenant, Era::Stateless).post(body.as_bytes(), "tools/call", Some(tool))
    };
    let name = format!("asked-{round}");
    let (called, arguments) = CALLED_TOOLS[round];
    let requests: Vec<(&str, Request<'_>)> = vec![
        ("keys", Box::new(|| setup.ask("GET", "/api/v1/keys", None))),
        ("audit", Box::new(|| setup.ask("GET", "/api/v1/audit", None))),
        ("links", Box::new(|| setup.ask("GET", "/api/v1/registry-links", None))),
        ("entries", Box::new(|| setup.ask("GET", "/mcp?limit=3", None))),
        ("servers", Box::new(|| setup.ask("GET", "/v0.1/servers", None))),
        ("a key", Box::new(|| setup.make_key(&name))),
        ("another tool", Box::new(|| mcp("pml_discover", json!({ "query": "read a file" })))),
        ("a program", Box::new(|| mcp("pml_execute", json!({ "code": "return 1" })))),
        ("a call", Box::new(|| mcp(called, serde_json::from_str(arguments).unwrap()))),
    ];
    std::thread::scope(|scope| {
        let threads: Vec<_> = requests
            .iter()
            .map(|(what, request)| {
                scope.spawn(move || {
                    let started = Instant::now();
                    let reply = request();
                    ((*what).to_owned(), reply, started.elapsed())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[track_caller]
pub(crate) fn assert_database_error(what: &str, reply: &Reply) {
    let body = reply.json();
    if reply.status == 503 {
        assert_eq!(reply.header("content-type"), "application/problem+json", "{what}: {body}");
        assert_eq!(body["code"], "DATABASE_UNAVAILABLE", "{what}: {body}");
        assert_eq!(reply.header("retry-after"), "1", "{what}");
    } else {
        // After authentication, an MCP client gets the error in a JSON-RPC response.
        assert_eq!(reply.status, 200, "{what}: {body}");
        let code = &body["result"]["structuredContent"]["error_code"];
        assert_eq!(code, "DATABASE_UNAVAILABLE", "{what}: {body}");
        assert_eq!(body["result"]["isError"], true, "{what}: {body}");
    }
    assert_no_internals(reply, what);
}

/// Stalls the database repeatedly while writers write. `resume` gets what `stall` returned.
#[expect(clippy::print_stderr, reason = "the durations are of interest when this test runs alone")]
fn stall_repeatedly<Stall>(stall: impl Fn(&Setup) -> Stall, resume: impl Fn(&Setup, Stall)) {
    let setup = Setup::new(&[]);
    let done = AtomicBool::new(false);
    let (mut errors, mut readiness, mut health, mut recovery) = (vec![], vec![], vec![], vec![]);
    let mut rounds = Vec::new();
    let written = std::thread::scope(|scope| {
        // A failed assertion must end the writers as well, because the scope joins them.
        let end = StopWriters(&done);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (setup, done) = (&setup, &done);
                scope.spawn(move || write(setup, writer, done))
            })
            .collect();
        for round in 0..ROUNDS {
            let before = setup.made().len();
            poll("some writes", PATIENCE, || (setup.made().len() >= before + 5).then_some(()));
            let stalled_at = Instant::now();
            let stalled = stall(&setup);
            let mut slowest = Duration::ZERO;
            for (what, reply, took) in ask_all(&setup, round) {
                assert_database_error(&what, &reply);
                slowest = slowest.max(took);
            }
            errors.push(slowest);
            let sent = Instant::now();
            let ready = get(&format!("{}/ready", setup.gateway.url()), &[]);
            readiness.push(sent.elapsed());
            assert_eq!((ready.status, &ready.json()["checks"]["database"]), (503, &json!(false)));
            let sent = Instant::now();
            assert_eq!(get(&format!("{}/health", setup.gateway.url()), &[]).status, 200);
            health.push(sent.elapsed());
            resume(&setup, stalled);
            let started = Instant::now();
            poll("the first success", PATIENCE, || {
                (setup.ask("GET", "/api/v1/keys", None).status == 200).then_some(())
            });
            poll("readiness", PATIENCE, || {
                (get(&format!("{}/ready", setup.gateway.url()), &[]).status == 200).then_some(())
            });
            recovery.push(started.elapsed());
            rounds.push(stalled_at..started);
        }
        drop(end);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    // A writer in the middle of a transaction must get the error as soon as all others.
    for (slowest, round) in errors.iter_mut().zip(&rounds) {
        for written in &written {
            for (sent, took) in &written.refused {
                let waited = (*sent + *took).saturating_duration_since(round.start).min(*took);
                if *sent < round.end && !waited.is_zero() {
                    *slowest = waited.max(*slowest);
                }
            }
        }
    }
    let best = |times: &[Duration]| times.iter().min().copied().unwrap();
    eprintln!(
        "slowest answer during the stall, by round: {errors:?}; /ready {readiness:?}, /health {health:?}; recovery after {recovery:?}"
    );
    assert!(best(&errors) < MAX_ERROR_DELAY, "the errors came after {errors:?}");
    assert!(best(&readiness) < MAX_ERROR_DELAY, "not ready after {readiness:?}");
    assert!(best(&health) < Duration::from_millis(500), "`/health` answered after {health:?}");
    assert!(best(&recovery) < MAX_RECOVERY, "it recovered after {recovery:?}");
    let refused: usize = written.iter().map(|written| written.refused.len()).sum();
    assert!(refused >= ROUNDS, "{refused}");
    let acknowledged: HashSet<&String> =
        written.iter().flat_map(|written| &written.acknowledged).collect();
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    let made = setup.made();
    for name in &acknowledged {
        assert_eq!(made.get(*name), Some(&1), "{name} was acknowledged");
    }
    assert!(made.values().all(|count| *count == 1), "{made:?}");
}

/// Stops the writers when it is dropped.
struct StopWriters<'a>(&'a AtomicBool);

impl Drop for StopWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The answers that a writer got.
#[derive(Default)]
struct Written {
    acknowledged: Vec<String>,
    /// When each refused request was sent, and how long its answer took.
    refused: Vec<(Instant, Duration)>,
}

/// Creates keys until `done`. A refused request is sent again with the same `Idempotency-Key`.
fn write(setup: &Setup, writer: usize, done: &AtomicBool) -> Written {
    let mut written = Written::default();
    let (mut count, mut again) = (0, None::<String>);
    while !done.load(Ordering::SeqCst) {
        let name = again.take().unwrap_or_else(|| {
            count += 1;
            format!("w{writer}-{count}")
        });
        let sent = Instant::now();
        let reply = setup.make_key(&name);
        match reply.status {
            201 => written.acknowledged.push(name),
            // The key may have been created before the answer was lost, so the request is not sent again.
            409 => {}
            503 => {
                assert_database_error(&name, &reply);
                written.refused.push((sent, sent.elapsed()));
                again = Some(name);
                // `Retry-After` requires more; without any pause there would be thousands of requests.
                std::thread::sleep(Duration::from_millis(100));
            }
            other => panic!("{other}: {}", reply.json()),
        }
    }
    written
}

/// R-03: all processes of the database are stopped, as on a machine that swaps or was paused.
#[test]
fn a_stopped_database_is_reported_within_the_time_limit() {
    stall_repeatedly(
        |setup| Stopped::all_of(setup.owner.installation()),
        |_, stopped| drop(stopped),
    );
}

/// R-03: the network drops everything without an error, as when a cable is cut.
#[test]
fn a_network_blackhole_is_reported_within_the_time_limit() {
    let resume = |setup: &Setup, ()| setup.relay.set(Network::Normal);
    stall_repeatedly(|setup| setup.relay.set(Network::Blackhole), resume);
}

/// R-03: open connections are dead without a reset, while new ones can be opened. The gateway replaces all of them at
/// the first error, instead of failing one request for each.
#[test]
fn half_open_connections_are_replaced() {
    let setup = Setup::new(&[("PML_DATABASE_CONNECTIONS", "8")]);
    // Opens all of them.
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(setup.ask("GET", "/api/v1/keys", None).status, 200));
        }
    });
    setup.relay.kill_open_connections();
    poll("the first success", PATIENCE, || {
        (setup.ask("GET", "/api/v1/keys", None).status == 200).then_some(())
    });
    for _ in 0..32 {
        let reply = setup.ask("GET", "/api/v1/keys", None);
        assert_eq!(reply.status, 200, "{}", reply.json());
    }
    // Change notifications arrive on a new connection, too.
    setup.owner.installation().run_ok(&["quotas", "set", "*", "json:*", "0/min"]);
    let tenant = Tenant { key: setup.key.clone(), url: setup.gateway.url().to_owned() };
    poll("the quota to be known", Duration::from_secs(30), || {
        let answer =
            HttpMcp::new(&tenant, Era::Stateless).call("json:parse", json!({ "data": "1" }));
        (answer["structuredContent"]["error_code"] == "RATE_LIMITED").then_some(())
    });
}
