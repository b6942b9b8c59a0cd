//! What the gateway adds to an HTTP request: the built program as a black box, beside a bare axum handler.

mod bare;
mod client;
#[path = "../../../tests/benches/support/figures.rs"]
mod figures;
mod gateway;
#[path = "../../../tests/benches/support/spent.rs"]
mod spent;

use std::error::Error;
use std::net::SocketAddr;
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

/// For each of the kinds that are measured, in order: which one it is compared with.
const BASELINES: [Option<usize>; 7] = [None, Some(0), Some(0), None, Some(3), None, Some(5)];

/// One kind of request: where it goes, its bytes, what the answer must be.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    address: SocketAddr,
    bytes: Arc<Vec<u8>>,
    status: u16,
    /// Stands in every right answer.
    proof: &'static [u8],
}

impl Kind {
    fn check(&self, reply: &Reply) -> Result<(), String> {
        let proven = self.proof.is_empty()
            || reply.body.windows(self.proof.len()).any(|window| window == self.proof);
        if reply.status == self.status && proven {
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
struct Asked {
    execute: Kind,
    call: Kind,
    found: Kind,
    same: Kind,
}

fn asked(gateway: &Gateway, runtime: &Runtime) -> Result<Asked, Box<dyn Error>> {
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
    Ok(Asked {
        execute: post(EXECUTE, "pml_execute", json!({ "code": PROGRAM }), br#""status":"success""#),
        call: post(CALL, "json:parse", json!({ "data": "[1]" }), br#""structuredContent""#),
        same: get(SAME, Some(tag), 304),
        found,
    })
}

/// One after another on one connection each, in turn.
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
            // The first ones warm what is warm in a gateway that serves.
            if round >= 20 {
                rounds.add(kind.name, took);
            }
            if kind.name == EXECUTE {
                // Its sandbox child is replaced in the meantime; the next one shall not pay for it.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(rounds)
}

/// How one kind of request does when several clients send it as fast as they can.
#[derive(Default)]
struct Flood {
    rate: Vec<f64>,
    /// Seconds of the whole tree, and of the gateway's own process, for each answer.
    cpu: Vec<f64>,
    own_cpu: Vec<f64>,
    /// The same of the children that have ended: those of the sandbox.
    reaped_cpu: Vec<f64>,
    took: Vec<f64>,
}

impl Flood {
    fn add(
        &mut self,
        runtime: &Runtime,
        kind: &Kind,
        clients: usize,
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
                    while started.elapsed() < FLOOD {
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
        let (count, length) = (took.len() as f64, started.elapsed());
        // The last children are still being reaped and replaced; that is part of the price.
        std::thread::sleep(Duration::from_millis(300));
        let cpu = spent::cpu_of_tree(pid).saturating_sub(before.0);
        let own = spent::cpu_of_process(pid).saturating_sub(before.1);
        let reaped = spent::cpu_of_reaped(pid).saturating_sub(before.2);
        self.rate.push(count / length.as_secs_f64());
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
    bare::serve_if_asked()?;
    let gateway = Gateway::start()?;
    let pid = gateway.pid();
    let asking =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let asked = asked(&gateway, &asking)?;
    let posted = asked.execute.reply(&asking)?.body;
    let got = asked.found.reply(&asking)?.body;
    let sizes = (posted.len(), got.len());
    let handler = Bare::start(&posted, &got)?;
    let bare = handler.address;
    let elsewhere = |kind: &Kind, name, path: &str, method| {
        let text = String::from_utf8_lossy(&kind.bytes);
        let line = text.lines().next().unwrap_or_default();
        let bytes = text.replacen(line, &format!("{method} {path} HTTP/1.1"), 1).into_bytes();
        Kind { name, address: bare, bytes: Arc::new(bytes), proof: b"", ..kind.clone() }
    };
    let bare_post = elsewhere(&asked.execute, BARE_POST, "/mcp", "POST");
    let bare_get = elsewhere(&asked.found, BARE_GET, "/entry", "GET");
    let bare_same = elsewhere(&asked.same, BARE_SAME, "/same", "GET");

    println!("### The gateway over HTTP, compared with a bare axum handler\n");
    println!(
        "Authenticated, kept connections, the database on the same machine. `pml_execute` answers {} bytes, \
         `GET /mcp/{{fqdn}}` {} bytes; the bare handler answers as many.\n",
        sizes.0, sizes.1
    );
    let Asked { execute, call, found, same } = asked;
    let kinds = [bare_post, execute, call, bare_get, found, bare_same, same];
    let table = in_turn(&asking, &kinds)?;
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
        "| request | clients | answers | median | p99 | CPU each, whole tree | of it the gateway | of it ended children | of the bare handler's rate |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut memory = String::new();
    for clients in [8, 32] {
        let mut floods: Vec<Flood> = kinds.iter().map(|_| Flood::default()).collect();
        for _ in 0..FLOOD_ROUNDS {
            for (kind, flood) in kinds.iter().zip(&mut floods) {
                flood.add(&asking, kind, clients, pid)?;
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
