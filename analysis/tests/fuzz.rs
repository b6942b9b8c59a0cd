//! Mutated programs: a bounded run of what `cargo fuzz` does for longer.

#[path = "fuzz/holds.rs"]
mod holds;
#[path = "fuzz/mutate.rs"]
mod mutate;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mutate::{Choices, mutated, programs};

/// The number of programs in a full run; `PML_TEST_SCALE` scales it.
const COUNT: f64 = 40_000.0;

/// AN-15: `PML_TEST_SEED` selects the programs.
#[test]
fn mutated_programs_never_crash_the_analysis() {
    let scale = std::env::var("PML_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok());
    let count = (COUNT * scale.unwrap_or(0.1)).max(100.0) as u64;
    let seed = std::env::var("PML_TEST_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed.unwrap_or(1);
    let mut stderr = std::io::stderr();
    writeln!(stderr, "fuzzing {count} programs with PML_TEST_SEED={seed}").unwrap();
    let programs = programs();
    let mut runnable = 0;
    for at in 0..count {
        let source = mutated(&programs, &mut Choices::seeded(seed.wrapping_add(at << 20)));
        match catch_unwind(AssertUnwindSafe(|| holds::check(&source).can_run())) {
            Ok(can_run) => runnable += u64::from(can_run),
            Err(_) => panic!("program {at} of PML_TEST_SEED={seed}:\n{source}"),
        }
    }
    writeln!(stderr, "{runnable} of {count} mutated programs can run, the rest are refused")
        .unwrap();
    // A mutator that breaks everything would test only the parser's errors.
    assert!(runnable * 20 > count, "only {runnable} of {count} can run");
}
