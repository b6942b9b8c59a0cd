//! Tests the flow analysis by perturbation: a program runs repeatedly, each time with one tool's results or one part
//! of `args` changed. The plan must account for every change in the arguments, the number and the order of calls.
//!
//! `table.rs` reads the rows, small constructs with holes. `single.rs` and `crossed.rs` make short programs of them,
//! `odd.rs` and `plain.rs` longer ones. `explore.rs` runs a program with many inputs, `compare.rs` finds the flows
//! that differences between runs reveal, and `judge.rs` compares these with what the plan claims. `mutants.rs` and
//! `trials/rules.rs` test the checker itself with wrong plans.
//!
//! - `PML_TEST_SCALE` sets how many programs are generated, `PML_TEST_SEED` the first seed.
//! - `PML_TEST_PROGRAM` selects programs by a part of their name: `odd 88`, `throw/`.
//! - `PML_TEST_MISS` prints examples of a kind of miss, of `all` kinds, or of `unconfirmed` claims.
//! - `PML_TEST_ROWS` is a folder with other rows (`choose.txt` and so on), which replace those in `rows`.

#![expect(clippy::print_stdout, reason = "the tests print what they covered")]

mod arguments;
mod check;
mod claims;
mod compare;
mod compose;
mod counts;
mod crossed;
mod explore;
mod inputs;
mod judge;
mod miss;
mod mutants;
mod odd;
mod options;
mod plain;
mod program;
mod random;
mod report;
mod runner;
mod shrink;
mod single;
mod steps;
mod table;
mod trials;

use libtest_mimic::{Arguments, Trial};

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("detects_wrong_plans", trials::detects_wrong_plans),
        Trial::test("knows_every_engine_function", trials::knows_every_engine_function),
        Trial::test("plans_cover_single_rows", trials::plans_cover_single_rows),
        Trial::test("each_rule_is_needed", trials::each_rule_is_needed),
        Trial::test("plans_cover_crossed_rows", trials::plans_cover_crossed_rows),
        Trial::test("plans_cover_plain_programs", trials::plans_cover_plain_programs),
        Trial::test("plans_cover_odd_programs", trials::plans_cover_odd_programs),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
