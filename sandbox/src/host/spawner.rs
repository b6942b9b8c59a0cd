//! Starts and reaps every child process, on one thread that never exits.
//!
//! The thread must not end: the kernel sends the parent-death signal when the *thread* that started a child exits. A
//! child that a thread of a pool started would be killed with that thread.
//!
//! A process and the zygote that forked it refer to each other, and both send requests to this thread, so the three
//! modules belong together: a dropped process is handed to the thread, and only its zygote can reap it.

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

pub(crate) use process::{ChildProcess, ExitStatus};
pub(crate) use zygotes::Zygotes;

use process::DeadChild;
use zygotes::{Zygote, report};

/// A callback for a child that has started, or for the reason why none has.
pub(crate) type OnSpawn = Box<dyn FnOnce(io::Result<ChildProcess>) + Send>;

/// The kind of the requested child.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// This binary, started again with these arguments.
    Exec(Vec<String>),
    /// A fork of a zygote.
    Fork(Arc<Zygotes>),
}

/// A request to the thread.
enum SpawnerRequest {
    Spawn { kind: Kind, warm_up: bool, done: OnSpawn },
    Reap { dead: DeadChild, on_exit: Option<oneshot::Sender<ExitStatus>> },
}

/// A handle to the thread. A request goes into the channel; the descriptor wakes the thread from its poll.
struct Spawner {
    requests: mpsc::Sender<SpawnerRequest>,
    wake: OwnedFd,
}

/// Starts a child; `done` is called on the spawner's thread. A fork warms up if requested; a job has nothing to warm up.
pub(crate) fn spawn(kind: Kind, warm_up: bool, done: OnSpawn) {
    match spawner() {
        Ok(spawner) => spawner.request(SpawnerRequest::Spawn { kind, warm_up, done }),
        Err(message) => done(Err(io::Error::other(message.clone()))),
    }
}

fn spawner() -> Result<&'static Spawner, &'static String> {
    static SPAWNER: OnceLock<Result<Spawner, String>> = OnceLock::new();
    SPAWNER
        .get_or_init(|| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| format!("cannot start child processes: eventfd: {e}"))?;
            let (requests, inbox) = mpsc::channel();
            let woken =
                wake.try_clone().map_err(|e| format!("cannot start child processes: {e}"))?;
            std::thread::Builder::new()
                .name("sandbox-spawner".to_owned())
                .spawn(move || run(&inbox, &woken))
                .map_err(|e| format!("cannot start child processes: {e}"))?;
            Ok(Spawner { requests, wake })
        })
        .as_ref()
}

impl Spawner {
    fn request(&self, request: SpawnerRequest) {
        // The thread never exits, so its receiver always exists.
        let _ = self.requests.send(request);
        // After the request is in the channel: the thread drains this descriptor before it looks
        // there. If the counter is full, the thread has been woken already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The interval of checks for late zygotes.
const LATE_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The thread's main function: waits for requests, for replies of zygotes, and for the exit of killed children.
fn run(inbox: &mpsc::Receiver<SpawnerRequest>, woken: &OwnedFd) {
    let mut dying: Vec<(DeadChild, Option<oneshot::Sender<ExitStatus>>)> = Vec::new();
    // Zygotes with pending requests.
    let mut zygotes: Vec<Arc<Zygote>> = Vec::new();
    loop {
        let exited: Vec<bool> = {
            let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(1 + zygotes.len() + dying.len());
            polled.push(PollFd::new(woken, PollFlags::IN));
            polled.extend(
                zygotes
                    .iter()
                    .map(|zygote| PollFd::from_borrowed_fd(zygote.control(), PollFlags::IN)),
            );
            polled.extend(dying.iter().map(|(dead, _)| PollFd::new(&dead.pidfd, PollFlags::IN)));
            // Without a pending request, no reply can be late.
            let timeout = (!zygotes.is_empty()).then_some(&LATE_CHECK_INTERVAL);
            // A signal has interrupted the wait.
            if poll(&mut polled, timeout).is_err() {
                continue;
            }
            polled[1 + zygotes.len()..].iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        for zygote in std::mem::take(&mut zygotes) {
            for other in zygote.receive_replies() {
                watch(&mut zygotes, other);
            }
            if zygote.has_pending() {
                watch(&mut zygotes, zygote);
            }
        }
        // The list is the one that was polled, so the indices agree.
        for (index, (dead, on_exit)) in std::mem::take(&mut dying).into_iter().enumerate() {
            if !exited[index] {
                dying.push((dead, on_exit));
            } else if let Some(zygote) = dead.zygote {
                zygote.reap(dead.pid, on_exit);
                watch(&mut zygotes, zygote);
            } else {
                report(on_exit, dead.reap());
            }
        }
        // Drained before the requests are received, so that a request that arrives later wakes the next poll.
        let _ = rustix::io::read(woken, &mut [0u8; 8]);
        while let Ok(request) = inbox.try_recv() {
            match request {
                SpawnerRequest::Spawn { kind: Kind::Exec(arguments), done, .. } => {
                    done(exec(&arguments))
                }
                SpawnerRequest::Spawn { kind: Kind::Fork(pool), warm_up, done } => {
                    if let Some(zygote) = pool.fork(warm_up, done) {
                        watch(&mut zygotes, zygote);
                    }
                }
                SpawnerRequest::Reap { dead, on_exit } => dying.push((dead, on_exit)),
            }
        }
    }
}

/// Adds a zygote to those with pending requests.
fn watch(zygotes: &mut Vec<Arc<Zygote>>, zygote: Arc<Zygote>) {
    if !zygotes.iter().any(|known| Arc::ptr_eq(known, &zygote)) {
        zygotes.push(zygote);
    }
}

/// Makes the C library's allocator cache up to 127 freed blocks per size instead of 7, with which an analysis takes
/// 12 % less time. The library reads the variable once, at the start; the child then clears its environment.
const ALLOCATOR_SETTINGS: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");

/// Starts this binary again with a new stream socket.
fn exec(arguments: &[String]) -> io::Result<ChildProcess> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    start(arguments, theirs.into(), Some(ours))
}

/// Starts this binary again. The child gets `socket` as descriptor 0; `ours` is the host's end, if it is a stream.
///
/// The child closes all other descriptors first, so no code has to run between fork and exec, where a process with
/// several threads may do almost nothing.
fn start(
    arguments: &[String],
    socket: OwnedFd,
    ours: Option<UnixStream>,
) -> io::Result<ChildProcess> {
    // The binary that is running, even if an update has replaced the file at its path.
    let started = Command::new("/proc/self/exe")
        .arg0("pml-sandbox")
        .arg(CHILD_MARK)
        .arg(std::process::id().to_string())
        .args(arguments)
        .env_clear()
        .env(ALLOCATOR_SETTINGS.0, ALLOCATOR_SETTINGS.1)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = Pid::from_child(&started);
    // Nobody has reaped the child yet, so the number still belongs to it.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(ChildProcess::started(pid, pidfd, ours)),
        Err(error) => {
            let mut started = started;
            let _ = started.kill();
            let _ = started.wait();
            Err(error.into())
        }
    }
}
