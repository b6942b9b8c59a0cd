//! What a tree of processes has used, as `/proc` tells it.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::time::Duration;

/// The unit of the times in `/proc/<pid>/stat`; part of the kernel's interface to programs.
const TICKS_A_SECOND: f64 = 100.0;

/// Returns the CPU time of a process, all that it started and all that it has reaped.
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

/// Memory of some processes, in KiB.
#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) struct Memory {
    /// What is in memory of each, summed up: what they share counts several times.
    pub(crate) resident: u64,
    /// What none of them shares with another process.
    pub(crate) private: u64,
    /// That, and each one's part of what it shares.
    pub(crate) proportional: u64,
}

/// Returns the memory of some processes; `None` if we may not look.
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

/// Returns the memory that a process shares with no other, in KiB; `None` if we may not look.
#[allow(dead_code, reason = "not every bench looks at memory")]
pub(crate) fn private_kib(pid: u32) -> Option<u64> {
    Some(memory(&[pid])?.private)
}

/// Returns the short name of a process's program.
#[allow(dead_code, reason = "not every bench tells processes apart")]
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
    // Those of the same tick have numbers in the order of their births.
    children.sort_unstable();
    children.into_iter().map(|(_, pid)| pid).collect()
}

/// Returns a process and all below it.
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
    /// In user and kernel mode, its own and of the children that it has waited for.
    ticks: u64,
    /// When it was started, in ticks.
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets too.
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
