//! Reports tests that cannot run on this machine or as this user.
//!
//! A test that returns early passes unnoticed. One that calls [`skipped!`] first is recorded in the file that
//! `PML_SKIPPED` names, which `make test` sums up. With `PML_SKIP=none`, which CI sets for root, such a test fails.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Records that a test cannot run here, with the reason; to be followed by `return`.
pub(crate) fn note(module: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    assert_ne!(
        std::env::var("PML_SKIP").as_deref(),
        Ok("none"),
        "`{test}` must run here but cannot: {reason}"
    );
    let Some(path) = std::env::var_os("PML_SKIPPED") else { return };
    // A short append to a file is atomic, also with concurrent writes of other processes.
    let line = format!("{module}\t{test}\t{reason}\n");
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("`PML_SKIPPED` is a file that can be written");
}

/// Skips the rest of a test that cannot run on this machine or as this user, and records it.
macro_rules! skipped {
    ($reason:literal) => {{
        crate::skipped::note(module_path!(), $reason);
        return;
    }};
}

pub(crate) use skipped;
