//! What flows where: a program is run, and run again with the results of one tool changed. Whatever a
//! later call is then given, and whether, how often and in which order calls are made, was told by the plan.
//!
//! `table.rs` has the rows, `alone.rs` and `crossed.rs` make small programs of them, `plain.rs` and `odd.rs` longer
//! programs, `explore.rs` runs a program in many worlds, and `judge.rs` holds the runs against what
//! was told. Programs are the same in each run of the tests. What is missed today is listed in `known.txt`,
//! and bounded in `bounds.txt`; both can only become shorter.
//!
//! - `PML_TEST_SCALE` says how many programs there are, `PML_TEST_SEED` where they begin.
//! - `PML_TEST_PROGRAM` is a part of the name of those to look at: `odd 88`, `throw/`.
//! - `PML_TEST_MISS` is a kind of miss of which examples are shown, `all`, or `unconfirmed`.
//! - `PML_TEST_KNOWN=write` writes `known.txt`.
//! - `PML_TEST_ROWS` is a folder with rows of one's own, `choose.txt` and so on, in place of the table.

#![expect(clippy::print_stdout, reason = "what was tested is told")]

mod alone;
mod check;
mod compose;
mod crossed;
mod difference;
mod explore;
mod judge;
mod known;
mod mutants;
mod odd;
mod options;
mod order;
mod plain;
mod program;
mod random;
mod report;
mod runner;
mod shown;
mod shrink;
mod table;
mod told;
mod trials;
mod world;

use libtest_mimic::{Arguments, Trial};

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("what_is_told_wrongly_is_found", trials::what_is_told_wrongly_is_found),
        Trial::test("methods_of_the_engine_are_known", trials::methods_of_the_engine_are_known),
        Trial::test("each_row_alone", trials::each_row_alone),
        Trial::test("each_rule_is_needed", trials::each_rule_is_needed),
        Trial::test("rows_within_rows", trials::rows_within_rows),
        Trial::test("plain_programs", trials::plain_programs),
        Trial::test("odd_programs", trials::odd_programs),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
