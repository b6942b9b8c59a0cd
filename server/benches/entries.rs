//! `GET /mcp/{fqdn}`, 200 and 304, with more and more entries in the registry: the built program as a black box,
//! beside a bare axum handler.

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

/// So many entries are in the registry, one after the other.
const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
/// So many different entries are asked for in turn, spread over all.
const ASKED: u32 = 64;
const ROUNDS: u32 = 500;
/// So many of a kind are asked for in a row, one after the other, before it is another's turn: a gateway serves
/// requests one after the other, not one between two of everything else.
const ROW: usize = 8;
/// The first ones warm what is warm in a gateway that serves.
const WARM: u32 = 2 * ASKED;
/// So many entries are asked for once, when nothing remembers them.
const UNKNOWN: u32 = 300;
/// So many requests are under way at a time where several are, each connection asks so often a round, and so many
/// rounds there are.
const IN_FLIGHT: usize = 16;
const EACH: usize = 40;
const BLOCKS: u32 = 30;

const FOUND: &str = "`GET /mcp/{fqdn}`, 200";
const FIRST: &str = "the first time, 200";
const SAME: &str = "`GET /mcp/{fqdn}`, 304";
const OPEN: &str = "without a key, 200";
const BARE_GET: &str = "bare axum, GET";
const BARE_SAME: &str = "bare axum, 304";

/// A request and what its answer must be.
struct Asked {
    name: &'static str,
    clients: Vec<Client>,
    /// One for each entry that is asked for.
    requests: Vec<Vec<u8>>,
    status: u16,
}

impl Asked {
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

    /// Sends a request of its own on each of the first connections `each` times; returns the time an answer.
    fn ask(
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

/// Asks all of them, in turn, so many rounds.
fn in_turn(
    runtime: &Runtime,
    all: &mut [Asked],
    warm: u32,
    rounds: u32,
    (in_flight, each): (usize, usize),
) -> Result<Rounds, Box<dyn Error>> {
    let mut figures = Rounds::default();
    for round in 0..warm + rounds {
        for asked in &mut *all {
            let took = asked.ask(runtime, round, in_flight, each)?;
            if round >= warm {
                figures.add(asked.name, took);
            }
        }
    }
    Ok(figures)
}

/// Holds all threads of some processes on some processors, `0-1` for the first two.
fn hold(pids: &[u32], processors: &str) -> Result<(), Box<dyn Error>> {
    for pid in pids {
        let pid = pid.to_string();
        let told = Command::new("taskset").args(["-a", "-c", "-p", processors, &pid]).output()?;
        if !told.status.success() {
            return Err(format!("taskset: {}", String::from_utf8_lossy(&told.stderr)).into());
        }
    }
    Ok(())
}

/// Returns the processors that this process may run on.
fn processors() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.ok_or("the kernel does not tell our processors")?.trim().to_owned())
}

/// Returns the names of so many entries, spread over all.
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
    let mut ask =
        |bytes: &[u8]| runtime.block_on(client.send(bytes)).map_err(|error| error.to_string());
    // Of an entry that is asked for at no other time.
    let last = request("GET", &format!("/mcp/local.default.bulk_{size}"), address, &[key], "");
    let handler = Bare::start(&[], &ask(&last)?.body)?;
    let bare = handler.address;
    let of_bare = |path: &str| vec![request("GET", path, bare, &[key], "")];
    let asked =
        |name, address, requests, status| Asked::new(runtime, name, address, requests, status);

    println!("{size} entries:\n");
    let first = gets(UNKNOWN, &[key]);
    let mut all =
        [asked(BARE_GET, bare, of_bare("/entry"), 200)?, asked(FIRST, address, first, 200)?];
    let first = in_turn(runtime, &mut all, 0, UNKNOWN, (1, 1))?;
    println!("{}", first.table(&[(FIRST, &[BARE_GET])]));
    let mut same = Vec::new();
    for (path, found) in spread(ASKED, size).zip(gets(ASKED, &[key])) {
        let reply = ask(&found)?;
        let tag = header(&reply.head, "etag").ok_or_else(|| format!("{path}: {}", reply.status))?;
        same.push(request("GET", &path, address, &[key, ("if-none-match", tag)], ""));
    }
    let mut all = [
        asked(BARE_GET, bare, of_bare("/entry"), 200)?,
        asked(FOUND, address, gets(ASKED, &[key]), 200)?,
        asked(OPEN, address, gets(ASKED, &[]), 200)?,
        asked(BARE_SAME, bare, of_bare("/same"), 304)?,
        asked(SAME, address, same, 304)?,
    ];
    let against: &[(&str, &[&str])] =
        &[(FOUND, &[BARE_GET]), (OPEN, &[BARE_GET]), (SAME, &[BARE_SAME])];
    // On one processor nobody wakes another one up. Else it is chance whether whoever answers sleeps there or beside
    // the one who asks, for a whole run, and that is most of the time.
    let (pids, every) = ([std::process::id(), gateway.pid(), handler.pid()], processors()?);
    hold(&pids, every.split([',', '-']).next().unwrap_or("0"))?;
    println!("One at a time, all on one processor:\n");
    println!("{}", in_turn(runtime, &mut all, WARM, ROUNDS, (1, ROW))?.table(against));
    hold(&pids, &every)?;
    println!("{IN_FLIGHT} at a time, the time an answer:\n");
    println!("{}", in_turn(runtime, &mut all, 2, BLOCKS, (IN_FLIGHT, EACH))?.table(against));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    bare::serve_if_asked()?;
    let gateway = Gateway::start()?;
    let asking = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("### One entry of many, compared with a bare axum handler\n");
    println!(
        "Kept connections, {ASKED} entries in turn, each answered with as many bytes as the bare handler's.\n"
    );
    let mut filled = 0;
    for size in SIZES {
        bulk::add_servers(&gateway, filled + 1, size)?;
        filled = size;
        measure(&asking, &gateway, size)?;
    }
    Ok(())
}
