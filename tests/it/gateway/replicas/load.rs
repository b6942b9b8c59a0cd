//! A steady load through the balancer, and what became of each request.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{execute, named};
use crate::identity::keys::call;
use crate::support::cli::text;
use crate::support::counter::Counter;
use crate::support::http::{Reply, send};
use crate::support::postgres::Cluster;
use crate::support::server::Tenant;

/// How many requests are in flight at most.
pub(super) const WORKERS: usize = 16;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A key of the request's name, with the name as `Idempotency-Key`.
    Write,
    /// A call of the counter under the request's name.
    Call,
    /// A program.
    Program,
    /// The routing rules.
    Read,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done; of a program, the id of its execution.
    Done(String),
    /// It was refused with `DATABASE_UNAVAILABLE`, as a client expects it.
    Unavailable,
    /// Anything else.
    Wrong(String),
}

/// One request.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) answer: Answer,
}

impl Sent {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.answer, Answer::Done(_))
    }
}

/// Sends `rate` requests a second, of all kinds in turn, until `done`.
pub(super) fn load(tenant: &Tenant, rate: usize, done: impl Fn() -> bool + Sync) -> Vec<Sent> {
    let (start, next) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut sent = Vec::new();
                    while !done() {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        // Open loop: a slow answer does not slow down the others.
                        let due = Duration::from_secs_f64(number as f64 / rate as f64);
                        std::thread::sleep(due.saturating_sub(start.elapsed()));
                        sent.push(send_one(tenant, number));
                    }
                    sent
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

fn send_one(tenant: &Tenant, number: usize) -> Sent {
    let kind = [Kind::Write, Kind::Call, Kind::Program, Kind::Read][number % 4];
    let (name, began) = (format!("n{number}"), Instant::now());
    let reply = match kind {
        Kind::Write => {
            let bearer = format!("Bearer {}", tenant.key);
            let headers = [
                ("authorization", bearer.as_str()),
                ("content-type", "application/json"),
                ("idempotency-key", name.as_str()),
            ];
            let body = json!({ "name": name, "can": ["read"] }).to_string().into_bytes();
            send("POST", &format!("{}/api/v1/keys", tenant.url), &headers, Some(body))
        }
        Kind::Call => call_once(tenant, &name),
        Kind::Program => {
            let code = format!("return await mcp.math.eval({{ expression: '{number} + 1' }})");
            execute(tenant, &json!({ "code": code }))
        }
        Kind::Read => call(&tenant.key, "GET", &format!("{}/api/v1/routing", tenant.url), None),
    };
    Sent { kind, name, began, took: began.elapsed(), answer: answer(kind, &reply) }
}

/// Calls the counter, which takes a moment, under a name.
pub(super) fn call_once(tenant: &Tenant, name: &str) -> Reply {
    named(tenant, name, &json!({ "x": name, "then": 50 }))
}

pub(super) fn answer(kind: Kind, reply: &Reply) -> Answer {
    let wrong = || Answer::Wrong(format!("{kind:?}: {} {}", reply.status, text(&reply.body)));
    // A balancer that cannot reach a gateway does not answer in JSON.
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(&reply.body) else { return wrong() };
    let result = &body["result"]["structuredContent"];
    if [&body["code"], &result["error_code"]].contains(&&json!("DATABASE_UNAVAILABLE")) {
        return Answer::Unavailable;
    }
    let done = match kind {
        Kind::Write => (reply.status == 201).then_some("a key"),
        Kind::Read => (reply.status == 200).then_some("rules"),
        Kind::Call => {
            body["result"]["content"][0]["text"].as_str().filter(|it| it.starts_with("call "))
        }
        Kind::Program => result["execution_id"].as_str().filter(|_| result["status"] == "success"),
    };
    done.map_or_else(wrong, |done| Answer::Done(done.to_owned()))
}

/// Asserts that what was acknowledged took effect once, and nothing took effect more than once.
#[track_caller]
pub(super) fn assert_effects(sent: &[Sent], database: &Cluster, counter: &Counter) {
    let names = database.sql("select name from api_keys");
    let keys = counts(names.lines().map(str::to_owned));
    let seen = counter.seen().into_iter();
    let calls =
        counts(seen.map(|arguments| arguments["x"].as_str().unwrap_or_default().to_owned()));
    let mut done: BTreeMap<Kind, usize> = BTreeMap::new();
    for request in sent {
        let effects = match request.kind {
            Kind::Write => keys.get(&request.name),
            Kind::Call => calls.get(&request.name),
            Kind::Program | Kind::Read => {
                *done.entry(request.kind).or_default() += usize::from(request.is_done());
                continue;
            }
        };
        let effects = effects.copied().unwrap_or(0);
        assert!(effects <= 1, "took effect {effects} times: {request:?}");
        if request.is_done() {
            assert_eq!(effects, 1, "acknowledged, and lost: {request:?}");
            *done.entry(request.kind).or_default() += 1;
        }
    }
    assert!(done.len() == 4 && done.values().all(|count| *count > 0), "{done:?}");
}

fn counts(names: impl Iterator<Item = String>) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}
