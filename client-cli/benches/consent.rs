//! The time of a decision about a call, and of its record, in process.

#![expect(clippy::unwrap_used, reason = "a bench without its parts has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench reports to its terminal")]

#[path = "../../tests/benches/support/figures.rs"]
mod figures;

use std::hint::black_box;
use std::time::{Duration, Instant};

use client_cli::testing::consent::{Records, Rules};
use figures::{Rounds, time};
use protocol::{Integrity, ToolId};
use rusqlite::Connection;
use serde_json::{Value, json};

const ROUNDS: usize = 60;
/// Decisions, hashes and calls per sample.
const DECISIONS: u32 = 10_000;
const CALLS: u32 = 200;

const MANY: &str = "a decision under 1,000 rules, by the last of them";
const ONE: &str = "the same under one rule";
const HASH: &str = "SHA-256 of 1 KiB";
const CALL: &str = "the record of a call: its start is stored, its end queued";
const COMMIT: &str = "a commit of one row of the same size by SQLite alone, with the same settings";

/// A third of the rules denies, a third asks, a third allows. Only the last one covers the tool.
fn thousand() -> Value {
    let tools = |list: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("server{number}:{list}_{number}")).collect()
    };
    let mut allow = tools("allowed", 333);
    allow.push("filesystem:*".to_owned());
    json!({ "deny": tools("denied", 333), "ask": tools("asked", 333), "allow": allow })
}

fn each(count: u32, mut work: impl FnMut()) -> Duration {
    let started = Instant::now();
    (0..count).for_each(|_| work());
    started.elapsed() / count
}

/// A database like the run store: WAL, and no sync for each commit.
fn bare(folder: &std::path::Path) -> Connection {
    let database = Connection::open(folder.join("bare.db")).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.pragma_update(None, "synchronous", "NORMAL").unwrap();
    database.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, body TEXT)", []).unwrap();
    database
}

fn main() {
    let (many, one) = (thousand(), json!({ "allow": ["filesystem:*"] }));
    let (many, one) = (Rules::read(many).unwrap(), Rules::read(one).unwrap());
    let tool: ToolId = "filesystem:read_text_file".parse().unwrap();
    assert!(many.allow(&tool) && one.allow(&tool));
    let text = "x".repeat(1024);
    let folder = tempfile::tempdir().unwrap();
    let database = bare(folder.path());
    let body = "x".repeat(1_500);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let records = runtime.block_on(Records::begin(folder.path())).unwrap();
    let (mut rounds, mut number) = (Rounds::default(), 0);
    for _ in 0..ROUNDS {
        rounds.add(MANY, each(DECISIONS, || assert!(many.allow(black_box(&tool)))));
        rounds.add(ONE, each(DECISIONS, || assert!(one.allow(black_box(&tool)))));
        rounds.add(HASH, each(DECISIONS, || _ = black_box(Integrity::of(text.as_bytes()))));
        let call = each(CALLS, || {
            number += 1;
            runtime.block_on(records.call(number)).unwrap();
        });
        rounds.add(CALL, call);
        let commit = each(CALLS, || {
            let mut insert =
                database.prepare_cached("INSERT INTO records (body) VALUES (?1)").unwrap();
            insert.execute([&body]).unwrap();
        });
        rounds.add(COMMIT, commit);
    }
    println!("### Consent\n");
    println!("{}", rounds.table(&[(MANY, &[ONE, HASH]), (CALL, &[COMMIT])]));
    println!(
        "A thousand rules cost {} more than one. Recording a call costs {} more than a bare commit.",
        time(rounds.difference(MANY, ONE)),
        time(rounds.difference(CALL, COMMIT))
    );
}
