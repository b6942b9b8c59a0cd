//! Traces of runs that clients send.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::identity::members::Organisation;
use crate::support::http::HttpMcp;
use crate::support::mcp_client::Era;
use crate::support::server::{Installation, Server, Tenant};
use crate::support::{PATIENCE, poll};

pub(super) const TEXT: &str = "return await mcp.filesystem.read_text_file({ path: 'a' })";

/// The key of a principal in the project `web`.
pub(super) struct Person<'a> {
    pub(super) ours: &'a Organisation<'a>,
    pub(super) key: String,
}

impl<'a> Person<'a> {
    pub(super) fn of(ours: &'a Organisation<'a>, principal: &str, can: &str) -> Self {
        Self { ours, key: ours.key("web", principal, can) }
    }

    pub(super) fn mcp(&self) -> HttpMcp {
        let url = self.ours.server.url().to_owned();
        HttpMcp::new(&Tenant { key: self.key.clone(), url }, Era::Stateless)
    }

    /// Has a program delegated; returns its `workflowId`, its id and its hash.
    #[track_caller]
    pub(super) fn delegate(&self, code: &str) -> (String, String, Value) {
        let envelope = self.mcp().with_package().execute(code);
        assert_eq!(envelope["status"], "execute_locally", "{envelope}");
        let workflow = envelope["workflowId"].as_str().unwrap().to_owned();
        let id = workflow.strip_prefix("ws_").unwrap();
        let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
        (workflow.clone(), parts.join("-"), envelope["code_hash"].clone())
    }

    /// Sends traces; returns the outcome of each and the reason of its refusal.
    #[track_caller]
    pub(super) fn tell(&self, runs: &[Value]) -> Vec<(String, String)> {
        let reply = self.ours.ask(&self.key, "POST", "traces", Some(json!({ "runs": runs })));
        let answer = reply.json();
        assert_eq!(reply.status, 200, "{answer}");
        let receipts = answer["runs"].as_array().unwrap();
        assert_eq!(receipts.len(), runs.len());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for (receipt, run) in receipts.iter().zip(runs) {
            let sent = run["run_id"].as_str().unwrap_or_default();
            assert!(text(&receipt["run_id"]) == sent || sent.len() > 64, "{receipt}");
        }
        receipts.iter().map(|it| (text(&it["outcome"]), text(&it["reason"]))).collect()
    }

    #[track_caller]
    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        let reply = self.ours.ask(&self.key, "GET", path, None);
        (reply.status, reply.json())
    }

    #[track_caller]
    pub(super) fn status_of(&self, execution: &str) -> String {
        let (status, record) = self.get(&format!("executions/{execution}"));
        assert_eq!(status, 200, "{record}");
        record["status"].as_str().unwrap().to_owned()
    }
}

pub(super) fn stored() -> (String, String) {
    ("stored".to_owned(), String::new())
}

fn value(bytes: u64) -> Value {
    json!({
        "hash": "hmac-sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "bytes": bytes, "shape": "object(1)",
    })
}

/// Returns the call of a run with this number; `within` is the call of the capability that made it.
pub(super) fn event(seq: u32, trace_id: &str, within: Option<&str>) -> Value {
    let mut event = json!({
        "seq": seq, "trace_id": trace_id, "tool": "filesystem:read_text_file", "kind": "tool",
        "routing": "client", "status": "success", "started_at": "2026-11-01T10:00:00.123456Z", "duration_ms": 3,
        "arguments": value(12), "result": value(120),
    });
    if let Some(parent) = within {
        event["parent_trace_id"] = json!(parent);
    }
    event
}

/// Returns a run with these events.
pub(super) fn run(execution: Option<&str>, code_hash: &Value, events: Vec<Value>) -> Value {
    let mut run = json!({
        "run_id": new_id(), "code_hash": code_hash, "status": "success",
        "started_at": "2026-11-01T10:00:00Z", "duration_ms": 20, "arguments": value(2), "result": value(7),
        "event_count": events.len(), "events": events,
    });
    if let Some(execution) = execution {
        run["execution_id"] = json!(execution);
    }
    run
}

/// Returns an id that no other run of these tests has.
fn new_id() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("00000000-0000-7000-8000-{:012x}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A hash of some program.
fn some_hash() -> Value {
    json!("sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
}

/// Returns the same run with only some of its events.
fn part(run: &Value, events: std::ops::Range<usize>) -> Value {
    let mut part = run.clone();
    part["events"] = json!(run["events"].as_array().unwrap()[events]);
    part
}

/// Returns the number of rows of a run, and of its events.
fn rows(installation: &Installation, run: &Value) -> (u32, u32) {
    let id = run["run_id"].as_str().unwrap();
    let counted = installation.sql(&format!(
        "select count(distinct t.id), count(e.seq) from traces t left join trace_events e on e.trace = t.id
        where t.run_id = '{id}'"
    ));
    let (runs, events) = counted.trim().split_once('|').unwrap();
    (runs.parse().unwrap(), events.parse().unwrap())
}

/// TR-06: a trace is stored once, however often, in whatever order and in whatever parts it is sent.
#[test]
fn a_trace_is_stored_once() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann", "execute,read");
    let (workflow, execution, hash) = ann.delegate(TEXT);
    let events = vec![
        event(1, "1", None),
        event(2, "1.1", Some("1")),
        event(3, "1.2", Some("1")),
        event(4, "2", None),
    ];
    let first = run(Some(&workflow), &hash, events.clone());
    let second = run(None, &some_hash(), events);
    assert_eq!(ann.status_of(&execution), "delegated");
    // The connection is closed before the answer: the client does not learn what became of it.
    let body = json!({ "runs": [first, second] }).to_string();
    let mut stream =
        TcpStream::connect(ours.server.url().strip_prefix("http://").unwrap()).unwrap();
    let head = format!(
        "POST /api/v1/traces HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        ann.key,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    drop(stream);
    for _ in 0..10 {
        assert_eq!(ann.tell(&[first.clone(), second.clone()]), [stored(), stored()]);
        assert_eq!(ann.tell(&[second.clone(), first.clone()]), [stored(), stored()]);
    }
    // The events of a part in another order, and parts that overlap.
    let mut reversed = first.clone();
    reversed["events"].as_array_mut().unwrap().reverse();
    let parts = [part(&first, 2..4), reversed, part(&first, 0..0), part(&first, 0..3)];
    assert_eq!(ann.tell(&parts), [stored(), stored(), stored(), stored()]);
    let installation = ours.server.installation();
    assert_eq!(rows(installation, &first), (1, 4));
    assert_eq!(rows(installation, &second), (1, 4));

    let (_, record) = ann.get(&format!("executions/{execution}"));
    assert_eq!(
        (&record["status"], &record["calls"], &record["duration_ms"], &record["result_bytes"]),
        (&json!("success"), &json!(4), &json!(20), &json!(7)),
        "{record}"
    );
    assert_eq!(record["trace_id"], first["run_id"]);
    let (_, trace) = ann.get(&format!("traces/{}?limit=3", first["run_id"].as_str().unwrap()));
    assert_eq!((&trace["origin"], &trace["principal"]), (&json!("client"), &json!("ann")));
    assert_eq!(
        json!(trace["events"].as_array().unwrap()[..]),
        json!(first["events"].as_array().unwrap()[..3])
    );
    assert_eq!(trace["next_after"], 3);
    let (_, rest) = ann.get(&format!("traces/{}?after=3", first["run_id"].as_str().unwrap()));
    assert_eq!((&rest["events"][0]["seq"], &rest["next_after"]), (&json!(4), &Value::Null));
}

/// TR-06: the same with parts that arrive after the gateway was killed, and with requests at the same time.
#[test]
fn a_trace_survives_a_crash_of_the_gateway() {
    let installation = Installation::new();
    let server = installation.start();
    let first = {
        let ours = Organisation::on(&server);
        let ann = Person::of(&ours, "ann", "execute,read");
        let (workflow, execution, hash) = ann.delegate(TEXT);
        let events = (1..=60).map(|seq| event(seq, &seq.to_string(), None)).collect();
        let first = run(Some(&workflow), &hash, events);
        std::thread::scope(|scope| {
            for from in [0, 20, 40, 0, 20, 40] {
                let (ann, part) = (&ann, part(&first, from..from + 20));
                scope.spawn(move || assert_eq!(ann.tell(&[part]), [stored()]));
            }
        });
        assert_eq!(ann.status_of(&execution), "success");
        assert_eq!(rows(&installation, &first), (1, 60));
        server.kill();
        (first, ann.key, ours.name.clone())
    };
    // Old enough to be removed: the gateway does that by itself.
    let server = installation.start();
    let (first, key, name) = first;
    let ours = Organisation { server: &server, name, boss: String::new() };
    let ann = Person { ours: &ours, key };
    assert_eq!(ann.tell(&[part(&first, 10..30), first.clone()]), [stored(), stored()]);
    assert_eq!(rows(&installation, &first), (1, 60));
    let age = "update traces set received_at = now() - interval '200 days'";
    installation.sql(age);
    drop(server);
    let server = installation.start();
    poll("the old trace to be removed", PATIENCE, || {
        (rows(&installation, &first) == (0, 0)).then_some(())
    });
    drop(server);
    for days in ["6", "0", "-1", "many"] {
        let mut command = installation.command(&[]);
        let refused = command.env("PML_TRACE_RETENTION_DAYS", days).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("7 to 36500"), "{days}: {said}");
    }
}

/// What is refused says why, is not stored, and does not hold up the others.
#[test]
fn a_trace_that_is_wrong_is_refused_alone() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann", "execute,read");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut run = run(None, &some_hash(), vec![event(1, "1", None), event(2, "2", None)]);
        change(&mut run);
        run
    };
    let long = "x".repeat(11_000);
    let wrong: Vec<(&str, Value)> = vec![
        ("`run_id` is not a UUID", with(&|run| run["run_id"] = json!("mine"))),
        ("missing field `run_id`", json!({})),
        ("unknown field `org`", with(&|run| run["org"] = json!("other"))),
        ("not the `workflowId`", with(&|run| run["execution_id"] = json!("wl_1"))),
        ("`error_code`", with(&|run| run["error_code"] = json!("a\nb"))),
        ("in the future", with(&|run| run["started_at"] = json!("2999-01-01T00:00:00Z"))),
        (
            "before 2020",
            with(&|run| run["events"][0]["started_at"] = json!("1970-01-01T00:00:00Z")),
        ),
        ("RFC 3339", with(&|run| run["started_at"] = json!("yesterday"))),
        ("`duration_ms`", with(&|run| run["duration_ms"] = json!(u64::MAX))),
        ("`event_count`", with(&|run| run["event_count"] = json!(1_000_000))),
        ("must be 1 to `event_count`", with(&|run| run["event_count"] = json!(1))),
        ("must be 1 to `event_count`", with(&|run| run["events"][0]["seq"] = json!(0))),
        ("its `seq` is there twice", with(&|run| run["events"][1]["seq"] = json!(1))),
        ("another event has its", with(&|run| run["events"][1]["trace_id"] = json!("1"))),
        ("`parent_trace_id`, `7`", with(&|run| run["events"][1]["parent_trace_id"] = json!("7"))),
        (
            "letters, digits",
            with(&|run| run["events"][1]["trace_id"] = json!("=cmd|' /C calc'!A0")),
        ),
        ("event 2", with(&|run| run["events"][1]["error_code"] = json!("</script>"))),
        ("tool", with(&|run| run["events"][1]["tool"] = json!("a:b\u{1b}[31m"))),
        ("`hash` of `result`", with(&|run| run["result"]["hash"] = json!("sha256-AAAA"))),
        ("`shape` of `result`", with(&|run| run["result"]["shape"] = json!("object(1)\n{}"))),
        ("`shape` of `result`", with(&|run| run["result"]["shape"] = json!(long))),
        ("`value` of `arguments`", with(&|run| run["arguments"]["value"] = json!(long))),
        ("unknown variant", with(&|run| run["status"] = json!("fine"))),
    ];
    let good = with(&|_| ());
    for (why, bad) in &wrong {
        let outcomes = ann.tell(&[bad.clone(), good.clone()]);
        let (outcome, reason) = &outcomes[0];
        assert_eq!((outcome.as_str(), &outcomes[1]), ("refused", &stored()), "{why}");
        assert!(reason.contains(why), "`{why}` is not in `{reason}`");
        assert!(!reason.chars().any(char::is_control) && reason.len() < 1_000, "{reason:?}");
        if let Some(id) = bad["run_id"].as_str().filter(|id| id.len() == 36) {
            assert_eq!(ann.get(&format!("traces/{id}")).0, 404, "{why}");
        }
    }
    // What was stored first is kept, whatever a later part says; a part that fits is still taken.
    let first = run(None, &some_hash(), vec![event(1, "1", None), event(2, "1.1", Some("1"))]);
    assert_eq!(ann.tell(&[part(&first, 0..1)]), [stored()]);
    for (field, other) in [
        ("status", json!("error")),
        ("duration_ms", json!(21)),
        ("started_at", json!("2026-11-01T10:00:01Z")),
        ("event_count", json!(3)),
        ("result", value(8)),
        ("execution_id", json!("ws_00000000000000000000000000000000")),
    ] {
        let mut later = part(&first, 1..2);
        later[field] = other;
        let (outcome, reason) = ann.tell(&[later]).remove(0);
        assert_eq!(outcome, "refused", "{field}");
        assert!(reason.contains(&format!("`{field}` differs")), "{reason}");
    }
    let mut other_event = part(&first, 0..1);
    other_event["events"][0]["trace_id"] = json!("9");
    assert!(ann.tell(&[other_event])[0].1.contains("another event"));
    // The caller of event 2 came in an earlier part.
    assert_eq!(ann.tell(&[part(&first, 1..2)]), [stored()]);
    assert_eq!(rows(ours.server.installation(), &first), (1, 2));

    let many = |count: usize| json!({ "runs": vec![part(&first, 0..0); count] });
    for (status, body) in [
        (200, many(100)),
        (400, many(101)),
        (400, json!({ "runs": [{ "events": vec![0; 5_001] }] })),
        (400, json!({ "runs": ["run"] })),
        (400, json!({ "runs": {} })),
    ] {
        assert_eq!(ours.ask(&ann.key, "POST", "traces", Some(body)).status, status);
    }
    let reader = Person::of(&ours, "ann", "read");
    let refused = ours.ask(&reader.key, "POST", "traces", Some(json!({ "runs": [] })));
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")));
}

/// An execution is ended by its own principal, with its own program, and once. Everything else changes and reveals
/// nothing.
#[test]
fn only_its_own_run_ends_an_execution() {
    let (ours, theirs) = (Organisation::on(Server::shared()), Organisation::on(Server::shared()));
    let ann = Person::of(&ours, "ann", "execute,read");
    let ben = Person::of(&ours, "ben", "execute,read");
    let eve = Person::of(&theirs, "ann", "execute,read");
    let (workflow, execution, hash) = ann.delegate(TEXT);
    let nobodys = "ws_00000000000000000000000000000000";
    for claimed in [workflow.as_str(), nobodys] {
        for stranger in [&ben, &eve] {
            assert_eq!(stranger.tell(&[run(Some(claimed), &hash, Vec::new())]), [stored()]);
        }
    }
    assert_eq!(ann.tell(&[run(Some(&workflow), &some_hash(), Vec::new())]), [stored()]);
    assert_eq!(ann.status_of(&execution), "delegated");
    // One id, used by several: each has its own run.
    let own = run(Some(&workflow), &hash, Vec::new());
    for teller in [&ben, &eve, &ann] {
        let mut told = own.clone();
        told["duration_ms"] = json!(if teller.key == ann.key { 20 } else { 999 });
        told["status"] = json!(if teller.key == ann.key { "denied" } else { "success" });
        told["error_code"] = json!("PERMISSION_DENIED");
        assert_eq!(teller.tell(&[told]), [stored()]);
    }
    let (_, record) = ann.get(&format!("executions/{execution}"));
    assert_eq!(
        (&record["status"], &record["error_code"], &record["duration_ms"]),
        (&json!("error"), &json!("PERMISSION_DENIED"), &json!(20))
    );
    // It has ended.
    assert_eq!(ann.tell(&[run(Some(&workflow), &hash, Vec::new())]), [stored()]);
    assert_eq!(ann.status_of(&execution), "error");
    // A run whose end is not known ends nothing.
    let (workflow, execution, hash) = ann.delegate(TEXT);
    let mut unknown = run(Some(&workflow), &hash, Vec::new());
    unknown["status"] = json!("indeterminate");
    assert_eq!(ann.tell(&[unknown]), [stored()]);
    assert_eq!(ann.status_of(&execution), "delegated");
    // An execution of the gateway is not delegated.
    let ran = ann.mcp().execute("return 1");
    let id = ran["execution_id"].as_str().unwrap();
    let claimed = format!("ws_{}", id.replace('-', ""));
    let mut forged = run(Some(&claimed), &some_hash(), Vec::new());
    forged["status"] = json!("error");
    assert_eq!(ann.tell(&[forged]), [stored()]);
    assert_eq!(ann.status_of(id), "success");
}

/// TR-07: what a client sends is stored as it is and returned as JSON; it reaches no log.
#[test]
fn texts_in_a_trace_forge_nothing() {
    let ours = Organisation::on(Server::shared());
    let ann = Person::of(&ours, "ann", "execute,read");
    let forged =
        "=cmd|' /C calc'!A0\n{\"level\":\"ERROR\"}\u{1b}[31m</script>\u{202e}\0forged_in_a_log";
    // `ghp_` and 36 letters, in two parts, so that nobody takes this file for a leak.
    let secret = format!("ghp_{}", "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6");
    let mut told = run(None, &some_hash(), vec![event(1, "1", None)]);
    told["events"][0]["arguments"]["value"] = json!({ "text": forged, "n": [1.5, null] });
    told["arguments"]["value"] = json!({ "text": format!("key {secret}") });
    assert_eq!(ann.tell(std::slice::from_ref(&told)), [stored()]);
    let path = format!("traces/{}", told["run_id"].as_str().unwrap());
    let reply = ours.ask(&ann.key, "GET", &path, None);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    let trace = reply.json();
    assert_eq!(trace["events"][0]["arguments"]["value"], told["events"][0]["arguments"]["value"]);
    let shown = trace["arguments"]["value"]["text"].as_str().unwrap();
    assert!(shown.starts_with("key ") && !shown.contains(&secret), "{shown}");
    let kept = ours.server.installation().sql("select arguments::text from traces");
    assert!(!kept.contains(&secret));
    // The id of a run is in the receipt, and nowhere else.
    let mut named = told;
    named["run_id"] = json!(format!("{forged}"));
    assert_eq!(ours.ask(&ann.key, "POST", "traces", Some(json!({ "runs": [named] }))).status, 200);
    assert!(!ours.server.installation().log().contains("forged_in_a_log"));
}
