//! The number of files that this process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// As many as the gateway has a use for.
const USEFUL: u64 = 65_536;
/// With fewer, the start warns.
const FEW: u64 = 4_096;

/// Raises the limit on open files as far as it may be and is of use, and returns it.
pub(crate) fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(USEFUL);
    let mut open = current;
    if current < wanted {
        limit.current = Some(wanted);
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => open = wanted,
            Err(error) => {
                tracing::warn!(error = %error, "Could not raise the limit on open files");
            }
        }
    }
    if open < FEW {
        tracing::warn!(
            open_files = open,
            "Only {open} files may be open at once, which limits connections; raise `LimitNOFILE` or `ulimit -n`"
        );
    }
    open
}
