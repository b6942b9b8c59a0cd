//! The tests.

mod engine;
mod rows;
mod rules;

use std::collections::BTreeMap;

use libtest_mimic::Failed;

use crate::check::{Checked, Checker};
use crate::claims::real_analysis;
use crate::counts::Counts;
use crate::explore::Effort;
use crate::miss::MissKind;
use crate::mutants::Tally;
use crate::options::Options;
use crate::program::{Part, Program};
use crate::{crossed, odd, plain, report, table};

pub(crate) use engine::knows_every_engine_function;
pub(crate) use rows::plans_cover_single_rows;
pub(crate) use rules::each_rule_is_needed;

/// The number of programs of each suite at scale 1.
const CROSSED: f64 = 50_000.0;
const PLAIN: f64 = 20_000.0;
const ODD: f64 = 30_000.0;
/// A further reduction of scales below 1, with which `make test` takes half a minute for all suites.
const SAMPLE: f64 = 0.05;
/// The most examples of a kind of miss that are printed.
const MAX_EXAMPLES: usize = 3;

/// The effort for generated programs.
const GENERATED: Effort =
    Effort { variants: 3, random_inputs: 1, confirmation_rounds: 2, changes_tools: true, seed: 0 };

pub(crate) fn plans_cover_crossed_rows() -> Result<(), Failed> {
    let rows = table::rows();
    let program = |seed| {
        let mut program = crossed::program(&rows, seed);
        program.name = format!("crossed {seed}: {}", program.name);
        program
    };
    check_suite("crossed", CROSSED, program, GENERATED)
}

pub(crate) fn plans_cover_plain_programs() -> Result<(), Failed> {
    // They call so many tools that fewer variants of each still make many runs.
    check_suite("plain", PLAIN, plain::program, Effort { variants: 2, ..GENERATED })
}

pub(crate) fn plans_cover_odd_programs() -> Result<(), Failed> {
    let rows = table::rows();
    check_suite("odd", ODD, |seed| odd::program(&rows, seed), GENERATED)
}

/// Checks the programs of one suite: all of them at scale 1, a sample below.
fn check_suite(
    suite: &str,
    all: f64,
    program: impl Fn(u64) -> Program,
    effort: Effort,
) -> Result<(), Failed> {
    let options = Options::read();
    let share = if options.scale < 1.0 { options.scale * SAMPLE } else { options.scale };
    let count = ((all * share) as u64).max(1);
    let checker = Checker::start(real_analysis())?;
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut examples = BTreeMap::new();
    let programs = (options.seed..options.seed + count)
        .map(|seed| (program(seed), Effort { seed, ..effort }))
        .filter(|(program, _)| options.selects(&program.name));
    checker.check_all(programs, |checked| {
        counts.add(&checked);
        match &checked.prepared {
            Err(why) if counts.refused <= MAX_EXAMPLES => {
                let (name, source) = (&checked.program.name, checked.program.source());
                failures.push(format!("{name}: {why}\n{source}"));
            }
            _ => {}
        }
        if checked.prepared.as_ref().is_ok_and(|prepared| !prepared.claims.complete) {
            println!("dynamic: {}\n{}", checked.program.name, checked.program.source());
        }
        print_program(&options, &checked);
        print_examples(&checker, &options, &checked, &mut examples);
    });
    println!("{}", counts.summary(suite));
    if options.selects_all() {
        let found = counts.failures(suite);
        if !found.is_empty() {
            failures.extend(found);
            failures.push("PML_TEST_MISS=all prints examples".to_owned());
        }
    }
    verdict(failures)
}

/// Prints a program that `PML_TEST_PROGRAM` selects, with its plan or why the analysis refuses it.
fn print_program(options: &Options, checked: &Checked) {
    if options.program.is_some() {
        println!("{}\n{}", checked.program.name, checked.program.source());
        let plan = checked.prepared.as_ref().map(|prepared| report::plan(&prepared.claims));
        println!("{}", plan.unwrap_or_else(Clone::clone));
    }
}

/// Prints examples of the misses that `PML_TEST_MISS` selects, each with a program as small as possible.
fn print_examples(
    checker: &Checker,
    options: &Options,
    checked: &Checked,
    printed: &mut BTreeMap<MissKind, usize>,
) {
    if let (true, Ok(prepared)) =
        (options.miss.as_deref() == Some("unconfirmed"), &checked.prepared)
    {
        for (from, to) in prepared.claims.egress_tools().difference(&checked.verdict.reached) {
            println!("{}: no run confirms {from} → {to}", checked.program.name);
            println!("{}{}", checked.program.source(), report::plan(&prepared.claims));
        }
    }
    for miss in &checked.verdict.misses {
        let count = printed.entry(miss.kind).or_insert(0);
        if options.prints(miss.kind.name()) && *count < MAX_EXAMPLES {
            *count += 1;
            println!("{}", report::report(checker, checked, miss));
        }
    }
}

fn verdict(failures: Vec<String>) -> Result<(), Failed> {
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// The programs whose plans the mutants change. Their plans are right.
const RIGHTLY_PLANNED: &[&str] = &[
    "const a = await mcp.filesystem.read_1({}); const b = await mcp.filesystem.read_2({});
     await mcp.slack.post_3({ channel: \"x\", text: a.s, n: b.n + 1 });",
    "const a = await mcp.filesystem.read_1({}); if (a.b) await mcp.filesystem.write_2({ path: \"p\" });",
    "const a = await mcp.filesystem.read_1({}); for (const x of a.l ?? []) await mcp.slack.post_2({ x });",
    "const a = await mcp.filesystem.read_1({}); if (a.b) await mcp.slack.post_2({ channel: \"x\" });",
    "const a = await mcp.filesystem.read_1({}); const b = await mcp.shell.exec_2({ of: a.s });
     await mcp.slack.post_3({ text: b.s });",
    "await mcp.filesystem.read_1({}); if (args.b) await mcp.slack.post_2({ channel: \"x\" });",
    "await mcp.filesystem.read_1({}); await mcp.slack.post_2({ text: args.s + \"!\" });",
    "const a = await mcp.filesystem.read_1({});
     for (const x of [1, 2]) { await mcp.filesystem.write_2({ x }); await mcp.slack.post_3({ s: a.s }); }",
];

pub(crate) fn detects_wrong_plans() -> Result<(), Failed> {
    let checker = Checker::start(real_analysis())?;
    let program = |source: &&str| Program {
        name: (*source).to_owned(),
        parts: source.lines().map(|line| Part::text(line.trim())).collect(),
    };
    let programs = RIGHTLY_PLANNED.iter().map(|source| (program(source), Effort::ROW));
    let mut mutants = Tally::default();
    let mut failures = Vec::new();
    checker.check_all(programs, |checked| {
        let misses: Vec<String> = checked.verdict.misses.iter().map(report::line).collect();
        match checked.prepared {
            Ok(prepared) if misses.is_empty() => {
                mutants.add(&prepared.claims, &checked.exploration);
            }
            Ok(_) => failures.push(format!("{}: {}", checked.program.name, misses.join(", "))),
            Err(why) => failures.push(format!("{}: {why}", checked.program.name)),
        }
    });
    println!("mutants: {mutants:?}");
    failures.extend(mutants.undetected());
    verdict(failures)
}
