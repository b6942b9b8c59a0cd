//! Tests the data flow of the analysis by observation: a program runs, and runs again with one field of its input or
//! the results of one call changed. If a call then gets different arguments, the analysis must have reported the flow
//! or the decision.
//!
//! The programs are the cases of the analysis, programs that agents wrote, and those in `odd.txt`. `PML_TEST_SCALE`
//! sets the fraction of them that is tested, and `PML_TEST_PROGRAM` selects programs by a part of their name.

#![expect(clippy::print_stdout, reason = "a test run prints what it tested")]

mod inputs;
mod runner;
mod subject;

use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use libtest_mimic::{Arguments, Failed, Trial};

use inputs::{Change, Flavour};
use runner::{Run, Runner};
use subject::{Source, Subject};

/// The fraction of the programs that is tested without `PML_TEST_SCALE`.
const SCALE: f64 = 0.1;
/// The number of programs that run concurrently.
const CONCURRENCY: usize = 4;

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("missing_flows_are_detected", missing_flows_are_detected),
        Trial::test("observed_flows_are_reported", observed_flows_are_reported),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn programs(folder: &Path, out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the folder is readable");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            programs(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "ts") {
            out.push(path);
        }
    }
}

/// Tests the comparison itself: it must detect flows that were removed from an analysis.
fn missing_flows_are_detected() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start()?
    };
    for source in [
        "const r = await mcp.a.one({}); await mcp.a.two({ x: args.x + r.y });",
        "const r = await mcp.a.one({}); for (const x of args.x) for (const y of r.y) await mcp.a.two({});",
    ] {
        let mut subject = Subject::of(source).expect("it can run");
        assert_eq!(runtime.block_on(check(&runner, &subject)).wrong, [""; 0]);
        let task = subject.tasks.last_mut().expect("it has calls");
        task.arguments.clear();
        task.data_from.clear();
        task.decided_by.clear();
        task.decided_by_args.clear();
        let wrong = runtime.block_on(check(&runner, &subject)).wrong;
        for source in ["args.x", "t1"] {
            assert!(wrong.iter().any(|line| line.contains(source)), "{source}: {wrong:#?}");
        }
    }
    Ok(())
}

#[derive(Default)]
struct Checked {
    runs: usize,
    changes: usize,
    wrong: Vec<String>,
}

/// Runs a program with each of its sources changed.
async fn check(runner: &Runner, subject: &Subject) -> Checked {
    let mut checked = Checked::default();
    for flavour in Flavour::ALL {
        let base = runner.run(subject, *flavour, None).await;
        checked.runs += 1;
        for source in subject.sources() {
            for change in Change::ALL {
                let run = runner.run(subject, *flavour, Some((&source, *change))).await;
                checked.runs += 1;
                checked.changes += usize::from(run.calls != base.calls);
                for what in unreported_effects(subject, &source, &base, &run) {
                    let line = format!("{what} ({flavour:?}, {change:?})");
                    if !checked.wrong.iter().any(|known| known.starts_with(&what)) {
                        checked.wrong.push(line);
                    }
                }
            }
        }
    }
    checked
}

/// Returns the effects of a change on calls that the analysis did not report.
fn unreported_effects(subject: &Subject, source: &Source, base: &Run, run: &Run) -> Vec<String> {
    let mut out = Vec::new();
    let keys = |run: &Run| run.calls.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    if keys(base) == keys(run) {
        for ((key, before), (_, after)) in base.calls.iter().zip(&run.calls) {
            if before != after && !subject.flows(source, key) {
                out.push(format!("{source} flows to {key}"));
            }
        }
    } else if base.ended_well && run.ended_well {
        for key in subject.keys() {
            let arguments_of = |run: &Run| {
                let calls = run.calls.iter().filter(|(known, _)| *known == key);
                calls.map(|(_, args)| args.clone()).collect::<Vec<_>>()
            };
            if arguments_of(base) != arguments_of(run) && !subject.flows_or_decides(source, &key) {
                out.push(format!("{source} decides on {key}"));
            }
        }
    }
    out.dedup();
    out
}

/// A program with its name.
struct Named {
    name: String,
    source: String,
    /// Whether the analysis is known not to support it yet.
    later: bool,
}

/// The beginning of every program in `odd.txt`.
const ODD: &str = "const r = await mcp.a.one({}); const s = await mcp.a.two({});\n";

/// Parses `odd.txt`: a line with a name, then a line with the program.
fn odd() -> Vec<Named> {
    let text = include_str!("odd.txt");
    let lines: Vec<&str> = text.lines().collect();
    let of = |pair: &[&str]| {
        let [name, program] = pair else { panic!("a name without a program: {pair:?}") };
        let source = format!("{ODD}{}", program.trim());
        Named { name: (*name).to_owned(), source, later: name.starts_with("later ") }
    };
    lines.chunks(2).map(of).collect()
}

fn of_the_analysis() -> std::io::Result<Vec<Named>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests");
    let mut paths = Vec::new();
    programs(&root.join("cases"), &mut paths);
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        let source = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        Ok(Named { name, source, later: false })
    };
    paths.into_iter().map(named).collect()
}

fn observed_flows_are_reported() -> Result<(), Failed> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let only = std::env::var("PML_TEST_PROGRAM").ok();
    let seed = number("PML_TEST_SEED").map_or(1, |seed| seed as usize);
    let every = (1.0 / number("PML_TEST_SCALE").unwrap_or(SCALE)).max(1.0) as usize;
    println!(
        "every {every}th program from number {}; PML_TEST_SEED={seed} repeats this run",
        seed % every
    );
    let mut named = odd();
    named.extend(of_the_analysis()?);
    let chosen = named.into_iter().enumerate().filter(|(place, one)| match &only {
        Some(only) => one.name.contains(only.as_str()),
        None => place % every == seed % every,
    });
    let subjects: Vec<(Named, Subject)> = chosen
        .filter_map(|(_, one)| Subject::of(&one.source).map(|subject| (one, subject)))
        .collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start()?
    };
    let (mut all, mut failures) = (Checked::default(), Vec::new());
    runtime.block_on(async {
        let checks =
            subjects.iter().map(async |(one, subject)| (one, check(&runner, subject).await));
        let mut checks = futures::stream::iter(checks).buffer_unordered(CONCURRENCY);
        while let Some((one, checked)) = checks.next().await {
            all.runs += checked.runs;
            all.changes += checked.changes;
            match (one.later, checked.wrong.is_empty()) {
                (true, true) => {
                    failures.push(format!("{}: it is supported now; remove `later`", one.name))
                }
                (true, false) => {}
                _ => failures
                    .extend(checked.wrong.iter().map(|line| format!("{}: {line}", one.name))),
            }
        }
    });
    println!(
        "{} programs, {} runs, {} with different calls",
        subjects.len(),
        all.runs,
        all.changes
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}
