//! What flows where, seen from outside: a program is run, and run again with one
//! field of its input or the results of one call changed. A call that is then given
//! something else was said to be given it, or to be decided by it.
//!
//! The programs are those of the analysis, its cases and what agents write, and the
//! odd ones of `odd.txt`. `PML_TEST_SCALE` says how many of them are looked at, and
//! `PML_TEST_PROGRAM` is a part of the name of a single one.

#![expect(clippy::print_stdout, reason = "what was tested is told")]

mod given;
mod runner;
mod subject;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use libtest_mimic::{Arguments, Failed, Trial};

use given::{Change, Flavour};
use runner::{Run, Runner};
use subject::{Source, Subject};

/// This part of the programs is looked at when `PML_TEST_SCALE` is not set.
const SCALE: f64 = 0.1;
/// How many programs are run at the same time.
const AT_ONCE: usize = 4;

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("what_flows_nowhere_is_told", what_flows_nowhere_is_told),
        Trial::test("what_reaches_a_call_was_told", what_reaches_a_call_was_told),
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

/// The comparison can fail: a run is held against a program of which less is said.
fn what_flows_nowhere_is_told() -> Result<(), Failed> {
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
                for what in untold(subject, &source, &base, &run) {
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

/// Returns what a change did to calls of which it was not told.
fn untold(subject: &Subject, source: &Source, base: &Run, run: &Run) -> Vec<String> {
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
            let given = |run: &Run| {
                let calls = run.calls.iter().filter(|(known, _)| *known == key);
                calls.map(|(_, args)| args.clone()).collect::<Vec<_>>()
            };
            if given(base) != given(run) && !subject.flows_or_decides(source, &key) {
                out.push(format!("{source} decides on {key}"));
            }
        }
    }
    out.dedup();
    out
}

/// A program of the list, by its name.
struct Named {
    name: String,
    source: String,
    /// What it is about is not followed yet.
    later: bool,
}

/// Every program is given these two results first.
const ODD: &str = "const r = await mcp.a.one({}); const s = await mcp.a.two({});\n";

/// Returns the odd programs: a line with a name, and a line with the program.
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

fn what_reaches_a_call_was_told() -> Result<(), Failed> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let only = std::env::var("PML_TEST_PROGRAM").ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let seed = number("PML_TEST_SEED").map_or(now as usize, |seed| seed as usize);
    let every = (1.0 / number("PML_TEST_SCALE").unwrap_or(SCALE)).max(1.0) as usize;
    println!("every {every}. program from {}, PML_TEST_SEED={seed} repeats it", seed % every);
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
    let (mut all, mut said) = (Checked::default(), Vec::new());
    runtime.block_on(async {
        let checks =
            subjects.iter().map(async |(one, subject)| (one, check(&runner, subject).await));
        let mut checks = futures::stream::iter(checks).buffer_unordered(AT_ONCE);
        while let Some((one, checked)) = checks.next().await {
            all.runs += checked.runs;
            all.changes += checked.changes;
            match (one.later, checked.wrong.is_empty()) {
                (true, true) => said.push(format!("{}: it is followed by now", one.name)),
                (true, false) => {}
                _ => said.extend(checked.wrong.iter().map(|line| format!("{}: {line}", one.name))),
            }
        }
    });
    println!("{} programs, {} runs, {} did something else", subjects.len(), all.runs, all.changes);
    if said.is_empty() { Ok(()) } else { Err(said.join("\n").into()) }
}
