//! The limit on open files of this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The highest limit that is useful for the gateway.
const USEFUL: u64 = 65_536;
/// Below this limit, a warning is logged.
const WARN_BELOW: u64 = 4_096;

/// Raises the soft limit on open files to the hard limit or to the highest useful one, and returns it.
pub(crate) fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    // `None` is `RLIM_INFINITY`.
    let current = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(USEFUL);
    let mut open = current;
    if current < wanted {
        // Only the soft limit: raising the hard one needs a privilege.
        limit.current = Some(wanted);
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => open = wanted,
            // Not fatal: the limits on connections follow from the value that is returned.
            Err(error) => {
                tracing::warn!(error = %error, "Could not raise the limit on open files");
            }
        }
    }
    if open < WARN_BELOW {
        tracing::warn!(
            open_files = open,
            "Only {open} files may be open at once, which limits connections; raise `LimitNOFILE` or `ulimit -n`"
        );
    }
    open
}
