//! Measures the gateway's overhead on HTTP requests: the built program as a black box, compared with a bare axum
//! handler.

mod bare;
mod client;
mod compare;
#[path = "../../../tests/benches/support/figures.rs"]
mod figures;
mod gateway;
#[path = "../../../tests/benches/support/spent.rs"]
mod spent;

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use bare::Bare;
use client::{Client, Reply, header, request};
use figures::{Rounds, median, quantile, sorted, time};
use gateway::Gateway;

const PROGRAM: &str = r#"return await mcp.json.parse({ data: "[1]" })"#;
const ENTRY: &str = "/mcp/pml.mcp.json.parse";

const ROUNDS: usize = 300;
const FLOOD_ROUNDS: usize = 3;
const FLOOD: Duration = Duration::from_secs(2);

const EXECUTE: &str = "`pml_execute`: one server tool";
const CALL: &str = "`tools/call`: the same tool, directly";
const FOUND: &str = "`GET /mcp/{fqdn}`, 200";
const SAME: &str = "`GET /mcp/{fqdn}`, 304";
const BARE_POST: &str = "bare axum, POST";
const BARE_GET: &str = "bare axum, GET";
const BARE_SAME: &str = "bare axum, 304";

/// For each measured kind, in order: the kind that it is compared with.
const BASELINES: [Option<usize>; 7] = [None, Some(0), Some(0), None, Some(3), None, Some(5)];

/// One kind of request: its address, its bytes and the expected answer.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    address: SocketAddr,
    bytes: Arc<Vec<u8>>,
    status: u16,
    /// A part of every correct answer.
    proof: &'static [u8],
}

impl Kind {
    fn check(&self, reply: &Reply) -> Result<(), String> {
        let has_proof = self.proof.is_empty()
            || reply.body.windows(self.proof.len()).any(|window| window == self.proof);
        if reply.status == self.status && has_proof {
            return Ok(());
        }
        let body = String::from_utf8_lossy(&reply.body);
        Err(format!("{}: {} {body}", self.name, reply.status))
    }

    fn reply(&self, runtime: &Runtime) -> Result<Reply, Box<dyn Error>> {
        let reply = runtime
            .block_on(async { Client::connect(self.address).await?.send(&self.bytes).await })
            .map_err(|e| e.to_string())?;
        self.check(&reply)?;
        Ok(reply)
    }
}

/// The requests to the gateway.
struct Requests {
    execute: Kind,
    call: Kind,
    found: Kind,
    same: Kind,
}

impl Requests {
    fn into_kinds(self) -> [Kind; 4] {
        [self.execute, self.call, self.found, self.same]
    }
}

fn requests(gateway: &Gateway, runtime: &Runtime) -> Result<Requests, Box<dyn Error>> {
    let bearer = format!("Bearer {}", gateway.key);
    let address = gateway.address;
    let post = |name, tool: &str, arguments: Value, proof| {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments },
        });
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let bytes = request("POST", "/mcp", address, &headers, &body.to_string());
        Kind { name, address, bytes: Arc::new(bytes), status: 200, proof }
    };
    let get = |name, tag: Option<&str>, status| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(tag.map(|tag| ("if-none-match", tag)));
        let bytes = request("GET", ENTRY, address, &headers, "");
        Kind { name, address, bytes: Arc::new(bytes), status, proof: b"" }
    };
    let found = get(FOUND, None, 200);
    let head = found.reply(runtime)?.head;
    let tag = header(&head, "etag").ok_or("no ETag")?;
    Ok(Requests {
        execute: post(EXECUTE, "pml_execute", json!({ "code": PROGRAM }), br#""status":"success""#),
        call: post(CALL, "json:parse", json!({ "data": "[1]" }), br#""structuredContent""#),
        same: get(SAME, Some(tag), 304),
        found,
    })
}

/// Measures all kinds in turn, each on its own connection, one request at a time.
fn in_turn(runtime: &Runtime, kinds: &[Kind]) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    let mut clients = Vec::new();
    for kind in kinds {
        let client = runtime.block_on(Client::connect(kind.address)).map_err(|e| e.to_string())?;
        clients.push(client);
    }
    for round in 0..ROUNDS + 20 {
        for (kind, client) in kinds.iter().zip(&mut clients) {
            let started = Instant::now();
            let reply = runtime.block_on(client.send(&kind.bytes)).map_err(|e| e.to_string())?;
            let took = started.elapsed();
            kind.check(&reply)?;
            // The first rounds fill the gateway's caches, and are not measured.
            if round >= 20 {
                rounds.add(kind.name, took);
            }
            if kind.name == EXECUTE {
                // Meanwhile the sandbox child is replaced, so that this does not count for the next request.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(rounds)
}

/// The figures of one kind of request when several clients send it as fast as possible.
#[derive(Default)]
struct Flood {
    rate: Vec<f64>,
    /// The CPU seconds per answer of the gateway with all its children, and of its own process.
    cpu: Vec<f64>,
    own_cpu: Vec<f64>,
    /// The CPU seconds per answer of the children that have exited, which are those of the sandbox.
    reaped_cpu: Vec<f64>,
    took: Vec<f64>,
}

impl Flood {
    fn add(
        &mut self,
        runtime: &Runtime,
        kind: &Kind,
        clients: usize,
        length: Duration,
        pid: u32,
    ) -> Result<(), Box<dyn Error>> {
        let before =
            (spent::cpu_of_tree(pid), spent::cpu_of_process(pid), spent::cpu_of_reaped(pid));
        let started = Instant::now();
        let lanes: Vec<_> = (0..clients)
            .map(|_| {
                let kind = kind.clone();
                runtime.spawn(async move {
                    let mut client = Client::connect(kind.address).await?;
                    let mut took = Vec::new();
                    while started.elapsed() < length {
                        let sent = Instant::now();
                        let reply = client.send(&kind.bytes).await?;
                        took.push(sent.elapsed().as_secs_f64());
                        kind.check(&reply)?;
                    }
                    Ok::<_, Box<dyn Error + Send + Sync>>(took)
                })
            })
            .collect();
        let mut took = Vec::new();
        for lane in lanes {
            took.extend(runtime.block_on(lane)?.map_err(|e| e.to_string())?);
        }
        let (count, elapsed) = (took.len() as f64, started.elapsed());
        // Wait until the last children are reaped and replaced, which is a part of the cost.
        std::thread::sleep(Duration::from_millis(300));
        let cpu = spent::cpu_of_tree(pid).saturating_sub(before.0);
        let own = spent::cpu_of_process(pid).saturating_sub(before.1);
        let reaped = spent::cpu_of_reaped(pid).saturating_sub(before.2);
        self.rate.push(count / elapsed.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() / count);
        self.own_cpu.push(own.as_secs_f64() / count);
        self.reaped_cpu.push(reaped.as_secs_f64() / count);
        self.took.extend(took);
        Ok(())
    }

    fn row(&self, name: &str, clients: usize, baseline: Option<&Flood>) -> String {
        let took = sorted(&self.took);
        let ratio = baseline.map_or(String::new(), |baseline| {
            let ratio = median(self.rate.iter().zip(&baseline.rate).map(|(a, b)| a / b));
            format!("{ratio:.3}×")
        });
        let cpu = |values: &[f64]| match baseline {
            Some(_) => time(median(values.iter().copied())),
            None => String::new(),
        };
        format!(
            "| {name} | {clients} | {:.0} /s | {} | {} | {} | {} | {} | {ratio} |",
            median(self.rate.iter().copied()),
            time(quantile(&took, 0.5)),
            time(quantile(&took, 0.99)),
            cpu(&self.cpu),
            cpu(&self.own_cpu),
            cpu(&self.reaped_cpu),
        )
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    bare::serve_if_started_as_handler()?;
    let gateway = Gateway::start()?;
    let pid = gateway.pid();
    let client_runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    if let Some(folder) = std::env::var_os("PML_BENCH_OLD_BIN_DIR") {
        return compare::with_older(&client_runtime, &gateway, Path::new(&folder));
    }
    let requests = requests(&gateway, &client_runtime)?;
    let posted = requests.execute.reply(&client_runtime)?.body;
    let got = requests.found.reply(&client_runtime)?.body;
    let sizes = (posted.len(), got.len());
    let handler = Bare::start(&posted, &got)?;
    let bare = handler.address;
    let for_bare = |kind: &Kind, name, path: &str, method| {
        let text = String::from_utf8_lossy(&kind.bytes);
        let line = text.lines().next().unwrap_or_default();
        let bytes = text.replacen(line, &format!("{method} {path} HTTP/1.1"), 1).into_bytes();
        Kind { name, address: bare, bytes: Arc::new(bytes), proof: b"", ..kind.clone() }
    };
    let bare_post = for_bare(&requests.execute, BARE_POST, "/mcp", "POST");
    let bare_get = for_bare(&requests.found, BARE_GET, "/entry", "GET");
    let bare_same = for_bare(&requests.same, BARE_SAME, "/same", "GET");

    println!("### The gateway over HTTP, compared with a bare axum handler\n");
    println!(
        "Authenticated, kept connections, the database on the same machine. `pml_execute` answers {} bytes, \
         `GET /mcp/{{fqdn}}` {} bytes; the answers of the bare handler are as large.\n",
        sizes.0, sizes.1
    );
    let Requests { execute, call, found, same } = requests;
    let kinds = [bare_post, execute, call, bare_get, found, bare_same, same];
    let table = in_turn(&client_runtime, &kinds)?;
    println!(
        "{}",
        table.table(&[
            (EXECUTE, &[BARE_POST]),
            (CALL, &[BARE_POST]),
            (FOUND, &[BARE_GET]),
            (SAME, &[BARE_SAME]),
        ])
    );

    println!(
        "| request | clients | answers | median | p99 | CPU per answer, all processes | gateway only | exited children only | rate compared with the bare handler |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut memory = String::new();
    for clients in [8, 32] {
        let mut floods: Vec<Flood> = kinds.iter().map(|_| Flood::default()).collect();
        for _ in 0..FLOOD_ROUNDS {
            for (kind, flood) in kinds.iter().zip(&mut floods) {
                flood.add(&client_runtime, kind, clients, FLOOD, pid)?;
            }
        }
        for (at, baseline) in BASELINES.iter().enumerate() {
            let baseline = baseline.map(|at| &floods[at]);
            println!("{}", floods[at].row(kinds[at].name, clients, baseline));
        }
        memory = format!("{:.0} MiB", spent::resident_mib(pid));
    }
    println!("\nResident memory of `pml-server` itself after 32 clients at once: {memory}.\n");
    Ok(())
}
