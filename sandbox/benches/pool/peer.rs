//! The peers: one running Deno and two running Nodes, which execute programs in their own kinds of container.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lines::Lines;
use crate::pins::{built, installed};

const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pool");

/// A runtime that waits for commands.
pub(crate) struct Peer {
    lines: Lines,
    /// The name and version that it reports.
    pub(crate) name: String,
}

/// All peers.
pub(crate) struct Peers {
    /// Programs in Deno Workers without permissions.
    pub(crate) deno: Peer,
    /// Programs in Node Workers.
    pub(crate) node: Peer,
    /// Programs in isolates of `isolated-vm`, or why it could not be built.
    pub(crate) isolates: Result<Peer, Box<dyn Error>>,
}

impl Peers {
    /// Installs the pinned versions, unless they are installed already, and starts the peers.
    pub(crate) fn start() -> Result<Peers, Box<dyn Error>> {
        let folder = installed(&deno())?;
        let isolates = built(&folder, "isolated-vm", "out/isolated_vm.node")
            .and_then(|()| Peer::node(&folder, "isolates"));
        Ok(Peers { deno: Peer::deno(&folder)?, node: Peer::node(&folder, "workers")?, isolates })
    }

    /// Returns all peers that started.
    pub(crate) fn all(&mut self) -> Vec<&mut Peer> {
        let mut all = vec![&mut self.deno, &mut self.node];
        all.extend(self.isolates.as_mut().ok());
        all
    }
}

impl Peer {
    fn deno(folder: &Path) -> Result<Peer, Box<dyn Error>> {
        let mut command = Command::new(folder.join(deno()));
        command
            .args(["run", "--quiet", "--no-config", "--no-remote", "--unstable-worker-options"])
            .arg(format!("{DRIVERS}/deno.js"))
            .env("DENO_DIR", folder.join("deno-dir"))
            .env("DENO_NO_UPDATE_CHECK", "1");
        Peer::start(&mut command)
    }

    fn node(folder: &Path, containers: &str) -> Result<Peer, Box<dyn Error>> {
        let mut command = Command::new("node");
        if containers == "isolates" {
            // `isolated-vm` requires this option from Node 20 on.
            command.arg("--no-node-snapshot");
        }
        command.arg(format!("{DRIVERS}/node.js")).arg(containers).current_dir(folder);
        Peer::start(&mut command)
    }

    fn start(command: &mut Command) -> Result<Peer, Box<dyn Error>> {
        let program = command.get_program().to_owned();
        let mut lines = Lines::start(command).map_err(|e| format!("{}: {e}", program.display()))?;
        let greeting: Value = serde_json::from_str(&lines.next()?)?;
        let name = greeting["name"].as_str().ok_or("a peer does not send its name")?.to_owned();
        Ok(Peer { lines, name })
    }

    /// Runs a program in a new container; returns its result and the time, by the peer's own clock.
    pub(crate) fn fresh(
        &mut self,
        program: &str,
        args: &Value,
    ) -> Result<(Value, Duration), Box<dyn Error>> {
        self.order(&json!({ "order": "fresh", "program": program, "args": args }))
    }

    /// Runs a program in an existing container; only the run is timed.
    pub(crate) fn started(
        &mut self,
        program: &str,
        args: &Value,
    ) -> Result<(Value, Duration), Box<dyn Error>> {
        self.order(&json!({ "order": "started", "program": program, "args": args }))
    }

    /// Runs a program repeatedly, each time in a new container; returns the number of runs.
    pub(crate) fn flood(
        &mut self,
        program: &str,
        args: &Value,
        length: Duration,
        side_by_side: usize,
    ) -> Result<u64, Box<dyn Error>> {
        let (count, _) = self.order(&json!({
            "order": "flood", "program": program, "args": args,
            "millis": length.as_millis(), "side_by_side": side_by_side,
        }))?;
        count.as_u64().ok_or_else(|| format!("{} counts nothing", self.name).into())
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.lines.pid()
    }

    fn order(&mut self, order: &Value) -> Result<(Value, Duration), Box<dyn Error>> {
        let line = self.lines.ask(&order.to_string())?;
        let answer: Value = serde_json::from_str(&line)
            .map_err(|e| format!("{} answered `{line}`: {e}", self.name))?;
        let millis = answer["millis"].as_f64().ok_or("a peer sends no time")?;
        Ok((answer["value"].clone(), Duration::from_secs_f64(millis / 1000.0)))
    }
}

/// Returns the path of Deno in the folder.
fn deno() -> String {
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    format!("node_modules/@deno/linux-{machine}-glibc/deno")
}
