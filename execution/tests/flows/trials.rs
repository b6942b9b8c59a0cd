//! The tests.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Failed;

use crate::check::{Checked, Checker};
use crate::explore::Effort;
use crate::known::{self, Counts, DYNAMIC};
use crate::mutants::Tried;
use crate::program::{Part, Program};
use crate::runner::End;
use crate::told::analysis;
use crate::{alone, crossed, odd, plain, report, table};

/// How many programs of each sort are written at full scale.
const CROSSED: f64 = 50_000.0;
const PLAIN: f64 = 20_000.0;
const ODD: f64 = 30_000.0;
/// The part of them that is tried at the scale of `make test`: it takes half a minute.
const SAMPLE: f64 = 0.05;
/// Examples of a miss that are shown, at most.
const SHOWN: usize = 3;

fn scale() -> f64 {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse().ok());
    scale.unwrap_or(0.1)
}

/// Returns how many programs are tried: all at scale 1, and fewer than the scale says below.
fn count(all: f64) -> usize {
    let scale = scale();
    let part = if scale < 1.0 { scale * SAMPLE } else { scale };
    ((all * part) as usize).max(1)
}

fn is_wanted(name: &str) -> bool {
    std::env::var("PML_TEST_PROGRAM").map_or(true, |part| name.contains(&part))
}

/// Adds what one program showed to the counts.
fn add(counts: &mut Counts, checked: &Checked) {
    counts.programs += 1;
    counts.runs += checked.observed.runs.len();
    let Ok(prepared) = &checked.prepared else {
        counts.refused += 1;
        return;
    };
    counts.dynamic += usize::from(!prepared.told.complete);
    counts.with_a_miss += usize::from(!checked.verdict.misses.is_empty());
    for kind in checked.verdict.kinds() {
        *counts.missed.entry(kind).or_insert(0) += 1;
    }
    let told = prepared.told.pairs();
    counts.confirmed += told.intersection(&checked.verdict.reached).count();
    counts.told += told.len();
}

pub(crate) fn each_row_alone() -> Result<(), Failed> {
    let checker = Checker::start(analysis())?;
    let mut counts = Counts::default();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut said = Vec::new();
    let mut tried = Tried::default();
    let mut shows_nothing: BTreeSet<String> = BTreeSet::new();
    let mut shows: BTreeSet<String> = BTreeSet::new();
    let rows = table::rows();
    let programs = rows
        .iter()
        .flat_map(|row| alone::alone(row).into_iter().map(|program| (row.full_name(), program)));
    let (names, programs): (Vec<String>, Vec<Program>) =
        programs.filter(|(_, program)| is_wanted(&program.name)).unzip();
    let mut names = names.into_iter();
    let programs = programs.into_iter().map(|program| {
        let of_args = !program.fields_of_args().is_empty();
        (program, if of_args { Effort::ARGS } else { Effort::ROW })
    });
    checker.each(programs, |checked| {
        let row = names.next().unwrap_or_default();
        let name = checked.program.name.clone();
        add(&mut counts, &checked);
        let fault = match (&checked.prepared, checked.observed.runs.first().map(|run| &run.end)) {
            (Err(why), _) => Some(why.clone()),
            (_, Some(End::Well)) => checked.observed.cut().map(str::to_owned),
            (_, end) => Some(format!("{end:?}")),
        };
        said.extend(
            fault.map(|why| format!("{name} does not run: {why}\n{}", checked.program.source())),
        );
        let reaches =
            !checked.verdict.reached.is_empty() || checked.program.source().contains("args");
        if reaches {
            shows.insert(row)
        } else {
            shows_nothing.insert(row)
        };
        let mut kinds: BTreeSet<String> =
            checked.verdict.kinds().into_iter().map(|kind| kind.name().to_owned()).collect();
        if checked.prepared.as_ref().is_ok_and(|prepared| !prepared.told.complete) {
            kinds.insert(DYNAMIC.to_owned());
        }
        if std::env::var_os("PML_TEST_PROGRAM").is_some() {
            println!("{}", checked.program.source());
            println!(
                "{}",
                checked.prepared.as_ref().map(|one| report::plan(&one.told)).unwrap_or_default()
            );
        }
        show(&checker, &checked, &mut BTreeMap::new());
        if let Ok(prepared) = &checked.prepared {
            // That a decision leaves the machine is a promise of its own.
            let right =
                kinds.iter().all(|kind| kind.ends_with("leave") || kind.ends_with("leaves"));
            if right && prepared.told.pairs().is_subset(&checked.verdict.reached) {
                tried.on(&prepared.told, &checked.observed);
            }
        }
        if !kinds.is_empty() {
            found.insert(name, kinds);
        }
    });
    println!("{}\nwrong plans: {tried:?}", counts.summary("rows"));
    said.extend(shows_nothing.difference(&shows).map(|row| format!("{row} shows nothing")));
    if std::env::var_os("PML_TEST_KNOWN").is_some_and(|what| what == "write") {
        known::write(&found)?;
    } else if std::env::var_os("PML_TEST_PROGRAM").is_none() {
        let difference = known::difference(&found);
        if !difference.is_empty() {
            said.push(format!("known.txt differs from what is missed:\n{}", difference.join("\n")));
        }
    }
    if std::env::var_os("PML_TEST_PROGRAM").is_none() {
        said.extend(tried.found_too_seldom());
    }
    said.extend(counts_of_rows(&counts));
    verdict(said)
}

/// Holds only the precision of rows against its bound; their misses are listed by name.
fn counts_of_rows(counts: &Counts) -> Option<String> {
    let (found, least) = (counts.confirmed_percent(), known::bounds("rows").confirmed);
    let is_whole = std::env::var_os("PML_TEST_PROGRAM").is_none();
    (is_whole && found < least)
        .then(|| format!("rows: {found:.1} % of told pairs confirmed, less than {least} %"))
}

pub(crate) fn rows_within_rows() -> Result<(), Failed> {
    let rows = table::rows();
    let program = |seed| {
        let mut program = crossed::crossed(&rows, seed);
        program.name = format!("crossed {seed}: {}", program.name);
        program
    };
    many(
        "crossed",
        count(CROSSED),
        program,
        Effort { changes: 3, other_worlds: 1, doubts: 2, tools: true, seed: 0 },
    )
}

pub(crate) fn plain_programs() -> Result<(), Failed> {
    many(
        "plain",
        count(PLAIN),
        plain::program,
        Effort { changes: 2, other_worlds: 1, doubts: 2, tools: true, seed: 0 },
    )
}

pub(crate) fn odd_programs() -> Result<(), Failed> {
    let rows = table::rows();
    let program = |seed| odd::program(&rows, seed);
    many(
        "odd",
        count(ODD),
        program,
        Effort { changes: 3, other_worlds: 1, doubts: 2, tools: true, seed: 0 },
    )
}

fn many(
    sort: &str,
    count: usize,
    program: impl Fn(u64) -> Program,
    effort: Effort,
) -> Result<(), Failed> {
    let checker = Checker::start(analysis())?;
    let mut counts = Counts::default();
    let mut faulty = 0;
    let mut said = Vec::new();
    let mut examples = BTreeMap::new();
    let programs = (1..=count as u64)
        .map(|seed| (program(seed), Effort { seed, ..effort }))
        .filter(|(program, _)| is_wanted(&program.name));
    checker.each(programs, |checked| {
        add(&mut counts, &checked);
        if let Err(why) = &checked.prepared {
            faulty += 1;
            if faulty <= SHOWN {
                said.push(format!("{}: {why}\n{}", checked.program.name, checked.program.source()));
            }
        }
        show(&checker, &checked, &mut examples);
    });
    println!("{}", counts.summary(sort));
    if std::env::var_os("PML_TEST_PROGRAM").is_none() {
        let beyond = counts.beyond(sort);
        if !beyond.is_empty() {
            said.push(beyond.join("\n"));
            said.push("PML_TEST_MISS=all shows examples".to_owned());
        }
    }
    verdict(said)
}

/// Prints examples of the misses that are asked for, each as small as it can be made.
fn show(checker: &Checker, checked: &Checked, shown: &mut BTreeMap<crate::judge::Kind, usize>) {
    let Ok(wanted) = std::env::var("PML_TEST_MISS") else { return };
    if let ("unconfirmed", Ok(prepared)) = (wanted.as_str(), &checked.prepared) {
        for (from, to) in prepared.told.pairs().difference(&checked.verdict.reached) {
            println!("{}: {from} → {to} is told, and no run shows it", checked.program.name);
            println!("{}{}", checked.program.source(), report::plan(&prepared.told));
        }
    }
    for miss in &checked.verdict.misses {
        let count = shown.entry(miss.kind).or_insert(0);
        if (wanted == "all" || wanted == miss.kind.name()) && *count < SHOWN {
            *count += 1;
            println!("{}", report::of(checker, checked, miss));
        }
    }
}

fn verdict(said: Vec<String>) -> Result<(), Failed> {
    if said.is_empty() { Ok(()) } else { Err(said.join("\n").into()) }
}

/// The programs on which wrong plans are tried: each is told rightly.
const TOLD: &[&str] = &[
    "const a = await mcp.filesystem.read_1({}); const b = await mcp.filesystem.read_2({});
     await mcp.slack.post_3({ channel: \"x\", text: a.s, n: b.n + 1 });",
    "const a = await mcp.filesystem.read_1({}); if (a.b) await mcp.filesystem.write_2({ path: \"p\" });",
    "const a = await mcp.filesystem.read_1({}); for (const x of a.l ?? []) await mcp.slack.post_2({ x });",
    "const a = await mcp.filesystem.read_1({}); const b = await mcp.shell.exec_2({ of: a.s });
     await mcp.slack.post_3({ text: b.s });",
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
