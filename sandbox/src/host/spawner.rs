//! Starts every child process and reaps it.
//!
//! One thread does both and never ends: the kernel's parent-death signal follows the *thread* that started a
//! child, so a thread that came and went would take the children with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock, mpsc};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

use crate::wire::start::CHILD_MARK;

mod process;
mod zygotes;

pub(crate) use process::{Child, Ended};
pub(crate) use zygotes::Herd;

use process::Dead;
use zygotes::Zygote;

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

/// Starts a child; `done` is called on the nursery's thread.
pub(crate) fn spawn(kind: Kind, done: OnSpawn) {
    match nursery() {
        Ok(nursery) => nursery.order(Order::Spawn { kind, done }),
        Err(message) => done(Err(io::Error::other(message.clone()))),
    }
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

/// Starts this binary again with a stream to talk over.
fn exec(arguments: &[String]) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    start(arguments, theirs.into(), Some(ours))
}

/// Starts this binary again. The socket arrives as descriptor 0; the child closes all else before it does
/// anything, so no code of ours has to run between fork and exec.
fn start(arguments: &[String], socket: OwnedFd, ours: Option<UnixStream>) -> io::Result<Child> {
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
        Ok(pidfd) => Ok(Child::started(pid, pidfd, ours)),
        Err(error) => {
            let mut started = started;
            let _ = started.kill();
            let _ = started.wait();
            Err(error.into())
        }
    }
}
