//! Soundness of the declared tools: generated programs are analysed and then run in the real sandbox. Every observed
//! call must be declared, unless the program is dynamic.
//!
//! `PML_TEST_SEED` selects the programs, `PML_TEST_SCALE` sets the number of programs, and `PML_TEST_PROGRAM` is the seed of a
//! single program to examine.

#![expect(clippy::print_stdout, reason = "a test run prints what it tested")]

#[path = "../../../analysis/tests/generator/generator.rs"]
mod generator;
mod report;
mod runner;

use futures::StreamExt as _;
use libtest_mimic::{Arguments, Failed, Trial};

use generator::{Program, Random, generate};
use report::{Counts, Fault};
use runner::Runner;

/// The number of generated programs at full scale.
const PROGRAMS: f64 = 20_000.0;
/// The maximum percentage of resolvable programs that the analysis may call dynamic. They nest twenty constructs and
/// more.
const NEEDLESS_LIMIT: f64 = 3.5;
/// The number of programs that run concurrently.
const CONCURRENCY: usize = 6;

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("wrong_analyses_are_detected", wrong_analyses_are_detected),
        Trial::test("each_construct_alone", each_construct_alone),
        Trial::test("carriers_carry", carriers_carry),
        Trial::test("every_observed_call_is_declared", every_observed_call_is_declared),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Tests the comparison itself: it must detect a result with too few declared tools.
fn wrong_analyses_are_detected() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start().map_err(|error| error.to_string())?
    };
    let (program, _) = generator::each_alone().swap_remove(0);
    let mut found = runtime.block_on(runner.check(&program));
    assert_eq!(found.fault(), None, "{}", report::of(&program, &found));
    assert_eq!(found.observed.len(), 1, "{}", report::of(&program, &found));
    let declared = std::mem::take(&mut found.declared);
    assert_eq!(found.fault(), Some(Fault::Undeclared));
    found.declared = declared;
    found.missed.push("fs:read".into());
    assert_eq!(found.fault(), Some(Fault::Missed));
    found.refused = true;
    assert_eq!(found.fault(), Some(Fault::Refused));
    Ok(())
}

/// Tests each construct in a program of its own, so that a failure names the construct.
fn each_construct_alone() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start().map_err(|error| error.to_string())?
    };
    let mut failures = String::new();
    let mut later = Vec::new();
    let programs = generator::each_alone();
    let count = programs.len();
    for (program, is_later) in programs {
        let found = runtime.block_on(runner.check(&program));
        if is_later && found.dynamic {
            later.push(program.first_construct());
        }
        let fault = found.fault().map(Fault::text);
        let needless = program.resolvable && found.dynamic;
        if let Some(what) = fault.or(needless.then_some("it is dynamic:")) {
            let named = program.constructs();
            failures.push_str(&format!("\n{named:?}: {what}\n{}", report::of(&program, &found)));
        }
    }
    println!("{count} constructs alone; not supported by the analysis yet: {later:?}");
    if failures.is_empty() { Ok(()) } else { Err(failures.into()) }
}

/// Checks the expressions of `analysis/tests/carried.rs`: each of them passes its value on.
fn carriers_carry() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start().map_err(|error| error.to_string())?
    };
    let carriers = include_str!("../../../analysis/tests/carried/carriers.txt");
    let mut failures = String::new();
    for carrier in carriers.lines() {
        let source = format!("return ({}).n.b({{}})", carrier.replace('@', "({ n: mcp.a })"));
        let analysis = analysis::analyze(&source, &analysis::Limits::default());
        let (outcome, observed) = runtime.block_on(runner.run(analysis, 1));
        if !observed.contains("a:b") {
            let failure = outcome.result.err().map(|failure| failure.message);
            failures.push_str(&format!("\n{carrier}: {failure:?}"));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.into()) }
}

fn every_observed_call_is_declared() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let runner = {
        let _inside = runtime.enter();
        Runner::start().map_err(|error| error.to_string())?
    };
    if let Some(seed) = number("PML_TEST_PROGRAM") {
        let program = generate(seed);
        let (mut counts, found) = (Counts::default(), runtime.block_on(runner.check(&program)));
        println!("{}", report::of(&program, &found));
        counts.add(&program, &found);
        return verdict(&runtime, &runner, &counts, vec![(program, found)]);
    }
    let seed = number("PML_TEST_SEED").unwrap_or(1);
    let scale: f64 =
        std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let count = ((PROGRAMS * scale) as usize).max(1);
    println!("seed {seed} (PML_TEST_SEED={seed} repeats it), {count} programs");

    let mut random = Random::new(seed);
    let seeds: Vec<u64> = (0..count).map(|_| random.next()).collect();
    let mut counts = Counts::default();
    let mut faulty = Vec::new();
    runtime.block_on(async {
        let mut running = futures::stream::iter(seeds)
            .map(|seed| {
                let runner = runner.clone();
                tokio::spawn(async move {
                    let program = generate(seed);
                    let found = runner.check(&program).await;
                    (program, found)
                })
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(done) = running.next().await {
            let (program, found) = done.expect("no check panics");
            counts.add(&program, &found);
            if found.fault().is_some() && faulty.len() < report::FAULTS_SHOWN {
                faulty.push((program, found));
            }
        }
    });
    println!("{}", counts.summary());
    verdict(&runtime, &runner, &counts, faulty)
}

fn verdict(
    runtime: &tokio::runtime::Runtime,
    runner: &Runner,
    counts: &Counts,
    faulty: Vec<(Program, runner::Found)>,
) -> Result<(), Failed> {
    let mut failures = String::new();
    for (program, found) in &faulty {
        let Some(fault) = found.fault() else { continue };
        let small = program
            .shrunk(|smaller| runtime.block_on(runner.check(smaller)).fault() == Some(fault));
        let found = runtime.block_on(runner.check(&small));
        failures.push_str(&format!("\n{}\n{}", fault.text(), report::of(&small, &found)));
    }
    if counts.needless_percent() > NEEDLESS_LIMIT {
        failures.push_str(&format!(
            "\n{:.1} % of the resolvable programs are dynamic, more than {NEEDLESS_LIMIT} %:\n",
            counts.needless_percent()
        ));
        failures.push_str(&counts.needless_reasons());
    }
    if faulty.iter().any(|(_, found)| matches!(found.fault(), Some(Fault::Undeclared))) {
        failures.insert_str(0, "a call was not declared");
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.into()) }
}
