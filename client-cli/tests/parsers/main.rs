//! The analysis and the engine must parse a program in the same way.
//!
//! The analysis uses a TypeScript parser in Rust, the engine a JavaScript parser in C. Where they differ, a program
//! could call a tool that the analysis did not see.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "the counts are part of the output of a test run")]

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
        trial("readings", readings::all_rows_are_parsed_in_the_same_way),
        trial("places", readings::errors_keep_their_positions),
        trial("corpus", corpus::is_parsed_in_the_same_way),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
