//! Starts every child process and reaps it.
//!
//! One thread does both and never ends: the kernel's parent-death signal follows the *thread* that started a
//! child, so a thread that came and went would take the children with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::oneshot;

use crate::child::CHILD_MARK;
use crate::herd::{Herd, Zygote};

pub(crate) type OnSpawn = Box<dyn FnOnce(io::Result<Child>) + Send>;

/// The kind of the requested child.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// This binary, started again with these arguments.
    Exec(Vec<String>),
    /// A fork of a zygote.
    Fork(Arc<Herd>),
}

enum Order {
    Spawn { kind: Kind, done: OnSpawn },
    Reap { dead: Dead, ended: Option<oneshot::Sender<Ended>> },
}

struct Nursery {
    orders: mpsc::Sender<Order>,
    wake: OwnedFd,
}

/// The exit status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
    Unknown,
}

/// A living child. Dropping it kills it at once and has it reaped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Taken only when the child is handed over to be reaped.
    pidfd: Option<OwnedFd>,
    /// The host's end of the one socket; not blocking. Taken while a run uses it.
    pub(crate) socket: Option<UnixStream>,
    /// Whether its `ready` frame has been read.
    pub(crate) ready: bool,
    /// The zygote that forked it, which alone can reap it, and with which it dies.
    zygote: Option<Arc<Zygote>>,
}

/// A child that was killed and is to be reaped.
struct Dead {
    pid: Pid,
    pidfd: OwnedFd,
    zygote: Option<Arc<Zygote>>,
}

/// Starts a child; `done` is called on the nursery's thread.
pub(crate) fn spawn(kind: Kind, done: OnSpawn) {
    match nursery() {
        Ok(nursery) => nursery.order(Order::Spawn { kind, done }),
        Err(message) => done(Err(io::Error::other(message.clone()))),
    }
}

impl Child {
    /// Returns a child that a zygote has forked.
    pub(crate) fn forked(
        pid: Pid,
        pidfd: OwnedFd,
        socket: UnixStream,
        zygote: Arc<Zygote>,
    ) -> Child {
        Child { pid, pidfd: Some(pidfd), socket: Some(socket), ready: false, zygote: Some(zygote) }
    }

    /// Returns whether the process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&rustix::event::Timespec::default())), Ok(0))
    }

    /// Returns the CPU time that the process has used, all threads together.
    ///
    /// The process is not reaped while `self` lives, so the number cannot be another's.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        cpu_of(self.pid)
    }

    /// Returns a reader of the CPU time. Use it only while the child lives.
    pub(crate) fn cpu_reader(&self) -> impl Fn() -> Option<Duration> + Send + Sync + 'static {
        let pid = self.pid;
        move || cpu_of(pid)
    }

    /// Returns a handle that limits the process to times when no short program wants to run, and to one processor
    /// fewer than the host has. Use it only while the child lives.
    ///
    /// A low priority is not sufficient: a woken thread still waits for the end of a time slice, and a request wakes
    /// threads a dozen times. A `SCHED_IDLE` process is preempted at once, but only by processes of the same session
    /// and control group. For all others, one processor runs no long program.
    pub(crate) fn step_back(&self) -> impl Fn() + Send + Sync + 'static {
        let pid = self.pid;
        move || {
            let idle = libc::sched_param { sched_priority: 0 };
            #[expect(unsafe_code, reason = "no safe wrapper")]
            // SAFETY: the parameter lives across the call. A program that keeps its place costs others time, and
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
            if let Some(first) = first.filter(|_| allowed.count() > 1) {
                allowed.unset(first);
                let _ = sched_setaffinity(Some(pid), &allowed);
            }
        }
    }

    /// Kills the process and waits until it has exited.
    pub(crate) async fn end(mut self) -> Ended {
        let (sender, receiver) = oneshot::channel();
        // A child that closed its socket is about to exit by itself, and its exit status has the reason.
        self.hand_over(Some(sender));
        receiver.await.unwrap_or(Ended::Unknown)
    }

    fn hand_over(&mut self, ended: Option<oneshot::Sender<Ended>>) {
        let Some(pidfd) = self.pidfd.take() else { return };
        // A process that has already died keeps its own exit status.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        if let Ok(nursery) = nursery() {
            let dead = Dead { pid: self.pid, pidfd, zygote: self.zygote.take() };
            nursery.order(Order::Reap { dead, ended });
        }
    }

    /// Waits a moment for the process to exit by itself, so that its own status is seen.
    pub(crate) async fn settle(&self, patience: Duration) {
        let deadline = tokio::time::Instant::now() + patience;
        while self.is_alive() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.hand_over(None);
    }
}

fn cpu_of(pid: Pid) -> Option<Duration> {
    // The kernel's own encoding of "the CPU clock of this process": CPUCLOCK_SCHED is 2.
    let clock = (!pid.as_raw_nonzero().get() << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "no safe wrapper takes the CPU clock of another process")]
    // SAFETY: `time` is a valid place for one timespec, and any clock id may be asked for.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if answer != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

fn nursery() -> Result<&'static Nursery, &'static String> {
    static NURSERY: OnceLock<Result<Nursery, String>> = OnceLock::new();
    NURSERY
        .get_or_init(|| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| format!("cannot start child processes: eventfd: {e}"))?;
            let (orders, inbox) = mpsc::channel();
            let bell =
                wake.try_clone().map_err(|e| format!("cannot start child processes: {e}"))?;
            std::thread::Builder::new()
                .name("sandbox-nursery".to_owned())
                .spawn(move || run(&inbox, &bell))
                .map_err(|e| format!("cannot start child processes: {e}"))?;
            Ok(Nursery { orders, wake })
        })
        .as_ref()
}

impl Nursery {
    fn order(&self, order: Order) {
        // The thread never ends, so its receiver is always there.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The interval of checks for late zygotes.
const LATE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

fn run(inbox: &mpsc::Receiver<Order>, bell: &OwnedFd) {
    let mut dying: Vec<(Dead, Option<oneshot::Sender<Ended>>)> = Vec::new();
    // Those that owe an answer.
    let mut zygotes: Vec<Arc<Zygote>> = Vec::new();
    loop {
        let gone: Vec<bool> = {
            let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(1 + zygotes.len() + dying.len());
            polled.push(PollFd::new(bell, PollFlags::IN));
            polled.extend(
                zygotes
                    .iter()
                    .map(|zygote| PollFd::from_borrowed_fd(zygote.control(), PollFlags::IN)),
            );
            polled.extend(dying.iter().map(|(dead, _)| PollFd::new(&dead.pidfd, PollFlags::IN)));
            let timeout = (!zygotes.is_empty()).then_some(&LATE);
            if poll(&mut polled, timeout).is_err() {
                continue;
            }
            polled[1 + zygotes.len()..].iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        for zygote in std::mem::take(&mut zygotes) {
            for other in zygote.listen() {
                remember(&mut zygotes, other);
            }
            if zygote.owes() {
                remember(&mut zygotes, zygote);
            }
        }
        for (index, (dead, ended)) in std::mem::take(&mut dying).into_iter().enumerate() {
            if !gone[index] {
                dying.push((dead, ended));
            } else if let Some(zygote) = dead.zygote {
                zygote.reap(dead.pid, ended);
                remember(&mut zygotes, zygote);
            } else {
                let how = dead.reap();
                if let Some(ended) = ended {
                    let _ = ended.send(how);
                }
            }
        }
        let _ = rustix::io::read(bell, &mut [0u8; 8]);
        while let Ok(order) = inbox.try_recv() {
            match order {
                Order::Spawn { kind: Kind::Exec(arguments), done } => done(exec(&arguments)),
                Order::Spawn { kind: Kind::Fork(herd), done } => {
                    if let Some(zygote) = herd.fork(done) {
                        remember(&mut zygotes, zygote);
                    }
                }
                Order::Reap { dead, ended } => dying.push((dead, ended)),
            }
        }
    }
}

/// Adds a zygote to those that are listened to.
fn remember(zygotes: &mut Vec<Arc<Zygote>>, zygote: Arc<Zygote>) {
    if !zygotes.iter().any(|known| Arc::ptr_eq(known, &zygote)) {
        zygotes.push(zygote);
    }
}

impl Dead {
    fn reap(&self) -> Ended {
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => status
                .terminating_signal()
                .map(Ended::Signal)
                .or(status.exit_status().map(Ended::Exit))
                .unwrap_or(Ended::Unknown),
            _ => Ended::Unknown,
        }
    }
}

/// Starts this binary again with a stream to talk over.
fn exec(arguments: &[String]) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut child = start(arguments, theirs.into())?;
    child.socket = Some(ours);
    Ok(child)
}

/// Starts this binary again. The socket arrives as descriptor 0; the child closes all else before it does
/// anything, so no code of ours has to run between fork and exec.
pub(crate) fn start(arguments: &[String], socket: OwnedFd) -> io::Result<Child> {
    let started = Command::new("/proc/self/exe")
        .arg0("pml-sandbox")
        .arg(CHILD_MARK)
        .arg(std::process::id().to_string())
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = Pid::from_child(&started);
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            Ok(Child { pid, pidfd: Some(pidfd), socket: None, ready: false, zygote: None })
        }
        Err(error) => {
            let mut started = started;
            let _ = started.kill();
            let _ = started.wait();
            Err(error.into())
        }
    }
}
