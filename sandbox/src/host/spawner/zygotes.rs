//! Zygotes, of which children for programs are forked, and when each of them is replaced.
//!
//! All of this happens on the nursery's thread, which never blocks on a zygote: it sends the request, continues, and
//! handles the answer when it arrives. A zygote answers in the order of the requests.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

use super::process::{Child, Ended};
use super::{OnSpawn, start};
use crate::wire::control::{Answer, Ask};
use crate::wire::start::ZYGOTE;

/// The time limit of a zygote's answer, including its own start.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many zygotes are tried for one child.
const ATTEMPTS: u32 = 2;

/// The zygotes of one pool.
#[derive(Debug)]
pub(crate) struct Herd {
    /// How many children are forked from one zygote.
    forks: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<(Arc<Zygote>, u32)>,
    /// Takes over when the current one is worn out.
    next: Option<Arc<Zygote>>,
}

/// A zygote. It is killed when it is no longer forked from and its last child has been reaped.
#[derive(Debug)]
pub(crate) struct Zygote {
    control: OwnedFd,
    process: Child,
    asked: Mutex<VecDeque<Asked>>,
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Asked {
    since: Instant,
    what: What,
}

enum What {
    Fork { birth: Birth, socket: UnixStream },
    Reap { ended: Option<oneshot::Sender<Ended>> },
}

/// A child that is wanted.
pub(crate) struct Birth {
    herd: Arc<Herd>,
    attempts: u32,
    /// Why the last zygote failed.
    why: String,
    done: OnSpawn,
}

impl std::fmt::Debug for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            What::Fork { .. } => "Fork",
            What::Reap { .. } => "Reap",
        })
    }
}

impl Herd {
    /// Returns a herd that replaces each zygote after this many forks, at least one.
    pub(crate) fn new(forks: u32) -> Arc<Herd> {
        Arc::new(Herd { forks: forks.max(1), state: Mutex::default() })
    }

    /// Requests a child; returns the zygote that will answer.
    pub(crate) fn fork(self: Arc<Self>, done: OnSpawn) -> Option<Arc<Zygote>> {
        Birth { herd: self, attempts: 0, why: String::new(), done }.begin()
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
        if forked < self.forks {
            state.current = Some((Arc::clone(&zygote), forked));
        }
        if state.next.is_none() && forked.saturating_mul(4) >= self.forks.saturating_mul(3) {
            // One that does not start is tried again when it is needed.
            state.next = Zygote::start().ok();
        }
        Ok(zygote)
    }

    /// Stops forking from a zygote that failed.
    fn give_up(&self, zygote: &Arc<Zygote>) {
        let mut state = lock(&self.state);
        if state.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, zygote)) {
            state.current = None;
        }
    }
}

impl Birth {
    fn begin(mut self) -> Option<Arc<Zygote>> {
        loop {
            if self.attempts == ATTEMPTS {
                let why = &self.why;
                let message =
                    format!("the process that children are forked from has exited: {why}");
                (self.done)(Err(io::Error::other(message)));
                return None;
            }
            self.attempts += 1;
            let asked = self.herd.choose().and_then(|zygote| {
                let (ours, theirs) = UnixStream::pair()?;
                ours.set_nonblocking(true)?;
                Ok((zygote, ours, theirs))
            });
            let (zygote, socket, theirs) = match asked {
                Ok(asked) => asked,
                Err(error) => {
                    (self.done)(Err(error));
                    return None;
                }
            };
            match Ask::Fork.send(&zygote.control, Some(theirs.as_fd())) {
                Ok(()) => {
                    zygote.expect(What::Fork { birth: self, socket });
                    return Some(zygote);
                }
                Err(error) => self.why = format!("it cannot be asked: {error}"),
            }
            self.herd.give_up(&zygote);
        }
    }
}

impl Zygote {
    fn start() -> io::Result<Arc<Zygote>> {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let process = start(&[ZYGOTE.to_owned()], theirs, None)?;
        Ok(Arc::new(Zygote { control: ours, process, asked: Mutex::default() }))
    }

    fn expect(&self, what: What) {
        lock(&self.asked).push_back(Asked { since: Instant::now(), what });
    }

    /// Requests the exit status of a dead child.
    pub(crate) fn reap(&self, pid: Pid, ended: Option<oneshot::Sender<Ended>>) {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        match Ask::Reap(number).send(&self.control, None) {
            Ok(()) => self.expect(What::Reap { ended }),
            // Without its parent, the kernel reaps it, and its exit status is lost.
            Err(_) => tell(ended, Ended::Unknown),
        }
    }

    /// Returns the descriptor that becomes readable when there is an answer.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Returns whether a question is open.
    pub(crate) fn owes(&self) -> bool {
        !lock(&self.asked).is_empty()
    }

    /// Takes the answers that have arrived. If this zygote failed, returns the zygotes that its pending requests were
    /// sent to instead.
    pub(crate) fn listen(self: &Arc<Self>) -> Vec<Arc<Zygote>> {
        loop {
            if !self.owes() {
                return Vec::new();
            }
            match Answer::receive(&self.control) {
                Ok(answer) => self.heard(answer),
                Err(rustix::io::Errno::AGAIN) if !self.is_late() => return Vec::new(),
                Err(error) => return self.fail(&format!("it did not answer: {error}")),
            }
        }
    }

    fn is_late(&self) -> bool {
        lock(&self.asked).front().is_some_and(|asked| asked.since.elapsed() > PATIENCE)
    }

    fn heard(self: &Arc<Self>, answer: Answer) {
        let Some(asked) = lock(&self.asked).pop_front() else { return };
        match (asked.what, answer) {
            (What::Fork { birth, socket }, Answer::Forked(pid)) => {
                let child = self.child_of(pid, socket);
                (birth.done)(child);
            }
            (What::Fork { birth, .. }, Answer::Refused(message)) => {
                birth.herd.give_up(self);
                (birth.done)(Err(io::Error::other(message)));
            }
            (What::Fork { birth, .. }, Answer::Reaped(_)) => {
                (birth.done)(Err(io::Error::other("a zygote sent an unexpected answer")));
            }
            (What::Reap { ended }, Answer::Reaped(Ok(code))) => tell(ended, Ended::Exit(code)),
            (What::Reap { ended }, Answer::Reaped(Err(signal))) => {
                tell(ended, Ended::Signal(signal));
            }
            (What::Reap { ended }, _) => tell(ended, Ended::Unknown),
        }
    }

    /// Takes ownership of a forked child.
    fn child_of(self: &Arc<Self>, pid: u32, socket: UnixStream) -> io::Result<Child> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a forked child has no process id"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        // Only while the zygote lives, the pid cannot be reused by another process.
        if self.process.is_alive() {
            Ok(Child::forked(pid, pidfd, socket, Arc::clone(self)))
        } else {
            Err(io::Error::other("the process that children are forked from has died"))
        }
    }

    /// Requests the children that this zygote still owes from other zygotes.
    fn fail(self: &Arc<Self>, why: &str) -> Vec<Arc<Zygote>> {
        let open = std::mem::take(&mut *lock(&self.asked));
        let mut others = Vec::new();
        for asked in open {
            match asked.what {
                What::Fork { mut birth, .. } => {
                    birth.herd.give_up(self);
                    birth.why = why.to_owned();
                    others.extend(birth.begin());
                }
                What::Reap { ended } => tell(ended, Ended::Unknown),
            }
        }
        others
    }
}

fn tell(ended: Option<oneshot::Sender<Ended>>, how: Ended) {
    if let Some(ended) = ended {
        let _ = ended.send(how);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
