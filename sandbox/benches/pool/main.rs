//! How long a program in a sealed child takes, beside what others run programs in, and beside the floors: a bare
//! process, a bare fork and a bare call. Then what a child keeps in memory and how far the limits are overrun.

#[path = "../../../tests/benches/support/attacks.rs"]
mod attacks;
#[path = "../../../tests/benches/support/figures.rs"]
mod figures;
mod floods;
mod floor;
mod lines;
mod memory;
mod ours;
mod overshoot;
mod peer;
#[path = "../../../tests/benches/support/pins.rs"]
mod pins;
#[path = "../../../tests/benches/support/spent.rs"]
mod spent;

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};

use figures::Rounds;
use floor::Forks;
use ours::Ours;
use peer::Peers;

const TRIVIAL: &str = "return args.n + 1";
const IN_TURN: &str =
    "let sum = 0; for (let i = 0; i < 1000; i++) sum += (await mcp.demo.echo({ i })).i; return sum";
const TOGETHER: &str =
    "const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => mcp.demo.echo({ i })));
    return all.reduce((sum, { i }) => sum + i, 0)";
/// Calls that the two programs above make, and what they return.
const CALLS: u64 = 1000;
const SUM: u64 = 499_500;

const START_ROUNDS: usize = 200;
const CALL_ROUNDS: usize = 60;
/// The pause between two samples.
const PAUSE: Duration = Duration::from_millis(3);
/// A pause in which the processor falls asleep.
const IDLENESS: Duration = Duration::from_millis(20);

const POOLED: &str = "pooled sealed child: program in → result out";
const COLD: &str = "the same from an empty pool";
const DENO: &str = "a Deno Worker without permissions";
const NODE: &str = "a Node Worker";
const ISOLATE: &str = "an isolate of `isolated-vm`";
const PROCESS: &str = "`/bin/true`, start to end";
const FORK: &str = "fork + exit + wait";
const IDLE_POOLED: &str = "pooled sealed child, after 20 ms of idleness";
const IDLE_DENO: &str = "a Deno Worker, after 20 ms of idleness";

const CALLS_OURS: &str = "a sealed child with its start";
const CALLS_DENO: &str = "a Deno Worker that has started";
const CALLS_FRESH_DENO: &str = "a fresh Deno Worker with its start";
const CALLS_NODE: &str = "a Node Worker that has started";
const CALLS_FRESH_NODE: &str = "a fresh Node Worker with its start";
const CALLS_ISOLATE: &str = "a fresh isolate of `isolated-vm` with its start";
const CALLS_FLOOR: &str = "the tool called in this process";

/// What was started before has a moment to end, so that nobody pays for another's leftovers. Not more than a
/// moment: after 20 ms of idleness the virtual processor sleeps so deeply that everything, the peers too, takes
/// half as long again.
fn settle() {
    std::thread::sleep(PAUSE);
}

fn same(found: &Value, wanted: u64) -> Result<(), String> {
    // The numbers of the peers come as they are printed, ours may be floating.
    if found.as_f64() == Some(wanted as f64) {
        return Ok(());
    }
    Err(format!("a program returned {found}, not {wanted}"))
}

/// Takes one sample of one case.
fn sample(
    rounds: &mut Rounds,
    name: &'static str,
    wanted: u64,
    (value, took): (Value, Duration),
) -> Result<(), String> {
    same(&value, wanted)?;
    rounds.add(name, took);
    settle();
    Ok(())
}

fn starts(ours: &Ours, peers: &mut Peers) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    let args = json!({ "n": 41 });
    let mut forks = Forks::start()?;
    for _ in 0..START_ROUNDS {
        let all = &mut rounds;
        sample(all, DENO, 42, peers.deno.fresh(TRIVIAL, &args)?)?;
        sample(all, NODE, 42, peers.node.fresh(TRIVIAL, &args)?)?;
        if let Ok(isolates) = &mut peers.isolates {
            sample(all, ISOLATE, 42, isolates.fresh(TRIVIAL, &args)?)?;
        }
        all.add(PROCESS, floor::bare_process()?);
        settle();
        all.add(FORK, forks.fork()?);
        settle();
        sample(all, POOLED, 42, ours.run(&ours.pool, TRIVIAL)?)?;
        sample(all, COLD, 42, ours.run(&ours.empty, TRIVIAL)?)?;
        // After the same as above, so that only the pause differs.
        forks.fork()?;
        std::thread::sleep(IDLENESS);
        sample(all, IDLE_POOLED, 42, ours.run(&ours.pool, TRIVIAL)?)?;
        std::thread::sleep(IDLENESS);
        sample(all, IDLE_DENO, 42, peers.deno.fresh(TRIVIAL, &args)?)?;
    }
    Ok(rounds)
}

fn calls(ours: &Ours, peers: &mut Peers, in_turn: bool) -> Result<Rounds, Box<dyn Error>> {
    let program = if in_turn { IN_TURN } else { TOGETHER };
    let mut rounds = Rounds::default();
    let args = json!({});
    for _ in 0..CALL_ROUNDS {
        let all = &mut rounds;
        sample(all, CALLS_DENO, SUM, peers.deno.started(program, &args)?)?;
        sample(all, CALLS_FRESH_DENO, SUM, peers.deno.fresh(program, &args)?)?;
        sample(all, CALLS_NODE, SUM, peers.node.started(program, &args)?)?;
        sample(all, CALLS_FRESH_NODE, SUM, peers.node.fresh(program, &args)?)?;
        if let Ok(isolates) = &mut peers.isolates {
            sample(all, CALLS_ISOLATE, SUM, isolates.fresh(program, &args)?)?;
        }
        sample(all, CALLS_OURS, SUM, ours.run(&ours.pool, program)?)?;
        sample(all, CALLS_FLOOR, SUM, floor::calls(ours, CALLS, in_turn)?)?;
    }
    Ok(rounds)
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() -> Result<(), Box<dyn Error>> {
    sandbox::child_main_if_requested(&[]);
    if std::env::args().nth(1).as_deref() == Some(floor::FORKS) {
        return floor::serve_forks();
    }
    let ours = Ours::start()?;
    let mut peers = Peers::start()?;
    // What happens once is not what is measured.
    for _ in 0..5 {
        for peer in peers.all() {
            peer.fresh(TRIVIAL, &json!({ "n": 1 }))?;
        }
        ours.run(&ours.pool, TRIVIAL)?;
        settle();
    }
    let names: Vec<String> = peers.all().iter().map(|peer| peer.name.clone()).collect();
    println!("### Programs in the sandbox, beside {}\n", names.join(", "));
    let layers = ours.runtime.block_on(ours.pool.layers())?;
    let layers: Vec<String> =
        layers.iter().map(|layer| format!("{} {:?}", layer.name, layer.state)).collect();
    println!("Layers: {}.\n", layers.join(", "));
    if let Err(why) = &peers.isolates {
        println!("`isolated-vm` could not be built here, so its rows are missing: {why}\n");
    }
    let table = starts(&ours, &mut peers)?;
    let against: [(&str, &[&str]); 3] = [
        (POOLED, &[DENO, NODE, ISOLATE, PROCESS, FORK]),
        (COLD, &[DENO, PROCESS]),
        (IDLE_POOLED, &[IDLE_DENO]),
    ];
    println!("{}", table.table(&against));
    for (title, in_turn) in [("in turn", true), ("in `Promise.all`", false)] {
        println!("A program of 1,000 calls {title}:\n");
        let table = calls(&ours, &mut peers, in_turn)?;
        let against: [(&str, &[&str]); 1] = [(
            CALLS_OURS,
            &[
                CALLS_DENO,
                CALLS_FRESH_DENO,
                CALLS_NODE,
                CALLS_FRESH_NODE,
                CALLS_ISOLATE,
                CALLS_FLOOR,
            ],
        )];
        println!("{}", table.table(&against));
    }
    println!("{}", floods::table(&ours, &mut peers)?);
    println!("{}", memory::table(&ours)?);
    println!("{}", overshoot::table(&ours)?);
    Ok(())
}
