//! Constructs that carry a value through a program, alone and nested: the tools that are reached
//! through the value are declared, or the program is dynamic.
//!
//! `PML_TEST_SCALE` sets the number of programs, `PML_TEST_SEED` selects them.

use analysis::{Limits, analyze};

/// Each is an expression that evaluates to `@`.
const CARRIERS: &str = include_str!("carried/carriers.txt");

/// Each calls the tool `b` of the namespace in the field `n` of `@`.
const USES: &str = include_str!("carried/uses.txt");

/// The values that are carried, and how the tool is called through them; no carrier names the tool.
const CARRIED: &[(&str, &str)] = &[
    ("mcp.a", ".b({})"),
    ("mcp", ".a.b({})"),
    ("[mcp.a]", "[0].b({})"),
    ("({ n: mcp.a })", ".n.b({})"),
    ("(() => mcp.a)", "().b({})"),
    ("((n) => n.b({}))", "(mcp.a)"),
    ("\"b\"", ""),
];

fn is_unsound(program: &str) -> bool {
    let analysis = analyze(program, &Limits::default());
    // A program that is refused, for example because of `await` in a plain function, is sound.
    let is_covered = analysis.dynamic || analysis.tools.iter().any(|tool| tool.as_str() == "a:b");
    analysis.can_run() && !is_covered
}

/// Returns a program that calls the tool through the carried value.
fn called(value: &str, (carried, call): (&str, &str)) -> String {
    let carried = value.replace('@', carried);
    match call.is_empty() {
        true => format!("const k = {carried}; mcp.a[k]({{}})"),
        false => format!("return ({carried}){call}"),
    }
}

/// Returns a program that calls the tool by one of `USES`.
fn used(value: &str, usage: &str) -> String {
    let value = value.replace('@', "({ n: mcp.a })");
    let head = if usage.starts_with(['(', '[', '@']) { "return " } else { "" };
    format!("{head}{}", usage.replace('@', &format!("({value})")))
}

/// The number of programs with nested carriers in a full run.
const COUNT: f64 = 60_000.0;

/// Returns the next pseudo-random number (SplitMix64).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as usize
}

#[test]
fn carried_tools_are_declared_or_the_program_is_dynamic() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let seed = number("PML_TEST_SEED").unwrap_or(1.0);
    let count = (COUNT * number("PML_TEST_SCALE").unwrap_or(0.1)) as usize;
    let carriers: Vec<&str> = CARRIERS.lines().collect();
    let uses: Vec<&str> = USES.lines().collect();
    let alone = |carrier| CARRIED.iter().map(move |carried| called(carrier, *carried));
    let alone = carriers.iter().flat_map(|carrier| alone(*carrier));
    let mut state = seed as u64;
    let mut any = || {
        let mut value = "@".to_owned();
        // Mostly two nested carriers, sometimes three.
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
    let unsound: Vec<String> = programs.filter(|program| is_unsound(program)).collect();
    println!("{count} programs with PML_TEST_SEED={seed}");
    assert!(unsound.is_empty(), "PML_TEST_SEED={seed}: {}\n{}", unsound.len(), unsound.join("\n"));
}
