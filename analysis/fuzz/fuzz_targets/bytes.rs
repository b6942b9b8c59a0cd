//! Analyses arbitrary bytes as a program.

#![no_main]

#[path = "../../tests/fuzz/holds.rs"]
mod holds;

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: holds::let_parser_panic(), |bytes: &[u8]| {
    holds::check(&String::from_utf8_lossy(bytes));
});
