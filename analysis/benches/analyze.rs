//! How long the analysis takes: medians in microseconds.

use std::hint::black_box;
use std::time::Instant;

use analysis::{Limits, analyze};

/// A piece of an ordinary agent program: 10 lines with its block, 3 calls.
const PIECE: &str = r#"
const found: { path: string; lines: number }[] = [];
const listing = await mcp.filesystem.list_directory({ path: args.root ?? "." });
const entries = listing.entries.filter((entry: { path: string; size: number }) => entry.size > 0);
for (const entry of entries.slice(0, 10)) {
  const text = await mcp.filesystem.read_file({ path: `${args.root}/${entry.path}` });
  if (text.includes("TODO")) found.push({ path: entry.path, lines: text.split("\n").length });
}
await mcp.json.stringify({ value: { found, count: entries.length } });
"#;

fn program(lines: usize) -> String {
    let piece = PIECE.trim_start();
    let mut source = String::new();
    while source.lines().count() < lines {
        source.push_str("{\n");
        source.push_str(piece);
        source.push_str("}\n");
    }
    source
}

#[expect(clippy::print_stdout, reason = "a bench reports to its terminal")]
fn main() {
    let limits = Limits {
        source_bytes: usize::MAX,
        tasks: usize::MAX,
        edges: usize::MAX,
        ..Limits::default()
    };
    // As in the processes that serve users: one thread with a large stack.
    let run = move || {
        for lines in [20, 100, 1_000, 10_000] {
            let source = program(lines);
            let rounds = (200_000 / lines).clamp(5, 2_000);
            let mut times: Vec<f64> = (0..rounds)
                .map(|_| {
                    let start = Instant::now();
                    let analysis = analyze(black_box(&source), &limits);
                    let took = start.elapsed();
                    assert!(analysis.can_run(), "{:?}", analysis.first_error());
                    took.as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            let count = source.lines().count();
            println!("{count:>6} lines {median:>10.0} µs {:>7.2} µs/line", median / count as f64);
        }
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run);
    thread.expect("a thread can be started").join().expect("the bench does not panic");
}
