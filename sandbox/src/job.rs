//! The definition of a job, its limits, and its failures.

use std::time::Duration;

use crate::limits::MIB;

/// A function that a binary offers to run in a sealed child.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The name that the host uses to request it.
    pub name: &'static str,
    /// The work. Its input is all that it can read, and its output all that it can write.
    pub run: fn(&[u8]) -> Vec<u8>,
}

/// The limits of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Bytes of address space of the child, including its stack and the binary's own mapping.
    pub address_space: u64,
    /// CPU time of one job: the limit on the work that an input may cause.
    pub cpu: Duration,
    /// Time of one job from start to end. Much more than `cpu`, because other processes use the machine as well.
    pub wall: Duration,
    /// Bytes of stack.
    pub stack: usize,
    /// Bytes of input.
    pub input_bytes: usize,
    /// Bytes of output.
    pub output_bytes: usize,
}

impl Default for JobLimits {
    fn default() -> JobLimits {
        JobLimits {
            address_space: 512 * MIB as u64,
            cpu: Duration::from_secs(2),
            wall: Duration::from_secs(20),
            stack: 64 * MIB,
            input_bytes: MIB,
            output_bytes: 16 * MIB,
        }
    }
}

/// Why a job has no output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// The CPU time ran out.
    #[error("the job exceeded its limit of CPU time")]
    TimedOut,
    /// The wall time ran out before the CPU time did: the machine did not get to the job.
    #[error("the machine is too busy: the job did not end within {} s, although it has CPU time left", .within.as_secs())]
    Starved {
        /// The limit.
        within: Duration,
    },
    /// The address space ran out.
    #[error("the job exceeded its memory limit")]
    OutOfMemory,
    /// The child died.
    #[error("the job's process died ({})", .signal.map_or("it exited by itself".to_owned(), |s| format!("signal {s}")))]
    Crashed {
        /// The signal that killed it, if one did. A stack overflow shows as 11.
        signal: Option<i32>,
    },
    /// The input is larger than the limit.
    #[error("the job's input has {bytes} bytes; the limit is {limit}")]
    InputTooLarge {
        /// The actual size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The output is larger than the limit.
    #[error("the job's output exceeds the limit of {limit} bytes")]
    OutputTooLarge {
        /// The limit.
        limit: usize,
    },
    /// No sealed child could be started.
    #[error("no sealed child could be started: {0}")]
    Unavailable(String),
}
