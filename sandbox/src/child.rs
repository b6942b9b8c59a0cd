//! A child's start, from its first instruction until it waits, sealed, for its first message.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::process::Pid;

use crate::frame::{self, ToHost, VERSION};
use crate::job::Job;
use crate::layer::LayerReport;
use crate::wire::Wire;
use crate::{seal, worker, zygote};

/// The first argument of every child.
pub(crate) const CHILD_MARK: &str = "__sandbox-child";
/// The first kind of child forks those that run programs; the second runs jobs.
pub(crate) const ZYGOTE: &str = "zygote";
pub(crate) const JOB: &str = "job";

/// The descriptor of the one socket.
const SOCKET: i32 = 3;

/// Exit codes that report what a child could not send in a frame.
pub(crate) const EXIT_NOT_A_CHILD: i32 = 2;
pub(crate) const EXIT_PANIC: i32 = 101;

/// Becomes a sandbox child if this process was started as one, and then never returns.
///
/// Call it first in `main`, with every job that the binary offers, before any thread is started.
pub fn child_main_if_requested(jobs: &[Job]) {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CHILD_MARK) {
        let rest: Vec<String> = arguments.collect();
        child_main(&rest, jobs);
    }
}

/// Returns, from the first argument, whether a process is a sandbox child, for decisions that come before `main`.
pub fn marks_child(first_argument: &[u8]) -> bool {
    first_argument == CHILD_MARK.as_bytes()
}

/// The arguments from the host.
enum Role {
    Zygote,
    Job { job: Job, address_space: u64, stack: usize, input_bytes: usize },
}

fn child_main(arguments: &[String], jobs: &[Job]) -> ! {
    // A destructor that runs on a hostile heap is additional attack surface, so nothing unwinds except a job.
    std::panic::set_hook(Box::new(|_| exit(EXIT_PANIC)));
    let socket = match take_descriptors() {
        Ok(socket) => socket,
        Err(_) => exit(EXIT_NOT_A_CHILD),
    };
    let (host, role) = match parse(arguments, jobs) {
        Ok(parsed) => parsed,
        Err(message) => refuse(Wire::new(socket), &message),
    };
    let prepared = prepare_process();
    match role {
        Role::Zygote => {
            // A session of its own: the kernel shares the processor between sessions, so that programs neither slow
            // down their host nor wait for the rest of its work. Kernels that do not share by session ignore it.
            let _ = rustix::process::setsid();
            let sealed = prepared.and_then(|()| {
                // It waits for questions, and answers them in their order.
                rustix::io::ioctl_fionbio(&socket, false).map_err(|e| format!("ioctl: {e}"))?;
                seal::as_zygote(host)
            });
            match sealed {
                Ok(layers) => zygote::serve(socket, layers),
                Err(message) => zygote::refuse(&socket, &message),
            }
        }
        Role::Job { job, address_space, stack, input_bytes } => {
            let wire = Wire::new(socket);
            let sealed = prepared
                .and_then(|()| seal::apply_outer(host, address_space, worker::LIFETIME_CPU));
            let layers = match sealed {
                Ok(layers) => layers,
                Err(message) => refuse(wire, &message),
            };
            one_heap();
            // A job has no hostile heap, and may contain code that panics and is caught.
            std::panic::set_hook(Box::new(|_| {}));
            // The thread must start before the last layers, which forbid threads.
            let started = std::thread::Builder::new().stack_size(stack).spawn(move || {
                let wire = finish_seal(wire, layers);
                worker::serve(wire, job, input_bytes)
            });
            match started {
                Ok(thread) => {
                    let _ = thread.join();
                    exit(EXIT_PANIC)
                }
                Err(_) => exit(EXIT_NOT_A_CHILD),
            }
        }
    }
}

/// Applies the last layers and reports to the host which ones hold.
fn finish_seal(mut wire: Wire, mut layers: Vec<LayerReport>) -> Wire {
    match seal::apply_inner() {
        Ok(inner) => layers.extend(inner),
        Err(message) => refuse(wire, &message),
    }
    frame::write(wire.out(), &ToHost::Ready { version: VERSION, layers: &layers });
    wire
}

fn refuse(mut wire: Wire, message: &str) -> ! {
    frame::write(wire.out(), &ToHost::Unavailable { message });
    wire.flush();
    exit(EXIT_NOT_A_CHILD)
}

fn parse(arguments: &[String], jobs: &[Job]) -> Result<(Pid, Role), String> {
    let bad = || "the host started this child with arguments it does not know".to_owned();
    let [host, kind, rest @ ..] = arguments else { return Err(bad()) };
    let host = host.parse().ok().and_then(Pid::from_raw).ok_or_else(bad)?;
    match (kind.as_str(), rest) {
        (ZYGOTE, []) => Ok((host, Role::Zygote)),
        (JOB, [name, address_space, stack, input_bytes]) => {
            let job = *jobs
                .iter()
                .find(|job| job.name == name)
                .ok_or_else(|| format!("this binary registers no job `{name}`"))?;
            let role = Role::Job {
                job,
                address_space: address_space.parse().map_err(|_| bad())?,
                stack: stack.parse().map_err(|_| bad())?,
                input_bytes: input_bytes.parse().map_err(|_| bad())?,
            };
            Ok((host, role))
        }
        _ => Err(bad()),
    }
}

/// Moves the socket to its place, points the standard streams to nothing and closes all else.
fn take_descriptors() -> Result<OwnedFd, rustix::io::Errno> {
    let stdin = std::io::stdin();
    let arrived: BorrowedFd<'_> = stdin.as_fd();
    if rustix::net::sockopt::socket_domain(arrived)? != rustix::net::AddressFamily::UNIX {
        return Err(rustix::io::Errno::NOTSOCK);
    }
    #[expect(
        unsafe_code,
        reason = "descriptors are moved to fixed numbers, which no safe type can express"
    )]
    // SAFETY: this runs first in a process of one thread. Nothing owns 3 or anything above it, because all of
    // it was inherited.
    let socket = unsafe {
        if libc::dup2(0, SOCKET) < 0 {
            return Err(rustix::io::Errno::BADF);
        }
        OwnedFd::from_raw_fd(SOCKET)
    };
    let nothing = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    drop(nothing);
    // Every descriptor above the socket was inherited and has no owner here.
    close_all_from(SOCKET + 1)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Moves a forked child's socket to its place, which closes the zygote's own, and closes all else.
pub(crate) fn only(socket: OwnedFd) -> Result<OwnedFd, rustix::io::Errno> {
    #[expect(
        unsafe_code,
        reason = "descriptors are moved to fixed numbers, which no safe type can express"
    )]
    // SAFETY: the child never returns to the code that owned what lay at this number.
    let moved = unsafe {
        if libc::dup2(socket.as_raw_fd(), SOCKET) < 0 {
            return Err(rustix::io::Errno::BADF);
        }
        OwnedFd::from_raw_fd(SOCKET)
    };
    std::mem::forget(socket);
    close_all_from(SOCKET + 1)?;
    rustix::io::ioctl_fionbio(&moved, true)?;
    Ok(moved)
}

/// Closes every descriptor from a number on. Whoever owned one must never use or drop it again.
fn close_all_from(first: i32) -> Result<(), rustix::io::Errno> {
    #[expect(unsafe_code, reason = "no safe wrapper")]
    // SAFETY: the callers are children that have just started, and own none of these.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(rustix::io::Errno::NOSYS) }
}

/// Does nothing until it is killed.
pub(crate) fn sleep_forever() -> ! {
    loop {
        let _ = rustix::event::poll(&mut [], None);
    }
}

/// Initializes the process-wide state that libraries use later, while files can still be opened.
fn prepare_process() -> Result<(), String> {
    std::env::set_current_dir("/").map_err(|e| format!("chdir: {e}"))?;
    // For readers of a process list.
    rustix::thread::set_name(c"pml-sandbox").map_err(|e| format!("prctl(NAME): {e}"))?;
    // The first use of a clock makes a system call to find the fast clock.
    let _ = (monotonic(), cpu_time());
    let (name, zone) = (CString::from(c"TZ"), CString::from(c"UTC"));
    #[expect(unsafe_code, reason = "the C library reads its time zone once, from the environment")]
    // SAFETY: this process has one thread, and both strings live across the call.
    unsafe {
        libc::setenv(name.as_ptr(), zone.as_ptr(), 1);
        tzset();
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the libc crate does not bind it on Linux")]
// SAFETY: POSIX declares `void tzset(void)`.
unsafe extern "C" {
    fn tzset();
}

/// Keeps the C library from setting aside 128 MiB of address space for a second thread's heap.
fn one_heap() {
    #[cfg(target_env = "gnu")]
    {
        #[expect(unsafe_code, reason = "no safe wrapper")]
        // SAFETY: the call changes a number inside the allocator; this process has one thread.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Leaves at once, with no destructor and no exit handler.
pub(crate) fn exit(code: i32) -> ! {
    #[expect(unsafe_code, reason = "the standard library's exit runs handlers")]
    // SAFETY: `_exit` has no preconditions.
    unsafe {
        libc::_exit(code)
    }
}

/// Time since an arbitrary start, for timers.
pub(crate) fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
