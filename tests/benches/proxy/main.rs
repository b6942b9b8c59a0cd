//! The cost of forwarding a call by `/mcp/proxy/{server}` and by `tools/call` with an id. The built gateway checks keys,
//! tenants and rules and records calls; it is compared with two gateways that do not, and with a minimal proxy. All of
//! them are in front of the same server: one on the official Python SDK, then one that answers immediately.
//!
//! The CPU time of the gateway includes its database and its sandboxes. For the others, only their own process counts,
//! without the server that one of them starts itself.
//!
//! ```sh
//! export PML_PG_BIN=$(deploy/find-postgres.sh)
//! cargo build --release -p server -p client-cli && cargo bench -p tests --bench proxy
//! ```

#![expect(clippy::unwrap_used, reason = "a bench without its servers has nothing to measure")]

mod bare;
#[path = "../support/figures.rs"]
mod figures;
mod quick;
mod side;
#[path = "../support/spent.rs"]
mod spent;
#[path = "../support/harness.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use figures::Rounds;
use side::{Peer, SESSIONS, Side};
use spent::{memory, program, tree};
use support::mcp_servers::{PYTHON, npm, python};
use support::server::Installation;
use support::upstream::{Entry, Everything};

const PASSED: &str = "`/mcp/proxy/{server}`";
const BY_ID: &str = "`tools/call` by id on `POST /mcp`";
const ALONE: [&str; 2] =
    ["passed through, the gateway's own process", "by id, the gateway's own process"];
const BARE: &str = "a proxy that does nothing else";
const SUPERGATEWAY: &str = "supergateway 4.0.0, its own process";
const FASTMCP: &str = "FastMCP proxy 4.1.2, its own process";

const ROUNDS: usize = 5;
/// The number of calls per sample: more where a call is cheaper or faster.
const CALLS: usize = 1_000;
const QUICK_CALLS: usize = 5_000;
const SUPERGATEWAY_CALLS: usize = 300;
const FASTMCP_CALLS: usize = 60;
/// The calls to warm up a side, and the numbers of calls in flight.
const WARM: usize = SESSIONS;
const IN_FLIGHT: [usize; 2] = [1, 16];

/// Starts a baseline, or returns `None` if it is missing on this machine. The panic has already printed the reason.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn if_available<T>(what: &str, make: impl FnOnce() -> T) -> Option<T> {
    let made = catch_unwind(AssertUnwindSafe(make)).ok();
    if made.is_none() {
        println!("**{what} is not available, so its rows are missing.**\n");
    }
    made
}

fn supergateway() -> Peer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/python/everything.py");
    let stdio = format!("{} {script} stdio", python(PYTHON).join("python").display());
    let index = npm("supergateway").join("node_modules/supergateway/dist/index.js");
    let index = index.to_str().unwrap();
    let speaks = ["--outputTransport", "streamableHttp", "--stateful"];
    let quiet = ["--port", "{port}", "--logLevel", "none"];
    Peer::start(Path::new("node"), &[&[index, "--stdio", &stdio][..], &speaks, &quiet].concat())
}

fn fastmcp(upstream: &str) -> Peer {
    let speaks = ["run", upstream, "--transport", "http", "--host", "127.0.0.1"];
    let quiet = ["--port", "{port}", "--no-banner", "--log-level", "ERROR"];
    Peer::start(&python(PYTHON).join("fastmcp"), &[&speaks[..], &quiet].concat())
}

fn bare(upstream: &str) -> Peer {
    Peer::start(&std::env::current_exe().unwrap(), &[bare::WORD, upstream, "{port}"])
}

/// Prints the cost of a call for each side.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench reports to its terminal")]
fn compare(sides: &[&Side], in_flight: usize) {
    let mut rounds = Rounds::default();
    for round in 0..=ROUNDS {
        for side in sides {
            let started = Instant::now();
            // The first round is the warm-up.
            let cost = side.cost(if round == 0 { WARM } else { side.calls }, in_flight);
            let took = started.elapsed().as_secs_f64();
            eprintln!(
                "{in_flight} at a time, round {round} of {ROUNDS}, {}: {took:.1} s",
                side.name
            );
            if round > 0 {
                rounds.add(side.name, cost[0]);
                side.alone.into_iter().for_each(|name| rounds.add(name, cost[1]));
            }
        }
    }
    let against = &[BARE, SUPERGATEWAY, FASTMCP][..];
    println!("{}", rounds.table(&[(PASSED, against), (BY_ID, against)]));
}

/// Prints the memory of each side while its sessions and their streams are open.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn print_memory(sides: &[&Side], gateway: u32) {
    println!(
        "| {SESSIONS} sessions, each with its stream | resident | private | with its part of what is shared |"
    );
    println!("|---|---:|---:|---:|");
    let (mut sandboxes, mut postgres) = (Vec::new(), Vec::new());
    for pid in tree(gateway).into_iter().filter(|pid| *pid != gateway) {
        if program(pid) == "postgres" { &mut postgres } else { &mut sandboxes }.push(pid);
    }
    let mut rows = vec![
        ("`pml-server`, its own process".to_owned(), vec![gateway]),
        (
            format!("its {} other processes, mostly sealed children that wait", sandboxes.len()),
            sandboxes,
        ),
        (format!("its private Postgres, {} processes", postgres.len()), postgres),
    ];
    let others = sides.iter().filter(|side| side.pid != gateway);
    rows.extend(others.map(|side| (side.name.to_owned(), vec![side.pid])));
    for (name, pids) in rows {
        let Some(used) = memory(&pids) else {
            println!("| {name} | only root may look | | |");
            continue;
        };
        let mib = [used.resident, used.private, used.proportional].map(|kib| kib as f64 / 1024.0);
        println!("| {name} | {:.1} MiB | {:.1} MiB | {:.1} MiB |", mib[0], mib[1], mib[2]);
    }
    println!();
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, upstream, port] = &words[..]
        && word == bare::WORD
    {
        return bare::serve(upstream, port);
    }
    println!("### CPU time of one forwarded `tools/call`\n");
    let home = Installation::new();
    let server = home.start();
    let pid = server.pid().number;
    let ours = |name, alone, path: &str, tool: &str, calls| Side {
        name,
        url: format!("{}{path}", server.url()),
        key: Some(home.first_key()),
        pid,
        alone: Some(alone),
        tool: tool.to_owned(),
        calls,
        sessions: Vec::new(),
        streams: Vec::new(),
    };
    let supergateway = if_available("supergateway", supergateway);
    let supergateway =
        supergateway.as_ref().map(|peer| peer.side(SUPERGATEWAY, SUPERGATEWAY_CALLS).open());
    let python = if_available("the server on the Python SDK", Everything::start);
    let quick = quick::start();
    let upstreams = [
        ("sdk", "A server on the Python SDK", python.as_ref().map(|python| &python.url), CALLS),
        ("quick", "A server that answers at once", Some(&quick), QUICK_CALLS),
    ];
    for (namespace, what, url, calls) in upstreams {
        let Some(url) = url else { continue };
        let mut entry = Entry::http("local.default", namespace, url);
        let schema = json!({ "type": "object" });
        entry.tools =
            vec![json!({ "name": "echo", "description": "Echoes", "inputSchema": schema })];
        entry.publish(&home);
        let bare = bare(url);
        let fastmcp = if_available("the FastMCP proxy", || fastmcp(url));
        let path = format!("/mcp/proxy/{namespace}");
        let mut sides = vec![
            ours(PASSED, ALONE[0], &path, "echo", calls).open(),
            // `/mcp` has no sessions: the gateway itself keeps the session with the server.
            ours(BY_ID, ALONE[1], "/mcp", &format!("{namespace}:echo"), calls),
            bare.side(BARE, calls).open(),
        ];
        sides.extend(fastmcp.as_ref().map(|peer| peer.side(FASTMCP, FASTMCP_CALLS).open()));
        let sides: Vec<&Side> = sides.iter().chain(&supergateway).collect();
        for in_flight in IN_FLIGHT {
            println!("{what}, asked by each of them; {in_flight} at a time:\n");
            compare(&sides, in_flight);
        }
        if calls == CALLS {
            print_memory(&sides, pid);
        }
    }
}
