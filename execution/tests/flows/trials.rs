//! The tests.

mod engine;
mod rows;
mod rules;

use std::collections::BTreeMap;

use libtest_mimic::Failed;

use crate::check::{Checked, Checker};
use crate::explore::Effort;
use crate::judge::Kind;
use crate::known::Counts;
use crate::mutants::Tried;
use crate::options::Options;
use crate::program::{Part, Program};
use crate::told::analysis;
use crate::{crossed, odd, plain, report, table};

pub(crate) use engine::methods_of_the_engine_are_known;
pub(crate) use rows::each_row_alone;
pub(crate) use rules::each_rule_is_needed;

/// How many programs of each sort are written at full scale.
const CROSSED: f64 = 50_000.0;
const PLAIN: f64 = 20_000.0;
const ODD: f64 = 30_000.0;
/// The part of a smaller scale that is tried: with it `make test` takes half a minute for all sorts.
const SAMPLE: f64 = 0.05;
/// Examples of a miss that are shown, at most.
const SHOWN: usize = 3;

/// How programs by chance are looked at.
const BY_CHANCE: Effort = Effort { changes: 3, other_worlds: 1, doubts: 2, tools: true, seed: 0 };

pub(crate) fn rows_within_rows() -> Result<(), Failed> {
    let rows = table::rows();
    let program = |seed| {
        let mut program = crossed::crossed(&rows, seed);
        program.name = format!("crossed {seed}: {}", program.name);
        program
    };
    many("crossed", CROSSED, program, BY_CHANCE)
}

pub(crate) fn plain_programs() -> Result<(), Failed> {
    // They call so many tools that fewer changes of each still make many runs.
    many("plain", PLAIN, plain::program, Effort { changes: 2, ..BY_CHANCE })
}

pub(crate) fn odd_programs() -> Result<(), Failed> {
    let rows = table::rows();
    many("odd", ODD, |seed| odd::program(&rows, seed), BY_CHANCE)
}

/// Checks programs of one sort: all of them at scale 1, and a sample below.
fn many(
    sort: &str,
    all: f64,
    program: impl Fn(u64) -> Program,
    effort: Effort,
) -> Result<(), Failed> {
    let options = Options::read();
    let part = if options.scale < 1.0 { options.scale * SAMPLE } else { options.scale };
    let count = ((all * part) as u64).max(1);
    let checker = Checker::start(analysis())?;
    let mut counts = Counts::default();
    let mut said = Vec::new();
    let mut examples = BTreeMap::new();
    let programs = (options.seed..options.seed + count)
        .map(|seed| (program(seed), Effort { seed, ..effort }))
        .filter(|(program, _)| options.wants(&program.name));
    checker.each(programs, |checked| {
        counts.add(&checked);
        match &checked.prepared {
            Err(why) if counts.refused <= SHOWN => {
                said.push(format!("{}: {why}\n{}", checked.program.name, checked.program.source()));
            }
            _ => {}
        }
        print(&options, &checked);
        show(&checker, &options, &checked, &mut examples);
    });
    println!("{}", counts.summary(sort));
    if options.is_whole() {
        let beyond = counts.beyond(sort);
        if !beyond.is_empty() {
            said.push(format!("bounds.txt differs from what is missed:\n{}", beyond.join("\n")));
            said.push("PML_TEST_MISS=all shows examples".to_owned());
        }
    }
    verdict(said)
}

/// Prints a program that is asked for, and what is told of it.
fn print(options: &Options, checked: &Checked) {
    if options.program.is_some() {
        println!("{}\n{}", checked.program.name, checked.program.source());
        println!(
            "{}",
            checked.prepared.as_ref().map_or_else(Clone::clone, |one| report::plan(&one.told))
        );
    }
}

/// Prints examples of the misses that are asked for, each as small as it can be made.
fn show(
    checker: &Checker,
    options: &Options,
    checked: &Checked,
    shown: &mut BTreeMap<Kind, usize>,
) {
    if let (true, Ok(prepared)) =
        (options.miss.as_deref() == Some("unconfirmed"), &checked.prepared)
    {
        for (from, to) in prepared.told.pairs().difference(&checked.verdict.reached) {
            println!("{}: {from} → {to} is told, and no run shows it", checked.program.name);
            println!("{}{}", checked.program.source(), report::plan(&prepared.told));
        }
    }
    for miss in &checked.verdict.misses {
        let count = shown.entry(miss.kind).or_insert(0);
        if options.shows(miss.kind.name()) && *count < SHOWN {
            *count += 1;
            println!("{}", report::of(checker, checked, miss));
        }
    }
}

fn verdict(said: Vec<String>) -> Result<(), Failed> {
    if said.is_empty() { Ok(()) } else { Err(said.join("\n").into()) }
}

/// The programs on which all wrong plans are tried: each is told rightly.
const TOLD: &[&str] = &[
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

pub(crate) fn what_is_told_wrongly_is_found() -> Result<(), Failed> {
    let checker = Checker::start(analysis())?;
    let program = |source: &&str| Program {
        name: (*source).to_owned(),
        parts: source.lines().map(|line| Part::text(line.trim())).collect(),
    };
    let programs = TOLD.iter().map(|source| (program(source), Effort::ROW));
    let mut tried = Tried::default();
    let mut said = Vec::new();
    checker.each(programs, |checked| {
        let lines: Vec<String> = checked.verdict.misses.iter().map(report::line).collect();
        match checked.prepared {
            Ok(prepared) if lines.is_empty() => tried.on(&prepared.told, &checked.observed),
            Ok(_) => said.push(format!("{}: {}", checked.program.name, lines.join(", "))),
            Err(why) => said.push(format!("{}: {why}", checked.program.name)),
        }
    });
    println!("wrong plans: {tried:?}");
    said.extend(tried.unfound());
    verdict(said)
}
