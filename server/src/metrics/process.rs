//! The figures of the gateway's process, under the names that all programs use for them.

use std::fs;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Snapshot;

/// When the gateway started, in seconds since 1970.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    // A clock before 1970 is not set, and the figure would be meaningless anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
});

impl Snapshot {
    /// Notes that the process starts now.
    pub(crate) fn note_start() {
        LazyLock::force(&STARTED);
    }

    /// Adds the figures of this process. What the system does not tell is left out.
    pub(crate) fn process(&self) {
        let start = "When the process started, in seconds since 1970.";
        self.gauge("process_start_time_seconds", start, [], [([], *STARTED)]);
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        let help = "CPU time of the process, without its children.";
        self.counter("process_cpu_seconds_total", help, [], [([], seconds)]);
        if let Some(bytes) = resident_bytes() {
            let help = "Resident memory of the process, without its children.";
            self.gauge("process_resident_memory_bytes", help, [], [([], bytes)]);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // Without the descriptor of the folder itself.
            let open = open.count().saturating_sub(1);
            self.gauge("process_open_fds", "Open file descriptors.", [], [([], open as f64)]);
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            let help = "The maximum number of open file descriptors.";
            self.gauge("process_max_fds", help, [], [([], most as f64)]);
        }
    }
}

/// Returns `VmRSS` of `proc_pid_status(5)`, which is in KiB.
fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_read() {
        let bytes = resident_bytes().unwrap();
        assert!((1e6..1e11).contains(&bytes), "{bytes}");
    }
}
