//! The time of a program in a sealed child, compared with other runtimes and with lower bounds: a bare process, a bare
//! fork and a bare call. Also the memory of a child, and by how much limits are exceeded.

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
/// The number of calls of the two programs above, and their result.
const CALLS: u64 = 1000;
const SUM: u64 = 499_500;

const START_ROUNDS: usize = 40;
const CALL_ROUNDS: usize = 12;
/// The number of consecutive samples of one case: a gateway runs programs one after the other, not alternately with
/// other runtimes.
const IN_A_ROW: usize = 5;
/// The pause between two samples, so that a sample does not include the previous one's clean-up. It is short, because
/// after 20 ms of idleness the virtual processor sleeps so deeply that everything takes half as long again.
const PAUSE: Duration = Duration::from_millis(2);
/// A pause long enough for the processor to sleep.
const IDLENESS: Duration = Duration::from_millis(20);

const POOLED: &str = "pooled sealed child: program in → result out";
const COLD: &str = "the same from an empty pool";
const DENO: &str = "a Deno Worker without permissions";
const NODE: &str = "a Node Worker";
const ISOLATE: &str = "an isolate of `isolated-vm`";
const PROCESS: &str = "`/bin/true`, start to end";
const FORK: &str = "fork + exit + wait";
const FIRST_POOLED: &str = "pooled sealed child, the first after other runtimes' work";
const FIRST_DENO: &str = "a Deno Worker, the first after other runtimes' work";
const IDLE_POOLED: &str = "pooled sealed child, after 20 ms of idleness";
const IDLE_DENO: &str = "a Deno Worker, after 20 ms of idleness";

const CALLS_OURS: &str = "a sealed child with its start";
const CALLS_DENO: &str = "a Deno Worker that has started";
const CALLS_FRESH_DENO: &str = "a fresh Deno Worker with its start";
const CALLS_NODE: &str = "a Node Worker that has started";
const CALLS_FRESH_NODE: &str = "a fresh Node Worker with its start";
const CALLS_ISOLATE: &str = "a fresh isolate of `isolated-vm` with its start";
const CALLS_FLOOR: &str = "the tool called in this process";

fn same(found: &Value, wanted: u64) -> Result<(), String> {
    // Peers may return an integer where our result is a float.
    if found.as_f64() == Some(wanted as f64) {
        return Ok(());
    }
    Err(format!("a program returned {found}, not {wanted}"))
}

/// Takes consecutive samples of one case, with a pause after each. Returns the time of an additional first run, which
/// starts with the caches full of other data.
fn row(
    rounds: &mut Rounds,
    name: &'static str,
    wanted: u64,
    pause: Duration,
    mut run: impl FnMut() -> Result<(Value, Duration), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut first = None;
    for _ in 0..=IN_A_ROW {
        let (value, took) = run()?;
        same(&value, wanted)?;
        match first {
            None => first = Some(took),
            Some(_) => rounds.add(name, took),
        }
        std::thread::sleep(pause);
    }
    first.ok_or_else(|| "a row has no sample".into())
}

fn starts(ours: &Ours, peers: &mut Peers) -> Result<Rounds, Box<dyn Error>> {
    let mut rounds = Rounds::default();
    let all = &mut rounds;
    let args = json!({ "n": 41 });
    let mut forks = Forks::start()?;
    // Cases without a program have no result to compare.
    let done = |took| Ok((json!(42), took));
    for _ in 0..START_ROUNDS {
        let first_deno = row(all, DENO, 42, PAUSE, || peers.deno.fresh(TRIVIAL, &args))?;
        row(all, NODE, 42, PAUSE, || peers.node.fresh(TRIVIAL, &args))?;
        if let Ok(isolates) = &mut peers.isolates {
            row(all, ISOLATE, 42, PAUSE, || isolates.fresh(TRIVIAL, &args))?;
        }
        let first_pooled = row(all, POOLED, 42, PAUSE, || ours.run(&ours.pool, TRIVIAL))?;
        row(all, COLD, 42, PAUSE, || ours.run(&ours.empty, TRIVIAL))?;
        row(all, PROCESS, 42, PAUSE, || done(floor::bare_process()?))?;
        row(all, FORK, 42, PAUSE, || done(forks.fork()?))?;
        row(all, IDLE_POOLED, 42, IDLENESS, || ours.run(&ours.pool, TRIVIAL))?;
        row(all, IDLE_DENO, 42, IDLENESS, || peers.deno.fresh(TRIVIAL, &args))?;
        all.add(FIRST_DENO, first_deno);
        all.add(FIRST_POOLED, first_pooled);
    }
    Ok(rounds)
}

fn calls(ours: &Ours, peers: &mut Peers, in_turn: bool) -> Result<Rounds, Box<dyn Error>> {
    let program = if in_turn { IN_TURN } else { TOGETHER };
    let mut rounds = Rounds::default();
    let all = &mut rounds;
    let args = json!({});
    for _ in 0..CALL_ROUNDS {
        row(all, CALLS_DENO, SUM, PAUSE, || peers.deno.started(program, &args))?;
        row(all, CALLS_FRESH_DENO, SUM, PAUSE, || peers.deno.fresh(program, &args))?;
        row(all, CALLS_NODE, SUM, PAUSE, || peers.node.started(program, &args))?;
        row(all, CALLS_FRESH_NODE, SUM, PAUSE, || peers.node.fresh(program, &args))?;
        if let Ok(isolates) = &mut peers.isolates {
            row(all, CALLS_ISOLATE, SUM, PAUSE, || isolates.fresh(program, &args))?;
        }
        row(all, CALLS_OURS, SUM, PAUSE, || ours.run(&ours.pool, program))?;
        row(all, CALLS_FLOOR, SUM, PAUSE, || floor::calls(ours, CALLS, in_turn))?;
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
    // Warm-up: costs that occur once are not measured.
    for _ in 0..5 {
        for peer in peers.all() {
            peer.fresh(TRIVIAL, &json!({ "n": 1 }))?;
        }
        ours.run(&ours.pool, TRIVIAL)?;
        std::thread::sleep(PAUSE);
    }
    let names: Vec<String> = peers.all().iter().map(|peer| peer.name.clone()).collect();
    println!("### Programs in the sandbox, compared with {}\n", names.join(", "));
    let layers = ours.runtime.block_on(ours.pool.layers())?;
    let layers: Vec<String> =
        layers.iter().map(|layer| format!("{} {:?}", layer.name, layer.state)).collect();
    println!("Layers: {}.\n", layers.join(", "));
    if let Err(why) = &peers.isolates {
        println!("`isolated-vm` could not be built here, so its rows are missing: {why}\n");
    }
    let table = starts(&ours, &mut peers)?;
    let against: [(&str, &[&str]); 4] = [
        (POOLED, &[DENO, NODE, ISOLATE, PROCESS, FORK]),
        (COLD, &[DENO, PROCESS]),
        (IDLE_POOLED, &[IDLE_DENO]),
        (FIRST_POOLED, &[FIRST_DENO]),
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
