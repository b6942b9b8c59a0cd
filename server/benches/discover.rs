//! Measures the search for tools, with catalogs of different sizes: the registry in this process on the private
//! Postgres of a gateway, and the gateway's answer to `pml_discover` over HTTP.

#[path = "http/bulk.rs"]
mod bulk;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "this bench reads only the bodies of answers")]
mod client;
#[path = "../../tests/benches/support/figures.rs"]
mod figures;
#[path = "http/gateway.rs"]
mod gateway;

use std::error::Error;
use std::time::{Duration, Instant};

use client::{Client, request};
use figures::Rounds;
use gateway::Gateway;
use protocol::Routing;
use registry::{DiscoverQuery, NewCapability, Registry, Tenant};
use serde_json::{Value, json};
use server::bench::postgres_url;

/// The numbers of servers with ten tools each, in addition to those that ship with PML.
const SERVERS: [u32; 3] = [100, 1_000, 10_000];
const ROUNDS: u32 = 200;
/// Unmeasured rounds, which prepare the statements of each connection.
const WARM: u32 = 20;
/// Fewer rounds, because each reads all tools.
const FIRST_ROUNDS: u32 = 5;
/// The time limit for connecting the listener for changes.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The number of requested tools, which is the default of `pml_discover`.
const LIMIT: u32 = 10;

/// The time within which a notification of a change arrives.
const SETTLED: Duration = Duration::from_millis(20);
const EVERYDAY: &str = "create an invoice for a customer";

const TRIP: &str = "one statement without a table, by the same pool";
const ONE: &str = "one tool looked up by its id";
const FIRST: &str = "the first search of a gateway, which reads all tools";
const CHANGED: &str = "everyday words, after some entry was changed";
const HTTP: &str = "everyday words, over HTTP";

enum Search {
    Words(&'static str),
    Pattern(&'static str),
    Name(&'static str),
}

/// The searches, each with the minimum number of tools that it must find.
const CASES: [(&str, Search, usize); 9] = [
    ("a word of one tool", Search::Words("wordd3d9446802a44259755d38e6d163e820"), 1),
    ("everyday words", Search::Words(EVERYDAY), 10),
    ("one word that thousands have", Search::Words("read"), 10),
    (
        "a long intent",
        Search::Words(
            "find the message of a customer about a payment, then send a report by mail and update the calendar event",
        ),
        10,
    ),
    ("misspelt words", Search::Words("craete invioce"), 10),
    ("words that nothing has", Search::Words("xyzzy frobnicate"), 0),
    ("a pattern, `*:create_*`", Search::Pattern("*:create_*"), 10),
    ("a pattern, `svc_77:*`", Search::Pattern("svc_77:*"), 10),
    ("a namespace, `svc_77`", Search::Name("svc_77"), 10),
];

fn query(search: &Search) -> DiscoverQuery {
    match search {
        Search::Words(text) => DiscoverQuery::Text((*text).to_owned()),
        Search::Pattern(text) => DiscoverQuery::Pattern((*text).to_owned()),
        Search::Name(text) => DiscoverQuery::Name((*text).to_owned()),
    }
}

fn program(round: u32) -> Result<NewCapability, Box<dyn Error>> {
    Ok(NewCapability {
        id: "bench:probe".parse()?,
        version: None,
        visibility: None,
        description: format!("Round {round}"),
        input_schema: json!({ "type": "object" }),
        code: format!("return {round}"),
        calls: Vec::new(),
        mcp_deps: Vec::new(),
        routing: Routing::Server,
    })
}

async fn listening(registry: &Registry) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    while !registry.caches_entries() {
        if Instant::now() > deadline {
            return Err("the registry receives no notifications, so it caches nothing".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn measure(
    registry: &Registry,
    url: &str,
    gateway: &Gateway,
) -> Result<[Rounds; 2], Box<dyn Error>> {
    let tenant = Tenant::of("local.default".parse()?);
    let mut rounds = Rounds::default();
    let mut first = Rounds::default();
    let publisher = Tenant::member("local.default".parse()?, "bench".parse()?);
    let everyday = query(&Search::Words(EVERYDAY));
    let found = registry.discover(&tenant, &query(&Search::Name("svc_2")), 1).await?;
    let id = found.first().ok_or("the tools are not there")?.id.clone();
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "pml_discover", "arguments": { "intent": EVERYDAY } },
    });
    let mut client = Client::connect(gateway.address).await.map_err(|error| error.to_string())?;
    let key = format!("Bearer {}", gateway.key);
    let headers = [
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let message = request("POST", "/mcp", gateway.address, &headers, &body.to_string());
    for round in 0..WARM + ROUNDS {
        let mut note = |name, started: Instant| {
            if round >= WARM {
                rounds.add(name, started.elapsed());
            }
        };
        let started = Instant::now();
        registry.installation_id().await?;
        note(TRIP, started);
        let started = Instant::now();
        let known = registry.resolve(&tenant, std::slice::from_ref(&id)).await?;
        note(ONE, started);
        if known.tools.len() != 1 {
            return Err(format!("{known:?}").into());
        }
        for (name, search, least) in &CASES {
            let query = query(search);
            let started = Instant::now();
            let tools = registry.discover(&tenant, &query, LIMIT).await?;
            note(name, started);
            if tools.len() < *least {
                return Err(format!("{name}: {} tools", tools.len()).into());
            }
        }
        let started = Instant::now();
        let reply = client.send(&message).await.map_err(|error| error.to_string())?;
        note(HTTP, started);
        let answer: Value = serde_json::from_slice(&reply.body)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&reply.body)))?;
        let tools = &answer["result"]["structuredContent"]["tools"];
        if reply.status != 200 || tools.as_array().is_none_or(|tools| tools.len() != LIMIT as usize)
        {
            return Err(format!("{} {answer}", reply.status).into());
        }
        registry.publish(&publisher, program(round)?).await?;
        let started = Instant::now();
        registry.discover(&tenant, &everyday, LIMIT).await?;
        note(CHANGED, started);
        // Wait for the notification and update the cache, so that neither is measured in the next round.
        tokio::time::sleep(SETTLED).await;
        registry.discover(&tenant, &everyday, LIMIT).await?;
    }
    for _ in 0..FIRST_ROUNDS {
        let new = Registry::connect_with(url, 2).await?;
        listening(&new).await?;
        let started = Instant::now();
        new.discover(&tenant, &everyday, LIMIT).await?;
        first.add(FIRST, started.elapsed());
        new.close().await;
    }
    Ok([rounds, first])
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let gateway = Gateway::start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let url = postgres_url(&gateway.folder.join("data"))?;
    let registry = runtime.block_on(Registry::connect_with(&url, 2))?;
    println!("### Finding tools\n");
    runtime.block_on(listening(&registry))?;
    let mut filled = 0;
    for servers in SERVERS {
        bulk::add_worded_tools(&gateway, filled + 1, servers)?;
        filled = servers;
        let before = resident(std::process::id());
        let [rounds, first] = runtime.block_on(measure(&registry, &url, &gateway))?;
        println!("{} tools, found {LIMIT} at a time:\n", servers * 10);
        let names = CASES.iter().map(|(name, ..)| *name).chain([CHANGED, HTTP]);
        let against: Vec<(&str, &[&str])> = names.map(|name| (name, &[ONE][..])).collect();
        println!("{}", rounds.table(&against));
        println!("{}", first.table(&[]));
        let gateways = resident(gateway.pid());
        println!(
            "Memory of the gateway's process: {gateways:.0} MiB; of this one: {before:.0} MiB before, {:.0} MiB after.\n",
            resident(std::process::id())
        );
    }
    runtime.block_on(registry.close());
    Ok(())
}

/// Returns the resident memory of a process, in MiB.
fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
    kib.map_or(f64::NAN, |kib: f64| kib / 1024.0)
}
