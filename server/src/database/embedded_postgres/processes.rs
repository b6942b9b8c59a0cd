//! The running processes of a cluster, according to `postmaster.pid` and to `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

/// The content of `postmaster.pid`.
pub(super) struct PidFile {
    pub(super) pid: u32,
    pub(super) socket_dir: PathBuf,
    pub(super) ready: bool,
}

impl PidFile {
    /// Parses the relevant lines: 1 is the process id, 5 the socket's folder, 8 the status.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        // A server in single-user mode writes its id with a minus sign, which does not parse: it
        // has no socket to attach to.
        let pid = lines.first()?.trim().parse().ok()?;
        // The later lines are added during the start, so they may be missing.
        let socket_dir = PathBuf::from(lines.get(4).copied().unwrap_or_default());
        let ready = lines.get(7).is_some_and(|status| status.trim() == "ready");
        Some(Self { pid, socket_dir, ready })
    }
}

pub(super) fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

pub(super) fn is_alive(pid: u32) -> bool {
    // A process of another user cannot be signalled (`EPERM`), but it is alive.
    pid_of(pid).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Returns the processes of Postgres whose working directory is in a cluster's folder.
///
/// The working directory of a server is `data`, that of `initdb` is the folder itself, and that of the server that
/// `initdb` runs is `init.<pid>`. The name of the process excludes, for example, a user's shell in the folder.
pub(super) fn processes_in(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        // A process that exits meanwhile has no files that can be read, and does not count.
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
                && fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| matches!(name.trim_end(), "postgres" | "initdb"))
        })
        .collect()
}
