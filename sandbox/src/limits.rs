//! The limits of a program, and related constants.

use std::time::Duration;

/// Address space of a program's child: room for the binary's own mapping, the largest heap and the buffers.
pub(crate) const PROGRAM_ADDRESS_SPACE: u64 = 768 * MIB as u64;
/// The largest heap that a caller may grant; with a larger one, the address space would run out first.
pub(crate) const MAX_HEAP: usize = 256 * MIB;
/// The largest JavaScript stack.
pub(crate) const MAX_STACK: usize = MIB;
/// The stack while the engine compiles the program: the compiler recurses for each `else if` of a chain and for each
/// level of nesting, both of which the analysis limits.
pub(crate) const COMPILE_STACK: usize = 4 * MIB;
/// The stack of the child's main thread, several times the engine's limit.
pub(crate) const THREAD_STACK: u64 = 16 * MIB as u64;
/// The kernel's CPU limit on a child, in case the host's own check fails.
pub(crate) const CPU_BACKSTOP: Duration = Duration::from_secs(120);
/// CPU time that one child of a job may use over its whole life. The host replaces it long before.
pub(crate) const JOB_LIFETIME_CPU: Duration = Duration::from_secs(600);
/// How far a program may exceed its CPU limit before the host kills it. Until then, the engine can still stop it and
/// report the line.
pub(crate) const CPU_GRACE: Duration = Duration::from_millis(100);
/// CPU time after which a program counts as long, and yields to short ones if [`PoolConfig::make_way`] is set.
pub(crate) const CPU_SHORT: Duration = Duration::from_millis(10);
/// Room for the fields around a payload in a frame.
pub(crate) const FRAME_OVERHEAD: usize = 64 * KIB;
/// Deepest nesting of a JSON value that crosses the boundary; the host's parser stops at 128.
pub(crate) const MAX_JSON_DEPTH: usize = 100;
/// Longest name of a namespace or an action.
pub(crate) const MAX_NAME: usize = 256;
/// Longest text of an error's message or stack.
pub(crate) const MAX_ERROR_TEXT: usize = 8 * KIB;
/// Timers that one program may have at once.
pub(crate) const MAX_TIMERS: usize = 1024;

pub(crate) const KIB: usize = 1024;
pub(crate) const MIB: usize = 1024 * KIB;

/// The limits of one program. Exceeding each of them has its own [`FailureKind`](crate::FailureKind).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time from start to end, without the time spent waiting for a human.
    pub wall: Duration,
    /// CPU time, without the time spent waiting for tools. At most 60 s are granted.
    pub cpu: Duration,
    /// Bytes of JavaScript heap. At most 256 MiB are granted.
    pub heap: usize,
    /// Bytes of stack. At most 1 MiB is granted.
    pub stack: usize,
    /// The total number of tool calls.
    pub calls: u64,
    /// Tool calls that the host runs concurrently; further ones wait in order.
    pub in_flight: usize,
    /// Bytes of one call's arguments as JSON.
    pub argument_bytes: usize,
    /// Bytes of one tool's result as JSON.
    pub tool_result_bytes: usize,
    /// Bytes of the program's result as JSON.
    pub result_bytes: usize,
    /// The maximum size of the console text, in bytes.
    pub console_bytes: usize,
}

impl Limits {
    /// Returns the limits of a run on the gateway.
    #[must_use]
    pub fn server() -> Limits {
        Limits {
            wall: Duration::from_secs(30),
            cpu: Duration::from_secs(2),
            heap: 64 * MIB,
            stack: 512 * KIB,
            calls: 1_000,
            in_flight: 64,
            argument_bytes: MIB,
            tool_result_bytes: 8 * MIB,
            result_bytes: MIB,
            console_bytes: 64 * KIB,
        }
    }

    /// Returns the limits of a run on the user's machine.
    #[must_use]
    pub fn client() -> Limits {
        Limits { wall: Duration::from_secs(300), cpu: Duration::from_secs(10), ..Limits::server() }
    }

    /// Clamps every limit to the range that can be enforced on a child.
    pub(crate) fn granted(&self) -> Limits {
        Limits {
            // Below `CPU_BACKSTOP`, so that the host's own check comes first.
            cpu: self.cpu.min(Duration::from_secs(60)),
            heap: self.heap.min(MAX_HEAP),
            stack: self.stack.min(MAX_STACK),
            // With 0, no call would ever start.
            in_flight: self.in_flight.max(1),
            ..self.clone()
        }
    }

    /// The longest frame that a child may send.
    pub(crate) fn frame_from_child(&self) -> usize {
        self.argument_bytes.max(self.result_bytes).max(self.console_bytes) + FRAME_OVERHEAD
    }
}

/// The number of children in a [`Pool`](crate::Pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Sealed children that wait for a program.
    pub warm: usize,
    /// Programs that run concurrently; further ones wait in order.
    pub max_running: usize,
    /// The number of children that are forked from one process before it is replaced. They share an address space
    /// layout; with 1, no two programs share one.
    pub forks: u32,
    /// Whether a program that has used 10 ms of CPU time runs only when no short program wants to run, and leaves one
    /// processor free. For hosts that run the programs of several people.
    pub make_way: bool,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        PoolConfig { warm: (2 * cores).min(16), max_running: 64, forks: 256, make_way: false }
    }
}
