//! A child process, seen from the host: its CPU time, its priority, and its exit.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::oneshot;

use super::zygotes::Zygote;
use super::{SpawnerRequest, spawner};

/// The exit status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It is lost: the zygote that would have reaped the child has died.
    Unknown,
}

/// A living child. Dropping it kills it at once and has it reaped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    pid: Pid,
    /// Taken only when the child is handed over to be reaped.
    pidfd: Option<OwnedFd>,
    /// The host's end of the one socket; not blocking. Taken while a run uses it.
    pub(crate) socket: Option<UnixStream>,
    /// Whether its `ready` frame has been read.
    pub(crate) ready: bool,
    /// The zygote that forked it. Only the zygote can reap it, and it dies with the zygote.
    zygote: Option<Arc<Zygote>>,
}

/// A child that was killed and must be reaped.
pub(super) struct DeadChild {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) zygote: Option<Arc<Zygote>>,
}

impl ChildProcess {
    /// Returns a child that this process has started itself.
    pub(super) fn started(pid: Pid, pidfd: OwnedFd, socket: Option<UnixStream>) -> ChildProcess {
        ChildProcess { pid, pidfd: Some(pidfd), socket, ready: false, zygote: None }
    }

    /// Returns a child that a zygote has forked.
    pub(super) fn forked(
        pid: Pid,
        pidfd: OwnedFd,
        socket: UnixStream,
        zygote: Arc<Zygote>,
    ) -> ChildProcess {
        ChildProcess {
            pid,
            pidfd: Some(pidfd),
            socket: Some(socket),
            ready: false,
            zygote: Some(zygote),
        }
    }

    /// Returns whether the process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&rustix::event::Timespec::default())), Ok(0))
    }

    /// Returns the CPU time that the process has used, all threads together.
    ///
    /// The process is not reaped while `self` lives, so its pid is not reused.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        cpu_of(self.pid)
    }

    /// Returns a reader of the CPU time. Use it only while the child lives.
    pub(crate) fn cpu_reader(&self) -> impl Fn() -> Option<Duration> + Send + Sync + 'static {
        let pid = self.pid;
        move || cpu_of(pid)
    }

    /// Returns a function that makes the process run only when no short program wants to, and on one processor fewer
    /// than the host has. Call it only while the child lives.
    ///
    /// A low priority is not sufficient: a woken thread still waits for the end of a time slice, and a request wakes
    /// threads a dozen times. A `SCHED_IDLE` process is preempted at once, but only by processes of the same session
    /// and control group. For all others, one processor runs no long program.
    pub(crate) fn deprioritizer(&self) -> impl Fn() + Send + Sync + 'static {
        let pid = self.pid;
        move || {
            // `SCHED_IDLE` accepts no other priority.
            let idle = libc::sched_param { sched_priority: 0 };
            #[expect(unsafe_code, reason = "no safe wrapper")]
            // SAFETY: the parameter lives across the call. If the call fails, the program costs others time, and
            // nothing else.
            unsafe {
                libc::sched_setscheduler(
                    pid.as_raw_nonzero().get(),
                    libc::SCHED_IDLE,
                    &raw const idle,
                );
            }
            let Ok(mut allowed) = sched_getaffinity(None) else { return };
            let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
            // With a single processor there is none to leave free.
            if let Some(first) = first.filter(|_| allowed.count() > 1) {
                allowed.unset(first);
                let _ = sched_setaffinity(Some(pid), &allowed);
            }
        }
    }

    /// Kills the process and waits until it has exited.
    pub(crate) async fn kill_and_reap(mut self) -> ExitStatus {
        let (sender, receiver) = oneshot::channel();
        self.hand_over(Some(sender));
        receiver.await.unwrap_or(ExitStatus::Unknown)
    }

    fn hand_over(&mut self, on_exit: Option<oneshot::Sender<ExitStatus>>) {
        // `drop` runs after `kill_and_reap` as well, and finds nothing left to do.
        let Some(pidfd) = self.pidfd.take() else { return };
        // A process that has already died keeps its own exit status.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        if let Ok(spawner) = spawner() {
            let dead = DeadChild { pid: self.pid, pidfd, zygote: self.zygote.take() };
            spawner.request(SpawnerRequest::Reap { dead, on_exit });
        }
    }

    /// Waits until the process exits by itself, so that its own exit status is seen, or until the timeout.
    pub(crate) async fn wait_to_exit(&self, timeout: Duration) {
        let deadline = tokio::time::Instant::now() + timeout;
        while self.is_alive() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.hand_over(None);
    }
}

fn cpu_of(pid: Pid) -> Option<Duration> {
    // The kernel's own encoding of "the CPU clock of this process": CPUCLOCK_SCHED is 2.
    let clock = (!pid.as_raw_nonzero().get() << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "no safe wrapper takes the CPU clock of another process")]
    // SAFETY: `time` is a valid place for one timespec, and the call accepts any clock id.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if answer != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

impl DeadChild {
    pub(super) fn reap(&self) -> ExitStatus {
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => status
                .terminating_signal()
                .map(ExitStatus::Signal)
                .or(status.exit_status().map(ExitStatus::Code))
                .unwrap_or(ExitStatus::Unknown),
            _ => ExitStatus::Unknown,
        }
    }
}
