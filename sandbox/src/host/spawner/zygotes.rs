//! The zygotes from which children for programs are forked, and their replacement.
//!
//! All of this runs on the spawner's thread, which never blocks on a zygote: it sends a request, continues, and handles
//! the reply when it arrives. A zygote replies in the order of the requests, so a queue pairs each reply with its
//! request.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

use super::process::{ChildProcess, ExitStatus};
use super::{OnSpawn, start};
use crate::wire::control::{Reply, Request};
use crate::wire::start::ZYGOTE;

/// The time limit of a zygote's reply, including its own start.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of zygotes that are tried for one child.
const ATTEMPTS: u32 = 2;

/// The zygotes of one pool.
#[derive(Debug)]
pub(crate) struct Zygotes {
    /// The number of children that are forked from one zygote.
    forks: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<(Arc<Zygote>, u32)>,
    /// The successor, used when the current one has made all of its forks.
    next: Option<Arc<Zygote>>,
}

/// A zygote. It is dropped, and thereby killed, once it makes no more forks and its last child has been reaped.
#[derive(Debug)]
pub(crate) struct Zygote {
    control: OwnedFd,
    process: ChildProcess,
    pending: Mutex<VecDeque<Pending>>,
}

/// A request that has no reply yet.
#[derive(Debug)]
struct Pending {
    since: Instant,
    expected: Expected,
}

/// The expected reply, and its receiver.
enum Expected {
    Fork { fork: PendingFork, socket: UnixStream },
    Reap { on_exit: Option<oneshot::Sender<ExitStatus>> },
}

/// A requested fork, and its receiver.
pub(crate) struct PendingFork {
    zygotes: Arc<Zygotes>,
    warm_up: bool,
    attempts: u32,
    /// Why the last zygote failed.
    why: String,
    done: OnSpawn,
}

impl std::fmt::Debug for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Expected::Fork { .. } => "Fork",
            Expected::Reap { .. } => "Reap",
        })
    }
}

impl Zygotes {
    /// Returns a set that replaces each zygote after this many forks, at least one. Starts none yet.
    pub(crate) fn new(forks: u32) -> Arc<Zygotes> {
        Arc::new(Zygotes { forks: forks.max(1), state: Mutex::default() })
    }

    /// Requests a child; returns the zygote that will reply.
    pub(crate) fn fork(self: Arc<Self>, warm_up: bool, done: OnSpawn) -> Option<Arc<Zygote>> {
        PendingFork { zygotes: self, warm_up, attempts: 0, why: String::new(), done }.request()
    }

    /// Returns the zygote to fork from next, and counts the fork.
    fn choose(&self) -> io::Result<Arc<Zygote>> {
        let mut state = lock(&self.state);
        let (zygote, forked) = match state.current.take() {
            Some((zygote, forked)) if zygote.process.is_alive() => (zygote, forked + 1),
            _ => match state.next.take() {
                Some(next) => (next, 1),
                None => (Zygote::start()?, 1),
            },
        };
        // After its last fork, only its children and its pending replies keep the zygote alive.
        if forked < self.forks {
            state.current = Some((Arc::clone(&zygote), forked));
        }
        if state.next.is_none() && forked.saturating_mul(4) >= self.forks.saturating_mul(3) {
            // A zygote takes far longer to start than to fork, so its successor starts before its last forks. If that
            // fails now, it is tried again when the successor is needed.
            state.next = Zygote::start().ok();
        }
        Ok(zygote)
    }

    /// Stops forking from a zygote that failed.
    fn give_up(&self, zygote: &Arc<Zygote>) {
        let mut state = lock(&self.state);
        // Another request may have replaced it already.
        if state.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, zygote)) {
            state.current = None;
        }
    }
}

impl PendingFork {
    fn request(mut self) -> Option<Arc<Zygote>> {
        loop {
            if self.attempts == ATTEMPTS {
                let why = &self.why;
                let message =
                    format!("the process that children are forked from has exited: {why}");
                (self.done)(Err(io::Error::other(message)));
                return None;
            }
            self.attempts += 1;
            let chosen = self.zygotes.choose().and_then(|zygote| {
                let (ours, theirs) = UnixStream::pair()?;
                ours.set_nonblocking(true)?;
                Ok((zygote, ours, theirs))
            });
            let (zygote, socket, theirs) = match chosen {
                Ok(chosen) => chosen,
                // The machine has no process or no socket to offer at present, so trying again
                // would not help.
                Err(error) => {
                    (self.done)(Err(error));
                    return None;
                }
            };
            // The kernel passes on a copy. The host's own is closed with this round, so that the
            // host sees the end of the stream when the child exits.
            let request = Request::Fork { warm_up: self.warm_up };
            match request.send(&zygote.control, Some(theirs.as_fd())) {
                Ok(()) => {
                    zygote.expect(Expected::Fork { fork: self, socket });
                    return Some(zygote);
                }
                Err(error) => self.why = format!("it cannot be reached: {error}"),
            }
            self.zygotes.give_up(&zygote);
        }
    }
}

impl Zygote {
    fn start() -> io::Result<Arc<Zygote>> {
        // Packets keep their boundaries, and unlike datagrams they report that the peer has exited.
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let process = start(&[ZYGOTE.to_owned()], theirs, None)?;
        Ok(Arc::new(Zygote { control: ours, process, pending: Mutex::default() }))
    }

    fn expect(&self, expected: Expected) {
        lock(&self.pending).push_back(Pending { since: Instant::now(), expected });
    }

    /// Requests the exit status of a dead child.
    pub(crate) fn reap(&self, pid: Pid, on_exit: Option<oneshot::Sender<ExitStatus>>) {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        match Request::Reap(number).send(&self.control, None) {
            Ok(()) => self.expect(Expected::Reap { on_exit }),
            // Without its parent, the kernel reaps it, and its exit status is lost.
            Err(_) => report(on_exit, ExitStatus::Unknown),
        }
    }

    /// Returns the descriptor that becomes readable when a reply arrives.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Returns whether a request has no reply yet.
    pub(crate) fn has_pending(&self) -> bool {
        !lock(&self.pending).is_empty()
    }

    /// Handles the replies that have arrived. If this zygote failed, returns the zygotes to which its pending requests
    /// were sent instead.
    pub(crate) fn receive_replies(self: &Arc<Self>) -> Vec<Arc<Zygote>> {
        loop {
            if !self.has_pending() {
                return Vec::new();
            }
            match Reply::receive(&self.control) {
                Ok(reply) => self.handle(reply),
                Err(rustix::io::Errno::AGAIN) if !self.is_late() => return Vec::new(),
                Err(error) => return self.fail(&format!("it did not answer: {error}")),
            }
        }
    }

    fn is_late(&self) -> bool {
        lock(&self.pending).front().is_some_and(|pending| pending.since.elapsed() > REPLY_TIMEOUT)
    }

    fn handle(self: &Arc<Self>, reply: Reply) {
        let Some(pending) = lock(&self.pending).pop_front() else { return };
        match (pending.expected, reply) {
            (Expected::Fork { fork, socket }, Reply::Forked(pid)) => {
                let child = self.child_of(pid, socket);
                (fork.done)(child);
            }
            (Expected::Fork { fork, .. }, Reply::Refused(message)) => {
                fork.zygotes.give_up(self);
                (fork.done)(Err(io::Error::other(message)));
            }
            (Expected::Fork { fork, .. }, Reply::Reaped(_)) => {
                (fork.done)(Err(io::Error::other("a zygote sent an unexpected answer")));
            }
            (Expected::Reap { on_exit }, Reply::Reaped(Ok(code))) => {
                report(on_exit, ExitStatus::Code(code));
            }
            (Expected::Reap { on_exit }, Reply::Reaped(Err(signal))) => {
                report(on_exit, ExitStatus::Signal(signal));
            }
            (Expected::Reap { on_exit }, _) => report(on_exit, ExitStatus::Unknown),
        }
    }

    /// Takes ownership of a forked child.
    fn child_of(self: &Arc<Self>, pid: u32, socket: UnixStream) -> io::Result<ChildProcess> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a forked child has no process id"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // Only the zygote can reap the child, and the kernel reuses a pid only after that. So, if the zygote still
        // lives, the descriptor opened above is the child's.
        if self.process.is_alive() {
            Ok(ChildProcess::forked(pid, pidfd, socket, Arc::clone(self)))
        } else {
            Err(io::Error::other("the process that children are forked from has died"))
        }
    }

    /// Abandons this zygote, and requests its pending forks from other zygotes.
    fn fail(self: &Arc<Self>, why: &str) -> Vec<Arc<Zygote>> {
        // Taken out first, so that the lock is not held while other zygotes are asked.
        let unanswered = std::mem::take(&mut *lock(&self.pending));
        let mut others = Vec::new();
        for pending in unanswered {
            match pending.expected {
                Expected::Fork { mut fork, .. } => {
                    fork.zygotes.give_up(self);
                    fork.why = why.to_owned();
                    others.extend(fork.request());
                }
                Expected::Reap { on_exit } => report(on_exit, ExitStatus::Unknown),
            }
        }
        others
    }
}

/// Sends an exit status to its receiver, if there is one.
pub(super) fn report(on_exit: Option<oneshot::Sender<ExitStatus>>, status: ExitStatus) {
    if let Some(on_exit) = on_exit {
        let _ = on_exit.send(status);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
