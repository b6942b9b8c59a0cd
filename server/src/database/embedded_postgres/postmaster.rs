//! The running server process. It is spawned so that it dies with this process, and signalled through a pidfd, which
//! can never refer to another process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::POLL;

/// A `postgres` process and the thread that spawned it.
#[derive(Debug)]
pub(super) struct Postmaster {
    pid: u32,
    handle: OwnedFd,
    /// The thread exits when the process has been reaped.
    spawner: JoinHandle<()>,
}

impl Postmaster {
    /// Spawns the server from a thread that waits for it.
    ///
    /// `PR_SET_PDEATHSIG` applies to the exit of the spawning *thread*, not of the process: spawned from a thread of a
    /// pool, the database would stop when the pool retires the thread.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // SIGINT is Postgres's fast shutdown.
        die_with_parent(&mut command, Signal::INT);
        // With room for the only message, so that the thread never waits for the receiver.
        let (sender, receiver) = mpsc::sync_channel(1);
        let spawner = thread::Builder::new().name("postgres".into()).spawn(move || {
            let spawned = command.spawn().and_then(|child| {
                let pid = Pid::from_child(&child);
                // Not reaped yet, so the pid still belongs to our child.
                Ok((pidfd_open(pid, PidfdFlags::empty())?, child))
            });
            match spawned {
                Ok((handle, mut child)) => {
                    let _ = sender.send(Ok((child.id(), handle)));
                    // Only reaps the process. That this thread has ended is what reports the exit.
                    let _ = child.wait();
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        let (pid, handle) =
            receiver.recv().map_err(|_| io::Error::other("the spawning thread ended"))??;
        Ok(Self { pid, handle, spawner })
    }

    /// Returns the process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether the process has exited.
    pub(super) fn has_exited(&self) -> bool {
        self.spawner.is_finished()
    }

    /// Stops the process, with a fast and then an immediate shutdown; returns whether it exited.
    pub(super) fn stop(&self, limit: Duration) -> bool {
        // Fast, then immediate shutdown, then a kill, from which Postgres recovers at its next start.
        for signal in [Signal::INT, Signal::QUIT, Signal::KILL] {
            // Fails only if the process has exited, which the loop detects.
            let _ = pidfd_send_signal(&self.handle, signal);
            let deadline = Instant::now() + limit;
            while Instant::now() < deadline {
                if self.has_exited() {
                    return true;
                }
                thread::sleep(POLL);
            }
        }
        false
    }
}

/// Makes the kernel signal the child when the spawning thread exits.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the forked child")]
pub(super) fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls run, and an error made
    // from an error number; nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // The parent may have died before the line above.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::CHILD.into());
            }
            Ok(())
        });
    }
}
