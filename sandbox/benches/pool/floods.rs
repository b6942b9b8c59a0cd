//! Throughput: programs per second, and the CPU time of each.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::TRIVIAL;
use crate::figures::{median, time};
use crate::floor::bare_process;
use crate::ours::Ours;
use crate::peer::{Peer, Peers};
use crate::spent;

const ROUNDS: usize = 3;
const LENGTH: Duration = Duration::from_secs(2);
/// Concurrent programs in our sandbox.
const SIDE_BY_SIDE: usize = 8;
/// Concurrent programs in the peers; on two cores, more do not raise the throughput.
const PEERS_SIDE_BY_SIDE: usize = 2;

/// The samples of one runtime at full load: programs per second, and CPU seconds per program.
struct Flood {
    name: String,
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

impl Flood {
    fn new(name: impl Into<String>) -> Flood {
        Flood { name: name.into(), rate: Vec::new(), cpu: Vec::new() }
    }

    fn add(
        &mut self,
        pid: u32,
        run: impl FnOnce() -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let (before, started) = (spent::cpu_of_tree(pid), Instant::now());
        let count = run()? as f64;
        let took = started.elapsed();
        // The last children are still being reaped and replaced, which is part of the cost.
        std::thread::sleep(Duration::from_millis(300));
        let cpu = spent::cpu_of_tree(pid).saturating_sub(before);
        self.rate.push(count / took.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() / count);
        Ok(())
    }

    fn add_peer(&mut self, peer: &mut Peer) -> Result<(), Box<dyn Error>> {
        self.add(peer.pid(), || {
            peer.flood(TRIVIAL, &json!({ "n": 41 }), LENGTH, PEERS_SIDE_BY_SIDE)
        })
    }

    fn row(&self) -> Option<String> {
        if self.rate.is_empty() {
            return None;
        }
        let (rate, cpu) = (median(self.rate.iter().copied()), median(self.cpu.iter().copied()));
        Some(format!("| {} | {rate:.0} /s | {} |", self.name, time(cpu)))
    }
}

/// Returns a Markdown table of all runtimes.
pub(crate) fn table(ours: &Ours, peers: &mut Peers) -> Result<String, Box<dyn Error>> {
    let mut own = Flood::new(format!("sealed children, {SIDE_BY_SIDE} side by side"));
    let mut bare = Flood::new("`/bin/true`, 2 side by side");
    let mut deno = Flood::new("Deno Workers, 2 side by side");
    let mut node = Flood::new("Node Workers, 2 side by side");
    let mut isolates = Flood::new("isolates of `isolated-vm`, 2 side by side");
    let own_pid = std::process::id();
    for _ in 0..ROUNDS {
        deno.add_peer(&mut peers.deno)?;
        node.add_peer(&mut peers.node)?;
        if let Ok(peer) = &mut peers.isolates {
            isolates.add_peer(peer)?;
        }
        own.add(own_pid, || ours.flood(TRIVIAL, LENGTH, SIDE_BY_SIDE))?;
        bare.add(own_pid, bare_processes)?;
    }
    let mut table = "| who | programs | CPU each, whole tree |\n|---|---:|---:|\n".to_owned();
    for row in [own, bare, isolates, deno, node].iter().filter_map(Flood::row) {
        table += &(row + "\n");
    }
    Ok(table)
}

fn bare_processes() -> Result<u64, Box<dyn Error>> {
    let started = Instant::now();
    let lane = || {
        let mut count = 0;
        while started.elapsed() < LENGTH {
            bare_process().map_err(|e| e.to_string())?;
            count += 1;
        }
        Ok::<u64, String>(count)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(lane);
        let count = lane()?;
        let other = other.join().map_err(|_| "the other lane panicked")??;
        Ok(count + other)
    })
}
