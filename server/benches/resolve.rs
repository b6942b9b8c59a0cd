//! Measures the look-up of a program's tools: the registry in this process on the private Postgres of a gateway, with a
//! small and with a large catalog.

#[path = "http/bulk.rs"]
mod bulk;
#[path = "../../tests/benches/support/figures.rs"]
mod figures;
#[path = "http/gateway.rs"]
mod gateway;

use std::error::Error;
use std::time::{Duration, Instant};

use protocol::ToolId;
use registry::{Registry, Resolved, Tenant};
use server::bench::postgres_url;

use figures::Rounds;
use gateway::Gateway;

/// The numbers of servers with ten tools each in the catalog, in addition to those that ship with PML.
const SERVERS: [u32; 2] = [100, 10_000];
/// The number of tools of the program.
const TOOLS: u32 = 20;
const ROUNDS: u32 = 400;
/// Unmeasured rounds, which prepare the statements of each connection.
const WARM: u32 = 40;
/// The time limit for connecting the listener for changes.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Fewer rounds, because each reads all names.
const UNKNOWN_ROUNDS: u32 = 20;

const TOGETHER: &str = "20 tools of a program, together";
const SINGLY: &str = "the same 20, one look-up each";
const AGAIN: &str = "the same 20, just looked up";
const ONE: &str = "one tool";
const TRIP: &str = "one statement without a table, by the same pool";
const UNKNOWN: &str = "20 tools, one of them unknown: with suggestions";

fn check(resolved: &Resolved, found: usize, missing: usize) -> Result<(), String> {
    let counts = (resolved.tools.len(), resolved.missing.len());
    if counts == (found, missing) { Ok(()) } else { Err(format!("{counts:?}: {resolved:?}")) }
}

async fn measure(registry: &Registry, servers: u32) -> Result<[Rounds; 2], Box<dyn Error>> {
    let tenant = Tenant::of("local.default".parse()?);
    let mut rounds = Rounds::default();
    let mut unknown_rounds = Rounds::default();
    for round in 0..WARM + ROUNDS {
        // Different tools in each round, spread over all servers.
        let ids: Vec<ToolId> = (0..TOOLS)
            .map(|k| {
                let server = 1 + (round * 37 + k * (servers / TOOLS)) % servers;
                format!("many_{server}:ask_{}", (round + k) % 10).parse()
            })
            .collect::<Result<_, _>>()?;
        let warm = round < WARM;
        let mut note = |name, started: Instant| {
            if !warm {
                rounds.add(name, started.elapsed());
            }
        };
        let base = tenant.scope().cloned().unwrap_or_else(protocol::Scope::public);
        let started = Instant::now();
        registry.installation_id().await?;
        note(TRIP, started);
        let started = Instant::now();
        let one = registry.resolve(&tenant, &ids[..1]).await?;
        note(ONE, started);
        check(&one, 1, 0)?;
        let started = Instant::now();
        let together = registry.resolve(&tenant, &ids).await?;
        note(TOGETHER, started);
        check(&together, TOOLS as usize, 0)?;
        let started = Instant::now();
        for id in &ids {
            check(&registry.resolve(&tenant, std::slice::from_ref(id)).await?, 1, 0)?;
        }
        note(SINGLY, started);
        registry.resolve_cached(&tenant, &base, &ids).await?;
        let started = Instant::now();
        let again = registry.resolve_cached(&tenant, &base, &ids).await?;
        note(AGAIN, started);
        check(&again, TOOLS as usize, 0)?;
        if round < UNKNOWN_ROUNDS {
            let mut ids = ids;
            ids[0] = format!("many_{round}:asks").parse()?;
            let started = Instant::now();
            let found = registry.resolve(&tenant, &ids).await?;
            unknown_rounds.add(UNKNOWN, started.elapsed());
            check(&found, TOOLS as usize - 1, 1)?;
        }
    }
    Ok([rounds, unknown_rounds])
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    let gateway = Gateway::start()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let url = postgres_url(&gateway.folder.join("data"))?;
    let registry = runtime.block_on(Registry::connect_with(&url, 2))?;
    println!("### The look-up of a program's tools\n");
    let deadline = Instant::now() + CONNECT_LIMIT;
    while !registry.caches_entries() {
        if Instant::now() > deadline {
            return Err("the registry receives no notifications, so it caches nothing".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut filled = 0;
    for servers in SERVERS {
        bulk::add_tools(&gateway, filled + 1, servers)?;
        filled = servers;
        let [rounds, unknown] = runtime.block_on(measure(&registry, servers))?;
        println!("{} tools in the catalog:\n", servers * 10);
        println!("{}", rounds.table(&[(ONE, &[TRIP]), (TOGETHER, &[TRIP, ONE, SINGLY])]));
        println!("{}", unknown.table(&[]));
    }
    runtime.block_on(registry.close());
    Ok(())
}
