//! Analyses the cases of the tests, mutated by the fuzzer's bytes.

#![no_main]

#[path = "../../tests/fuzz/holds.rs"]
mod holds;
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static PROGRAMS: LazyLock<Vec<String>> = LazyLock::new(mutate::programs);

fuzz_target!(init: holds::let_parser_panic(), |bytes: &[u8]| {
    holds::check(&mutate::mutated(&PROGRAMS, &mut mutate::Choices::of(bytes)));
});
