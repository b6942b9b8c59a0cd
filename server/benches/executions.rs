//! Measures how executions and their traces are listed, read and written, with few and with a million of them: the
//! built program as a black box.

#[path = "http/bulk.rs"]
mod bulk;
#[path = "http/client.rs"]
mod client;
#[path = "../../tests/benches/support/figures.rs"]
mod figures;
#[path = "http/gateway.rs"]
mod gateway;

use std::error::Error;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use client::{Client, request};
use figures::Rounds;
use gateway::Gateway;

/// The numbers of executions.
const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
/// One of so many failed.
const FAILED: u32 = 500;
const ROUNDS: u32 = 200;
/// Unmeasured rounds, which fill the caches of the gateway and of Postgres.
const WARM: u32 = 20;

const ENTRY: &str = "`GET /mcp/{fqdn}`";
const NEWEST: &str = "`GET /api/v1/executions`, the newest 50";
const MIDDLE: &str = "the same, 50 in the middle";
const RARE: &str = "the same, the newest 50 that failed";
const ONE: &str = "`GET /api/v1/executions/{id}`";
const TRACE: &str = "`GET /api/v1/traces/{id}`";
const EXECUTE: &str = "`pml_execute`: one server tool";

/// The id of the execution of a number.
fn id(number: u32) -> String {
    format!("{number:032x}")
}

/// Adds executions, one for each second before now, with traces of one call.
fn add(gateway: &Gateway, from: u32, to: u32) -> Result<(), Box<dyn Error>> {
    bulk::run(
        gateway,
        &format!(
            r"
set session_replication_role = replica;
select make_trace_partitions();
create temp table made as
    select lpad(to_hex(n), 32, '0')::uuid as id, now() - make_interval(secs => n) as began,
        case when n % {FAILED} = 0 then 'error' else 'success' end as status
    from generate_series({from}, {to}) n;
insert into executions (id, org, project, principal, decision, status, code_hash, code_bytes, args_bytes, dynamic, tools,
        started_at, deadline_at, finished_at, result_bytes, calls, duration_ms)
    select id, 'local', 'default', 'local', 'server', status, 'sha256-' || encode(sha256('x'), 'base64'), 40, 2, false,
        array['json:parse'], began, began + interval '30 s', began + interval '3 ms', 3, 1, 3
    from made;
insert into traces (id, org, project, principal, origin, run_id, code_hash, status, started_at, duration_ms, event_count)
    select id, 'local', 'default', 'local', 'gateway', id, 'sha256-' || encode(sha256('x'), 'base64'), status, began, 3, 1
    from made;
insert into trace_events (org, project, trace, month, seq, trace_id, tool, kind, routing, status, started_at, duration_ms)
    select 'local', 'default', id, date_trunc('month', now() at time zone 'UTC')::date, 1, '1', 'json:parse', 'tool',
        'server', status, began, 1
    from made;
vacuum analyze executions;
vacuum analyze traces;
vacuum analyze trace_events;
"
        ),
    )
}

/// A kind of request, some of its requests, and a part of every answer.
struct Case {
    name: &'static str,
    requests: Vec<Vec<u8>>,
    proof: &'static str,
}

fn cases(gateway: &Gateway, size: u32) -> Vec<Case> {
    let bearer = format!("Bearer {}", gateway.key);
    let key = ("authorization", bearer.as_str());
    let get = |path: String| request("GET", &path, gateway.address, &[key], "");
    let spread = || (0..64_u32).map(|index| 1 + index * ((size - 1) / 64));
    let of_each = |name, path: &str, proof| {
        let requests = spread().map(|number| get(format!("{path}/{}", id(number)))).collect();
        Case { name, requests, proof }
    };
    let list = |name, query: &str, proof| {
        let path = format!("/api/v1/executions?limit=50{query}");
        Case { name, requests: vec![get(path)], proof }
    };
    let middle = chrono::Utc::now() - chrono::TimeDelta::seconds(i64::from(size / 2));
    let until = middle.format("&until=%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "pml_execute",
            "arguments": { "code": r#"return await mcp.json.parse({ data: "[1]" })"# },
        },
    });
    let headers = [
        key,
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let execute = request("POST", "/mcp", gateway.address, &headers, &body.to_string());
    vec![
        Case { name: ENTRY, requests: vec![get("/mcp/pml.mcp.json.parse".into())], proof: "json" },
        list(NEWEST, "", "\"success\""),
        list(MIDDLE, &until, "\"success\""),
        list(RARE, "&status=error", "\"error\""),
        of_each(ONE, "/api/v1/executions", "json:parse"),
        of_each(TRACE, "/api/v1/traces", "json:parse"),
        Case { name: EXECUTE, requests: vec![execute], proof: r#""status":"success""# },
    ]
}

fn measure(runtime: &Runtime, gateway: &Gateway, size: u32) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    let mut client =
        runtime.block_on(Client::connect(gateway.address)).map_err(|e| e.to_string())?;
    let cases = cases(gateway, size);
    for round in 0..WARM + ROUNDS {
        for case in &cases {
            let bytes = &case.requests[round as usize % case.requests.len()];
            let started = Instant::now();
            let reply = runtime.block_on(client.send(bytes)).map_err(|e| e.to_string())?;
            let took = started.elapsed();
            let body = String::from_utf8_lossy(&reply.body);
            if reply.status != 200 || !body.contains(case.proof) {
                return Err(format!("{}: {} {body}", case.name, reply.status).into());
            }
            if case.name == NEWEST {
                let listed: Value = serde_json::from_str(&body)?;
                let count = listed["items"].as_array().map(Vec::len);
                assert_eq!(count, Some(50), "a full page is measured");
            }
            if round >= WARM {
                rounds.add(case.name, took);
            }
        }
    }
    Ok(rounds)
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let gateway = Gateway::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("### Executions and their traces, by how many there are\n");
    println!("One request at a time, each kind in turn, on a kept connection.\n");
    let mut filled = 0;
    for size in SIZES {
        let started = Instant::now();
        add(&gateway, filled + 1, size)?;
        eprintln!("wrote {} executions in {:.0} s", size - filled, started.elapsed().as_secs_f64());
        filled = size;
        println!("{size} executions:\n");
        let names = [NEWEST, MIDDLE, RARE, ONE, TRACE, EXECUTE];
        let against: Vec<(&str, &[&str])> =
            names.iter().map(|name| (*name, &[ENTRY][..])).collect();
        println!("{}", measure(&runtime, &gateway, size)?.table(&against));
    }
    Ok(())
}
