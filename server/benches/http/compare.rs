//! Compares two builds of the gateway in the same minutes: a host whose speed changes during the day affects both.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::figures::{median, quantile, sorted, time};
use crate::gateway::Gateway;
use crate::{Flood, requests};

/// Many short rounds rather than a few long ones: on a busy host, the CPU time of the same build differs by a third
/// from one second to the next. An odd number, so that the median is a sample.
const ROUNDS: usize = 31;
const FLOOD: Duration = Duration::from_millis(500);

/// Measures the older build of a folder in turn with the gateway, both at full load, and prints the ratios.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
pub(crate) fn with_older(
    runtime: &Runtime,
    new: &Gateway,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let old = Gateway::start_program(&folder.join("pml-server"), "pml-old")?;
    let pids = [old.pid(), new.pid()];
    let of_old = requests(&old, runtime)?.into_kinds();
    let of_new = requests(new, runtime)?.into_kinds();
    println!("### The gateway at full load, compared with an older build\n");
    println!(
        "| request | clients | rounds | CPU per answer, old | new | ratio | 1st quartile | 3rd quartile | ratio of the rates |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for clients in [8, 32] {
        for kinds in of_old.iter().zip(&of_new).map(|(old, new)| [old, new]) {
            let mut floods = [Flood::default(), Flood::default()];
            for round in 0..ROUNDS {
                // Each build is first in every other round, so that a slow change of the host favours neither.
                for side in [round % 2, 1 - round % 2] {
                    floods[side].add(runtime, kinds[side], clients, FLOOD, pids[side])?;
                }
            }
            let [old, new] = &floods;
            let ratios = new.cpu.iter().zip(&old.cpu).map(|(new, old)| new / old);
            let ratios = sorted(&ratios.collect::<Vec<_>>());
            let rates = median(new.rate.iter().zip(&old.rate).map(|(new, old)| new / old));
            println!(
                "| {} | {clients} | {ROUNDS} | {} | {} | {:.2}× | {:.2}× | {:.2}× | {rates:.2}× |",
                kinds[0].name,
                time(median(old.cpu.iter().copied())),
                time(median(new.cpu.iter().copied())),
                quantile(&ratios, 0.5),
                quantile(&ratios, 0.25),
                quantile(&ratios, 0.75),
            );
        }
    }
    Ok(())
}
