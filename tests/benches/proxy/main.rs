//! What it costs to pass a call on: `/mcp/proxy/{server}` of the built gateway, with its key, its tenant, its rules
//! and its record, beside two gateways that have none of them, all in front of the same fixture server.
//!
//! Counted is the CPU time of the gateway with its database and its sandboxes; of the others that of their own
//! process, without the server that one of them starts itself.
//!
//! ```sh
//! export PML_PG_BIN=$(deploy/find-postgres.sh)
//! cargo build --release -p server -p client-cli && cargo bench -p tests --bench proxy
//! ```

#![expect(clippy::unwrap_used, reason = "a bench without its servers has nothing to measure")]

#[path = "../support/figures.rs"]
mod figures;
#[path = "../support/spent.rs"]
mod spent;
#[path = "../support/harness.rs"]
mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use figures::Rounds;
use spent::{cpu_of_process, cpu_of_tree, resident_mib};
use support::guard::{self, Guarded};
use support::http::{Reply, send};
use support::mcp_servers::{PYTHON, npm, python};
use support::server::Installation;
use support::upstream::{Entry, Everything};
use support::{PATIENCE, poll};

const PML: &str = "`/mcp/proxy/{server}`, the gateway with its database";
const SUPERGATEWAY: &str = "supergateway 4.0.0, its own process";
const FASTMCP: &str = "FastMCP proxy 4.1.2, its own process";

const ROUNDS: usize = 7;
/// The clock of a process has ticks of 10 ms: so many calls make enough of them.
const CALLS: usize = 1_000;
const SESSIONS: usize = 32;

/// A gateway with sessions open.
struct Side {
    name: &'static str,
    url: String,
    key: Option<String>,
    pid: u32,
    whole_tree: bool,
    sessions: Vec<String>,
}

impl Side {
    fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        send("POST", &self.url, &headers, Some(message.to_string().into_bytes()))
    }

    fn open_sessions(&mut self) {
        let client = json!({ "name": "bench", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        for _ in 0..SESSIONS {
            let reply = self.post(None, &hello);
            assert_eq!(
                reply.status,
                200,
                "{}: {}",
                self.name,
                String::from_utf8_lossy(&reply.body)
            );
            let session = reply.header("mcp-session-id").to_owned();
            assert!(!session.is_empty(), "{} opens no session", self.name);
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            assert_eq!(self.post(Some(&session), &told).status, 202, "{}", self.name);
            self.sessions.push(session);
        }
    }

    fn call(&self, number: usize) {
        let params = json!({ "name": "echo", "arguments": { "message": "hello" } });
        let call =
            json!({ "jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params });
        let reply = self.post(Some(&self.sessions[number % SESSIONS]), &call);
        let body = String::from_utf8_lossy(&reply.body);
        assert!(
            reply.status == 200 && body.contains("hello"),
            "{}: {} {body}",
            self.name,
            reply.status
        );
    }

    fn cpu(&self) -> Duration {
        if self.whole_tree { cpu_of_tree(self.pid) } else { cpu_of_process(self.pid) }
    }
}

/// A gateway of somebody else, which runs.
struct Peer {
    program: Arc<Guarded>,
    url: String,
}

impl Peer {
    /// Starts it on a free port, which `{port}` stands for.
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        let home = guard::folder("b");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home);
        command.args(arguments.iter().map(|word| word.replace("{port}", &free.to_string())));
        let program = Guarded::start(&command, &home.join("log"));
        poll("a gateway to listen", PATIENCE, || {
            std::net::TcpStream::connect(("127.0.0.1", free)).ok().map(drop)
        });
        Self { program, url: format!("http://127.0.0.1:{free}/mcp") }
    }

    fn side(&self, name: &'static str) -> Side {
        let pid = self.program.pid().number;
        Side {
            name,
            url: self.url.clone(),
            key: None,
            pid,
            whole_tree: false,
            sessions: Vec::new(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.program.stop();
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let upstream = Everything::start();
    let home = Installation::new();
    let server = home.start();
    Entry::http("local.default", "bench", &upstream.url).publish(&home);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/python/everything.py");
    let stdio = format!("{} {script} stdio", python(PYTHON).join("python").display());
    let supergateway = npm("supergateway").join("node_modules/supergateway/dist/index.js");
    let supergateway = Peer::start(
        Path::new("node"),
        &[
            supergateway.to_str().unwrap(),
            "--stdio",
            &stdio,
            "--outputTransport",
            "streamableHttp",
            "--stateful",
            "--port",
            "{port}",
            "--logLevel",
            "none",
        ],
    );
    let fastmcp = Peer::start(
        &python(PYTHON).join("fastmcp"),
        &[
            "run",
            &upstream.url,
            "--transport",
            "http",
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--no-banner",
            "--log-level",
            "ERROR",
        ],
    );
    let mut sides = [
        Side {
            name: PML,
            url: format!("{}/mcp/proxy/bench", server.url()),
            key: Some(home.first_key()),
            pid: server.pid().number,
            whole_tree: true,
            sessions: Vec::new(),
        },
        supergateway.side(SUPERGATEWAY),
        fastmcp.side(FASTMCP),
    ];
    for side in &mut sides {
        side.open_sessions();
        (0..SESSIONS * 2).for_each(|number| side.call(number));
    }
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        for side in &sides {
            let before = side.cpu();
            (0..CALLS).for_each(|number| side.call(number));
            let calls = u32::try_from(CALLS).unwrap();
            rounds.add(side.name, (side.cpu() - before) / calls);
        }
    }
    println!("### CPU time of one `tools/call` that is passed on, {SESSIONS} sessions\n");
    println!("{}", rounds.table(&[(PML, &[SUPERGATEWAY, FASTMCP])]));
    println!("| gateway | resident at {SESSIONS} sessions |\n|---|---:|");
    for side in &sides {
        println!(
            "| {} | {:.1} MiB |",
            side.name.replace(", the gateway with its database", ""),
            resident_mib(side.pid)
        );
    }
    println!();
}
