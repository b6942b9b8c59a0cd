//! The time until an MCP server that `pml` starts has listed its tools: sealed, and not sealed.

#![expect(clippy::unwrap_used, reason = "a bench without its parts has nothing to measure")]
#![expect(clippy::print_stdout, reason = "a bench reports to its terminal")]

#[path = "../../tests/benches/support/figures.rs"]
mod figures;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_cli::testing::{
    Environment, HostList, ListOf, LocalServers, Machine, Reachable, Seal, ServerSpec, Supervisor,
    Timing, Workspace,
};
use figures::{Rounds, time};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 60;

const FREE: &str = "a server in Python, not sealed";
const CLOSED: &str = "the same, sealed without sockets (`\"network\": []`)";
const PROXIED: &str = "the same, sealed with a proxy that allows nothing (without `network`)";

/// The servers of a process, and a namespace for each start.
struct Bench {
    servers: LocalServers,
    folder: tempfile::TempDir,
    started: usize,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let of_user = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
        let environment = Environment::of(["PATH", "HOME"].iter().filter_map(|name| of_user(name)));
        let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_pml"));
        let (timing, records) = (Timing::default(), folder.path());
        let servers =
            LocalServers::new(workspace, Arc::new(environment), supervisor, timing, records);
        Self { servers, folder, started: 0 }
    }

    /// Starts a server and lists its tools.
    async fn start(&mut self, network: Option<Reachable>) -> Duration {
        self.started += 1;
        let name = format!("server{}", self.started);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/reaches_out.py");
        let seal = network.map(|network| Seal {
            network,
            home: self.folder.path().join("home"),
            packages: self.folder.path().join("packages"),
            reads_named: true,
            machine: Machine::OfUser,
            bounds: None,
        });
        let spec = ServerSpec {
            command: "python3".to_owned(),
            args: vec![script.canonicalize().unwrap().display().to_string()],
            seal,
            ..ServerSpec::default()
        };
        self.servers.add(&name, spec).unwrap();
        let started = Instant::now();
        let tools = self.servers.tools(&name, &|| Ok(()), &CancellationToken::new()).await.unwrap();
        assert!(!tools.is_empty());
        started.elapsed()
    }
}

fn no_hosts() -> Reachable {
    Reachable::Hosts(HostList { hosts: Vec::new(), of: ListOf::Nowhere })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let mut bench = Bench::new();
        // Also finds out once for the process whether this system allows a network of its own.
        bench.start(Some(no_hosts())).await;
        rounds.add(FREE, bench.start(None).await);
        rounds.add(CLOSED, bench.start(Some(Reachable::Nothing)).await);
        rounds.add(PROXIED, bench.start(Some(no_hosts())).await);
        bench.servers.shutdown().await;
    }
    println!("### Sealed servers\n");
    println!("{}", rounds.table(&[(CLOSED, &[FREE]), (PROXIED, &[FREE])]));
    println!(
        "Sealing a server costs {} without sockets, and {} with a proxy.",
        time(rounds.difference(CLOSED, FREE)),
        time(rounds.difference(PROXIED, FREE))
    );
}
