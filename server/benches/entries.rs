//! `GET /mcp/{fqdn}`, 200 and 304, with more and more entries in the registry: the built program as a black box,
//! beside a bare axum handler.

#[path = "http/bare.rs"]
mod bare;
#[path = "http/client.rs"]
mod client;
#[path = "../../tests/benches/support/figures.rs"]
mod figures;
#[path = "http/gateway.rs"]
mod gateway;

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use tokio::runtime::Runtime;

use client::{Client, header, request};
use figures::Rounds;
use gateway::Gateway;

/// So many entries are in the registry, one after the other.
const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
/// So many different entries are asked for in turn, spread over all.
const ASKED: u32 = 64;
const ROUNDS: u32 = 2_000;
/// The first ones warm what is warm in a gateway that serves.
const WARM: u32 = 2 * ASKED;

const FOUND: &str = "`GET /mcp/{fqdn}`, 200";
const SAME: &str = "`GET /mcp/{fqdn}`, 304";
const OPEN: &str = "without a key, 200";
const BARE_GET: &str = "bare axum, GET";
const BARE_SAME: &str = "bare axum, 304";

/// Runs SQL on the private Postgres of the gateway.
fn sql(gateway: &Gateway, statements: &str) -> Result<(), Box<dyn Error>> {
    let postmaster = gateway.folder.join("data/postgres/data/postmaster.pid");
    let lines = std::fs::read_to_string(postmaster)?;
    let socket = lines.lines().nth(4).ok_or("Postgres does not run")?.to_owned();
    let psql = std::env::var_os("PML_PG_BIN")
        .map_or_else(|| "psql".into(), |bin| std::path::Path::new(&bin).join("psql"));
    let mut command = Command::new(psql);
    command.args(["-qX", "-v", "ON_ERROR_STOP=1", "-U", "pml", "-d", "pml", "-h", &socket]);
    let status = command.args(["-c", statements]).status()?;
    if status.success() { Ok(()) } else { Err("psql failed".into()) }
}

/// Adds public entries, each with the right hash of its content.
fn fill(gateway: &Gateway, from: u32, to: u32) -> Result<(), Box<dyn Error>> {
    sql(
        gateway,
        &format!(
            r#"insert into mcp_servers (org, project, namespace, content, integrity, visibility, owner)
            select 'local', 'default', 'bulk_' || n, content,
                'sha256-' || encode(sha256(convert_to(content, 'utf8')), 'base64'), 'public', 'bench'
            from generate_series({from}, {to}) n,
                format('{{"description":"Serves number %s, %s.","fqdn":"local.default.bulk_%s","proxy_to":"https://up.example/%s","tools":[{{"description":"Asks.","inputSchema":{{"type":"object"}},"name":"ask"}}],"type":"http","warnings":[]}}',
                    n, repeat(md5(n::text) || ' ', 12), n, n) content"#
        ),
    )?;
    sql(gateway, "vacuum analyze mcp_servers; ")?;
    sql(gateway, "vacuum analyze public_entries")
}

/// A request and what its answer must be.
struct Asked {
    name: &'static str,
    client: Client,
    /// One for each entry that is asked for.
    requests: Vec<Vec<u8>>,
    status: u16,
}

fn connect(runtime: &Runtime, address: SocketAddr) -> Result<Client, Box<dyn Error>> {
    runtime.block_on(Client::connect(address)).map_err(|error| error.to_string().into())
}

fn measure(
    runtime: &Runtime,
    serving: &Runtime,
    gateway: &Gateway,
    size: u32,
) -> Result<Rounds, Box<dyn Error>> {
    let bearer = format!("Bearer {}", gateway.key);
    let key = ("authorization", bearer.as_str());
    let address = gateway.address;
    let paths: Vec<String> = (0..ASKED)
        .map(|index| {
            format!(
                "/mcp/local.default.bulk_{}",
                1 + u64::from(index) * u64::from(size - 1) / u64::from(ASKED)
            )
        })
        .collect();
    let gets = |headers: &[(&str, &str)]| -> Vec<Vec<u8>> {
        paths.iter().map(|path| request("GET", path, address, headers, "")).collect()
    };
    let found = gets(&[key]);
    let mut client = connect(runtime, address)?;
    let mut same = Vec::new();
    let mut body = Vec::new();
    for (path, found) in paths.iter().zip(&found) {
        let reply = runtime.block_on(client.send(found)).map_err(|error| error.to_string())?;
        let tag = header(&reply.head, "etag").ok_or_else(|| format!("{path}: {}", reply.status))?;
        same.push(request("GET", path, address, &[key, ("if-none-match", tag)], ""));
        body = reply.body;
    }
    let bare = bare::serve(serving, Vec::new(), body)?;
    let of_bare = |path: &str| vec![request("GET", path, bare, &[key], "")];
    let mut all = Vec::new();
    for (name, address, requests, status) in [
        (BARE_GET, bare, of_bare("/entry"), 200),
        (FOUND, address, found, 200),
        (OPEN, address, gets(&[]), 200),
        (BARE_SAME, bare, of_bare("/same"), 304),
        (SAME, address, same, 304),
    ] {
        all.push(Asked { name, client: connect(runtime, address)?, requests, status });
    }
    let mut rounds = Rounds::default();
    for round in 0..ROUNDS + WARM {
        for asked in &mut all {
            let bytes = &asked.requests[round as usize % asked.requests.len()];
            let started = Instant::now();
            let reply =
                runtime.block_on(asked.client.send(bytes)).map_err(|error| error.to_string())?;
            let took = started.elapsed();
            if reply.status != asked.status {
                return Err(format!("{}: {}", asked.name, reply.status).into());
            }
            if round >= WARM {
                rounds.add(asked.name, took);
            }
        }
    }
    Ok(rounds)
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let gateway = Gateway::start()?;
    // The one who asks has a thread of its own, the bare handler as many as the gateway.
    let asking =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let serving = Runtime::new()?;
    println!("### One entry of many, beside a bare axum handler\n");
    println!(
        "Kept connections, {ASKED} entries in turn, each answered with as many bytes as the bare handler's.\n"
    );
    let mut filled = 0;
    for size in SIZES {
        fill(&gateway, filled + 1, size)?;
        filled = size;
        let rounds = measure(&asking, &serving, &gateway, size)?;
        println!("{size} entries:\n");
        println!(
            "{}",
            rounds.table(&[(FOUND, &[BARE_GET]), (OPEN, &[BARE_GET]), (SAME, &[BARE_SAME])])
        );
    }
    Ok(())
}
