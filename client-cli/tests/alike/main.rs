//! The analysis and the engine read a program alike.
//!
//! The one is a parser for TypeScript in Rust, the other a parser for JavaScript
//! in C. Where they differ, a program could call what the analysis did not see.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "the counts are part of what a test run tells")]

mod corpus;
#[path = "../../../tests/it/support/mcp_servers.rs"]
#[expect(dead_code, reason = "the black-box tests install more than these")]
mod mcp_servers;
mod readings;
mod row;
mod rows;
mod support;

use libtest_mimic::{Arguments, Trial};

fn main() {
    sandbox::child_main_if_requested(&[]);
    let arguments = Arguments::from_args();
    let trial = |name: &str, check: fn()| {
        Trial::test(name, move || {
            check();
            Ok(())
        })
    };
    let trials = vec![
        trial("readings", readings::all_rows_are_read_alike),
        trial("places", readings::errors_keep_their_places),
        trial("corpus", corpus::is_read_alike),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
