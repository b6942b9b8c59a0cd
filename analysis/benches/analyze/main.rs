//! Measures the time of the analysis: by program length, compared with two TypeScript parsers, and at each limit.

#[path = "../../../tests/benches/support/figures.rs"]
mod figures;
mod peers;
#[path = "../../../tests/benches/support/pins.rs"]
mod pins;
mod program;
#[path = "../../tests/hostile/worst.rs"]
mod worst;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use analysis::{Limits, analyze};

use figures::{Rounds, median, time};
use peers::Peers;
use program::program;

/// A program length that is measured.
struct Size {
    lines: usize,
    /// The number of runs per sample; the sample is their median.
    times: usize,
    ours: &'static str,
    swc: &'static str,
    typescript: &'static str,
}

const SIZES: [Size; 4] = [
    Size {
        lines: 20,
        times: 51,
        ours: "20 lines: the whole analysis",
        swc: "20 lines: `@swc/core`, parse",
        typescript: "20 lines: TypeScript, parse",
    },
    Size {
        lines: 100,
        times: 21,
        ours: "100 lines: the whole analysis",
        swc: "100 lines: `@swc/core`, parse",
        typescript: "100 lines: TypeScript, parse",
    },
    Size {
        lines: 1_000,
        times: 5,
        ours: "1,000 lines: the whole analysis",
        swc: "1,000 lines: `@swc/core`, parse",
        typescript: "1,000 lines: TypeScript, parse",
    },
    Size {
        lines: 10_000,
        times: 3,
        ours: "10,000 lines: the whole analysis",
        swc: "10,000 lines: `@swc/core`, parse",
        typescript: "10,000 lines: TypeScript, parse",
    },
];

const ROUNDS: usize = 40;
/// Node compiles hot code, so the parsers are warmed up.
const WARM_UP: usize = 200;
const LIMIT_ROUNDS: usize = 3;

fn timed(source: &str, limits: &Limits) -> Duration {
    let start = Instant::now();
    let analysis = analyze(black_box(source), limits);
    let took = start.elapsed();
    drop(black_box(analysis));
    took
}

/// Returns the median of some runs.
fn sample(source: &str, limits: &Limits, times: usize) -> Duration {
    let seconds = (0..times).map(|_| timed(source, limits).as_secs_f64());
    Duration::from_secs_f64(median(seconds))
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn by_lines() -> Result<(), Box<dyn Error>> {
    // Sizes beyond the limits are measured with the limits raised.
    let limits = Limits {
        source_bytes: usize::MAX,
        tasks: usize::MAX,
        edges: usize::MAX,
        ..Limits::default()
    };
    let sources: Vec<String> = SIZES.iter().map(|size| program(size.lines)).collect();
    for source in &sources {
        let analysis = analyze(source, &limits);
        assert!(analysis.can_run() && !analysis.dynamic, "{:?}", analysis.first_error());
    }
    let mut peers = match Peers::start() {
        Ok(peers) => {
            println!("### Analysis, compared with {}\n", peers.versions);
            Some(peers)
        }
        Err(error) => {
            println!("### Analysis\n\nNo comparison: {error}\n");
            None
        }
    };
    if let Some(peers) = &mut peers {
        for (size, source) in SIZES.iter().zip(&sources) {
            peers.keep(size.ours, source)?;
            for parser in ["swc", "typescript"] {
                peers.parse(parser, size.ours, WARM_UP * 20 / size.lines + 2)?;
            }
        }
    }
    let mut rounds = Rounds::default();
    let mut per_line: Vec<Vec<f64>> = vec![Vec::new(); SIZES.len()];
    for _ in 0..ROUNDS {
        for ((size, source), per_line) in SIZES.iter().zip(&sources).zip(&mut per_line) {
            let took = sample(source, &limits, size.times);
            per_line.push(took.as_secs_f64() / size.lines as f64);
            rounds.add(size.ours, took);
            if let Some(peers) = &mut peers {
                rounds.add(size.swc, peers.parse("swc", size.ours, size.times)?);
                rounds.add(size.typescript, peers.parse("typescript", size.ours, size.times)?);
            }
        }
    }
    let baselines: Vec<(&str, [&str; 2])> =
        SIZES.iter().map(|size| (size.ours, [size.swc, size.typescript])).collect();
    let against: Vec<(&str, &[&str])> =
        baselines.iter().map(|(name, against)| (*name, &against[..])).collect();
    println!("{}", rounds.table(&against));
    println!(
        "| lines | median, a line | median of the rounds' ratios to 100 lines |\n|---:|---:|---:|"
    );
    for (size, samples) in SIZES.iter().zip(&per_line) {
        let ratio = median(samples.iter().zip(&per_line[1]).map(|(own, other)| own / other));
        println!("| {} | {} | {ratio:.2} |", size.lines, time(median(samples.iter().copied())));
    }
    println!();
    Ok(())
}

/// Prints the slowest program at each limit.
#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn at_limits() {
    let limits = Limits::default();
    let mut slowest: BTreeMap<&str, (f64, String, usize, usize)> = BTreeMap::new();
    for worst::Worst { limit, shape, source } in worst::programs(&limits) {
        let took = sample(&source, &limits, LIMIT_ROUNDS).as_secs_f64();
        let row = slowest.entry(limit).or_default();
        row.3 += 1;
        if took > row.0 {
            (row.0, row.1, row.2) = (took, shape, source.len());
        }
    }
    println!(
        "| limit | programs | the slowest of them | bytes | median |\n|---|---:|---|---:|---:|"
    );
    for (limit, (took, shape, bytes, count)) in slowest {
        let shape = shape.replace('|', "\\|").replace('`', "'");
        println!("| {limit} | {count} | `{shape}` | {bytes} | {} |", time(took));
    }
    println!();
}

/// Keeps freed memory in the process, as Node does. Otherwise the kernel would reclaim 30 MB after each run of
/// 10,000 lines, and zero it again for the next.
const KEEP_FREED_MEMORY: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=268435456:glibc.malloc.tcache_count=127");

fn main() {
    if std::env::var_os(KEEP_FREED_MEMORY.0).is_none() {
        let own = std::env::current_exe().expect("the path of the executable is known");
        let error = Command::new(own)
            .args(std::env::args_os().skip(1))
            .env(KEEP_FREED_MEMORY.0, KEEP_FREED_MEMORY.1)
            .exec();
        panic!("the bench cannot restart itself: {error}");
    }
    // As in the processes that serve users: one thread with a large stack.
    let run = || {
        by_lines().map_err(|error| error.to_string())?;
        at_limits();
        Ok::<(), String>(())
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run);
    let thread = thread.expect("a thread can be started");
    let result = thread.join().expect("the bench does not panic");
    result.expect("the peers answer");
}
