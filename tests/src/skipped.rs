//! Tests that this machine or this user cannot run say so, and are counted.
//!
//! A test that returns early passes, and nobody notices that nothing was tested. One that calls [`skipped!`] first is
//! written to the file that `PML_SKIPPED` names, which `make test` sums up. With `PML_SKIP=none`, as CI sets it for
//! root, such a test fails.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Notes that a test cannot be run here, and why; to be followed by `return`.
pub(crate) fn note(module: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    assert_ne!(
        std::env::var("PML_SKIP").as_deref(),
        Ok("none"),
        "`{test}` has to run here and cannot: {reason}"
    );
    let Some(path) = std::env::var_os("PML_SKIPPED") else { return };
    // One short write to the end of a file is whole, also beside those of other processes.
    let line = format!("{module}\t{test}\t{reason}\n");
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("`PML_SKIPPED` is a file that can be written");
}

/// Skips the rest of a test that this machine or user cannot run, and has it counted.
macro_rules! skipped {
    ($reason:literal) => {{
        crate::skipped::note(module_path!(), $reason);
        return;
    }};
}

pub(crate) use skipped;
