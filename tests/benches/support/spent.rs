//! CPU time and memory of process trees, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::time::Duration;

/// The unit of the times in `/proc/<pid>/stat` (`USER_HZ`), which is part of the kernel's ABI.
const TICKS_A_SECOND: f64 = 100.0;

/// Returns the CPU time of a process, its descendants, and all children that they have reaped.
#[allow(dead_code, reason = "not every bench counts CPU time")]
pub(crate) fn cpu_of_tree(root: u32) -> Duration {
    let ticks: u64 = tree(root).iter().filter_map(|pid| stat(*pid)).map(|stat| stat.ticks).sum();
    Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND)
}

/// Returns the CPU time of one process alone.
#[allow(dead_code, reason = "not every bench counts CPU time")]
pub(crate) fn cpu_of_process(pid: u32) -> Duration {
    let ticks = stat(pid).map_or(0, |stat| stat.own);
    Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND)
}

/// Returns the CPU time of the children that a process has waited for, and of theirs.
#[allow(dead_code, reason = "not every bench counts CPU time")]
pub(crate) fn cpu_of_reaped(pid: u32) -> Duration {
    let ticks = stat(pid).map_or(0, |stat| stat.ticks - stat.own);
    Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND)
}

/// Returns the resident memory of one process, in MiB.
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

/// Memory of a set of processes, in KiB.
#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) struct Memory {
    /// The sum of their resident memory (RSS), which counts shared pages several times.
    pub(crate) resident: u64,
    /// The memory that none of them shares with another process.
    pub(crate) private: u64,
    /// The private memory and a proportional part of the shared memory (PSS).
    pub(crate) proportional: u64,
}

/// Returns the memory of a set of processes, or `None` without permission.
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) fn memory(pids: &[u32]) -> Option<Memory> {
    let mut sum = Memory::default();
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let Ok(value) = value.trim().trim_end_matches(" kB").parse::<u64>() else { continue };
            match name {
                "Rss" => sum.resident += value,
                "Pss" => sum.proportional += value,
                "Private_Clean" | "Private_Dirty" => sum.private += value,
                _ => {}
            }
        }
    }
    Some(sum)
}

/// Returns the private memory of a process, in KiB, or `None` without permission.
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) fn private_kib(pid: u32) -> Option<u64> {
    Some(memory(&[pid])?.private)
}

/// Returns the short name of a process (`comm`).
#[allow(dead_code, reason = "not every bench distinguishes processes")]
pub(crate) fn program(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Returns the children of a process, the oldest first.
#[allow(dead_code, reason = "not every bench looks for children")]
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let mut children: Vec<(u64, u32)> = processes()
        .into_iter()
        .filter(|(_, stat)| stat.parent == parent)
        .map(|(pid, stat)| (stat.started, pid))
        .collect();
    // Processes that were started in the same tick are ordered by their ids.
    children.sort_unstable();
    children.into_iter().map(|(_, pid)| pid).collect()
}

/// Returns a process and all its descendants.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, stat) in processes() {
        children.entry(stat.parent).or_default().push(pid);
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next) {
        tree.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    tree
}

fn processes() -> Vec<(u32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

struct Stat {
    parent: u32,
    /// In user and kernel mode.
    own: u64,
    /// In user and kernel mode, including the children that it has waited for.
    ticks: u64,
    /// When it was started, in ticks.
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may itself contain parentheses, so the last one counts.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |range: Range<usize>| -> Option<u64> {
        Some(fields.get(range)?.iter().map(|field| field.parse().unwrap_or(0u64)).sum())
    };
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: ticks(11..13)?,
        ticks: ticks(11..15)?,
        started: ticks(19..20)?,
    })
}
