//! Ways to carry a value through a program, alone and one within the other: whatever
//! is carried, the tools that are reached by it are declared, or the program is dynamic.
//!
//! `PML_TEST_SCALE` says how many programs are tried, `PML_TEST_SEED` which ones.

use std::time::{SystemTime, UNIX_EPOCH};

use analysis::{Limits, analyze};

/// Each is an expression that has the value of `@`, in the end.
const CARRIERS: &str = include_str!("carried/carriers.txt");

/// Each calls `b` of the namespace that is the field `n` of `@`.
const USES: &str = include_str!("carried/uses.txt");

/// What is carried, and how its tool is called: no carrier names the tool.
const CARRIED: &[(&str, &str)] = &[
    ("mcp.a", ".b({})"),
    ("mcp", ".a.b({})"),
    ("[mcp.a]", "[0].b({})"),
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

/// Returns a program that calls what is carried where it comes out.
fn called(value: &str, (carried, call): (&str, &str)) -> String {
    let carried = value.replace('@', carried);
    match call.is_empty() {
        true => format!("const k = {carried}; mcp.a[k]({{}})"),
        false => format!("return ({carried}){call}"),
    }
}

/// Returns a program that does something with what is carried, and then calls it.
fn used(value: &str, usage: &str) -> String {
    let value = value.replace('@', "({ n: mcp.a })");
    let head = if usage.starts_with(['(', '[', '@']) { "return " } else { "" };
    format!("{head}{}", usage.replace('@', &format!("({value})")))
}

/// How many programs a full run tries beside the carriers alone.
const COUNT: f64 = 60_000.0;

/// Returns the next of a row of odd numbers (SplitMix64).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as usize
}

#[test]
fn what_is_carried_is_declared_or_the_program_is_dynamic() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let now = || f64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_micros());
    let seed = number("PML_TEST_SEED").unwrap_or_else(now);
    let count = (COUNT * number("PML_TEST_SCALE").unwrap_or(0.1)) as usize;
    let carriers: Vec<&str> = CARRIERS.lines().collect();
    let uses: Vec<&str> = USES.lines().collect();
    let alone = |carrier| CARRIED.iter().map(move |carried| called(carrier, *carried));
    let alone = carriers.iter().flat_map(|carrier| alone(*carrier));
    let mut state = seed as u64;
    let mut any = || {
        let mut value = "@".to_owned();
        // Mostly one within another; sometimes within a third.
        for _ in 0..2 + next(&mut state) % 4 / 3 {
            value = carriers[next(&mut state) % carriers.len()].replace('@', &value);
        }
        let at = next(&mut state) % (CARRIED.len() + uses.len());
        match CARRIED.get(at) {
            Some(carried) => called(&value, *carried),
            None => used(&value, uses[at - CARRIED.len()]),
        }
    };
    let mixed: Vec<String> = (0..count).map(|_| any()).collect();
    let programs = alone.chain(mixed);
    let holes: Vec<String> = programs.filter(|program| hole(program)).collect();
    println!("{count} programs with PML_TEST_SEED={seed}");
    assert!(holes.is_empty(), "PML_TEST_SEED={seed}: {}\n{}", holes.len(), holes.join("\n"));
}
