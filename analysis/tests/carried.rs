//! Ways to carry a value through a program, alone and one within the other: whatever
//! is carried, the tools that are reached by it are declared, or the program is dynamic.
//!
//! `PML_TEST_SCALE` says how many of the pairs are tried, `PML_TEST_SEED` which ones.

use std::time::{SystemTime, UNIX_EPOCH};

use analysis::{Limits, analyze};

/// Each is an expression that has the value of `@`, in the end.
const CARRIERS: &str = include_str!("carried/carriers.txt");

/// What is carried, and how its tool is called: no carrier names the tool.
const CARRIED: &[(&str, &str)] = &[
    ("mcp.a", ".b({})"),
    ("({ n: mcp.a })", ".n.b({})"),
    ("(() => mcp.a)", "().b({})"),
    ("((n) => n.b({}))", "(mcp.a)"),
    ("\"b\"", ""),
];

fn hole(program: &str) -> bool {
    let analysis = analyze(program, &Limits::default());
    // `await` may not stand in every function.
    let told = analysis.dynamic || analysis.tools.iter().any(|tool| tool.as_str() == "a:b");
    analysis.can_run() && !told
}

fn programs(value: &str) -> impl Iterator<Item = String> {
    CARRIED.iter().map(move |(carried, call)| {
        let carried = value.replace('@', carried);
        match call.is_empty() {
            true => format!("const k = {carried}; mcp.a[k]({{}})"),
            false => format!("return ({carried}){call}"),
        }
    })
}

/// Returns a part of the pairs of carriers: all of them at full scale, a hundredth at a
/// tenth of it.
fn is_chosen(number: usize, seed: usize) -> bool {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok());
    let scale = scale.unwrap_or(0.1).clamp(0.01, 1.0);
    let step = (1.0 / (scale * scale)) as usize;
    number % step == seed % step
}

#[test]
fn what_is_carried_is_declared_or_the_program_is_dynamic() {
    let seed = std::env::var("PML_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_micros() as usize;
    let seed = seed.unwrap_or_else(now);
    let carriers: Vec<&str> = CARRIERS.lines().collect();
    let alone = carriers.iter().map(|carrier| (*carrier).to_owned());
    let pairs = carriers
        .iter()
        .flat_map(|outer| carriers.iter().map(move |inner| outer.replace('@', inner)));
    let pairs = pairs.enumerate().filter(|(number, _)| is_chosen(*number, seed));
    let (mut holes, mut count) = (Vec::new(), 0);
    for value in alone.chain(pairs.map(|(_, value)| value)) {
        for program in programs(&value) {
            count += 1;
            if hole(&program) {
                holes.push(program);
            }
        }
    }
    println!("{count} programs with PML_TEST_SEED={seed}");
    assert!(holes.is_empty(), "{} of {count}:\n{}", holes.len(), holes.join("\n"));
}
