//! Measures `GET /mcp/{fqdn}`, 200 and 304, with registries of different sizes: the built program as a black box,
//! compared with a bare axum handler.

#[path = "http/bare.rs"]
mod bare;
#[path = "http/bulk.rs"]
mod bulk;
#[path = "http/client.rs"]
mod client;
#[path = "../../tests/benches/support/figures.rs"]
mod figures;
#[path = "http/gateway.rs"]
mod gateway;

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::runtime::Runtime;

use bare::Bare;
use client::{Client, header, request};
use figures::Rounds;
use gateway::Gateway;

/// The numbers of entries in the registry.
const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
/// The number of different entries that are requested in turn, spread over all entries.
const REQUESTED: u32 = 64;
const ROUNDS: u32 = 500;
/// The number of requests of one kind in a row, before those of the next kind. Alternating after each request would
/// evict the caches of the processor more than in a gateway that only serves.
const ROW: usize = 8;
/// Unmeasured rounds, which fill the gateway's caches.
const WARM: u32 = 2 * REQUESTED;
/// The number of entries that are requested once, while they are not cached.
const UNCACHED: u32 = 300;
/// Of the concurrent measurement: the number of connections, the requests of each connection per round, and the rounds.
const IN_FLIGHT: usize = 16;
const EACH: usize = 40;
const BLOCKS: u32 = 30;

const FOUND: &str = "`GET /mcp/{fqdn}`, 200";
const FIRST: &str = "the first time, 200";
const SAME: &str = "`GET /mcp/{fqdn}`, 304";
const OPEN: &str = "without a key, 200";
const BARE_GET: &str = "bare axum, GET";
const BARE_SAME: &str = "bare axum, 304";

/// A kind of request, and the expected status of its answers.
struct Case {
    name: &'static str,
    clients: Vec<Client>,
    /// One request for each requested entry.
    requests: Vec<Vec<u8>>,
    status: u16,
}

impl Case {
    fn new(
        runtime: &Runtime,
        name: &'static str,
        address: SocketAddr,
        requests: Vec<Vec<u8>>,
        status: u16,
    ) -> Result<Self, Box<dyn Error>> {
        let connect = try_join_all((0..IN_FLIGHT).map(|_| Client::connect(address)));
        let clients = runtime.block_on(connect).map_err(|error| error.to_string())?;
        Ok(Self { name, clients, requests, status })
    }

    /// Sends `each` requests on each of the first `in_flight` connections; returns the time per answer.
    fn measure(
        &mut self,
        runtime: &Runtime,
        number: u32,
        in_flight: usize,
        each: usize,
    ) -> Result<Duration, Box<dyn Error>> {
        let (name, status, requests) = (self.name, self.status, &self.requests);
        let lanes =
            self.clients[..in_flight].iter_mut().enumerate().map(|(lane, client)| async move {
                for turn in 0..each {
                    let at = number as usize + lane * each + turn;
                    let reply = client.send(&requests[at % requests.len()]).await?;
                    if reply.status != status {
                        return Err(format!("{name}: {}", reply.status).into());
                    }
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            });
        let started = Instant::now();
        runtime.block_on(try_join_all(lanes)).map_err(|error| error.to_string())?;
        Ok(started.elapsed().div_f64((in_flight * each) as f64))
    }
}

/// Measures all cases in turn, in each round.
fn in_turn(
    runtime: &Runtime,
    all: &mut [Case],
    warm: u32,
    rounds: u32,
    (in_flight, each): (usize, usize),
) -> Result<Rounds, Box<dyn Error>> {
    let mut figures = Rounds::default();
    for round in 0..warm + rounds {
        for case in &mut *all {
            let took = case.measure(runtime, round, in_flight, each)?;
            if round >= warm {
                figures.add(case.name, took);
            }
        }
    }
    Ok(figures)
}

/// Restricts all threads of some processes to some processors, `0-1` for the first two.
fn pin(pids: &[u32], processors: &str) -> Result<(), Box<dyn Error>> {
    for pid in pids {
        let pid = pid.to_string();
        let output = Command::new("taskset").args(["-a", "-c", "-p", processors, &pid]).output()?;
        if !output.status.success() {
            return Err(format!("taskset: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
    }
    Ok(())
}

/// Returns the processors that this process may run on.
fn processors() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.ok_or("the kernel does not report the allowed processors")?.trim().to_owned())
}

/// Returns the paths of `count` entries, spread over all.
fn spread(count: u32, size: u32) -> impl Iterator<Item = String> {
    (0..count).map(move |index| {
        let number = 1 + u64::from(index) * u64::from(size - 1) / u64::from(count);
        format!("/mcp/local.default.bulk_{number}")
    })
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn measure(runtime: &Runtime, gateway: &Gateway, size: u32) -> Result<(), Box<dyn Error>> {
    let bearer = format!("Bearer {}", gateway.key);
    let key = ("authorization", bearer.as_str());
    let address = gateway.address;
    let gets = |count: u32, headers: &[(&str, &str)]| -> Vec<Vec<u8>> {
        spread(count, size).map(|path| request("GET", &path, address, headers, "")).collect()
    };
    let mut client =
        runtime.block_on(Client::connect(address)).map_err(|error| error.to_string())?;
    let mut send =
        |bytes: &[u8]| runtime.block_on(client.send(bytes)).map_err(|error| error.to_string());
    // An entry that is not requested otherwise.
    let last = request("GET", &format!("/mcp/local.default.bulk_{size}"), address, &[key], "");
    let handler = Bare::start(&[], &send(&last)?.body)?;
    let bare = handler.address;
    let of_bare = |path: &str| vec![request("GET", path, bare, &[key], "")];
    let case =
        |name, address, requests, status| Case::new(runtime, name, address, requests, status);

    println!("{size} entries:\n");
    let first = gets(UNCACHED, &[key]);
    let mut all =
        [case(BARE_GET, bare, of_bare("/entry"), 200)?, case(FIRST, address, first, 200)?];
    let first = in_turn(runtime, &mut all, 0, UNCACHED, (1, 1))?;
    println!("{}", first.table(&[(FIRST, &[BARE_GET])]));
    let mut same = Vec::new();
    for (path, found) in spread(REQUESTED, size).zip(gets(REQUESTED, &[key])) {
        let reply = send(&found)?;
        let tag = header(&reply.head, "etag").ok_or_else(|| format!("{path}: {}", reply.status))?;
        same.push(request("GET", &path, address, &[key, ("if-none-match", tag)], ""));
    }
    let mut all = [
        case(BARE_GET, bare, of_bare("/entry"), 200)?,
        case(FOUND, address, gets(REQUESTED, &[key]), 200)?,
        case(OPEN, address, gets(REQUESTED, &[]), 200)?,
        case(BARE_SAME, bare, of_bare("/same"), 304)?,
        case(SAME, address, same, 304)?,
    ];
    let against: &[(&str, &[&str])] =
        &[(FOUND, &[BARE_GET]), (OPEN, &[BARE_GET]), (SAME, &[BARE_SAME])];
    // All on one processor, so that no processor has to be woken up for an answer. Otherwise most of the time is spent
    // on that, or not, depending on where the scheduler happens to place the processes for a whole run.
    let (pids, every) = ([std::process::id(), gateway.pid(), handler.pid()], processors()?);
    pin(&pids, every.split([',', '-']).next().unwrap_or("0"))?;
    println!("One at a time, all on one processor:\n");
    println!("{}", in_turn(runtime, &mut all, WARM, ROUNDS, (1, ROW))?.table(against));
    pin(&pids, &every)?;
    println!("{IN_FLIGHT} at a time, the time per answer:\n");
    println!("{}", in_turn(runtime, &mut all, 2, BLOCKS, (IN_FLIGHT, EACH))?.table(against));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    bare::serve_if_started_as_handler()?;
    let gateway = Gateway::start()?;
    let client_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("### One entry of many, compared with a bare axum handler\n");
    println!(
        "Kept connections, {REQUESTED} entries in turn, each answer as large as that of the bare handler.\n"
    );
    let mut filled = 0;
    for size in SIZES {
        bulk::add_servers(&gateway, filled + 1, size)?;
        filled = size;
        measure(&client_runtime, &gateway, size)?;
    }
    Ok(())
}
