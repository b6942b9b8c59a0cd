//! What a process may use of the machine.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

/// How much nicer than its parent a bounded process is: what serves requests comes first.
const NICE: i32 = 10;

/// Bounds on each process of a program, by the limits of the system, which hold for what it starts as well; and on all of
/// them together, which whoever supervises it checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The memory that each process can write, in bytes, and that all hold together. Not the address space: some engines
    /// reserve far more than they use.
    pub memory: u64,
    /// The CPU time of each process, in seconds; the system then ends it.
    pub cpu_seconds: u64,
    /// The size of a file that a process writes, in bytes.
    pub file: u64,
    /// The size of all files together where the program may write, in bytes, with deleted ones that are still in use.
    pub folder: u64,
    /// The number of open files of each process.
    pub descriptors: u64,
    /// The number of processes of the program together.
    pub processes: u32,
}

impl Bounds {
    pub(super) fn apply(&self) -> Result<(), Errno> {
        for (resource, most) in [
            (Resource::Data, self.memory),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Fsize, self.file),
            (Resource::Nofile, self.descriptors),
            // A dump would have the variables of the process, and with them keys.
            (Resource::Core, 0),
        ] {
            // Never more than now, which only root could set.
            let now = rustix::process::getrlimit(resource).maximum;
            let most = now.map_or(most, |now| now.min(most));
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        let now = rustix::process::getpriority_process(None)?;
        setpriority_process(None, now + NICE)
    }
}
