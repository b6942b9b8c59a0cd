//! The figures of a pool of children, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::outcome::FailureKind;

/// The figures of a pool: totals since it was created, and its children now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The children that started.
    pub started: u64,
    /// The children that could not be started.
    pub failed_starts: u64,
    /// The work that was ended because it used all of its CPU time.
    pub ended_by_cpu: u64,
    /// The work that was ended because it used all of its memory.
    pub ended_by_memory: u64,
    /// The work that was ended because its wall time ran out.
    pub ended_by_wall: u64,
    /// The children that died during their work or broke the protocol.
    pub crashed: u64,
    /// The CPU time of the work of all children, without that of their start.
    pub cpu: Duration,
    /// The children that are ready for work.
    pub warm: usize,
    /// The children that have been requested and have not started yet.
    pub starting: usize,
    /// The children at work.
    pub busy: usize,
    /// The callers that wait for their turn or for a child.
    pub waiting: usize,
}

/// Counts what happens to the work of a pool.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    cpu: AtomicU64,
    memory: AtomicU64,
    wall: AtomicU64,
    crashed: AtomicU64,
    cpu_nanos: AtomicU64,
}

impl Tally {
    /// Counts work that failed in this way.
    pub(crate) fn failed(&self, kind: FailureKind) {
        let counter = match kind {
            FailureKind::CpuTime => &self.cpu,
            FailureKind::OutOfMemory => &self.memory,
            FailureKind::WallTime => &self.wall,
            FailureKind::Crashed => &self.crashed,
            // Errors of the program, refusals of single values, and the caller's own decision.
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the CPU time of one piece of work.
    pub(crate) fn used(&self, cpu: Duration) {
        let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Adds the counts to the figures of a pool.
    pub(crate) fn add_to(&self, stats: PoolStats) -> PoolStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PoolStats {
            ended_by_cpu: read(&self.cpu),
            ended_by_memory: read(&self.memory),
            ended_by_wall: read(&self.wall),
            crashed: read(&self.crashed),
            cpu: Duration::from_nanos(read(&self.cpu_nanos)),
            ..stats
        }
    }
}
